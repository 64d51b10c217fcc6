package receivetest

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
	"time"

	"github.com/waybill-dev/waybill/receive"
	"github.com/waybill-dev/waybill/receive/providers"
	"github.com/waybill-dev/waybill/signature"
)

const stageEvent = `{"id":"evt_1","type":"invoice.paid"}`

var (
	errLate    = errors.New("failed at last")
	errRefused = errors.New("connection refused")
)

func syncCrashAfterClaim(s *stage) {
	entered, hang := make(chan struct{}), make(chan struct{})
	died, src := s.sync(patient(), func(context.Context, *receive.Delivery) error {
		close(entered)
		<-hang
		return errors.New("this process is dead")
	})
	next, _ := s.sync(patient(), s.effects.handle, func(c *receive.SyncConfig) { c.Source = src })
	go Post(s, died, src, stageEvent)
	await(s, "the first run", entered)
	s.crash()

	s.Advance(5 * time.Second)
	res := s.want(next, src, stageEvent, http.StatusServiceUnavailable)
	left := (stageLease - 5*time.Second).Seconds()
	if after, err := strconv.ParseFloat(res.Header.Get("Retry-After"), 64); err != nil || after < 1 || after > left {
		s.Errorf("Retry-After %q, with at most %v s of the lease left", res.Header.Get("Retry-After"), left)
	}
	s.count("effects while the lease lasts", s.effects.n(), 0)
	s.Advance(stageLease)
	s.want(next, src, stageEvent, http.StatusOK)
	s.count("effects", s.effects.n(), 1)
	s.count("takeovers", s.seen.of(receive.Takeover), 1)
	close(hang)
	s.settled(died)
	s.want(next, src, stageEvent, http.StatusOK)
	s.count("effects in the end", s.effects.n(), 1)
}

func syncCrashAfterEffect(s *stage) {
	first := true
	dying := func(h receive.Handler) receive.Handler {
		return func(ctx context.Context, d *receive.Delivery) error {
			err := h(ctx, d)
			if first {
				first = false
				s.crash()
				return errors.New("this process is dead")
			}
			return err
		}
	}
	r, src := s.sync(patient(), dying(s.effects.handle))
	Post(s, r, src, stageEvent) // to nobody
	s.Advance(stageLease + time.Second)
	s.want(r, src, stageEvent, http.StatusOK)
	if runs := s.effects.runs; len(runs) != 2 || runs[1] != 2 {
		s.Errorf("runs %v: the second must be there, and know that it is", runs)
	}
	s.want(r, src, stageEvent, http.StatusOK)
	s.count("runs in the end", s.effects.n(), 2)

	if s.Tx == nil {
		return
	}
	first = true
	r, src = s.sync(patient(), dying(s.Tx))
	const second = `{"id":"evt_2"}`
	Post(s, r, src, second)
	s.want(r, src, second, http.StatusOK)
	s.count("effects in the event's own transaction", s.Effects(), 1)
}

func syncAnswerLost(s *stage) {
	r, src := s.sync(patient(), s.effects.handle)
	Post(s, r, src, stageEvent) // the answer gets lost
	s.want(r, src, stageEvent, http.StatusOK)
	s.count("effects", s.effects.n(), 1)
	s.count("duplicates", s.seen.of(receive.Duplicate), 1)
}

func syncFailureAfterHangUp(s *stage) {
	entered, fail := make(chan struct{}), make(chan struct{})
	var cause error
	r, src := s.sync(patient(), func(ctx context.Context, d *receive.Delivery) error {
		if d.Run > 1 {
			return s.effects.handle(ctx, d)
		}
		close(entered)
		<-fail
		cause = context.Cause(ctx)
		return errors.New("caught")
	})
	ctx, hangUp := context.WithCancel(s.Context())
	request := Request(s, src, stageEvent).WithContext(ctx)
	go Do(r, request)
	await(s, "the first run", entered)
	hangUp()
	s.want(r, src, stageEvent, http.StatusServiceUnavailable)
	close(fail)
	s.settled(r)
	if cause != nil {
		s.Errorf("the handler's context ended with the connection: %v", cause)
	}
	s.want(r, src, stageEvent, http.StatusOK)
	s.count("effects", s.effects.n(), 1)
}

