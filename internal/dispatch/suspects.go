package dispatch

import (
	"context"
	"encoding/binary"
	"errors"
	"time"

	"github.com/waybill-dev/waybill/internal/attempt"
	"github.com/waybill-dev/waybill/internal/outbox"
	"github.com/waybill-dev/waybill/internal/quarantine"
	"github.com/waybill-dev/waybill/internal/route"
)

// Isolation handles one thing in a process of its own. An error is quarantine.ErrDied if that
// process died of it, ErrHung if it had to be ended, a PanicError; any other means that nothing
// was handled.
type Isolation interface {
	Attempt(ctx context.Context, e attempt.Endpoint, r attempt.Request) (attempt.Outcome, error)
	Route(ctx context.Context, row outbox.OutboxRow, endpoints route.Subscribers) error
}

// suspectsEvery is how often the node looks whether a suspect may run, while there are any.
const suspectsEvery = 50 * time.Millisecond

// suspectLoop handles what may have killed a process: one after the other, each in a process of
// its own, while everything else goes on.
func (n *Node) suspectLoop(ctx context.Context) {
	for ctx.Err() == nil {
		if n.idle() {
			select {
			case <-ctx.Done():
			case <-n.suspectNow:
			}
			continue
		}
		tried, err := n.trySuspect(ctx)
		n.report(ctx, "suspects in a process of their own", err)
		switch {
		case err != nil:
			sleep(ctx, time.Second)
		case !tried:
			sleep(ctx, suspectsEvery)
		}
	}
}

// idle reports whether nothing is suspected.
func (n *Node) idle() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.sched.ward.suspects) == 0 && len(n.rows.suspects) == 0
}

// trySuspect handles one suspect, if one may be handled now.
func (n *Node) trySuspect(ctx context.Context) (bool, error) {
	tenure, may := n.tenure.current()
	if !may {
		return false, nil
	}
	// What is in a child when the node stops, or its lease ends, is cut off and counts for nothing.
	tenure, cancel := context.WithCancel(tenure)
	defer cancel()
	defer context.AfterFunc(ctx, cancel)()

	if tried, err := n.tryRow(tenure); tried || err != nil {
		return tried, err
	}
	n.mu.Lock()
	w := n.sched.nextSuspect(n.dueNow())
	var suspect outbox.Suspect
	if w != nil {
		suspect = n.sched.ward.suspects[w.due.ID]
	}
	n.mu.Unlock()
	if w == nil {
		return false, nil
	}
	err := n.runSuspect(tenure, w, suspect)
	n.mu.Lock()
	if n.sched.ward.spent != nil {
		n.sched.ward.spent[w.due.Endpoint] += time.Since(w.started)
	}
	n.mu.Unlock()
	return true, err
}

// runSuspect takes one suspect to its result, or gives it back.
func (n *Node) runSuspect(ctx context.Context, w *work, suspect outbox.Suspect) error {
	if there, err := n.readAgain(ctx, w); err != nil || !there {
		n.abandon(w)
		return err
	}
	w.careful = true // its result takes it out of the journal
	if suspect.Strikes >= outbox.MaxStrikes {
		n.finish(w, n.given(w), nil)
		return nil
	}
	if result, ok := n.without(w); ok {
		n.finish(w, result, nil)
		return nil
	}
	outcome, err := n.isolated(ctx, w)
	switch _, panicked := errors.AsType[*quarantine.PanicError](err); {
	case ctx.Err() != nil || err == nil && outcome.Aborted:
		n.abandon(w)
	case err == nil || panicked:
		n.finish(w, n.conclude(ctx, w, outcome), &outcome)
	case errors.Is(err, quarantine.ErrHung):
		// Nobody's fault is known, so the endpoint's breaker does not hear of it.
		n.cfg.Log.ErrorContext(ctx, "the process of a suspect hung", "delivery", w.due.ID, "endpoint", w.due.Endpoint)
		outcome = n.ours(w, w.target.prepared.BrokenOff)
		n.finish(w, n.conclude(ctx, w, outcome), nil)
	case errors.Is(err, quarantine.ErrDied):
		struck, err := n.strike(ctx, suspect, err)
		if err != nil {
			n.abandon(w)
			return err
		}
		if struck.Strikes >= outbox.MaxStrikes {
			n.finish(w, n.given(w), nil)
			return nil
		}
		n.abandon(w)
	default:
		n.abandon(w)
		return err
	}
	return nil
}

