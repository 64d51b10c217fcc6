package outboxtest

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

var sources = topic{"sources", []promise{
	{"a source comes back as it was stored, its secrets sealed", sourceComesBack},
	{"a source is changed under its name", sourceIsChanged},
	{"an edit that fails changes nothing", sourceEditFails},
	{"a deleted source is gone, with its secrets, and its name is free", sourceIsDeleted},
	{"a source of a deleted tenant has no tenant", sourceOfDeletedTenant},
	{"sources are listed by creation", sourcesAreListed},
}}

var inbound = topic{"what arrives at sources", []promise{
	{"an event from a source is stored once for each key", arrivesOnce},
	{"a key is another's in no other source, and ids are compared exactly", arrivalKeys},
	{"a duplicate says whether its body is the first one's", arrivalOtherBody},
	{"a batch run again meets itself, even after routing", arrivalRunAgain},
	{"a key that is remembered for a while is free afterwards", arrivalWindow},
	{"a deleted source's ids are still known", arrivalAfterDeletion},
	{"of many that arrive at once with crossed keys one event each is stored", arrivalCrowd},
	{"requests are listed by time and outcome", requestsAreListed},
	{"a quarantined request is found whole, and released once", requestIsReleased},
	{"an event that is stored takes its bytes out of quarantine, and an event with another body does not", storedLeavesQuarantine},
	{"a repeat counts on the row that waits, and is a duplicate once that was released", quarantineRepeats},
	{"many repeats at once make one row", quarantineCrowd},
	{"an erasure of all of a time takes what waits in quarantine from then, and of no other tenant", erasureEmptiesQuarantine},
	{"a deleted source, and a deleted tenant's, have nothing in quarantine", deletionEmptiesQuarantine},
	{"requests are forgotten when their source says so", requestsAreForgotten},
}}

func (w *world) inboundSource(tenant outbox.Tenant, name string) outbox.Source {
	w.Helper()
	src, _, err := w.store.PutSource(w.ctx, name, w.now, func(s *outbox.Source, _ bool) error {
		s.Provider, s.Tenant, s.TenantKey = "stripe", tenant.TenantRef, tenant.Key
		return nil
	})
	w.must(err)
	return src
}

// arrival is an event that came to a source under a provider's id.
func (w *world) arrival(src outbox.Source, id, body string) outbox.NewEvent {
	e := w.event(outbox.Tenant{TenantRef: src.Tenant}, "a.b", body)
	e.Inbound = &outbox.Inbound{
		Source: src.ID, Shard: outbox.SourceShard(src.Name), Key: sha256.Sum256([]byte(src.Name + "\x00" + id)),
		Digest: e.SHA256, ProviderID: id, Topic: "invoice.paid",
	}
	return e
}

func (w *world) requests(src outbox.Source, outcome outbox.InboundOutcome) []outbox.InboundRequest {
	w.Helper()
	list, next, err := w.store.Requests(w.ctx, outbox.RequestQuery{Source: src.ID, Shard: outbox.SourceShard(src.Name), Outcome: outcome}, outbox.Page{Limit: 250})
	w.must(err)
	if !next.IsZero() {
		w.Fatalf("more than a page")
	}
	return list
}

func sourceComesBack(w *world) {
	acme := w.tenant("acme")
	want := outbox.Source{
		Name: "stripe-prod", Provider: "a-visible-provider", Tenant: acme.TenantRef, TenantKey: "acme", State: outbox.SourcePaused,
		Settings: outbox.SourceSettings{
			EventType:      "stripe.{topic}",
			ID:             &outbox.SourcePlace{Pointer: "/id", BodyWithin: time.Minute},
			Verify:         &outbox.SourceCheck{Signed: "{body}", Header: "X-Sig", Form: "{hex}", Tolerance: time.Minute, PublicURL: "https://example.com/é", ChallengeToken: secretValue[6:]},
			ForwardHeaders: []string{"X-Topic"},
			Responses:      outbox.SourceAnswers{Failed: 500},
			MaxBody:        1000,
		},
		Secrets: []outbox.SourceSecret{{ID: "a", Value: secretValue, CreatedAt: w.now, ExpiresAt: w.now.Add(time.Hour)}},
		Keep:    90 * time.Hour, CreatedAt: w.now, UpdatedAt: w.now,
	}
	made, created, err := w.store.PutSource(w.ctx, want.Name, w.now, func(s *outbox.Source, exists bool) error {
		if exists {
			w.Error("it exists before it was made")
		}
		id, at := s.ID, s.CreatedAt
		*s = want
		s.ID, s.CreatedAt = id, at
		return nil
	})
	w.must(err)
	want.ID = made.ID
	if !created || made.ID.IsZero() {
		w.Fatalf("created %v, id %s", created, made.ID)
	}
	w.equal("made", made, want)
	got, err := w.store.Source(w.ctx, want.Name)
	w.must(err)
	w.equal("read", got, want)
	if _, err := w.store.Source(w.ctx, "STRIPE-PROD"); !errors.Is(err, outbox.ErrNotFound) {
		w.Errorf("a name in other letters: %v, want not found", err)
	}
	dump := w.dump("a-visible-provider")
	for how, trace := range traces(secretValue) {
		if bytes.Contains(bytes.ToLower(dump), bytes.ToLower(trace)) {
			w.Errorf("the secret lies in the database %s", how)
		}
	}
}