// syncOvertaken is about A, which stalls beyond its lease, B, which takes over, and C, which comes
// while B runs and must not be let in, whatever A says then.
func syncOvertaken(s *stage, end error) {
	a, b := make(chan struct{}), make(chan struct{})
	entered := make(chan int, 3)
	r, src := s.sync(patient(), func(ctx context.Context, d *receive.Delivery) error {
		entered <- d.Run
		if d.Run == 1 {
			<-a
			return end
		}
		<-b
		return s.effects.handle(ctx, d)
	})
	var group sync.WaitGroup
	group.Go(func() { Post(s, r, src, stageEvent) })
	await(s, "A", entered)
	s.Advance(stageLease + time.Second)
	group.Go(func() { s.want(r, src, stageEvent, http.StatusOK) })
	await(s, "B", entered)
	close(a)
	s.until("A's settlement is refused", func() bool { return s.seen.of(receive.ReleaseFailed)+s.seen.of(receive.ConfirmFailed) == 1 })
	s.want(r, src, stageEvent, http.StatusServiceUnavailable)
	close(b)
	group.Wait()
	s.want(r, src, stageEvent, http.StatusOK)
	s.count("effects", s.effects.n(), 1)
	s.count("runs besides", len(entered), 0)
	if end == nil && s.Tx != nil {
		syncOvertakenTx(s)
	}
}

// syncOvertakenTx: in the event's own transaction the overtaken run has no effect.
func syncOvertakenTx(s *stage) {
	a, entered := make(chan struct{}), make(chan struct{})
	r, src := s.sync(patient(), func(ctx context.Context, d *receive.Delivery) error {
		if d.Run == 1 {
			close(entered)
			<-a
		}
		return s.Tx(ctx, d)
	})
	const second = `{"id":"evt_2"}`
	var group sync.WaitGroup
	group.Go(func() { s.want(r, src, second, http.StatusServiceUnavailable) }) // A is told no success
	await(s, "A", entered)
	s.Advance(stageLease + time.Second)
	s.want(r, src, second, http.StatusOK)
	close(a)
	group.Wait()
	s.count("effects in the event's own transaction", s.Effects(), 1)
	s.count("runs that were told so", s.seen.of(receive.LeaseLost), 1)
}

func syncIgnoresContext(s *stage) {
	entered, hang := make(chan struct{}, 1), make(chan struct{})
	r, src := s.sync(patient(), func(ctx context.Context, d *receive.Delivery) error {
		entered <- struct{}{}
		<-hang
		return s.effects.handle(ctx, d)
	}, func(c *receive.SyncConfig) {
		c.Deadline, c.Grace, c.StoreBudget = 200*time.Millisecond, 100*time.Millisecond, stageLease
	})
	// On a slow machine the deadline is over before the handler could be called; then it is not.
	s.until("the handler is called", func() bool {
		s.want(r, src, stageEvent, http.StatusServiceUnavailable)
		return len(entered) == 1
	})
	s.want(r, src, stageEvent, http.StatusServiceUnavailable) // it still runs
	s.count("effects while it runs", s.effects.n(), 0)
	close(hang)
	s.settled(r)
	s.want(r, src, stageEvent, http.StatusOK)
	s.count("effects", s.effects.n(), 1)
}

func syncHundred(s *stage) {
	for i, wait := range []time.Duration{-1, stagePatience} {
		body := fmt.Sprintf(`{"id":"evt_%d"}`, i)
		var runs, arrived, early, inFlight, success atomic.Int64
		var done atomic.Bool
		release := make(chan struct{})
		r, src := s.sync(patient(), func(context.Context, *receive.Delivery) error {
			runs.Add(1)
			<-release
			done.Store(true)
			return nil
		}, func(c *receive.SyncConfig) { c.Wait = wait })
		start := make(chan struct{})
		var group sync.WaitGroup
		for range 100 {
			request := Request(s, src, body)
			group.Go(func() {
				<-start
				arrived.Add(1)
				switch res := Do(r, request); {
				case res.StatusCode == http.StatusOK && !done.Load():
					early.Add(1)
				case res.StatusCode == http.StatusOK:
					success.Add(1)
				case res.StatusCode == http.StatusServiceUnavailable:
					inFlight.Add(1)
				}
			})
		}
		close(start)
		s.until("all are there", func() bool {
			return arrived.Load() == 100 && runs.Load() > 0 && (wait > 0 || inFlight.Load() == 99)
		})
		close(release)
		group.Wait()
		s.count("runs", int(runs.Load()), 1)
		s.count("answered 2xx before the winner was done", int(early.Load()), 0)
		if wait < 0 {
			s.count("answered in flight", int(inFlight.Load()), 99)
		} else {
			s.count("answered 2xx after it", int(success.Load()), 100)
		}
	}
}

