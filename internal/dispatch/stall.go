package dispatch

import (
	"fmt"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// stallAfter is for how long work may be there and nothing be done about it. Attempts end within
// 30 s and routing takes milliseconds; what stands still for longer than a takeover takes does not
// come back by itself.
const stallAfter = 15 * time.Second

// stall notes how long work has been there without any of it being done. Publishing goes on while
// the dispatcher stands still, so without it a server that sends nothing would say that it is well.
type stall struct {
	routed, started           int64     // batches routed and attempts started, ever
	sawRouted, sawStarted     int64     // of the look before
	routeIdleAt, startIdleAt  time.Time // monotonic: when it last moved, or had nothing to do
	routeStands, startsStands time.Duration
}

// look compares with the look before. queued are outbox rows that wait in memory, runnable tenants
// that could be served now.
func (s *stall) look(now time.Time, queued, runnable int) {
	if queued == 0 || s.routed != s.sawRouted || s.routeIdleAt.IsZero() {
		s.routeIdleAt = now
	}
	if runnable == 0 || s.started != s.sawStarted || s.startIdleAt.IsZero() {
		s.startIdleAt = now
	}
	s.sawRouted, s.sawStarted = s.routed, s.started
	s.routeStands, s.startsStands = now.Sub(s.routeIdleAt), now.Sub(s.startIdleAt)
}

// problem says what stands still, "" if nothing does.
func (s *stall) problem() string {
	switch {
	case s.routeStands > stallAfter:
		return fmt.Sprintf("stalled: accepted events wait and none was routed for %d s", int(s.routeStands.Seconds()))
	case s.startsStands > stallAfter:
		return fmt.Sprintf("stalled: deliveries are due and none was tried for %d s", int(s.startsStands.Seconds()))
	}
	return ""
}

// lookForStall is called at every heartbeat.
func (n *Node) lookForStall(now time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	runnable := n.sched.queue.len()
	if n.sched.paused || n.sched.stopped || n.sched.running >= n.sched.inFlight {
		runnable = 0 // that nothing starts is meant
	}
	n.stall.started = n.sched.begun
	n.stall.look(now, n.queue.Len(), runnable)
}

// Begun returns how many attempts were started so far, and how long the oldest of those that could
// run now has waited.
func (n *Node) Begun() (attempts int64, oldest time.Duration) {
	now := n.cfg.Clock.Now()
	n.mu.Lock()
	defer n.mu.Unlock()
	if since := n.sched.runnableSince(now); !since.IsZero() {
		oldest = now.Sub(since)
	}
	return n.sched.begun, oldest
}

// Others returns the shards that are not this node's, none if it has them all.
func (n *Node) Others() []outbox.Shard {
	n.mu.Lock()
	defer n.mu.Unlock()
	var others []outbox.Shard
	for i := range outbox.Shards {
		if _, mine := n.lease.Epochs[outbox.Shard(i)]; !mine {
			others = append(others, outbox.Shard(i))
		}
	}
	return others
}

// Progress is what tells an outbox that is worked on from one that is not.
type Progress struct {
	Shards []outbox.Shard // owned, and not handled carefully
	Routed int64          // transactions that took rows of the outbox so far
}

// Progress returns how far the node has come.
func (n *Node) Progress() Progress {
	n.mu.Lock()
	defer n.mu.Unlock()
	p := Progress{Routed: n.stall.routed}
	for shard := range n.lease.Epochs {
		if until, careful := n.careful[shard]; !careful || time.Now().After(until) {
			p.Shards = append(p.Shards, shard)
		}
	}
	return p
}
