package receive_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waybill-dev/waybill/receive"
	"github.com/waybill-dev/waybill/receive/memstore"
	"github.com/waybill-dev/waybill/receive/providers"
	"github.com/waybill-dev/waybill/receive/receivetest"
	"github.com/waybill-dev/waybill/signature"
)

// seen collects what a receiver observes.
type seen struct {
	mu  sync.Mutex
	all []receive.Observation
}

func (s *seen) observe(_ context.Context, o receive.Observation) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, o)
}

// count is how many observations have the outcome.
func (s *seen) count(outcome string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range s.all {
		if o.Outcome == outcome {
			n++
		}
	}
	return n
}

// events is how many observations of single events have the outcome.
func (s *seen) events(outcome string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range s.all {
		if o.Outcome == outcome && o.Key != (receive.Key{}) {
			n++
		}
	}
	return n
}

// last is the last observation with the outcome.
func (s *seen) last(outcome string) (last receive.Observation) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range s.all {
		if o.Outcome == outcome {
			last = o
		}
	}
	return last
}

// svixSync is a Sync in front of Svix with a deadline of 12 s and so, with 7.75 s of grace, a lease
// of 20 s.
func svixSync(t testing.TB, store receive.ClaimStore, h receive.Handler, change ...func(*receive.SyncConfig)) (*receive.Sync, receive.Source, *seen) {
	t.Helper()
	src := receivetest.NewSource(t, "mail", providers.Svix())
	obs := &seen{}
	cfg := receive.SyncConfig{
		Source: src, Store: store, Handler: h, Deadline: 12 * time.Second, Grace: 7750 * time.Millisecond, Wait: -1,
		Observe: obs.observe, Waive: []receive.Rule{receive.Forgets},
	}
	for _, c := range change {
		c(&cfg)
	}
	s, err := receive.NewSync(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s, cfg.Source, obs
}

func stripeInbox(t testing.TB, store receive.InboxStore, h receive.Handler, change ...func(*receive.InboxConfig)) (*receive.Inbox, receive.Source, *seen) {
	t.Helper()
	src := receivetest.NewSource(t, "billing", providers.Stripe())
	obs := &seen{}
	cfg := receive.InboxConfig{Source: src, Store: store, Handler: h, RunElsewhere: true, Observe: obs.observe}
	for _, c := range change {
		c(&cfg)
	}
	in, err := receive.NewInbox(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return in, cfg.Source, obs
}

// wantStatus posts body and compares the answer's status.
func wantStatus(t testing.TB, h http.Handler, src receive.Source, body string, want int) *http.Response {
	t.Helper()
	res := receivetest.Post(t, h, src, body)
	if res.StatusCode != want {
		t.Errorf("at this point %s is answered %d, want %d", body, res.StatusCode, want)
	}
	return res
}

func wantCount(t testing.TB, what string, got, want int) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %d, want %d", what, got, want)
	}
}

// counter is a handler that counts its effects.
type counter struct {
	n   atomic.Int64
	err error
}

func (c *counter) handle(context.Context, *receive.Delivery) error {
	if c.err != nil {
		return c.err
	}
	c.n.Add(1)
	return nil
}

func (c *counter) effects() int { return int(c.n.Load()) }

const event = `{"id":"evt_1","type":"invoice.paid"}`

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

func wantRule(t testing.TB, err error, want receive.Rule) {
	t.Helper()
	config, ok := errors.AsType[*receive.ConfigError](err)
	if !ok {
		t.Errorf("started, or failed otherwise: %v", err)
		return
	}
	for _, p := range config.Problems {
		if p.Rule == want {
			return
		}
	}
	t.Errorf("the problems are %v, want %s", config.Problems, want)
}

