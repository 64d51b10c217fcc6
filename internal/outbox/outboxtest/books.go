package outboxtest

import (
	"bytes"
	"slices"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// books is the second account of everything: what a store must hold, kept the plainest way.
type books struct {
	accounts map[outbox.DeliveryID]*account
	order    []outbox.DeliveryID // of planning
	next     map[outbox.EndpointID]int64
	waiting  []outbox.NewEvent
	asked    []outbox.DeliveryID // replays the owner has not executed

	events, routed, matched                       int64
	planned, delivered, dead, cancelled, replayed int64
}

// account is one delivery.
type account struct {
	outbox.Delivery
	state  outbox.DeliveryState
	reason outbox.DeadReason
	tries  int // kept, also those that came too late to matter
	// lateEnd: a 200 with an older number ended it. Which number it then has is not promised.
	lateEnd bool
	// seen are the forms in which owners have fetched it; late results carry an old one.
	seen []outbox.Delivery
}

func newBooks() *books {
	return &books{accounts: map[outbox.DeliveryID]*account{}, next: map[outbox.EndpointID]int64{}}
}

func (b *books) publish(e outbox.NewEvent) {
	b.events++
	b.waiting = append(b.waiting, e)
}

// route plans everything that waits for the endpoints that want it.
func (b *books) route(endpoints []outbox.Endpoint, now time.Time) {
	endpoints = slices.SortedFunc(slices.Values(endpoints), func(x, y outbox.Endpoint) int { return bytes.Compare(x.ID[:], y.ID[:]) })
	for _, e := range b.waiting {
		b.routed++
		wanted := false
		for _, endpoint := range endpoints {
			if endpoint.Tenant.ID != e.Tenant.ID || !endpoint.Matches(e.Type) {
				continue
			}
			wanted = true
			b.next[endpoint.ID]++
			b.planned++
			a := &account{state: outbox.StatePending, Delivery: outbox.Delivery{
				Shard: e.Tenant.Shard, ID: outbox.NewDeliveryID(e.ID, endpoint.ID), Tenant: e.Tenant.ID, Endpoint: endpoint.ID,
				Event: e.ID, EventType: e.Type, Sequence: b.next[endpoint.ID], NextAt: now, SendableAt: now,
			}}
			a.see()
			b.accounts[a.ID] = a
			b.order = append(b.order, a.ID)
		}
		if wanted {
			b.matched++
		}
	}
	b.waiting = nil
}

func (a *account) see() { a.seen = append(a.seen, a.Delivery) }

// finish applies a result that carries the delivery as it was fetched some time.
func (b *books) finish(r outbox.Result) {
	a := b.accounts[r.Delivery.ID]
	if r.Attempt != nil {
		a.tries++
	}
	if a.state != outbox.StatePending || a.Round != r.Delivery.Round {
		return
	}
	if !r.Delivered && a.Attempt != r.Delivery.Attempt {
		return
	}
	a.lateEnd = a.Attempt != r.Delivery.Attempt
	if r.Attempt != nil {
		a.Attempt = r.Delivery.Attempt + 1
	}
	switch {
	case r.Delivered:
		b.end(a, "")
	case r.Dead != "":
		b.end(a, r.Dead)
	default:
		a.NextAt = r.RetryAt
		a.see()
	}
}

// end closes an account; no reason means it was delivered.
func (b *books) end(a *account, reason outbox.DeadReason) {
	a.reason = reason
	switch {
	case reason == "":
		a.state = outbox.StateDelivered
		b.delivered++
	case reason.State() == outbox.StateCancelled:
		a.state = outbox.StateCancelled
		b.cancelled++
	default:
		a.state = outbox.StateDead
		b.dead++
	}
}

// executeReplays does what was asked for, in order.
func (b *books) executeReplays(now time.Time) {
	for _, id := range b.asked {
		a := b.accounts[id]
		a.NextAt = now
		if a.state == outbox.StatePending {
			a.see()
			continue
		}
		b.planned++
		b.replayed++
		a.state, a.reason = outbox.StatePending, ""
		a.Round++
		a.RoundStart, a.Lane, a.SendableAt = a.Attempt, outbox.LaneReplay, now
		a.see()
	}
	b.asked = nil
}

// endAll ends every pending delivery that the condition meets and returns which.
func (b *books) endAll(reason outbox.DeadReason, condition func(*account) bool) []outbox.DeliveryID {
	var ended []outbox.DeliveryID
	for _, id := range b.order {
		if a := b.accounts[id]; a.state == outbox.StatePending && condition(a) {
			b.end(a, reason)
			ended = append(ended, id)
		}
	}
	return ended
}

// totals are what the store's proof must report: over all time, except what is pending or waits.
func (b *books) totals() map[string]int64 {
	pending := int64(0)
	for _, a := range b.accounts {
		if a.state == outbox.StatePending {
			pending++
		}
	}
	return map[string]int64{
		"planned": b.planned, "delivered": b.delivered, "dead": b.dead, "cancelled": b.cancelled, "replayed": b.replayed,
		"pending": pending, "events": b.events, "routed": b.routed, "matched": b.matched, "unmatched": b.routed - b.matched,
		"waiting": int64(len(b.waiting)),
	}
}

// totals are those of a report by the same names.
func totals(r outbox.Report) map[string]int64 {
	return map[string]int64{
		"planned": r.Planned, "delivered": r.Delivered, "dead": r.Dead, "cancelled": r.Cancelled, "replayed": r.Replayed,
		"pending": r.Pending, "events": r.Events, "routed": r.Routed, "matched": r.Matched, "unmatched": r.Unmatched,
		"waiting": r.Waiting,
	}
}

// since is what was added to the totals after before.
func since(before, after map[string]int64) map[string]int64 {
	added := map[string]int64{}
	for name, n := range after {
		added[name] = n - before[name]
	}
	return added
}
