package dispatch

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
	"github.com/waybill-dev/waybill/internal/signing"
)

// beatLoop beats each second. A failed beat costs nothing by itself: the node works on until the
// lease that its last success bought is over.
func (n *Node) beatLoop(ctx context.Context) {
	heads := time.NewTicker(time.Minute)
	defer heads.Stop()
	failing := false
	for {
		err := n.beat(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil && !failing:
			n.cfg.Log.WarnContext(ctx, "heartbeat failed", "error", err)
		case err == nil && failing:
			n.cfg.Log.InfoContext(ctx, "heartbeat is back")
		}
		failing = err != nil
		select {
		case <-heads.C:
			n.report(ctx, "heads", n.readHeads(ctx, n.Shards()))
		default:
		}
		timer := time.NewTimer(min(beatEvery, n.nextLook()))
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-n.beatNow:
		}
		timer.Stop()
		if ctx.Err() != nil {
			return
		}
	}
}

// nextLook is how long to wait for the moment at which somebody's beat has stood still too long.
func (n *Node) nextLook() time.Duration {
	n.beating.Lock()
	defer n.beating.Unlock()
	return n.watcher.nextLook(time.Now())
}

// beat beats once and acts on what it learns.
func (n *Node) beat(ctx context.Context) error {
	n.beating.Lock()
	defer n.beating.Unlock()
	within, cancel := context.WithTimeout(ctx, leaseFor-beatEvery)
	defer cancel()
	sent := time.Now()
	n.mu.Lock()
	draining := n.draining
	n.mu.Unlock()
	b, err := n.cfg.Store.Beat(within, n.id, draining)
	if err != nil {
		return err
	}
	got := time.Now()
	at := sent.Add(got.Sub(sent) / 2)
	expected := n.cfg.Clock.Now().Add(-time.Since(at))
	n.mu.Lock()
	n.sched.setback.note(b.Now, expected, got)
	n.cfg.Clock.Set(b.Now, at)
	n.mu.Unlock()
	n.watcher.observe(b, got)
	n.lookForStall(got)

	n.mu.Lock()
	gone := lost(b, n.lease)
	n.mu.Unlock()
	n.dropShards(gone)
	n.tenure.extend(sent)
	n.mu.Lock()
	n.lastBeat = got
	draining = n.draining // it may have been asked to stop meanwhile
	resumed := (n.sched.paused || n.sched.stopped) && !draining && !b.Dispatch.Paused
	n.sched.paused, n.sched.stopped = draining, b.Dispatch.Paused
	lease := n.lease
	n.mu.Unlock()
	if resumed {
		n.start()
	}
	if _, may := n.tenure.current(); draining || !may {
		return nil // an answer this old says nothing about who owns what now
	}
	if claims := n.watcher.claims(b, lease, sent, n.cfg.Exclusive); len(claims) > 0 {
		if err := n.take(within, claims); err != nil {
			return err
		}
	} else if surplus := n.watcher.surplus(b, n.id, sent); len(surplus) > 0 && !n.cfg.Exclusive {
		n.release(surplus)
		n.cfg.Wake.Wake(outbox.Wakeup{Nodes: true})
	}
	if err := n.settleIn(within); err != nil {
		return err
	}
	for _, dead := range n.watcher.dead(b, sent) {
		if err := n.cfg.Store.Leave(within, dead); err != nil {
			return err
		}
	}
	return n.reloadChanged(within, b.Revisions)
}

