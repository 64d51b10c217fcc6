package outboxtest

import (
	"errors"
	"maps"
	"sync"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

var fences = topic{"fences", []promise{
	{"a node that lost a shard starts nothing there and writes nothing", lostShardStartsNothing},
	{"a node that released a shard starts nothing there", releasedShardStartsNothing},
	{"a shard that is not in the lease is somebody else's", shardOutsideLease},
	{"one lost shard among several refuses the whole call", oneLostShard},
	{"while shards change hands every event is routed once", routeDuringTakeovers},
}}

// startable is work of every kind that needs the lease, all in one shard, and a delivery that is
// pending there.
type startable struct {
	plans   []outbox.Plan
	next    map[outbox.EndpointID]int64
	replay  outbox.OutboxRow
	command outbox.OutboxRow
	pending outbox.Delivery
}

func (w *world) everyWork() startable {
	w.Helper()
	acme := w.tenant("acme")
	e := w.endpoint(acme, "*")
	dead, pending := w.planned(e, "a.b"), w.planned(e, "a.b")
	w.finish(w.refused(dead))
	w.publishOne(acme, "a.b", `{}`)
	_, err := w.store.RequestReplay(w.ctx, acme.TenantRef, dead.ID)
	w.must(err)
	_, err = w.store.EditEndpoint(w.ctx, acme.TenantRef, outbox.EndpointRef{ID: e.ID}, w.now, func(*outbox.Endpoint) ([]outbox.Command, error) {
		return []outbox.Command{{Name: outbox.CommandCancelEndpoint}}, nil
	})
	w.must(err)
	rows := w.source(w.outbox())
	plans, next := w.plan(rows)
	return startable{plans, next, rows[1], rows[2], pending}
}

// start tries each kind of work under the lease and returns the errors by kind.
func (w *world) start(lease outbox.Lease, s startable) map[string]error {
	_, routeErr := w.store.Route(w.ctx, lease, s.plans, s.next, w.now)
	_, replayErr := w.store.Replay(w.ctx, lease, []outbox.OutboxRow{s.replay}, w.now)
	_, _, cancelErr := w.store.Cancel(w.ctx, lease, s.command, 10, w.now)
	_, expireErr := w.store.Expire(w.ctx, lease, w.now.AddDate(1, 0, 0), 10, w.now)
	return map[string]error{"route": routeErr, "replay": replayErr, "cancel": cancelErr, "expire": expireErr}
}

// fenced checks that nothing can be started under the lease, and that nothing was written.
func (w *world) fenced(what string, lease outbox.Lease, s startable) {
	w.Helper()
	before := w.verify()
	for kind, err := range w.start(lease, s) {
		if !errors.Is(err, outbox.ErrFenced) {
			w.Errorf("%s: %s: %v, want fenced", what, kind, err)
		}
	}
	after := w.verify()
	before.At, after.At = w.now, w.now
	w.equal(what+": the books", after, before)
	w.waiting(3)
}

func lostShardStartsNothing(w *world) {
	work := w.everyWork()
	lost := w.lease
	w.lease = w.takeAll(w.join())
	w.fenced("another node took it", lost, work)
	forged := outbox.Lease{Node: w.lease.Node, Epochs: lost.Epochs, Revisions: lost.Revisions}
	w.fenced("the right node with an old epoch", forged, work)
	forged = outbox.Lease{Node: lost.Node, Epochs: w.lease.Epochs, Revisions: lost.Revisions}
	w.fenced("the wrong node with the right epoch", forged, work)
	// Results are facts: no lease is needed for them.
	w.finish(w.delivered(work.pending))
	w.equal("delivered", w.verify().Delivered, int64(1))
}

func releasedShardStartsNothing(w *world) {
	work := w.everyWork()
	w.must(w.store.Release(w.ctx, w.lease, nil))
	w.fenced("released", w.lease, work)
}

func shardOutsideLease(w *world) {
	work := w.everyWork()
	lease := outbox.Lease{Node: w.lease.Node, Epochs: maps.Clone(w.lease.Epochs), Revisions: w.lease.Revisions}
	delete(lease.Epochs, work.plans[0].Row.Shard)
	before := w.verify().Pending
	for kind, err := range w.start(lease, work) {
		if kind == "expire" {
			w.must(err) // it works on the shards of the lease
		} else if !errors.Is(err, outbox.ErrFenced) {
			w.Errorf("%s: %v, want fenced", kind, err)
		}
	}
	w.equal("pending", w.verify().Pending, before)
	w.waiting(3)
}

func oneLostShard(w *world) {
	acme, globex := w.strangers("acme")
	mine, lost := w.endpoint(acme, "*"), w.endpoint(globex, "*")
	dead, lostDead := w.planned(mine, "a.b"), w.planned(lost, "a.b")
	w.finish(w.refused(dead), w.refused(lostDead))
	w.ask(dead, outbox.StateDead)
	w.ask(lostDead, outbox.StateDead)
	w.publishOne(acme, "a.b", `{}`)
	w.publishOne(globex, "a.b", `{}`)
	rows := w.source(w.outbox())
	plans, next := w.plan(rows)

	thief := w.join()
	w.take(thief, w.shards(thief)[globex.Shard])
	before := w.verify()
	if _, err := w.store.Route(w.ctx, w.lease, plans, next, w.now); !errors.Is(err, outbox.ErrFenced) {
		w.Errorf("route: %v, want fenced", err)
	}
	if _, err := w.store.Replay(w.ctx, w.lease, rows[:2], w.now); !errors.Is(err, outbox.ErrFenced) {
		w.Errorf("replay: %v, want fenced", err)
	}
	if _, err := w.store.Expire(w.ctx, w.lease, w.now.Add(time.Hour), 10, w.now); !errors.Is(err, outbox.ErrFenced) {
		w.Errorf("expire: %v, want fenced", err)
	}
	after := w.verify()
	before.At, after.At = w.now, w.now
	w.equal("the books", after, before)
	w.waiting(4)
	w.equal("next", w.next(mine), int64(2))
}

func routeDuringTakeovers(w *world) {
	acme := w.tenant("acme")
	e := w.endpoint(acme, "*")
	const owners, count = 4, 200
	var batch []outbox.NewEvent
	for range count {
		batch = append(batch, w.event(acme, "a.b", `{}`))
	}
	w.publish(batch...)

	// Every owner routes ten events at a time; whenever it is fenced it takes the shard back.
	work := func() error {
		node := outbox.NewNodeID(w.now)
		if err := w.store.Join(w.ctx, node, w.now); err != nil {
			return err
		}
		for {
			beat, err := w.store.Beat(w.ctx, node, false)
			if err != nil {
				return err
			}
			lease, _, err := w.store.Take(w.ctx, node, beat.Shards)
			if err != nil && outbox.FaultOf(err) != outbox.FaultRetry && outbox.FaultOf(err) != outbox.FaultLocked {
				return err
			}
			if done, err := w.routeSome(lease, acme, e); done || err != nil {
				return err
			}
		}
	}
	errs := make([]error, owners)
	var group sync.WaitGroup
	for i := range owners {
		group.Go(func() { errs[i] = work() })
	}
	group.Wait()
	w.must(errors.Join(errs...))
	w.equal("pending", len(w.pending(e, outbox.LaneLive)), count)
	seen := map[int64]bool{}
	for _, d := range w.pending(e, outbox.LaneLive) {
		if seen[d.Sequence] || d.Sequence < 1 || d.Sequence > count {
			w.Errorf("number %d is given twice or out of range", d.Sequence)
		}
		seen[d.Sequence] = true
	}
	w.verify()
}

// routeSome routes ten events at a time until the outbox is empty (done) or the shard is lost.
func (w *world) routeSome(lease outbox.Lease, tenant outbox.Tenant, e outbox.Endpoint) (done bool, err error) {
	shards := []outbox.Shard{tenant.Shard}
	config, err := w.store.LoadConfig(w.ctx, shards)
	if err != nil {
		return false, err
	}
	lease.Revisions = config.Revisions
	for {
		rows, err := w.store.ReadOutbox(w.ctx, shards, []int64{0}, 10)
		if err != nil || len(rows) == 0 {
			return len(rows) == 0, err
		}
		if err := w.store.ReadEvents(w.ctx, rows, 0); err != nil {
			return false, err
		}
		next, err := w.store.NextSequences(w.ctx, map[outbox.EndpointID]outbox.Shard{e.ID: tenant.Shard})
		if err != nil {
			return false, err
		}
		var plans []outbox.Plan
		for _, row := range rows {
			plans = append(plans, outbox.Plan{Row: row, Last: true, Matched: true, Deliveries: []outbox.Delivery{w.delivery(row, e, next[e.ID])}})
			next[e.ID]++
		}
		_, err = w.store.Route(w.ctx, lease, plans, next, w.now)
		switch fault := outbox.FaultOf(err); {
		case errors.Is(err, outbox.ErrFenced), err != nil && (fault == outbox.FaultRetry || fault == outbox.FaultLocked):
			return false, nil
		case err != nil:
			return false, err
		}
	}
}
