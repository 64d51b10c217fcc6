package receive_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waybill-dev/waybill/receive"
	"github.com/waybill-dev/waybill/receive/internal/row"
	"github.com/waybill-dev/waybill/signature"
)

// The play: one event, one provider, two processes, in a synctest bubble. The provider retries
// quickly, sometimes twice at once, and then beyond the lease. At every step the process may crash
// or be paused for up to three leases; every store call may be late, applied with its answer lost,
// or lost; handlers succeed, fail, fail for good, overrun, ignore their context, or hang. After 20
// seconds the faults stop. What runs is the real Inbox and the real Sync.
const (
	playDeadline = 2 * time.Second
	playGrace    = 500 * time.Millisecond
	playBudget   = 250 * time.Millisecond
	playTimeout  = 3 * time.Second // the provider's
	playQuiet    = 20 * time.Second
	playLease    = playDeadline + playGrace + playBudget
)

// mode is one way to configure the receiver, and what is broken in it on purpose.
type mode struct {
	inbox     bool
	tx        bool // the handler's effects and its confirm are in one transaction
	policy    string
	permanent bool // handlers sometimes fail for good
	elsewhere bool // dead letters are in another store than the claims
	poison    bool // the event kills every process that handles it
	worker    bool // Inbox: somebody runs it
	renewed   bool // Inbox: the lease is shorter than the deadline
	finite    []time.Duration
	finiteSet bool

	breaks func(*receive.Breaks)
	broken brokenStore
}

// brokenStore switches off rules that are the store's to keep.
type brokenStore struct {
	noLease, lockedIsSlow                        bool
	releaseByKey, releaseAnyState, degradedByKey bool
	releaseDeletes, prunes, countedAtFailure     bool
	volatile                                     bool
	autocommit, confirmUnfenced, confirmReads    bool
	degradedSkips, unansweredCommit              bool
}

// history is one of them.
type history struct {
	t      testing.TB
	mode   mode
	start  time.Time
	over   chan struct{}
	st, s2 *playStore

	mu      sync.Mutex
	rng     *rand.Rand
	downs   [][2]time.Duration
	crashP  float64
	pauseP  float64
	procs   [2]*process
	effects int
	runs    []*playRun
	acked   bool
	gaveUp  bool
	wrong   map[string]string
	dead    sync.WaitGroup // what must end before the bubble does
}

type playRun struct {
	token    receive.Token
	granted  bool
	store    *playStore
	until    time.Time // its lease's end, by the store
	deadline time.Time
	ended    bool
	p        *process
}

func (h *history) ms(from, to int64) time.Duration {
	return time.Duration(from+h.rng.Int64N(to-from)) * time.Millisecond
}
func (h *history) chance(p float64) bool { return h.rng.Float64() < p }
func (h *history) chaos() bool           { return time.Since(h.start) < playQuiet }

func (h *history) bad(what, format string, args ...any) {
	if _, known := h.wrong[what]; !known {
		h.wrong[what] = fmt.Sprintf("%v: ", time.Since(h.start)) + fmt.Sprintf(format, args...)
	}
}

// locked is for the few values that are drawn outside the lock.
func locked[T any](h *history, f func() T) T {
	h.mu.Lock()
	defer h.mu.Unlock()
	return f()
}

func (h *history) effect() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.effects++
}

// durable reports whether the event cannot be lost any more.
func (h *history) durable() bool {
	if h.effects > 0 || h.st.letter || h.s2.letter || h.st.row.State == receive.Dead || h.s2.row.State == receive.Dead {
		return true
	}
	return h.mode.inbox && (h.st.record != nil && !h.st.unsync || h.s2.record != nil)
}

// finished reports whether nothing is left to be done.
func (h *history) finished() bool {
	if !h.acked && !h.gaveUp {
		return false
	}
	for _, s := range []*playStore{h.st, h.s2} {
		if h.mode.inbox && s.record != nil && s.row.State != receive.Done && s.row.State != receive.Dead {
			return false
		}
	}
	return true
}

