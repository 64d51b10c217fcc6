package receive

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"net/http"
	"reflect"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// Sync handles a webhook inside the provider's request. It is an http.Handler.
type Sync struct {
	engine
	cfg     SyncConfig
	lease   time.Duration
	letters DeadLetterStore // nil: none
	own     bool            // letters is the store that claims, so one step writes both
	running inflight
	pruned  atomic.Int64 // Unix seconds
	hard    context.Context
	stop    context.CancelCauseFunc
	runs    localRuns
}

// NewSync checks cfg and asks the store whether it is what it has to be, like NewInbox. If the store
// does not answer, that is an error under Closed and a warning under Open and Fallback.
func NewSync(ctx context.Context, cfg SyncConfig) (*Sync, error) {
	cfg = cfg.withDefaults()
	intake, problems := newIntake(cfg.Source, time.Now())
	problems = append(problems, cfg.lint()...)
	if !has(problems, Incomplete) {
		found := checkStores(ctx, cfg.Store)
		if cfg.StoreDown.open || cfg.StoreDown.fallback != nil {
			for i := range found {
				if found[i].Rule == Unchecked {
					found[i].Harm = Told
				}
			}
		}
		problems = append(problems, found...)
	}
	if err := judgeProblems(cfg.Source.Name, problems, cfg.Waive, cfg.Logger); err != nil {
		return nil, err
	}
	s := &Sync{
		engine: engine{
			intake: intake, handler: cfg.Handler,
			deadline: cfg.Deadline, grace: cfg.Grace, budget: cfg.StoreBudget, retain: cfg.Retain,
			logger: cfg.Logger, observer: cfg.Observe,
		},
		cfg:     cfg,
		lease:   cfg.Deadline + cfg.Grace + cfg.StoreBudget,
		letters: cfg.DeadLetters,
		own:     same(cfg.DeadLetters, cfg.Store),
	}
	s.hard, s.stop = context.WithCancelCause(context.Background())
	return s, nil
}

// same reports whether two interfaces hold one store.
func same(a, b any) bool {
	return a != nil && reflect.TypeOf(a).Comparable() && a == b
}

func (c SyncConfig) withDefaults() SyncConfig {
	set(&c.Grace, 2*time.Second)
	set(&c.StoreBudget, 250*time.Millisecond)
	timeout := c.timeout()
	set(&c.Deadline, max(timeout-2*c.StoreBudget-time.Second, timeout/2))
	// What is left after a claim and the way back.
	set(&c.Wait, max(timeout-2*c.StoreBudget-time.Second, 0))
	set(&c.Retain, c.Source.Provider.memory())
	if letters, ok := c.Store.(DeadLetterStore); ok && c.DeadLetters == nil {
		c.DeadLetters = letters
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// timeout is the provider's, or a careful guess.
func (c SyncConfig) timeout() time.Duration {
	if t := c.Source.Provider.Timeout; t > 0 {
		return t
	}
	return 10 * time.Second
}

// answer is what one event, or a whole request, comes to.
type answer struct {
	reply   Reply
	outcome string
	reason  string
	retry   time.Duration // Retry-After, if any
	err     error
}

func (a answer) success() bool { return a.reply.Status >= 200 && a.reply.Status <= 299 }

// ServeHTTP verifies, claims, runs the handler on a context of its own, settles, and only then
// answers.
//
//	                   claim
//	   ┌────────────┬────┴───────┬────────────────┐
//	acquired     in flight     done or dead     no answer
//	   │            │             │                │
//	handler       wait,         its reply        StoreDown
//	   │          then as
//	   │          found
//	nil        → settle done, success  (also if settling fails, unless InTx)
//	permanent  → dead letter, success  (only if it is written; else as an error)
//	error      → settle free, Failed
//	deadline   → Failed now; settled when the handler returns
//
// A repeat that waits is a success only when it sees done or dead in the store; if it finds the
// event free instead, it runs it only with a whole Deadline left. The elements of a batch are
// claimed and run one after the other, each with what is left of the deadline; the answer is success
// only if all of them are.
func (s *Sync) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	start := time.Now()
	a := s.intake.Read(w, r, start)
	out := answer{reply: a.Answer, outcome: a.Outcome, reason: a.Reason, err: a.Err}
	if len(a.Records) > 0 {
		out = s.serve(r.Context(), a.Records, start)
	}
	s.note(r.Context(), Observation{Step: StepRequest, Outcome: out.outcome, Reason: out.reason, Skew: a.Skew, Err: out.err, Took: time.Since(start)})
	if s.cfg.OutcomeHeader {
		w.Header().Set("Waybill-Outcome", out.outcome)
	}
	if out.retry > 0 {
		w.Header().Set("Retry-After", strconv.FormatInt(int64(math.Ceil(out.retry.Seconds())), 10))
	}
	s.intake.answer(w, out.reply)
	s.pruneNow(start)
}

// serve handles the events of a request, one after the other.
func (s *Sync) serve(ctx context.Context, records []Record, start time.Time) answer {
	var all answer
	for i := range records {
		a := s.serveOne(ctx, &records[i], start)
		if i == 0 || all.success() {
			all = a
		}
	}
	return all
}

func (s *Sync) serveOne(ctx context.Context, r *Record, start time.Time) answer {
	t := &turn{Sync: s, record: r, hash: r.Key.Hash(), base: context.WithoutCancel(ctx), token: NewToken(), store: s.cfg.Store, start: start}
	return t.serve(ctx)
}

// Shutdown waits for running handlers, also those whose request is over, and for them to be
// settled. When ctx ends it ends theirs, and returns its error.
func (s *Sync) Shutdown(ctx context.Context) error {
	select {
	case <-s.running.Idle():
		return nil
	case <-ctx.Done():
		s.stop(ErrShutdown)
		return ctx.Err()
	}
}

// pruneNow lets the store forget, at most once a minute and beside the requests.
func (s *Sync) pruneNow(now time.Time) {
	p, ok := s.cfg.Store.(Pruner)
	if !ok {
		return
	}
	last := s.pruned.Load()
	if now.Unix()-last < 60 || !s.pruned.CompareAndSwap(last, now.Unix()) {
		return
	}
	s.running.Go(func() {
		for pruneOnce(s.hard, p, s.logger, s.source()) > 0 && s.hard.Err() == nil {
		}
	})
}

// down names how a store failed.
func down(err error) string {
	if errors.Is(err, context.DeadlineExceeded) {
		return "store_slow"
	}
	return "store_down"
}

// localRuns lets repeats in this process wait for a run without asking the store over and over. It
// is only a wake-up: what they answer is what the store then says.
type localRuns struct {
	mu   sync.Mutex
	runs map[[32]byte]*localRun
}

// localRun is one run; its channel is made for whoever waits first.
type localRun struct{ ended chan struct{} }

// begin registers a run, and over ends it.
func (l *localRuns) begin(hash [32]byte, r *localRun) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.runs == nil {
		l.runs = map[[32]byte]*localRun{}
	}
	if old := l.runs[hash]; old != nil {
		r.ended = old.ended // who waits for the run that this one overtakes waits for this one
		old.ended = nil
	}
	l.runs[hash] = r
}

func (l *localRuns) over(hash [32]byte, r *localRun) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r.ended != nil {
		close(r.ended)
	}
	if l.runs[hash] == r {
		delete(l.runs, hash)
	}
}

// end is closed when the run of an event ends; nil, and so never, if there is none here.
func (l *localRuns) end(hash [32]byte) <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.runs[hash]
	if r == nil {
		return nil
	}
	if r.ended == nil {
		r.ended = make(chan struct{})
	}
	return r.ended
}
