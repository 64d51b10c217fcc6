package receive_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waybill-dev/waybill/receive"
	"github.com/waybill-dev/waybill/receive/providers"
	"github.com/waybill-dev/waybill/receive/receivetest"
)

var errDown = errors.New("connection refused")

func TestScenario09_storeDown(t *testing.T) {
	other := receivetest.NewStore()
	for _, c := range []struct {
		name             string
		policy           receive.StoreDown
		status, effects  int
		degraded         string
		again, effectsIn int // the same event once more, still down
	}{
		{"closed", receive.Closed, 503, 0, "", 503, 0},
		{"open", receive.Open, 200, 1, "store_down", 200, 2},
		{"fallback", receive.Fallback(other), 200, 1, "", 200, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			store := receivetest.NewStore()
			store.Fail("claim", 1000, errDown, false)
			store.Fail("settle", 1000, errDown, false)
			effects, degraded := 0, ""
			s, src, obs := svixSync(t, store, func(_ context.Context, d *receive.Delivery) error {
				effects++
				degraded = d.Degraded
				return nil
			}, func(cfg *receive.SyncConfig) { cfg.StoreDown, cfg.OutcomeHeader = c.policy, true })
			start := time.Now()
			res := wantStatus(t, s, src, event, c.status)
			if took := time.Since(start); took > 2*time.Second {
				t.Errorf("answered after %v", took)
			}
			wantCount(t, "effects", effects, c.effects)
			if degraded != c.degraded {
				t.Errorf("Degraded %q, want %q", degraded, c.degraded)
			}
			if c.degraded != "" && (obs.count(receive.Degraded) == 0 || res.Header.Get("Waybill-Outcome") != "degraded") {
				t.Errorf("nobody is told: observed %d times, header %q", obs.count(receive.Degraded), res.Header.Get("Waybill-Outcome"))
			}
			wantStatus(t, s, src, event, c.again)
			wantCount(t, "effects after the second", effects, c.effectsIn)
		})
	}
	t.Run("inbox with a fallback", func(t *testing.T) {
		store, local := receivetest.NewStore(), receivetest.NewStore()
		store.Fail("put", 1, errDown, false)
		var c counter
		in, src, obs := stripeInbox(t, store, c.handle, func(cfg *receive.InboxConfig) { cfg.Fallback = local })
		wantStatus(t, in, src, event, http.StatusOK)
		wantCount(t, "degraded", obs.count(receive.Degraded), 1)
		receivetest.Drain(t, in)
		wantCount(t, "effects", c.effects(), 1)
	})
	t.Run("inbox without one", func(t *testing.T) {
		store := receivetest.NewStore()
		store.Fail("put", 1, errDown, false)
		var c counter
		in, src, _ := stripeInbox(t, store, c.handle)
		wantStatus(t, in, src, event, http.StatusServiceUnavailable)
		wantStatus(t, in, src, event, http.StatusOK)
		receivetest.Drain(t, in)
		wantCount(t, "effects", c.effects(), 1)
	})
}

func TestScenario10_claimAppliedAndUnanswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := receivetest.NewStore()
		var c counter
		s, src, _ := svixSync(t, store, c.handle)
		store.Fail("claim", 1, context.DeadlineExceeded, true)
		wantStatus(t, s, src, event, http.StatusOK) // asked again with its own token
		wantCount(t, "effects", c.effects(), 1)

		const second = `{"id":"evt_2"}`
		store.Fail("claim", 2, context.DeadlineExceeded, true)
		wantStatus(t, s, src, second, http.StatusServiceUnavailable)
		synctest.Wait() // the ghost is given back
		wantStatus(t, s, src, second, http.StatusOK)
		wantCount(t, "effects", c.effects(), 2)
	})
}

