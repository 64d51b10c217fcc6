package metrics

import (
	"context"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// Measured is a store that counts what passes through it.
type Measured struct {
	outbox.Store
	m *Metrics
}

// Measure wraps a store.
func Measure(store outbox.Store, m *Metrics) *Measured { return &Measured{Store: store, m: m} }

// measure notes how a call went.
func (s *Measured) measure(call string, began time.Time, rows int, err error) {
	s.m.store.WithLabelValues(call).Observe(time.Since(began).Seconds())
	if err != nil {
		s.m.failures.WithLabelValues(call).Inc()
		return
	}
	if rows > 0 {
		s.m.batch.WithLabelValues(call).Observe(float64(rows))
	}
}

// InsertEvents counts what was accepted and what was refused.
func (s *Measured) InsertEvents(ctx context.Context, batch []outbox.NewEvent) ([]outbox.Accepted, []outbox.Conflict, error) {
	began := time.Now()
	accepted, conflicts, err := s.Store.InsertEvents(ctx, batch)
	s.measure("publish", began, len(batch), err)
	switch {
	case err != nil:
		s.m.refused.WithLabelValues(refusedOverload).Add(float64(len(batch)))
	case len(conflicts) > 0:
		s.m.refused.WithLabelValues(refusedConflict).Add(float64(len(conflicts)))
	default:
		fresh := 0
		for i := range accepted {
			if !accepted[i].Duplicate {
				fresh++
			}
		}
		s.m.accepted.Add(float64(fresh))
	}
	return accepted, conflicts, err
}

// Route counts events routed and deliveries planned.
func (s *Measured) Route(ctx context.Context, lease outbox.Lease, plans []outbox.Plan, next map[outbox.EndpointID]int64, now time.Time) (outbox.Routed, error) {
	began := time.Now()
	routed, err := s.Store.Route(ctx, lease, plans, next, now)
	deliveries, whole := 0, 0
	for i := range plans {
		deliveries += len(plans[i].Deliveries)
		if plans[i].Last {
			whole++
		}
	}
	s.measure("route", began, deliveries, err)
	if err == nil && len(routed.Gone) == 0 && len(routed.Stale) == 0 {
		s.m.routed.Add(float64(whole))
		s.m.planned.Add(float64(deliveries))
	}
	return routed, err
}

// FetchDue measures the reading of due rows.
func (s *Measured) FetchDue(ctx context.Context, requests []outbox.FetchRequest, now time.Time, maxBytes int64) ([]outbox.Fetched, error) {
	began := time.Now()
	fetched, err := s.Store.FetchDue(ctx, requests, now, maxBytes)
	rows := 0
	for i := range fetched {
		rows += len(fetched[i].Rows)
	}
	s.measure("fetch", began, rows, err)
	return fetched, err
}

// Finish counts attempts and ends. A batch that is run again after an unknown commit is counted
// when it is answered, which is once.
func (s *Measured) Finish(ctx context.Context, results []outbox.Result) (outbox.Finished, error) {
	began := time.Now()
	finished, err := s.Store.Finish(ctx, results)
	s.measure("record", began, len(results), err)
	if err != nil {
		return finished, err
	}
	for i := range results {
		s.m.count(&results[i])
	}
	return finished, nil
}

func (m *Metrics) count(r *outbox.Result) {
	accepted := r.Delivery.Event.Time()
	live := r.Delivery.Round == 0
	if a := r.Attempt; a != nil {
		m.attempts.WithLabelValues(string(a.Outcome), string(a.Kind)).Inc()
		m.attempt.Observe(a.Duration.Seconds())
		if live && r.Delivery.Attempt == 0 {
			m.first.Observe(max(0, a.At.Sub(accepted).Seconds()))
		}
		if live && r.Delivered {
			m.delivered.Observe(max(0, a.At.Add(a.Duration).Sub(accepted).Seconds()))
		}
	}
	switch {
	case r.Delivered:
		m.ended.WithLabelValues("delivered").Inc()
	case r.Dead != "":
		m.ended.WithLabelValues(string(r.Dead)).Inc()
	}
}

// Routed implements dispatch.Observer. Plans and results are counted where the database takes them.
func (m *Metrics) Routed([]outbox.Plan, time.Time) {}

// Recorded implements dispatch.Observer.
func (m *Metrics) Recorded([]outbox.Recorded) {}

// Ended implements dispatch.Observer: what ended without an attempt has no result to be counted.
func (m *Metrics) Ended(n int, _ outbox.TenantID, reason outbox.DeadReason, _ time.Time) {
	m.ended.WithLabelValues(string(reason)).Add(float64(n))
}

// Take counts shards by how their last owner left them.
func (s *Measured) Take(ctx context.Context, node outbox.NodeID, shards []outbox.ShardState) (outbox.Lease, map[outbox.Shard][]outbox.HeldSlot, error) {
	lease, held, err := s.Store.Take(ctx, node, shards)
	if err != nil {
		return lease, held, err
	}
	for i := range shards {
		if _, got := lease.Epochs[shards[i].Shard]; !got {
			continue
		}
		from := fromDead
		if shards[i].Released {
			from = fromReleased
		}
		s.m.taken.WithLabelValues(from).Inc()
	}
	return lease, held, nil
}