// begin records a run, and complains about one that must not be.
func (h *history) begin(d *receive.Delivery, s *playStore, until time.Time, p *process) *playRun {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	c := d.Claim()
	r := &playRun{token: c.Token, granted: c.Granted, store: s, until: s.row.Until, deadline: until, p: p}
	if h.mode.renewed {
		r.deadline = s.row.Until
	}
	for _, o := range h.runs {
		if !o.ended && o.granted && r.granted && o.store == r.store && (o.until.After(now) || o.deadline.After(now)) {
			h.bad("overlap", "run %s began within the lease or deadline of %s", r.token, o.token)
		}
	}
	if r.granted && s.row.State == receive.Done {
		h.bad("run-after-done", "run %s", r.token)
	}
	h.runs = append(h.runs, r)
	return r
}

// process is one of two that serve the source. After a crash it is replaced by another.
type process struct {
	h       *history
	id      int
	up      bool
	gone    chan struct{}
	handler http.Handler
	stop    context.CancelFunc
	onEnd   []func()
}

func (h *history) boot(t testing.TB, id int) {
	p := &process{h: h, id: id, up: true, gone: make(chan struct{})}
	ctx, stop := context.WithCancel(t.Context())
	p.stop = stop
	src := receive.Source{
		Name: "play", Secrets: receive.Secrets("x"),
		Provider: receive.Provider{Name: "play", Scheme: trusting{}, Timeout: playTimeout, Retries: []time.Duration{time.Minute, time.Minute}},
	}
	main, other := storeOf{h.st, p}, storeOf{h.s2, p}
	waive := []receive.Rule{receive.NoID, receive.NoRetries, receive.LeaseTooLong}
	if h.mode.inbox {
		cfg := receive.InboxConfig{
			Source: src, Store: main, Handler: p.handle, Deadline: playDeadline, Grace: playGrace, StoreBudget: playBudget,
			Workers: 4, Poll: 2 * time.Second, RunElsewhere: !h.mode.worker, Waive: waive,
			Retry: receive.Retry{First: 100 * time.Millisecond, Max: time.Second, Window: 1000 * time.Hour, Crashes: 1 << 30},
		}
		if h.mode.poison {
			cfg.Retry.Crashes = 3
		}
		if h.mode.policy == "fallback" {
			cfg.Fallback = other
		}
		in, err := receive.NewInbox(ctx, cfg)
		if err != nil {
			panic(err)
		}
		if h.mode.breaks != nil {
			in.Break(h.mode.breaks)
		}
		if h.mode.renewed {
			in.SetLease(900 * time.Millisecond)
		}
		p.handler = in
		if h.mode.worker {
			h.dead.Go(func() { _ = in.Run(ctx) })
		}
	} else {
		cfg := receive.SyncConfig{
			Source: src, Store: main, Handler: p.handle, Deadline: playDeadline, Grace: playGrace, StoreBudget: playBudget,
			Wait: playTimeout - 400*time.Millisecond, Waive: waive,
		}
		switch h.mode.policy {
		case "open":
			cfg.StoreDown = receive.Open
		case "fallback":
			cfg.StoreDown = receive.Fallback(other)
		}
		if h.mode.elsewhere {
			cfg.Store, cfg.DeadLetters = claimsOnly{main}, other
		}
		s, err := receive.NewSync(ctx, cfg)
		if err != nil {
			panic(err)
		}
		if h.mode.breaks != nil {
			s.Break(h.mode.breaks)
		}
		p.handler = s
		h.dead.Go(func() {
			<-h.over
			_ = s.Shutdown(context.Background())
		})
	}
	h.procs[id] = p
}

// crash ends the process on this line. What still runs of it reaches nothing any more.
func (p *process) crash() {
	if !p.up {
		return
	}
	h := p.h
	p.up = false
	close(p.gone)
	p.stop()
	for _, f := range p.onEnd {
		f()
	}
	for _, r := range h.runs {
		r.ended = r.ended || r.p == p
	}
	time.AfterFunc(h.ms(100, 4000), func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		select {
		case <-h.over:
		default:
			h.boot(h.t, p.id)
		}
	})
}

// atEnd calls f, under the history's lock, when the process crashes.
func (p *process) atEnd(f func()) {
	p.h.mu.Lock()
	defer p.h.mu.Unlock()
	p.onEnd = append(p.onEnd, f)
}

