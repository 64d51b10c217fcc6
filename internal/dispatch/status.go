package dispatch

import (
	"fmt"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// Status is how a node stands, for readiness and for people.
type Status struct {
	Node       outbox.NodeID
	Shards     int           // owned
	BeatAge    time.Duration // since the last successful heartbeat; large before the first
	Acting     bool          // the lease stands
	Draining   bool
	Queued     int // outbox rows in memory
	InMemory   int // deliveries in memory
	InFlight   int // attempts under way
	Unrecorded int // results not in the database yet
	Open       int // endpoints whose breaker is open
	Probing    int // endpoints whose breaker is trying one delivery
	// RunnableSince is when the delivery became due that has waited longest for this node alone:
	// not for its endpoint, its tenant's cap, a rate or a pause. Zero: none does.
	RunnableSince time.Time
	Stalled       string // what stands still although there is work, in words; "": nothing
}

// Status returns how the node stands now.
func (n *Node) Status() Status {
	_, acting := n.tenure.current()
	n.mu.Lock()
	defer n.mu.Unlock()
	open, probing := n.sched.breakers()
	return Status{
		Node:       n.id,
		Shards:     len(n.lease.Epochs),
		BeatAge:    time.Since(n.lastBeat),
		Acting:     acting,
		Draining:   n.draining,
		Queued:     n.queue.Len(),
		InMemory:   len(n.sched.taken),
		InFlight:   n.sched.running,
		Unrecorded: n.sched.pending,

		Open:          open,
		Probing:       probing,
		RunnableSince: n.sched.runnableSince(n.cfg.Clock.Now()),
		Stalled:       n.stall.problem(),
	}
}

// breakers counts the endpoints whose breaker is not closed.
func (s *scheduler) breakers() (open, probing int) {
	for _, e := range s.endpoints {
		switch e.breaker.state {
		case outbox.BreakerOpen:
			open++
		case outbox.BreakerProbing:
			probing++
		}
	}
	return open, probing
}

// runnableSince returns when the oldest delivery became due that could start now but for this
// node's own bounds, or that nobody has read yet although its endpoint could take it.
func (s *scheduler) runnableSince(now time.Time) time.Time {
	var oldest time.Time
	if s.stopped {
		return oldest // the operator holds everything
	}
	since := func(at time.Time) {
		if !at.After(now) && (oldest.IsZero() || at.Before(oldest)) {
			oldest = at
		}
	}
	for _, t := range s.queue.waiting {
		for _, e := range t.endpoints.waiting {
			if l := e.nextLane(); l != nil {
				since(l.oldest().due.NextAt)
			}
		}
	}
	for _, l := range s.wakes {
		e := l.endpoint
		if len(l.ready) == 0 && e.breaker.may() && !e.held() && e.inFlight < e.slots() && e.tenant.inFlight < e.tenant.cap && !e.nextAt(s.clock()).After(s.clock()) {
			since(l.readAt)
		}
	}
	return oldest
}

// Problem says why a node that has run for the given time is not ready, "" if it is. A node
// without shards is ready: another may have them all. One that has had neither a heartbeat nor a
// result recorded for a while, though it should, is not.
func (s Status) Problem(running time.Duration) string {
	const patience = 15 * time.Second
	switch {
	case s.Draining:
		return "draining"
	case s.BeatAge > patience && running > patience:
		return fmt.Sprintf("no heartbeat for %d s: the database does not answer", int(s.BeatAge.Seconds()))
	case s.Unrecorded >= maxUnrecorded:
		return fmt.Sprintf("stalled: %d results wait to be recorded", s.Unrecorded)
	case s.Stalled != "":
		return s.Stalled
	}
	return ""
}

// Poke makes the node look into the outbox now: this process has just written to it.
func (n *Node) Poke() { wake(n.pollNow) }