func syncStoreDown(s *stage) {
	other := NewStore()
	for _, c := range []struct {
		name                   string
		policy                 receive.StoreDown
		status, effects, again int
		degraded               string
	}{
		{"closed", receive.Closed, 503, 0, 0, ""},
		{"open", receive.Open, 200, 1, 2, "store_down"},
		{"fallback", receive.Fallback(other), 200, 1, 1, ""},
	} {
		s.fail("claim", 1000, errRefused, false)
		s.fail("settle", 1000, errRefused, false)
		effects, degraded := 0, ""
		r, src := s.sync(patient(), func(_ context.Context, d *receive.Delivery) error {
			effects++
			degraded = d.Degraded
			return nil
		}, func(cfg *receive.SyncConfig) { cfg.StoreDown = c.policy })
		body := fmt.Sprintf(`{"id":%q}`, c.name)
		s.want(r, src, body, c.status)
		s.count(c.name+": effects", effects, c.effects)
		if degraded != c.degraded {
			s.Errorf("%s: Degraded %q, want %q", c.name, degraded, c.degraded)
		}
		s.want(r, src, body, c.status)
		s.count(c.name+": effects after the second", effects, c.again)
		s.settled(r)
		s.mend()
		if c.name == "closed" { // the provider's retry, once it is back
			s.want(r, src, body, http.StatusOK)
			s.want(r, src, body, http.StatusOK)
			s.count("effects in the end", effects, 1)
		}
	}
}

func syncNotHeard(s *stage) {
	r, src := s.sync(patient(), s.effects.handle)
	s.fail("claim", 1, context.DeadlineExceeded, true)
	s.want(r, src, stageEvent, http.StatusOK) // asked again with its own token
	s.count("effects", s.effects.n(), 1)

	const second = `{"id":"evt_2"}`
	s.fail("claim", 2, context.DeadlineExceeded, true)
	s.want(r, src, second, http.StatusServiceUnavailable)
	s.settled(r) // the ghost is given back
	s.want(r, src, second, http.StatusOK)
	s.count("effects", s.effects.n(), 2)

	const third = `{"id":"evt_3"}`
	hurried, _ := s.sync(patient(), s.effects.handle, func(c *receive.SyncConfig) { c.Source, c.StoreBudget = src, 100*time.Millisecond })
	s.delay("claim", 2)
	s.want(hurried, src, third, http.StatusServiceUnavailable)
	if got := s.seen.last(receive.Failed).Reason; got != "store_slow" {
		s.Errorf("reason %q", got)
	}
	s.settled(hurried)
	s.want(r, src, third, http.StatusOK)
	s.count("effects", s.effects.n(), 3)
}

func syncConfirmFails(s *stage) {
	r, src := s.sync(patient(), s.effects.handle)
	s.fail("settle", 3, errRefused, false)
	s.want(r, src, stageEvent, http.StatusOK)
	s.count("confirms that failed", s.seen.of(receive.ConfirmFailed), 1)
	s.want(r, src, stageEvent, http.StatusServiceUnavailable) // not released
	s.Advance(stageLease + time.Second)
	s.want(r, src, stageEvent, http.StatusOK)
	s.count("effects", s.effects.n(), 2)

	const second = `{"id":"evt_2"}`
	s.fail("settle", 1, errRefused, true) // recorded, and not heard
	s.want(r, src, second, http.StatusOK)
	s.want(r, src, second, http.StatusOK)
	s.count("effects", s.effects.n(), 3)
}

func syncWiped(s *stage) {
	if s.Wipe == nil {
		return
	}
	r, src := s.sync(patient(), s.effects.handle)
	s.want(r, src, stageEvent, http.StatusOK)
	s.Wipe()
	s.want(r, src, stageEvent, http.StatusOK) // it repeats, and is not lost
	s.count("effects", s.effects.n(), 2)
	s.want(r, src, stageEvent, http.StatusOK)
	s.count("effects in the end", s.effects.n(), 2)
}

