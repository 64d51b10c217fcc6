package receive

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"
)

// engine is what Inbox and Sync share: running a handler, and judging how it went.
type engine struct {
	intake   *Intake
	handler  Handler
	deadline time.Duration
	grace    time.Duration
	budget   time.Duration
	retain   time.Duration
	logger   *slog.Logger
	observer Observer
	breaks   breaks
	outage   outage // of the store
}

func (e *engine) source() string { return e.intake.src.Name }

// note tells the observer, and the log what somebody should look at.
func (e *engine) note(ctx context.Context, o Observation) {
	o.Source, o.Provider = e.source(), e.intake.src.Provider.Name
	if e.observer != nil {
		e.observer(ctx, o)
	}
	level := slog.LevelDebug
	switch o.Outcome {
	case Degraded, ConfirmFailed, ReleaseFailed, LeaseLost, OtherBody, Overrun, DeadLettered, StoreLost:
		level = slog.LevelWarn
	case Failed, StoreBack:
		level = slog.LevelInfo
	}
	if !e.logger.Enabled(ctx, level) {
		return
	}
	attrs := []slog.Attr{slog.String("source", o.Source), slog.String("step", o.Step), slog.String("outcome", o.Outcome)}
	if o.Reason != "" {
		attrs = append(attrs, slog.String("reason", o.Reason))
	}
	if o.Key.ID != "" {
		attrs = append(attrs, slog.String("id", o.Key.ID))
	}
	if o.Err != nil {
		attrs = append(attrs, slog.Any("err", o.Err))
	}
	e.logger.LogAttrs(ctx, level, "webhook", attrs...)
}

// delivery makes what a handler is given.
func (e *engine) delivery(r *Record, c *Claim) *Delivery {
	d := NewDelivery(e.intake.src.Provider.Name, r, c, e.retain)
	if r.Key.ID == "" && e.intake.src.BodyIsID > 0 {
		d.retain = e.intake.src.BodyIsID
	}
	return d
}

// verdict is how a run went.
type verdict int

const (
	succeeded verdict = iota
	failed            // again
	buried            // never again
	overtaken         // another has the event
	unlooked          // the database must be asked
)

// judge says what a handler's return means. A transaction that ConfirmTx was used in has its own
// word: nil from a handler that forgot to commit is no success.
func (e *engine) judge(err error, c *Claim) verdict {
	switch {
	case err == nil && c.tx == txOpen && !e.breaks.nilBelieved:
		return unlooked
	case err == nil:
		return succeeded
	case errors.Is(err, ErrLeaseLost):
		return overtaken
	case IsPermanent(err):
		return buried
	}
	return failed
}

// look asks the database whether the handler's transaction is in it. Without an answer it is not
// known to be, and then it is no success.
func (e *engine) look(ctx context.Context, settle func(context.Context, Outcome) error) (verdict, error) {
	var err error
	for range 2 {
		if err = settle(ctx, Outcome{State: Done, Look: true}); err == nil {
			return succeeded, nil
		}
		if errors.Is(err, ErrNotCommitted) {
			return failed, err
		}
		if errors.Is(err, ErrLeaseLost) {
			return overtaken, err
		}
	}
	return failed, fmt.Errorf("%w, as far as can be told: %w", ErrNotCommitted, err)
}

// handle calls the handler, unless its time is over before it could be. A panic is an error.
func (e *engine) handle(ctx context.Context, d *Delivery, until time.Time) (err error) {
	// Whoever was paused between the claim and here may have a twin already.
	if !time.Now().Before(until) && !e.breaks.noClockCheck {
		return fmt.Errorf("%w: it was over before the handler could be called", ErrDeadline)
	}
	defer func() {
		if p := recover(); p != nil {
			e.logger.ErrorContext(ctx, "webhook handler panicked", "source", d.Source, "id", d.ID, "panic", p, "stack", string(debug.Stack()))
			err = fmt.Errorf("receive: handler panicked: %v", p)
		}
	}()
	return e.handler(ctx, d)
}

// settled reports a settlement that did not come through as it should.
func (e *engine) settled(ctx context.Context, key Key, outcome string, err error) {
	if err != nil {
		e.note(ctx, Observation{Step: StepSettle, Key: key, Outcome: outcome, Err: err})
	}
}
