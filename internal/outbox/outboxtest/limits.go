package outboxtest

import (
	"errors"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

var limits = topic{"limits, switch and probe", []promise{
	{"a rate limit is set, changed and taken away", rateLimitChanges},
	{"the stop switch is open at first, and every heartbeat tells how it stands", stopSwitch},
	{"a probe makes the next live delivery due, else the next replayed one", probeHastens},
	{"a probe of nothing only deletes its row", probeOfNothing},
	{"a probe passes over what waits for its turn", probePassesOverParked},
	{"a probe run again meets the same delivery", probeRunAgain},
	{"a probe needs the lease", probeNeedsLease},
}}

func rateLimitChanges(w *world) {
	e := w.endpoint(w.tenant("acme"), "*")
	w.equal("at first", e.RateLimit, (*outbox.RateLimit)(nil))
	for _, limit := range []*outbox.RateLimit{
		{Count: 1, Per: time.Microsecond},
		{Count: outbox.MaxRateCount, Per: outbox.MaxRatePer},
		nil,
		{Count: 3, Per: time.Minute},
	} {
		edited := w.editEndpoint(e, func(e *outbox.Endpoint) { e.RateLimit = limit })
		w.equal("after an edit", edited.RateLimit, limit)
		w.equal("loaded", w.config().Endpoints[0].RateLimit, limit)
	}
	edited := w.editEndpoint(e, func(e *outbox.Endpoint) { e.Description = "another" })
	w.equal("after an edit of something else", edited.RateLimit, &outbox.RateLimit{Count: 3, Per: time.Minute})
}

func stopSwitch(w *world) {
	node := w.join()
	state := func() outbox.DispatchState {
		w.Helper()
		read, err := w.store.Dispatch(w.ctx)
		w.must(err)
		w.equal("heartbeat", w.beat(node).Dispatch, read)
		return read
	}
	w.equal("at first", state(), outbox.DispatchState{})
	for _, want := range []outbox.DispatchState{
		{Paused: true, Reason: "The database ☂ 'moves'.", At: w.now, By: "ann"},
		{Paused: true, At: w.now.Add(time.Minute), By: "bob"},
		{At: w.now.Add(time.Hour), By: "ann"},
	} {
		w.must(w.store.SetDispatch(w.ctx, want))
		w.must(w.store.SetDispatch(w.ctx, want))
		w.equal("after it was set", state(), want)
	}
	w.must(w.store.WriteSettings(w.ctx, outbox.Settings{MaxPayload: 1000, Retention: kept, IdempotencyRetention: keysKept}))
	w.equal("after a server started", state(), outbox.DispatchState{At: w.now.Add(time.Hour), By: "ann"})
}

// askProbe asks for a probe of the endpoint and returns the outbox row.
func (w *world) askProbe(e outbox.Endpoint) outbox.OutboxRow {
	w.Helper()
	_, err := w.store.EditEndpoint(w.ctx, e.Tenant, outbox.EndpointRef{ID: e.ID}, w.now, func(*outbox.Endpoint) ([]outbox.Command, error) {
		return []outbox.Command{{Name: outbox.CommandProbe}}, nil
	})
	w.must(err)
	rows := w.ofKind(outbox.OutboxCommand)
	if len(rows) != 1 || rows[0].Command.Name != outbox.CommandProbe || rows[0].Endpoint != e.ID {
		w.Fatalf("the outbox has %+v, want one probe", rows)
	}
	return rows[0]
}

// hasten executes a probe.
func (w *world) hasten(row outbox.OutboxRow) *outbox.Delivery {
	w.Helper()
	w.owned()
	d, err := w.store.HastenOldest(w.ctx, w.lease, row, w.now)
	w.must(err)
	return d
}

func probeHastens(w *world) {
	acme := w.tenant("acme")
	e, other := w.endpoint(acme, "a.b"), w.endpoint(acme, "c.d")
	first, second, replayed := w.planned(e, "a.b"), w.planned(e, "a.b"), w.planned(e, "a.b")
	elsewhere := w.planned(other, "c.d")
	w.finish(w.refused(replayed))
	w.replay(replayed)
	// The second comes up before the first, and the replay before both.
	w.finish(outbox.Result{Delivery: first, Attempt: w.attempt(503), RetryAt: w.now.Add(time.Hour), At: w.now})
	w.finish(outbox.Result{Delivery: second, Attempt: w.attempt(503), RetryAt: w.now.Add(time.Minute), At: w.now})

	w.now = w.now.Add(time.Second)
	want := w.stored(second)
	want.NextAt = w.now
	w.equal("the probe", w.hasten(w.askProbe(e)), &want)
	w.equal("as it is stored", w.stored(second), want)
	w.waiting(0)

	// One that is due keeps its place.
	due := w.stored(second)
	w.now = w.now.Add(time.Second)
	w.equal("of one that is due", w.hasten(w.askProbe(e)), &due)

	w.finish(w.delivered(w.stored(first)), w.delivered(w.stored(second)))
	again := w.stored(replayed)
	w.equal("with replays alone", w.hasten(w.askProbe(e)), &again)
	w.equal("another endpoint's", w.stored(elsewhere), elsewhere)
	w.verify()
}

func probeOfNothing(w *world) {
	e := w.endpoint(w.tenant("acme"), "*")
	w.finish(w.delivered(w.planned(e, "a.b")))
	w.equal("the probe", w.hasten(w.askProbe(e)), (*outbox.Delivery)(nil))
	w.waiting(0)
}

func probePassesOverParked(w *world) {
	e := w.endpointWith(w.tenant("acme"), func(e *outbox.Endpoint) {
		e.Ordering, e.OnDead = outbox.OrderingStrict, outbox.OnDeadHold
	})
	tenant := outbox.Tenant{TenantRef: e.Tenant}
	w.publish(w.event(tenant, "a.b", "1"), w.event(tenant, "a.b", "2"))
	plans, next := w.plan(w.source(w.outbox()))
	for i := range plans {
		plans[i].Deliveries[0].TurnAt = w.now
	}
	routed, err := w.store.Route(w.ctx, w.lease, plans, next, w.now)
	w.must(err)
	first, parked := plans[0].Deliveries[0], plans[1].Deliveries[0]
	w.equal("parked", routed.Parked, []outbox.DeliveryID{parked.ID})
	w.finish(w.failed(w.stored(first)))
	if d := w.hasten(w.askProbe(e)); d == nil || d.ID != first.ID {
		w.Errorf("the probe is %+v, want %s", d, first.ID)
	}
	w.finish(w.refused(w.stored(first))) // and holds the others
	w.equal("with nothing else", w.hasten(w.askProbe(e)), (*outbox.Delivery)(nil))
	if view := w.view(parked); !view.Parked() {
		w.Error("the parked delivery is due")
	}
}

func probeRunAgain(w *world) {
	e := w.endpoint(w.tenant("acme"), "*")
	w.finish(w.failed(w.planned(e, "a.b")), w.failed(w.planned(e, "a.b")))
	row := w.askProbe(e)
	w.now = w.now.Add(time.Second)
	d := w.hasten(row)
	w.equal("run again", w.hasten(row), d)
	w.waiting(0)
}

func probeNeedsLease(w *world) {
	e := w.endpoint(w.tenant("acme"), "*")
	d := w.planned(e, "a.b")
	w.finish(w.failed(d))
	before := w.stored(d)
	row := w.askProbe(e)
	old := w.lease
	w.own()
	got, err := w.store.HastenOldest(w.ctx, old, row, w.now)
	if got != nil || !errors.Is(err, outbox.ErrFenced) {
		w.Errorf("%+v, %v, want it fenced off", got, err)
	}
	w.equal("the delivery", w.stored(d), before)
	w.waiting(1)
}
