package receive_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waybill-dev/waybill/receive"
	"github.com/waybill-dev/waybill/receive/receivetest"
)

// counted counts what a store is asked.
type counted struct {
	*receivetest.Store
	claims, settles int
}

func (c *counted) Claim(ctx context.Context, r *receive.Record, token receive.Token, lease time.Duration) (receive.Found, error) {
	c.claims++
	return c.Store.Claim(ctx, r, token, lease)
}

func (c *counted) Settle(ctx context.Context, cl *receive.Claim, o receive.Outcome) error {
	c.settles++
	return c.Store.Settle(ctx, cl, o)
}

// A store that hangs must cost a few requests its budget, and not every one of them.
func TestSync_doesNotWaitForALostStore(t *testing.T) {
	other := receivetest.NewStore()
	for name, test := range map[string]struct {
		policy receive.StoreDown
		status int
	}{
		"closed": {receive.Closed, 503}, "open": {receive.Open, 200}, "fallback": {receive.Fallback(other), 200},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &counted{Store: receivetest.NewStore()}
				store.Delay("claim", 1000, time.Minute)
				store.Delay("settle", 1000, time.Minute)
				var c counter
				s, src, obs := svixSync(t, store, c.handle, func(cfg *receive.SyncConfig) { cfg.StoreDown = test.policy })
				n := 0
				post := func(want int) (took time.Duration) {
					t.Helper()
					n++
					start := time.Now()
					wantStatus(t, s, src, fmt.Sprintf(`{"n":%d,"policy":%q}`, n, name), want)
					return time.Since(start)
				}
				for range 3 {
					if took := post(test.status); took < 250*time.Millisecond {
						t.Errorf("answered after %v, without having waited for the store", took)
					}
				}
				synctest.Wait()
				time.Sleep(2 * time.Second) // what was left behind has given up
				wantCount(t, "times the store counts as lost", obs.count(receive.StoreLost), 1)
				asked, settled := store.claims, store.settles
				post(test.status) // asks, because a second has passed
				wantCount(t, "tries of the one that asks", store.claims-asked, 2)
				synctest.Wait()
				asked, settled = store.claims, store.settles
				for range 50 {
					if took := post(test.status); took != 0 {
						t.Errorf("answered after %v, though the store is lost", took)
					}
				}
				if name == "open" {
					wantCount(t, "unprotected runs", c.effects(), n)
				}
				synctest.Wait()
				wantCount(t, "claims sent to a lost store", store.claims-asked, 0)
				wantCount(t, "settlements of what was never claimed", store.settles-settled, 0)

				store.Mend()
				time.Sleep(time.Second)
				post(http.StatusOK)
				wantCount(t, "times it is back", obs.count(receive.StoreBack), 1)
				before := c.effects()
				post(http.StatusOK)
				wantStatus(t, s, src, fmt.Sprintf(`{"n":%d,"policy":%q}`, n, name), http.StatusOK)
				wantCount(t, "effects of one sent twice", c.effects()-before, 1)
				if age := obs.last(receive.StoreBack).Age; age < 3*time.Second || age > 10*time.Second {
					t.Errorf("it was away for %v", age)
				}
			})
		})
	}
}

// A store that fails now and then is not lost.
func TestSync_asksAStoreThatFailsNowAndThen(t *testing.T) {
	store := receivetest.NewStore()
	var c counter
	s, src, obs := svixSync(t, store, c.handle)
	for i := range 20 {
		if i%3 != 0 {
			store.Fail("claim", 2, errors.New("refused"), false)
			wantStatus(t, s, src, fmt.Sprintf(`{"n":%d}`, i), http.StatusServiceUnavailable)
			continue
		}
		wantStatus(t, s, src, fmt.Sprintf(`{"n":%d}`, i), http.StatusOK)
	}
	wantCount(t, "times it counts as lost", obs.count(receive.StoreLost), 0)
	failed := 0
	for _, o := range obs.all {
		if o.Step == receive.StepStore && o.Outcome == receive.Failed && o.Reason == "store_down" {
			failed++
		}
	}
	wantCount(t, "failures that were told", failed, 13)
}

func TestInbox_doesNotWaitForALostStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, local := receivetest.NewStore(), receivetest.NewStore()
		store.Delay("put", 1000, time.Minute)
		var c counter
		in, src, obs := stripeInbox(t, store, c.handle, func(cfg *receive.InboxConfig) { cfg.Fallback = local })
		var waited time.Duration
		for i := range 100 {
			start := time.Now()
			wantStatus(t, in, src, fmt.Sprintf(`{"id":"evt_%d"}`, i), http.StatusOK)
			waited += time.Since(start)
		}
		if waited != 750*time.Millisecond {
			t.Errorf("a hundred requests waited %v for the store, want three times its budget", waited)
		}
		wantCount(t, "times it counts as lost", obs.count(receive.StoreLost), 1)
		store.Mend()
		time.Sleep(time.Second)
		wantStatus(t, in, src, `{"id":"evt_100"}`, http.StatusOK)
		wantCount(t, "times it is back", obs.count(receive.StoreBack), 1)
		wantCount(t, "events in it", store.Len(), 1)
		receivetest.Drain(t, in)
		wantCount(t, "effects", c.effects(), 101)
	})
}