// isolated makes the attempt in a process of its own.
func (n *Node) isolated(ctx context.Context, w *work) (attempt.Outcome, error) {
	if n.cfg.Isolation == nil {
		outcome, ok := n.try(ctx, w)
		outcome.Aborted = !ok
		return outcome, nil
	}
	outcome, err := n.cfg.Isolation.Attempt(ctx, w.target.sendable(), n.request(w))
	if p, ok := errors.AsType[*quarantine.PanicError](err); ok {
		n.cfg.Log.ErrorContext(ctx, "panic in an attempt", "delivery", w.due.ID, "endpoint", w.due.Endpoint, "panic", p.Text)
		outcome = n.panicked(w)
	}
	return outcome, err
}

// readAgain reads a suspect with its payload, and reports whether it is still due as it was read
// first.
func (n *Node) readAgain(ctx context.Context, w *work) (bool, error) {
	n.mu.Lock()
	now := n.dueNow()
	n.mu.Unlock()
	found, err := n.cfg.Store.FetchDue(ctx, []outbox.FetchRequest{{
		Shard:       w.due.Shard,
		Endpoint:    w.due.Endpoint,
		Lane:        w.due.Lane,
		AfterNextAt: w.due.NextAt,
		AfterID:     predecessor(w.due.ID),
		Limit:       1,
	}}, now, maxFetchedBytes)
	if err != nil {
		return false, err
	}
	if rows := found[0].Rows; len(rows) == 1 && rows[0].ID == w.due.ID && !rows[0].NextAt.After(now) {
		w.due = rows[0]
		return true, nil
	}
	// It ended, or waits for another time: an operator's replay, a late result of its old owner.
	pending, err := n.cfg.Store.PendingAttempts(ctx, []outbox.Shard{w.due.Shard}, []outbox.DeliveryID{w.due.ID})
	if err != nil {
		return false, err
	}
	n.mu.Lock()
	_, waits := pending[w.due.ID]
	if !waits {
		n.sched.ward.acquit(w.due.ID)
	} else if e := n.sched.endpoints[w.due.Endpoint]; e != nil {
		l := &e.lanes[w.due.Lane]
		l.lower(fromTheStart)
		n.sched.wake(l)
	}
	n.mu.Unlock()
	wake(n.fetchNow)
	if !waits {
		n.clear(ctx, []outbox.Suspect{{Shard: w.due.Shard, Delivery: w.due.ID}})
	}
	return false, nil
}

// predecessor is the id before id.
func predecessor(id outbox.DeliveryID) outbox.DeliveryID {
	high, low := binary.BigEndian.Uint64(id[:8]), binary.BigEndian.Uint64(id[8:])
	if low == 0 {
		high--
	}
	binary.BigEndian.PutUint64(id[:8], high)
	binary.BigEndian.PutUint64(id[8:], low-1)
	return id
}

// strike notes that a process died of the suspect.
func (n *Node) strike(ctx context.Context, s outbox.Suspect, death error) (outbox.Suspect, error) {
	n.cfg.Log.ErrorContext(ctx, "a process died handling a suspect", "shard", s.Shard, "delivery", s.Delivery, "outbox_position", s.Pos,
		"strikes", s.Strikes+1, "error", death)
	err := n.lasting(ctx, func() error {
		n.mu.Lock()
		lease := n.lease
		n.mu.Unlock()
		count, err := n.cfg.Store.Strike(ctx, lease, s, n.cfg.Clock.Now())
		if err == nil {
			s.Strikes = count
		}
		return err
	})
	if err != nil {
		return s, err
	}
	n.mu.Lock()
	if !s.Delivery.IsZero() && n.sched.ward.suspects != nil {
		n.sched.ward.suspects[s.Delivery] = s
	}
	n.mu.Unlock()
	return s, nil
}

// given is the result of a delivery that is given up because it kills.
func (n *Node) given(w *work) outbox.Result {
	r := outbox.Result{Delivery: w.due.Delivery, At: n.cfg.Clock.Now(), Dead: outbox.DeadPoison}
	_, r.DeadKind, r.DeadMessage = attempt.Killing()
	n.cfg.Log.Error("a delivery is given up: it kills the process that handles it", "delivery", w.due.ID, "endpoint", w.due.Endpoint)
	return r
}
