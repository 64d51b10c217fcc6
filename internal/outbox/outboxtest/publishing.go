package outboxtest

import (
	"context"
	"errors"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

var publishing = topic{"publishing", []promise{
	{"a stored event is there and waits to be routed", storedEventWaits},
	{"a batch is accepted in its own order", batchKeepsItsOrder},
	{"an empty batch is accepted", emptyBatch},
	{"a chosen id with the same content is a duplicate", chosenIDAgain},
	{"a chosen id with other content is a conflict", chosenIDConflict},
	{"an id twice in one batch is a duplicate or a conflict", idTwiceInOneBatch},
	{"an id belongs to its tenant", idsBelongToTheirTenant},
	{"one conflict and nothing of the batch is written", conflictWritesNothing},
	{"a batch run again changes nothing", batchRunAgain},
	{"a batch run again after its events were routed changes nothing", batchRunAgainAfterRouting},
	{"a batch run again after its events were delivered changes nothing", batchRunAgainAfterDelivery},
	{"a failed write says so and can be run again", failedWriteRunAgain},
}}

func storedEventWaits(w *world) {
	acme := w.tenant("acme")
	e := w.event(acme, "payment.succeeded", `{"id":"pay_1"}`)
	e.OrderingKey = "order-7"
	e.Metadata = map[string]string{"region": "eu", "空": "☂"}
	accepted := w.publish(e)
	pos := accepted[0].Pos
	if pos < 1 {
		w.Errorf("position %d, want at least 1", pos)
	}
	w.equal("answer", accepted[0], outbox.Accepted{ID: e.ID, CreatedAt: e.CreatedAt, Pos: pos})

	rows := w.outbox()
	w.equal("thin row", rows, []outbox.OutboxRow{{Shard: outbox.ShardOf("acme"), Pos: pos, Kind: outbox.OutboxEvent, Tenant: acme.ID, Event: e.ID}})
	rows = w.source(rows)
	if !rows[0].HasPayload {
		w.Fatal("no payload although there is room")
	}
	w.equal("source", *rows[0].Source, e.Event)

	view, err := w.store.Event(w.ctx, acme.TenantRef, e.ID)
	w.must(err)
	want := outbox.EventView{Event: e.Event, TenantKey: "acme", State: outbox.EventUnrouted, PayloadBytes: len(e.Payload)}
	want.Payload = nil
	w.equal("view", view, want)

	report := w.verify()
	if report.Events != 1 || report.Waiting != 1 || report.Routed != 0 {
		w.Errorf("events %d, waiting %d, routed %d; want 1, 1, 0", report.Events, report.Waiting, report.Routed)
	}
}

func batchKeepsItsOrder(w *world) {
	acme := w.tenant("acme")
	var batch []outbox.NewEvent
	for i := range 500 {
		e := w.event(acme, "a.b", `{}`)
		// Ids in the opposite order: acceptance counts, not the id.
		e.ID = outbox.NewEventID(w.now.Add(-time.Duration(i) * time.Millisecond))
		batch = append(batch, e)
	}
	accepted := w.publish(batch...)
	for i, row := range w.outbox() {
		if row.Event != batch[i].ID {
			w.Fatalf("row %d is not event %d of the batch", i, i)
		}
		if row.Pos != accepted[i].Pos {
			w.Fatalf("event %d was accepted at %d and lies at %d", i, accepted[i].Pos, row.Pos)
		}
	}
}

func emptyBatch(w *world) {
	accepted, conflicts, err := w.store.InsertEvents(w.ctx, nil)
	if len(accepted) != 0 || len(conflicts) != 0 || err != nil {
		w.Errorf("got %v, %v, %v", accepted, conflicts, err)
	}
}

func chosenIDAgain(w *world) {
	acme := w.tenant("acme")
	first := w.event(acme, "a.b", `{"n":1}`)
	first.Chosen = true
	w.publish(first)
	again := first
	again.CreatedAt = first.CreatedAt.Add(time.Hour)
	w.equal("answer", w.publish(again), []outbox.Accepted{{ID: first.ID, CreatedAt: first.CreatedAt, Duplicate: true}})
	w.waiting(1)
}

func chosenIDConflict(w *world) {
	acme := w.tenant("acme")
	first := w.event(acme, "a.b", `{"n":1}`)
	first.Chosen = true
	w.publish(first)
	for what, other := range map[string]outbox.NewEvent{
		"other bytes": w.event(acme, "a.b", `{"n":2}`),
		// Nobody would ever hear of the second type.
		"other type": w.event(acme, "a.c", `{"n":1}`),
	} {
		other.ID, other.Chosen = first.ID, true
		w.conflicts(what, []outbox.NewEvent{other}, 0, outbox.ErrIDConflict)
	}
	payload, err := w.store.Payload(w.ctx, acme.TenantRef, first.ID)
	w.must(err)
	w.equal("payload of the first", string(payload), `{"n":1}`)
	w.waiting(1)
}

func idTwiceInOneBatch(w *world) {
	acme := w.tenant("acme")
	first := w.event(acme, "a.b", `{"n":1}`)
	first.Chosen = true
	accepted := w.publish(first, first)
	if accepted[0].Duplicate || !accepted[1].Duplicate || accepted[1].ID != first.ID {
		w.Errorf("answers %+v, want the second to be a duplicate of the first", accepted)
	}
	w.waiting(1)

	one, other := w.event(acme, "a.b", `{"n":1}`), w.event(acme, "a.b", `{"n":2}`)
	one.Chosen, other.Chosen, other.ID = true, true, one.ID
	w.conflicts("two contents under one id", []outbox.NewEvent{one, other}, 1, outbox.ErrIDConflict)
	w.waiting(1)
}

func idsBelongToTheirTenant(w *world) {
	acme, globex := w.neighbours("acme")
	first := w.event(acme, "a.b", `{"of":"acme"}`)
	other := w.event(globex, "a.b", `{"of":"globex"}`)
	other.ID = first.ID
	first.Chosen, other.Chosen = true, true
	w.publish(first)
	if w.publish(other)[0].Duplicate {
		w.Error("another tenant's event is a duplicate")
	}
	for _, e := range []outbox.NewEvent{first, other} {
		payload, err := w.store.Payload(w.ctx, e.Tenant, e.ID)
		w.must(err)
		w.equal("payload", string(payload), string(e.Payload))
	}
	w.waiting(2)
}

func conflictWritesNothing(w *world) {
	acme := w.tenant("acme")
	old := w.event(acme, "a.b", `{"n":1}`)
	old.Chosen = true
	w.publish(old)

	before, after, keyed := w.event(acme, "a.b", `1`), w.event(acme, "a.b", `2`), w.event(acme, "a.b", `3`)
	keyed.IdempotencyKey = "order-1"
	guilty := w.event(acme, "a.b", `{"n":2}`)
	guilty.ID, guilty.Chosen = old.ID, true
	w.conflicts("a batch with one guilty member", []outbox.NewEvent{before, keyed, guilty, after}, 2, outbox.ErrIDConflict)

	w.waiting(1)
	for _, e := range []outbox.NewEvent{before, keyed, after} {
		if _, err := w.store.Event(w.ctx, acme.TenantRef, e.ID); !errors.Is(err, outbox.ErrNotFound) {
			w.Errorf("a member was stored: %v", err)
		}
	}
	// The key was not taken either, not even by the content it came with.
	other := w.event(acme, "a.b", `{"other":true}`)
	other.IdempotencyKey = "order-1"
	if w.publish(other)[0].Duplicate {
		w.Error("the key of a batch that was not written is taken")
	}
	w.verify()
}

func batchRunAgain(w *world) {
	acme := w.tenant("acme")
	batch := w.mixedBatch(acme)
	first := w.publish(batch...)
	w.storedBefore(batch, first, w.publish(batch...))
	w.waiting(len(batch))
	w.verify()
}

func batchRunAgainAfterRouting(w *world) {
	acme := w.tenant("acme")
	e := w.endpoint(acme, "*")
	batch := w.mixedBatch(acme)
	first := w.publish(batch...)
	w.route()
	w.storedBefore(batch, first, w.publish(batch...))
	w.waiting(0)
	if n := len(w.pending(e, outbox.LaneLive)); n != len(batch) {
		w.Errorf("%d deliveries, want %d", n, len(batch))
	}
	w.verify()
}

func batchRunAgainAfterDelivery(w *world) {
	acme := w.tenant("acme")
	w.endpoint(acme, "*")
	batch := w.mixedBatch(acme)
	first := w.publish(batch...)
	for _, d := range w.route() {
		w.finish(w.delivered(d))
	}
	w.storedBefore(batch, first, w.publish(batch...))
	w.waiting(0)
	report := w.verify()
	if report.Planned != int64(len(batch)) || report.Delivered != int64(len(batch)) {
		w.Errorf("planned %d, delivered %d, want %d", report.Planned, report.Delivered, len(batch))
	}
}

func failedWriteRunAgain(w *world) {
	acme := w.tenant("acme")
	batch := w.mixedBatch(acme)
	ctx, cancel := context.WithCancel(w.ctx)
	cancel()
	_, _, err := w.store.InsertEvents(ctx, batch)
	if err == nil {
		w.Fatal("a write under a cancelled context reported success")
	}
	if _, ok := errors.AsType[*outbox.WriteError](err); !ok {
		w.Errorf("the error of a write is a %T, want a *WriteError: %v", err, err)
	}
	if fault := outbox.FaultOf(err); fault == outbox.FaultRefused || fault == outbox.FaultBroken {
		w.Errorf("fault %s would make the caller give a good batch up", fault)
	}
	w.publish(batch...)
	w.waiting(len(batch))
	w.verify()
}

// mixedBatch has every sort of member: minted, chosen and keyed.
func (w *world) mixedBatch(tenant outbox.Tenant) []outbox.NewEvent {
	minted, chosen, keyed := w.event(tenant, "a.b", `1`), w.event(tenant, "a.b", `2`), w.event(tenant, "a.b", `3`)
	chosen.Chosen = true
	keyed.IdempotencyKey = "order-1"
	return []outbox.NewEvent{minted, chosen, keyed}
}

// storedBefore checks the answer for a batch that is stored already. A member with a key or a
// chosen id is a duplicate. Whether one with an id of its own is said to be, is not promised: for
// its publisher it is the first.
func (w *world) storedBefore(batch []outbox.NewEvent, first, again []outbox.Accepted) {
	w.Helper()
	for i := range batch {
		want := outbox.Accepted{ID: first[i].ID, CreatedAt: first[i].CreatedAt, Duplicate: batch[i].Keyed() || again[i].Duplicate}
		w.equal("second answer", again[i], want)
	}
}

// conflicts checks that the batch is not stored because of one member, and why.
func (w *world) conflicts(what string, batch []outbox.NewEvent, index int, why error) {
	w.Helper()
	_, conflicts, err := w.store.InsertEvents(w.ctx, batch)
	w.must(err)
	if len(conflicts) != 1 || conflicts[0].Index != index || !errors.Is(conflicts[0].Err, why) {
		w.Errorf("%s: conflicts %v, want member %d: %v", what, conflicts, index, why)
	}
}

// waiting checks how many rows wait in the outbox.
func (w *world) waiting(want int) {
	w.Helper()
	if got := len(w.outbox()); got != want {
		w.Errorf("%d rows wait in the outbox, want %d", got, want)
	}
}
