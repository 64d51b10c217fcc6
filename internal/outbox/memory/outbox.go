package memory

import (
	"context"
	"crypto/sha256"
	"maps"
	"slices"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// InsertEvents implements outbox.Publishing.
func (s *Store) InsertEvents(ctx context.Context, batch []outbox.NewEvent) ([]outbox.Accepted, []outbox.Conflict, error) {
	if err := s.locked(ctx); err != nil {
		return nil, nil, err
	}
	defer s.mu.Unlock()
	var conflicts []outbox.Conflict
	accepted := make([]outbox.Accepted, len(batch))
	within := map[eventKey]*outbox.Event{}
	for i := range batch {
		e := &batch[i]
		accepted[i] = outbox.Accepted{ID: e.ID, CreatedAt: truncate(e.CreatedAt)}
		if e.IdempotencyKey != "" {
			if first, used := s.idem[idemKey{e.Tenant.ID, e.IdempotencyKey}]; used {
				if first.digest != e.Digest() {
					conflicts = append(conflicts, outbox.Conflict{Index: i, Err: outbox.ErrIdempotencyMismatch})
					continue
				}
				accepted[i] = outbox.Accepted{ID: first.event, CreatedAt: first.at, Duplicate: true, Again: first.event != e.ID}
				continue
			}
		}
		k := eventKey{e.Tenant.ID, e.ID}
		first := s.events[k]
		if first == nil {
			first = within[k]
		}
		switch {
		case first == nil:
			within[k] = &e.Event
		case first.Type != e.Type || first.SHA256 != e.SHA256:
			conflicts = append(conflicts, outbox.Conflict{Index: i, Err: outbox.ErrIDConflict})
		default:
			accepted[i].CreatedAt, accepted[i].Duplicate = truncate(first.CreatedAt), true
		}
	}
	if len(conflicts) > 0 {
		return nil, conflicts, nil
	}
	for i := range batch {
		if e := &batch[i]; !accepted[i].Duplicate {
			accepted[i].Pos = s.store(&e.Event, outbox.EndpointID{})
			if e.IdempotencyKey != "" {
				s.idem[idemKey{e.Tenant.ID, e.IdempotencyKey}] = idemEntry{e.Digest(), e.ID, truncate(e.CreatedAt)}
			}
		}
	}
	return accepted, nil, nil
}

// store keeps an event and its outbox row, and returns the row's position. only is the endpoint it
// is for, zero: whoever wants it.
func (s *Store) store(e *outbox.Event, only outbox.EndpointID) int64 {
	kept := *e
	kept.CreatedAt, kept.Metadata = truncate(e.CreatedAt), maps.Clone(e.Metadata)
	s.events[eventKey{e.Tenant.ID, e.ID}] = &kept
	return s.append(outbox.OutboxRow{Shard: e.Tenant.Shard, Kind: outbox.OutboxEvent, Tenant: e.Tenant.ID, Event: e.ID, Endpoint: only})
}

// InsertTest implements outbox.Testing.
func (s *Store) InsertTest(ctx context.Context, e outbox.Event, endpoint outbox.EndpointID) error {
	if err := s.locked(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	if s.events[eventKey{e.Tenant.ID, e.ID}] == nil {
		s.store(&e, endpoint)
	}
	return nil
}

// append puts a row into the outbox and returns its position.
func (s *Store) append(row outbox.OutboxRow) int64 {
	s.lastPos++
	row.Pos = s.lastPos
	row.Command.Before = truncate(row.Command.Before)
	at := s.shards[row.Shard]
	at.rows = append(at.rows, &row)
	return row.Pos
}

// row finds an outbox row.
func (s *Store) row(id outbox.Shard, pos int64) *outbox.OutboxRow {
	rows := s.shards[id].rows
	if i, found := slices.BinarySearchFunc(rows, pos, byPos); found {
		return rows[i]
	}
	return nil
}

func byPos(row *outbox.OutboxRow, pos int64) int { return int(row.Pos - pos) }

// take deletes an outbox row and reports whether it was there.
func (s *Store) take(row *outbox.OutboxRow) bool {
	at := s.shards[row.Shard]
	i, found := slices.BinarySearchFunc(at.rows, row.Pos, byPos)
	if found {
		at.rows = slices.Delete(at.rows, i, i+1)
	}
	return found
}

// ReadOutbox implements outbox.Routing.
func (s *Store) ReadOutbox(ctx context.Context, shards []outbox.Shard, after []int64, perShard int) ([]outbox.OutboxRow, error) {
	if err := s.locked(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	var list []outbox.OutboxRow
	for i, id := range shards {
		at := s.shards[id]
		if at == nil || len(at.rows) == 0 {
			continue
		}
		from, _ := slices.BinarySearchFunc(at.rows, after[i]+1, byPos)
		for _, row := range at.rows[from:min(len(at.rows), from+perShard)] {
			list = append(list, *row)
		}
	}
	return list, nil
}

// OutboxTip implements outbox.Routing.
func (s *Store) OutboxTip(ctx context.Context) (int64, error) {
	if err := s.locked(ctx); err != nil {
		return 0, err
	}
	defer s.mu.Unlock()
	return s.lastPos, nil
}

// ReadEvents implements outbox.Routing.
func (s *Store) ReadEvents(ctx context.Context, rows []outbox.OutboxRow, maxPayload int64) error {
	if err := s.locked(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	left := maxPayload
	for i := range rows {
		row := &rows[i]
		row.Source, row.HasPayload = nil, false
		e := s.events[eventKey{row.Tenant, row.Event}]
		if row.Kind == outbox.OutboxCommand || e == nil {
			continue
		}
		found := *e
		row.Source = &found
		if left -= int64(len(e.Payload)); left < 0 {
			left, found.Payload = -1, nil
		} else {
			row.HasPayload = true
		}
	}
	return nil
}

// NextSequences implements outbox.Routing.
func (s *Store) NextSequences(ctx context.Context, endpoints map[outbox.EndpointID]outbox.Shard) (map[outbox.EndpointID]int64, error) {
	if err := s.locked(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	next := make(map[outbox.EndpointID]int64, len(endpoints))
	for id := range endpoints {
		next[id] = max(1, s.marks[id])
	}
	return next, nil
}

// EndCommand implements outbox.Routing.
func (s *Store) EndCommand(ctx context.Context, lease outbox.Lease, row outbox.OutboxRow) error {
	if err := s.locked(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	if err := s.fence(lease, row.Shard); err != nil {
		return err
	}
	s.take(&row)
	return nil
}

// RequestReplay implements outbox.Reading.
func (s *Store) RequestReplay(ctx context.Context, tenant outbox.TenantRef, id outbox.DeliveryID) (outbox.DeliveryState, error) {
	if err := s.locked(ctx); err != nil {
		return "", err
	}
	defer s.mu.Unlock()
	d, state := s.standing(id)
	if state == "" || tenant.ID != 0 && d.Tenant != tenant.ID {
		return "", outbox.ErrNotFound
	}
	if e := s.endpoints[d.Endpoint]; e == nil || !e.DeletedAt.IsZero() {
		return "", outbox.ErrEndpointGone
	}
	if !s.kept(&d) {
		return "", outbox.ErrPayloadGone
	}
	s.append(outbox.OutboxRow{Shard: d.Shard, Kind: outbox.OutboxReplay, Tenant: d.Tenant, Event: d.Event, Endpoint: d.Endpoint})
	return state, nil
}

// kept reports whether the bytes of a delivery's event are.
func (s *Store) kept(d *outbox.Delivery) bool {
	e := s.events[eventKey{d.Tenant, d.Event}]
	return e != nil && (len(e.Payload) > 0 || e.SHA256 == sha256.Sum256(nil))
}

// standing finds a delivery as it was last pending, and its state, "" if it never was planned.
func (s *Store) standing(id outbox.DeliveryID) (outbox.Delivery, outbox.DeliveryState) {
	if d := s.pending[id]; d != nil {
		return *d, outbox.StatePending
	}
	if l := s.dead[id]; l != nil {
		return l.Delivery, l.info.Reason.State()
	}
	var d outbox.Delivery
	state := outbox.DeliveryState("")
	last := 0
	for _, t := range s.tries[id] {
		last = max(last, t.n)
		if t.final && t.Outcome == outbox.OutcomeDelivered && (state == "" || t.n > d.Attempt) {
			d, state = t.delivery, outbox.StateDelivered
			d.Attempt = t.n
		}
	}
	d.Attempt = max(d.Attempt, last)
	return d, state
}
