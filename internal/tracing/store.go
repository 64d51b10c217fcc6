package tracing

import (
	"context"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// Traced is a store that makes spans of what passes through it.
type Traced struct {
	outbox.Store
	t *Tracer
}

// Trace wraps a store.
func Trace(store outbox.Store, t *Tracer) *Traced { return &Traced{Store: store, t: t} }

// InsertEvents makes the root span of every event that is new.
func (s *Traced) InsertEvents(ctx context.Context, batch []outbox.NewEvent) ([]outbox.Accepted, []outbox.Conflict, error) {
	began := time.Now()
	accepted, conflicts, err := s.Store.InsertEvents(ctx, batch)
	if err != nil || len(conflicts) > 0 {
		return accepted, conflicts, err
	}
	ended := time.Now()
	for i := range accepted {
		if !accepted[i].Duplicate {
			s.t.accepted(&batch[i], began, ended)
		}
	}
	return accepted, conflicts, nil
}

// Route makes a span of every event that was planned.
func (s *Traced) Route(ctx context.Context, lease outbox.Lease, plans []outbox.Plan, next map[outbox.EndpointID]int64, now time.Time) (outbox.Routed, error) {
	began := time.Now()
	routed, err := s.Store.Route(ctx, lease, plans, next, now)
	if err != nil || len(routed.Gone) > 0 || len(routed.Stale) > 0 {
		return routed, err
	}
	ended := time.Now()
	for i := range plans {
		s.t.routed(&plans[i], began, ended)
	}
	return routed, nil
}

// Finish makes a span of every attempt.
func (s *Traced) Finish(ctx context.Context, results []outbox.Result) (outbox.Finished, error) {
	finished, err := s.Store.Finish(ctx, results)
	if err != nil {
		return finished, err
	}
	for i := range results {
		if results[i].Attempt != nil {
			s.t.attempted(&results[i])
		}
	}
	return finished, nil
}
