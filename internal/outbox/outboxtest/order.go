package outboxtest

import (
	"fmt"
	"slices"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

var order = topic{"strict order", []promise{
	{"of each key the first is due and the others are parked", orderParks},
	{"events without a key share one", orderWithoutKey},
	{"an endpoint that is not strict parks nothing", orderElsewhere},
	{"however the first ends, the next gets its turn", orderGoesOn},
	{"a try that is to be repeated keeps the turn", orderWaitsForRetries},
	{"running a batch again gives no second turn", orderFinishAgain},
	{"a dead one holds its key where the endpoint says so", orderHolds},
	{"what is planned behind a dead one that holds is parked", orderPlannedBehindHeld},
	{"a discarded backlog lets go of the key", orderDiscarded},
	{"a cancelled one does not hold", orderCancelledHoldsNothing},
	{"what expires gives its turn, or holds", orderExpires},
	{"a replay waits for the one under way, is next, and keeps its number", orderReplayIsNext},
	{"a replay of a parked one does not jump the queue", orderReplayOfParked},
	{"two dead ones of a key are replayed in order, whichever is asked for first", orderReplaysInOrder},
	{"dead letters that hold others are not purged", orderHoldersStay},
	{"many at once on few keys: one at a time, in order, and to the end", orderCrowd},
	{"the proof finds a key in which nobody has the turn, and Reorder mends it", orderProof},
	{"heads and reads know nothing of what is parked", orderParkedIsQuiet},
}}

// strict makes an endpoint that keeps order.
func (w *world) strict(tenant outbox.Tenant, onDead outbox.OnDead) outbox.Endpoint {
	w.Helper()
	return w.endpointWith(tenant, func(e *outbox.Endpoint) { e.Ordering, e.OnDead = outbox.OrderingStrict, onDead })
}

// plannedKeys publishes an event for each key, in one batch, and routes them at once. It returns
// the deliveries and checks that exactly those named parked are.
func (w *world) plannedKeys(tenant outbox.Tenant, keys ...string) (all []outbox.Delivery, parked map[outbox.DeliveryID]bool) {
	w.Helper()
	var batch []outbox.NewEvent
	for _, key := range keys {
		e := w.event(tenant, "a.b", `{"n":1}`)
		e.OrderingKey = key
		batch = append(batch, e)
	}
	w.publish(batch...)
	plans, next := w.plan(w.source(w.outbox()))
	routed, err := w.store.Route(w.ctx, w.lease, plans, next, w.now)
	w.must(err)
	for _, p := range plans {
		all = append(all, p.Deliveries...)
	}
	return all, set(routed.Parked)
}

// due is whose turn it is, in both lanes, by sequence.
func (w *world) due(e outbox.Endpoint) []outbox.Delivery {
	w.Helper()
	var all []outbox.Delivery
	for _, lane := range []outbox.Lane{outbox.LaneLive, outbox.LaneReplay} {
		for _, d := range w.pending(e, lane) {
			all = append(all, d.Delivery)
		}
	}
	slices.SortFunc(all, func(a, b outbox.Delivery) int { return int(a.Sequence - b.Sequence) })
	return all
}

// dueNumbers are the sequences of those whose turn it is.
func (w *world) dueNumbers(what string, e outbox.Endpoint, want ...int64) {
	w.Helper()
	w.equal(what, numbersOf(w.due(e)), want)
	w.verify()
}

func numbersOf(list []outbox.Delivery) []int64 {
	var n []int64
	for _, d := range list {
		n = append(n, d.Sequence)
	}
	slices.Sort(n)
	return n
}

// finished records results and returns what they freed.
func (w *world) finished(results ...outbox.Result) []outbox.Delivery {
	w.Helper()
	done, err := w.store.Finish(w.ctx, results)
	w.must(err)
	return done.Freed
}

func orderParks(w *world) {
	acme := w.tenant("acme")
	e := w.strict(acme, outbox.OnDeadSkip)
	all, parked := w.plannedKeys(acme, "k", "k", "j", "k", "j")
	w.equal("parked", parked, ids([]outbox.Delivery{all[1], all[3], all[4]}))
	w.dueNumbers("due", e, 1, 3)
	_, parked = w.plannedKeys(acme, "k", "i")
	w.equal("parked later", len(parked), 1)
	w.dueNumbers("due later", e, 1, 3, 7)
	for _, d := range w.due(e) {
		if !d.TurnAt.Equal(w.now) || !d.NextAt.Equal(w.now) {
			w.Errorf("number %d: its turn came at %v, due %v", d.Sequence, d.TurnAt, d.NextAt)
		}
	}
	view := w.view(all[1])
	if view.State != outbox.StatePending || !view.Parked() {
		w.Errorf("a parked one is shown as %s, due %v", view.State, view.NextAt)
	}
}

func orderWithoutKey(w *world) {
	acme := w.tenant("acme")
	e := w.strict(acme, outbox.OnDeadSkip)
	w.plannedKeys(acme, "", "k", "")
	w.dueNumbers("due", e, 1, 2)
	w.equal("freed", numbersOf(w.finished(w.delivered(w.due(e)[0]))), []int64{3})
}

func orderElsewhere(w *world) {
	acme := w.tenant("acme")
	e := w.endpoint(acme, "*")
	strict := w.strict(acme, outbox.OnDeadHold)
	_, parked := w.plannedKeys(acme, "k", "k", "k")
	w.equal("parked", len(parked), 2)
	w.dueNumbers("side by side", e, 1, 2, 3)
	w.dueNumbers("strict", strict, 1)
	due := w.due(e)
	w.equal("freed", w.finished(w.refused(due[0]), w.delivered(due[1])), []outbox.Delivery{})
	w.dueNumbers("side by side", e, 3)
}

func orderGoesOn(w *world) {
	acme := w.tenant("acme")
	e := w.strict(acme, outbox.OnDeadSkip)
	w.plannedKeys(acme, "k", "k", "k", "k", "j")
	for i, end := range []func(outbox.Delivery) outbox.Result{w.delivered, w.refused, func(d outbox.Delivery) outbox.Result {
		return outbox.Result{Delivery: d, Dead: outbox.DeadCancelled, At: w.now}
	}} {
		w.now = w.now.Add(time.Second)
		freed := w.finished(end(w.due(e)[0]))
		w.equal("freed", numbersOf(freed), []int64{int64(i + 2)})
		w.dueNumbers("due", e, int64(i+2), 5)
		w.equal("as it is stored", w.due(e)[0], freed[0])
		if !freed[0].NextAt.Equal(w.now) || !freed[0].TurnAt.Equal(w.now) {
			w.Errorf("its turn came at %v, due %v, want %v", freed[0].TurnAt, freed[0].NextAt, w.now)
		}
	}
	w.equal("freed by the last", w.finished(w.delivered(w.due(e)[0])), []outbox.Delivery{})
	w.dueNumbers("due", e, 5)
}

func orderWaitsForRetries(w *world) {
	acme := w.tenant("acme")
	e := w.strict(acme, outbox.OnDeadSkip)
	w.plannedKeys(acme, "k", "k")
	for range 2 {
		w.equal("freed", w.finished(w.failed(w.due(e)[0])), []outbox.Delivery{})
		w.dueNumbers("due", e, 1)
		w.now = w.now.Add(time.Minute)
	}
	w.equal("freed", numbersOf(w.finished(w.delivered(w.due(e)[0]))), []int64{2})
}

func orderFinishAgain(w *world) {
	acme := w.tenant("acme")
	e := w.strict(acme, outbox.OnDeadSkip)
	w.plannedKeys(acme, "k", "k", "k")
	first := w.delivered(w.due(e)[0])
	w.finish(first)
	w.finish(first)
	w.dueNumbers("due", e, 2)
}

func orderHolds(w *world) {
	acme := w.tenant("acme")
	e := w.strict(acme, outbox.OnDeadHold)
	w.plannedKeys(acme, "k", "k", "j")
	first := w.due(e)[0]
	w.equal("freed", w.finished(w.refused(first)), []outbox.Delivery{})
	w.dueNumbers("due", e, 3)
	w.now = w.now.Add(time.Minute)
	again := w.replay(first)
	w.equal("replayed", numbersOf(again), []int64{1})
	w.equal("its round", again[0].Round, 1)
	w.dueNumbers("due", e, 1, 3)
	w.equal("freed", numbersOf(w.finished(w.delivered(again[0]))), []int64{2})
	w.dueNumbers("due", e, 2, 3)
}

func orderPlannedBehindHeld(w *world) {
	acme := w.tenant("acme")
	e := w.strict(acme, outbox.OnDeadHold)
	all, _ := w.plannedKeys(acme, "k")
	w.finish(w.refused(all[0]))
	_, parked := w.plannedKeys(acme, "k", "j")
	w.equal("parked", len(parked), 1)
	w.dueNumbers("due", e, 3)
}

func orderDiscarded(w *world) {
	acme := w.tenant("acme")
	e := w.strict(acme, outbox.OnDeadHold)
	w.plannedKeys(acme, "k", "k")
	w.finish(w.refused(w.due(e)[0]))
	limit := w.now
	w.now = w.now.Add(time.Minute)
	w.plannedKeys(acme, "k", "k")
	w.dueNumbers("held", e)
	row := w.command(e, outbox.Command{Name: outbox.CommandCancelEndpoint, Before: limit})
	ended, done, err := w.store.Cancel(w.ctx, w.lease, row, 10, w.now)
	w.must(err)
	if !done || len(ended.Deliveries) != 1 {
		w.Errorf("done %v, %d ended, want the one planned before", done, len(ended.Deliveries))
	}
	w.equal("freed", numbersOf(ended.Freed), []int64{3})
	w.dueNumbers("due", e, 3)
}

func orderCancelledHoldsNothing(w *world) {
	acme := w.tenant("acme")
	e := w.strict(acme, outbox.OnDeadHold)
	w.plannedKeys(acme, "k", "k")
	freed := w.finished(outbox.Result{Delivery: w.due(e)[0], Dead: outbox.DeadCancelled, At: w.now})
	w.equal("freed", numbersOf(freed), []int64{2})
	w.dueNumbers("due", e, 2)
}

func orderExpires(w *world) {
	acme := w.tenant("acme")
	skip, hold := w.strict(acme, outbox.OnDeadSkip), w.strict(acme, outbox.OnDeadHold)
	w.plannedKeys(acme, "k", "k")
	w.now = w.now.Add(time.Hour)
	w.plannedKeys(acme, "k")
	ended, err := w.store.Expire(w.ctx, w.lease, w.now, 100, w.now)
	w.must(err)
	w.equal("ended", len(ended.Deliveries), 4)
	w.equal("freed", numbersOf(ended.Freed), []int64{3})
	w.dueNumbers("skip", skip, 3)
	w.dueNumbers("hold", hold)
}

func orderReplayIsNext(w *world) {
	acme := w.tenant("acme")
	e := w.strict(acme, outbox.OnDeadSkip)
	w.plannedKeys(acme, "k", "k", "k")
	first := w.due(e)[0]
	w.finish(w.refused(first))
	w.equal("due while the second is under way", w.replay(first), []outbox.Delivery{})
	w.dueNumbers("due", e, 2)
	freed := w.finished(w.delivered(w.due(e)[0]))
	w.equal("freed", numbersOf(freed), []int64{1})
	if freed[0].Lane != outbox.LaneReplay || freed[0].Round != 1 || freed[0].Sequence != first.Sequence {
		w.Errorf("replayed as %+v", freed[0])
	}
	w.equal("freed", numbersOf(w.finished(w.delivered(freed[0]))), []int64{3})
	// One that was delivered is replayed alike.
	w.finish(w.delivered(w.due(e)[0]))
	w.equal("due at once on a free key", numbersOf(w.replay(first)), []int64{1})
	w.dueNumbers("due", e, 1)
}

func orderReplayOfParked(w *world) {
	acme := w.tenant("acme")
	e := w.strict(acme, outbox.OnDeadSkip)
	all, _ := w.plannedKeys(acme, "k", "k", "k")
	w.equal("due", w.replay(all[2]), []outbox.Delivery{})
	w.dueNumbers("due", e, 1)
	w.equal("freed", numbersOf(w.finished(w.delivered(w.due(e)[0]))), []int64{2})
}

func orderReplaysInOrder(w *world) {
	acme := w.tenant("acme")
	e := w.strict(acme, outbox.OnDeadHold)
	all, _ := w.plannedKeys(acme, "k", "k", "k")
	w.now = w.now.Add(time.Hour)
	_, err := w.store.Expire(w.ctx, w.lease, w.now, 2, w.now) // whichever two
	w.must(err)
	w.now = w.now.Add(time.Hour)
	_, err = w.store.Expire(w.ctx, w.lease, w.now, 2, w.now)
	w.must(err)
	w.equal("the second, while the first is dead", w.replay(all[1]), []outbox.Delivery{})
	w.dueNumbers("due", e)
	w.equal("the first", numbersOf(w.replay(all[0])), []int64{1})
	w.equal("freed", numbersOf(w.finished(w.delivered(w.due(e)[0]))), []int64{2})
	w.equal("freed by the second", w.finished(w.delivered(w.due(e)[0])), []outbox.Delivery{})
	w.equal("the third", numbersOf(w.replay(all[2])), []int64{3})
	w.verify()
}

func orderHoldersStay(w *world) {
	acme := w.tenant("acme")
	e := w.strict(acme, outbox.OnDeadHold)
	w.plannedKeys(acme, "held", "free")
	w.finish(w.refused(w.due(e)[0]), w.refused(w.due(e)[1]))
	held, _ := w.plannedKeys(acme, "held")
	w.now = w.now.Add(40 * 24 * time.Hour)
	w.must(w.store.Maintain(w.ctx, outbox.Maintenance{Now: w.now, Retention: 30 * 24 * time.Hour, IdempotencyRetention: 24 * time.Hour, Shards: w.scope}))
	var left []string
	for _, v := range w.listDeliveries(outbox.DeliveryQuery{Tenant: acme.TenantRef}, 250, false) {
		if v.State == outbox.StateDead {
			left = append(left, v.OrderingKey)
		}
	}
	w.equal("dead letters left", left, []string{"held"})
	view := w.view(held[0])
	w.equal("still parked", view.Parked(), true)
	report, err := w.store.Verify(w.ctx, false)
	w.must(err)
	w.equal("balanced", report.Balanced(), true)
}

func orderParkedIsQuiet(w *world) {
	acme := w.tenant("acme")
	e := w.strict(acme, outbox.OnDeadHold)
	w.plannedKeys(acme, "k", "k")
	w.finish(w.refused(w.due(e)[0]))
	heads, err := w.store.Heads(w.ctx, w.scope)
	w.must(err)
	w.equal("heads", len(heads), 0)
	n, _, err := w.store.PendingOf(w.ctx, acme.TenantRef, e.ID, 100)
	w.must(err)
	w.equal("pending", n, 1)
}

func orderProof(w *world) {
	door := w.backdoor()
	acme := w.tenant("acme")
	e := w.strict(acme, outbox.OnDeadSkip)
	all, _ := w.plannedKeys(acme, "k", "k", "j")
	w.must(door.Exec(w.ctx, `DELETE FROM {delivery} WHERE sequence = 1`))
	want := fmt.Sprintf("endpoint %s, ordering key %q", e.ID, "k")
	if where := w.broken(false); !slices.Contains(where, want) {
		w.Errorf("the proof names %q, want %q among them", where, want)
	}
	done, err := w.store.Reorder(w.ctx, w.lease, acme.Shard, e.ID, outbox.ReorderFrom{}, 100, w.now)
	w.must(err)
	w.equal("freed", ids(done.Freed), ids(all[1:2]))
	w.equal("done", done.Done, true)
	if where := w.broken(false); slices.Contains(where, want) {
		w.Error("it is not mended")
	}
}

func orderPredecessors(w *world) {
	acme := w.tenant("acme")
	w.strict(acme, outbox.OnDeadHold)
	all, _ := w.plannedKeys(acme, "k", "k", "j", "k", "j")
	k1, k2, j1, k3, j2 := all[0], all[1], all[2], all[3], all[4]
	tell := func(what string, want map[outbox.DeliveryID]outbox.Predecessor, parked ...outbox.Delivery) {
		w.Helper()
		for i := range parked {
			parked[i] = w.view(parked[i]).Delivery
		}
		got, err := w.store.Predecessors(w.ctx, parked)
		w.must(err)
		w.equal(what, got, want)
	}
	first, other := outbox.Predecessor{ID: k1.ID, NextAt: w.now}, outbox.Predecessor{ID: j1.ID, NextAt: w.now}
	tell("behind those whose turn it is", map[outbox.DeliveryID]outbox.Predecessor{k2.ID: first, k3.ID: first, j2.ID: other}, k2, k3, j2)

	retry := w.failed(k1)
	w.finish(retry)
	first.NextAt = retry.RetryAt
	tell("behind one that is tried again later", map[outbox.DeliveryID]outbox.Predecessor{k3.ID: first}, k3)

	w.finish(w.refused(w.view(k1).Delivery), w.delivered(j1))
	dead := outbox.Predecessor{ID: k1.ID, Dead: true}
	tell("behind a dead one that holds", map[outbox.DeliveryID]outbox.Predecessor{k2.ID: dead, k3.ID: dead}, k2, k3)

	w.replay(k1)
	first.NextAt = w.now
	tell("behind its replay", map[outbox.DeliveryID]outbox.Predecessor{k2.ID: first}, k2)
	tell("of none", map[outbox.DeliveryID]outbox.Predecessor{})
}
