package receive_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waybill-dev/waybill/receive"
	"github.com/waybill-dev/waybill/receive/memstore"
	"github.com/waybill-dev/waybill/receive/receivetest"
)

func TestScenario01_crashAfterClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := receivetest.NewStore()
		var c counter
		entered, hang := make(chan struct{}), make(chan struct{})
		died, src, _ := svixSync(t, store, func(context.Context, *receive.Delivery) error {
			close(entered)
			<-hang
			return errors.New("this process is dead")
		})
		next, _, obs := svixSync(t, store, c.handle, func(cfg *receive.SyncConfig) { cfg.Source = src })
		go receivetest.Post(t, died, src, event)
		<-entered
		time.Sleep(time.Second)
		store.Crash()

		time.Sleep(5 * time.Second) // Svix's first retry
		res := wantStatus(t, next, src, event, http.StatusServiceUnavailable)
		if after, err := strconv.Atoi(res.Header.Get("Retry-After")); err != nil || after < 13 || after > 15 {
			t.Errorf("Retry-After %q, with 14 s of the lease left", res.Header.Get("Retry-After"))
		}
		wantCount(t, "effects while the lease lasts", c.effects(), 0)
		time.Sleep(5 * time.Minute)
		wantStatus(t, next, src, event, http.StatusOK)
		wantCount(t, "effects", c.effects(), 1)
		wantCount(t, "takeovers", obs.count(receive.Takeover), 1)
		close(hang)
		_ = died.Shutdown(t.Context())
	})
}

func TestScenario02_crashAfterEffect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := receivetest.NewStore()
		var runs []int
		var mu sync.Mutex
		s, src, _ := svixSync(t, store, func(_ context.Context, d *receive.Delivery) error {
			mu.Lock()
			defer mu.Unlock()
			runs = append(runs, d.Run) // the effect
			if len(runs) == 1 {
				store.Crash()
			}
			return nil
		})
		receivetest.Post(t, s, src, event) // to nobody: the process is dead
		time.Sleep(21 * time.Second)
		wantStatus(t, s, src, event, http.StatusOK)
		if len(runs) != 2 || runs[1] != 2 {
			t.Errorf("runs %v: the second must be there, and know that it is", runs)
		}
		wantStatus(t, s, src, event, http.StatusOK)
		wantCount(t, "runs in the end", len(runs), 2)
	})
}

func TestScenario03_responseLostAfterCommit(t *testing.T) {
	store := receivetest.NewStore()
	var c counter
	s, src, obs := svixSync(t, store, c.handle)
	receivetest.Post(t, s, src, event) // the answer gets lost
	wantStatus(t, s, src, event, http.StatusOK)
	wantCount(t, "effects", c.effects(), 1)
	wantCount(t, "duplicates", obs.events(receive.Duplicate), 1)
}

func TestScenario04_failureAfterTheProviderHungUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := receivetest.NewStore()
		var c counter
		first := true
		s, src, _ := svixSync(t, store, func(ctx context.Context, d *receive.Delivery) error {
			if first {
				first = false
				time.Sleep(20 * time.Second)
				if ctx.Err() != nil {
					t.Errorf("the handler's context ended with the connection: %v", context.Cause(ctx))
				}
				return errors.New("caught")
			}
			return c.handle(ctx, d)
		}, func(cfg *receive.SyncConfig) { cfg.Deadline, cfg.Grace = 25*time.Second, 9750*time.Millisecond })
		ctx, hangUp := context.WithCancel(t.Context())
		go func() { receivetest.Do(s, receivetest.Request(t, src, event).WithContext(ctx)) }()
		time.Sleep(15 * time.Second)
		hangUp()
		time.Sleep(time.Second)
		wantStatus(t, s, src, event, http.StatusServiceUnavailable)
		time.Sleep(10 * time.Second)
		wantStatus(t, s, src, event, http.StatusOK)
		wantCount(t, "effects", c.effects(), 1)
	})
}

func TestScenario05_overtakenRunReleasesLate(t *testing.T) {
	overtaken(t, errors.New("failed at last"))
}

func TestScenario06_overtakenRunConfirmsLate(t *testing.T) { overtaken(t, nil) }

