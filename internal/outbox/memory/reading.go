package memory

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// Delivery implements outbox.Reading.
func (s *Store) Delivery(ctx context.Context, tenant outbox.TenantRef, id outbox.DeliveryID) (outbox.DeliveryView, error) {
	if err := s.locked(ctx); err != nil {
		return outbox.DeliveryView{}, err
	}
	defer s.mu.Unlock()
	v, ok := s.view(id)
	if !ok || tenant.ID != 0 && v.Tenant != tenant.ID {
		return outbox.DeliveryView{}, outbox.ErrNotFound
	}
	return v, nil
}

func (s *Store) view(id outbox.DeliveryID) (outbox.DeliveryView, bool) {
	d, state := s.standing(id)
	if state == "" {
		return outbox.DeliveryView{}, false
	}
	v := outbox.DeliveryView{Delivery: d, State: state, CreatedAt: id.Time()}
	if e := s.events[eventKey{d.Tenant, d.Event}]; e != nil {
		v.CreatedAt = e.CreatedAt
	}
	if state != outbox.StatePending {
		v.NextAt, v.TurnAt, v.RoundStart, v.Lane = time.Time{}, time.Time{}, 0, 0
	}
	if l := s.dead[id]; l != nil && state != outbox.StatePending {
		info := l.info
		v.Dead, v.FinishedAt = &info, info.At
	}
	for _, t := range s.tries[id] {
		if state == outbox.StateDelivered && t.final && t.n == d.Attempt {
			v.FinishedAt = t.at
		}
		if v.Last == nil || t.n >= v.Last.N {
			v.Last = &outbox.AttemptSummary{ID: t.ID, N: t.n, At: t.At, Duration: t.Duration, StatusCode: t.StatusCode, Kind: t.Kind, Message: t.Message}
		}
	}
	if state == outbox.StateDelivered {
		v.SendableAt = time.Time{}
	}
	if t := s.tenants[d.Tenant]; t != nil {
		v.TenantKey, v.TenantState, v.Limits.TenantInFlight = t.Key, t.State, t.MaxInFlight
	}
	if e := s.endpoints[d.Endpoint]; e != nil {
		v.EndpointURL, v.Limits.EndpointInFlight, v.Limits.Rate = e.URL, e.MaxInFlight, e.RateLimit
		if e.DeletedAt.IsZero() {
			v.EndpointState = e.State
		}
	}
	return v, true
}

// Deliveries implements outbox.Reading, for queries by tenant, endpoint, event and state.
func (s *Store) Deliveries(ctx context.Context, q outbox.DeliveryQuery, page outbox.Page) ([]outbox.DeliveryView, outbox.DeliveryID, error) {
	if err := s.locked(ctx); err != nil {
		return nil, outbox.DeliveryID{}, err
	}
	defer s.mu.Unlock()
	ids := map[outbox.DeliveryID]bool{}
	for id := range s.pending {
		ids[id] = true
	}
	if !slices.Equal(q.States, []outbox.DeliveryState{outbox.StatePending}) {
		for id := range s.dead {
			ids[id] = true
		}
		for id := range s.tries {
			ids[id] = true
		}
	}
	order := func(a, b outbox.DeliveryID) int {
		if page.Ascending {
			return compareIDs(a, b)
		}
		return compareIDs(b, a)
	}
	var list []outbox.DeliveryView
	for _, id := range slices.SortedFunc(maps.Keys(ids), order) {
		if !q.After.IsZero() && order(id, q.After) <= 0 {
			continue
		}
		v, ok := s.view(id)
		if !ok || q.Tenant.ID != 0 && v.Tenant != q.Tenant.ID || !q.Endpoint.IsZero() && v.Endpoint != q.Endpoint ||
			!q.Event.IsZero() && v.Event != q.Event || len(q.States) > 0 && !slices.Contains(q.States, v.State) {
			continue
		}
		if len(list) == page.Limit {
			return list, list[len(list)-1].ID, nil
		}
		list = append(list, v)
	}
	return list, outbox.DeliveryID{}, nil
}

