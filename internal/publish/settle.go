package publish

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// settle commits the submissions in one transaction if the store lets it, in smaller ones where
// it must, and answers every one of them.
func (c *Committer) settle(l *lane, batch []*submission) {
	events := gather(batch)
	held := len(events)
	release := func() {
		if held > 0 {
			l.release(held)
			held = 0
		}
	}
	accepted, conflicts, err := c.insert(events, release)
	release()

	switch {
	case err == nil && len(conflicts) == 0:
		c.accept(l, batch, events, accepted)
	case err == nil:
		c.withoutGuilty(l, batch, conflicts)
	case outbox.FaultOf(err) == outbox.FaultRefused && len(batch) > 1:
		half := len(batch) / 2
		c.settleAgain(l, batch[:half])
		c.settleAgain(l, batch[half:])
	case outbox.FaultOf(err) == outbox.FaultLocked && len(batch) > 1:
		c.settleSingly(l, batch)
	default:
		for _, s := range batch {
			l.answer(s, outcome{err: meaning(err)})
		}
	}
}

// settleAgain settles a part of a batch, counted as being written once more.
func (c *Committer) settleAgain(l *lane, batch []*submission) {
	l.release(-count(batch))
	c.settle(l, batch)
}

// settleSingly gives each submission a transaction of its own, off the lane, so that the ones
// waiting for a lock do not hold up those behind them.
func (c *Committer) settleSingly(l *lane, batch []*submission) {
	for _, s := range batch {
		c.singles <- struct{}{}
		c.working.Go(func() {
			defer func() { <-c.singles }()
			c.settleAgain(l, []*submission{s})
		})
	}
}

// withoutGuilty answers the submissions that conflict with what is stored, and settles the rest.
func (c *Committer) withoutGuilty(l *lane, batch []*submission, conflicts []outbox.Conflict) {
	var innocent []*submission
	start := 0
	for _, s := range batch {
		end := start + len(s.events)
		var own []outbox.Conflict
		for _, conflict := range conflicts {
			if start <= conflict.Index && conflict.Index < end {
				own = append(own, outbox.Conflict{Index: conflict.Index - start, Err: conflict.Err})
			}
		}
		if len(own) > 0 {
			l.answer(s, outcome{conflicts: own})
		} else {
			innocent = append(innocent, s)
		}
		start = end
	}
	switch len(innocent) {
	case 0:
	case len(batch): // indexes outside the batch: going on would never end
		for _, s := range innocent {
			l.answer(s, outcome{err: fmt.Errorf("store names conflicts outside the batch: %v", conflicts)})
		}
	default:
		c.settleAgain(l, innocent)
	}
}

// accept hands the stored events to the router and answers their publishers.
func (c *Committer) accept(l *lane, batch []*submission, events []outbox.NewEvent, accepted []outbox.Accepted) {
	if len(accepted) != len(events) {
		for _, s := range batch {
			l.answer(s, outcome{err: fmt.Errorf("store answered %d of %d events", len(accepted), len(events))})
		}
		return
	}
	var rows []outbox.OutboxRow
	for i := range accepted {
		e := &events[i]
		if !e.Chosen && accepted[i].ID == e.ID {
			accepted[i].Duplicate = false // it met itself, in a batch that was run again
		}
		if c.cfg.Handoff == nil || accepted[i].Duplicate || accepted[i].Pos == 0 {
			continue
		}
		if rows == nil {
			rows = make([]outbox.OutboxRow, 0, len(accepted))
		}
		e.CreatedAt = accepted[i].CreatedAt
		rows = append(rows, outbox.OutboxRow{
			Shard:      e.Tenant.Shard,
			Pos:        accepted[i].Pos,
			Kind:       outbox.OutboxEvent,
			Tenant:     e.Tenant.ID,
			Event:      e.ID,
			Source:     &e.Event,
			HasPayload: true,
		})
	}
	if len(rows) > 0 {
		c.cfg.Handoff.Offer(rows)
	}
	start := 0
	for _, s := range batch {
		end := start + len(s.events)
		l.answer(s, outcome{accepted: accepted[start:end:end]})
		start = end
	}
}

// insert runs one batch until the store's answer is definite. troubled is called at the first
// failure. What it returns is definite, except that a stopping process or a defective store can
// leave the outcome of an interrupted commit unknown (FaultUnknown).
func (c *Committer) insert(events []outbox.NewEvent, troubled func()) ([]outbox.Accepted, []outbox.Conflict, error) {
	var (
		began   time.Time // of the trouble
		unknown bool      // an earlier commit may have happened
		pause   = 25 * time.Millisecond
	)
	for {
		ctx, cancel := context.WithTimeout(c.life, c.cfg.CommitTimeout)
		accepted, conflicts, err := c.cfg.Store.InsertEvents(ctx, events)
		cancel()
		if err == nil {
			c.trouble.over()
			return accepted, conflicts, nil
		}
		now := time.Now()
		if began.IsZero() {
			began = now
			troubled()
		}
		fault := outbox.FaultOf(err)
		switch {
		case fault == outbox.FaultRefused:
			return nil, nil, err
		case fault == outbox.FaultUnknown:
			unknown = true
		case unknown && fault == outbox.FaultBroken && now.Sub(began) > 10*c.cfg.RetryFor:
			return nil, nil, asUnknown(err) // a defect; nothing more will be learned
		case unknown:
			// The lock may be our own first commit's, still under way on a connection we lost.
		case fault != outbox.FaultRetry || now.Sub(began) >= c.cfg.RetryFor:
			return nil, nil, err
		}
		c.trouble.say(fault, err)
		select {
		case <-time.After(pause/2 + rand.N(pause/2)):
		case <-c.life.Done():
			if unknown {
				err = asUnknown(err)
			}
			return nil, nil, err
		}
		pause = min(2*pause, time.Second)
	}
}

func asUnknown(err error) error {
	return &outbox.WriteError{Fault: outbox.FaultUnknown, Err: err}
}

// meaning turns a store's failure into what Submit's caller can act on.
func meaning(err error) error {
	switch outbox.FaultOf(err) {
	case outbox.FaultRefused:
		return fmt.Errorf("%w: %w", ErrRefused, err)
	case outbox.FaultLocked:
		return fmt.Errorf("%w: %w", ErrLocked, err)
	case outbox.FaultRetry:
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	case outbox.FaultUnknown:
		return fmt.Errorf("%w: %w", ErrUnknown, err)
	default:
		return err
	}
}

// gather returns the events of the submissions in order.
func gather(batch []*submission) []outbox.NewEvent {
	if len(batch) == 1 {
		return batch[0].events
	}
	events := make([]outbox.NewEvent, 0, count(batch))
	for _, s := range batch {
		events = append(events, s.events...)
	}
	return events
}

func count(batch []*submission) int {
	n := 0
	for _, s := range batch {
		n += len(s.events)
	}
	return n
}

// trouble speaks of a store that fails: at once, then every ten seconds, and when it is over.
type trouble struct {
	log   *slog.Logger
	mu    sync.Mutex
	since time.Time
	spoke time.Time
}

func (t *trouble) say(fault outbox.Fault, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	if t.since.IsZero() {
		t.since = now
	}
	if now.Sub(t.spoke) < 10*time.Second {
		return
	}
	t.spoke = now
	t.log.Warn("events cannot be stored; retrying", "fault", fault.String(), "error", err, "since", t.since.UTC())
}

func (t *trouble) over() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.since.IsZero() {
		return
	}
	t.log.Info("events are stored again", "after", time.Since(t.since).Round(time.Millisecond))
	t.since, t.spoke = time.Time{}, time.Time{}
}
