package receive

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// inboxRun is one run of one written-down event.
type inboxRun struct {
	*worker
	store  InboxStore
	record *Record
	claim  *Claim
	until  time.Time // end of the lease, by our clock; renew's while it runs
	end    time.Time // no lease goes beyond
}

func (r *inboxRun) run(sent time.Time) {
	c := r.claim
	began := time.Now()
	if c.Crashes > 0 {
		r.note(r.hard, Observation{Step: StepRun, Key: c.Key, Outcome: Takeover, Age: time.Since(r.record.ReceivedAt)})
	}
	if c.Crashes >= r.cfg.Retry.Crashes {
		r.bury(fmt.Sprintf("poison: %d runs in a row ended without an outcome", c.Crashes), nil)
		return
	}
	ctx, cancel := context.WithCancelCause(r.hard)
	defer cancel(nil)
	limited, release := context.WithDeadlineCause(ctx, sent.Add(r.deadline), ErrDeadline)
	defer release()
	renewed := make(chan struct{})
	go func() {
		defer close(renewed)
		r.renew(ctx, cancel)
	}()
	d := r.delivery(r.record, c)
	d.answered = true
	err := r.handle(limited, d, c.Until)
	if err != nil && errors.Is(err, context.Canceled) {
		err = fmt.Errorf("%w (%w)", err, context.Cause(limited))
	}
	cancel(nil)
	<-renewed
	r.finish(d, err, began)
}

// renew makes the lease longer while the handler runs, but never beyond end: a handler that hangs
// must lose it. If it cannot be renewed in time, the handler's context ends.
func (r *inboxRun) renew(ctx context.Context, cancel context.CancelCauseFunc) {
	for r.until.Before(r.end) {
		timer := time.NewTimer(time.Until(r.until) / 3)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
		sent := time.Now()
		lease := min(r.lease, r.end.Sub(sent))
		err := r.extend(ctx, lease)
		switch {
		case err == nil:
			r.until = sent.Add(lease)
		case errors.Is(err, ErrLeaseLost) || time.Until(r.until) < r.budget:
			cancel(ErrLeaseLost)
			return
		}
	}
}

func (r *inboxRun) extend(ctx context.Context, lease time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, r.budget)
	defer cancel()
	return r.store.Extend(ctx, r.claim, lease)
}

// finish writes down how the run went.
func (r *inboxRun) finish(d *Delivery, err error, began time.Time) {
	c := r.claim
	v := r.judge(err, c)
	if v == unlooked {
		v, err = r.look(r.hard, r.settleOnce)
	}
	o := Observation{Step: StepRun, Key: c.Key, Took: time.Since(began), LeaseLeft: time.Until(r.until), Err: err}
	switch v {
	case succeeded:
		o.Outcome = Processed
		if c.tx == txNone {
			r.settled(r.hard, c.Key, ConfirmFailed, r.settle(d.Done()))
		}
	case buried:
		o.Outcome = DeadLettered
		r.bury(err.Error(), &o)
		return
	case overtaken:
		o.Outcome = LeaseLost
		if r.breaks.lostLeaseIsSuccess {
			r.settled(r.hard, c.Key, ConfirmFailed, r.settle(d.Done()))
			break
		}
		// If nobody took it over, it need not wait for the lease to end.
		_ = r.settleOnce(r.hard, Outcome{State: Free, After: r.cfg.Retry.backoff(c.Run), Reason: err.Error()})
	default:
		o.Outcome = Failed
		if reason := r.cfg.Retry.over(c.Run, time.Since(r.record.ReceivedAt)); reason != "" {
			r.bury(reason+err.Error(), &o)
			return
		}
		after := max(r.cfg.Retry.backoff(c.Run), retryAfter(err))
		r.settled(r.hard, c.Key, ReleaseFailed, r.settle(Outcome{State: Free, After: after, Reason: err.Error()}))
	}
	r.note(r.hard, o)
}

// over says why an event is not tried again, or "".
func (r Retry) over(runs int, age time.Duration) string {
	switch {
	case r.Runs > 0 && runs >= r.Runs:
		return fmt.Sprintf("given up after %d runs: ", runs)
	case age >= r.Window:
		return fmt.Sprintf("given up %s after it arrived: ", r.Window)
	}
	return ""
}

// bury makes the event a dead letter. If that is not answered the event stays as it is, and comes up
// again when its lease is over.
func (r *inboxRun) bury(reason string, o *Observation) {
	if o == nil {
		o = &Observation{Step: StepRun, Key: r.claim.Key, Reason: "poison"}
	}
	if err := r.settle(Outcome{State: Dead, Reason: reason}); err != nil {
		r.settled(r.hard, r.claim.Key, ReleaseFailed, err)
		return
	}
	o.Outcome = DeadLettered
	r.note(r.hard, *o)
}

// settle tries as long as the lease lasts: until then nobody else can know better.
func (r *inboxRun) settle(o Outcome) error {
	wait := 50 * time.Millisecond
	for {
		err := r.settleOnce(r.hard, o)
		if err == nil || errors.Is(err, ErrLeaseLost) || r.hard.Err() != nil {
			return err
		}
		if time.Until(r.until) < wait+r.budget {
			return err
		}
		time.Sleep(wait)
		wait *= 2
	}
}

func (r *inboxRun) settleOnce(ctx context.Context, o Outcome) error {
	ctx, cancel := detached(ctx, r.budget)
	defer cancel()
	return r.store.Settle(ctx, r.claim, o)
}

// pruneOnce removes some of what need not be remembered, and says how much.
func pruneOnce(ctx context.Context, p Pruner, logger *slog.Logger, source string) int {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	n, err := p.Prune(ctx)
	if err != nil && ctx.Err() == nil {
		logger.WarnContext(ctx, "webhook store cannot forget what is done", "source", source, "err", err)
	}
	return n
}
