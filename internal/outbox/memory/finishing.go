package memory

import (
	"context"
	"slices"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// Finish implements outbox.Dispatching.
func (s *Store) Finish(ctx context.Context, results []outbox.Result) (outbox.Finished, error) {
	if err := s.locked(ctx); err != nil {
		return outbox.Finished{}, err
	}
	defer s.mu.Unlock()
	var keys keySet
	var now time.Time
	for i := range results {
		s.finish(&results[i], &keys)
		if results[i].At.After(now) {
			now = results[i].At
		}
	}
	return outbox.Finished{Freed: s.giveTurns(keys, truncate(now))}, nil
}

// finish records a result. Each is a fact: its attempt is kept even where its delivery has ended
// otherwise meanwhile.
func (s *Store) finish(r *outbox.Result, keys *keySet) {
	d := &r.Delivery
	own := s.pending[d.ID]
	same := own != nil && own.Round == d.Round
	tried := 0
	if r.Attempt != nil {
		tried = 1
	}
	ended := false
	switch {
	case r.Delivered:
		if same {
			s.remove(own)
			s.shards[d.Shard].counts.delivered++
			ended = true
		}
		keys.add(keyOf(d)) // it may be strict, and may have become so since it was fetched
	case !same || own.Attempt != d.Attempt:
	case r.Dead != "":
		info := outbox.DeadInfo{Reason: r.Dead, Kind: r.DeadKind, Message: r.DeadMessage, At: truncate(r.At)}
		if a := r.Attempt; a != nil {
			info.Kind, info.Message = a.Kind, a.Message
		}
		s.bury(own, info, tried, keys)
		ended = true
	default:
		own.Attempt += tried
		if !own.Parked() {
			own.NextAt = truncate(r.RetryAt)
		}
	}
	if r.Suspect {
		delete(s.suspects, outbox.Suspect{Shard: d.Shard, Delivery: d.ID})
	}
	if a := r.Attempt; a != nil && !slices.ContainsFunc(s.tries[d.ID], func(t try) bool { return t.ID == a.ID }) {
		kept := *a
		kept.At, kept.Duration = truncate(a.At), a.Duration.Truncate(time.Microsecond)
		s.tries[d.ID] = append(s.tries[d.ID], try{kept, *d, d.Attempt + 1, ended, truncate(r.At)})
	}
}

// bury makes a pending delivery a dead letter.
func (s *Store) bury(d *outbox.Delivery, info outbox.DeadInfo, tried int, keys *keySet) {
	l := &letter{Delivery: *d, info: info}
	l.Attempt += tried
	if d.Strict() {
		o := s.order[d.Endpoint]
		l.holds = info.Reason != outbox.DeadCancelled && o != nil && o.hold
		keys.add(keyOf(d))
	}
	l.Lane = min(l.Lane, outbox.LaneReplay)
	s.dead[d.ID] = l
	s.remove(d)
	if info.Reason == outbox.DeadCancelled {
		s.shards[d.Shard].counts.cancelled++
	} else {
		s.shards[d.Shard].counts.dead++
	}
}

// buryAll ends deliveries without another attempt.
func (s *Store) buryAll(rows []*outbox.Delivery, keys keySet, info outbox.DeadInfo) outbox.Ended {
	var ended outbox.Ended
	for _, d := range rows {
		s.bury(d, info, 0, &keys)
		ended.Deliveries, ended.Endpoints = append(ended.Deliveries, d.ID), append(ended.Endpoints, d.Endpoint)
	}
	ended.Freed = s.giveTurns(keys, info.At)
	return ended
}

// Expire implements outbox.Dispatching.
func (s *Store) Expire(ctx context.Context, lease outbox.Lease, before time.Time, limit int, now time.Time) (outbox.Ended, error) {
	if err := s.locked(ctx); err != nil {
		return outbox.Ended{}, err
	}
	defer s.mu.Unlock()
	for id := range lease.Epochs {
		if err := s.fence(lease, id); err != nil {
			return outbox.Ended{}, err
		}
	}
	rows := s.pick(limit, func(d *outbox.Delivery) bool {
		_, mine := lease.Epochs[d.Shard]
		return mine && d.SendableAt.Before(before)
	})
	return s.buryAll(rows, keySet{}, outbox.DeadInfo{Reason: outbox.DeadExpired, Message: outbox.ReasonExpired, At: truncate(now)}), nil
}

// pick takes at most limit pending deliveries, the oldest first.
func (s *Store) pick(limit int, wanted func(d *outbox.Delivery) bool) []*outbox.Delivery {
	var rows []*outbox.Delivery
	for _, d := range s.pending {
		if wanted(d) {
			rows = append(rows, d)
		}
	}
	slices.SortFunc(rows, func(a, b *outbox.Delivery) int { return compareIDs(a.ID, b.ID) })
	return rows[:min(limit, len(rows))]
}

// Cancel implements outbox.Routing.
func (s *Store) Cancel(ctx context.Context, lease outbox.Lease, row outbox.OutboxRow, limit int, now time.Time) (outbox.Ended, bool, error) {
	if err := s.locked(ctx); err != nil {
		return outbox.Ended{}, false, err
	}
	defer s.mu.Unlock()
	if err := s.fence(lease, row.Shard); err != nil {
		return outbox.Ended{}, false, err
	}
	if s.row(row.Shard, row.Pos) == nil {
		return outbox.Ended{}, true, nil
	}
	before := row.Command.Before
	meant := func(d *outbox.Delivery) bool { return before.IsZero() || !d.SendableAt.After(before) }
	var keys keySet
	if row.Command.Name == outbox.CommandCancelEndpoint {
		keys = s.letGo(row.Endpoint, meant)
	}
	rows := s.pick(limit+1, func(d *outbox.Delivery) bool {
		if row.Command.Name == outbox.CommandCancelTenant {
			return d.Tenant == row.Tenant && meant(d)
		}
		return d.Endpoint == row.Endpoint && meant(d)
	})
	done := len(rows) <= limit
	if done {
		s.take(&row)
	}
	return s.buryAll(rows[:min(limit, len(rows))], keys, outbox.DeadInfo{
		Reason: outbox.DeadCancelled, Message: row.Command.Reason, At: truncate(now),
	}), done, nil
}
