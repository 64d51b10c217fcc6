package dispatch

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
	"github.com/waybill-dev/waybill/internal/route"
)

// Results wait for more of them, but not long, not many, and not where the next of an ordering key
// waits for them, nor what was written down because it may kill.
func TestRecorder_gathers(t *testing.T) {
	strict := finished{Result: outbox.Result{Delivery: outbox.Delivery{TurnAt: start}}}
	suspect := finished{Result: outbox.Result{Suspect: true}}
	for name, tc := range map[string]struct {
		waiting, more int
		last          finished // added when the wait has begun
		want          time.Duration
	}{
		"one":                       {waiting: 1, want: recordEvery},
		"one and another":           {waiting: 1, more: 1, want: recordEvery},
		"many":                      {waiting: recordAtOnce, want: 0},
		"one and then many":         {waiting: 1, more: recordAtOnce - 1, want: time.Millisecond},
		"one and then a strict one": {waiting: 1, more: 1, last: strict, want: time.Millisecond},
		"one and then a suspect":    {waiting: 1, more: 1, last: suspect, want: time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var r recorder
				r.init()
				for range tc.waiting {
					r.add(finished{})
				}
				go func() {
					time.Sleep(time.Millisecond)
					for i := range tc.more {
						if i == tc.more-1 {
							r.add(tc.last)
						} else {
							r.add(finished{})
						}
					}
				}()
				began := time.Now()
				if !r.gather(t.Context(), began.Add(recordEvery)) {
					t.Error("the context is said to have ended")
				}
				if took := time.Since(began); took != tc.want {
					t.Errorf("waited %v, want %v", took, tc.want)
				}
				for r.take() != nil {
				}
				// Nothing is left over that would hurry the next.
				r.add(finished{})
				began = time.Now()
				r.gather(t.Context(), began.Add(recordEvery))
				if took := time.Since(began); took != recordEvery {
					t.Errorf("the next waited %v, want %v", took, recordEvery)
				}
				r.take()
				began = time.Now()
				r.add(finished{})
				r.gather(t.Context(), began)
				if took := time.Since(began); took != 0 {
					t.Errorf("long after the last it waited %v", took)
				}
				ended, end := context.WithCancel(t.Context())
				end()
				if r.gather(ended, time.Now().Add(recordEvery)) {
					t.Error("the context has ended")
				}
			})
		})
	}
}

// A router waits for more rows while all endpoints concerned have enough to do, and begins at once
// when one comes that somebody could be sent now.
func TestNode_routesLaterOnlyWhatWouldWaitToBeSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := New(Config{Clock: &outbox.Clock{}})
		w := &world{scheduler: n.sched, now: start}
		event := func(pos int64, tenant outbox.TenantID) outbox.OutboxRow {
			return outbox.OutboxRow{Pos: pos, Tenant: tenant, Kind: outbox.OutboxEvent}
		}
		subscribe := func(tenant outbox.TenantID) *endpointQueue {
			w.addTenant(tenant, 1, 10)
			e := w.addEndpoint(tenant)
			n.directory.tenants[tenant] = &subscription{subscribers: route.Subscribers{{Endpoint: &outbox.Endpoint{ID: e.id}}}}
			return e
		}
		busy := subscribe(1)
		subscribe(2)
		// Two hundred attempts of a millisecond in ten slots take 20 ms; one fewer does not.
		busy.estimate = time.Millisecond
		w.give(busy, outbox.LaneLive, 199)
		gather := func() time.Duration {
			began := time.Now()
			n.routedAt[route.Few] = began
			if !n.gatherRows(t.Context(), route.Few) {
				t.Error("the context is said to have ended")
			}
			return time.Since(began)
		}
		n.queue.Add(event(1, 1), 1)
		if took := gather(); took != 0 {
			t.Errorf("an endpoint that will be idle waits %v", took)
		}
		w.give(busy, outbox.LaneLive, 1)
		if took := gather(); took != routeEvery {
			t.Errorf("a busy endpoint's event waits %v for others, want %v", took, routeEvery)
		}
		go func() {
			time.Sleep(time.Millisecond)
			n.mu.Lock()
			n.queue.Add(event(2, 1), 1)
			n.mu.Unlock()
			n.wakeRouters()
			time.Sleep(time.Millisecond)
			n.mu.Lock()
			n.queue.Add(event(3, 2), 1)
			n.mu.Unlock()
			n.wakeRouters()
		}()
		if took := gather(); took != 2*time.Millisecond {
			t.Errorf("an idle endpoint's event was begun with after %v, it came after 2ms", took)
		}
	})
}