// syncSkew: how the signed time is judged has nothing to do with the store's clock, which is ahead.
func syncSkew(s *stage) {
	r, src := s.sync(patient(), s.effects.handle)
	s.Advance(10 * time.Minute)
	for i, v := range []struct {
		off    time.Duration
		reason signature.Reason
	}{{-240 * time.Second, ""}, {-330 * time.Second, signature.TooOld}, {240 * time.Second, ""}, {360 * time.Second, signature.TooNew}} {
		res := Do(r, RequestAt(s, src, fmt.Sprintf(`{"n":%d}`, i), time.Now().Add(v.off)))
		if (res.StatusCode == 200) != (v.reason == "") {
			s.Errorf("%v off: %d", v.off, res.StatusCode)
		}
		if v.reason != "" && s.seen.last(receive.Rejected).Reason != string(v.reason) {
			s.Errorf("%v off: reason %q", v.off, s.seen.last(receive.Rejected).Reason)
		}
	}
	s.count("effects", s.effects.n(), 2)
}

// outOfOrder: in every order of arrival the newest version wins, and of two of one second the tie.
func outOfOrder(s *stage) {
	if s.Newer == nil {
		return
	}
	versions := []receive.Version{{At: 100, Tie: "evt_b"}, {At: 101, Tie: "evt_a"}, {At: 101, Tie: "evt_c"}}
	for n, order := range [][]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}} {
		object, applied := fmt.Sprint("sub_", n), receive.Version{}
		for _, i := range order {
			if v := versions[i]; s.Newer(object, v) {
				applied = v
			}
		}
		if applied != versions[2] {
			s.Errorf("in order %v the state in the end is of %+v", order, applied)
		}
	}
}

func syncBodies(s *stage) {
	r, src := s.sync(patient(), s.effects.handle, func(c *receive.SyncConfig) { c.Source.MaxBody = 1000 })
	before := s.calls.Load()
	for _, length := range []int64{-1, 1001, 1 << 60} {
		large := Request(s, src, strings.Repeat("x", 1001))
		large.ContentLength = length
		s.count(fmt.Sprint("too large, said to be ", length), Do(r, large).StatusCode, 413)
	}
	gzipped := Request(s, src, "{}")
	gzipped.Header.Set("Content-Encoding", "gzip")
	s.count("encoded", Do(r, gzipped).StatusCode, 401)
	s.count("calls of the store", int(s.calls.Load()-before), 0)
	for _, body := range oddBodies {
		s.want(r, src, body, http.StatusOK)
		s.want(r, src, body, http.StatusOK)
	}
	s.bodies(oddBodies)
}

var oddBodies = []string{"", "null", "{}", "\xff\xfe", "{\"a\":1}\r\n", `{ "score": 0.0, "n": 1E2, "m": 1.10 }`, strings.Repeat("x", 1000)}

// bodies compares what was handled.
func (s *stage) bodies(want []string) {
	s.Helper()
	if len(s.effects.body) != len(want) {
		s.Fatalf("%d bodies were handled, want %d", len(s.effects.body), len(want))
	}
	for i := range want {
		if s.effects.body[i] != want[i] {
			s.Errorf("sent %q, handled %q", want[i], s.effects.body[i])
		}
	}
}

func syncForged(s *stage) {
	r, src := s.sync(patient(), s.effects.handle)
	s.forged(r, src)
}

// forged sends what does not verify.
func (s *stage) forged(h http.Handler, src receive.Source) {
	before := s.calls.Load()
	name := src.Provider.Scheme.Headers()
	for what, change := range map[string]func(*http.Request){
		"without a signature": func(r *http.Request) {
			for _, n := range name {
				r.Header.Del(n)
			}
		},
		"with another's": func(r *http.Request) {
			*r = *Request(s, NewSource(s, src.Name, src.Provider), stageEvent)
		},
		"with a flipped byte": func(r *http.Request) {
			r.Body = io.NopCloser(strings.NewReader(strings.Replace(stageEvent, "1", "2", 1)))
		},
	} {
		request := Request(s, src, stageEvent)
		change(request)
		res := Do(h, request)
		if body, err := io.ReadAll(res.Body); res.StatusCode != http.StatusUnauthorized || len(body) > 0 || err != nil {
			s.Errorf("%s: %d %q %v", what, res.StatusCode, body, err)
		}
	}
	s.count("calls of the store", int(s.calls.Load()-before), 0)
	s.count("effects", s.effects.n(), 0)
	s.want(h, src, stageEvent, http.StatusOK) // whose place nothing took
}

