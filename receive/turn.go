package receive

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// turn is one event of one request to a Sync.
type turn struct {
	*Sync
	record *Record
	hash   [32]byte        // of its key
	base   context.Context // the request's values, without its end
	here   localRun
	ctx    runContext    // of the run
	result answer        // of the run,
	ended  chan struct{} // once this is closed
	token  Token
	store  ClaimStore // which granted, or was asked last
	other  bool       // store is the one that StoreDown falls back to
	asked  bool       // store may have granted, whether that was heard or not
	start  time.Time  // of the request
	began  time.Time  // of the run
}

func (t *turn) fail(reason string, err error) answer {
	return answer{reply: Reply{Status: t.intake.codes.Failed}, outcome: Failed, reason: reason, err: err, retry: retryAfter(err)}
}

func (t *turn) done(outcome string, r Reply) answer {
	if r.Status == 0 {
		r.Status = t.intake.codes.OK
	}
	return answer{reply: r, outcome: outcome}
}

// serve claims the event, waits for another run of it, or runs it.
func (t *turn) serve(ctx context.Context) answer {
	poll := 25 * time.Millisecond
	for waited := false; ; waited = true {
		// The lease counts from before the question: the answer may take its time.
		sent := time.Now()
		ended := t.runs.end(t.hash)
		found, err := t.claim(ctx)
		if err != nil {
			a, again := t.storeDown(ctx, err, sent, waited)
			if again {
				continue
			}
			return a
		}
		if found.OtherBody {
			t.note(ctx, Observation{Step: StepRequest, Key: t.record.Key, Outcome: OtherBody})
		}
		switch {
		case found.Claim != nil && waited && t.breaks.freedIsSuccess:
			t.release(ctx, found.Claim, "")
			return t.done(Duplicate, Reply{})
		case found.Claim != nil && waited && t.left(t.deadline) < 0:
			// Too late to run it whole. Nobody else may find it held by a run that never was.
			t.release(ctx, found.Claim, "")
			return answer{reply: Reply{Status: t.intake.codes.InFlight}, outcome: InFlight, reason: "too_late"}
		case found.Claim != nil:
			return t.run(ctx, found.Claim, sent, "")
		case found.State == Done || found.State == Dead:
			t.note(ctx, Observation{Step: StepRequest, Key: t.record.Key, Outcome: Duplicate, Age: found.Since})
			return t.done(Duplicate, found.Reply)
		}
		if t.breaks.heldIsSuccess {
			return t.done(Duplicate, Reply{})
		}
		rest := t.cfg.Wait - time.Since(t.start)
		if rest <= 0 || ctx.Err() != nil {
			return answer{reply: Reply{Status: t.intake.codes.InFlight}, outcome: InFlight, retry: max(found.Left, time.Second)}
		}
		t.pause(ctx, ended, min(poll, rest))
		if ended == nil {
			poll = min(2*poll, 250*time.Millisecond)
		}
	}
}

// left is how much of the provider's patience is left after d.
func (t *turn) left(d time.Duration) time.Duration {
	return t.timeout() - d - time.Since(t.start)
}

func (s *Sync) timeout() time.Duration { return s.cfg.timeout() }

// pause waits for a run in this process to end, or a while for one elsewhere.
func (t *turn) pause(ctx context.Context, ended <-chan struct{}, poll time.Duration) {
	if ended != nil {
		poll = 250 * time.Millisecond // another process may have taken it over
	}
	timer := time.NewTimer(poll)
	defer timer.Stop()
	select {
	case <-ended:
	case <-timer.C:
	case <-ctx.Done():
	}
}

// claim asks the store twice within the budget, with one token: a first answer that was lost does
// not make us a stranger to ourselves.
//
// A store that is lost is asked by one request a second.
func (t *turn) claim(ctx context.Context) (found Found, err error) {
	if !t.other {
		if err := t.outage.ask(time.Now()); err != nil {
			return Found{}, err
		}
	}
	t.asked = true
	for range 2 {
		if found, err = t.claimOnce(); err == nil {
			break
		}
	}
	if !t.other {
		t.storeAnswered(ctx, err)
	}
	return found, err
}