// take makes the node the owner of shards. Nothing is sent for them before settleIn.
func (n *Node) take(ctx context.Context, claims []outbox.ShardState) error {
	// Before taking, so that no shard is ever worked on in ignorance of them. What a dead owner
	// still writes down after this it does not attempt any more: its lease is over.
	suspects, err := n.cfg.Store.Suspects(ctx, shardsOf(claims))
	if err != nil {
		return err
	}
	got, held, err := n.cfg.Store.Take(ctx, n.id, claims)
	if err != nil || len(got.Epochs) == 0 {
		return err
	}
	n.mu.Lock()
	n.lease = n.lease.With(got.Epochs)
	n.beware(claims, got, held, suspects, time.Now())
	careful := len(n.careful)
	for s := range got.Epochs {
		n.sched.arriving[s] = held[s]
	}
	n.mu.Unlock()
	n.cfg.Log.InfoContext(ctx, "took shards", "count", len(got.Epochs), "careful", careful, "suspects", len(suspects))
	wake(n.suspectNow)
	wake(n.sweepNow)
	return nil
}

// settleIn starts work for shards that were taken: it reads their configuration, what is known of
// their endpoints, and where their pending deliveries begin. Where that fails the next beat tries
// again, and they wait: a delivery whose endpoint has not been read yet would look like one whose
// endpoint is deleted, and a cap is not kept by somebody who does not know what is in flight.
func (n *Node) settleIn(ctx context.Context) error {
	n.mu.Lock()
	shards := slices.Sorted(maps.Keys(n.sched.arriving))
	n.mu.Unlock()
	if len(shards) == 0 {
		return nil
	}
	if err := n.load(ctx, shards); err != nil {
		return err
	}
	if err := n.loadHealth(ctx, shards); err != nil {
		return err
	}
	if err := n.readHeads(ctx, shards); err != nil {
		return err
	}
	if err := n.loadJobs(ctx, shards); err != nil {
		return err
	}
	n.arrived(shards)
	return nil
}

func (n *Node) readHeads(ctx context.Context, shards []outbox.Shard) error {
	if len(shards) == 0 {
		return nil
	}
	heads, err := n.cfg.Store.Heads(ctx, shards)
	if err != nil {
		return err
	}
	n.mu.Lock()
	owned := heads[:0]
	for _, h := range heads {
		if _, mine := n.lease.Epochs[h.Shard]; mine {
			owned = append(owned, h)
		}
	}
	n.sched.heads(owned)
	n.mu.Unlock()
	wake(n.fetchNow)
	return nil
}

// catchUp reloads those of the shards whose configuration has changed since it was read. Who asks
// for something after a change means it to be done by that change, not by what the last heartbeat
// knew.
func (n *Node) catchUp(ctx context.Context, shards []outbox.Shard) error {
	revisions, err := n.cfg.Store.Revisions(ctx, shards)
	if err != nil {
		return err
	}
	return n.reloadChanged(ctx, revisions)
}

// reloadChanged reloads those of the node's shards that are at another of the given revisions.
func (n *Node) reloadChanged(ctx context.Context, revisions map[outbox.Shard]int64) error {
	n.mu.Lock()
	var changed []outbox.Shard
	for s, revision := range revisions {
		_, mine := n.lease.Epochs[s]
		if have, ok := n.lease.Revisions[s]; mine && (!ok || have != revision) {
			changed = append(changed, s)
		}
	}
	n.mu.Unlock()
	if len(changed) == 0 {
		return nil
	}
	return n.load(ctx, changed)
}

// load reads the configuration of shards and works by it from now on.
func (n *Node) load(ctx context.Context, shards []outbox.Shard) error {
	c, err := n.cfg.Store.LoadConfig(ctx, shards)
	if err != nil {
		return err
	}
	set := make(map[outbox.Shard]bool, len(shards))
	for _, s := range shards {
		set[s] = true
	}
	n.mu.Lock()
	for s := range set {
		// Another load may have been faster, or the shard given up meanwhile.
		_, mine := n.lease.Epochs[s]
		if have, ok := n.lease.Revisions[s]; !mine || ok && have > c.Revisions[s] {
			delete(set, s)
		}
	}
	c.Tenants = slices.DeleteFunc(c.Tenants, func(t outbox.Tenant) bool { return !set[t.Shard] })
	c.Endpoints = slices.DeleteFunc(c.Endpoints, func(e outbox.Endpoint) bool { return !set[e.Tenant.Shard] })
	tenants := n.directory.replace(set, c)
	targets := prepare(n.cfg.Sender, signing.NewBook(c.Schemes), c.Endpoints, tenants, n.cfg.Retry)
	left := n.sched.configure(set, tenants, targets)
	revisions := maps.Clone(n.lease.Revisions)
	for s := range set {
		revisions[s] = c.Revisions[s]
	}
	n.lease.Revisions = revisions
	for _, row := range c.Unordered {
		if set[row.Shard] {
			n.unordered[row.Endpoint] = row
		}
	}
	n.mu.Unlock()
	wake(n.orderNow)
	for _, id := range left {
		n.cfg.Left(id)
	}
	wake(n.fetchNow)
	n.start()
	return nil
}

