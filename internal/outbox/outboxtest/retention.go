package outboxtest

import (
	"errors"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

var retention = topic{"retention", []promise{
	{"what is finished and old goes, with its payload and tries", oldGoes},
	{"what is pending keeps its payload however old it is", pendingKeeps},
	{"a dead letter keeps its payload and ages from its death", deadLetterKeeps},
	{"what was replayed ages from its replay", replayedKeeps},
	{"numbers go on after everything is gone", numbersGoOn},
	{"an outbox row never loses its event", waitingKeeps},
	{"days that go early leave dead letters what they need", earlyDays},
}}

// age lets days pass as a node does them: upkeep once a day, so that there is room for the next
// days' rows and the old ones go. It returns once what is due to go had its chance.
func (w *world) age(by time.Duration) {
	w.Helper()
	for end := w.now.Add(by); w.now.Before(end); {
		w.now = w.now.Add(min(5*days, end.Sub(w.now)))
		w.maintain()
	}
	for range patience {
		w.maintain()
	}
}

func (w *world) gone(tenant outbox.Tenant, d outbox.Delivery) {
	w.Helper()
	if _, err := w.store.Payload(w.ctx, tenant.TenantRef, d.Event); !errors.Is(err, outbox.ErrPayloadGone) && !errors.Is(err, outbox.ErrNotFound) {
		w.Errorf("payload: %v, want gone", err)
	}
	if _, err := w.store.Delivery(w.ctx, tenant.TenantRef, d.ID); !errors.Is(err, outbox.ErrNotFound) {
		w.Errorf("delivery: %v, want not found", err)
	}
	for _, v := range w.listDeliveries(outbox.DeliveryQuery{Tenant: tenant.TenantRef}, 250, false) {
		if v.ID == d.ID {
			w.Error("the delivery is still listed")
		}
	}
	for _, v := range w.listEvents(outbox.EventQuery{Tenant: tenant.TenantRef}, 250, false) {
		if v.ID == d.Event {
			w.Error("the event is still listed")
		}
	}
}

func (w *world) payload(tenant outbox.Tenant, d outbox.Delivery) {
	w.Helper()
	payload, err := w.store.Payload(w.ctx, tenant.TenantRef, d.Event)
	w.must(err)
	w.equal("payload", string(payload), `{"n":1}`)
}

func oldGoes(w *world) {
	acme := w.tenant("acme")
	e := w.endpoint(acme, "*")
	d := w.planned(e, "a.b")
	w.finish(w.failed(d))
	w.finish(w.delivered(w.stored(d)))
	unmatched := w.publishOne(w.tenant("globex"), "a.b", `{}`)
	w.route()
	before := w.verify()
	w.age(kept - days)
	w.payload(acme, d)
	w.equal("tries", len(w.attempts(d)), 2)
	w.age(3 * days)
	w.gone(acme, d)
	w.equal("tries", len(w.attempts(d)), 0)
	if _, err := w.store.Event(w.ctx, unmatched.Tenant, unmatched.ID); !errors.Is(err, outbox.ErrNotFound) {
		w.Errorf("the unmatched event: %v, want not found", err)
	}
	after := w.verify()
	w.equal("delivered in all time", after.Delivered, before.Delivered)
}

func pendingKeeps(w *world) {
	acme := w.tenant("acme")
	e := w.endpoint(acme, "*")
	d := w.planned(e, "a.b")
	w.finish(w.failed(d))
	w.age(kept + 10*days)
	w.payload(acme, d)
	due := w.pending(e, outbox.LaneLive)
	if len(due) != 1 || due[0].Gone || string(due[0].Payload) != `{"n":1}` || !due[0].EventCreatedAt.Equal(d.SendableAt) {
		w.Fatalf("pending: %+v", due)
	}
	w.equal("state", w.view(d).State, outbox.StatePending)
	w.verify()
	w.finish(w.delivered(due[0].Delivery))
	w.ended(d, outbox.StateDelivered)
	w.verify()
}

func deadLetterKeeps(w *world) {
	acme := w.tenant("acme")
	e := w.endpoint(acme, "*")
	d, forgotten := w.planned(e, "a.b"), w.planned(e, "a.b")
	w.age(20 * days)
	w.finish(w.refused(d))
	w.finish(w.refused(forgotten))
	w.age(15 * days) // the event's day is gone, the letter is 15 days old
	w.payload(acme, d)
	w.equal("state", w.view(d).State, outbox.StateDead)
	w.verify()

	w.replay(d)
	due := w.pending(e, outbox.LaneReplay)
	if len(due) != 1 || due[0].Gone || string(due[0].Payload) != `{"n":1}` {
		w.Fatalf("replayed: %+v", due)
	}
	w.finish(w.delivered(due[0].Delivery))
	w.ended(d, outbox.StateDelivered)
	w.verify()

	w.age(18 * days) // the other letter is 33 days old
	w.gone(acme, forgotten)
	report := w.verify()
	w.equal("dead in all time", report.Dead, int64(2))
}

func replayedKeeps(w *world) {
	acme := w.tenant("acme")
	e := w.endpoint(acme, "*")
	d := w.planned(e, "a.b")
	w.finish(w.delivered(d))
	w.age(25 * days)
	w.replay(d)
	w.age(10 * days)
	w.payload(acme, d)
	w.equal("round", w.stored(d).Round, 1)
	w.equal("state", w.view(d).State, outbox.StatePending)
	w.verify()
}

func numbersGoOn(w *world) {
	acme := w.tenant("acme")
	e := w.endpoint(acme, "*")
	for range 3 {
		w.finish(w.delivered(w.planned(e, "a.b")))
	}
	w.age(kept + 5*days)
	w.equal("next", w.next(e), int64(4))
	w.equal("number", w.planned(e, "a.b").Sequence, int64(4))
	w.verify()
}

func waitingKeeps(w *world) {
	acme := w.tenant("acme")
	e := w.endpoint(acme, "*")
	event := w.publishOne(acme, "a.b", `{"n":1}`)
	w.age(kept + 5*days) // nobody routed anything for a month
	w.waiting(1)
	w.verify()
	planned := w.route()
	if len(planned) != 1 || planned[0].Event != event.ID {
		w.Fatalf("planned %+v", planned)
	}
	due := w.pending(e, outbox.LaneLive)
	if len(due) != 1 || due[0].Gone || string(due[0].Payload) != `{"n":1}` {
		w.Fatalf("pending: %+v", due)
	}
	w.verify()
}

func earlyDays(w *world) {
	acme := w.tenant("acme")
	e := w.endpoint(acme, "*")
	w.own()
	done, dead := w.planned(e, "a"), w.planned(e, "a")
	first := done.Event.Day()
	w.finish(w.delivered(done), w.refused(dead))
	w.now = w.now.Add(10 * days)
	w.maintain()
	if oldest := w.vitals().OldestDay; oldest.After(first) {
		w.Errorf("the oldest day is %v, want %v or the day before", oldest, first)
	}
	m := w.maintenance()
	m.Days = 8 * days
	for range patience {
		w.must(w.store.Maintain(w.ctx, m))
	}
	w.gone(acme, done)
	w.payload(acme, dead)
	w.equal("the dead letter", w.view(dead).State, outbox.StateDead)
	w.verify()
}