// Attempts implements outbox.Reading.
func (s *Store) Attempts(ctx context.Context, tenant outbox.TenantRef, id outbox.DeliveryID, after int, page outbox.Page) ([]outbox.AttemptView, error) {
	if err := s.locked(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	order := 1
	if !page.Ascending {
		order = -1
	}
	tries := slices.Clone(s.tries[id])
	slices.SortFunc(tries, func(a, b try) int { return order * cmp.Or(cmp.Compare(a.n, b.n), compareIDs(a.ID, b.ID)) })
	var list []outbox.AttemptView
	for _, t := range tries {
		d := &t.delivery
		if tenant.ID != 0 && d.Tenant != tenant.ID || after != 0 && order*(t.n-after) <= 0 || len(list) == page.Limit {
			continue
		}
		key := ""
		if owner := s.tenants[d.Tenant]; owner != nil {
			key = owner.Key
		}
		list = append(list, outbox.AttemptView{
			Attempt: t.Attempt, N: t.n, Round: d.Round, Sequence: d.Sequence, Delivery: d.ID, Event: d.Event, EventType: d.EventType,
			Endpoint: d.Endpoint, Tenant: outbox.TenantRef{ID: d.Tenant, Shard: d.Shard}, TenantKey: key,
		})
	}
	return list, nil
}

// counts are the books of a shard.
type counts struct {
	planned, delivered, dead, cancelled, replayed, revived int64
	matched, unmatched                                     map[int64]int64 // events routed, by the day in their ids
}

func newCounts() counts { return counts{matched: map[int64]int64{}, unmatched: map[int64]int64{}} }

// dayOf is the day of a time, counted from 1970.
func dayOf(t time.Time) int64 { return t.Unix() / (24 * 60 * 60) }

func (c *counts) routed(id outbox.EventID, matched bool) {
	if matched {
		c.matched[dayOf(id.Time())]++
	} else {
		c.unmatched[dayOf(id.Time())]++
	}
}

// Verify implements outbox.Upkeep.
func (s *Store) Verify(ctx context.Context, deep bool) (outbox.Report, error) {
	if err := s.locked(ctx); err != nil {
		return outbox.Report{}, err
	}
	defer s.mu.Unlock()
	r := outbox.Report{At: s.clock()}
	type day struct {
		shard outbox.Shard
		day   int64
	}
	pending, letters := map[outbox.Shard]int64{}, map[outbox.Shard]int64{}
	stored, waiting := map[day]int64{}, map[day]int64{}
	for _, d := range s.pending {
		pending[d.Shard]++
	}
	for _, l := range s.dead {
		letters[l.Shard]++
	}
	for _, e := range s.events {
		stored[day{e.Tenant.Shard, dayOf(e.ID.Time())}]++
		r.Events++
	}
	planned := outbox.Check{Name: "planned = delivered + dead + cancelled + pending"}
	ended := outbox.Check{Name: "dead + cancelled - revived = dead letters"}
	kept := outbox.Check{Name: "routed + waiting = events"}
	compare := func(c *outbox.Check, where string, left, right int64) {
		if left != right {
			c.Broken = append(c.Broken, outbox.Imbalance{Where: where, Left: left, Right: right})
		}
	}
	for id, at := range s.shards {
		c := &at.counts
		where := fmt.Sprintf("shard %d", id)
		compare(&planned, where, c.planned, c.delivered+c.dead+c.cancelled+pending[id])
		compare(&ended, where, c.dead+c.cancelled-c.revived, letters[id])
		r.Planned, r.Delivered, r.Dead, r.Cancelled = r.Planned+c.planned, r.Delivered+c.delivered, r.Dead+c.dead, r.Cancelled+c.cancelled
		r.Replayed, r.Pending = r.Replayed+c.replayed, r.Pending+pending[id]
		for _, row := range at.rows {
			if row.Kind == outbox.OutboxEvent {
				waiting[day{id, dayOf(row.Event.Time())}]++
				r.Waiting++
			}
		}
		for k, n := range stored {
			if k.shard == id {
				compare(&kept, fmt.Sprintf("%s, day %d", where, k.day), c.matched[k.day]+c.unmatched[k.day]+waiting[k], n)
			}
		}
		for _, n := range c.matched {
			r.Matched += n
		}
		for _, n := range c.unmatched {
			r.Unmatched += n
		}
	}
	r.Routed = r.Matched + r.Unmatched
	r.Checks = append(r.Checks, planned, ended, kept)
	if deep {
		r.Checks = append(r.Checks, s.numbers())
	}
	return r, nil
}

// numbers proves that every number an endpoint gave belongs to exactly one delivery.
func (s *Store) numbers() outbox.Check {
	c := outbox.Check{Name: "every number belongs to one delivery"}
	of := map[outbox.EndpointID]map[int64]outbox.DeliveryID{}
	note := func(d *outbox.Delivery) {
		if of[d.Endpoint] == nil {
			of[d.Endpoint] = map[int64]outbox.DeliveryID{}
		}
		if other, ok := of[d.Endpoint][d.Sequence]; ok && other != d.ID {
			c.Broken = append(c.Broken, outbox.Imbalance{Where: fmt.Sprintf("endpoint %s, number %d", d.Endpoint, d.Sequence), Left: 1, Right: 2})
		}
		of[d.Endpoint][d.Sequence] = d.ID
	}
	for _, d := range s.pending {
		note(d)
	}
	for _, l := range s.dead {
		note(&l.Delivery)
	}
	for _, tries := range s.tries {
		for i := range tries {
			if tries[i].final {
				note(&tries[i].delivery)
			}
		}
	}
	for id, numbers := range of {
		for n := int64(1); n < s.marks[id]; n++ {
			if _, ok := numbers[n]; !ok {
				c.Broken = append(c.Broken, outbox.Imbalance{Where: fmt.Sprintf("endpoint %s, number %d", id, n), Left: 1, Right: 0})
			}
		}
		for n := range numbers {
			if n >= s.marks[id] {
				c.Broken = append(c.Broken, outbox.Imbalance{Where: fmt.Sprintf("endpoint %s, number %d", id, n), Left: 0, Right: 1})
			}
		}
	}
	return c
}

// Maintain implements outbox.Upkeep; there is nothing to tidy up.
func (s *Store) Maintain(context.Context, outbox.Maintenance) error { return nil }

// LoadJobs implements outbox.JobWork; there are none.
func (s *Store) LoadJobs(context.Context, []outbox.Shard) ([]outbox.Job, error) { return nil, nil }

// Event implements outbox.Reading.
func (s *Store) Event(ctx context.Context, tenant outbox.TenantRef, id outbox.EventID) (outbox.EventView, error) {
	if err := s.locked(ctx); err != nil {
		return outbox.EventView{}, err
	}
	defer s.mu.Unlock()
	e := s.events[eventKey{tenant.ID, id}]
	if e == nil {
		return outbox.EventView{}, outbox.ErrNotFound
	}
	v := outbox.EventView{Event: *e, State: outbox.EventUnmatched, TenantKey: s.tenants[tenant.ID].Key, PayloadBytes: len(e.Payload)}
	v.Payload = nil
	has := map[outbox.DeliveryState]bool{}
	for _, endpoint := range s.endpoints {
		if _, state := s.standing(outbox.NewDeliveryID(id, endpoint.ID)); state != "" {
			has[state] = true
		}
	}
	for _, row := range s.shards[tenant.Shard].rows {
		if row.Kind == outbox.OutboxEvent && row.Event == id {
			has[outbox.StatePending] = true
		}
	}
	switch {
	case has[outbox.StatePending]:
		v.State = outbox.EventUnrouted
	case has[outbox.StateDead]:
		v.State = outbox.EventFailed
	case has[outbox.StateCancelled]:
		v.State = outbox.EventCancelled
	case has[outbox.StateDelivered]:
		v.State = outbox.EventDelivered
	}
	return v, nil
}

// PendingOf implements outbox.Reading.
func (s *Store) PendingOf(ctx context.Context, tenant outbox.TenantRef, id outbox.EndpointID, limit int) (int, time.Time, error) {
	if err := s.locked(ctx); err != nil {
		return 0, time.Time{}, err
	}
	defer s.mu.Unlock()
	rows := s.pick(limit, func(d *outbox.Delivery) bool { return d.Endpoint == id && (tenant.ID == 0 || d.Tenant == tenant.ID) })
	var oldest time.Time
	for _, d := range rows {
		if oldest.IsZero() || d.SendableAt.Before(oldest) {
			oldest = d.SendableAt
		}
	}
	return len(rows), oldest, nil
}
