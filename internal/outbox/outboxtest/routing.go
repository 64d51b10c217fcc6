package outboxtest

import (
	"fmt"
	"slices"

	"github.com/waybill-dev/waybill/internal/outbox"
)

var routing = topic{"routing", []promise{
	{"the outbox is read by shard, from a position, in order, up to a limit", readOutbox},
	{"the tip is the newest position given out", outboxTip},
	{"events are read with payloads as long as they fit", readEventsFit},
	{"the source of an event that is gone is nil", readEventsGone},
	{"a routed event is pending at every endpoint that wants it", routedIsPending},
	{"an event nobody wants is routed all the same", unmatchedIsRouted},
	{"a row that is gone stops the whole call", goneWritesNothing},
	{"a call run again writes nothing", routeRunAgain},
	{"an event is never routed by an older configuration", staleConfiguration},
	{"routing nothing is nothing", routeNothing},
}}

func readOutbox(w *world) {
	acme, globex := w.strangers("acme")
	byShard := map[outbox.Shard][]int64{}
	for i := range 12 {
		tenant := acme
		if i%3 == 0 {
			tenant = globex
		}
		e := w.event(tenant, "a.b", `{}`)
		byShard[tenant.Shard] = append(byShard[tenant.Shard], w.publish(e)[0].Pos)
	}
	a, g := byShard[acme.Shard], byShard[globex.Shard]
	for _, c := range []struct {
		name   string
		shards []outbox.Shard
		after  []int64
		limit  int
		want   map[outbox.Shard][]int64
	}{
		{"all", []outbox.Shard{acme.Shard, globex.Shard}, []int64{0, 0}, 100, byShard},
		{"one shard", []outbox.Shard{globex.Shard}, []int64{0}, 100, map[outbox.Shard][]int64{globex.Shard: g}},
		{"each its cursor", []outbox.Shard{globex.Shard, acme.Shard}, []int64{g[1], a[5]}, 100, map[outbox.Shard][]int64{globex.Shard: g[2:], acme.Shard: a[6:]}},
		{"at most two of each", []outbox.Shard{acme.Shard, globex.Shard}, []int64{a[0], 0}, 2, map[outbox.Shard][]int64{acme.Shard: a[1:3], globex.Shard: g[:2]}},
		{"behind the end", []outbox.Shard{acme.Shard}, []int64{a[7]}, 100, nil},
		{"no shard", nil, nil, 100, nil},
	} {
		rows, err := w.store.ReadOutbox(w.ctx, c.shards, c.after, c.limit)
		w.must(err)
		got := map[outbox.Shard][]int64{}
		for _, row := range rows {
			got[row.Shard] = append(got[row.Shard], row.Pos)
			if row.Source != nil {
				w.Errorf("%s: a row that is not thin", c.name)
			}
		}
		w.equal(c.name, got, c.want)
	}
}

func outboxTip(w *world) {
	tip := func() int64 {
		w.Helper()
		tip, err := w.store.OutboxTip(w.ctx)
		w.must(err)
		return tip
	}
	w.equal("at first", tip(), int64(0))
	acme := w.tenant("acme")
	w.endpoint(acme, "*")
	accepted := w.publish(w.event(acme, "a.b", `{}`), w.event(acme, "a.b", `{}`))
	w.equal("after two events", tip(), accepted[1].Pos)
	w.route()
	w.equal("after they were routed", tip(), accepted[1].Pos)
	third := w.publish(w.event(acme, "a.b", `{}`))
	if third[0].Pos <= accepted[1].Pos {
		w.Errorf("position %d was given out after %d: positions are never used again", third[0].Pos, accepted[1].Pos)
	}
}

