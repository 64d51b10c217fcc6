package outboxtest

import (
	"crypto/sha256"
	"fmt"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// quarantined keeps the request that an arrival would have been, in a row of its own.
func (w *world) quarantined(src outbox.Source, e outbox.NewEvent) outbox.InboundRequest {
	w.Helper()
	q := w.toQuarantine(src, e)
	w.must(w.store.RecordRequests(w.ctx, []outbox.InboundRequest{q}))
	return q
}

func (w *world) toQuarantine(src outbox.Source, e outbox.NewEvent) outbox.InboundRequest {
	return outbox.InboundRequest{
		ID: outbox.NewInboundID(w.now), Source: src.ID, Shard: outbox.SourceShard(src.Name), Outcome: outbox.InboundQuarantined,
		Reason: outbox.QuarantinedSchema, Detail: "n: is missing", ProviderID: e.Inbound.ProviderID, Topic: e.Inbound.Topic,
		Digest: e.Inbound.Digest, Bytes: len(e.Payload), Body: e.Payload, ReleaseKey: e.Inbound.Key, Times: 1,
	}
}

// meets quarantines what arrives, and says how each was met.
func (w *world) meets(src outbox.Source, events ...outbox.NewEvent) []outbox.Quarantined {
	w.Helper()
	var requests []outbox.InboundRequest
	for _, e := range events {
		requests = append(requests, w.toQuarantine(src, e))
	}
	met, err := w.store.Quarantine(w.ctx, requests)
	w.must(err)
	return met
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

func quarantineRepeats(w *world) {
	acme := w.tenant("acme")
	src := w.inboundSource(acme, "s")
	ada := func() outbox.NewEvent { return w.arrival(src, "evt_1", `{"name":"Ada"}`) }
	grace := func() outbox.NewEvent { return w.arrival(src, "evt_1", `{"name":"Grace"}`) }
	kept, repeat := outbox.Quarantined{}, outbox.Quarantined{Repeat: true}
	first := w.toQuarantine(src, ada())
	first.Metadata = map[string]string{"source": "s", "header:Content-Type": "application/json; é"}
	first.Event = outbox.NewEventID(w.now)
	met, err := w.store.Quarantine(w.ctx, []outbox.InboundRequest{first})
	w.must(err)
	w.equal("first", met, []outbox.Quarantined{kept})
	w.equal("as it was kept", w.request(first), first)
	w.now = w.now.Add(time.Hour)
	w.equal("repeat, another body, its repeat", w.meets(src, ada(), grace(), grace()), []outbox.Quarantined{repeat, kept, repeat})
	first.Times = 2
	w.equal("counted", w.request(first), first)
	w.equal("rows", len(w.requests(src, outbox.InboundQuarantined)), 2)

	event := ada()
	w.publish(event)
	released := outbox.Quarantined{Event: event.ID}
	w.equal("after the release", w.meets(src, ada(), grace()), []outbox.Quarantined{released, repeat})
	// The other body cannot have the key, and is released under one of its own.
	another := outbox.NewEventID(w.now)
	for _, q := range w.requests(src, outbox.InboundQuarantined) {
		if q.Released.IsZero() {
			w.must(w.store.ReleaseRequest(w.ctx, src.ID, q.Shard, q.ID, another))
		}
	}
	w.equal("after both", w.meets(src, ada(), grace()), []outbox.Quarantined{released, {Event: another}})
	w.equal("rows", len(w.requests(src, outbox.InboundQuarantined)), 2)

	// A key that is remembered for a while is another's afterwards; one whose body was erased is kept anew.
	brief := w.toQuarantine(src, w.arrival(src, "brief", `{}`))
	brief.Window = time.Minute
	again := brief
	w.now = w.now.Add(2 * time.Minute)
	again.ID = outbox.NewInboundID(w.now)
	met, err = w.store.Quarantine(w.ctx, []outbox.InboundRequest{brief, again})
	w.must(err)
	w.equal("after its time", met, []outbox.Quarantined{kept, kept})
	w.must(w.backdoor().Exec(w.ctx, "UPDATE {inbound} SET body = NULL"))
	w.equal("after an erasure", w.meets(src, w.arrival(src, "brief", `{}`)), []outbox.Quarantined{kept})
}

func quarantineCrowd(w *world) {
	src := w.inboundSource(w.tenant("acme"), "s")
	const many = 20
	repeats := make(chan bool, many)
	failures := make(chan error, many)
	for range many {
		q := w.toQuarantine(src, w.arrival(src, "evt_1", `{"name":"Ada"}`))
		go func() {
			met, err := w.store.Quarantine(w.ctx, []outbox.InboundRequest{q})
			repeats <- err == nil && met[0].Repeat
			failures <- err
		}()
	}
	counted := 0
	for range many {
		w.must(<-failures)
		if <-repeats {
			counted++
		}
	}
	rows := w.requests(src, outbox.InboundQuarantined)
	w.equal("repeats", counted, many-1)
	w.equal("rows", len(rows), 1)
	w.equal("times", rows[0].Times, many)
}