func sourceIsChanged(w *world) {
	acme, globex := w.neighbours("acme")
	src := w.inboundSource(acme, "s")
	w.now = w.now.Add(time.Minute)
	changed, created, err := w.store.PutSource(w.ctx, "s", w.now, func(s *outbox.Source, exists bool) error {
		if !exists {
			w.Error("it is not there")
		}
		s.Tenant, s.TenantKey, s.State = globex.TenantRef, globex.Key, outbox.SourcePaused
		return nil
	})
	w.must(err)
	src.Tenant, src.TenantKey, src.State, src.UpdatedAt = globex.TenantRef, globex.Key, outbox.SourcePaused, w.now
	w.equal("changed", changed, src)
	got, err := w.store.Source(w.ctx, "s")
	w.must(err)
	w.equal("read", got, src)
	if created {
		w.Error("it was made anew")
	}
}

func sourceEditFails(w *world) {
	src := w.inboundSource(w.tenant("acme"), "s")
	wrong := errors.New("no")
	for _, name := range []string{"s", "other"} {
		_, _, err := w.store.PutSource(w.ctx, name, w.now, func(s *outbox.Source, _ bool) error {
			s.State = outbox.SourcePaused
			return wrong
		})
		if !errors.Is(err, wrong) {
			w.Errorf("%s: %v, want the edit's error", name, err)
		}
	}
	got, err := w.store.Source(w.ctx, "s")
	w.must(err)
	w.equal("read", got, src)
	if _, err := w.store.Source(w.ctx, "other"); !errors.Is(err, outbox.ErrNotFound) {
		w.Errorf("the other was made: %v", err)
	}
}

func sourceIsDeleted(w *world) {
	acme := w.tenant("acme")
	_, _, err := w.store.PutSource(w.ctx, "s", w.now, func(s *outbox.Source, _ bool) error {
		s.Provider, s.Tenant = "stripe", acme.TenantRef
		s.Secrets = []outbox.SourceSecret{{ID: "a", Value: secretValue}}
		return nil
	})
	w.must(err)
	w.must(w.store.DeleteSource(w.ctx, "s", w.now))
	if err := w.store.DeleteSource(w.ctx, "s", w.now); !errors.Is(err, outbox.ErrNotFound) {
		w.Errorf("deleted again: %v, want not found", err)
	}
	if _, err := w.store.Source(w.ctx, "s"); !errors.Is(err, outbox.ErrNotFound) {
		w.Errorf("read: %v, want not found", err)
	}
	list, err := w.store.Sources(w.ctx, outbox.SourceID{}, outbox.Page{Limit: 10})
	w.must(err)
	w.equal("listed", list, []outbox.Source(nil))
	again := w.inboundSource(acme, "s")
	if len(again.Secrets) > 0 {
		w.Error("a new source has the old one's secrets")
	}
}

func sourceOfDeletedTenant(w *world) {
	w.inboundSource(w.tenant("acme"), "s")
	_, err := w.store.DeleteTenant(w.ctx, "acme", "Ops", w.now)
	w.must(err)
	w.tenant("acme") // under the same key, and another tenant
	got, err := w.store.Source(w.ctx, "s")
	w.must(err)
	w.equal("tenant", got.TenantKey, "")
}

