package dispatch

import (
	"testing"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// What waits for a customer's server, cap, rate or breaker must not look like a node that does not
// get on: somebody would be paged for one dead customer.
func TestScheduler_runnableIsWhatWaitsForTheNodeAlone(t *testing.T) {
	due := start.Add(-time.Minute)
	for _, c := range []struct {
		name    string
		arrange func(w *world, e *endpointQueue)
		want    time.Time
	}{
		{"it could start", func(*world, *endpointQueue) {}, due},
		{"the process is at its own bound", func(w *world, _ *endpointQueue) { w.inFlight = 0 }, due},
		{"the lease is lost", func(w *world, _ *endpointQueue) { w.scheduler.paused = true }, due},
		{"somebody threw the switch", func(w *world, _ *endpointQueue) { w.stopped = true }, time.Time{}},
		{"the tenant is at its cap", func(_ *world, e *endpointQueue) { e.tenant.cap = 0 }, time.Time{}},
		{"the endpoint is at its limit", func(_ *world, e *endpointQueue) { e.inFlight = e.slots() }, time.Time{}},
		{"the endpoint is paused", func(_ *world, e *endpointQueue) { e.parked = true }, time.Time{}},
		{"the breaker tries another one", func(_ *world, e *endpointQueue) { e.breaker.state = outbox.BreakerProbing }, time.Time{}},
		{"the rate does not let it go on", func(w *world, e *endpointQueue) { e.pace.pause(w.now.Add(time.Second)) }, time.Time{}},
	} {
		t.Run("ready, and "+c.name, func(t *testing.T) {
			w := newWorld(1)
			w.addTenant(1, 1, 10)
			e := w.addEndpoint(1)
			d := outbox.Due{Payload: []byte("{}")}
			d.ID = outbox.NewDeliveryID(outbox.NewEventID(start), e.id)
			d.Endpoint, d.Tenant, d.NextAt = e.id, 1, due
			w.admit(&e.lanes[outbox.LaneLive], d)
			c.arrange(w, e)
			w.settle(e)
			if got := w.runnableSince(w.now); !got.Equal(c.want) {
				t.Errorf("runnable since %v, want %v", got, c.want)
			}
		})
		t.Run("not read yet, and "+c.name, func(t *testing.T) {
			w := newWorld(1)
			w.addTenant(1, 1, 10)
			e := w.addEndpoint(1)
			l := &e.lanes[outbox.LaneLive]
			l.lower(position{at: due})
			c.arrange(w, e)
			w.settle(e)
			w.wake(l)
			if got := w.runnableSince(w.now); !got.Equal(c.want) {
				t.Errorf("runnable since %v, want %v", got, c.want)
			}
		})
	}
}