func TestScenario13_clockSkew(t *testing.T) {
	store := receivetest.NewStore()
	var c counter
	s, src, obs := svixSync(t, store, c.handle)
	for _, v := range []struct {
		off    time.Duration
		reason signature.Reason
	}{{-300 * time.Second, ""}, {-302 * time.Second, signature.TooOld}, {299 * time.Second, ""}, {302 * time.Second, signature.TooNew}} {
		res := receivetest.Do(s, receivetest.RequestAt(t, src, fmt.Sprintf(`{"off":%d}`, v.off), time.Now().Add(v.off)))
		if (res.StatusCode == 200) != (v.reason == "") {
			t.Errorf("%v off: %d", v.off, res.StatusCode)
		}
		if v.reason != "" && obs.last(receive.Rejected).Reason != string(v.reason) {
			t.Errorf("%v off: reason %q", v.off, obs.last(receive.Rejected).Reason)
		}
	}
	skew := obs.last(receive.Processed).Skew
	if skew < 290*time.Second || skew > 300*time.Second {
		t.Errorf("skew %v, of a request 299 s ahead", skew)
	}
}

// The order guard itself is the stores'; here is what it is asked with.
func TestScenario14_outOfOrderVersions(t *testing.T) {
	updated, deleted := receive.Version{At: 100, Tie: "evt_b"}, receive.Version{At: 101, Tie: "evt_a"}
	if updated.After(deleted) || !deleted.After(updated) {
		t.Error("the later one is not after the earlier one")
	}
	a, b := receive.Version{At: 100, Tie: "evt_a"}, receive.Version{At: 100, Tie: "evt_b"}
	if !b.After(a) || a.After(b) || a.After(a) {
		t.Error("the tie does not decide, or not the same way for any order of arrival")
	}
}

func TestScenario15_hugeAndOddBodies(t *testing.T) {
	store := receivetest.NewStore()
	var bodies [][]byte
	in, src, obs := stripeInbox(t, store, func(_ context.Context, d *receive.Delivery) error {
		bodies = append(bodies, d.Body)
		return nil
	}, func(cfg *receive.InboxConfig) { cfg.Source.MaxBody = 1000 })
	signed := func(body string) *http.Request { return receivetest.Request(t, src, body) }

	wantCount(t, "a body at the limit", receivetest.Do(in, signed(strings.Repeat("x", 1000))).StatusCode, 200)
	wantCount(t, "one byte more", receivetest.Do(in, signed(strings.Repeat("x", 1001))).StatusCode, 413)
	chunked := signed(strings.Repeat("x", 1001))
	chunked.ContentLength = -1
	wantCount(t, "one byte more, in chunks", receivetest.Do(in, chunked).StatusCode, 413)
	endless := signed("{}")
	endless.ContentLength, endless.Body = -1, io.NopCloser(endlessly{})
	wantCount(t, "without an end", receivetest.Do(in, endless).StatusCode, 413)
	huge := signed("{}")
	huge.ContentLength = 1 << 60
	wantCount(t, "said to be huge", receivetest.Do(in, huge).StatusCode, 413)
	short := signed("{}")
	short.ContentLength = 500
	wantCount(t, "shorter than it says", receivetest.Do(in, short).StatusCode, 503)
	gzipped := signed("{}")
	gzipped.Header.Set("Content-Encoding", "gzip")
	wantCount(t, "encoded", receivetest.Do(in, gzipped).StatusCode, 401)
	wantCount(t, "stored of all those", store.Len(), 1)
	wantCount(t, "observed as too large", obs.count(receive.TooLarge), 4)

	odd := []string{"", "null", "{}", "\xff\xfe", "{\"a\":1}\r\n", `{ "score": 0.0, "n": 1E2, "m": 1.10 }`}
	for _, body := range odd {
		wantStatus(t, in, src, body, http.StatusOK)
	}
	receivetest.Drain(t, in)
	for i, body := range odd {
		if got := string(bodies[i+1]); got != body {
			t.Errorf("sent %q, handled %q", body, got)
		}
	}
}

type endlessly struct{}

func (endlessly) Read(p []byte) (int, error) { return len(p), nil }

