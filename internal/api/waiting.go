package api

import (
	"context"
	"fmt"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// waitingView says why a delivery waits.
type waitingView struct {
	Reason waitReason `json:"reason"`
	Detail string     `json:"detail"`
	Ahead  *int       `json:"ahead" doc:"Pending deliveries of the endpoint before it; null where they do not matter"`
	Capped bool       `json:"ahead_capped,omitempty" doc:"There are more than counted"`
	Until  *stamp     `json:"until" doc:"When what it waits for changes; null where nobody knows"`
	ETA    *stamp     `json:"eta" doc:"When it is probably tried; null where that cannot be estimated"`

	Behind *behindView `json:"behind,omitempty" doc:"Of order: whom it waits for"`
}

// behindView is the delivery of the same ordering key that another one waits for.
type behindView struct {
	DeliveryID string `json:"delivery_id"`
	State      string `json:"state" enum:"pending,dead" doc:"dead: it holds the key until it is replayed or the endpoint's backlog discarded"`
}

type waitReason string

const (
	waitDispatch waitReason = "dispatch_paused"
	waitPaused   waitReason = "paused"
	waitDisabled waitReason = "disabled"
	waitBreaker  waitReason = "breaker"
	waitOrder    waitReason = "order"
	waitRetry    waitReason = "retry"
	waitRate     waitReason = "rate_limit"
	waitTenant   waitReason = "tenant_cap"
	waitEndpoint waitReason = "endpoint_limit"
	waitBacklog  waitReason = "backlog"
)

// circumstances are what a pending delivery waits in.
type circumstances struct {
	dispatch outbox.DispatchState
	endpoint standing
	ahead    int // pending deliveries of its endpoint and lane before it
	most     int // ahead is counted so far and no further
	first    outbox.Predecessor
}

// whyWaiting says why a pending delivery is not being sent, nil for any other. Of several reasons
// it names the one that would still hold once the others were gone: somebody's deliberate stop
// before what the endpoint's server brought about, and that before whose turn it is.
func whyWaiting(d *outbox.DeliveryView, c circumstances, now time.Time) *waitingView {
	if d.State != outbox.StatePending {
		return nil
	}
	h := &c.endpoint
	scheduled := d.NextAt.After(now) && !d.Parked()
	switch {
	case c.dispatch.Paused:
		return &waitingView{Reason: waitDispatch, Detail: "Sending is stopped for all tenants."}
	case d.EndpointState == "":
		return &waitingView{Reason: waitBacklog, Detail: "The endpoint is deleted; the delivery is about to be cancelled."}
	case d.TenantState == outbox.TenantPaused:
		return &waitingView{Reason: waitPaused, Detail: "The tenant is paused."}
	case d.EndpointState == outbox.EndpointPaused:
		return &waitingView{Reason: waitPaused, Detail: "The endpoint is paused."}
	case d.EndpointState == outbox.EndpointDisabled:
		return &waitingView{Reason: waitDisabled, Detail: "The endpoint is disabled."}
	case d.EndpointState == outbox.EndpointDraft:
		return &waitingView{Reason: waitPaused, Detail: "The endpoint is a draft again; its deliveries wait until it is active."}
	case h.Breaker == outbox.BreakerProbing && !scheduled:
		return &waitingView{Reason: waitBreaker, Detail: "The server failed " + times(h.ConsecutiveFailures) + " in a row; one delivery is out to see whether it is back."}
	case h.Breaker == outbox.BreakerOpen && !(scheduled && d.NextAt.After(h.NextProbeAt)):
		return &waitingView{
			Reason: waitBreaker,
			Detail: "The server failed " + times(h.ConsecutiveFailures) + " in a row; everything waits until one delivery, tried as a probe, succeeds.",
			Until:  stampOf(h.NextProbeAt),
		}
	case d.Parked():
		return behind(&c.first, now)
	case scheduled:
		at := stampOf(d.NextAt)
		return &waitingView{Reason: waitRetry, Detail: "It failed and will be tried again.", Until: at, ETA: at}
	case h.PausedUntil.After(now):
		return c.queued(waitRate, "The server asked for a pause, by Retry-After.", d, h.PausedUntil, now)
	}
	reason, detail := c.turn(d)
	return c.queued(reason, detail, d, time.Time{}, now)
}

// behind is the view of a delivery that waits for another of its ordering key; which one is not
// known where that ended this moment.
func behind(first *outbox.Predecessor, now time.Time) *waitingView {
	view := &waitingView{Reason: waitOrder, Detail: "The endpoint is strict: another delivery with the same ordering key goes first."}
	if first.ID.IsZero() {
		return view
	}
	view.Behind = &behindView{DeliveryID: first.ID.String(), State: string(outbox.StatePending)}
	switch {
	case first.Dead:
		view.Behind.State = string(outbox.StateDead)
		view.Detail = "The endpoint is strict and holds: a delivery with the same ordering key is a dead letter. Replay it, or discard the endpoint's backlog."
	case first.NextAt.After(now):
		view.Until = stampOf(first.NextAt)
		view.ETA = view.Until // what it waits for takes an attempt's time
	}
	return view
}

// turn says what keeps a delivery from its turn that nothing else holds back.
func (c *circumstances) turn(d *outbox.DeliveryView) (waitReason, string) {
	h := &c.endpoint
	most := slots(d.Limits.TenantInFlight, d.Limits.EndpointInFlight)
	limit := most
	if h.Limit > 0 {
		limit = min(limit, h.Limit)
	}
	switch {
	case h.current() && h.TenantInFlight >= d.Limits.TenantInFlight && h.TenantInFlight > 0:
		return waitTenant, fmt.Sprintf("The tenant may have %s at once, and has.", attempts(d.Limits.TenantInFlight))
	case h.current() && h.InFlight >= limit && h.InFlight > 0 && limit < most:
		return waitEndpoint, fmt.Sprintf("The server is slow; %s at once are under way, and it is given no more.", attempts(limit))
	case h.current() && h.InFlight >= limit && h.InFlight > 0:
		return waitEndpoint, fmt.Sprintf("The endpoint may have %s at once, and has.", attempts(limit))
	case h.Rate > 0:
		return waitRate, fmt.Sprintf("The server is sent about %.3g requests a second: it asked for fewer, or has just come back.", h.Rate)
	case d.Limits.Rate != nil && c.ahead > 0:
		return waitRate, fmt.Sprintf("The endpoint is limited to %d requests in %g s.", d.Limits.Rate.Count, d.Limits.Rate.Per.Seconds())
	case d.Lane == outbox.LaneReplay:
		return waitBacklog, "It is a replay, and these use at most a quarter of the endpoint's slots."
	case c.ahead == 0:
		return waitBacklog, "It is due and is the next of its endpoint, or already under way."
	}
	return waitBacklog, "It is due and waits for its turn."
}

// queued is the view of a delivery in its endpoint's line, which moves from the given time on
// (zero: now).
func (c *circumstances) queued(reason waitReason, detail string, d *outbox.DeliveryView, from, now time.Time) *waitingView {
	view := &waitingView{Reason: reason, Detail: detail, Ahead: new(min(c.ahead, c.most)), Capped: c.ahead > c.most, Until: stampOf(from)}
	if from.IsZero() {
		from = now
	}
	if pace := c.throughput(d); pace > 0 && !view.Capped {
		wait := float64(c.ahead+1) / pace * float64(time.Second)
		if wait < float64(maxEstimate) {
			view.ETA = stampOf(from.Add(time.Duration(wait)))
		}
	}
	return view
}

// maxEstimate is the longest wait that is worth estimating.
const maxEstimate = 30 * 24 * time.Hour

// throughput is how many requests a second the endpoint is sent at most, by all that is known; 0
// if nothing is. Where the tenant's slots are all taken, those that the endpoint has are what it
// gets: its other endpoints have the rest, and take turns with it.
func (c *circumstances) throughput(d *outbox.DeliveryView) float64 {
	h := &c.endpoint
	pace := 0.0
	bound := func(by float64) {
		if by > 0 && (pace == 0 || by < pace) {
			pace = by
		}
	}
	bound(h.Rate)
	if r := d.Limits.Rate; r != nil {
		bound(float64(r.Count) / r.Per.Seconds())
	}
	if h.Average > 0 {
		limit := slots(d.Limits.TenantInFlight, d.Limits.EndpointInFlight)
		if h.Limit > 0 {
			limit = min(limit, h.Limit)
		}
		if d.Lane == outbox.LaneReplay {
			limit = max(1, limit/4)
		}
		if h.current() && h.TenantInFlight > 0 && h.TenantInFlight >= d.Limits.TenantInFlight {
			limit = min(limit, max(1, h.InFlight))
		}
		bound(float64(limit) / h.Average.Seconds())
	}
	return pace
}

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

func attempts(n int) string {
	if n == 1 {
		return "one attempt"
	}
	return fmt.Sprintf("%d attempts", n)
}

// waiting looks at what the pending ones of the deliveries wait for, and returns a function that
// says it. The tenant is whose deliveries they are, zero for several's. It counts at most so many
// before each.
func (a *API) waiting(ctx context.Context, tenant outbox.TenantRef, most int, now time.Time, rows ...outbox.DeliveryView) (func(*outbox.DeliveryView) *waitingView, error) {
	var endpoints []outbox.EndpointRow
	var due, parked []outbox.Delivery
	seen := map[outbox.EndpointID]bool{}
	for i := range rows {
		d := &rows[i]
		if d.State != outbox.StatePending {
			continue
		}
		if !seen[d.Endpoint] {
			seen[d.Endpoint] = true
			endpoints = append(endpoints, outbox.EndpointRow{Shard: d.Shard, Endpoint: d.Endpoint})
		}
		switch {
		case d.Parked():
			parked = append(parked, d.Delivery)
		case !d.NextAt.After(now):
			due = append(due, d.Delivery)
		}
	}
	if len(endpoints) == 0 {
		return func(*outbox.DeliveryView) *waitingView { return nil }, nil
	}
	dispatch, err := a.cfg.Store.Dispatch(ctx)
	if err != nil {
		return nil, err
	}
	known, err := a.standing(ctx, tenant, endpoints)
	if err != nil {
		return nil, err
	}
	var ahead map[outbox.DeliveryID]int
	if len(due) > 0 {
		if ahead, err = a.cfg.Store.Ahead(ctx, due, most+1); err != nil {
			return nil, err
		}
	}
	var first map[outbox.DeliveryID]outbox.Predecessor
	if len(parked) > 0 {
		if first, err = a.cfg.Store.Predecessors(ctx, parked); err != nil {
			return nil, err
		}
	}
	return func(d *outbox.DeliveryView) *waitingView {
		return whyWaiting(d, circumstances{dispatch: dispatch, endpoint: known[d.Endpoint], ahead: ahead[d.ID], most: most, first: first[d.ID]}, now)
	}, nil
}
