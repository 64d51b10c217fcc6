package dispatch

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waybill-dev/waybill/internal/attempt"
	"github.com/waybill-dev/waybill/internal/outbox"
)

// until lets bubble time pass until the condition holds.
func (r *rig) until(what string, within time.Duration, condition func() bool) time.Duration {
	r.t.Helper()
	begin := time.Now()
	for !condition() {
		if time.Since(begin) > within {
			r.t.Fatalf("%s: not within %v; %d attempts were made", what, within, len(r.sender.all()))
		}
		time.Sleep(time.Second)
	}
	return time.Since(begin)
}

// A server is down for ten minutes with 2,000 deliveries waiting, and comes back able to take
// 20 requests a second. It is not stampeded, new events are not late for long, all arrive.
func TestNode_outageIsSurvivedWithoutAStampede(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		acme := r.tenant("acme", nil)
		ep := r.endpoint(acme, "a", func(e *outbox.Endpoint) {
			e.Retry = outbox.RetryPolicy{Initial: 2 * time.Second, Max: time.Hour}
		})
		begin := time.Now()
		up := begin.Add(10 * time.Minute)
		server := &limitedServer{perSecond: 20, at: begin}
		perSecond := map[int]int{}
		tooMany, after, probes := 0, 0, 0
		arrived := map[outbox.EventID]time.Time{}
		r.sender.script(func(_ context.Context, s sent) attempt.Outcome {
			time.Sleep(20 * time.Millisecond)
			r.sender.mu.Lock()
			defer r.sender.mu.Unlock()
			now := time.Now()
			if now.Before(up) {
				probes++
				return failed(503)
			}
			after++
			perSecond[int(now.Sub(up).Seconds())]++
			if !server.take(now) {
				tooMany++
				o := failed(429)
				return o
			}
			arrived[s.Event] = now
			return delivered()
		})
		r.run()
		r.publish(acme, 2000, true)
		time.Sleep(time.Until(up))
		// 20 failures open it (with those in flight then), and it is probed after 30 s, 1, 2, 4 and 8 min.
		if probes < 20+4 || probes > 20+10+5 {
			t.Errorf("%d attempts while the server was down for ten minutes, want about 25", probes)
		}
		// What happens while the past is told: five events a second.
		r.until("the server is back", 15*time.Minute, func() bool {
			r.sender.mu.Lock()
			defer r.sender.mu.Unlock()
			return after > 0
		})
		news := map[outbox.EventID]time.Time{}
		for range 300 {
			news[r.publish(acme, 1, true)[0]] = time.Now()
			time.Sleep(200 * time.Millisecond)
		}
		took := r.until("everything delivered", 15*time.Minute, func() bool {
			r.sender.mu.Lock()
			defer r.sender.mu.Unlock()
			return after-tooMany == 2000+len(news)
		})
		var waits []time.Duration
		for id, at := range news {
			waits = append(waits, arrived[id].Sub(at))
		}
		slices.Sort(waits)
		if p95 := waits[len(waits)*95/100]; p95 > 30*time.Second {
			t.Errorf("one in twenty of the events since the outage waited %v and more behind those of before", p95)
		}
		t.Logf("%d attempts while down; %d after, %d of them 429; drained in %v", probes, after, tooMany, took)
		if tooMany*10 >= after {
			t.Errorf("%d of %d requests after the outage were answered 429", tooMany, after)
		}
		for second, n := range perSecond {
			if n > 100 {
				t.Errorf("second %d after the outage had %d requests, 5 %% of the total is 100", second, n)
			}
		}
		h, _ := r.node.Live(ep)
		if o := h.Outage; o.From.Sub(begin) > 10*time.Second || o.OpenedAt.Before(o.From) || o.To.Before(up) || o.To.After(up.Add(10*time.Minute)) || o.Cause.StatusCode != 503 {
			t.Errorf("the outage is remembered as %+v", o)
		}
		r.halt()
		if got := r.states(acme)[outbox.StateDelivered]; got != 2000+len(news) {
			t.Errorf("%d delivered", got)
		}
		r.balanced()
	})
}