// step is a place where anything can happen. False: the process is gone.
func (p *process) step() bool {
	h := p.h
	h.mu.Lock()
	pause := time.Duration(0)
	if p.up && h.chaos() {
		if h.chance(h.crashP) {
			p.crash()
		} else if h.chance(h.pauseP) {
			pause = h.ms(1, 3*playLease.Milliseconds())
		}
	}
	up := p.up
	h.mu.Unlock()
	if !up || pause == 0 {
		return up
	}
	time.Sleep(pause)
	return locked(h, func() bool { return p.up })
}

var errPlay = errors.New("play: the handler fails")

// handle is the user's code.
func (p *process) handle(ctx context.Context, d *receive.Delivery) error {
	h := p.h
	s := h.st
	if locked(h, func() bool { return h.s2.row.Token == d.Claim().Token }) {
		s = h.s2
	}
	until, _ := ctx.Deadline()
	r := h.begin(d, s, until, p)
	defer func() { locked(h, func() bool { r.ended = true; return true }) }()
	h.mu.Lock()
	dur, ignores, hangs := h.ms(20, 500), false, false
	var err error
	if h.chaos() {
		switch x := h.rng.Float64(); {
		case x < 0.20:
			dur = h.ms(500, playDeadline.Milliseconds()+400)
		case x < 0.30:
			dur, ignores = h.ms(playDeadline.Milliseconds(), 4*playLease.Milliseconds()), true
		case x < 0.33:
			hangs = true
		}
		switch x := h.rng.Float64(); {
		case x < 0.35:
			err = errPlay
		case x < 0.45 && h.mode.permanent:
			err = receive.Permanent(errPlay)
		}
	}
	if h.mode.poison {
		time.AfterFunc(h.ms(1, 50), func() {
			h.mu.Lock()
			defer h.mu.Unlock()
			p.crash()
		})
		hangs = true
	}
	seen := h.chance(0.5)
	cut := dur * time.Duration(h.rng.IntN(100)) / 100
	h.mu.Unlock()
	if hangs {
		<-h.over
		return errGone
	}
	if !p.work(ctx, cut, ignores) {
		return context.Cause(ctx)
	}
	if !p.step() {
		return errGone
	}
	if err == nil && !h.mode.tx {
		h.effect()
	}
	if !p.work(ctx, dur-cut, ignores) {
		return context.Cause(ctx)
	}
	if !p.step() {
		return errGone
	}
	if err == nil && h.mode.tx {
		return storeOf{s, p}.commit(ctx, d, seen)
	}
	return err
}

// work takes its time, unless ctx ends and the handler listens.
func (p *process) work(ctx context.Context, d time.Duration, ignores bool) bool {
	done := ctx.Done()
	if ignores {
		done = nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-done:
		return false
	case <-p.h.over:
		return true
	}
}

// attempt is one request of the provider's. It reports a 2xx.
func (h *history) attempt() bool {
	h.mu.Lock()
	p := h.procs[h.rng.IntN(len(h.procs))]
	if !p.up {
		d := h.ms(1, 10)
		h.mu.Unlock()
		time.Sleep(d)
		return false
	}
	h.mu.Unlock()
	ctx, hangUp := context.WithCancel(context.Background())
	defer hangUp()
	answered := make(chan int, 1)
	h.dead.Go(func() {
		if !p.step() {
			return
		}
		w := httptest.NewRecorder()
		p.handler.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodPost, "/", strings.NewReader("{}")))
		h.mu.Lock()
		defer h.mu.Unlock()
		select {
		case <-h.over:
			return
		default:
		}
		if !p.up {
			return
		}
		if w.Code/100 == 2 && !h.durable() {
			h.bad("2xx-early", "answered %d with nothing durable", w.Code)
		}
		if h.chaos() && h.chance(0.05) {
			return // the answer is lost
		}
		time.AfterFunc(h.ms(1, 5), func() { answered <- w.Code })
	})
	timeout := time.NewTimer(playTimeout)
	defer timeout.Stop()
	select {
	case code := <-answered:
		return code/100 == 2
	case <-p.gone:
	case <-timeout.C:
	case <-h.over:
	}
	return false
}

