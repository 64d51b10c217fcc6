package receive

import (
	"context"
	"iter"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// Inbox writes webhooks down, answers, and handles them afterwards. It is an http.Handler.
type Inbox struct {
	engine
	cfg     InboxConfig
	lease   time.Duration
	started atomic.Bool   // a worker was started here, or is elsewhere
	wake    chan struct{} // something was written down
	asked   sync.Map      // for breaks.memoryRepeat only
}

// NewInbox checks cfg and asks the store whether it is what it has to be. A configuration that can
// lose or repeat events is a [*ConfigError] that names every problem and its remedy. It starts
// nothing.
func NewInbox(ctx context.Context, cfg InboxConfig) (*Inbox, error) {
	cfg = cfg.withDefaults()
	intake, problems := newIntake(cfg.Source, time.Now())
	problems = append(problems, cfg.lint()...)
	if len(problems) == 0 || !has(problems, Incomplete) {
		problems = append(problems, checkStores(ctx, cfg.Store, cfg.Fallback)...)
	}
	if err := judgeProblems(cfg.Source.Name, problems, cfg.Waive, cfg.Logger); err != nil {
		return nil, err
	}
	in := &Inbox{
		engine: engine{
			intake: intake, handler: cfg.Handler,
			deadline: cfg.Deadline, grace: cfg.Grace, budget: cfg.StoreBudget, retain: cfg.Retain,
			logger: cfg.Logger, observer: cfg.Observe,
		},
		cfg:   cfg,
		lease: min(cfg.Deadline, shortestLease) + cfg.Grace + cfg.StoreBudget,
		wake:  make(chan struct{}, 1),
	}
	in.started.Store(cfg.RunElsewhere)
	return in, nil
}

// shortestLease is how long an event waits after its process died, if its deadline is longer: the
// lease is renewed while the handler runs.
const shortestLease = 20 * time.Second

func (c InboxConfig) withDefaults() InboxConfig {
	set(&c.Deadline, time.Minute)
	set(&c.Grace, 2*time.Second)
	set(&c.Poll, time.Second)
	set(&c.Retain, c.Source.Provider.memory())
	set(&c.Retry.First, 5*time.Second)
	set(&c.Retry.Max, time.Hour)
	set(&c.Retry.Window, 3*24*time.Hour)
	if c.StoreBudget == 0 {
		c.StoreBudget = 250 * time.Millisecond
		if c.Fallback == nil {
			c.StoreBudget = 2 * time.Second
			if t := c.Source.Provider.Timeout; t > 0 {
				c.StoreBudget = min(c.StoreBudget, t/2)
			}
		}
	}
	if c.Retry.Crashes == 0 {
		c.Retry.Crashes = 3
	}
	if c.Workers == 0 {
		c.Workers = 8
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

func set(d *time.Duration, otherwise time.Duration) {
	if *d == 0 {
		*d = otherwise
	}
}

// ServeHTTP verifies the request, commits its events in one transaction and answers success. An
// event that is already there is success as well. Everything else is a code after which this
// provider tries again.
func (in *Inbox) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	start := time.Now()
	a := in.intake.Read(w, r, start)
	o := Observation{Step: StepRequest, Outcome: a.Outcome, Reason: a.Reason, Skew: a.Skew, Err: a.Err}
	if len(a.Records) > 0 {
		a.Answer, o.Outcome, o.Reason, o.Err = in.accept(r.Context(), a.Records)
	}
	o.Took = time.Since(start)
	in.note(r.Context(), o)
	in.intake.answer(w, a.Answer)
}

// accept writes the events down and says what to answer.
func (in *Inbox) accept(ctx context.Context, records []Record) (answer Reply, outcome, reason string, err error) {
	if !in.started.Load() {
		// Nobody would ever run them. Better that the provider keeps them, and somebody sees it.
		return Reply{Status: in.intake.codes.Failed}, Failed, "no_worker", errNoWorker
	}
	if in.breaks.memoryRepeat {
		if _, known := in.asked.LoadOrStore(records[0].Key, true); known {
			return Reply{Status: in.intake.codes.OK}, Duplicate, "", nil
		}
	}
	found, err := in.putFirst(ctx, records)
	degraded := err != nil
	if degraded && in.cfg.Fallback != nil {
		found, err = in.put(ctx, in.cfg.Fallback, records)
	}
	if err != nil {
		if in.breaks.unansweredPut {
			return Reply{Status: in.intake.codes.OK}, Stored, "", nil
		}
		// The commit may have happened. Then the provider's next attempt is a repeat.
		return Reply{Status: in.intake.codes.Failed}, Failed, down(err), err
	}
	outcome = Duplicate
	for i, f := range found {
		o := Observation{Step: StepRequest, Key: records[i].Key}
		switch {
		case f.New:
			outcome = Stored
			continue
		case f.OtherBody:
			o.Outcome = OtherBody
		default:
			o.Outcome, o.Age = Duplicate, f.Since
		}
		in.note(ctx, o)
	}
	if degraded {
		outcome, reason = Degraded, "fallback"
	}
	select {
	case in.wake <- struct{}{}:
	default:
	}
	return Reply{Status: in.intake.codes.OK}, outcome, reason, nil
}

// putFirst commits records in Store. While it is lost and there is a Fallback, not every request waits
// for it.
func (in *Inbox) putFirst(ctx context.Context, records []Record) ([]Found, error) {
	if in.cfg.Fallback != nil {
		if err := in.outage.ask(time.Now()); err != nil {
			return nil, err
		}
	}
	found, err := in.put(ctx, in.cfg.Store, records)
	in.storeAnswered(ctx, err)
	return found, err
}

// put commits records; a provider that hangs up does not stop it half way.
func (in *Inbox) put(ctx context.Context, s InboxStore, records []Record) ([]Found, error) {
	ctx, cancel := detached(ctx, in.budget)
	defer cancel()
	return s.Put(ctx, records)
}

// Dead lists the source's dead letters, oldest first; those of Fallback come after.
func (in *Inbox) Dead(ctx context.Context) iter.Seq2[DeadLetter, error] {
	return func(yield func(DeadLetter, error) bool) {
		for _, s := range in.stores() {
			for l, err := range s.Letters(ctx, in.source()) {
				if !yield(l, err) {
					return
				}
			}
		}
	}
}

// Replay makes one event, dead or done, pending again, with its bytes, its id and a higher fence.
// ErrNotFound if there is none such.
func (in *Inbox) Replay(ctx context.Context, key Key) error {
	err := ErrNotFound
	for _, s := range in.stores() {
		if err = s.Revive(ctx, key); err == nil {
			break
		}
	}
	select {
	case in.wake <- struct{}{}:
	default:
	}
	return err
}

func (in *Inbox) stores() []InboxStore {
	if in.cfg.Fallback != nil {
		return []InboxStore{in.cfg.Store, in.cfg.Fallback}
	}
	return []InboxStore{in.cfg.Store}
}
