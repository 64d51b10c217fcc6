package outboxtest

import (
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

var handover = topic{"hand-over of shards", []promise{
	{"a released shard is free and was given up properly", releaseFrees},
	{"a shard whose owner died was not given up", deadOwner},
	{"what is in flight goes to the next owner, once", heldSlots},
	{"what was in flight is not handed over a second time", heldSlotsAreHandedOverOnce},
	{"of the deliveries in flight those still pending are told with their tries", pendingAttempts},
	{"a held attempt is over once its own result is recorded", recordedAttempts},
	{"a lease that was lost releases nothing", lostLeaseReleases},
	{"an older lease of the same node releases nothing", oldLeaseReleases},
}}

func releaseFrees(w *world) {
	node := w.join()
	states := w.shards(node)
	lease, _ := w.take(node, states[7], states[8])
	part := outbox.Lease{Node: node, Epochs: map[outbox.Shard]int64{7: lease.Epochs[7]}}
	w.must(w.store.Release(w.ctx, part, nil))
	w.must(w.store.Release(w.ctx, part, nil))
	after := w.shards(node)
	if s := after[7]; !s.Node.IsZero() || !s.Released {
		w.Errorf("released: %+v", s)
	}
	if s := after[8]; s.Node != node || s.Released {
		w.Errorf("kept: %+v", s)
	}
}

func deadOwner(w *world) {
	dead, heir := w.join(), w.join()
	w.take(dead, w.shards(dead)[7])
	w.must(w.store.Leave(w.ctx, dead)) // the row of a node that died is cleaned up some day
	seen := w.shards(heir)[7]
	if seen.Released {
		w.Error("a dead owner's shard counts as given up")
	}
	lease, _ := w.take(heir, seen)
	w.must(w.store.Release(w.ctx, lease, nil))
	if s := w.shards(heir)[7]; !s.Released {
		w.Error("the heir's release does not count")
	}
}

func heldSlots(w *world) {
	first, second, third := w.join(), w.join(), w.join()
	states := w.shards(first)
	lease, _ := w.take(first, states[7], states[8], states[9])
	slot := func(seconds int) outbox.HeldSlot {
		e := outbox.NewEndpointID(w.now)
		return outbox.HeldSlot{
			Delivery: outbox.NewDeliveryID(outbox.NewEventID(w.now), e),
			Endpoint: e,
			Attempt:  seconds - 1,
			Left:     time.Duration(seconds)*time.Second + 123*time.Nanosecond,
			Deadline: w.now.Add(time.Duration(seconds)*time.Second + 123*time.Microsecond),
		}
	}
	held := map[outbox.Shard][]outbox.HeldSlot{7: {slot(1), slot(2)}, 8: {slot(3)}}
	w.must(w.store.Release(w.ctx, lease, held))
	states = w.shards(second)
	next, got := w.take(second, states[7], states[8], states[9])
	w.equal("slots of the next owner", got, held)
	w.must(w.store.Release(w.ctx, next, nil))
	states = w.shards(third)
	_, got = w.take(third, states[7], states[8], states[9])
	w.equal("slots of the one after", got, map[outbox.Shard][]outbox.HeldSlot{})
}

func heldSlotsAreHandedOverOnce(w *world) {
	first, dead, heir := w.join(), w.join(), w.join()
	lease, _ := w.take(first, w.shards(first)[7])
	w.must(w.store.Release(w.ctx, lease, map[outbox.Shard][]outbox.HeldSlot{7: {{Deadline: w.now}}}))
	w.take(dead, w.shards(dead)[7]) // has them, and dies
	_, got := w.take(heir, w.shards(heir)[7])
	w.equal("slots after an owner that died", got, map[outbox.Shard][]outbox.HeldSlot{})
}

func pendingAttempts(w *world) {
	acme, globex := w.strangers("acme")
	mine, theirs := w.endpoint(acme, "*"), w.endpoint(globex, "*")
	fresh, tried, done, dead := w.planned(mine, "a.b"), w.planned(theirs, "a.b"), w.planned(mine, "a.b"), w.planned(theirs, "a.b")
	w.finish(w.failed(tried), w.delivered(done), w.refused(dead))
	w.finish(w.failed(w.stored(tried)))
	var shards []outbox.Shard
	var ids []outbox.DeliveryID
	for _, d := range []outbox.Delivery{fresh, tried, done, dead, {ID: outbox.NewDeliveryID(fresh.Event, theirs.ID)}} {
		shards, ids = append(shards, d.Shard), append(ids, d.ID)
	}
	got, err := w.store.PendingAttempts(w.ctx, shards, ids)
	w.must(err)
	w.equal("tries", got, map[outbox.DeliveryID]int{fresh.ID: 0, tried.ID: 2})
	got, err = w.store.PendingAttempts(w.ctx, nil, nil)
	w.must(err)
	w.equal("of none", got, map[outbox.DeliveryID]int{})
}

func recordedAttempts(w *world) {
	acme, globex := w.strangers("acme")
	mine, theirs := w.endpoint(acme, "*"), w.endpoint(globex, "*")
	slots := map[string]outbox.HeldSlot{}
	var shards []outbox.Shard
	var asked []outbox.HeldSlot
	// hold is about the next attempt of a delivery, which began so long ago.
	hold := func(what string, d outbox.Delivery, ago time.Duration) {
		slots[what] = outbox.HeldSlot{Delivery: d.ID, Attempt: d.Attempt, Began: w.now.Add(-ago)}
		shards, asked = append(shards, d.Shard), append(asked, slots[what])
	}
	under, failed, arrived, dead := w.planned(mine, "a"), w.planned(theirs, "a"), w.planned(mine, "a"), w.planned(theirs, "a")
	late, cancelled, both := w.planned(mine, "a"), w.planned(theirs, "a"), w.planned(theirs, "a")
	w.finish(w.failed(failed), w.delivered(arrived), w.refused(dead))
	// Tried under the same number by the owner before, whose result comes late.
	w.finish(w.failed(late))
	w.now = w.now.Add(10 * time.Second)
	for what, d := range map[string]outbox.Delivery{"under way": under, "tried by the owner before": late} {
		hold(what, d, time.Second)
	}
	for what, d := range map[string]outbox.Delivery{"failed": failed, "arrived": arrived, "dead": dead} {
		hold(what, d, 11*time.Second)
	}
	// Cancelled under way: one has ended since, the other has not.
	hold("cancelled", cancelled, time.Second)
	hold("cancelled, and ended", both, time.Second)
	_, err := w.store.DeleteEndpoint(w.ctx, globex.TenantRef, outbox.EndpointRef{ID: theirs.ID}, w.now, 10)
	w.must(err)
	w.executeCommands()
	w.ended(cancelled, outbox.StateCancelled)
	w.finish(w.delivered(both))
	got, err := w.store.Recorded(w.ctx, shards, asked)
	w.must(err)
	want := map[outbox.DeliveryID]bool{}
	for _, what := range []string{"failed", "arrived", "dead", "cancelled, and ended"} {
		want[slots[what].Delivery] = true
	}
	w.equal("recorded", got, want)
	old := asked[:0:0]
	for _, slot := range asked {
		slot.Began = time.Time{} // as an older version left it: the number alone tells
		old = append(old, slot)
	}
	got, err = w.store.Recorded(w.ctx, shards, old)
	w.must(err)
	want[late.ID] = true
	w.equal("recorded, by number", got, want)
	got, err = w.store.Recorded(w.ctx, nil, nil)
	w.must(err)
	w.equal("of none", got, map[outbox.DeliveryID]bool{})
}

func oldLeaseReleases(w *world) {
	node := w.join()
	old, _ := w.take(node, w.shards(node)[7])
	w.must(w.store.Release(w.ctx, old, nil))
	again, _ := w.take(node, w.shards(node)[7])
	// A release that was answered late is run again after the same node took the shard back.
	w.must(w.store.Release(w.ctx, old, nil))
	w.equal("the shard", w.shards(node)[7], outbox.ShardState{Shard: 7, Node: node, Epoch: again.Epochs[7], Beat: 3})
}

func lostLeaseReleases(w *world) {
	first, second := w.join(), w.join()
	lease, _ := w.take(first, w.shards(first)[7], w.shards(first)[8])
	stolen, _ := w.take(second, w.shards(second)[7])
	slots := []outbox.HeldSlot{{Deadline: w.now}}
	w.must(w.store.Release(w.ctx, lease, map[outbox.Shard][]outbox.HeldSlot{7: slots, 8: nil}))
	after := w.shards(first)
	w.equal("the stolen shard", after[7], outbox.ShardState{Shard: 7, Node: second, Epoch: stolen.Epochs[7], Beat: 1})
	if s := after[8]; !s.Node.IsZero() || !s.Released {
		w.Errorf("the shard still held: %+v", s)
	}
}
