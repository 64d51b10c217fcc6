package outboxtest

import (
	"errors"
	"fmt"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

var looking = topic{"looking around", []promise{
	{"an endpoint is found by parts of what people know of it", endpointsFound},
	{"deleted endpoints are among those that ever were", endpointsEver},
	{"an event is found by its idempotency key, and by its metadata", eventsFound},
	{"a search within a tenant never finds another's", searchStaysInside},
	{"events after a position come in order", eventsAfter},
	{"attempts come in the order of their end, whichever began first", attemptsByEnd},
	{"who is unwell is listed, those that are closed off first", unwellListed},
	{"what stands is what the books say", standingIsTheBooks},
	{"nodes are listed with what they say of themselves, and every shard with its owner", clusterListed},
	{"the head of the outbox stays until it is routed", outboxHeads},
}}

func (w *world) find(tenant outbox.TenantRef, text string) []outbox.EndpointID {
	w.Helper()
	found, err := w.store.FindEndpoints(w.ctx, tenant, text, 50)
	w.must(err)
	var ids []outbox.EndpointID
	for _, e := range found {
		ids = append(ids, e.ID)
	}
	return ids
}

func endpointsFound(w *world) {
	acme := w.tenant("acme")
	w.endpoint(acme, "*")
	e := w.endpointWith(acme, func(e *outbox.Endpoint) {
		e.UID, e.URL, e.Description = "erp-7_a", "https://gate.tickets.example.org/Events", "100% of tickets"
		e.Metadata = map[string]string{"crm": "SF-0012"}
	})
	for _, text := range []string{"erp-7_a", "ERP-7", "tickets.example.org", "/events", "100% of", "sf-0012"} {
		w.equal("found by "+text, w.find(outbox.TenantRef{}, text), []outbox.EndpointID{e.ID})
	}
	for _, text := range []string{"erp-7xa", "100_ of", "crm", `\`, "'"} {
		w.equal("found by "+text, len(w.find(outbox.TenantRef{}, text)), 0)
	}
	_, err := w.store.DeleteEndpoint(w.ctx, acme.TenantRef, outbox.EndpointRef{ID: e.ID}, w.now, 10)
	w.must(err)
	w.equal("once deleted", len(w.find(outbox.TenantRef{}, "erp-7_a")), 0)
}

func endpointsEver(w *world) {
	acme, other := w.neighbours("acme")
	gone, there := w.endpoint(acme, "*"), w.endpoint(acme, "*")
	w.endpoint(other, "*")
	_, err := w.store.DeleteEndpoint(w.ctx, acme.TenantRef, outbox.EndpointRef{ID: gone.ID}, w.now, 10)
	w.must(err)
	ever, err := w.store.EndpointsEver(w.ctx, acme.TenantRef, 10)
	w.must(err)
	deleted := map[outbox.EndpointID]bool{}
	for _, e := range ever {
		deleted[e.ID] = !e.DeletedAt.IsZero()
	}
	w.equal("whether they are deleted", deleted, map[outbox.EndpointID]bool{gone.ID: true, there.ID: false})
}

func eventsFound(w *world) {
	acme := w.tenant("acme")
	keyed, marked := w.event(acme, "a.b", `{}`), w.event(acme, "a.b", `{}`)
	keyed.IdempotencyKey = "order 7"
	marked.Metadata = map[string]string{"order": "o-7", "shop": "berlin"}
	w.publish(keyed)
	w.publish(marked)
	id, err := w.store.EventOfKey(w.ctx, acme.TenantRef, "order 7")
	w.must(err)
	w.equal("of the key", id, keyed.ID)
	if _, err := w.store.EventOfKey(w.ctx, acme.TenantRef, "order 8"); !errors.Is(err, outbox.ErrNotFound) {
		w.Errorf("of an unknown key: %v", err)
	}
	for text, want := range map[string][]outbox.EventID{"berlin": {marked.ID}, "o-7": {marked.ID}, "o-": nil, "shop": nil} {
		found, err := w.store.EventsWithMetadata(w.ctx, acme.TenantRef, text, 10)
		w.must(err)
		w.equal("with "+text, found, want)
	}
}

func searchStaysInside(w *world) {
	acme, other := w.neighbours("acme")
	theirs := w.endpointWith(other, func(e *outbox.Endpoint) { e.UID = "shared" })
	keyed := w.event(other, "a.b", `{}`)
	keyed.IdempotencyKey, keyed.Metadata = "key", map[string]string{"a": "shared"}
	w.publish(keyed)
	w.equal("endpoints", len(w.find(acme.TenantRef, "shared")), 0)
	w.equal("endpoints of the other", w.find(other.TenantRef, "shared"), []outbox.EndpointID{theirs.ID})
	if _, err := w.store.EventOfKey(w.ctx, acme.TenantRef, "key"); !errors.Is(err, outbox.ErrNotFound) {
		w.Errorf("a key of another tenant: %v", err)
	}
	found, err := w.store.EventsWithMetadata(w.ctx, acme.TenantRef, "shared", 10)
	w.must(err)
	w.equal("events", len(found), 0)
	after, err := w.store.EventsAfter(w.ctx, acme.TenantRef, outbox.EventID{}, 10)
	w.must(err)
	w.equal("events after the start", len(after), 0)
}

func eventsAfter(w *world) {
	acme := w.tenant("acme")
	var want []outbox.EventID
	for range 5 {
		w.now = w.now.Add(time.Second)
		want = append(want, w.publishOne(acme, "a.b", `{}`).ID)
	}
	got, err := w.store.EventsAfter(w.ctx, acme.TenantRef, want[0], 3)
	w.must(err)
	w.equal("three after the first", got, want[1:4])
}

func attemptsByEnd(w *world) {
	acme := w.tenant("acme")
	other := w.tenant("other")
	slow, quick, theirs := w.planned(w.endpoint(acme, "slow"), "slow"), w.planned(w.endpoint(acme, "quick"), "quick"), w.planned(w.endpoint(other, "*"), "a.b")
	start := w.now
	at := func(d outbox.Delivery, began, took time.Duration) outbox.AttemptID {
		r := w.failed(d)
		r.Attempt.At, r.Attempt.Duration = start.Add(began), took
		r.Attempt.ID = outbox.NewAttemptID(r.Attempt.At)
		w.finish(r)
		return r.Attempt.ID
	}
	first := at(slow, 0, 25*time.Second)
	second := at(quick, 20*time.Second, time.Second)
	third := at(theirs, 24*time.Second, time.Second)
	seen := func(q outbox.EndedQuery, limit int) []outbox.AttemptID {
		w.Helper()
		found, err := w.store.AttemptsEnded(w.ctx, q, limit)
		w.must(err)
		var ids []outbox.AttemptID
		for _, a := range found {
			ids = append(ids, a.ID)
		}
		return ids
	}
	w.equal("all", seen(outbox.EndedQuery{After: start}, 10), []outbox.AttemptID{second, first, third})
	w.equal("the first two", seen(outbox.EndedQuery{After: start}, 2), []outbox.AttemptID{second, first})
	w.equal("of a tenant", seen(outbox.EndedQuery{Tenant: acme.TenantRef, After: start}, 10), []outbox.AttemptID{second, first})
	w.equal("of a shard", seen(outbox.EndedQuery{Shards: []outbox.Shard{other.Shard}, After: start}, 10), []outbox.AttemptID{third})
	w.equal("after the quick one", seen(outbox.EndedQuery{After: start.Add(21 * time.Second), AfterID: second}, 10), []outbox.AttemptID{first, third})
	w.equal("of two that ended at once, the later id", seen(outbox.EndedQuery{After: start.Add(25 * time.Second), AfterID: first}, 10), []outbox.AttemptID{third})
}

func unwellListed(w *world) {
	acme := w.tenant("acme")
	open, failing, well, gone := w.endpoint(acme, "*"), w.endpoint(acme, "*"), w.endpoint(acme, "*"), w.endpoint(acme, "*")
	limping := w.learned(failing)
	limping.Breaker, limping.NextProbeAt = outbox.BreakerClosed, time.Time{}
	healthy := w.learned(well)
	healthy.Breaker, healthy.NextProbeAt, healthy.FailingSince = outbox.BreakerClosed, time.Time{}, time.Time{}
	w.writeHealth(limping, w.learned(open), healthy, w.learned(gone))
	_, err := w.store.DeleteEndpoint(w.ctx, acme.TenantRef, outbox.EndpointRef{ID: gone.ID}, w.now, 10)
	w.must(err)
	found, err := w.store.Unwell(w.ctx, 10)
	w.must(err)
	w.equal("unwell", found, []outbox.EndpointHealth{w.learned(open), limping})
	found, err = w.store.Unwell(w.ctx, 1)
	w.must(err)
	w.equal("the worst", found, []outbox.EndpointHealth{w.learned(open)})
}

func standingIsTheBooks(w *world) {
	acme := w.tenant("acme")
	e := w.endpoint(acme, "*")
	w.finish(w.delivered(w.planned(e, "a.b")), w.refused(w.planned(e, "a.b")))
	w.planned(e, "a.b")
	books := w.verify()
	got, err := w.store.Standing(w.ctx)
	w.must(err)
	w.equal("standing", got, outbox.Standing{Pending: books.Pending, Dead: books.Dead})
	w.equal("and that is", got, outbox.Standing{Pending: 1, Dead: 1})
}

func clusterListed(w *world) {
	first, second := w.join(), w.join()
	w.takeAll(first)
	w.beat(first)
	report := outbox.NodeReport{Node: first, At: w.now, Name: "wb-1", Version: "v1", InFlight: 3, MaxInFlight: 1000, PerSecond: 1.5, OldestRunnable: time.Second}
	w.must(w.store.ReportNode(w.ctx, outbox.NodeReport{Node: first, At: w.now.Add(-time.Minute), Name: "old"}))
	w.must(w.store.ReportNode(w.ctx, report))
	c, err := w.store.Cluster(w.ctx)
	w.must(err)
	owners := map[outbox.NodeID]int{}
	for _, s := range c.Shards {
		owners[s.Node]++
	}
	w.equal("owners", owners, map[outbox.NodeID]int{first: outbox.Shards})
	reports := map[outbox.NodeID]string{}
	for _, n := range c.Nodes {
		reports[n.NodeBeat.Node] = fmt.Sprint(n.NodeReport.Name, n.Shards)
		if n.NodeBeat.Node == first {
			w.equal("its report", n.NodeReport, report)
		}
	}
	w.equal("nodes", reports, map[outbox.NodeID]string{first: fmt.Sprint("wb-1", outbox.Shards), second: fmt.Sprint("", 0)})
}

func outboxHeads(w *world) {
	acme := w.tenant("acme")
	w.endpoint(acme, "*")
	heads := func() map[outbox.Shard]int64 {
		w.Helper()
		found, err := w.store.OutboxHeads(w.ctx, everyShard())
		w.must(err)
		return found
	}
	w.equal("with nothing", len(heads()), 0)
	w.publishOne(acme, "a.b", `{}`)
	first := heads()
	w.publishOne(acme, "a.b", `{}`)
	w.equal("shards", len(first), 1)
	w.equal("the head", heads(), first)
	w.route()
	w.equal("once routed", len(heads()), 0)
}
