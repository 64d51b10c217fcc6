package memory

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// Route implements outbox.Routing.
func (s *Store) Route(ctx context.Context, lease outbox.Lease, plans []outbox.Plan, next map[outbox.EndpointID]int64, now time.Time) (outbox.Routed, error) {
	if err := s.locked(ctx); err != nil {
		return outbox.Routed{}, err
	}
	defer s.mu.Unlock()
	var routed outbox.Routed
	for i := range plans {
		id := plans[i].Row.Shard
		if err := s.fence(lease, id); err != nil {
			return outbox.Routed{}, err
		}
		if s.shards[id].revision > lease.Revisions[id] && !slices.Contains(routed.Stale, id) {
			routed.Stale = append(routed.Stale, id)
		}
	}
	slices.Sort(routed.Stale)
	past := make([]bool, len(plans))
	for i := range plans {
		p := &plans[i]
		switch row := s.row(p.Row.Shard, p.Row.Pos); {
		case row != nil && row.After == p.Row.After:
		case row != nil && !p.Last && compareIDs(row.After, after(p)) >= 0:
			past[i] = true // an earlier run of this call moved it
		default:
			routed.Gone = append(routed.Gone, p.Row.Pos)
		}
	}
	if len(routed.Stale)+len(routed.Gone) > 0 {
		return routed, nil
	}
	stored, parked := s.decide(plans)
	routed.Parked = parked
	for i := range plans {
		if !past[i] {
			s.routePlan(&plans[i], stored)
		}
	}
	for id, n := range next {
		s.marks[id] = max(s.marks[id], n)
	}
	return routed, nil
}

func (s *Store) routePlan(p *outbox.Plan, stored map[outbox.DeliveryID]outbox.Delivery) {
	at := s.shards[p.Row.Shard]
	for _, d := range p.Deliveries {
		if own, strict := stored[d.ID]; strict {
			d = own
		}
		if s.insert(d) {
			at.counts.planned++
		}
	}
	if !p.Last {
		s.row(p.Row.Shard, p.Row.Pos).After = after(p)
		return
	}
	s.take(&p.Row)
	at.counts.routed(p.Row.Event, p.Matched)
}

// insert plans a delivery unless it is pending already.
func (s *Store) insert(d outbox.Delivery) bool {
	if s.pending[d.ID] != nil {
		return false
	}
	d.NextAt, d.SendableAt, d.TurnAt = truncate(d.NextAt), truncate(d.SendableAt), truncate(d.TurnAt)
	s.pending[d.ID] = &d
	of := s.of[d.Endpoint]
	if of == nil {
		of = map[outbox.DeliveryID]*outbox.Delivery{}
		s.of[d.Endpoint] = of
	}
	of[d.ID] = &d
	return true
}

// remove takes a delivery out of what is pending.
func (s *Store) remove(d *outbox.Delivery) {
	delete(s.pending, d.ID)
	delete(s.of[d.Endpoint], d.ID)
}

// decide finds out which of the strict deliveries of plans are next in their keys. stored is how
// each of them is to be kept.
func (s *Store) decide(plans []outbox.Plan) (stored map[outbox.DeliveryID]outbox.Delivery, parked []outbox.DeliveryID) {
	var strict []outbox.Delivery
	for i := range plans {
		for _, d := range plans[i].Deliveries {
			if d.Strict() {
				strict = append(strict, d)
			}
		}
	}
	if len(strict) == 0 {
		return nil, nil
	}
	slices.SortStableFunc(strict, func(a, b outbox.Delivery) int { return cmp.Compare(a.Sequence, b.Sequence) })
	stored = make(map[outbox.DeliveryID]outbox.Delivery, len(strict))
	taken := map[orderKey]bool{}
	for _, d := range strict {
		if !s.keepsOrder(d.Endpoint) {
			d.TurnAt = time.Time{}
			stored[d.ID] = d
			continue
		}
		k := keyOf(&d)
		if taken[k] || s.taken(k) {
			d.NextAt, d.TurnAt = outbox.Parked, outbox.Parked
			parked = append(parked, d.ID)
		}
		taken[k] = true
		stored[d.ID] = d
	}
	return stored, parked
}