// dropShards stops work for shards the node no longer owns. What is in flight there runs on: the
// context of every attempt ends with the lease anyway, and results are facts.
func (n *Node) dropShards(gone map[outbox.Shard]bool) []*work {
	if len(gone) == 0 {
		return nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lease = n.lease.Without(gone)
	flying := n.sched.dropShards(gone)
	n.queue.Drop(gone)
	n.dropRows(gone)
	maps.DeleteFunc(n.careful, func(s outbox.Shard, _ time.Time) bool { return gone[s] })
	n.directory.drop(gone)
	maps.DeleteFunc(n.jobs, func(_ outbox.JobID, j *ownJob) bool { return gone[j.Tenant.Shard] })
	clear(n.numbers)
	n.cfg.Log.Info("gave up shards", "count", len(gone), "in_flight", len(flying))
	return flying
}

// release gives shards up to whoever takes them next, with the list of what is in flight, so that
// the next owner starts at once and leaves those deliveries alone.
func (n *Node) release(shards []outbox.Shard) {
	if len(shards) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	n.mu.Lock()
	lease := n.lease.Only(shards)
	n.mu.Unlock()
	gone := make(map[outbox.Shard]bool, len(shards))
	for _, s := range shards {
		gone[s] = true
	}
	if err := n.bequeath(ctx, lease, gone); err != nil {
		n.cfg.Log.WarnContext(ctx, "cannot write down how endpoints of released shards stand", "error", err)
	}
	// Forget first: nothing may be routed or fetched for a shard while it changes hands.
	flying := n.dropShards(gone)
	held := map[outbox.Shard][]outbox.HeldSlot{}
	now := n.cfg.Clock.Now()
	for _, w := range flying {
		slot := outbox.HeldSlot{Delivery: w.due.ID, Endpoint: w.due.Endpoint, Tenant: w.due.Tenant, Attempt: w.due.Attempt, Began: w.began}
		if !w.held {
			slot.Began = now.Add(-time.Since(w.started) - beganMargin)
		}
		switch {
		case w.given: // no result will tell the next owner that its slot is free
		case w.held: // it is still the attempt of whoever had the shard before
			slot.Left = max(0, time.Until(w.until))
		case w.target != nil:
			slot.Left = w.target.endpoint.Timeout + resultMargin
		default:
			slot.Left = outbox.MaxTimeout + resultMargin
		}
		slot.Deadline = now.Add(slot.Left)
		held[w.due.Shard] = append(held[w.due.Shard], slot)
	}
	if err := n.cfg.Store.Release(ctx, lease, held); err != nil {
		n.cfg.Log.WarnContext(ctx, "cannot release shards; they are taken once the heartbeat stands still", "error", err)
	}
}

// resultMargin is how long after an attempt's own deadline its result may take to be recorded.
const resultMargin = 2 * time.Second

// beganMargin is how much earlier than an attempt was counted as begun its record may say it was:
// both are judged by the database's time as the node keeps it, which a heartbeat moves a little. It
// is far less than it takes until another node may try the same delivery.
const beganMargin = time.Second

// Shards returns the shards the node owns now.
func (n *Node) Shards() []outbox.Shard {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Sorted(maps.Keys(n.lease.Epochs))
}
