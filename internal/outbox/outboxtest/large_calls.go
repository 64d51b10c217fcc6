package outboxtest

import (
	"bytes"

	"github.com/waybill-dev/waybill/internal/outbox"
)

var largeCalls = topic{"large calls", []promise{
	{"a thousand of everything go in one call", thousands},
	{"a batch of the largest size is accepted", largestBatch},
}}

func thousands(w *world) {
	const count = 1000
	acme := w.tenant("acme")
	w.endpoint(acme, "*")
	var keyed []outbox.NewEvent
	for i := range count {
		e := w.event(acme, "a.b", `{"n":1}`)
		e.Chosen = i%2 == 0
		if i%3 == 0 {
			e.IdempotencyKey = e.ID.String()
		}
		keyed = append(keyed, e)
	}
	w.publish(keyed...)
	for i, again := range w.publish(keyed...) {
		if !again.Duplicate || again.ID != keyed[i].ID {
			w.Fatalf("member %d again: %+v", i, again)
		}
	}
	planned := w.route()
	w.equal("planned", len(planned), count)

	var requests []outbox.FetchRequest
	for range count {
		requests = append(requests, request(outbox.Endpoint{ID: planned[0].Endpoint, Tenant: acme.TenantRef}, 1))
	}
	for _, f := range w.fetch(w.now, 1<<20, requests...) {
		w.equal("rows", len(f.Rows), 1)
	}

	var results []outbox.Result
	for i, d := range planned {
		r := w.refused(d)
		if i%2 == 0 {
			r = w.failed(d)
		}
		r.Attempt.ResponseBody = bytes.Repeat([]byte{byte(i)}, outbox.KeepOfSuccess)
		results = append(results, r)
	}
	w.finish(results...)
	w.finish(results...)
	for i := 0; i < count; i += 5 { // asking is a call for each
		w.ask(planned[i], map[bool]outbox.DeliveryState{true: outbox.StatePending, false: outbox.StateDead}[i%2 == 0])
	}
	w.equal("due", len(w.executeReplays()), count/5)
	report := w.verify()
	const again = count / 10
	w.equal("totals", []int64{report.Planned, report.Dead, report.Replayed, report.Pending}, []int64{count + again, count / 2, again, count/2 + again})
	ended, err := w.store.Expire(w.ctx, w.lease, w.now.AddDate(1, 0, 0), count, w.now)
	w.must(err)
	w.equal("expired", len(ended.Deliveries), count/2+again)
	w.verify()
}

func largestBatch(w *world) {
	large(w)
	acme := w.tenant("acme")
	payload := string(bytes.Repeat([]byte("x"), outbox.MaxBatchBytes/outbox.MaxBatchEvents))
	var batch []outbox.NewEvent
	for range outbox.MaxBatchEvents {
		batch = append(batch, w.event(acme, "a.b", payload))
	}
	w.publish(batch...)
	w.publish(batch...)
	w.waiting(len(batch))
}