func sourcesAreListed(w *world) {
	acme := w.tenant("acme")
	var want []outbox.Source
	for _, name := range []string{"c", "a", "b"} {
		want = append(want, w.inboundSource(acme, name))
		w.now = w.now.Add(time.Second)
	}
	list, err := w.store.Sources(w.ctx, outbox.SourceID{}, outbox.Page{Limit: 2, Ascending: true})
	w.must(err)
	w.equal("first page", list, want[:2])
	list, err = w.store.Sources(w.ctx, want[1].ID, outbox.Page{Limit: 2, Ascending: true})
	w.must(err)
	w.equal("second page", list, want[2:])
	slices.Reverse(want)
	list, err = w.store.Sources(w.ctx, outbox.SourceID{}, outbox.Page{Limit: 3})
	w.must(err)
	w.equal("newest first", list, want)
}

func arrivesOnce(w *world) {
	src := w.inboundSource(w.tenant("acme"), "s")
	first := w.arrival(src, "evt_1", `{"n":1}`)
	accepted := w.publish(first)
	if accepted[0].Duplicate || accepted[0].ID != first.ID {
		w.Fatalf("answer %+v, want the event itself", accepted[0])
	}
	w.now = w.now.Add(time.Hour)
	again := w.publish(w.arrival(src, "evt_1", `{"n":1}`))[0]
	if !again.Duplicate || again.OtherBody || again.ID != first.ID {
		w.Errorf("answer %+v, want a duplicate of %s", again, first.ID)
	}
	w.waiting(1)
	list := w.requests(src, "")
	w.equal("requests", list, []outbox.InboundRequest{{
		ID: outbox.InboundID(first.ID), Source: src.ID, Shard: outbox.SourceShard("s"), Outcome: outbox.InboundAccepted,
		ProviderID: "evt_1", Topic: "invoice.paid", Event: first.ID, Digest: first.SHA256, Bytes: len(first.Payload), Times: 1,
	}})

	// Two of one request: SendGrid may name an event twice in one array.
	two := []outbox.NewEvent{w.arrival(src, "evt_2", `{}`), w.arrival(src, "evt_2", `{}`)}
	both := w.publish(two...)
	if both[0].Duplicate || !both[1].Duplicate || both[1].OtherBody || both[1].ID != both[0].ID {
		w.Errorf("answers %+v, want the second to be a duplicate of the first", both)
	}
	w.waiting(2)
}

func arrivalKeys(w *world) {
	acme := w.tenant("acme")
	one, other := w.inboundSource(acme, "one"), w.inboundSource(acme, "other")
	for _, e := range []outbox.NewEvent{
		w.arrival(one, "evt_1", `{}`), w.arrival(one, "EVT_1", `{}`), w.arrival(one, "evt_1 ", `{}`), w.arrival(other, "evt_1", `{}`),
	} {
		if got := w.publish(e)[0]; got.Duplicate {
			w.Errorf("%q at %s met another: %+v", e.Inbound.ProviderID, e.Inbound.Source, got)
		}
	}
	w.waiting(4)
}

func arrivalOtherBody(w *world) {
	src := w.inboundSource(w.tenant("acme"), "s")
	first := w.arrival(src, "evt_1", `{"n":1}`)
	w.publish(first)
	got := w.publish(w.arrival(src, "evt_1", `{"n":2}`))[0]
	if !got.Duplicate || !got.OtherBody || got.ID != first.ID {
		w.Errorf("answer %+v, want a duplicate with another body", got)
	}
	batch := w.publish(w.arrival(src, "evt_2", `{"n":1}`), w.arrival(src, "evt_2", `{"n":2}`), w.arrival(src, "evt_1", `{"n":1}`))
	if batch[0].Duplicate || !batch[1].OtherBody || !batch[2].Duplicate || batch[2].OtherBody {
		w.Errorf("answers %+v, want: new, another body, a duplicate", batch)
	}
	w.waiting(2)
}

func arrivalRunAgain(w *world) {
	src := w.inboundSource(w.tenant("acme"), "s")
	batch := []outbox.NewEvent{w.arrival(src, "evt_1", `{"n":1}`), w.arrival(src, "evt_2", `{"n":2}`)}
	w.publish(batch...)
	for _, when := range []string{"at once", "after routing"} {
		again := w.publish(batch...)
		for i := range batch {
			// Duplicate or not, it is its own event: the committer tells the two apart by the id.
			if again[i].ID != batch[i].ID || again[i].OtherBody {
				w.Errorf("%s: answer %+v, want itself", when, again[i])
			}
		}
		w.route()
		w.waiting(0)
	}
	w.equal("requests", len(w.requests(src, "")), 2)
}

