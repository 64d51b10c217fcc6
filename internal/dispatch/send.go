package dispatch

import (
	"cmp"
	"context"
	"log/slog"
	"math/rand/v2"
	"runtime/debug"
	"time"

	"github.com/waybill-dev/waybill/internal/attempt"
	"github.com/waybill-dev/waybill/internal/outbox"
	"github.com/waybill-dev/waybill/internal/thin"
)

// start runs attempts for everything whose turn it is now, each in a goroutine that goes on with
// the next one when it has ended.
func (n *Node) start() {
	for {
		w := n.nextWork()
		if w == nil {
			return
		}
		n.attempts.Go(func() {
			for w != nil {
				n.run(w)
				w = n.nextWork()
			}
		})
	}
}

func (n *Node) nextWork() *work {
	n.mu.Lock()
	defer n.mu.Unlock()
	// The lease under which a delivery is chosen is the one it is sent under: the node may have lost
	// its shard, and got a new lease for others, before the goroutine that sends it comes to run.
	tenure, may := n.tenure.current()
	if !may {
		n.sched.paused = true // until a heartbeat succeeds
		return nil
	}
	w := n.sched.next()
	if w != nil {
		w.tenure = tenure
		w.careful = n.carefully(w.due.Shard)
		w.unsent = w.careful
	}
	if w != nil && len(w.endpoint.lanes[w.due.Lane].ready) == 0 && len(n.sched.wakes) > 0 || n.sched.gateMoved {
		wake(n.fetchNow)
	}
	return w
}

// run takes one delivery to its result.
func (n *Node) run(w *work) {
	ctx := w.tenure
	if ctx.Err() != nil {
		n.abandon(w)
		return
	}
	var tried *attempt.Outcome
	result, ok := n.without(w)
	if !ok {
		if w.careful && !(n.writeDown(ctx, w) && n.maySend(w)) {
			n.abandon(w)
			return
		}
		var outcome attempt.Outcome
		outcome, ok = n.try(ctx, w)
		if !ok {
			n.abandon(w)
			return
		}
		result = n.conclude(ctx, w, outcome)
		tried = &outcome
	}
	n.finish(w, result, tried)
}

// maySend reports whether a delivery that was written down may be attempted now. If its shard was
// given up meanwhile, the next owner was told that it is not in flight.
func (n *Node) maySend(w *work) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	w.unsent = false
	return !w.given
}

// finish sends a result on its way into the database. tried is the outcome that the endpoint's
// breaker and pace learn from; nil: there is nothing to learn.
func (n *Node) finish(w *work, result outbox.Result, tried *attempt.Outcome) {
	result.Suspect = w.careful
	var learned news
	n.mu.Lock()
	switch {
	case tried != nil:
		learned = n.sched.learn(w, &tried.Attempt, tried.RetryAfter, result.At, rand.Float64())
	case w.probe:
		w.endpoint.breaker.probeLost(result.At) // it ended without asking the server
	}
	n.sched.ended(w, time.Since(w.started))
	if w.careful {
		n.sched.ward.acquit(w.due.ID)
	}
	n.mu.Unlock()
	n.recorder.add(finished{result, w})
	switch {
	case tried != nil:
		n.follow(w, &tried.Attempt, &result, learned)
		n.watchCertificate(w, tried, result.At)
	case result.Dead != "":
		n.died(w, &result)
	}
}

// abandon gives back a delivery that was not tried, or whose attempt the node itself cut off.
// Nothing is sent until a heartbeat succeeds.
func (n *Node) abandon(w *work) {
	n.mu.Lock()
	if _, may := n.tenure.current(); !may {
		n.sched.paused = true
	}
	n.sched.ended(w, time.Since(w.started))
	n.sched.abandoned(w, n.cfg.Clock.Now())
	n.mu.Unlock()
	wake(n.fetchNow)
}

// without returns the result of a delivery that ends without an attempt.
func (n *Node) without(w *work) (outbox.Result, bool) {
	r := outbox.Result{Delivery: w.due.Delivery, At: n.cfg.Clock.Now()}
	switch {
	case w.target == nil:
		r.Dead, r.DeadMessage = outbox.DeadCancelled, "The endpoint was deleted."
	case !w.target.endpoint.DiscardedAt.IsZero() && !w.due.SendableAt.After(w.target.endpoint.DiscardedAt):
		r.Dead, r.DeadMessage = outbox.DeadCancelled, "The backlog was discarded when the endpoint was resumed."
	case w.due.Gone || n.erased.has(w.due.Tenant, w.due.Event):
		r.Dead = outbox.DeadPermanent
		_, r.DeadKind, r.DeadMessage = attempt.PayloadGone()
	default:
		return r, false
	}
	return r, true
}

