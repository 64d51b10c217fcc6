package outboxtest

import (
	"crypto/sha256"
	"fmt"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// quarantined keeps the request that an arrival would have been.
func (w *world) quarantined(src outbox.Source, e outbox.NewEvent) outbox.InboundRequest {
	w.Helper()
	q := outbox.InboundRequest{
		ID: outbox.NewInboundID(w.now), Source: src.ID, Shard: outbox.SourceShard(src.Name), Outcome: outbox.InboundQuarantined,
		Reason: outbox.QuarantinedSchema, Detail: "n: is missing", ProviderID: e.Inbound.ProviderID, Topic: e.Inbound.Topic,
		Digest: e.Inbound.Digest, Bytes: len(e.Payload), Body: e.Payload, ReleaseKey: e.Inbound.Key, Times: 1,
	}
	w.must(w.store.RecordRequests(w.ctx, []outbox.InboundRequest{q}))
	return q
}

// bodies is how many bytes there are beside the events'.
func (w *world) bodies() int {
	w.Helper()
	n, err := w.backdoor().Count(w.ctx, "SELECT count(*) FROM {inbound} WHERE body IS NOT NULL")
	w.must(err)
	return n
}

func (w *world) request(q outbox.InboundRequest) outbox.InboundRequest {
	w.Helper()
	got, err := w.store.Request(w.ctx, q.Source, q.Shard, q.ID)
	w.must(err)
	return got
}

func (w *world) bodyErased(q outbox.InboundRequest) bool {
	w.Helper()
	got := w.request(q)
	return got.Erased()
}

func storedLeavesQuarantine(w *world) {
	acme := w.tenant("acme")
	src, other := w.inboundSource(acme, "s"), w.inboundSource(acme, "other")
	first, repeat := w.arrival(src, "evt_1", `{"name":"Ada"}`), w.arrival(src, "evt_1", `{"name":"Ada"}`)
	a, b := w.quarantined(src, first), w.quarantined(src, repeat)
	changed := w.quarantined(src, w.arrival(src, "evt_1", `{"name":"Grace"}`))
	elsewhere := w.quarantined(other, w.arrival(other, "evt_1", `{"name":"Ada"}`))
	waits := w.quarantined(src, w.arrival(src, "evt_2", `{"name":"Ada"}`))
	w.equal("bodies", w.bodies(), 5)

	// Alone, and in a batch with what somebody publishes: stores may take two ways.
	plain := w.event(acme, "a.b", `{}`)
	plain.IdempotencyKey = "key"
	late := w.quarantined(src, w.arrival(src, "evt_3", `{"name":"Ada"}`))
	mixed := w.arrival(src, "evt_3", `{"name":"Ada"}`)
	w.publish(first)
	w.publish(plain, mixed)
	for _, q := range []*outbox.InboundRequest{&a, &b, &late} {
		q.Body, q.Released = nil, first.ID
	}
	late.Released = mixed.ID
	for what, q := range map[string]outbox.InboundRequest{
		"released": a, "its repeat": b, "another body": changed, "of another source": elsewhere, "another id": waits, "with others": late,
	} {
		w.equal(what, w.request(q), q)
		w.equal(what+": erased", w.bodyErased(q), false)
	}
	w.must(w.store.ErasePayload(w.ctx, acme.TenantRef, first.ID))
	w.must(w.store.ErasePayload(w.ctx, acme.TenantRef, mixed.ID))
	w.equal("bodies", w.bodies(), 3)
}

func erasureEmptiesQuarantine(w *world) {
	acme, globex := w.strangers("acme")
	src, second, theirs := w.inboundSource(acme, "s"), w.inboundSource(acme, "second"), w.inboundSource(globex, "theirs")
	body := `{"name":"Ada"}`
	early := w.quarantined(src, w.arrival(src, "early", body))
	w.now = w.now.Add(time.Minute)
	from := w.now
	var mine []outbox.InboundRequest
	for i := range 5 {
		mine = append(mine, w.quarantined(src, w.arrival(src, fmt.Sprint(i), body)), w.quarantined(second, w.arrival(second, fmt.Sprint(i), body)))
	}
	their := w.quarantined(theirs, w.arrival(theirs, "1", body))
	w.now = w.now.Add(time.Minute)
	to := w.now
	late := w.quarantined(src, w.arrival(src, "late", body))
	w.now = w.now.Add(time.Minute)
	run := func(filter outbox.JobFilter) {
		done, _ := w.runErasure(w.create(w.newJob(acme, outbox.JobErasure, filter)), 2)
		w.equal("state", done.State, outbox.JobDone)
		w.equal("figures", tally(done), [5]int64{})
	}
	run(outbox.JobFilter{From: from, To: to, Metadata: map[string]string{"person": "p_1"}})
	run(outbox.JobFilter{From: from, To: to, EventTypes: []string{"a.b"}})
	w.equal("bodies, nothing of them asked for", w.bodies(), 13)
	run(outbox.JobFilter{From: from, To: to})
	for _, q := range mine {
		w.equal("to be released", w.bodyErased(q), true)
		q.Body = nil
		w.equal("erased", w.request(q), q)
	}
	for what, q := range map[string]outbox.InboundRequest{"early": early, "late": late, "theirs": their} {
		w.equal(what, w.request(q), q)
	}
	w.now = w.now.Add(time.Minute)
	job := w.create(w.newJob(acme, outbox.JobErasure, outbox.JobFilter{To: w.now.Add(time.Minute)}))
	w.now = w.now.Add(time.Second)
	w.quarantined(src, w.arrival(src, "after the request", body))
	w.runErasure(job, 2)
	w.equal("bodies: theirs, and the one after", w.bodies(), 2)
	var empty outbox.InboundRequest
	empty.Outcome, empty.Digest = outbox.InboundQuarantined, sha256.Sum256(nil)
	w.equal("one that always was empty", empty.Erased(), false)
}

func deletionEmptiesQuarantine(w *world) {
	acme, globex := w.tenant("acme"), w.tenant("globex")
	src, second, theirs := w.inboundSource(acme, "s"), w.inboundSource(acme, "second"), w.inboundSource(globex, "theirs")
	for _, s := range []outbox.Source{src, second, theirs} {
		w.quarantined(s, w.arrival(s, "1", `{"name":"Ada"}`))
	}
	w.must(w.store.DeleteSource(w.ctx, "s", w.now))
	w.equal("bodies without the source", w.bodies(), 2)
	_, err := w.store.DeleteTenant(w.ctx, "acme", "somebody", w.now)
	w.must(err)
	w.equal("bodies without the tenant", w.bodies(), 1)
	w.equal("rows", len(w.requests(second, outbox.InboundQuarantined)), 1)

	// Another process may know the source for a moment yet.
	w.quarantined(src, w.arrival(src, "2", `{"name":"Ada"}`))
	w.quarantined(second, w.arrival(second, "2", `{"name":"Ada"}`))
	w.equal("bodies after that", w.bodies(), 3)
	w.maintain()
	w.equal("bodies after upkeep", w.bodies(), 1)
	w.equal("theirs", string(w.requests(theirs, outbox.InboundQuarantined)[0].Body), `{"name":"Ada"}`)
}
