package dispatch

import (
	"context"
	"crypto/sha256"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/internal/attempt"
	"github.com/waybill-dev/waybill/internal/outbox"
)

// test sends an endpoint a test event and returns its delivery.
func (r *rig) test(tenant outbox.TenantRef, endpoint outbox.EndpointID) outbox.DeliveryID {
	r.t.Helper()
	now := r.clock.Now()
	e := outbox.Event{
		ID: outbox.NewEventID(now), Tenant: tenant, Type: "waybill.test", Payload: []byte(`{}`), SHA256: sha256.Sum256([]byte(`{}`)),
		CreatedAt: now, Metadata: map[string]string{outbox.TestMark: endpoint.String()},
	}
	if err := r.store.InsertTest(r.t.Context(), e, endpoint); err != nil {
		r.t.Fatal(err)
	}
	r.node.Wrote(tenant.Shard)
	return outbox.NewDeliveryID(e.ID, endpoint)
}

// testEnds waits for the end of a test and returns how it ended.
func (r *rig) testEnds(tenant outbox.TenantRef, id outbox.DeliveryID) outbox.DeliveryView {
	r.t.Helper()
	var view outbox.DeliveryView
	r.eventually("the test ended", func() bool {
		var err error
		view, err = r.store.Delivery(r.t.Context(), tenant, id)
		return err == nil && view.State != outbox.StatePending
	})
	return view
}

func TestTest_reachesAnEndpointInEveryState(t *testing.T) {
	for _, state := range []outbox.EndpointState{outbox.EndpointDraft, outbox.EndpointActive, outbox.EndpointPaused, outbox.EndpointDisabled} {
		t.Run(string(state), func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			acme := r.tenant("acme", nil)
			r.endpoint(acme, "other", nil)
			e := r.endpoint(acme, "crm", func(e *outbox.Endpoint) { e.State, e.EventTypes = state, []string{"something.else"} })
			r.run()
			view := r.testEnds(acme, r.test(acme, e))
			if view.State != outbox.StateDelivered {
				t.Errorf("%+v", view)
			}
			attempts, err := r.store.Attempts(t.Context(), acme, view.ID, 0, outbox.Page{Limit: 10, Ascending: true})
			if err != nil || len(attempts) != 1 || attempts[0].Trigger != outbox.TriggerTest {
				t.Errorf("attempts %+v, %v", attempts, err)
			}
			if sent := r.sender.all(); len(sent) != 1 || sent[0].url != "https://crm.example/hook" {
				t.Errorf("sent %+v", sent)
			}
			r.balanced()
		})
	}
}

func TestTest_ofAStrictEndpointWaitsForNoTurn(t *testing.T) {
	r := newRig(t)
	acme := r.tenant("acme", nil)
	e := r.endpoint(acme, "crm", func(e *outbox.Endpoint) { e.Ordering = outbox.OrderingStrict })
	r.run()
	r.sender.script(func(_ context.Context, s sent) attempt.Outcome {
		if s.Trigger == outbox.TriggerTest {
			return delivered()
		}
		o := failed(503)
		o.RetryAfter = time.Hour
		return o
	})
	r.publish(acme, 2, true)
	r.eventually("the first was tried", func() bool { return len(r.sender.all()) > 0 })
	if view := r.testEnds(acme, r.test(acme, e)); view.State != outbox.StateDelivered {
		t.Errorf("%+v", view)
	}
	r.balanced()
}

// While the breaker is open a test goes out at once: one that fails changes nothing, one that
// succeeds closes it.
func TestTest_closesAnOpenBreaker(t *testing.T) {
	r := newRig(t)
	acme := r.tenant("acme", nil)
	e := r.endpoint(acme, "crm", nil)
	r.run()
	r.sender.script(func(context.Context, sent) attempt.Outcome { return failed(500) })
	r.publish(acme, 40, true)
	breaker := func() outbox.BreakerState {
		health, err := r.store.HealthOf(t.Context(), acme, []outbox.EndpointRow{{Shard: acme.Shard, Endpoint: e}})
		if err != nil {
			t.Fatal(err)
		}
		return health[e].Breaker
	}
	r.eventually("the breaker opened", func() bool { return breaker() == outbox.BreakerOpen })
	began := time.Now()
	view := r.testEnds(acme, r.test(acme, e))
	if view.State != outbox.StateDead || view.Dead.Reason != outbox.DeadExhausted || view.Attempt != 1 {
		t.Errorf("one that fails: %+v", view)
	}
	if breaker() != outbox.BreakerOpen {
		t.Error("a test that failed closed the breaker")
	}
	r.sender.script(nil)
	if view := r.testEnds(acme, r.test(acme, e)); view.State != outbox.StateDelivered {
		t.Errorf("%+v", view)
	}
	r.eventually("the breaker closed", func() bool { return breaker() != outbox.BreakerOpen })
	if took := time.Since(began); took > firstCooldown/2 {
		t.Errorf("it took %v, as long as the breaker's own probe", took)
	}
	r.eventually("all delivered", func() bool { return r.states(acme)[outbox.StateDelivered] == 41 })
	r.balanced()
}