func (t *turn) claimOnce() (Found, error) {
	ctx, cancel := context.WithTimeout(t.base, t.budget/2)
	defer cancel()
	lease := t.lease
	if t.breaks.shortLease {
		lease = t.deadline / 2
	}
	return t.store.Claim(ctx, t.record, t.token, lease)
}

// storeDown is what to do about a claim that could not be had. again: ask the other store.
func (t *turn) storeDown(ctx context.Context, err error, sent time.Time, waited bool) (a answer, again bool) {
	policy := t.cfg.StoreDown
	if policy.fallback != nil && !t.other {
		t.note(ctx, Observation{Step: StepRequest, Key: t.record.Key, Outcome: Degraded, Reason: "fallback", Err: err})
		t.store, t.other, t.asked = policy.fallback, true, false
		return a, true
	}
	unsure := &Claim{Key: t.record.Key, Token: t.token}
	switch {
	case t.breaks.downIsSuccess:
		return t.done(Processed, Reply{}), false
	case t.breaks.unansweredClaim:
		unsure.Granted = true
		return t.run(ctx, unsure, sent, ""), false
	case policy.open && !waited:
		// The token stays: if the store did hear us, settling ends that claim.
		return t.run(ctx, unsure, sent, down(err)), false
	}
	// The claim may have been granted to a run that will never be. Giving it back need not be waited
	// for, only be tried.
	if t.asked {
		t.running.Go(func() { t.release(t.hard, unsure, "") })
	}
	return t.fail(down(err), err), false
}

// release makes the event free again.
func (t *turn) release(ctx context.Context, c *Claim, reason string) {
	if !t.asked {
		return // and so it is not held
	}
	err := t.settle(c, Outcome{State: Free, Reason: reason})
	if err != nil && c.Granted {
		t.settled(ctx, c.Key, ReleaseFailed, err)
	}
}

func (t *turn) settle(c *Claim, o Outcome) error {
	ctx, cancel := context.WithTimeout(t.base, t.budget)
	defer cancel()
	return t.store.Settle(ctx, c, o)
}

// run runs the handler beside the request, which waits for its end or its deadline.
func (t *turn) run(ctx context.Context, c *Claim, sent time.Time, degraded string) answer {
	c.Until = sent.Add(t.lease)
	deadline := sent.Add(t.deadline)
	if batch := t.start.Add(t.deadline); t.record.Of > 1 && batch.Before(deadline) {
		deadline = batch // the elements of a batch share one
	}
	d := t.delivery(t.record, c)
	if degraded != "" {
		d.Degraded = degraded
		t.note(ctx, Observation{Step: StepRun, Key: c.Key, Outcome: Degraded, Reason: degraded})
	}
	if c.Crashes > 0 {
		t.note(ctx, Observation{Step: StepRun, Key: c.Key, Outcome: Takeover})
	}
	if t.breaks.doneFirst {
		_ = t.settle(c, d.Done())
	}
	t.runs.begin(t.hash, &t.here)
	limited, cancel := context.WithDeadlineCause(t.hard, deadline, ErrDeadline)
	t.ctx, t.ended = runContext{limited, ctx}, make(chan struct{})
	t.running.begin()
	go func() {
		defer t.running.done()
		defer t.runs.over(t.hash, &t.here)
		defer cancel()
		t.began = time.Now()
		t.result = t.finish(ctx, d, t.handle(&t.ctx, d, deadline))
		close(t.ended)
	}()
	select {
	case <-t.ended:
		return t.result
	case <-limited.Done(): // also when the run is over
	}
	timer := time.NewTimer(time.Until(deadline.Add(t.grace / 2)))
	defer timer.Stop()
	select {
	case <-t.ended:
		return t.result
	case <-timer.C:
	}
	// It still runs, and Go cannot kill it. Its claim is its own until it returns or the lease ends.
	t.note(ctx, Observation{Step: StepRun, Key: c.Key, Outcome: Overrun, Err: ErrDeadline})
	if t.breaks.releasedAtDeadline {
		t.release(ctx, c, "")
	}
	return t.fail("deadline", ErrDeadline)
}