func readEventsFit(w *world) {
	acme := w.tenant("acme")
	for range 4 {
		w.publishOne(acme, "a.b", `"12345678"`) // 10 bytes
	}
	for budget, want := range map[int64]int{0: 0, 9: 0, 10: 1, 19: 1, 20: 2, 39: 3, 40: 4, 1000: 4} {
		rows := w.outbox()
		w.must(w.store.ReadEvents(w.ctx, rows, budget))
		got := 0
		for i, row := range rows {
			switch {
			case row.Source == nil:
				w.Fatalf("%d bytes: row %d has no source", budget, i)
			case row.HasPayload != (i < want):
				w.Errorf("%d bytes: row %d has a payload: %v", budget, i, row.HasPayload)
			case row.HasPayload:
				got += len(row.Source.Payload)
			case len(row.Source.Payload) > 0:
				w.Errorf("%d bytes: row %d says it has no payload", budget, i)
			}
			w.equal("type", row.Source.Type, "a.b")
		}
		w.equal(fmt.Sprintf("bytes read under a budget of %d", budget), got, 10*want)
	}
}

func readEventsGone(w *world) {
	door := w.backdoor()
	acme, globex := w.strangers("acme")
	w.publishOne(acme, "a.b", `1`)
	w.publishOne(globex, "a.b", `2`)
	w.must(door.Exec(w.ctx, fmt.Sprintf(`DELETE FROM {event} WHERE shard = %d`, acme.Shard)))
	for _, row := range w.source(w.outbox()) {
		if gone := row.Shard == acme.Shard; gone != (row.Source == nil) {
			w.Errorf("gone is %v, source is %v", gone, row.Source)
		}
	}
	for _, d := range w.route() { // its row goes all the same
		w.Errorf("planned %+v", d)
	}
	w.waiting(0)
}

func routedIsPending(w *world) {
	acme, globex := w.neighbours("acme")
	all, some := w.endpoint(acme, "*"), w.endpoint(acme, "a.*")
	paused := w.endpointWith(acme, func(e *outbox.Endpoint) { e.State = outbox.EndpointPaused })
	w.endpointWith(acme, func(e *outbox.Endpoint) { e.State = outbox.EndpointDraft })
	w.endpoint(globex, "*")

	event := w.event(acme, "a.b", `{"n":1}`)
	event.OrderingKey = "order-7"
	w.publish(event)
	w.publishOne(acme, "c", `{}`)
	planned := w.route()
	w.waiting(0)
	for e, want := range map[outbox.EndpointID]int{all.ID: 2, some.ID: 1, paused.ID: 2} {
		endpoint := outbox.Endpoint{ID: e, Tenant: acme.TenantRef}
		var of []outbox.Delivery
		for _, d := range planned {
			if d.Endpoint == e {
				of = append(of, d)
			}
		}
		due := w.pending(endpoint, outbox.LaneLive)
		if len(due) != want || len(of) != want {
			w.Fatalf("%d pending, %d planned, want %d", len(due), len(of), want)
		}
		for _, d := range due {
			i := slices.IndexFunc(of, func(o outbox.Delivery) bool { return o.ID == d.ID })
			w.equal("delivery as it is stored", d.Delivery, of[i])
			w.equal("time of its event", d.EventCreatedAt, w.now)
		}
		n, oldest, err := w.store.PendingOf(w.ctx, acme.TenantRef, e, 100)
		w.must(err)
		w.equal("pending", n, want)
		w.equal("oldest", oldest, w.now)
	}
	report := w.verify()
	w.equal("totals", []int64{report.Planned, report.Pending, report.Events, report.Routed, report.Matched, report.Unmatched, report.Waiting}, []int64{5, 5, 2, 2, 2, 0, 0})
}

func unmatchedIsRouted(w *world) {
	acme := w.tenant("acme")
	w.endpoint(acme, "other")
	event := w.publishOne(acme, "a.b", `{}`)
	if planned := w.route(); len(planned) != 0 {
		w.Errorf("planned %v", planned)
	}
	w.waiting(0)
	view, err := w.store.Event(w.ctx, acme.TenantRef, event.ID)
	w.must(err)
	w.equal("state", view.State, outbox.EventUnmatched)
	report := w.verify()
	w.equal("totals", []int64{report.Events, report.Routed, report.Matched, report.Unmatched, report.Planned}, []int64{1, 1, 0, 1, 0})
}