// FetchDue implements outbox.Dispatching.
func (s *Store) FetchDue(ctx context.Context, requests []outbox.FetchRequest, now time.Time, maxBytes int64) ([]outbox.Fetched, error) {
	if err := s.locked(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	answers := make([]outbox.Fetched, len(requests))
	left := maxBytes
	for i := range requests {
		answers[i].Rows = s.next(&requests[i])
		if rows := answers[i].Rows; len(rows) > 0 && !rows[0].NextAt.After(now) {
			left -= int64(len(s.payload(&rows[0].Delivery)))
		}
	}
	for i := range answers {
		a := &answers[i]
		for j := range a.Rows {
			due := &a.Rows[j]
			payload := s.payload(&due.Delivery)
			if due.NextAt.After(now) {
				continue
			}
			if j > 0 {
				if int64(len(payload)) > max(left, 0) {
					a.Rows, a.Cut = a.Rows[:j], true
					break
				}
				left -= int64(len(payload))
			}
			if !due.Gone {
				due.Payload = payload
			}
		}
	}
	return answers, nil
}

func (s *Store) payload(d *outbox.Delivery) []byte {
	if e := s.events[eventKey{d.Tenant, d.Event}]; e != nil {
		return e.Payload
	}
	return nil
}

// next finds the rows of a request, without their payloads.
func (s *Store) next(q *outbox.FetchRequest) []outbox.Due {
	var found []*outbox.Delivery
	for _, d := range s.of[q.Endpoint] {
		if d.Shard == q.Shard && d.Lane == q.Lane && !d.Parked() && (d.NextAt.After(q.AfterNextAt) || d.NextAt.Equal(q.AfterNextAt) && compareIDs(d.ID, q.AfterID) > 0) {
			found = append(found, d)
		}
	}
	slices.SortFunc(found, byTurn)
	rows := make([]outbox.Due, 0, min(len(found), q.Limit))
	for _, d := range found[:min(len(found), q.Limit)] {
		due := outbox.Due{Delivery: *d, Gone: !s.kept(d)}
		if e := s.events[eventKey{d.Tenant, d.Event}]; e != nil {
			due.EventCreatedAt, due.EventMetadata = e.CreatedAt, e.Metadata
		}
		rows = append(rows, due)
	}
	return rows
}

// byTurn is the order in which pending deliveries of a lane are sent.
func byTurn(a, b *outbox.Delivery) int {
	return cmp.Or(a.NextAt.Compare(b.NextAt), compareIDs(a.ID, b.ID))
}

// PendingAttempts implements outbox.Dispatching.
func (s *Store) PendingAttempts(ctx context.Context, _ []outbox.Shard, ids []outbox.DeliveryID) (map[outbox.DeliveryID]int, error) {
	if err := s.locked(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	attempts := map[outbox.DeliveryID]int{}
	for _, id := range ids {
		if d := s.pending[id]; d != nil {
			attempts[id] = d.Attempt
		}
	}
	return attempts, nil
}

// Recorded implements outbox.Dispatching.
func (s *Store) Recorded(ctx context.Context, _ []outbox.Shard, slots []outbox.HeldSlot) (map[outbox.DeliveryID]bool, error) {
	if err := s.locked(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	recorded := map[outbox.DeliveryID]bool{}
	for _, slot := range slots {
		for _, t := range s.tries[slot.Delivery] {
			if t.n == slot.Attempt+1 && (slot.Began.IsZero() || compareIDs(t.ID, outbox.AttemptFloor(slot.Began)) >= 0) {
				recorded[slot.Delivery] = true
			}
		}
	}
	return recorded, nil
}

// Replay implements outbox.Routing.
func (s *Store) Replay(ctx context.Context, lease outbox.Lease, rows []outbox.OutboxRow, now time.Time) ([]outbox.Delivery, error) {
	if err := s.locked(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	for i := range rows {
		if err := s.fence(lease, rows[i].Shard); err != nil {
			return nil, err
		}
	}
	now = truncate(now)
	var due []outbox.Delivery
	var keys keySet
	for i := range rows {
		if !s.take(&rows[i]) {
			continue
		}
		d, state := s.standing(outbox.NewDeliveryID(rows[i].Event, rows[i].Endpoint))
		switch {
		case state == "":
		case state == outbox.StatePending:
			if own := s.pending[d.ID]; !own.Parked() {
				own.NextAt = now
				due = append(due, *own)
			}
		default:
			if d, again := s.again(d, state, &keys, now); again {
				due = append(due, d)
			}
		}
	}
	return append(due, s.giveTurns(keys, now)...), nil
}

// again plans a delivery that has ended, and reports whether it is due.
func (s *Store) again(d outbox.Delivery, state outbox.DeliveryState, keys *keySet, now time.Time) (outbox.Delivery, bool) {
	if e := s.endpoints[d.Endpoint]; e == nil || !e.DeletedAt.IsZero() || !s.kept(&d) {
		return d, false
	}
	at := s.shards[d.Shard]
	if state != outbox.StateDelivered {
		delete(s.dead, d.ID)
		at.counts.revived++
	}
	d.Round++
	d.RoundStart, d.Lane, d.NextAt, d.SendableAt, d.TurnAt = d.Attempt, outbox.LaneReplay, now, now, time.Time{}
	if s.order[d.Endpoint].keeps() {
		d.NextAt, d.TurnAt = outbox.Parked, outbox.Parked
		keys.add(keyOf(&d))
	}
	if e := s.events[eventKey{d.Tenant, d.Event}]; e != nil {
		d.OrderingKey = e.OrderingKey
	}
	s.insert(d)
	at.counts.planned++
	at.counts.replayed++
	return d, !d.Parked()
}

// HastenOldest implements outbox.Routing.
func (s *Store) HastenOldest(ctx context.Context, lease outbox.Lease, row outbox.OutboxRow, now time.Time) (*outbox.Delivery, error) {
	if err := s.locked(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	if err := s.fence(lease, row.Shard); err != nil {
		return nil, err
	}
	s.take(&row)
	var first *outbox.Delivery
	for _, d := range s.of[row.Endpoint] {
		if !d.Parked() && (first == nil || cmp.Or(cmp.Compare(d.Lane, first.Lane), byTurn(d, first)) < 0) {
			first = d
		}
	}
	if first == nil {
		return nil, nil
	}
	if now = truncate(now); now.Before(first.NextAt) {
		first.NextAt = now
	}
	d := *first
	return &d, nil
}

// after is the last endpoint that is planned once the plan is carried out.
func after(p *outbox.Plan) outbox.EndpointID {
	if n := len(p.Deliveries); n > 0 {
		return p.Deliveries[n-1].Endpoint
	}
	return p.Row.After
}
