package dispatch

import (
	"testing"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// cluster is what heartbeats see, built by hand.
type cluster struct {
	beats  map[outbox.NodeID]int64
	drain  map[outbox.NodeID]bool
	owners [outbox.Shards]outbox.NodeID
}

func (c *cluster) beat() outbox.Beat {
	var b outbox.Beat
	for id, n := range c.beats {
		b.Nodes = append(b.Nodes, outbox.NodeBeat{Node: id, Beat: n, Draining: c.drain[id]})
	}
	for s, owner := range c.owners {
		b.Shards = append(b.Shards, outbox.ShardState{Shard: outbox.Shard(s), Node: owner})
	}
	return b
}

// holding is the lease of a node that knows all the rows say it has.
func holding(c *cluster, me outbox.NodeID) outbox.Lease {
	lease := outbox.Lease{Node: me, Epochs: map[outbox.Shard]int64{}}
	for s, owner := range c.owners {
		if owner == me {
			lease.Epochs[outbox.Shard(s)] = 0
		}
	}
	return lease
}

// Two that find the same dead owner in the same second must not ask for the same shards: the
// loser would wait for its next beat.
func TestWatcher_takersDivideADeadOwnersShards(t *testing.T) {
	dead := outbox.NewNodeID(start)
	takers := []outbox.NodeID{outbox.NewNodeID(start), outbox.NewNodeID(start), outbox.NewNodeID(start)}
	c := &cluster{beats: map[outbox.NodeID]int64{dead: 1}}
	for _, id := range takers {
		c.beats[id] = 1
	}
	all := append(takers, dead)
	for i := range c.owners {
		c.owners[i] = all[i%len(all)]
	}
	claimed := map[outbox.Shard]int{}
	for _, id := range takers {
		var w watcher
		w.observe(c.beat(), start)
		later := c.beat()
		for i := range later.Nodes {
			if later.Nodes[i].Node != dead {
				later.Nodes[i].Beat++
			}
		}
		w.observe(later, start.Add(standstill))
		for _, s := range w.claims(later, holding(c, id), start.Add(standstill), false) {
			claimed[s.Shard]++
		}
	}
	for s, times := range claimed {
		if times > 1 {
			t.Errorf("shard %d is claimed by %d takers", s, times)
		}
	}
	if len(claimed) != outbox.Shards/4 {
		t.Errorf("%d shards of a dead owner of %d are claimed", len(claimed), outbox.Shards/4)
	}
}

// The commit that took a shard may be applied and not answered, and the one that releases it may
// fail: then the row names this node, and only this node can put that right.
func TestWatcher_claimsWhatIsItsOwnAndItDoesNotHold(t *testing.T) {
	me := outbox.NewNodeID(start)
	c := &cluster{beats: map[outbox.NodeID]int64{me: 1}}
	for i := range c.owners {
		c.owners[i] = me
	}
	lease := holding(c, me)
	delete(lease.Epochs, 7)
	var w watcher
	w.observe(c.beat(), start)
	if claims := w.claims(c.beat(), lease, start, false); len(claims) != 1 || claims[0].Shard != 7 {
		t.Errorf("claims %v, want shard 7", claims)
	}
}

// A process frozen for a while between sending its heartbeat and reading the answer has watched
// nobody meanwhile: the others may have beaten all the time.
func TestWatcher_frozenDuringAHeartbeatHasSeenNobodyStandStill(t *testing.T) {
	me, other := outbox.NewNodeID(start), outbox.NewNodeID(start)
	c := &cluster{beats: map[outbox.NodeID]int64{me: 1, other: 1}}
	for i := range c.owners {
		c.owners[i] = other
	}
	var w watcher
	w.observe(c.beat(), start)
	sent := start.Add(time.Second)
	w.observe(c.beat(), sent.Add(12*time.Second)) // the other's beat came a little after this one
	if n := len(w.claims(c.beat(), holding(c, me), sent, false)); n != 0 {
		t.Errorf("claims %d shards of a node it has not watched", n)
	}
}

func TestWatcher_takesOnlyWhatItSawStandStill(t *testing.T) {
	me, other := outbox.NewNodeID(start), outbox.NewNodeID(start)
	c := &cluster{beats: map[outbox.NodeID]int64{me: 1, other: 1}}
	for i := range c.owners {
		c.owners[i] = other
	}
	var w watcher
	now := start
	for second := range 20 {
		c.beats[me]++
		if second < 10 {
			c.beats[other]++ // dies at second 10
		}
		w.observe(c.beat(), now)
		claims := len(w.claims(c.beat(), holding(c, me), now, false))
		// Its last beat was seen at second 9, so six seconds of standstill are over at second 15.
		if want := second >= 15; (claims > 0) != want {
			t.Fatalf("second %d: claims %d shards", second, claims)
		}
		if claims > 0 && claims != outbox.Shards {
			t.Fatalf("second %d: claims %d shards of a dead cluster, want all", second, claims)
		}
		now = now.Add(time.Second)
	}
}

func TestWatcher_ownerWithoutARowIsWatchedToo(t *testing.T) {
	me, ghost := outbox.NewNodeID(start), outbox.NewNodeID(start)
	c := &cluster{beats: map[outbox.NodeID]int64{me: 1}}
	for i := range c.owners {
		c.owners[i] = ghost
	}
	var w watcher
	w.observe(c.beat(), start)
	if n := len(w.claims(c.beat(), holding(c, me), start, false)); n != 0 {
		t.Fatalf("claims %d shards of an owner seen for the first time", n)
	}
	later := start.Add(standstill)
	w.observe(c.beat(), later)
	if n := len(w.claims(c.beat(), holding(c, me), later, false)); n != outbox.Shards {
		t.Fatalf("claims %d shards of an owner that is gone, want all", n)
	}
}

func TestWatcher_exclusiveTakesAllAtOnce(t *testing.T) {
	me, dead := outbox.NewNodeID(start), outbox.NewNodeID(start)
	c := &cluster{beats: map[outbox.NodeID]int64{me: 1, dead: 7}}
	for i := range c.owners {
		c.owners[i] = dead
	}
	var w watcher
	w.observe(c.beat(), start)
	if n := len(w.claims(c.beat(), holding(c, me), start, true)); n != outbox.Shards {
		t.Fatalf("claims %d shards, want all", n)
	}
}

// Whatever the number of nodes and whoever had the shards, a few rounds of claims and surplus
// leave nobody above its share and no shard without an owner.
func TestWatcher_nodesShareEvenly(t *testing.T) {
	for nodes := 1; nodes <= 5; nodes++ {
		c := &cluster{beats: map[outbox.NodeID]int64{}}
		var ids []outbox.NodeID
		for range nodes {
			id := outbox.NewNodeID(start)
			ids = append(ids, id)
			c.beats[id] = 1
		}
		for i := range c.owners {
			c.owners[i] = ids[0]
		}
		watchers := make([]watcher, nodes)
		now := start
		for range 10 {
			for i, id := range ids {
				c.beats[id]++
				w := &watchers[i]
				w.observe(c.beat(), now)
				for _, s := range w.claims(c.beat(), holding(c, id), now, false) {
					c.owners[s.Shard] = id
				}
				for _, s := range w.surplus(c.beat(), id, now) {
					c.owners[s] = outbox.NodeID{}
				}
			}
			now = now.Add(time.Second)
		}
		held := map[outbox.NodeID]int{}
		for _, owner := range c.owners {
			held[owner]++
		}
		if held[outbox.NodeID{}] > 0 {
			t.Errorf("%d nodes: %d shards have no owner", nodes, held[outbox.NodeID{}])
		}
		for _, id := range ids {
			if held[id] < outbox.Shards/nodes || held[id] > (outbox.Shards+nodes-1)/nodes {
				t.Errorf("%d nodes: one holds %d shards", nodes, held[id])
			}
		}
	}
}

func TestTail_startsSlackAgo(t *testing.T) {
	var tail tail
	for second := range 30 {
		tail.note(start.Add(time.Duration(second)*time.Second), int64(second*100))
		// The newest position known ten seconds ago; before that, everything.
		want := int64(max(second-10, 0) * 100)
		if got := tail.start(); got != want {
			t.Fatalf("second %d: starts at %d, want %d", second, got, want)
		}
	}
}

// Rows of nodes that were killed do not stay: a later start would divide the shards among ghosts.
func TestWatcher_deadNodesThatOwnNothingAreRemoved(t *testing.T) {
	me, ghost, owner := outbox.NewNodeID(start), outbox.NewNodeID(start), outbox.NewNodeID(start)
	c := &cluster{beats: map[outbox.NodeID]int64{me: 1, ghost: 1, owner: 1}}
	for i := range c.owners {
		c.owners[i] = owner
	}
	var w watcher
	for second := range 10 {
		c.beats[me]++ // the other two stand still
		now := start.Add(time.Duration(second) * time.Second)
		w.observe(c.beat(), now)
		dead := w.dead(c.beat(), now)
		if want := second >= 6; (len(dead) == 1 && dead[0] == ghost) != want || len(dead) > 1 {
			t.Fatalf("second %d: dead are %v; the one that owns nothing is %v", second, dead, ghost)
		}
	}
}

// A node that was away for long had its row removed, and its beats count from the start again. They
// may reach the number at which somebody else, who was away too, last saw them.
func TestWatcher_rowWrittenAgainIsNoStandstill(t *testing.T) {
	node, start := outbox.NewNodeID(time.Now()), time.Now()
	beat := func(n int64, began time.Time) outbox.Beat {
		return outbox.Beat{Nodes: []outbox.NodeBeat{{Node: node, Beat: n, StartedAt: began}}}
	}
	var w watcher
	w.observe(beat(3, start), start)
	w.observe(beat(3, start.Add(15*time.Second)), start.Add(17*time.Second))
	if w.still(node, start.Add(17*time.Second)) {
		t.Error("a node that beats again was taken for one that stands still")
	}
	w.observe(beat(3, start.Add(15*time.Second)), start.Add(24*time.Second))
	if !w.still(node, start.Add(24*time.Second)) {
		t.Error("a node whose beat stands still was not noticed")
	}
}
