package outboxtest

import (
	"slices"

	"github.com/waybill-dev/waybill/internal/outbox"
)

var numbering = topic{"numbering", []promise{
	{"an endpoint's numbers begin at 1 and go up in order of acceptance", numbersGoUp},
	{"every endpoint has numbers of its own", numbersPerEndpoint},
	{"numbers of a failed routing are given again", numbersAfterFailure},
	{"an older call run again never takes numbers back", numbersNeverGoBack},
	{"marks survive upkeep", marksSurviveUpkeep},
}}

func (w *world) next(e outbox.Endpoint) int64 {
	w.Helper()
	next, err := w.store.NextSequences(w.ctx, map[outbox.EndpointID]outbox.Shard{e.ID: e.Tenant.Shard})
	w.must(err)
	if len(next) != 1 {
		w.Fatalf("%d answers for one endpoint", len(next))
	}
	return next[e.ID]
}

func numbersGoUp(w *world) {
	acme := w.tenant("acme")
	e := w.endpoint(acme, "*")
	w.equal("at first", w.next(e), int64(1))
	var order []outbox.EventID
	var numbers []int64
	for batch := 1; batch <= 5; batch++ {
		for range batch {
			order = append(order, w.publishOne(acme, "a.b", `{}`).ID)
		}
		for i, d := range w.route() {
			numbers = append(numbers, d.Sequence)
			if want := order[len(numbers)-1]; d.Event != want {
				w.Errorf("delivery %d of batch %d is of event %s, want %s", i, batch, d.Event, want)
			}
		}
		w.equal("next", w.next(e), int64(len(order)+1))
	}
	for i, n := range numbers {
		w.equal("number", n, int64(i+1))
	}
	w.verify()
}

func numbersPerEndpoint(w *world) {
	acme := w.tenant("acme")
	all, odd, none := w.endpoint(acme, "*"), w.endpoint(acme, "odd"), w.endpoint(acme, "never")
	for i := range 5 {
		w.publishOne(acme, []string{"even", "odd"}[i%2], `{}`)
	}
	w.route()
	next, err := w.store.NextSequences(w.ctx, map[outbox.EndpointID]outbox.Shard{all.ID: acme.Shard, odd.ID: acme.Shard, none.ID: acme.Shard})
	w.must(err)
	w.equal("next", next, map[outbox.EndpointID]int64{all.ID: 6, odd.ID: 3, none.ID: 1})
	empty, err := w.store.NextSequences(w.ctx, nil)
	w.must(err)
	w.equal("next of nothing", empty, map[outbox.EndpointID]int64{})
}

func numbersAfterFailure(w *world) {
	plans, next, all := w.twoShards()
	fence := w.lease
	w.lease = w.takeAll(w.join()) // our node stalls; another takes its shards
	if _, err := w.store.Route(w.ctx, fence, plans, next, w.now); err == nil {
		w.Fatal("not fenced")
	}
	w.equal("next", w.next(all[0]), int64(1))
	for _, d := range w.route() {
		w.equal("number", d.Sequence, int64(1))
	}
	w.verify()
}

func numbersNeverGoBack(w *world) {
	acme := w.tenant("acme")
	e, second := w.endpoint(acme, "*"), w.endpoint(acme, "*")
	w.publishOne(acme, "a.b", `{}`)
	plans, _ := w.plan(w.source(w.outbox()))
	chunk := plans[0]
	chunk.Deliveries, chunk.Last = chunk.Deliveries[:1], false
	chunkNext := map[outbox.EndpointID]int64{chunk.Deliveries[0].Endpoint: 2}
	w.routePlans([]outbox.Plan{chunk}, chunkNext)

	first := e
	if chunk.Deliveries[0].Endpoint == second.ID {
		first = second
	}
	for range 3 {
		w.publishOne(acme, "a.b", `{}`)
	}
	w.route() // the rest of the first event, and three more
	w.equal("next", w.next(first), int64(5))

	// The first chunk's commit was answered late, and it is run again: its row is gone.
	_, err := w.store.Route(w.ctx, w.lease, []outbox.Plan{chunk}, chunkNext, w.now)
	w.must(err)
	w.equal("next after an old call", w.next(first), int64(5))

	// The same with a row that is still there, because its event goes on to other endpoints.
	w.publishOne(acme, "a.b", `{}`)
	plans, next := w.plan(w.source(w.outbox()))
	chunk = plans[0]
	chunk.Deliveries, chunk.Last = slices.Clone(chunk.Deliveries[:1]), false
	w.routePlans([]outbox.Plan{chunk}, map[outbox.EndpointID]int64{chunk.Deliveries[0].Endpoint: next[chunk.Deliveries[0].Endpoint]})
	_, err = w.store.Route(w.ctx, w.lease, []outbox.Plan{chunk}, map[outbox.EndpointID]int64{chunk.Deliveries[0].Endpoint: 2}, w.now)
	w.must(err)
	w.equal("next after an older number", w.next(first), int64(6))
	w.route()
	for _, endpoint := range []outbox.Endpoint{e, second} {
		var numbers []int64
		for _, d := range w.pending(endpoint, outbox.LaneLive) {
			numbers = append(numbers, d.Sequence)
		}
		slices.Sort(numbers)
		w.equal("numbers", numbers, []int64{1, 2, 3, 4, 5})
	}
	w.verify()
}

func marksSurviveUpkeep(w *world) {
	acme := w.tenant("acme")
	e := w.endpoint(acme, "*")
	for range 5 {
		w.finish(w.delivered(w.planned(e, "a.b")))
	}
	w.maintain()
	w.equal("next", w.next(e), int64(6))
	w.equal("number", w.planned(e, "a.b").Sequence, int64(6))
	w.maintain()
	w.equal("next", w.next(e), int64(7))
	w.verify()
}