func TestScenario16_invalidSignature(t *testing.T) {
	store := receivetest.NewStore()
	store.Fail("claim", 1000, errors.New("the store was asked"), true)
	var c counter
	s, src, obs := svixSync(t, store, c.handle)
	for says, change := range map[string]func(r *http.Request){
		"missing":   func(r *http.Request) { r.Header.Del("webhook-signature") },
		"malformed": func(r *http.Request) { r.Header.Set("webhook-signature", "v1,%%%") },
		"mismatch": func(r *http.Request) {
			r.Header.Set("webhook-signature", "v1,AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=")
		},
	} {
		r := receivetest.Request(t, src, event)
		change(r)
		res := receivetest.Do(s, r)
		body, err := io.ReadAll(res.Body)
		if res.StatusCode != http.StatusUnauthorized || len(body) != 0 || err != nil {
			t.Errorf("%s: %d %q %v", says, res.StatusCode, body, err)
		}
		o := obs.last(receive.Rejected)
		if o.Reason != says || o.Err == nil {
			t.Errorf("%s: reason %q, %v", says, o.Reason, o.Err)
		}
	}
	r := receivetest.Request(t, src, event)
	r.Body, r.ContentLength = io.NopCloser(strings.NewReader(strings.Replace(event, "1", "2", 1))), int64(len(event))
	wantCount(t, "a flipped byte", receivetest.Do(s, r).StatusCode, 401)
	wantCount(t, "events in the store", store.Len(), 0)
	_, err := receive.NewSync(t.Context(), receive.SyncConfig{
		Source: receive.Source{Name: "mail", Provider: providers.Svix(), Secrets: receive.Secrets("")}, Store: store, Handler: c.handle,
		Waive: []receive.Rule{receive.Secretless},
	})
	wantRule(t, err, receive.Secretless)
}

func TestScenario17_rotation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := receivetest.NewStore()
		var c counter
		old, next := signature.GenerateSecret(), signature.GenerateSecret()
		var src receive.Source
		s, src, _ := svixSync(t, store, c.handle, func(cfg *receive.SyncConfig) {
			cfg.Source.Secrets = []receive.Secret{{Value: next}, {Value: old, Until: time.Now().Add(time.Hour)}}
		})
		by := func(secret string) receive.Source {
			src := src
			src.Secrets = receive.Secrets(secret)
			return src
		}
		wantStatus(t, s, by(old), `{"n":1}`, 200)
		wantStatus(t, s, by(next), `{"n":2}`, 200)
		two := receivetest.Request(t, by(signature.GenerateSecret()), `{"n":3}`)
		good := receivetest.Request(t, by(next), `{"n":3}`)
		two.Header["Webhook-Signature"] = append(two.Header["Webhook-Signature"], good.Header["Webhook-Signature"]...)
		wantCount(t, "two lines", receivetest.Do(s, two).StatusCode, 200)
		time.Sleep(time.Hour)
		wantStatus(t, s, by(old), `{"n":4}`, 401)
		wantStatus(t, s, by(next), `{"n":4}`, 200)
	})
}

func TestScenario17_secretsThatAreFetched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		current, asked, broken := signature.GenerateSecret(), 0, false
		var c counter
		s, src, _ := svixSync(t, receivetest.NewStore(), c.handle, func(cfg *receive.SyncConfig) {
			cfg.Source.Secrets = nil
			cfg.Source.SecretsFunc = func(context.Context) ([]receive.Secret, error) {
				asked++
				if broken {
					return nil, errDown
				}
				return receive.Secrets(current), nil
			}
		})
		by := func() receive.Source {
			src := src
			src.Secrets = receive.Secrets(current)
			return src
		}
		wantStatus(t, s, by(), `{"n":1}`, 200)
		wantStatus(t, s, by(), `{"n":2}`, 200)
		wantCount(t, "asked for two requests", asked, 1)
		time.Sleep(10 * time.Second)
		current = signature.GenerateSecret()
		wantStatus(t, s, by(), `{"n":3}`, 200) // nothing fitted, so it was asked again
		wantCount(t, "asked after the rotation", asked, 2)
		broken = true
		time.Sleep(time.Hour)
		for i := range 3 {
			wantStatus(t, s, by(), fmt.Sprintf(`{"m":%d}`, i), 200) // the last known are better than none
		}
		wantCount(t, "asked while it is down", asked, 3)
	})
}

