package traffic

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

const (
	// flushEvery is how far the figures of other nodes may lag, and how much a crash takes along.
	flushEvery = 5 * time.Second
	// endpointUnit is the step in which endpoints are counted: they are many, and are looked at
	// by the hour.
	endpointUnit = 10 * time.Minute
	// maxUnwritten bounds the memory while the database is away: beyond it nothing is counted.
	maxUnwritten = 100_000
)

// Figures is what a tally needs of the database.
type Figures interface {
	AddTraffic(ctx context.Context, rows []outbox.Traffic) error
	TrafficOf(ctx context.Context, q outbox.TrafficQuery) ([]outbox.Traffic, error)
}

// Tally counts what the node of this process does. It is a dispatch.Observer, and safe for
// concurrent use.
type Tally struct {
	store Figures
	log   *slog.Logger

	mu      sync.Mutex
	counted map[scope]*outbox.Counts
	writing map[scope]*outbox.Counts // being written: still ours to show
}

type scope struct {
	at       int64 // Unix seconds
	tenant   outbox.TenantID
	endpoint outbox.EndpointID
}

// NewTally makes an empty tally.
func NewTally(store Figures, log *slog.Logger) *Tally {
	return &Tally{store: store, log: log, counted: map[scope]*outbox.Counts{}}
}

// count finds the figures of a moment. t.mu is held.
func (t *Tally) count(at time.Time, tenant outbox.TenantID, endpoint outbox.EndpointID) *outbox.Counts {
	unit := time.Minute
	if !endpoint.IsZero() {
		unit = endpointUnit
	}
	key := scope{at.Truncate(unit).Unix(), tenant, endpoint}
	c := t.counted[key]
	if c == nil {
		c = &outbox.Counts{}
		if len(t.counted) < maxUnwritten {
			t.counted[key] = c
		}
	}
	return c
}

// Routed implements dispatch.Observer.
func (t *Tally) Routed(plans []outbox.Plan, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range plans {
		p := &plans[i]
		for _, c := range []*outbox.Counts{t.count(now, 0, outbox.EndpointID{}), t.count(now, p.Row.Tenant, outbox.EndpointID{})} {
			c.Planned += int64(len(p.Deliveries))
			if !p.Last || p.Row.Source == nil {
				continue
			}
			c.Published++
			if !p.Matched {
				c.Unmatched++
			}
		}
	}
}

// Recorded implements dispatch.Observer.
func (t *Tally) Recorded(results []outbox.Recorded) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range results {
		r := &results[i]
		d := &r.Delivery
		for _, c := range []*outbox.Counts{
			t.count(r.At, 0, outbox.EndpointID{}),
			t.count(r.At, d.Tenant, outbox.EndpointID{}),
			t.count(r.At, d.Tenant, d.Endpoint),
		} {
			add(c, r)
		}
	}
}

func add(c *outbox.Counts, r *outbox.Recorded) {
	switch {
	case r.Delivered:
		c.Delivered++
	case r.Dead == outbox.DeadCancelled:
		c.Cancelled++
	case r.Dead != "":
		c.Failed++
	}
	a := r.Attempt
	if a == nil {
		return
	}
	switch a.Outcome {
	case outbox.OutcomeDelivered:
		c.Succeeded++
	case outbox.OutcomeTransient:
		c.Transient++
	case outbox.OutcomePermanent:
		c.Permanent++
	}
	c.Answer.Observe(a.Duration)
	if r.Published.IsZero() || r.Delivery.Round > 0 {
		return
	}
	if r.Delivery.Attempt == 0 {
		c.First.Observe(a.At.Sub(r.Published))
	}
	if r.Delivered {
		c.Arrived.Observe(a.At.Add(a.Duration).Sub(r.Published))
	}
}

// Ended implements dispatch.Observer.
func (t *Tally) Ended(n int, tenant outbox.TenantID, reason outbox.DeadReason, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	counts := []*outbox.Counts{t.count(now, 0, outbox.EndpointID{})}
	if tenant != 0 {
		counts = append(counts, t.count(now, tenant, outbox.EndpointID{}))
	}
	for _, c := range counts {
		if reason.State() == outbox.StateCancelled {
			c.Cancelled += int64(n)
		} else {
			c.Failed += int64(n)
		}
	}
}

// Run writes the figures down until ctx ends, and then what is left.
func (t *Tally) Run(ctx context.Context) {
	tick := time.NewTicker(flushEvery)
	defer tick.Stop()
	failing := false
	for {
		select {
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
			defer cancel()
			if err := t.flush(last); err != nil {
				t.log.WarnContext(ctx, "the last figures are not written", "error", err)
			}
			return
		case <-tick.C:
			err := t.flush(ctx)
			if err != nil && !failing && ctx.Err() == nil {
				t.log.WarnContext(ctx, "figures cannot be written; the next ones will be tried", "error", err)
			}
			failing = err != nil
		}
	}
}

// flush writes what was counted. Figures of a call whose outcome is not known are dropped: shown
// twice they would mislead more than missing ones. Those that surely were not written go back.
func (t *Tally) flush(ctx context.Context) error {
	t.mu.Lock()
	t.writing, t.counted = t.counted, map[scope]*outbox.Counts{}
	rows := rowsOf(t.writing, func(scope) bool { return true })
	t.mu.Unlock()
	var err error
	if len(rows) > 0 {
		err = t.store.AddTraffic(ctx, rows)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if err != nil && outbox.FaultOf(err) != outbox.FaultUnknown {
		for key, counts := range t.writing {
			if c := t.counted[key]; c != nil {
				c.Add(counts)
			} else if len(t.counted) < maxUnwritten {
				t.counted[key] = counts
			}
		}
	}
	t.writing = nil
	return err
}

func rowsOf(counted map[scope]*outbox.Counts, wanted func(scope) bool) []outbox.Traffic {
	var rows []outbox.Traffic
	for key, counts := range counted {
		if !wanted(key) {
			continue
		}
		row := outbox.Traffic{At: time.Unix(key.at, 0).UTC(), Tenant: key.tenant, Endpoint: key.endpoint}
		row.Add(counts) // a copy: counting goes on
		rows = append(rows, row)
	}
	return rows
}

// Of returns the figures of the query's time, added up by unit, in order: those of the database
// and those this process has not written yet. A row that is being written may be missing from the
// one and gone from the other for a moment.
func (t *Tally) Of(ctx context.Context, q outbox.TrafficQuery, unit time.Duration) ([]outbox.Traffic, error) {
	t.mu.Lock()
	var fresh []outbox.Traffic
	for _, counted := range []map[scope]*outbox.Counts{t.counted, t.writing} {
		fresh = append(fresh, rowsOf(counted, func(s scope) bool {
			at := time.Unix(s.at, 0)
			return s.tenant == q.Tenant.ID && s.endpoint == q.Endpoint && !at.Before(q.From) && at.Before(q.To)
		})...)
	}
	t.mu.Unlock()
	stored, err := t.store.TrafficOf(ctx, q)
	if err != nil {
		return nil, err
	}
	return outbox.FoldTraffic(append(stored, fresh...), unit), nil
}
