package outboxtest

import (
	"fmt"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

var finishing = topic{"finishing", []promise{
	{"a delivered one leaves and is remembered", finishDelivered},
	{"a failed one waits for its next try", finishRetry},
	{"a dead one becomes a dead letter with its answer", finishDead},
	{"an end without a try says why", finishWithoutAttempt},
	{"a batch run again changes nothing", finishAgain},
	{"a batch has results of many tenants and every sort", finishMixed},
	{"two results of one delivery in one batch are both kept", finishTwiceInBatch},
	{"finishing nothing is nothing", finishNothing},
	{"tries are counted over retries", finishCounts},
}}

// ended checks that nothing of the delivery is pending and returns it as people see it.
func (w *world) ended(d outbox.Delivery, state outbox.DeliveryState) outbox.DeliveryView {
	w.Helper()
	view := w.view(d)
	if view.State != state {
		w.Fatalf("the delivery is %s, want %s", view.State, state)
	}
	for _, lane := range []outbox.Lane{outbox.LaneLive, outbox.LaneReplay} {
		for _, p := range w.pending(outbox.Endpoint{ID: d.Endpoint, Tenant: outbox.TenantRef{ID: d.Tenant, Shard: d.Shard}}, lane) {
			if p.ID == d.ID {
				w.Fatal("it is still pending")
			}
		}
	}
	return view
}

// summary is what a list shows of a try.
func summary(r outbox.Result, n int) *outbox.AttemptSummary {
	a := r.Attempt
	return &outbox.AttemptSummary{ID: a.ID, N: n, At: a.At, Duration: a.Duration, StatusCode: a.StatusCode, Kind: a.Kind, Message: a.Message}
}

func finishDelivered(w *world) {
	e := w.endpoint(w.tenant("acme"), "*")
	d := w.planned(e, "a.b")
	planned := w.now
	w.now = w.now.Add(time.Second)
	r := w.delivered(d)
	w.finish(r)
	view := w.ended(d, outbox.StateDelivered)
	w.equal("last try", view.Last, summary(r, 1))
	w.equal("finished", view.FinishedAt, w.now)
	if view.Dead != nil {
		w.Errorf("it is dead: %+v", view.Dead)
	}
	w.equal("what it was", []any{view.Tenant, view.Endpoint, view.Event, view.EventType, view.Sequence, view.Round, view.Attempt, view.TenantKey, view.EndpointURL},
		[]any{d.Tenant, d.Endpoint, d.Event, d.EventType, d.Sequence, 0, 1, "acme", "https://hooks.example.com/in"})
	if view.CreatedAt.After(planned) || planned.Sub(view.CreatedAt) > time.Millisecond {
		w.Errorf("created %v, its event is of %v", view.CreatedAt, planned)
	}
	report := w.verify()
	w.equal("totals", []int64{report.Planned, report.Delivered, report.Pending, report.Dead}, []int64{1, 1, 0, 0})
}

func finishRetry(w *world) {
	e := w.endpoint(w.tenant("acme"), "*")
	d := w.planned(e, "a.b")
	w.now = w.now.Add(time.Second)
	r := w.failed(d)
	r.RetryAt = w.now.Add(90*time.Second + 7*time.Microsecond)
	w.finish(r)
	want := d
	want.Attempt, want.NextAt = 1, r.RetryAt
	w.equal("as it is stored", w.stored(d), want)
	view := w.view(d)
	w.equal("state", view.State, outbox.StatePending)
	w.equal("last try", view.Last, summary(r, 1))
	w.equal("next try", view.NextAt, r.RetryAt)
	if !view.FinishedAt.IsZero() || view.Dead != nil {
		w.Errorf("finished %v, dead %v", view.FinishedAt, view.Dead)
	}
	report := w.verify()
	w.equal("totals", []int64{report.Planned, report.Delivered, report.Pending}, []int64{1, 0, 1})
}

func finishDead(w *world) {
	e := w.endpoint(w.tenant("acme"), "*")
	for _, reason := range []outbox.DeadReason{outbox.DeadPermanent, outbox.DeadExhausted, outbox.DeadPoison, outbox.DeadCancelled} {
		d := w.planned(e, "a.b")
		w.now = w.now.Add(time.Second)
		r := w.refused(d)
		r.Dead = reason
		w.finish(r)
		view := w.ended(d, reason.State())
		w.equal("last try", view.Last, summary(r, 1))
		w.equal("why", view.Dead, &outbox.DeadInfo{Reason: reason, Kind: outbox.KindHTTPStatus, Message: "Your server answered 404.", At: w.now})
		w.equal("finished", view.FinishedAt, w.now)
		w.equal("number", view.Sequence, d.Sequence)
	}
	report := w.verify()
	w.equal("totals", []int64{report.Planned, report.Dead, report.Cancelled, report.Pending}, []int64{4, 3, 1, 0})
}

func finishWithoutAttempt(w *world) {
	e := w.endpoint(w.tenant("acme"), "*")
	d, tried := w.planned(e, "a.b"), w.planned(e, "a.b")
	failed := w.failed(tried)
	w.finish(failed)
	tried = w.stored(tried)
	w.now = w.now.Add(time.Second)
	end := outbox.Result{Dead: outbox.DeadPermanent, DeadKind: outbox.KindPayloadGone, DeadMessage: "The event is no longer kept.", At: w.now}
	one, two := end, end
	one.Delivery, two.Delivery = d, tried
	w.finish(one, two)
	want := &outbox.DeadInfo{Reason: outbox.DeadPermanent, Kind: outbox.KindPayloadGone, Message: "The event is no longer kept.", At: w.now}
	view := w.ended(d, outbox.StateDead)
	w.equal("why", view.Dead, want)
	if view.Last != nil || view.Attempt != 0 {
		w.Errorf("never tried, yet: %d tries, %+v", view.Attempt, view.Last)
	}
	view = w.ended(tried, outbox.StateDead)
	w.equal("why", view.Dead, want)
	w.equal("last try", view.Last, summary(failed, 1))
	w.verify()
}

func finishAgain(w *world) {
	e := w.endpoint(w.tenant("acme"), "*")
	batch := []outbox.Result{w.delivered(w.planned(e, "a.b")), w.failed(w.planned(e, "a.b")), w.refused(w.planned(e, "a.b"))}
	w.finish(batch...)
	before := w.verify()
	views := func() (all []outbox.DeliveryView) {
		for _, r := range batch {
			all = append(all, w.view(r.Delivery))
			w.equal("tries", len(w.attempts(r.Delivery)), 1)
		}
		return all
	}
	want := views()
	for range 2 {
		w.finish(batch...)
		w.equal("deliveries", views(), want)
		after := w.verify()
		before.At, after.At = w.now, w.now
		w.equal("the books", after, before)
	}
	// One by one and in another order, too.
	w.finish(batch[2])
	w.finish(batch[1], batch[0])
	w.equal("deliveries", views(), want)
	w.verify()
}

func finishMixed(w *world) {
	acme, globex := w.strangers("acme")
	_, umbrella := w.neighbours("acme")
	var results []outbox.Result
	want := map[outbox.DeliveryID]outbox.DeliveryState{}
	for _, tenant := range []outbox.Tenant{acme, globex, umbrella} {
		e := w.endpoint(tenant, "*")
		for range 10 {
			w.publishOne(tenant, "a.b", `{}`)
		}
		_ = e
	}
	for i, d := range w.route() {
		sort := []struct {
			state  outbox.DeliveryState
			result outbox.Result
		}{
			{outbox.StateDelivered, w.delivered(d)},
			{outbox.StatePending, w.failed(d)},
			{outbox.StateDead, w.refused(d)},
		}[i%3]
		results = append(results, sort.result)
		want[d.ID] = sort.state
	}
	w.finish(results...)
	for _, r := range results {
		w.equal("state", w.view(r.Delivery).State, want[r.Delivery.ID])
	}
	report := w.verify()
	w.equal("totals", []int64{report.Planned, report.Delivered, report.Pending, report.Dead}, []int64{30, 10, 10, 10})
}

func finishTwiceInBatch(w *world) {
	e := w.endpoint(w.tenant("acme"), "*")
	for i, pair := range [][2]func(outbox.Delivery) outbox.Result{
		{w.delivered, w.delivered},
		{w.delivered, w.failed},
		{w.delivered, w.refused},
		{w.failed, w.delivered},
		{w.refused, w.refused},
	} {
		d := w.planned(e, "a.b")
		w.finish(pair[0](d), pair[1](d))
		if n := len(w.attempts(d)); n != 2 {
			w.Errorf("pair %d: %d tries are kept, want both", i, n)
		}
		if state := w.view(d).State; i != 4 && state != outbox.StateDelivered {
			w.Errorf("pair %d: %s, want delivered", i, state)
		}
		w.verify()
	}
}

func finishNothing(w *world) { w.finish() }

func finishCounts(w *world) {
	e := w.endpoint(w.tenant("acme"), "*")
	d := w.planned(e, "a.b")
	const tries = 5
	for n := 1; n <= tries; n++ {
		w.now = w.now.Add(time.Hour)
		w.finish(w.failed(d))
		d = w.stored(d)
		w.equal(fmt.Sprintf("tries after %d", n), d.Attempt, n)
	}
	w.now = w.now.Add(time.Hour)
	w.finish(w.delivered(d))
	view := w.ended(d, outbox.StateDelivered)
	w.equal("tries", view.Attempt, tries+1)
	w.equal("number of the last", view.Last.N, tries+1)
	for i, a := range w.attempts(d) {
		w.equal("number", a.N, i+1)
	}
	w.verify()
}
