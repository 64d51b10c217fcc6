package outboxtest

import (
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

var monitoring = topic{"monitoring", []promise{
	{"an empty database has nothing waiting", vitalsOfNothing},
	{"what waits is counted, and its age is that of the oldest event", vitalsCount},
	{"a large replay does not hide the events behind it", vitalsBehindReplays},
}}

func (w *world) vitals() outbox.Vitals {
	w.Helper()
	v, err := w.store.Vitals(w.ctx, w.now)
	w.must(err)
	return v
}

func vitalsOfNothing(w *world) {
	w.maintain()
	v := w.vitals()
	if v.Pending != 0 || v.DeadLetters != 0 || !v.OldestPending.IsZero() || !v.OldestUnrouted.IsZero() {
		w.Errorf("an empty database: %+v", v)
	}
	if v.PartitionDaysAhead < 7 {
		w.Errorf("%d days ahead, want a week at least", v.PartitionDaysAhead)
	}
	if v.Bytes <= 0 {
		w.Errorf("it takes up %d bytes", v.Bytes)
	}
}

func vitalsCount(w *world) {
	acme := w.tenant("acme")
	e := w.endpoint(acme, "*")
	w.own()
	oldest := w.planned(e, "a")
	dead := w.planned(e, "b")
	w.finish(w.refused(dead), w.delivered(w.planned(e, "c")))
	w.now = w.now.Add(time.Minute)
	unrouted := w.publishOne(acme, "d", `{}`)

	v := w.vitals()
	w.equal("pending", v.Pending, int64(1))
	w.equal("dead letters", v.DeadLetters, int64(1))
	w.equal("the oldest pending", v.OldestPending, oldest.Event.Time())
	w.equal("the oldest unrouted", v.OldestUnrouted, unrouted.ID.Time())

	w.replay(dead)
	v = w.vitals()
	w.equal("pending after a replay", v.Pending, int64(2))
	w.equal("dead letters after a replay", v.DeadLetters, int64(0))
}

func vitalsBehindReplays(w *world) {
	acme := w.tenant("acme")
	e := w.endpoint(acme, "*")
	w.own()
	dead := w.planned(e, "a")
	w.finish(w.refused(dead))
	_, err := w.store.RequestReplay(w.ctx, acme.TenantRef, dead.ID)
	w.must(err)
	w.now = w.now.Add(time.Minute)
	unrouted := w.publishOne(acme, "b", `{}`)
	w.equal("the oldest unrouted", w.vitals().OldestUnrouted, unrouted.ID.Time())
}
