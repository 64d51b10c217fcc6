package dispatch

import (
	"context"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// heldEvery is how often the node asks what became of attempts that others left in flight. A
// healthy customer's slots are all held for the moment after a hand-over.
const heldEvery = 100 * time.Millisecond

// arrived starts work for shards that were taken, now that their configuration and the state of
// their endpoints are known. First everything in flight is counted, whoever sent it: a cap is a cap
// whoever uses it up.
func (n *Node) arrived(shards []outbox.Shard) {
	now, clock := time.Now(), n.cfg.Clock.Now()
	n.mu.Lock()
	held := n.sched.arrived(shards, func(slot outbox.HeldSlot) time.Time {
		left := slot.Left
		if left == 0 {
			left = slot.Deadline.Sub(clock)
		}
		return now.Add(min(left, outbox.MaxTimeout+resultMargin)) // on the monotonic clock from now on
	})
	n.held = append(n.held, held...)
	n.mu.Unlock()
	if len(held) > 0 {
		wake(n.heldNow)
	}
	wake(n.fetchNow)
	n.start()
}

// heldWork is another node's attempt.
type heldWork struct {
	work *work
	slot outbox.HeldSlot
}

// heldLoop frees the slots of held attempts that have ended.
func (n *Node) heldLoop(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-n.heldNow:
		}
		for n.lookAfterHeld(ctx) {
			if !sleep(ctx, heldEvery) {
				return
			}
		}
	}
}

// lookAfterHeld frees the slots of held attempts that have ended, and reports whether others have
// not. The database says so: the result of each is recorded. That its delivery is gone would not do,
// it may have been cancelled under way; nor that it counts more attempts, which a late result of
// whoever had the shard before may have brought.
func (n *Node) lookAfterHeld(ctx context.Context) bool {
	n.mu.Lock()
	held := n.held
	n.mu.Unlock()
	if len(held) == 0 {
		return false
	}
	shards, slots := make([]outbox.Shard, len(held)), make([]outbox.HeldSlot, len(held))
	for i, h := range held {
		shards[i], slots[i] = h.work.due.Shard, h.slot
	}
	recorded, err := n.cfg.Store.Recorded(ctx, shards, slots)
	n.report(ctx, "held attempts", err)
	now := time.Now()
	n.mu.Lock()
	var still []heldWork
	for i, h := range n.held {
		ended := now.After(h.work.until)
		if err == nil && i < len(held) { // those held since then were not asked for
			ended = ended || recorded[h.slot.Delivery]
		}
		if ended {
			n.sched.unhold(h.work)
		} else {
			still = append(still, h)
		}
	}
	n.held = still
	n.mu.Unlock()
	wake(n.fetchNow)
	n.start()
	return len(still) > 0
}

// arrived ends the arrival of shards and counts what is in flight there. until says when a slot left
// by a former owner is over at the latest.
func (s *scheduler) arrived(shards []outbox.Shard, until func(outbox.HeldSlot) time.Time) []heldWork {
	came := map[outbox.Shard]bool{}
	slots := map[outbox.Shard][]outbox.HeldSlot{}
	for _, shard := range shards {
		if left, ok := s.arriving[shard]; ok { // not given up again meanwhile
			came[shard] = true
			slots[shard] = left
			delete(s.arriving, shard)
		}
	}
	for _, w := range s.taken {
		if came[w.endpoint.tenant.shard] {
			s.adopt(w)
		}
	}
	var held []heldWork
	for shard, left := range slots {
		for _, slot := range left {
			if w := s.hold(slot, shard); w != nil {
				w.until = until(slot)
				held = append(held, heldWork{w, slot})
			}
		}
	}
	for _, e := range s.endpoints {
		if came[e.tenant.shard] {
			s.unpark(e)
		}
	}
	return held
}

// adopt counts what was in flight here when the shard was last given up, now that it is back: it
// still uses up its endpoint's slots, and its end must free them.
func (s *scheduler) adopt(w *work) {
	e := s.endpoint(w.endpoint.id, w.endpoint.tenant.id, w.endpoint.tenant.shard)
	if w.endpoint == e {
		return
	}
	w.endpoint = e
	l := &e.lanes[w.due.Lane]
	l.inMemory++
	if w.over {
		return
	}
	e.inFlight++
	e.tenant.inFlight++
	if !w.held {
		l.inFlight++
	}
}

// hold occupies the slots of an attempt that a former owner left in flight and keeps its delivery
// from being read. An endpoint that is deleted uses its tenant's slots all the same. It returns nil if
// the attempt is this node's own, which adopt has counted.
func (s *scheduler) hold(slot outbox.HeldSlot, shard outbox.Shard) *work {
	e := s.endpoints[slot.Endpoint]
	if e == nil && slot.Tenant == 0 {
		return nil // an older version left it
	}
	if e == nil {
		e = s.endpoint(slot.Endpoint, slot.Tenant, shard)
	}
	if own := s.taken[slot.Delivery]; own != nil {
		if !own.over {
			return nil
		}
		// An earlier attempt of this node's own, whose result is still on its way.
		own.endpoint.lanes[own.due.Lane].inMemory--
	}
	w := &work{endpoint: e, held: true, began: slot.Began}
	w.due.ID, w.due.Endpoint, w.due.Tenant, w.due.Shard = slot.Delivery, e.id, e.tenant.id, e.tenant.shard
	w.due.Attempt = slot.Attempt
	s.taken[slot.Delivery] = w
	e.lanes[outbox.LaneLive].inMemory++
	e.inFlight++
	e.tenant.inFlight++
	s.settle(e)
	return w
}

// unhold frees what hold occupied. The delivery, if it is still pending, is read again.
func (s *scheduler) unhold(w *work) {
	e := w.endpoint
	e.inFlight--
	e.tenant.inFlight--
	s.forget(w)
	if s.endpoints[e.id] != e {
		return
	}
	for i := range e.lanes {
		l := &e.lanes[i]
		l.lower(fromTheStart) // where its row stands is not known
		s.wake(l)
	}
	s.settle(e)
}
