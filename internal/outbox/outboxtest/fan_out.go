package outboxtest

import (
	"bytes"
	"slices"

	"github.com/waybill-dev/waybill/internal/outbox"
)

var fanOut = topic{"fan-out", []promise{
	{"a chunk moves the row on and the last one deletes it", chunkMovesOn},
	{"a chunk run again changes nothing", chunkRunAgain},
	{"a chunk run again after its deliveries ended does not plan them again", endedChunkRunAgain},
	{"a chunk without deliveries still ends the event", emptyLastChunk},
	{"an event reaches ten thousand endpoints in chunks", tenThousandEndpoints},
}}

// chunks plans the one event that waits and cuts the plan in pieces of n.
func (w *world) chunks(n int) []outbox.Plan {
	w.Helper()
	plans, _ := w.plan(w.source(w.outbox()))
	if len(plans) != 1 {
		w.Fatalf("%d events wait, want 1", len(plans))
	}
	var cut []outbox.Plan
	for part := range slices.Chunk(plans[0].Deliveries, n) {
		plan := outbox.Plan{Row: plans[0].Row, Deliveries: part, Matched: true}
		if len(cut) > 0 {
			before := cut[len(cut)-1].Deliveries
			plan.Row.After = before[len(before)-1].Endpoint
		}
		cut = append(cut, plan)
	}
	cut[len(cut)-1].Last = true
	return cut
}

func numbersAfter(plan outbox.Plan) map[outbox.EndpointID]int64 {
	next := map[outbox.EndpointID]int64{}
	for _, d := range plan.Deliveries {
		next[d.Endpoint] = d.Sequence + 1
	}
	return next
}

func (w *world) fanned(count int) outbox.Tenant {
	w.Helper()
	acme := w.tenant("acme")
	for range count {
		w.endpoint(acme, "*")
	}
	w.publishOne(acme, "a.b", `{}`)
	return acme
}

func chunkMovesOn(w *world) {
	w.fanned(7)
	pos := w.outbox()[0].Pos
	for i, chunk := range w.chunks(3) {
		w.routePlans([]outbox.Plan{chunk}, numbersAfter(chunk))
		rows := w.outbox()
		if i == 2 {
			w.waiting(0)
			break
		}
		if len(rows) != 1 || rows[0].Pos != pos || rows[0].After != chunk.Deliveries[2].Endpoint {
			w.Fatalf("after chunk %d: %+v, want the same row after %s", i, rows, chunk.Deliveries[2].Endpoint)
		}
		// The event is not routed before its last chunk.
		report := w.verify()
		w.equal("totals", []int64{report.Waiting, report.Routed, report.Planned}, []int64{1, 0, int64(3 * (i + 1))})
	}
	report := w.verify()
	w.equal("totals", []int64{report.Waiting, report.Routed, report.Matched, report.Planned, report.Pending}, []int64{0, 1, 1, 7, 7})
}

func chunkRunAgain(w *world) {
	acme := w.fanned(7)
	chunks := w.chunks(3)
	w.routePlans(chunks[:1], numbersAfter(chunks[0]))
	w.routePlans(chunks[:1], numbersAfter(chunks[0]))
	w.equal("planned", w.verify().Planned, int64(3))
	if rows := w.outbox(); rows[0].After != chunks[0].Deliveries[2].Endpoint {
		w.Errorf("after %s", rows[0].After)
	}
	// One is delivered before the owner dies; its heir starts from the row and plans the rest.
	w.finish(w.delivered(chunks[0].Deliveries[1]))
	w.own()
	rest := w.route()
	w.equal("planned by the heir", len(rest), 4)
	report := w.verify()
	w.equal("totals", []int64{report.Planned, report.Delivered, report.Pending, report.Routed}, []int64{7, 1, 6, 1})
	for _, d := range w.listDeliveries(outbox.DeliveryQuery{Tenant: acme.TenantRef}, 250, false) {
		w.equal("number", d.Sequence, int64(1))
	}
}

func endedChunkRunAgain(w *world) {
	w.fanned(5)
	chunk := w.chunks(3)[0]
	w.routePlans([]outbox.Plan{chunk}, numbersAfter(chunk))
	w.finish(w.delivered(chunk.Deliveries[0]), w.refused(chunk.Deliveries[1]))
	_, err := w.store.Route(w.ctx, w.lease, []outbox.Plan{chunk}, numbersAfter(chunk), w.now)
	w.must(err)
	report := w.verify()
	w.equal("totals", []int64{report.Planned, report.Delivered, report.Dead, report.Pending}, []int64{3, 1, 1, 1})
	w.ended(chunk.Deliveries[0], outbox.StateDelivered)
	w.ended(chunk.Deliveries[1], outbox.StateDead)
	w.equal("the rest", len(w.route()), 2)
	w.verify()
}

func emptyLastChunk(w *world) {
	acme := w.fanned(3)
	chunk := w.chunks(3)[0]
	chunk.Last = false
	w.routePlans([]outbox.Plan{chunk}, numbersAfter(chunk))
	// An endpoint that came first is all that is left: nothing follows after the last one planned.
	row := w.source(w.outbox())[0]
	w.routePlans([]outbox.Plan{{Row: row, Last: true, Matched: true}}, nil)
	w.waiting(0)
	report := w.verify()
	w.equal("totals", []int64{report.Routed, report.Matched, report.Unmatched, report.Planned}, []int64{1, 1, 0, 3})
	w.equal("listed", len(w.listDeliveries(outbox.DeliveryQuery{Tenant: acme.TenantRef}, 250, false)), 3)
}

func tenThousandEndpoints(w *world) {
	large(w)
	const count, chunkSize = 10_000, 500
	acme := w.tenant("acme")
	w.own()
	// Routing does not look endpoints up: the owner names them. Making ten thousand rows of
	// configuration would test something else.
	ids := make([]outbox.EndpointID, count)
	for i := range ids {
		ids[i] = outbox.NewEndpointID(w.now)
	}
	slices.SortFunc(ids, func(a, b outbox.EndpointID) int { return bytes.Compare(a[:], b[:]) })
	w.publishOne(acme, "a.b", `{}`)
	w.config()
	ask := map[outbox.EndpointID]outbox.Shard{}
	for chunk := range slices.Chunk(ids, chunkSize) {
		row := w.source(w.outbox())[0]
		plan := outbox.Plan{Row: row, Matched: true, Last: chunk[len(chunk)-1] == ids[count-1]}
		for _, id := range chunk {
			ask[id] = acme.Shard
			plan.Deliveries = append(plan.Deliveries, w.delivery(row, outbox.Endpoint{ID: id}, 1))
		}
		w.routePlans([]outbox.Plan{plan}, numbersAfter(plan))
	}
	w.waiting(0)
	next, err := w.store.NextSequences(w.ctx, ask)
	w.must(err)
	for _, id := range ids {
		if next[id] != 2 {
			w.Fatalf("next number of %s is %d, want 2", id, next[id])
		}
	}
	heads, err := w.store.Heads(w.ctx, []outbox.Shard{acme.Shard})
	w.must(err)
	w.equal("heads", len(heads), count)
	report := w.verify()
	w.equal("totals", []int64{report.Planned, report.Pending, report.Routed}, []int64{count, count, 1})
}