func TestScenario18_identitySpoofing(t *testing.T) {
	store := receivetest.NewStore()
	var ids []string
	s, src, _ := svixSync(t, store, func(_ context.Context, d *receive.Delivery) error {
		ids = append(ids, d.ID)
		return nil
	})
	r := receivetest.Request(t, src, event)
	r.Header.Set("svix-id", "msg_of_another")
	receivetest.Do(s, r)
	if len(ids) != 1 || ids[0] != r.Header.Get("webhook-id") {
		t.Errorf("ids %v, signed %q", ids, r.Header.Get("webhook-id"))
	}

	// GitHub's id is not signed: an old body under an id that somebody guesses must not make the
	// real event a repeat.
	var bodies []string
	hub := receivetest.NewSource(t, "ci", providers.GitHub())
	in, err := receive.NewInbox(t.Context(), receive.InboxConfig{Source: hub, Store: receivetest.NewStore(), RunElsewhere: true, Handler: func(_ context.Context, d *receive.Delivery) error {
		bodies = append(bodies, string(d.Body))
		if d.IDSigned {
			t.Error("the id is said to be signed")
		}
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	for _, body := range []string{`{"old":1}`, `{"real":1}`, `{"real":1}`} {
		r := receivetest.Request(t, hub, body)
		r.Header.Set("X-GitHub-Delivery", "guessed")
		receivetest.Do(in, r)
	}
	receivetest.Drain(t, in)
	if len(bodies) != 2 || bodies[1] != `{"real":1}` {
		t.Errorf("handled %v", bodies)
	}
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

func TestScenario20_fingerprintMismatch(t *testing.T) {
	store := receivetest.NewStore()
	var c counter
	in, src, obs := stripeInbox(t, store, c.handle, func(cfg *receive.InboxConfig) {
		cfg.Source.Provider.Fingerprint = func(body []byte) []byte {
			before, _, _ := strings.Cut(string(body), `,"attempt"`)
			return []byte(before)
		}
	})
	wantStatus(t, in, src, `{"id":"evt_1","amount":1,"attempt":1}`, 200)
	wantStatus(t, in, src, `{"id":"evt_1","amount":1,"attempt":2}`, 200)
	wantCount(t, "other bodies after what may differ", obs.count(receive.OtherBody), 0)
	wantStatus(t, in, src, `{"id":"evt_1","amount":9,"attempt":3}`, 200)
	wantCount(t, "other bodies", obs.count(receive.OtherBody), 1)
	receivetest.Drain(t, in)
	wantCount(t, "effects", c.effects(), 1)
}

func TestScenario20_batches(t *testing.T) {
	store := receivetest.NewStore()
	src := receivetest.NewSource(t, "mailevents", providers.SendGrid())
	ran := map[string]int{}
	fail := "b"
	handler := func(_ context.Context, d *receive.Delivery) error {
		ran[d.ID]++
		if d.Of != 3 || d.Topic != "open" {
			t.Errorf("%s: %d of %d, topic %q", d.ID, d.Index, d.Of, d.Topic)
		}
		if d.ID == fail {
			return errors.New("not now")
		}
		return nil
	}
	s, err := receive.NewSync(t.Context(), receive.SyncConfig{Source: src, Store: store, Handler: handler})
	if err != nil {
		t.Fatal(err)
	}
	batch := `[{"sg_event_id":"a","event":"open"}, {"sg_event_id":"b","event":"open"} ,{"sg_event_id":"c","event":"open"}]` + "\r\n"
	wantStatus(t, s, src, batch, http.StatusServiceUnavailable)
	fail = ""
	wantStatus(t, s, src, batch, http.StatusOK)
	wantStatus(t, s, src, batch, http.StatusOK)
	if want := map[string]int{"a": 1, "b": 2, "c": 1}; !maps.Equal(ran, want) {
		t.Errorf("runs %v, want %v", ran, want)
	}
}