// runContext is a handler's: it lives and ends as the run does, and has the values of the request,
// which may be over.
type runContext struct {
	context.Context
	request context.Context
}

func (c *runContext) Value(key any) any {
	if v := c.Context.Value(key); v != nil {
		return v
	}
	return c.request.Value(key)
}

// finish settles a run and says what to answer.
func (t *turn) finish(ctx context.Context, d *Delivery, err error) answer {
	c := d.claim
	v := t.judge(err, c)
	if v == unlooked {
		v, err = t.look(ctx, func(_ context.Context, o Outcome) error { return t.settle(c, o) })
	}
	o := Observation{Step: StepRun, Key: c.Key, Took: time.Since(t.began), LeaseLeft: time.Until(c.Until), Err: err}
	var a answer
	switch v {
	case succeeded:
		o.Outcome = Processed
		t.confirm(ctx, d)
		a = t.done(Processed, d.reply)
	case buried:
		o.Outcome = DeadLettered
		if a = t.bury(ctx, d, err); !a.success() {
			o.Outcome = Failed
		}
	case overtaken:
		o.Outcome = LeaseLost
		if t.breaks.lostLeaseIsSuccess {
			return t.done(Processed, d.reply)
		}
		t.release(ctx, c, err.Error())
		a = t.fail("lease_lost", err)
	default:
		o.Outcome = Failed
		t.release(ctx, c, err.Error())
		a = t.fail("handler", err)
	}
	if d.Degraded != "" {
		a.outcome = Degraded
	}
	t.note(ctx, o)
	return a
}

// confirm records success, trying while the provider waits. A success that cannot be recorded stays
// one, and is never released: the work is done.
func (t *turn) confirm(ctx context.Context, d *Delivery) {
	if d.claim.tx != txNone || !t.asked {
		return // it is in the handler's transaction, or there is nothing to confirm
	}
	var err error
	for range 3 {
		err = t.settle(d.claim, d.Done())
		if err == nil || errors.Is(err, ErrLeaseLost) || t.left(t.budget) < 0 || !d.claim.Granted {
			break
		}
	}
	if d.claim.Granted {
		t.settled(ctx, d.claim.Key, ConfirmFailed, err)
	}
}

// bury writes a dead letter. Only when that is answered is the event dealt with.
func (t *turn) bury(ctx context.Context, d *Delivery, cause error) answer {
	c := d.claim
	o := Outcome{State: Dead, Reason: cause.Error(), Record: t.record}
	switch {
	case t.breaks.noLetter:
		_ = t.settle(c, d.Done())
		return t.done(DeadLettered, Reply{})
	case t.letters == nil || t.own && t.other:
		// Nowhere to put it. In a fallback's claim there is no letter of the other store.
		t.release(ctx, c, cause.Error())
		return t.fail("permanent", cause)
	case t.own:
		err := t.settle(c, o)
		if err == nil || t.breaks.unansweredLetter && !errors.Is(err, ErrLeaseLost) {
			return t.done(DeadLettered, Reply{})
		}
		t.settled(ctx, c.Key, ReleaseFailed, err)
		return t.fail("letter", fmt.Errorf("%w (and its dead letter could not be written: %w)", cause, err))
	}
	// The letter first: the other order would forget the event if we die in between.
	if t.breaks.doneBeforeLetter {
		if err := t.settle(c, d.Done()); err != nil {
			return t.fail("letter", err)
		}
	}
	limited, cancel := detached(ctx, t.budget)
	err := t.letters.Bury(limited, t.record, cause.Error())
	cancel()
	if err != nil {
		t.release(ctx, c, cause.Error())
		return t.fail("letter", fmt.Errorf("%w (and its dead letter could not be written: %w)", cause, err))
	}
	t.settled(ctx, c.Key, ConfirmFailed, t.settle(c, d.Done()))
	return t.done(DeadLettered, Reply{})
}