func syncRotation(s *stage) {
	old, ended, next := signature.GenerateSecret(), signature.GenerateSecret(), signature.GenerateSecret()
	r, src := s.sync(patient(), s.effects.handle, func(c *receive.SyncConfig) {
		c.Source.Secrets = []receive.Secret{{Value: next}, {Value: old, Until: time.Now().Add(time.Hour)}, {Value: ended, Until: time.Now().Add(-time.Second)}}
	})
	by := func(secret string) receive.Source {
		src := src
		src.Secrets = receive.Secrets(secret)
		return src
	}
	s.want(r, by(old), `{"n":1}`, 200)
	s.want(r, by(next), `{"n":1}`, 200) // the same event, and signed anew
	s.want(r, by(next), `{"n":2}`, 200)
	s.want(r, by(ended), `{"n":3}`, 401)
	s.count("effects", s.effects.n(), 2)
}

func syncSpoofed(s *stage) {
	r, src := s.sync(patient(), s.effects.handle)
	request := Request(s, src, stageEvent)
	request.Header.Set("svix-id", "msg_of_another")
	Do(r, request)
	if ids := s.effects.ids; len(ids) != 1 || ids[0] != request.Header.Get("webhook-id") {
		s.Errorf("ids %v, signed %q", ids, request.Header.Get("webhook-id"))
	}
	// Shopify's id is not signed: an old body under an id that somebody guesses must not make the
	// real event a repeat.
	p := providers.Shopify()
	p.Timeout = 5 * time.Minute
	shop, hub := s.sync(p, s.effects.handle)
	s.guessed(shop, hub, "X-Shopify-Event-Id")
	s.count("effects", s.effects.n(), 3)
	// The same id at two addresses is two events.
	for _, name := range []string{"one", "two"} {
		r, _ := s.sync(patient(), s.effects.handle, func(c *receive.SyncConfig) { src.Name = name; c.Source = src })
		s.want(r, src, `{"n":1}`, http.StatusOK)
	}
	s.count("effects", s.effects.n(), 5)
}

func (s *stage) guessed(h http.Handler, src receive.Source, header string) {
	for _, body := range []string{`{"old":1}`, `{"real":1}`, `{"real":1}`} {
		request := Request(s, src, body)
		request.Header.Set(header, "guessed")
		s.count(body, Do(h, request).StatusCode, http.StatusOK)
	}
}

func syncHorizon(s *stage) {
	const keep = 200 * time.Hour
	r, src := s.sync(patient(), s.effects.handle, func(c *receive.SyncConfig) { c.Retain = keep })
	s.want(r, src, stageEvent, http.StatusOK)
	s.Advance(27*time.Hour + 35*time.Minute) // Svix's last attempt
	s.want(r, src, stageEvent, http.StatusOK)
	s.Advance(keep - 28*time.Hour)
	s.want(r, src, stageEvent, http.StatusOK)
	s.count("effects within what is remembered", s.effects.n(), 1)
	if age := s.seen.lastEvent(receive.Duplicate).Age; age < 199*time.Hour || age > keep {
		s.Errorf("the repeat came %v after the event", age)
	}
	s.Advance(2 * time.Hour)
	s.want(r, src, stageEvent, http.StatusOK)
	s.count("effects after it", s.effects.n(), 2)
}

func syncBatch(s *stage) {
	// Another body under one id is told, and the first one counts.
	r, src := s.sync(stripe(), s.effects.handle)
	s.want(r, src, `{"id":"evt_1","amount":1}`, 200)
	s.want(r, src, `{"id":"evt_1","amount":9}`, 200)
	s.count("other bodies", s.seen.of(receive.OtherBody), 1)
	s.count("effects", s.effects.n(), 1)

	p := providers.SendGrid()
	p.Timeout = 5 * time.Minute
	ran, fail := map[string]int{}, "b"
	mail, hub := s.sync(p, func(_ context.Context, d *receive.Delivery) error {
		ran[d.ID]++
		if d.ID == fail {
			return errors.New("not now")
		}
		return nil
	})
	s.want(mail, hub, batch, http.StatusServiceUnavailable)
	fail = ""
	s.want(mail, hub, batch, http.StatusOK)
	s.want(mail, hub, batch, http.StatusOK)
	if want := map[string]int{"a": 1, "b": 2, "c": 1}; !maps.Equal(ran, want) {
		s.Errorf("runs %v, want %v", ran, want)
	}
}

const batch = `[{"sg_event_id":"a","event":"open"}, {"sg_event_id":"b","event":"open"} ,{"sg_event_id":"c","event":"open"}]` + "\r\n"

// stripe is Stripe with patience.
func stripe() receive.Provider {
	p := providers.Stripe()
	p.Timeout, p.Guessed = 5*time.Minute, false
	return p
}
