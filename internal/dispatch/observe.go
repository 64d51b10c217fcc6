package dispatch

import (
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// Observer is told what the node has done, after the transaction that did it. Its methods are
// called on the way of every event: they must be quick and wait for nothing.
type Observer interface {
	// Routed is told the plans of a routing transaction.
	Routed(plans []outbox.Plan, now time.Time)
	// Recorded is told the results of a recording transaction.
	Recorded(results []outbox.Recorded)
	// Ended is told of n deliveries that ended without an attempt, all for one reason. They are the
	// tenant's; 0: of several.
	Ended(n int, tenant outbox.TenantID, reason outbox.DeadReason, now time.Time)
}

// Observers are several in one; none is nobody.
type Observers []Observer

// Routed implements Observer.
func (all Observers) Routed(plans []outbox.Plan, now time.Time) {
	for _, o := range all {
		o.Routed(plans, now)
	}
}

// Recorded implements Observer.
func (all Observers) Recorded(results []outbox.Recorded) {
	for _, o := range all {
		o.Recorded(results)
	}
}

// Ended implements Observer.
func (all Observers) Ended(n int, tenant outbox.TenantID, reason outbox.DeadReason, now time.Time) {
	for _, o := range all {
		o.Ended(n, tenant, reason, now)
	}
}

// observed is a batch of results as an observer is told them.
func observed(batch []finished) []outbox.Recorded {
	told := make([]outbox.Recorded, len(batch))
	for i := range batch {
		told[i] = outbox.Recorded{Result: batch[i].Result}
		if w := batch[i].work; w != nil {
			told[i].Published = w.due.EventCreatedAt
			if w.target != nil {
				told[i].TenantKey = w.target.tenant.Key
			}
		}
	}
	return told
}
