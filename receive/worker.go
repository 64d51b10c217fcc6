package receive

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"
)

var errNoWorker = errors.New("receive: Inbox.Run has not been called, and RunElsewhere is not set, so nobody would handle the event")

// Run handles what is written down until ctx ends; then it takes nothing more, waits for running
// handlers, at most as long as their deadline and grace, and returns nil. Any number of processes
// may run the same source.
func (in *Inbox) Run(ctx context.Context) error {
	// Not taken back at the end: what is written down during a shutdown, the next process runs.
	in.started.Store(true)
	hard, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stop(nil)
	w := &worker{Inbox: in, hard: hard, slots: make(chan struct{}, in.cfg.Workers)}
	var loops sync.WaitGroup
	for _, s := range in.stores() {
		loops.Go(func() { w.take(ctx, s) })
		loops.Go(func() { w.prune(ctx, s) })
	}
	loops.Wait()
	done := make(chan struct{})
	go func() {
		w.running.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(in.deadline + in.grace):
		stop(ErrShutdown)
		in.logger.WarnContext(ctx, "webhook handlers still run after their deadline; their events run again elsewhere", "source", in.source())
	}
	return nil
}

// RunDue handles what is due now, one event after the other, until nothing is, and says how many runs
// that were. It is Run for tests and for programs that are started now and then.
func (in *Inbox) RunDue(ctx context.Context) (runs int, err error) {
	in.started.Store(true)
	w := &worker{Inbox: in, hard: context.WithoutCancel(ctx), slots: make(chan struct{}, 1)}
	for _, s := range in.stores() {
		for ctx.Err() == nil {
			sent := time.Now()
			taken, err := w.takeFrom(ctx, s, 1)
			if err != nil {
				return runs, err
			}
			if len(taken) == 0 {
				break
			}
			w.slots <- struct{}{}
			w.execute(ctx, s, taken[0], sent)
			runs++
		}
	}
	return runs, ctx.Err()
}

// worker is one Run.
type worker struct {
	*Inbox
	hard    context.Context // of handlers: ends when shutdown's grace is over
	slots   chan struct{}   // filled by what runs
	running sync.WaitGroup
}

// take gives due events of one store to handlers. It takes only what can start: a taken event that
// waited for a slot would lose its lease doing so.
func (w *worker) take(ctx context.Context, s InboxStore) {
	failing := false
	for {
		select {
		case <-ctx.Done():
			return
		case w.slots <- struct{}{}:
		}
		free := 1
	more:
		for free < w.cfg.Workers {
			select {
			case w.slots <- struct{}{}:
				free++
			default:
				break more
			}
		}
		sent := time.Now()
		taken, err := w.takeFrom(ctx, s, free)
		for range free - len(taken) {
			<-w.slots
		}
		if (err != nil) != failing && ctx.Err() == nil {
			failing = err != nil
			w.sayFailing(ctx, err)
		}
		for _, t := range taken {
			w.running.Go(func() { w.execute(ctx, s, t, sent) })
		}
		if len(taken) == free {
			continue
		}
		select {
		case <-ctx.Done():
			return
		case <-w.wake:
		case <-time.After(w.cfg.Poll/2 + rand.N(w.cfg.Poll/2+1)):
		}
	}
}

func (w *worker) takeFrom(ctx context.Context, s InboxStore, n int) ([]Taken, error) {
	ctx, cancel := detached(ctx, max(w.budget, 5*time.Second))
	defer cancel()
	return s.Take(ctx, w.source(), n, w.leaseOf(w.lease))
}

func (in *Inbox) leaseOf(lease time.Duration) time.Duration {
	if in.breaks.shortLease {
		return in.deadline / 2
	}
	return lease
}

// sayFailing speaks when a store stops answering and when it does so again, not in between.
func (w *worker) sayFailing(ctx context.Context, err error) {
	if err != nil {
		w.logger.WarnContext(ctx, "webhook inbox cannot take from its store; it keeps trying", "source", w.source(), "err", err)
		return
	}
	w.logger.InfoContext(ctx, "webhook inbox takes from its store again", "source", w.source())
}

// execute runs one event, and gives its slot back when the handler returns or its lease is over,
// whichever is first: a handler that never returns must not take a slot with it.
func (w *worker) execute(ctx context.Context, s InboxStore, t Taken, sent time.Time) {
	c := t.Claim
	c.Until = sent.Add(w.lease)
	end := sent.Add(w.deadline + w.grace + w.budget) // of every lease
	if w.breaks.uncappedRenewal {
		end = sent.Add(1000 * time.Hour)
	}
	run := &inboxRun{worker: w, store: s, record: &t.Record, claim: c, until: c.Until, end: end}
	ended := make(chan struct{})
	w.running.Go(func() {
		defer close(ended)
		run.run(sent)
	})
	timer := time.NewTimer(time.Until(end))
	defer timer.Stop()
	select {
	case <-ended:
	case <-timer.C:
		w.note(ctx, Observation{Step: StepRun, Key: c.Key, Outcome: Overrun, Err: ErrDeadline})
	}
	<-w.slots
}

// backoff is when a run that failed for the n-th time is tried again: doubling, with jitter from a
// half to the whole, so that events which failed together do not come back together.
func (r Retry) backoff(n int) time.Duration {
	d := r.First
	for ; n > 1 && d < r.Max; n-- {
		d *= 2
	}
	d = min(d, r.Max)
	return d/2 + rand.N(d/2+1)
}

// prune removes what need not be remembered, now and then.
func (w *worker) prune(ctx context.Context, s InboxStore) {
	p, ok := s.(Pruner)
	if !ok {
		return
	}
	for {
		wait := time.Minute/2 + rand.N(time.Minute)
		if n := pruneOnce(ctx, p, w.logger, w.source()); n > 0 {
			wait = time.Second
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}
