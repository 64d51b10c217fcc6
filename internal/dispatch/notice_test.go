package dispatch

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waybill-dev/waybill/internal/attempt"
	"github.com/waybill-dev/waybill/internal/outbox"
)

// notices are what a node told, in order.
type notices struct {
	mu  sync.Mutex
	all []Notice
}

func (n *notices) hear(notice Notice) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.all = append(n.all, notice)
}

func (n *notices) of(kind NoticeType) []Notice {
	n.mu.Lock()
	defer n.mu.Unlock()
	var of []Notice
	for _, notice := range n.all {
		if notice.Type == kind {
			of = append(of, notice)
		}
	}
	return of
}

// stateOf returns an endpoint as it is stored.
func (r *rig) stateOf(tenant outbox.TenantRef, uid string) outbox.Endpoint {
	r.t.Helper()
	e, err := r.store.Endpoint(r.t.Context(), tenant, outbox.EndpointRef{UID: uid})
	if err != nil {
		r.t.Fatal(err)
	}
	return e
}

// A server that is gone for good: its owner is told once that it fails, the endpoint is disabled
// after five days and not before, though the node was started anew meanwhile, and told of too. What
// waited then waits on, and arrives when somebody switches the endpoint on again.
func TestNotices_aServerThatFailsForFiveDays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		var told notices
		r.notify = told.hear
		r.pending = 30 * 24 * time.Hour
		acme := r.tenant("acme", nil)
		id := r.endpoint(acme, "crm", func(e *outbox.Endpoint) {
			e.Retry = outbox.RetryPolicy{Initial: time.Second, Max: time.Minute, Window: 20 * 24 * time.Hour}
		})
		r.sender.script(func(context.Context, sent) attempt.Outcome { return failed(500) })
		began := time.Now()
		r.run()
		r.publish(acme, 40, true)
		r.until("the breaker opened", time.Minute, func() bool { return len(told.of(NoticeFailing)) == 1 })
		for _, day := range []int{1, 2, 4} { // nobody is there between
			r.halt()
			time.Sleep(time.Until(began.Add(time.Duration(day) * 24 * time.Hour)))
			tried := len(r.sender.all())
			r.run()
			r.until("it is probed", time.Minute, func() bool { return len(r.sender.all()) > tried })
		}
		r.halt()
		time.Sleep(time.Until(began.Add(5*24*time.Hour - 2*time.Minute)))
		tried := len(r.sender.all())
		r.run()
		r.until("it is probed", time.Minute, func() bool { return len(r.sender.all()) > tried })
		time.Sleep(10 * time.Second)
		if e := r.stateOf(acme, "crm"); e.State != outbox.EndpointActive || len(told.of(NoticeDisabled)) > 0 {
			t.Fatalf("a minute before the five days are over it is %s, told %v", e.State, told.of(NoticeDisabled))
		}
		// The next probe is 16.5 min away at most.
		r.until("it is disabled", time.Hour, func() bool { return r.stateOf(acme, "crm").State == outbox.EndpointDisabled })
		reason := r.stateOf(acme, "crm").StateReason
		if reason == nil || reason.Code != "failing" || reason.By != "system" {
			t.Errorf("disabled for %+v", reason)
		}
		tried = len(r.sender.all())
		time.Sleep(20 * time.Minute)
		if n := len(r.sender.all()); n != tried {
			t.Errorf("%d attempts within 20 minutes after it was disabled", n-tried)
		}
		if got := r.states(acme); got[outbox.StatePending] != 40 {
			t.Errorf("deliveries: %v, want 40 that wait", got)
		}
		failing, disabled := told.of(NoticeFailing), told.of(NoticeDisabled)
		if len(failing) != 1 || len(disabled) != 1 {
			t.Fatalf("told %d times that it fails and %d times that it is disabled, want once each", len(failing), len(disabled))
		}
		for _, n := range []Notice{failing[0], disabled[0]} {
			if n.Endpoint.ID != id || n.Tenant.Key != "acme" || n.Reason.StatusCode != 500 || n.Since.Sub(began).Abs() > time.Minute {
				t.Errorf("%s: told %+v", n.Type, n)
			}
		}

		r.sender.script(nil)
		r.edit(acme, "crm", func(e *outbox.Endpoint) { e.State, e.StateReason = outbox.EndpointActive, nil })
		r.until("all arrived", time.Hour, func() bool { return r.states(acme)[outbox.StateDelivered] == 40 })
		if n := len(told.of(NoticeRecovered)); n != 1 {
			t.Errorf("told %d times that it is back, want once", n)
		}
		r.halt()
		r.balanced()
	})
}

// An endpoint that is used little is not judged by few failures, however long they lie apart.
func TestNotices_fewFailuresDisableNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		var told notices
		r.notify = told.hear
		acme := r.tenant("acme", nil)
		r.endpoint(acme, "crm", func(e *outbox.Endpoint) {
			e.Retry = outbox.RetryPolicy{Initial: time.Second, Max: time.Second, MaxAttempts: 1}
		})
		r.sender.script(func(context.Context, sent) attempt.Outcome { return failed(500) })
		for day := range hopelessAttempts - 1 {
			r.run()
			r.publish(acme, 1, true)
			time.Sleep(10 * time.Second)
			r.halt()
			time.Sleep(24 * time.Hour)
			if got := r.states(acme)[outbox.StateDead]; got != day+1 {
				t.Fatalf("%d dead letters on day %d", got, day+1)
			}
		}
		if e := r.stateOf(acme, "crm"); e.State != outbox.EndpointActive {
			t.Errorf("disabled after %d failures", hopelessAttempts-1)
		}
		// The tenth attempt, on the tenth day, is enough.
		r.run()
		r.publish(acme, 1, true)
		r.until("it is disabled", time.Minute, func() bool { return r.stateOf(acme, "crm").State == outbox.EndpointDisabled })
		if n := len(told.of(NoticeDead)); n != hopelessAttempts {
			t.Errorf("told of %d first dead letters in an hour, want %d", n, hopelessAttempts)
		}
	})
}

// 410 Gone is the server's own word that nobody is there: the third in ten minutes disables its
// endpoint. The operator's own endpoints are told of nowhere, for that would be told there.
func TestNotices_goneDisables(t *testing.T) {
	for _, key := range []string{"acme", outbox.OperatorTenant} {
		t.Run(key, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				var told notices
				r.notify = told.hear
				tenant := r.tenant(key, nil)
				r.endpoint(tenant, "crm", nil)
				r.sender.script(func(context.Context, sent) attempt.Outcome {
					o := failed(410)
					o.Outcome = outbox.OutcomePermanent
					return o
				})
				r.run()
				for i := range 3 {
					if e := r.stateOf(tenant, "crm"); e.State != outbox.EndpointActive {
						t.Fatalf("%s after %d times 410", e.State, i)
					}
					r.publish(tenant, 1, true)
					time.Sleep(time.Minute)
				}
				e := r.stateOf(tenant, "crm")
				if e.State != outbox.EndpointDisabled || e.StateReason == nil || e.StateReason.Code != "gone" {
					t.Errorf("after three times 410 it is %s, %+v", e.State, e.StateReason)
				}
				want := "[delivery.dead endpoint.disabled]"
				if key == outbox.OperatorTenant {
					want = "[]"
				}
				r.halt()
				var kinds []NoticeType
				told.mu.Lock()
				defer told.mu.Unlock()
				for _, n := range told.all {
					kinds = append(kinds, n.Type)
				}
				if got := fmt.Sprint(kinds); got != want {
					t.Errorf("told %s, want %s", got, want)
				}
			})
		})
	}
}