// try makes the attempt. It reports false if the node's own lease ended it: what the receiver did
// is not known then, and the attempt counts as none.
func (n *Node) try(ctx context.Context, w *work) (outcome attempt.Outcome, ok bool) {
	defer func() {
		if cause := recover(); cause != nil {
			n.cfg.Log.ErrorContext(ctx, "panic in an attempt", "delivery", w.due.ID, "endpoint", w.due.Endpoint, "panic", cause, "stack", string(debug.Stack()))
			outcome, ok = n.panicked(w), true
		}
	}()
	outcome = n.cfg.Sender.Do(ctx, n.request(w))
	return outcome, !outcome.Aborted
}

// request is what is sent.
func (n *Node) request(w *work) attempt.Request {
	payload := w.due.Payload
	if e := &w.target.endpoint; e.PayloadMode == outbox.PayloadThin && n.cfg.Thin != nil {
		until := n.cfg.Clock.Now().Add(cmp.Or(e.ThinTTL, outbox.DefaultThinTTL))
		payload = n.cfg.Thin.Body(thin.Event{ID: w.due.Event, Tenant: w.due.Tenant, Type: w.due.EventType, CreatedAt: w.due.EventCreatedAt}, until)
	}
	return attempt.Request{
		Target:    w.target.prepared,
		Event:     w.due.Event,
		EventType: w.due.EventType,
		N:         w.due.Attempt + 1,
		Sequence:  w.due.Sequence,
		Trigger:   trigger(w.due.Lane),
		Payload:   payload,
		Metadata:  w.due.EventMetadata,
	}
}

func trigger(l outbox.Lane) outbox.Trigger {
	switch l {
	case outbox.LaneReplay:
		return outbox.TriggerReplay
	case outbox.LaneTest:
		return outbox.TriggerTest
	}
	return outbox.TriggerSchedule
}

// panicked is the outcome of an attempt that made our own code panic: worth another try, up to
// the cap of panics.
func (n *Node) panicked(w *work) attempt.Outcome { return n.ours(w, attempt.Panicked) }

// ours is the outcome of an attempt that ended through our own fault.
func (n *Node) ours(w *work, fault func() (outbox.Outcome, outbox.Kind, string)) attempt.Outcome {
	now := n.cfg.Clock.Now()
	outcome, kind, message := fault()
	return attempt.Outcome{Attempt: outbox.Attempt{
		ID:           outbox.NewAttemptID(now),
		Trigger:      trigger(w.due.Lane),
		At:           now,
		URL:          w.target.endpoint.URL,
		Outcome:      outcome,
		Kind:         kind,
		Message:      message,
		RequestBytes: len(w.due.Payload),
	}}
}

// conclude turns an outcome into the delivery's result, and logs the attempt: one line each.
func (n *Node) conclude(ctx context.Context, w *work, o attempt.Outcome) outbox.Result {
	now := n.cfg.Clock.Now()
	closed, ahead := n.standing(w)
	since := latest(w.due.SendableAt, w.due.TurnAt, w.target.endpoint.ResumedAt, w.target.tenant.ResumedAt, closed)
	v := decide(&w.due.Delivery, &o, w.target.retry, n.panics.count(&w.due.Delivery, o.Kind), since, now)
	if !v.retryAt.IsZero() {
		v.retryAt = v.retryAt.Add(ahead).Truncate(time.Microsecond)
	}
	if v.dead == outbox.DeadPoison {
		_, _, o.Message = attempt.Killing() // not that it is tried again
	}
	// One line an attempt. At ten million a day that is a lot of lines about nothing, so those
	// that were delivered are for whoever asks for them.
	level := slog.LevelInfo
	if v.delivered {
		level = slog.LevelDebug
	}
	n.cfg.Log.Log(ctx, level, "attempt",
		"delivery", w.due.ID, "event", w.due.Event, "endpoint", w.due.Endpoint, "n", w.due.Attempt+1,
		"outcome", o.Outcome, "kind", o.Kind, "status", o.StatusCode, "ms", o.Duration.Milliseconds(), "then", v.why)
	return outbox.Result{
		Delivery:  w.due.Delivery,
		Attempt:   &o.Attempt,
		Delivered: v.delivered,
		RetryAt:   v.retryAt,
		Dead:      v.dead,
		At:        now,
	}
}

// standing is when the endpoint's breaker last closed, and by how much the schedule runs ahead of
// the database's time.
func (n *Node) standing(w *work) (closed time.Time, ahead time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return w.endpoint.since, n.sched.setback.ahead
}

func latest(times ...time.Time) time.Time {
	var last time.Time
	for _, t := range times {
		if t.After(last) {
			last = t
		}
	}
	return last
}
