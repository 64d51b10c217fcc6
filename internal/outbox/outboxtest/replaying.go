package outboxtest

import (
	"errors"
	"fmt"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

var replaying = topic{"replaying", []promise{
	{"a dead letter is planned again", replayDead},
	{"a delivered one is planned again", replayDelivered},
	{"a cancelled one is planned again", replayCancelled},
	{"a pending one becomes due now and stays what it is", replayPending},
	{"it can be done again and again", replayAgainAndAgain},
	{"asking twice is one round", replayTwice},
	{"executing the same rows again does nothing", replayRunAgain},
	{"nothing happens before the owner executes it", replayIsAsked},
	{"where endpoint or payload is gone it is refused", replayGone},
	{"where they went after asking the delivery stays as it is", replayGoneMeanwhile},
	{"of a foreign delivery it is not found", replayForeign},
}}

// revival checks that a delivery with the given number of tries was planned again now.
func (w *world) revival(before outbox.DeliveryView, due []outbox.Delivery, round int) outbox.Delivery {
	w.Helper()
	want := before.Delivery
	want.Round, want.RoundStart, want.Lane = round, before.Attempt, outbox.LaneReplay
	want.NextAt, want.SendableAt = w.now, w.now
	w.equal("due", due, []outbox.Delivery{want})
	w.equal("as it is stored", w.stored(want), want)
	view := w.view(want)
	w.equal("state", view.State, outbox.StatePending)
	w.equal("last try", view.Last, before.Last)
	if view.Dead != nil || !view.FinishedAt.IsZero() {
		w.Errorf("dead %+v, finished %v", view.Dead, view.FinishedAt)
	}
	return want
}

func (w *world) ask(d outbox.Delivery, was outbox.DeliveryState) {
	w.Helper()
	state, err := w.store.RequestReplay(w.ctx, outbox.TenantRef{ID: d.Tenant, Shard: d.Shard}, d.ID)
	w.must(err)
	w.equal("the state it had", state, was)
}

// orderly is the delivery of an event with an ordering key, planned as number 2; two deliveries
// of another event are pending beside it.
func (w *world) orderly() outbox.Delivery {
	w.Helper()
	acme := w.tenant("acme")
	w.endpoint(acme, "*")
	w.planned(w.endpoint(acme, "other"), "other")
	event := w.event(acme, "a.b", `{"n":1}`)
	event.OrderingKey = "order-7"
	w.publish(event)
	return w.route()[0]
}

func replayDead(w *world) {
	d := w.orderly()
	w.finish(w.failed(d))
	w.finish(w.refused(w.stored(d)))
	before := w.ended(d, outbox.StateDead)
	w.equal("tries", before.Attempt, 2)
	w.now = w.now.Add(time.Hour)
	w.ask(d, outbox.StateDead)
	again := w.revival(before, w.executeReplays(), 1)
	report := w.verify()
	w.equal("totals", []int64{report.Planned, report.Dead, report.Pending, report.Replayed}, []int64{4, 1, 3, 1})

	w.now = w.now.Add(time.Second)
	r := w.delivered(again)
	w.finish(r)
	view := w.ended(d, outbox.StateDelivered)
	w.equal("last try", view.Last, summary(r, 3))
	all := w.attempts(d)
	w.equal("rounds", []int{all[0].Round, all[1].Round, all[2].Round}, []int{0, 0, 1})
	report = w.verify()
	w.equal("totals", []int64{report.Planned, report.Dead, report.Delivered, report.Pending}, []int64{4, 1, 1, 2})
}

func replayDelivered(w *world) {
	d := w.orderly()
	w.finish(w.delivered(d))
	before := w.ended(d, outbox.StateDelivered)
	w.now = w.now.Add(time.Hour)
	w.ask(d, outbox.StateDelivered)
	again := w.revival(before, w.executeReplays(), 1)
	w.verify()
	w.now = w.now.Add(time.Second)
	w.finish(w.refused(again))
	view := w.ended(d, outbox.StateDead)
	w.equal("tries", view.Attempt, 2)
	report := w.verify()
	w.equal("totals", []int64{report.Planned, report.Delivered, report.Dead, report.Replayed}, []int64{4, 1, 1, 1})
}

func replayCancelled(w *world) {
	d := w.orderly()
	w.finish(outbox.Result{Delivery: d, Dead: outbox.DeadCancelled, At: w.now})
	before := w.ended(d, outbox.StateCancelled)
	w.now = w.now.Add(time.Hour)
	w.ask(d, outbox.StateCancelled)
	w.revival(before, w.executeReplays(), 1)
	report := w.verify()
	w.equal("totals", []int64{report.Planned, report.Cancelled, report.Pending, report.Replayed}, []int64{4, 1, 3, 1})
}

func replayPending(w *world) {
	d := w.orderly()
	w.finish(w.failed(d))
	before := w.stored(d)
	w.now = w.now.Add(time.Second) // its next try is in 59 s
	w.ask(d, outbox.StatePending)
	due := w.executeReplays()
	after := w.stored(d)
	w.equal("due", due, []outbox.Delivery{after})
	w.equal("next try", after.NextAt, w.now)
	after.NextAt, after.SendableAt = before.NextAt, before.SendableAt
	w.equal("everything else", after, before)
	report := w.verify()
	w.equal("planned", report.Planned, int64(3))
}

func replayAgainAndAgain(w *world) {
	d := w.orderly()
	w.finish(w.delivered(d))
	for round := 1; round <= 3; round++ {
		before := w.ended(d, outbox.StateDelivered)
		w.now = w.now.Add(time.Second)
		w.ask(d, outbox.StateDelivered)
		again := w.revival(before, w.executeReplays(), round)
		w.finish(w.delivered(again))
	}
	w.equal("tries", len(w.attempts(d)), 4)
	w.equal("listed", len(w.listDeliveries(outbox.DeliveryQuery{Event: d.Event}, 10, false)), 1)
	report := w.verify()
	w.equal("totals", []int64{report.Planned, report.Delivered, report.Replayed}, []int64{6, 4, 3})
}

func replayTwice(w *world) {
	d := w.orderly()
	w.finish(w.refused(d))
	before := w.view(d)
	w.ask(d, outbox.StateDead)
	w.ask(d, outbox.StateDead) // the owner has not come to it yet
	w.executeReplays()
	again := w.stored(d)
	w.equal("round", again.Round, 1)
	w.equal("tries", again.Attempt, before.Attempt)
	w.waiting(0)
	w.equal("replayed", w.verify().Replayed, int64(1))
}

func replayRunAgain(w *world) {
	d := w.orderly()
	w.finish(w.refused(d))
	w.ask(d, outbox.StateDead)
	rows := w.source(w.ofKind(outbox.OutboxReplay))
	_, err := w.store.Replay(w.ctx, w.lease, rows, w.now)
	w.must(err)
	w.now = w.now.Add(time.Second)
	again := w.stored(d)
	_, err = w.store.Replay(w.ctx, w.lease, rows, w.now)
	w.must(err)
	w.equal("still pending", w.stored(d), again)
	w.finish(w.delivered(again))
	_, err = w.store.Replay(w.ctx, w.lease, rows, w.now)
	w.must(err)
	w.ended(d, outbox.StateDelivered)
	report := w.verify()
	w.equal("totals", []int64{report.Planned, report.Replayed}, []int64{4, 1})
}

func replayIsAsked(w *world) {
	d := w.orderly()
	w.finish(w.refused(d))
	before := w.view(d)
	w.ask(d, outbox.StateDead)
	w.equal("the delivery", w.view(d), before)
	rows := w.outbox()
	if len(rows) != 1 {
		w.Fatalf("%d rows, want 1", len(rows))
	}
	w.equal("row", rows[0], outbox.OutboxRow{Shard: d.Shard, Pos: rows[0].Pos, Kind: outbox.OutboxReplay, Tenant: d.Tenant, Event: d.Event, Endpoint: d.Endpoint})
	rows = w.source(rows)
	if rows[0].Source == nil || string(rows[0].Source.Payload) != `{"n":1}` {
		w.Errorf("source %+v", rows[0].Source)
	}
	report := w.verify()
	w.equal("events that wait", report.Waiting, int64(0))
}

func replayGone(w *world) {
	door := w.backdoor()
	acme, globex := w.strangers("acme")
	e, lost := w.endpoint(acme, "*"), w.endpoint(globex, "*")
	ends := []func(outbox.Delivery) outbox.Result{w.delivered, w.refused}
	var noEndpoint, noPayload []outbox.Delivery
	for _, end := range ends {
		d, l := w.planned(e, "a.b"), w.planned(lost, "a.b")
		w.finish(end(d), end(l))
		noEndpoint, noPayload = append(noEndpoint, d), append(noPayload, l)
	}
	_, err := w.store.DeleteEndpoint(w.ctx, acme.TenantRef, outbox.EndpointRef{ID: e.ID}, w.now, 1)
	w.must(err)
	w.must(door.Exec(w.ctx, fmt.Sprintf(`DELETE FROM {event} WHERE shard = %d`, globex.Shard)))
	w.executeCommands()
	for i := range ends {
		if _, err := w.store.RequestReplay(w.ctx, acme.TenantRef, noEndpoint[i].ID); !errors.Is(err, outbox.ErrEndpointGone) {
			w.Errorf("endpoint deleted: %v", err)
		}
		if _, err := w.store.RequestReplay(w.ctx, globex.TenantRef, noPayload[i].ID); !errors.Is(err, outbox.ErrPayloadGone) {
			w.Errorf("payload gone: %v", err)
		}
	}
	w.waiting(0)
}

func replayGoneMeanwhile(w *world) {
	acme := w.tenant("acme")
	e := w.endpoint(acme, "*")
	dead, delivered := w.planned(e, "a.b"), w.planned(e, "a.b")
	w.finish(w.refused(dead), w.delivered(delivered))
	w.ask(dead, outbox.StateDead)
	w.ask(delivered, outbox.StateDelivered)
	_, err := w.store.DeleteEndpoint(w.ctx, acme.TenantRef, outbox.EndpointRef{ID: e.ID}, w.now, 1)
	w.must(err)
	w.equal("due", w.executeReplays(), []outbox.Delivery{})
	w.executeCommands()
	w.waiting(0)
	w.ended(dead, outbox.StateDead)
	w.ended(delivered, outbox.StateDelivered)
	report := w.verify()
	w.equal("totals", []int64{report.Planned, report.Replayed, report.Pending}, []int64{2, 0, 0})
}

func replayForeign(w *world) {
	acme, globex := w.neighbours("acme")
	e := w.endpoint(acme, "*")
	dead, pending, done := w.planned(e, "a.b"), w.planned(e, "a.b"), w.planned(e, "a.b")
	w.finish(w.refused(dead), w.delivered(done))
	for _, id := range []outbox.DeliveryID{dead.ID, pending.ID, done.ID, outbox.NewDeliveryID(dead.Event, outbox.NewEndpointID(w.now)), {}} {
		if _, err := w.store.RequestReplay(w.ctx, globex.TenantRef, id); !errors.Is(err, outbox.ErrNotFound) {
			w.Errorf("%s: %v, want not found", id, err)
		}
	}
	w.waiting(0)
}