func TestScenario10_storeSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := receivetest.NewStore()
		store.Delay("claim", 2, time.Minute)
		var c counter
		s, src, obs := svixSync(t, store, c.handle)
		start := time.Now()
		wantStatus(t, s, src, event, http.StatusServiceUnavailable)
		if took := time.Since(start); took != 250*time.Millisecond {
			t.Errorf("answered after %v, with a budget of 250 ms", took)
		}
		if got := obs.last(receive.Failed).Reason; got != "store_slow" {
			t.Errorf("reason %q", got)
		}
	})
}

func TestScenario11_storeDiesBetweenHandlerAndConfirm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := receivetest.NewStore()
		store.Fail("settle", 3, errDown, false)
		var c counter
		s, src, obs := svixSync(t, store, c.handle)
		wantStatus(t, s, src, event, http.StatusOK)
		wantCount(t, "confirms that failed", obs.count(receive.ConfirmFailed), 1)
		wantStatus(t, s, src, event, http.StatusServiceUnavailable) // not released
		time.Sleep(21 * time.Second)
		wantStatus(t, s, src, event, http.StatusOK)
		wantCount(t, "effects", c.effects(), 2)
	})
}

// forgetful loses everything behind our back, as an eviction or a failover does.
type forgetful struct{ *receivetest.Store }

func (forgetful) Check(context.Context) ([]receive.Problem, error) {
	return []receive.Problem{{Rule: receive.Evicts, Harm: receive.Repeats, Detail: "maxmemory-policy is allkeys-lru", Remedy: "set it to noeviction"}}, nil
}

func TestScenario12_evictionAndFailover(t *testing.T) {
	var c counter
	current := receivetest.NewStore()
	s, src, _ := svixSync(t, forgetful{current}, c.handle, func(cfg *receive.SyncConfig) { cfg.Waive = []receive.Rule{receive.Evicts} })
	wantStatus(t, s, src, event, http.StatusOK)
	current.Wipe()
	wantStatus(t, s, src, event, http.StatusOK)
	wantCount(t, "effects", c.effects(), 2)
	_, err := receive.NewSync(t.Context(), receive.SyncConfig{Source: src, Store: forgetful{current}, Handler: c.handle})
	wantRule(t, err, receive.Evicts)
}

func TestScenario19_redeliveryAroundTheHorizon(t *testing.T) {
	store := receivetest.NewStore()
	var runs []int
	in, src, obs := stripeInbox(t, store, func(_ context.Context, d *receive.Delivery) error {
		runs = append(runs, d.Run)
		return nil
	})
	wantStatus(t, in, src, event, 200)
	receivetest.Drain(t, in)
	store.Advance(30*24*time.Hour + 3*24*time.Hour)
	wantStatus(t, in, src, event, 200)
	receivetest.Drain(t, in)
	wantCount(t, "runs at the end of what Stripe and its people can resend", len(runs), 1)
	if age := obs.last(receive.Duplicate); age.Outcome != receive.Duplicate {
		t.Errorf("no duplicate observed")
	}
	store.Advance(2 * time.Hour)
	wantStatus(t, in, src, event, 200)
	receivetest.Drain(t, in)
	wantCount(t, "runs after it", len(runs), 2)

	// An operator's replay passes the memory by, once, and the run knows that it is not the first.
	var key receive.Key
	for _, o := range obs.all {
		if o.Outcome == receive.Processed && o.Step == receive.StepRun {
			key = o.Key
		}
	}
	before := runs[len(runs)-1]
	if err := in.Replay(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	receivetest.Drain(t, in)
	if len(runs) != 3 || runs[2] != before+1 {
		t.Errorf("runs %v", runs)
	}

	for _, p := range []receive.Provider{providers.Svix(), providers.Stripe(), providers.Paddle()} {
		src := receivetest.NewSource(t, "x", p)
		_, err := receive.NewInbox(t.Context(), receive.InboxConfig{Source: src, Store: store, Handler: (&counter{}).handle, Retain: 24 * time.Hour})
		wantRule(t, err, receive.ShortMemory)
	}
}
