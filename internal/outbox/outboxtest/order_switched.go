package outboxtest

import (
	"fmt"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

var orderSwitched = topic{"switching strict order", []promise{
	{"configuration names the endpoints whose rows are not in line", orderUnordered},
	{"switching to strict parks all but the first of each key, a few at a time", orderSwitchedOn},
	{"what is planned during the switch is switched too", orderPlannedDuringSwitch},
	{"switching off makes everything due, a few at a time", orderSwitchedOff},
	{"a switch begun by one owner is ended by the next", orderSwitchTakenOver},
	{"from hold to skip the held keys go on", orderNoLongerHeld},
	{"a try that began before the switch gives the turn when it ends", orderUnderWayAtSwitch},
	{"without the lease nothing is switched", orderSwitchFenced},
}}

// reorder brings the endpoint in line, two rows at a time, and returns what was parked and freed.
func (w *world) reorder(e outbox.Endpoint) (parked map[outbox.DeliveryID]bool, freed []outbox.Delivery) {
	w.Helper()
	parked = map[outbox.DeliveryID]bool{}
	var from outbox.ReorderFrom
	for range 10_000 {
		done, err := w.store.Reorder(w.ctx, w.lease, e.Tenant.Shard, e.ID, from, 2, w.now)
		w.must(err)
		if len(done.Parked) > 2 {
			w.Fatalf("%d parked, the limit was 2", len(done.Parked))
		}
		for _, id := range done.Parked {
			parked[id] = true
		}
		freed = append(freed, done.Freed...)
		if done.Done {
			w.equal("not in line", w.config().Unordered, []outbox.EndpointRow{})
			return parked, freed
		}
		from = done.Next
	}
	w.Fatal("reordering does not end")
	panic("unreachable")
}

func (w *world) setOrder(e outbox.Endpoint, ordering outbox.Ordering, onDead outbox.OnDead) outbox.Endpoint {
	w.Helper()
	return w.editEndpoint(e, func(e *outbox.Endpoint) { e.Ordering, e.OnDead = ordering, onDead })
}

func orderUnordered(w *world) {
	acme := w.tenant("acme")
	e := w.endpoint(acme, "*")
	w.plannedKeys(acme, "k")
	for _, step := range []struct {
		ordering outbox.Ordering
		onDead   outbox.OnDead
	}{
		{outbox.OrderingStrict, outbox.OnDeadSkip},
		{outbox.OrderingStrict, outbox.OnDeadHold},
		{outbox.OrderingStrict, outbox.OnDeadSkip},
		{outbox.OrderingNone, outbox.OnDeadSkip},
	} {
		e = w.setOrder(e, step.ordering, step.onDead)
		w.equal("not in line", w.config().Unordered, []outbox.EndpointRow{{Shard: acme.Shard, Endpoint: e.ID}})
		w.reorder(e)
	}
}

func orderSwitchedOn(w *world) {
	acme := w.tenant("acme")
	e := w.endpoint(acme, "*")
	all, _ := w.plannedKeys(acme, "k", "k", "", "j", "", "k", "j")
	w.finish(w.delivered(all[0]))
	w.finish(w.refused(all[1]))
	w.replay(all[1]) // in the other lane
	e = w.setOrder(e, outbox.OrderingStrict, outbox.OnDeadSkip)
	w.now = w.now.Add(time.Second)
	parked, freed := w.reorder(e)
	w.equal("parked", parked, ids(all[1:]))
	w.equal("freed", numbersOf(freed), []int64{2, 3, 4})
	w.dueNumbers("due", e, 2, 3, 4)
	for _, n := range []int64{2, 6} {
		w.equal("due", w.due(e)[0].Sequence, n)
		w.finish(w.delivered(w.due(e)[0]))
		w.verify()
		if n == 2 {
			w.finish(w.delivered(w.due(e)[0]), w.delivered(w.due(e)[1]))
			w.finish(w.delivered(w.due(e)[0]), w.delivered(w.due(e)[2]))
		}
	}
	w.dueNumbers("due", e)
	// Done again it changes nothing.
	parked, freed = w.reorder(e)
	w.equal("changed", len(parked)+len(freed), 0)
}

func orderPlannedDuringSwitch(w *world) {
	acme := w.tenant("acme")
	e := w.endpoint(acme, "*")
	w.plannedKeys(acme, "k", "j", "i")
	e = w.setOrder(e, outbox.OrderingStrict, outbox.OnDeadSkip)
	w.config()
	_, err := w.store.Reorder(w.ctx, w.lease, acme.Shard, e.ID, outbox.ReorderFrom{}, 2, w.now)
	w.must(err)
	_, parked := w.plannedKeys(acme, "k", "h", "h")
	w.equal("parked while it is not yet in order", len(parked), 0)
	w.reorder(e)
	w.dueNumbers("due", e, 1, 2, 3, 5)
	_, parked = w.plannedKeys(acme, "k")
	w.equal("parked", len(parked), 1)
	w.equal("freed", numbersOf(w.finished(w.delivered(w.due(e)[0]))), []int64{4})
}

func orderSwitchedOff(w *world) {
	acme := w.tenant("acme")
	e := w.strict(acme, outbox.OnDeadHold)
	all, _ := w.plannedKeys(acme, "k", "k", "k", "j", "j", "h")
	w.finish(w.refused(all[0]))
	later := w.failed(all[5])
	w.finish(later)
	e = w.setOrder(e, outbox.OrderingNone, outbox.OnDeadHold)
	w.now = w.now.Add(time.Second)
	w.reorder(e)
	w.dueNumbers("due", e, 2, 3, 4, 5, 6)
	for _, d := range w.due(e) {
		if d.Strict() {
			w.Errorf("number %d is still strict", d.Sequence)
		}
		if d.Sequence == 6 && !d.NextAt.Equal(later.RetryAt) {
			w.Errorf("its next try moved to %v", d.NextAt)
		}
	}
	_, parked := w.plannedKeys(acme, "k", "k")
	w.equal("parked", len(parked), 0)
	w.verify()
}

func orderSwitchTakenOver(w *world) {
	acme := w.tenant("acme")
	e := w.endpoint(acme, "*")
	w.plannedKeys(acme, "k", "k", "k", "j", "j", "h")
	for _, ordering := range []outbox.Ordering{outbox.OrderingStrict, outbox.OrderingNone} {
		e = w.setOrder(e, ordering, outbox.OnDeadSkip)
		for range 2 {
			_, err := w.store.Reorder(w.ctx, w.lease, acme.Shard, e.ID, outbox.ReorderFrom{}, 2, w.now)
			w.must(err)
			w.own()
			w.equal("not in line", len(w.config().Unordered), 1)
		}
		w.reorder(e)
		if ordering == outbox.OrderingStrict {
			w.dueNumbers("due", e, 1, 4, 6)
		} else {
			w.dueNumbers("due", e, 1, 2, 3, 4, 5, 6)
		}
	}
}

func orderNoLongerHeld(w *world) {
	acme := w.tenant("acme")
	e := w.strict(acme, outbox.OnDeadHold)
	var keys []string
	for i := range 5 {
		keys = append(keys, fmt.Sprint(i))
	}
	all, _ := w.plannedKeys(acme, append(keys, keys...)...)
	for _, d := range all[:5] {
		w.finish(w.refused(d))
	}
	w.dueNumbers("held", e)
	e = w.setOrder(e, outbox.OrderingStrict, outbox.OnDeadSkip)
	_, freed := w.reorder(e)
	w.equal("freed", numbersOf(freed), []int64{6, 7, 8, 9, 10})
	// And what dies from here on holds nothing, until it shall again.
	e = w.setOrder(e, outbox.OrderingStrict, outbox.OnDeadHold)
	w.reorder(e)
	w.dueNumbers("due", e, 6, 7, 8, 9, 10)
	w.plannedKeys(acme, "0")
	w.finish(w.refused(w.due(e)[0]))
	w.dueNumbers("due", e, 7, 8, 9, 10)
}

func orderUnderWayAtSwitch(w *world) {
	acme := w.tenant("acme")
	e := w.endpoint(acme, "*")
	all, _ := w.plannedKeys(acme, "k", "k", "k", "k")
	e = w.setOrder(e, outbox.OrderingStrict, outbox.OnDeadSkip)
	w.reorder(e)
	w.dueNumbers("due", e, 1)
	// All of them were being tried, as they were before the switch.
	w.equal("freed by a retry", w.finished(w.failed(all[1])), []outbox.Delivery{})
	w.dueNumbers("due", e, 1)
	w.equal("freed by a parked one", w.finished(w.delivered(all[2])), []outbox.Delivery{})
	w.dueNumbers("due", e, 1)
	w.equal("freed by the first", numbersOf(w.finished(w.delivered(all[0]))), []int64{2})
	w.equal("tries", w.due(e)[0].Attempt, 1)
	w.equal("freed by the second", numbersOf(w.finished(w.refused(w.due(e)[0]))), []int64{4})
	w.verify()
}

func orderSwitchFenced(w *world) {
	acme := w.tenant("acme")
	e := w.endpoint(acme, "*")
	w.plannedKeys(acme, "k", "k")
	e = w.setOrder(e, outbox.OrderingStrict, outbox.OnDeadSkip)
	old := w.lease
	w.own()
	if _, err := w.store.Reorder(w.ctx, old, acme.Shard, e.ID, outbox.ReorderFrom{}, 10, w.now); err != outbox.ErrFenced { //nolint:errorlint // ours, never wrapped
		w.Errorf("error %v, want ErrFenced", err)
	}
	w.dueNumbers("due", e, 1, 2)
}