// provider tries until it is told 2xx, or gives up.
func (h *history) provider() {
	h.mu.Lock()
	gaps, tail := []time.Duration{h.ms(10, 800), h.ms(100, 2500), h.ms(500, 4000), h.ms(1000, 8000), h.ms(1000, 8000)}, 14
	h.mu.Unlock()
	if h.mode.finiteSet {
		gaps, tail = h.mode.finite, 0
	}
	for i := 0; ; i++ {
		twice := locked(h, func() bool { return h.chaos() && h.chance(0.25) })
		got := make(chan bool, 2)
		n := 1
		if twice { // a proxy repeats it, or two workers of the provider send it
			n = 2
		}
		for range n {
			h.dead.Go(func() { got <- h.attempt() })
		}
		acked := false
		for range n {
			acked = acked || <-got
		}
		h.mu.Lock()
		if acked {
			h.acked = true
			h.mu.Unlock()
			return
		}
		wait := time.Duration(0)
		switch {
		case i < len(gaps):
			wait = gaps[i]
		case i < len(gaps)+tail:
			wait = max(2*playLease, playQuiet-time.Since(h.start))
		default:
			h.gaveUp = true
			h.mu.Unlock()
			return
		}
		h.mu.Unlock()
		time.Sleep(wait)
	}
}

// play runs the history of a seed and returns what was wrong with it.
func play(t *testing.T, m mode, seed uint64) map[string]string {
	var h *history
	synctest.Test(t, func(t *testing.T) {
		h = &history{
			t: t, mode: m, start: time.Now(), over: make(chan struct{}), wrong: map[string]string{},
			rng: rand.New(rand.NewPCG(seed, 7)),
		}
		h.run()
	})
	return h.wrong
}

func (h *history) run() {
	h.mu.Lock()
	h.crashP = []float64{0, 0.01, 0.03, 0.08}[h.rng.IntN(4)]
	h.pauseP = []float64{0, 0.01, 0.04}[h.rng.IntN(3)]
	h.st = &playStore{h: h, flaky: h.chance(0.7)}
	h.s2 = &playStore{h: h, flaky: h.chance(0.3)}
	if h.chance(0.4) {
		from := h.ms(0, 15_000)
		h.downs = append(h.downs, [2]time.Duration{from, from + h.ms(200, 6000)})
	}
	if h.mode.broken.prunes {
		time.AfterFunc(h.ms(3000, 12_000), func() {
			h.mu.Lock()
			defer h.mu.Unlock()
			if h.st.record != nil && h.effects == 0 && h.st.lock == nil {
				h.st.row, h.st.record = row.Row{}, nil
			}
		})
	}
	for id := range h.procs {
		h.boot(h.t, id)
		for range h.rng.IntN(4) {
			if h.crashP > 0 {
				time.AfterFunc(h.ms(0, playQuiet.Milliseconds()), func() {
					h.mu.Lock()
					defer h.mu.Unlock()
					h.procs[id].crash()
				})
			}
		}
	}
	h.mu.Unlock()
	h.dead.Go(h.provider)
	for time.Since(h.start) < 400*time.Second {
		time.Sleep(time.Second)
		if time.Since(h.start) > playQuiet+8*time.Second && locked(h, h.finished) {
			break
		}
	}
	h.mu.Lock()
	h.verdict()
	close(h.over)
	for _, p := range h.procs {
		p.stop()
	}
	h.mu.Unlock()
	h.dead.Wait()
}

// verdict is on the end of the history.
func (h *history) verdict() {
	switch {
	case h.mode.inbox && !h.acked && !h.durable():
		h.bad("never-accepted", "the provider gave up")
	case !h.durable():
		h.bad("lost", "acknowledged %v, and never handled", h.acked)
	case h.mode.inbox && h.effects == 0 && h.st.row.State != receive.Dead && h.s2.row.State != receive.Dead:
		h.bad("lost", "written down, and never handled: %v", h.st.row.State)
	case h.mode.inbox && !h.finished():
		h.bad("lost", "written down, and never finished: %v", h.st.row.State)
	case !h.acked:
		h.bad("never-acked", "handled, and the provider never heard so")
	}
	if h.mode.tx && h.effects > 1 && h.mode.policy != "fallback" {
		h.bad("effects", "%d effects in transactions", h.effects)
	}
}

// trusting is a scheme that costs nothing.
type trusting struct{}

func (trusting) Key(string) (signature.Key, error) { return signature.Key{}, nil }
func (trusting) Headers() []string                 { return nil }
func (trusting) Verify(context.Context, signature.Request, []signature.Key, time.Time) (signature.Verified, error) {
	return signature.Verified{ID: "evt_1"}, nil
}
