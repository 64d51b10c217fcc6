package dispatch

import (
	"context"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

const (
	// healthEvery is how soon a changed breaker is written down.
	healthEvery = time.Second
	// unwellEvery is how often endpoints that fail, or that are limited, are written down without
	// a change of their breaker.
	unwellEvery = 10 * time.Second
)

// healthLoop writes down what the node learns about endpoints. A healthy endpoint costs nothing.
func (n *Node) healthLoop(ctx context.Context) {
	var unwellAt time.Time
	for {
		all := !time.Now().Before(unwellAt)
		if all {
			unwellAt = time.Now().Add(unwellEvery)
		}
		n.report(ctx, "health", n.writeHealth(ctx, all))
		if !sleep(ctx, healthEvery) {
			return
		}
	}
}

func (n *Node) writeHealth(ctx context.Context, all bool) error {
	now := n.cfg.Clock.Now()
	n.mu.Lock()
	lease := n.lease
	var rows []outbox.EndpointHealth
	for id, e := range n.sched.endpoints {
		// One more row follows the last unwell one, to say that the endpoint is well again.
		if n.sched.changed[id] || all && (e.unwell() || e.noted) {
			rows = append(rows, e.health(n.sched.clock(), now))
			e.noted = e.unwell()
		}
	}
	clear(n.sched.changed)
	n.mu.Unlock()
	if len(rows) == 0 {
		return nil
	}
	err := n.cfg.Store.WriteHealth(ctx, lease, rows, now)
	if err != nil {
		n.mu.Lock()
		for i := range rows {
			n.sched.changed[rows[i].Endpoint] = true
		}
		n.mu.Unlock()
	}
	return err
}

// bequeath writes down what was learned of the endpoints of shards that are about to be given up:
// their next owner goes on from there, not from ten seconds ago.
func (n *Node) bequeath(ctx context.Context, lease outbox.Lease, shards map[outbox.Shard]bool) error {
	now := n.cfg.Clock.Now()
	n.mu.Lock()
	var rows []outbox.EndpointHealth
	for id, e := range n.sched.endpoints {
		if shards[e.tenant.shard] && (n.sched.changed[id] || e.unwell() || e.noted) {
			rows = append(rows, e.health(n.sched.clock(), now))
		}
	}
	n.mu.Unlock()
	if len(rows) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second) // the shards themselves must not wait for it
	defer cancel()
	return n.cfg.Store.WriteHealth(ctx, lease, rows, now)
}

// loadHealth goes on from what the shards' former owner learned.
func (n *Node) loadHealth(ctx context.Context, shards []outbox.Shard) error {
	rows, err := n.cfg.Store.LoadHealth(ctx, shards)
	if err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	now := n.cfg.Clock.Now()
	for i := range rows {
		if e := n.sched.endpoints[rows[i].Endpoint]; e != nil {
			e.restore(&rows[i], n.sched.clock(), now)
			n.sched.rouse(e)
		}
	}
	return nil
}

// Live tells how an endpoint stands at this moment; false if another node owns its shard, or it
// was never sent to.
func (n *Node) Live(id outbox.EndpointID) (outbox.EndpointHealth, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	e := n.sched.endpoints[id]
	if e == nil {
		return outbox.EndpointHealth{}, false
	}
	return e.health(n.sched.clock(), n.cfg.Clock.Now()), true
}

// unwell reports whether there is anything to say about an endpoint: its breaker is not closed,
// its last attempt failed, or its server is given less than its cap.
func (e *endpointQueue) unwell() bool {
	return !e.breaker.may() || !e.last.failingSince.IsZero() || e.pace.rate > 0 || e.pace.limit > 0
}

// health is what is written down. mono is the scheduler's clock, now database time.
func (e *endpointQueue) health(mono, now time.Time) outbox.EndpointHealth {
	h := outbox.EndpointHealth{
		Shard:    e.tenant.shard,
		Tenant:   e.tenant.id,
		Endpoint: e.id,

		Breaker:             e.breaker.state,
		NextProbeAt:         e.breaker.nextProbe,
		Cooldown:            e.breaker.cooldown,
		OpenedAt:            e.breaker.openedAt,
		ClosedAt:            e.since,
		ConsecutiveFailures: e.breaker.failures,
		FailingSince:        e.last.failingSince,
		FailedDays:          e.last.failedDays,
		FailedDay:           e.last.failedDay,
		Failures:            e.last.failures,
		Rate:                e.pace.currentRate(mono),
		InFlight:            e.inFlight,
		TenantInFlight:      e.tenant.inFlight,
		Average:             e.estimate,
		SuccessAt:           e.last.successAt,
		Failure:             e.last.failure,
		Outage:              e.outage,
	}
	if e.pace.limit > 0 {
		h.Limit = e.pace.slots(e.cap())
	}
	if left := e.pace.until.Sub(mono); left > 0 {
		h.PausedUntil = now.Add(left)
	}
	return h
}

// restore goes on from what was written down. A probe that was out is not waited for: its end, if
// there was one, is not known.
func (e *endpointQueue) restore(h *outbox.EndpointHealth, mono, now time.Time) {
	e.breaker = breaker{
		state:     h.Breaker,
		failures:  h.ConsecutiveFailures,
		openedAt:  h.OpenedAt,
		cooldown:  h.Cooldown,
		nextProbe: h.NextProbeAt,
	}
	e.breaker.probeLost(now)
	e.since, e.outage = h.ClosedAt, h.Outage
	e.last = lastOutcomes{
		successAt:    h.SuccessAt,
		failure:      h.Failure,
		failingSince: h.FailingSince,
		failures:     h.Failures,
		failedDays:   h.FailedDays,
		failedDay:    h.FailedDay,
	}
	if h.Rate > 0 {
		e.pace.setRate(h.Rate, mono)
	}
	if h.Limit > 0 {
		e.pace.limit = float64(h.Limit)
	}
	if left := h.PausedUntil.Sub(now); left > 0 {
		e.pace.pause(mono.Add(min(left, maxPause)))
	}
}
