package dispatch

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waybill-dev/waybill/internal/attempt"
	"github.com/waybill-dev/waybill/internal/outbox"
)

// One customer's server hangs with 500 events waiting for it. Nine other customers, and the same
// customer's other server, do not notice; the hanging one never has more than its cap.
func TestNode_aHangingServerDelaysNobodyElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		limit := func(t *outbox.Tenant) { t.MaxInFlight = 5 }
		acme := r.tenant("acme", limit)
		r.endpoint(acme, "hanging", func(e *outbox.Endpoint) { e.EventTypes = []string{"test.event"}; e.MaxInFlight = 3 })
		r.endpoint(acme, "healthy", func(e *outbox.Endpoint) { e.EventTypes = []string{"test.event"} })
		others := make([]outbox.TenantRef, 9)
		for i := range others {
			others[i] = r.tenant(fmt.Sprint("other-", i), limit)
			r.endpoint(others[i], fmt.Sprint("fast-", i), nil)
		}
		arrived := map[outbox.EventID]time.Time{} // at the others'
		healthy := 0
		r.sender.script(func(ctx context.Context, s sent) attempt.Outcome {
			if s.url == "https://hanging.example/hook" {
				select {
				case <-ctx.Done():
				case <-time.After(outbox.DefaultTimeout):
				}
				o := failed(0)
				o.Kind = outbox.KindTimeout
				return o
			}
			time.Sleep(10 * time.Millisecond)
			r.sender.mu.Lock()
			defer r.sender.mu.Unlock()
			if s.url == "https://healthy.example/hook" {
				healthy++
			} else {
				arrived[s.Event] = time.Now()
			}
			return delivered()
		})
		r.run()
		r.publish(acme, 500, true)
		time.Sleep(2 * time.Second) // all that may hang does
		published := map[outbox.EventID]time.Time{}
		for range 10 {
			for _, tenant := range others {
				published[r.publish(tenant, 1, true)[0]] = time.Now()
			}
		}
		r.until("the others' events", 10*time.Second, func() bool {
			r.sender.mu.Lock()
			defer r.sender.mu.Unlock()
			return len(arrived) == len(published)
		})
		var waits []time.Duration
		for id, at := range published {
			waits = append(waits, arrived[id].Sub(at))
		}
		slices.Sort(waits)
		if longest := waits[len(waits)-1]; longest > 500*time.Millisecond { // of ten events one after the other, 10 ms each
			t.Errorf("an event of another customer took %v", longest)
		}
		// Two slots remain for the healthy one: 500 events of 10 ms take 2.5 s.
		r.until("the same customer's healthy server", 10*time.Second, func() bool {
			r.sender.mu.Lock()
			defer r.sender.mu.Unlock()
			return healthy == 500
		})
		if most := r.sender.most["https://hanging.example/hook"]; most != 3 {
			t.Errorf("%d requests hung at once, want the endpoint's cap of 3", most)
		}
	})
}

// A breaker that is open is tried by one probe at a time, and a probe that ends in whatever way but
// success leads to the next: after a 404, a reset, an answer cut short, a process stopped meanwhile.
func TestNode_probesThatEndOddlyLeadToTheNext(t *testing.T) {
	of := func(kind outbox.Kind) func() attempt.Outcome {
		return func() attempt.Outcome {
			o := failed(0)
			o.Kind = kind
			return o
		}
	}
	for name, how := range map[string]func() attempt.Outcome{
		"404": func() attempt.Outcome {
			o := failed(404)
			o.Outcome = outbox.OutcomePermanent
			return o
		},
		"a reset":              of(outbox.KindReset),
		"an answer cut short":  of(outbox.KindProtocol),
		"a timeout":            of(outbox.KindTimeout),
		"a panic":              func() attempt.Outcome { panic("in a probe") },
		"the process is ended": nil,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { probeThatEndsBy(t, how) })
		})
	}
}

// probeThatEndsBy lets the first probe of an open breaker end so, nil: by a new process, and the
// next one succeed.
func probeThatEndsBy(t *testing.T, how func() attempt.Outcome) {
	r := newRig(t)
	acme := r.tenant("acme", nil)
	r.endpoint(acme, "crm", func(e *outbox.Endpoint) {
		e.Retry = outbox.RetryPolicy{Initial: time.Second, Max: time.Minute, Window: 24 * time.Hour}
	})
	probes, probing, most := -1, 0, 0 // before the breaker is open there are none
	r.sender.script(func(ctx context.Context, _ sent) attempt.Outcome {
		r.sender.mu.Lock()
		n := probes
		if n >= 0 {
			probes++
			probing++
			if n < 2 { // the second closes it
				most = max(most, probing)
			}
		}
		r.sender.mu.Unlock()
		time.Sleep(50 * time.Millisecond)
		if n == 0 && how == nil {
			<-ctx.Done() // it hangs until the process ends
		}
		r.sender.mu.Lock()
		if n >= 0 {
			probing--
		}
		r.sender.mu.Unlock()
		switch {
		case n < 0:
			return failed(500)
		case n == 0 && how != nil:
			return how()
		case n == 0:
			return failed(0)
		}
		return delivered()
	})
	state := func() outbox.BreakerState {
		h, _ := r.node.Live(r.stateOf(acme, "crm").ID)
		return h.Breaker
	}
	count := func(at int) func() bool {
		return func() bool { r.sender.mu.Lock(); defer r.sender.mu.Unlock(); return probes >= at }
	}
	r.run()
	r.publish(acme, 50, true)
	r.until("the breaker is open", time.Minute, func() bool { return state() == outbox.BreakerOpen })
	time.Sleep(time.Second) // what was in flight then has ended
	r.sender.mu.Lock()
	probes = 0
	r.sender.mu.Unlock()
	r.until("the first probe", time.Minute, count(1))
	if how == nil {
		r.halt()
		r.run()
	}
	r.until("the next probe", 2*time.Minute, count(2))
	r.until("the breaker closed", time.Minute, func() bool { return state() == outbox.BreakerClosed })
	r.until("all is delivered or dead", 5*time.Minute, func() bool { return r.states(acme)[outbox.StatePending] == 0 })
	if most != 1 {
		t.Errorf("%d probes at once", most)
	}
}
