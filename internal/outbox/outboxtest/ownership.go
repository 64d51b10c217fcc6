package outboxtest

import (
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

var ownership = topic{"ownership", []promise{
	{"in a new database nobody owns any of the 256 shards", freshShards},
	{"a node joins, beats and leaves", nodeLife},
	{"a shard is taken with a new epoch each time", takeBumpsEpochs},
	{"a shard is taken only in the state it was seen in", takeOnlyAsSeen},
	{"a shard is not taken from an owner that has beaten since", takeOnlyFromTheSilent},
	{"of two takers each shard has one winner", twoTakers},
	{"configuration is read by shard", configByShard},
	{"heads are the front of every endpoint and lane", heads},
}}

// shards indexes what a heartbeat says about the shards.
func (w *world) shards(node outbox.NodeID) map[outbox.Shard]outbox.ShardState {
	w.Helper()
	states := map[outbox.Shard]outbox.ShardState{}
	for _, s := range w.beat(node).Shards {
		states[s.Shard] = s
	}
	if len(states) != outbox.Shards {
		w.Fatalf("%d shards, want %d", len(states), outbox.Shards)
	}
	return states
}

func (w *world) take(node outbox.NodeID, states ...outbox.ShardState) (outbox.Lease, map[outbox.Shard][]outbox.HeldSlot) {
	w.Helper()
	lease, held, err := w.store.Take(w.ctx, node, states)
	w.must(err)
	if lease.Node != node {
		w.Errorf("the lease is for %s, want %s", lease.Node, node)
	}
	return lease, held
}

func taken(lease outbox.Lease) []outbox.Shard { return slices.Sorted(maps.Keys(lease.Epochs)) }

func freshShards(w *world) {
	for _, s := range w.shards(w.join()) {
		if !s.Node.IsZero() || !s.Released {
			w.Errorf("%+v, want nobody's and given up", s)
		}
	}
}

func nodeLife(w *world) {
	first := w.join()
	started := w.now
	w.now = w.now.Add(time.Second)
	second := w.join()
	heart := func(node outbox.NodeID, draining bool) (outbox.Beat, map[outbox.NodeID]outbox.NodeBeat) {
		w.Helper()
		before := time.Now()
		beat, err := w.store.Beat(w.ctx, node, draining)
		w.must(err)
		if beat.Now.Before(before.Add(-time.Second)) || beat.Now.After(time.Now().Add(time.Second)) {
			w.Errorf("the database's time is %v, here it is %v", beat.Now, before)
		}
		nodes := map[outbox.NodeID]outbox.NodeBeat{}
		for _, n := range beat.Nodes {
			nodes[n.Node] = n
		}
		return beat, nodes
	}
	_, one := heart(first, false)
	if len(one) != 2 {
		w.Fatalf("%d nodes, want 2", len(one))
	}
	w.equal("when the first started", one[first].StartedAt, started)
	_, two := heart(first, true)
	if two[first].Beat <= one[first].Beat {
		w.Errorf("beat %d after %d", two[first].Beat, one[first].Beat)
	}
	if two[second].Beat != one[second].Beat {
		w.Error("another node's beat moved, although it did not beat")
	}
	if !two[first].Draining || two[second].Draining {
		w.Error("draining is not told")
	}
	_, three := heart(first, false)
	if three[first].Draining {
		w.Error("still draining")
	}
	w.must(w.store.Leave(w.ctx, second))
	_, four := heart(first, false)
	if _, there := four[second]; there || len(four) != 1 {
		w.Errorf("nodes after the second left: %v", four)
	}
	w.must(w.store.Leave(w.ctx, second))
}

func takeBumpsEpochs(w *world) {
	first, second := w.join(), w.join()
	states := w.shards(first)
	lease, held := w.take(first, states[3], states[200])
	w.equal("held", held, map[outbox.Shard][]outbox.HeldSlot{})
	w.equal("taken", taken(lease), []outbox.Shard{3, 200})
	after := w.shards(second)
	for shard, s := range after {
		want := states[shard]
		if shard == 3 || shard == 200 {
			want = outbox.ShardState{Shard: shard, Node: first, Epoch: lease.Epochs[shard], Beat: 1}
			if s.Epoch <= states[shard].Epoch {
				w.Errorf("epoch %d after %d", s.Epoch, states[shard].Epoch)
			}
		}
		w.equal("state after the taking", s, want)
	}
	stolen, _ := w.take(second, after[3])
	if stolen.Epochs[3] <= lease.Epochs[3] {
		w.Errorf("epoch %d after %d", stolen.Epochs[3], lease.Epochs[3])
	}
}

func takeOnlyAsSeen(w *world) {
	first, second := w.join(), w.join()
	seen := w.shards(first)
	w.take(first, seen[1], seen[2])
	late, _ := w.take(second, seen[1], seen[2], seen[3])
	w.equal("taken by what was seen before", taken(late), []outbox.Shard{3})

	// Released and taken again by the same node looks the same but for the epoch.
	current := w.shards(first)
	lease, _ := w.take(first, current[5])
	owned := w.shards(second)[5]
	w.must(w.store.Release(w.ctx, lease, nil))
	w.take(first, w.shards(first)[5])
	again, _ := w.take(second, owned)
	w.equal("taken from an owner that came back", taken(again), []outbox.Shard{})
	none, _ := w.take(second)
	w.equal("taken of nothing", taken(none), []outbox.Shard{})
}

// A call to take may reach the database seconds after it was made. An owner that has come back
// meanwhile works on, and would not hear of it before its next beat.
func takeOnlyFromTheSilent(w *world) {
	owner, other := w.join(), w.join()
	w.take(owner, w.shards(owner)[1])
	seen := w.shards(other)[1]
	w.beat(owner)
	late, _ := w.take(other, seen)
	w.equal("taken from an owner that has beaten since", taken(late), []outbox.Shard{})
	silent, _ := w.take(other, w.shards(other)[1])
	w.equal("taken from one that has not", taken(silent), []outbox.Shard{1})

	w.must(w.store.Leave(w.ctx, other))
	gone := w.shards(owner)[1]
	w.equal("the beat of one that has no row", gone.Beat, int64(0))
	w.beat(other) // whose row somebody removed, and who is alive
	late, _ = w.take(owner, gone)
	w.equal("taken from one whose row has come back", taken(late), []outbox.Shard{})
	w.must(w.store.Leave(w.ctx, other))
	left, _ := w.take(owner, gone)
	w.equal("taken from one without a row", taken(left), []outbox.Shard{1})
}

func twoTakers(w *world) {
	const takers = 4
	nodes := make([]outbox.NodeID, takers)
	for i := range nodes {
		nodes[i] = w.join()
	}
	states := w.beat(nodes[0]).Shards
	leases := make([]outbox.Lease, takers)
	errs := make([]error, takers)
	var group sync.WaitGroup
	for i := range takers {
		mine := slices.Clone(states)
		if i%2 == 1 {
			slices.Reverse(mine) // a deadlock waiting to happen
		}
		group.Go(func() {
			errs[i] = again(func() (err error) {
				leases[i], _, err = w.store.Take(w.ctx, nodes[i], mine)
				return err
			})
		})
	}
	group.Wait()
	w.must(errors.Join(errs...))
	winner := map[outbox.Shard]outbox.NodeID{}
	for _, lease := range leases {
		for shard := range lease.Epochs {
			if other, twice := winner[shard]; twice {
				w.Errorf("shard %d was won by %s and %s", shard, other, lease.Node)
			}
			winner[shard] = lease.Node
		}
	}
	w.equal("shards won", len(winner), outbox.Shards)
	for shard, s := range w.shards(nodes[0]) {
		if s.Node != winner[shard] {
			w.Errorf("shard %d is with %s, %s won it", shard, s.Node, winner[shard])
		}
	}
}

func configByShard(w *world) {
	acme, globex := w.strangers("acme")
	mine, theirs := w.endpoint(acme, "*"), w.endpoint(globex, "*")
	for _, c := range []struct {
		shards []outbox.Shard
		want   []outbox.EndpointID
	}{
		{[]outbox.Shard{acme.Shard}, []outbox.EndpointID{mine.ID}},
		{[]outbox.Shard{globex.Shard}, []outbox.EndpointID{theirs.ID}},
		{nil, nil},
	} {
		config, err := w.store.LoadConfig(w.ctx, c.shards)
		w.must(err)
		var got []outbox.EndpointID
		for _, e := range config.Endpoints {
			got = append(got, e.ID)
		}
		w.equal("endpoints", got, c.want)
		w.equal("tenants", len(config.Tenants), len(c.shards))
	}
}

func heads(w *world) {
	acme, globex := w.strangers("acme")
	busy, theirs := w.endpoint(acme, "a.*"), w.endpoint(globex, "*")
	w.endpoint(acme, "never") // has nothing pending
	for range 3 {
		w.publishOne(acme, "a.b", `{}`)
	}
	w.publishOne(globex, "a.b", `{}`)
	routed := w.route()
	start := w.now
	var mine []outbox.Delivery
	for _, d := range routed {
		if d.Endpoint == busy.ID {
			mine = append(mine, d)
		}
	}
	head := func(e outbox.Endpoint, lane outbox.Lane, at time.Time) outbox.Head {
		return outbox.Head{Shard: e.Tenant.Shard, Endpoint: e.ID, Tenant: e.Tenant.ID, Lane: lane, NextAt: at}
	}
	check := func(what string, shards []outbox.Shard, want ...outbox.Head) {
		w.Helper()
		got, err := w.store.Heads(w.ctx, shards)
		w.must(err)
		order := func(a, b outbox.Head) int {
			return int(a.Shard)*4 + int(a.Lane) - int(b.Shard)*4 - int(b.Lane)
		}
		slices.SortFunc(got, order)
		slices.SortFunc(want, order)
		w.equal(what, got, want)
	}
	check("fresh", everyShard(), head(busy, outbox.LaneLive, start), head(theirs, outbox.LaneLive, start))
	check("one shard", []outbox.Shard{globex.Shard}, head(theirs, outbox.LaneLive, start))

	w.finish(w.delivered(mine[0]), w.failed(mine[1]))
	check("one left, one later", []outbox.Shard{acme.Shard}, head(busy, outbox.LaneLive, start))
	w.finish(w.failed(mine[2]))
	check("all later", []outbox.Shard{acme.Shard}, head(busy, outbox.LaneLive, start.Add(time.Minute)))
	w.now = w.now.Add(time.Second)
	w.replay(mine[0])
	check("a replay", []outbox.Shard{acme.Shard}, head(busy, outbox.LaneLive, start.Add(time.Minute)), head(busy, outbox.LaneReplay, w.now))
}
