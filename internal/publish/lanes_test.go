package publish

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/waybill-dev/waybill/internal/outbox"
	"github.com/waybill-dev/waybill/internal/priority"
)

// eventsOf is a submission of n events of a tenant.
func eventsOf(tenant outbox.TenantID, n int) []outbox.NewEvent {
	events := make([]outbox.NewEvent, n)
	for i := range events {
		events[i] = event("{}")
		events[i].Tenant.ID = tenant
	}
	return events
}

func TestCommitter_smallOnesDoNotStandBehindBulk(t *testing.T) {
	for name, keyed := range map[string]bool{"without keys": false, "with keys": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newFakeStore()
				store.slow = func(batch []outbox.NewEvent) time.Duration {
					return time.Duration(len(batch)) * 100 * time.Microsecond
				}
				c := New(Config{Store: store, Gate: priority.New()})
				var all sync.WaitGroup
				for range 10 {
					all.Go(func() {
						if _, _, err := c.Submit(t.Context(), eventsOf(1, 1000)); err != nil {
							t.Errorf("bulk: %v", err)
						}
					})
					synctest.Wait()
				}
				for range 20 {
					one := eventsOf(2, 1)
					one[0].Chosen = keyed
					began := time.Now()
					if _, _, err := c.Submit(t.Context(), one); err != nil {
						t.Fatal(err)
					}
					if took := time.Since(began); took != 100*time.Microsecond {
						t.Errorf("one event took %v beside ten thousand, alone it takes 100µs", took)
					}
				}
				all.Wait()
				closeAll(t, c)
			})
		})
	}
}

// A flood may come as single events too: what one tenant has beyond a hundred is bulk.
func TestCommitter_aFloodOfSingleEventsIsBulk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore()
		store.delay = 10 * time.Millisecond
		c := New(Config{Store: store, MaxEvents: 100})
		var all sync.WaitGroup
		for range 2000 {
			all.Go(func() { c.Submit(t.Context(), eventsOf(1, 1)) })
		}
		synctest.Wait()
		began := time.Now()
		if _, _, err := c.Submit(t.Context(), eventsOf(2, 1)); err != nil {
			t.Fatal(err)
		}
		// Two transactions may be under way; the next one has room for it.
		if took := time.Since(began); took > 2*store.delay {
			t.Errorf("took %v behind another's 2,000 events", took)
		}
		all.Wait()
		closeAll(t, c)
	})
}

func TestCommitter_bulkGoesByTurnsOfTheTenants(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore()
		store.delay = 10 * time.Millisecond
		c := New(Config{Store: store, MaxEvents: 500, Writers: 1})
		var all sync.WaitGroup
		for _, tenant := range []outbox.TenantID{1, 1, 1, 1, 1, 1, 2, 2, 3} {
			all.Go(func() { c.Submit(t.Context(), eventsOf(tenant, 250)) })
			synctest.Wait()
		}
		all.Wait()
		closeAll(t, c)
		var got [][]outbox.TenantID
		for _, call := range store.calls {
			var tenants []outbox.TenantID
			for i := 0; i < len(call); i += 250 {
				tenants = append(tenants, call[i].Tenant.ID)
			}
			got = append(got, tenants)
		}
		// The first was alone when it came.
		want := [][]outbox.TenantID{{1}, {1, 2}, {3, 1}, {2, 1}, {1, 1}}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("transactions (-want +got):\n%s", diff)
		}
	})
}

// A process that stops does not spend its grace on being polite.
func TestCommitter_whatWaitsAtTheEndGivesWayToNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore()
		store.slow = func(batch []outbox.NewEvent) time.Duration {
			return time.Duration(len(batch)) * time.Millisecond
		}
		gate := priority.New()
		gate.Small(1, time.Millisecond)
		for range 100 {
			gate.Small(1, time.Second) // as if bulk did harm
		}
		c := New(Config{Store: store, Gate: gate, Writers: 1})
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() {
				if _, _, err := c.Submit(t.Context(), eventsOf(1, 1000)); err != nil {
					t.Errorf("bulk: %v", err)
				}
			})
		}
		time.Sleep(1100 * time.Millisecond)
		if n := len(store.sizes()); n != 1 {
			t.Errorf("%d transactions in the first second, want one and a pause", n)
		}
		began := time.Now()
		closeAll(t, c)
		if took := time.Since(began); took > 2*time.Second+1 {
			t.Errorf("closing took %v, the two that waited take 2 s", took)
		}
		all.Wait()
		if want := []int{1000, 1000, 1000}; !slices.Equal(store.sizes(), want) {
			t.Errorf("stored %v", store.sizes())
		}
	})
}

// A second transaction beside the first one is begun for many, not for one and two at a time.
func TestCommitter_fewEventsShareTheNextTransaction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore()
		store.delay = 10 * time.Millisecond
		c := New(Config{Store: store})
		var all sync.WaitGroup
		for i := range 40 {
			all.Go(func() { c.Submit(t.Context(), eventsOf(outbox.TenantID(i%10+1), 1)) })
			synctest.Wait()
		}
		all.Wait()
		closeAll(t, c)
		if want := []int{1, 39}; !slices.Equal(store.sizes(), want) {
			t.Errorf("40 events in transactions of %v, want %v", store.sizes(), want)
		}
	})
}