// overtaken is about A, which stalls beyond its lease, B, which takes over, and C, which comes while B
// runs and must not be let in, whatever A says then.
func overtaken(t *testing.T, end error) {
	synctest.Test(t, func(t *testing.T) {
		store := receivetest.NewStore()
		a, b := make(chan struct{}), make(chan struct{})
		entered := make(chan int, 3)
		var runs atomic.Int64
		s, src, obs := svixSync(t, store, func(_ context.Context, d *receive.Delivery) error {
			runs.Add(1)
			entered <- d.Run
			if d.Run == 1 {
				<-a
				return end
			}
			<-b
			return nil
		})
		go receivetest.Post(t, s, src, event)
		<-entered
		time.Sleep(21 * time.Second)
		go receivetest.Post(t, s, src, event)
		<-entered
		close(a)
		synctest.Wait()
		wantStatus(t, s, src, event, http.StatusServiceUnavailable)
		wantCount(t, "settlements of A that were refused", obs.count(receive.ReleaseFailed)+obs.count(receive.ConfirmFailed), 1)
		close(b)
		synctest.Wait()
		wantStatus(t, s, src, event, http.StatusOK)
		wantCount(t, "runs", int(runs.Load()), 2)
	})
}

func TestScenario07_handlerIgnoresItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := receivetest.NewStore()
		var c counter
		s, src, obs := svixSync(t, store, func(ctx context.Context, d *receive.Delivery) error {
			if d.Run == 1 {
				time.Sleep(18 * time.Second)
			}
			return c.handle(ctx, d)
		})
		start := time.Now()
		wantStatus(t, s, src, event, http.StatusServiceUnavailable)
		if took := time.Since(start); took < 12*time.Second || took > 16*time.Second {
			t.Errorf("answered after %v, with a deadline of 12 s", took)
		}
		wantCount(t, "overruns", obs.count(receive.Overrun), 1)
		wantStatus(t, s, src, event, http.StatusServiceUnavailable) // it still runs
		wantCount(t, "effects while it runs", c.effects(), 0)
		time.Sleep(3 * time.Second)
		wantStatus(t, s, src, event, http.StatusOK)
		wantCount(t, "effects", c.effects(), 1)
	})
}

func TestScenario08_aHundredAtOnce(t *testing.T) {
	stores := map[string]func() receive.ClaimStore{
		"the tests' store": func() receive.ClaimStore { return receivetest.NewStore() },
		"memstore":         func() receive.ClaimStore { return memstore.New(1000) },
	}
	for name, open := range stores {
		for _, wait := range []time.Duration{-1, 10 * time.Second} {
			t.Run(fmt.Sprintf("%s, waiting %v", name, wait), func(t *testing.T) {
				var runs, done atomic.Int64
				release := make(chan struct{})
				s, src, _ := svixSync(t, open(), func(context.Context, *receive.Delivery) error {
					runs.Add(1)
					<-release
					done.Store(1)
					return nil
				}, func(cfg *receive.SyncConfig) { cfg.Wait = wait })
				start := make(chan struct{})
				var wg sync.WaitGroup
				var early, inFlight, success, arrived atomic.Int64
				for range 100 {
					r := receivetest.Request(t, src, event)
					wg.Go(func() {
						<-start
						arrived.Add(1)
						res := receivetest.Do(s, r)
						switch {
						case res.StatusCode == http.StatusOK && done.Load() == 0:
							early.Add(1)
						case res.StatusCode == http.StatusOK:
							success.Add(1)
						case res.StatusCode == http.StatusServiceUnavailable:
							inFlight.Add(1)
						}
					})
				}
				close(start)
				for deadline := time.Now().Add(10 * time.Second); arrived.Load() < 100 || runs.Load() == 0 || wait < 0 && inFlight.Load() < 99; {
					if time.Now().After(deadline) {
						t.Fatalf("%d arrived, %d run, %d are in flight", arrived.Load(), runs.Load(), inFlight.Load())
					}
					<-time.After(time.Millisecond)
				}
				close(release)
				wg.Wait()
				wantCount(t, "runs", int(runs.Load()), 1)
				wantCount(t, "answered 2xx before the winner was done", int(early.Load()), 0)
				if wait < 0 {
					wantCount(t, "answered in flight", int(inFlight.Load()), 99)
				} else {
					wantCount(t, "answered 2xx after it", int(success.Load()), 100)
				}
			})
		}
	}
}