func arrivalWindow(w *world) {
	src := w.inboundSource(w.tenant("acme"), "s")
	arrive := func() outbox.Accepted {
		e := w.arrival(src, "the body itself", `{}`)
		e.Inbound.Window = time.Minute
		return w.publish(e)[0]
	}
	first := arrive()
	w.now = w.now.Add(59 * time.Second)
	if got := arrive(); !got.Duplicate || got.ID != first.ID {
		w.Errorf("within the window: %+v", got)
	}
	w.now = w.now.Add(2 * time.Second)
	second := arrive()
	if second.Duplicate || second.ID == first.ID {
		w.Errorf("after the window: %+v", second)
	}
	if got := arrive(); !got.Duplicate || got.ID != second.ID {
		w.Errorf("within the second window: %+v", got)
	}
	w.waiting(2)
	w.equal("requests", len(w.requests(src, outbox.InboundAccepted)), 2)
}

func arrivalAfterDeletion(w *world) {
	acme := w.tenant("acme")
	src := w.inboundSource(acme, "s")
	first := w.arrival(src, "evt_1", `{}`)
	w.publish(first)
	w.must(w.store.DeleteSource(w.ctx, "s", w.now))
	w.maintain()
	again := w.inboundSource(acme, "s")
	if got := w.publish(w.arrival(again, "evt_1", `{}`))[0]; !got.Duplicate || got.ID != first.ID {
		w.Errorf("a provider's retry after the source was made anew: %+v, want a duplicate", got)
	}
	w.equal("requests of the new one", w.requests(again, ""), []outbox.InboundRequest(nil))
}

func arrivalCrowd(w *world) {
	src := w.inboundSource(w.tenant("acme"), "s")
	const crowd, keys = 12, 5
	ids := make([][]outbox.EventID, crowd)
	var group sync.WaitGroup
	for i := range crowd {
		var batch []outbox.NewEvent
		for k := range keys {
			batch = append(batch, w.arrival(src, string(rune('a'+k)), `{}`))
		}
		if i%2 == 1 {
			slices.Reverse(batch)
		}
		group.Go(func() {
			for {
				accepted, conflicts, err := w.store.InsertEvents(w.ctx, batch)
				if outbox.FaultOf(err) == outbox.FaultLocked {
					continue // it may be, and nothing was written
				}
				if err != nil || len(conflicts) > 0 {
					w.Errorf("conflicts %v, error %v", conflicts, err)
					return
				}
				for k := range accepted {
					ids[i] = append(ids[i], accepted[k].ID)
				}
				return
			}
		})
	}
	group.Wait()
	for i := range ids {
		if i%2 == 1 {
			slices.Reverse(ids[i])
		}
		w.equal("everybody is told of the same events", ids[i], ids[0])
	}
	w.waiting(keys)
}

func requestsAreListed(w *world) {
	src, other := w.inboundSource(w.tenant("acme"), "s"), w.inboundSource(w.tenant("acme"), "other")
	var all []outbox.InboundRequest
	record := func(r outbox.InboundRequest) {
		w.now = w.now.Add(time.Millisecond)
		r.ID, r.Source, r.Shard, r.Times = outbox.NewInboundID(w.now), src.ID, outbox.SourceShard("s"), max(r.Times, 1)
		w.must(w.store.RecordRequests(w.ctx, []outbox.InboundRequest{r}))
		w.must(w.store.RecordRequests(w.ctx, []outbox.InboundRequest{r})) // after an unknown commit
		all = append([]outbox.InboundRequest{r}, all...)
	}
	event := outbox.NewEventID(w.now)
	record(outbox.InboundRequest{Outcome: outbox.InboundRejected, Reason: "mismatch", Detail: "No signature fits.", Bytes: 3, Times: 17})
	record(outbox.InboundRequest{Outcome: outbox.InboundDuplicate, ProviderID: "evt_1", Topic: "t", Event: event})
	record(outbox.InboundRequest{Outcome: outbox.InboundQuarantined, ProviderID: "evt_1", Event: event, Body: []byte("\x00\xff{"), Bytes: 3, Digest: [32]byte{1}})
	foreign := outbox.InboundRequest{ID: outbox.NewInboundID(w.now), Source: other.ID, Shard: outbox.SourceShard("other"), Outcome: outbox.InboundRejected}
	w.must(w.store.RecordRequests(w.ctx, []outbox.InboundRequest{foreign}))

	w.equal("all", w.requests(src, ""), all)
	w.equal("rejected", w.requests(src, outbox.InboundRejected), all[2:])
	w.equal("accepted", w.requests(src, outbox.InboundAccepted), []outbox.InboundRequest(nil))

	q := outbox.RequestQuery{Source: src.ID, Shard: outbox.SourceShard("s")}
	page, next, err := w.store.Requests(w.ctx, q, outbox.Page{Limit: 2})
	w.must(err)
	w.equal("first page", page, all[:2])
	q.After = next
	page, next, err = w.store.Requests(w.ctx, q, outbox.Page{Limit: 2})
	w.must(err)
	w.equal("second page", page, all[2:])
	if !next.IsZero() {
		w.Error("there is more after the last page")
	}
}