// twoShards publishes an event in each of two shards and plans both.
func (w *world) twoShards() (plans []outbox.Plan, next map[outbox.EndpointID]int64, all []outbox.Endpoint) {
	w.Helper()
	acme, globex := w.strangers("acme")
	all = []outbox.Endpoint{w.endpoint(acme, "*"), w.endpoint(globex, "*")}
	w.publishOne(acme, "a.b", `{}`)
	w.publishOne(globex, "a.b", `{}`)
	plans, next = w.plan(w.source(w.outbox()))
	if len(plans) != 2 {
		w.Fatalf("%d plans, want 2", len(plans))
	}
	return plans, next, all
}

// untouched checks that a call wrote nothing: both events wait, nothing is pending or numbered.
func (w *world) untouched(what string, waiting int, endpoints []outbox.Endpoint) {
	w.Helper()
	w.waiting(waiting)
	ask := map[outbox.EndpointID]outbox.Shard{}
	for _, e := range endpoints {
		ask[e.ID] = e.Tenant.Shard
		if n := len(w.pending(e, outbox.LaneLive)); n != 0 {
			w.Errorf("%s: %d deliveries were written", what, n)
		}
	}
	next, err := w.store.NextSequences(w.ctx, ask)
	w.must(err)
	for _, n := range next {
		if n != 1 {
			w.Errorf("%s: the next number is %d, want 1", what, n)
		}
	}
	w.equal(what+": planned", w.verify().Planned, int64(0))
}

func goneWritesNothing(w *world) {
	plans, next, all := w.twoShards()
	phantom := plans[0]
	phantom.Row.Pos = plans[1].Row.Pos + 1000
	routed, err := w.store.Route(w.ctx, w.lease, []outbox.Plan{phantom, plans[1]}, next, w.now)
	w.must(err)
	w.equal("gone", routed, outbox.Routed{Gone: []int64{phantom.Row.Pos}})
	w.untouched("a row is gone", 2, all)

	// The same position in another shard is another row.
	swapped := plans[0]
	swapped.Row.Pos = plans[1].Row.Pos
	routed, err = w.store.Route(w.ctx, w.lease, []outbox.Plan{swapped}, next, w.now)
	w.must(err)
	w.equal("gone", routed, outbox.Routed{Gone: []int64{swapped.Row.Pos}})
	w.untouched("the row is of another shard", 2, all)
	w.routePlans(plans, next)
	w.verify()
}

func routeRunAgain(w *world) {
	plans, next, all := w.twoShards()
	w.routePlans(plans, next)
	before := w.verify()
	routed, err := w.store.Route(w.ctx, w.lease, plans, next, w.now)
	w.must(err)
	slices.Sort(routed.Gone)
	w.equal("gone", routed, outbox.Routed{Gone: []int64{plans[0].Row.Pos, plans[1].Row.Pos}})
	// Also where one delivery is finished meanwhile.
	w.finish(w.delivered(plans[0].Deliveries[0]))
	_, err = w.store.Route(w.ctx, w.lease, plans, next, w.now)
	w.must(err)
	w.equal("pending", len(w.pending(all[0], outbox.LaneLive))+len(w.pending(all[1], outbox.LaneLive)), 1)
	w.equal("planned", w.verify().Planned, before.Planned)
}

func staleConfiguration(w *world) {
	plans, next, all := w.twoShards()
	shard := plans[0].Row.Shard
	added := w.endpoint(outbox.Tenant{TenantRef: outbox.TenantRef{ID: plans[0].Row.Tenant, Shard: shard}}, "*")
	routed, err := w.store.Route(w.ctx, w.lease, plans, next, w.now)
	w.must(err)
	w.equal("stale", routed, outbox.Routed{Stale: []outbox.Shard{shard}})
	w.untouched("an endpoint was added", 2, all)

	// The other shard is not concerned.
	w.routePlans(plans[1:], map[outbox.EndpointID]int64{all[1].ID: next[all[1].ID]})
	w.route()
	w.equal("pending at the new endpoint", len(w.pending(added, outbox.LaneLive)), 1)
	w.verify()
}

func routeNothing(w *world) {
	w.own()
	w.config()
	w.routePlans(nil, nil)
}
