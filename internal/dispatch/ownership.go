package dispatch

import (
	"bytes"
	"slices"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

const (
	// beatEvery is the pace of heartbeats.
	beatEvery = time.Second
	// leaseFor is how long after its last successful heartbeat was sent a node may start or
	// continue attempts.
	leaseFor = 4 * time.Second
	// standstill is how long a taker must itself have watched an owner's beat stand still.
	// It is longer than leaseFor by the time a lost node's statements may still run, so that
	// the old owner has stopped before the new one starts.
	standstill = 6 * time.Second
)

// watcher watches other nodes' beats on this process's monotonic clock. No time is compared that
// another machine wrote: a wall clock stepped by two hours expires or freezes no lease.
type watcher struct {
	seen map[outbox.NodeID]watched
}

type watched struct {
	beat  int64
	began time.Time // of its row: one that was removed and is written again counts from the start
	since time.Time
}

// noRow stands for the beat of an owner that has no node row.
const noRow = -1

// observe notes what a heartbeat has read. now is when its answer came; what follows from it is
// judged by when it was sent (claims, surplus): a process that was frozen between the two has not
// watched anybody meanwhile.
func (w *watcher) observe(b outbox.Beat, now time.Time) {
	current := map[outbox.NodeID]watched{}
	for _, s := range b.Shards {
		if !s.Node.IsZero() {
			current[s.Node] = watched{beat: noRow, since: now}
		}
	}
	for _, n := range b.Nodes {
		current[n.Node] = watched{n.Beat, n.StartedAt, now}
	}
	next := make(map[outbox.NodeID]watched, len(current))
	for node, beat := range current {
		if last, ok := w.seen[node]; ok && last.beat == beat.beat && last.began.Equal(beat.began) {
			next[node] = last
		} else {
			next[node] = beat
		}
	}
	w.seen = next
}

// still reports whether the node's beat has stood still for long enough to take its shards.
func (w *watcher) still(node outbox.NodeID, now time.Time) bool {
	last, ok := w.seen[node]
	return ok && now.Sub(last.since) >= standstill
}

// shares is how many shards each of the living that do not drain should hold, in order of their
// ids. Everyone works out the same, so they add up to every shard exactly.
func (w *watcher) shares(b outbox.Beat, me outbox.NodeID, now time.Time) []share {
	var shares []share
	for _, n := range b.Nodes {
		if n.Node == me || !n.Draining && !w.still(n.Node, now) {
			shares = append(shares, share{node: n.Node})
		}
	}
	slices.SortFunc(shares, func(a, b share) int { return bytes.Compare(a.node[:], b.node[:]) })
	for i := range shares {
		shares[i].size = len(b.Shards) / len(shares)
		if i < len(b.Shards)%len(shares) {
			shares[i].size++
		}
	}
	return shares
}

type share struct {
	node outbox.NodeID
	size int
}

// claims says which shards the node should take: those nobody has, and those whose owner stands
// still, up to its share. Exclusive means that no other process can be running on the store (the
// file is locked), so whoever the rows name is gone.
//
// A shard that the rows say is the node's own and its lease does not know, because the commit
// that took it was not answered or the one that released it failed, is claimed too: nobody else
// will while this node lives.
func (w *watcher) claims(b outbox.Beat, lease outbox.Lease, now time.Time, exclusive bool) []outbox.ShardState {
	me := lease.Node
	var free, claims []outbox.ShardState
	for _, s := range b.Shards {
		_, known := lease.Epochs[s.Shard]
		switch {
		case s.Node == me && known:
		case s.Node == me:
			claims = append(claims, s)
		case s.Node.IsZero(), exclusive, w.still(s.Node, now):
			free = append(free, s)
		}
	}
	if exclusive {
		return append(claims, free...)
	}
	// Those who see the same free shards divide them among themselves, in the order of their ids:
	// two that ask for one shard cost the loser a second.
	counts := map[outbox.NodeID]int{}
	for _, s := range b.Shards {
		counts[s.Node]++
	}
	for _, s := range w.shares(b, me, now) {
		wants := max(s.size-counts[s.node], 0)
		if s.node == me {
			return append(claims, free[:min(wants, len(free))]...)
		}
		free = free[min(wants, len(free)):]
	}
	return claims
}

// surplus says which of its shards a node should hand over because others have too few.
func (w *watcher) surplus(b outbox.Beat, me outbox.NodeID, now time.Time) []outbox.Shard {
	var mine []outbox.Shard
	for _, s := range b.Shards {
		if s.Node == me {
			mine = append(mine, s.Shard)
		}
	}
	slices.Sort(mine)
	for _, s := range w.shares(b, me, now) {
		if s.node == me {
			return mine[:max(len(mine)-s.size, 0)]
		}
	}
	return nil
}

// dead returns the nodes whose beat has stood still and that own nothing any more. Their rows are
// removed, or every later start would count them as living until it had watched them for itself.
// A node that was only frozen writes its row again with its next beat.
func (w *watcher) dead(b outbox.Beat, now time.Time) []outbox.NodeID {
	owns := map[outbox.NodeID]bool{}
	for _, s := range b.Shards {
		owns[s.Node] = true
	}
	var dead []outbox.NodeID
	for _, n := range b.Nodes {
		if !owns[n.Node] && w.still(n.Node, now) {
			dead = append(dead, n.Node)
		}
	}
	return dead
}

// nextLook says how long after now the first of the nodes that may be dead will have stood still
// for long enough. A look at that moment finds it, not one up to a whole beat later.
func (w *watcher) nextLook(now time.Time) time.Duration {
	wait := standstill
	for _, last := range w.seen {
		if left := standstill - now.Sub(last.since); left > 0 {
			wait = min(wait, left)
		}
	}
	return wait
}

// lost says which shards of the lease the database no longer counts as the node's.
func lost(b outbox.Beat, lease outbox.Lease) map[outbox.Shard]bool {
	gone := map[outbox.Shard]bool{}
	for s := range lease.Epochs {
		gone[s] = true
	}
	for _, s := range b.Shards {
		if epoch, ok := lease.Epochs[s.Shard]; ok && s.Node == lease.Node && s.Epoch == epoch {
			delete(gone, s.Shard)
		}
	}
	return gone
}