func requestIsReleased(w *world) {
	src, other := w.inboundSource(w.tenant("acme"), "s"), w.inboundSource(w.tenant("acme"), "other")
	shard := outbox.SourceShard("s")
	kept := outbox.InboundRequest{
		ID: outbox.NewInboundID(w.now), Source: src.ID, Shard: shard, Outcome: outbox.InboundQuarantined, Reason: outbox.QuarantinedSchema,
		Detail: "payload.n: got string, want number", ProviderID: "evt_1", Topic: "t", Digest: [32]byte{1}, Bytes: 3, Body: []byte("\x00\xff{"), Times: 1,
		Metadata: map[string]string{"source": "s", "header:Content-Type": "application/json; é"}, ReleaseKey: [32]byte{9, 8},
	}
	refused := outbox.InboundRequest{ID: outbox.NewInboundID(w.now), Source: src.ID, Shard: shard, Outcome: outbox.InboundRejected, Reason: "mismatch", Times: 1}
	w.must(w.store.RecordRequests(w.ctx, []outbox.InboundRequest{kept, refused}))
	find := func() outbox.InboundRequest {
		got, err := w.store.Request(w.ctx, src.ID, shard, kept.ID)
		w.must(err)
		return got
	}
	w.equal("found", find(), kept)
	if _, err := w.store.Request(w.ctx, other.ID, outbox.SourceShard("other"), kept.ID); !errors.Is(err, outbox.ErrNotFound) {
		w.Errorf("by another source: %v, want not found", err)
	}

	first, second := outbox.NewEventID(w.now), outbox.NewEventID(w.now)
	w.must(w.store.ReleaseRequest(w.ctx, src.ID, shard, kept.ID, first))
	w.must(w.store.ReleaseRequest(w.ctx, src.ID, shard, kept.ID, second))
	kept.Released, kept.Body = first, nil
	w.equal("released twice", find(), kept)
	w.equal("in the list", w.requests(src, outbox.InboundQuarantined), []outbox.InboundRequest{kept})
	for what, id := range map[string]outbox.InboundID{"one that was refused": refused.ID, "one that is not there": outbox.NewInboundID(w.now)} {
		if err := w.store.ReleaseRequest(w.ctx, src.ID, shard, id, first); !errors.Is(err, outbox.ErrNotFound) {
			w.Errorf("%s: %v, want not found", what, err)
		}
	}
}

func requestsAreForgotten(w *world) {
	acme := w.tenant("acme")
	src, _, err := w.store.PutSource(w.ctx, "s", w.now, func(s *outbox.Source, _ bool) error {
		s.Provider, s.Tenant, s.Keep = "stripe", acme.TenantRef, time.Hour
		return nil
	})
	w.must(err)
	w.publish(w.arrival(src, "old", `{}`))
	w.now = w.now.Add(30 * time.Minute)
	w.publish(w.arrival(src, "new", `{}`))
	w.now = w.now.Add(31 * time.Minute)
	w.maintain()
	list := w.requests(src, "")
	if len(list) != 1 || list[0].ProviderID != "new" {
		w.Errorf("kept %+v, want the new one", list)
	}
	if got := w.publish(w.arrival(src, "old", `{}`))[0]; got.Duplicate {
		w.Errorf("an id that is no longer kept was met: %+v", got)
	}

	w.must(w.store.DeleteSource(w.ctx, "s", w.now))
	w.now = w.now.Add(2 * time.Hour)
	w.maintain()
	n, err := w.backdoor().Count(w.ctx, "SELECT (SELECT count(*) FROM {source}) + (SELECT count(*) FROM {inbound})")
	w.must(err)
	w.equal("rows left of a deleted source", n, 0)
}
