package outboxtest

import (
	"bytes"
	"errors"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

var strangers = topic{"what strangers' servers want", []promise{
	{"credentials come back but are not stored in clear, and go with their endpoint", credentialsAreSealed},
	{"credentials that do not open are a fault, and an edit does not wipe them", credentialsThatDoNotOpen},
	{"schemes, filter and payload mode come back as they were set", wantsComeBack},
	{"an operator's signature schemes are kept, and loaded with every shard", schemesAreKept},
	{"a scheme that an endpoint signs with cannot be deleted", schemeInUse},
	{"event types are kept in order of their names", eventTypesAreKept},
}}

var erasing = topic{"erasing", []promise{
	{"an erased payload is gone from every look, and the event and its books stay", erasedIsGone},
	{"an erased event that waits ends for want of its bytes", erasedWaits},
	{"an erased event is still known when it is published again", erasedIsKnown},
	{"nobody erases another tenant's event", erasingStrangers},
	{"an event that never had bytes is not an erased one", emptyIsNotErased},
}}

func credentialsAreSealed(w *world) {
	acme := w.tenant("acme")
	want := outbox.Credentials{
		Headers:     map[string]string{"Authorization": "Bearer " + secretValue},
		Certificate: "-----BEGIN CERTIFICATE-----",
		Key:         secretValue,
	}
	e := w.endpointWith(acme, func(e *outbox.Endpoint) {
		e.Description = "a-visible-description"
		e.Credentials = want
		e.Secrets = []outbox.Secret{{Scheme: "acme", Value: "legacy", CreatedAt: w.now}}
		e.Schemes = []string{"acme"}
	})
	got, err := w.store.Endpoint(w.ctx, acme.TenantRef, outbox.EndpointRef{ID: e.ID})
	w.must(err)
	w.equal("the credentials", got.Credentials, want)
	w.equal("the secret", got.Secrets, []outbox.Secret{{Scheme: "acme", Value: "legacy", CreatedAt: w.now}})
	w.equal("loaded", w.config().Endpoints[0].Credentials, want)
	dump := w.dump("a-visible-description")
	for how, trace := range traces(secretValue) {
		if bytes.Contains(bytes.ToLower(dump), bytes.ToLower(trace)) {
			w.Errorf("the credentials lie in the database %s", how)
		}
	}
	_, err = w.store.DeleteEndpoint(w.ctx, acme.TenantRef, outbox.EndpointRef{ID: e.ID}, w.now, 1)
	w.must(err)
	n, err := w.backdoor().Count(w.ctx, `SELECT count(*) FROM {endpoint} WHERE credentials IS NOT NULL`)
	w.must(err)
	w.equal("stored credentials", n, 0)
}

func credentialsThatDoNotOpen(w *world) {
	e := w.endpointWith(w.tenant("acme"), func(e *outbox.Endpoint) {
		e.Credentials = outbox.Credentials{Headers: map[string]string{"Authorization": "Bearer x"}}
	})
	w.must(w.backdoor().Exec(w.ctx, `UPDATE {endpoint} SET credentials = {garbage}`))
	edited := w.editEndpoint(e, func(e *outbox.Endpoint) { e.Description = "another" })
	if !edited.Has(outbox.FlawCredential) {
		w.Errorf("fault %q", edited.Fault)
	}
	n, err := w.backdoor().Count(w.ctx, `SELECT count(*) FROM {endpoint} WHERE credentials IS NOT NULL`)
	w.must(err)
	w.equal("stored credentials", n, 1)
	edited = w.editEndpoint(e, func(e *outbox.Endpoint) {
		e.Credentials = outbox.Credentials{Headers: map[string]string{"Authorization": "Bearer y"}}
	})
	w.equal("fault once they are given again", edited.Fault, "")
}

func wantsComeBack(w *world) {
	e := w.endpoint(w.tenant("acme"), "*")
	w.equal("schemes at first", e.Schemes, []string{outbox.SchemeStandard})
	w.equal("payload mode at first", e.PayloadMode, outbox.PayloadFull)
	w.equal("filter at first", e.Filter, "")
	for _, filter := range []string{`{ "n": 9007199254740993,"s":"\u0000é" }`, ""} {
		e = w.editEndpoint(e, func(e *outbox.Endpoint) {
			e.Schemes, e.Filter, e.PayloadMode, e.ThinTTL = []string{"stripe", "standard"}, filter, outbox.PayloadThin, time.Hour
		})
		for what, e := range map[string]outbox.Endpoint{"edited": e, "loaded": w.config().Endpoints[0]} {
			w.equal(what+": schemes", e.Schemes, []string{"stripe", "standard"})
			w.equal(what+": filter", e.Filter, filter)
			w.equal(what+": payload mode", e.PayloadMode, outbox.PayloadThin)
			w.equal(what+": how long", e.ThinTTL, time.Hour)
			w.equal(what+": fault", e.Fault, "")
		}
	}
	e = w.editEndpoint(e, func(e *outbox.Endpoint) { e.Filter = `{"a":{"$like":"x"}}` })
	w.equal("fault of a filter that cannot be used", e.Fault, string(outbox.FlawFilter))
}

func schemesAreKept(w *world) {
	acme, globex := w.strangers("acme")
	w.endpoint(acme, "*")
	w.endpoint(globex, "*")
	before := w.config().Revisions
	put := func(definition string, wantNew bool) {
		w.Helper()
		stored, created, err := w.store.PutSignatureScheme(w.ctx, outbox.SignatureScheme{Name: "acme", Definition: []byte(definition)}, w.now)
		w.must(err)
		w.equal("new", created, wantNew)
		w.equal("definition", string(stored.Definition), definition)
		w.equal("changed at", stored.UpdatedAt, w.now)
	}
	put(`{"algorithm": "hmac-sha1"}`, true)
	made := w.now
	w.now = w.now.Add(time.Minute)
	put(`{"algorithm": "hmac-sha256"}`, false)
	got, err := w.store.SignatureScheme(w.ctx, "acme")
	w.must(err)
	w.equal("made at", got.CreatedAt, made)
	config := w.config()
	w.equal("loaded", config.Schemes, []outbox.SignatureScheme{got})
	for shard, revision := range before {
		if config.Revisions[shard] <= revision {
			w.Fatalf("shard %d would not notice: revision %d", shard, config.Revisions[shard])
		}
	}
	w.must(w.store.DeleteSignatureScheme(w.ctx, "acme"))
	if err := w.store.DeleteSignatureScheme(w.ctx, "acme"); !errors.Is(err, outbox.ErrNotFound) {
		w.Errorf("deleted again: %v", err)
	}
	if _, err := w.store.SignatureScheme(w.ctx, "acme"); !errors.Is(err, outbox.ErrNotFound) {
		w.Errorf("read after it was deleted: %v", err)
	}
	list, err := w.store.SignatureSchemes(w.ctx)
	w.must(err)
	w.equal("left", len(list), 0)
}

func schemeInUse(w *world) {
	acme := w.tenant("acme")
	_, _, err := w.store.PutSignatureScheme(w.ctx, outbox.SignatureScheme{Name: "old", Definition: []byte(`{}`)}, w.now)
	w.must(err)
	e := w.endpointWith(acme, func(e *outbox.Endpoint) { e.Schemes = []string{"standard", "old"} })
	if err := w.store.DeleteSignatureScheme(w.ctx, "old"); !errors.Is(err, outbox.ErrConflict) {
		w.Errorf("while it is in use: %v", err)
	}
	_, err = w.store.DeleteEndpoint(w.ctx, acme.TenantRef, outbox.EndpointRef{ID: e.ID}, w.now, 1)
	w.must(err)
	w.must(w.store.DeleteSignatureScheme(w.ctx, "old"))
}

func eventTypesAreKept(w *world) {
	revision := func() int64 {
		w.Helper()
		n, err := w.store.CatalogueRevision(w.ctx)
		w.must(err)
		return n
	}
	at := revision()
	for _, name := range []string{"order.paid", "invoice.sent", "order_line", "order.created"} {
		_, created, err := w.store.PutEventType(w.ctx, name, w.now, func(t *outbox.EventType, exists bool) error {
			w.equal("exists", exists, false)
			t.Description, t.Schema, t.OnInvalid = "of "+name, []byte(`{ "type": "object" }`), outbox.OnInvalidRefuse
			return nil
		})
		w.must(err)
		w.equal("new", created, true)
		if now := revision(); now == at {
			w.Error("the revision stands still")
		} else {
			at = now
		}
	}
	for ascending, want := range map[bool][]string{
		true:  {"invoice.sent", "order.created", "order.paid", "order_line"},
		false: {"order_line", "order.paid", "order.created", "invoice.sent"},
	} {
		var got []string
		after := ""
		for {
			page, err := w.store.EventTypes(w.ctx, after, outbox.Page{Limit: 3, Ascending: ascending})
			w.must(err)
			if len(page) == 0 {
				break
			}
			for _, t := range page {
				got = append(got, t.Name)
			}
			after = got[len(got)-1]
		}
		w.equal("names", got, want)
	}
	w.now = w.now.Add(time.Hour)
	changed, created, err := w.store.PutEventType(w.ctx, "order.paid", w.now, func(t *outbox.EventType, exists bool) error {
		w.equal("exists", exists, true)
		w.equal("schema", string(t.Schema), `{ "type": "object" }`)
		t.Schema, t.Example, t.Archived = nil, []byte(`1.0`), true
		return nil
	})
	w.must(err)
	w.equal("new", created, false)
	read, err := w.store.EventType(w.ctx, "order.paid")
	w.must(err)
	w.equal("read", read, changed)
	w.equal("example", string(read.Example), `1.0`)
	w.equal("changed", read.UpdatedAt.Sub(read.CreatedAt), time.Hour)
	refused := errors.New("refused")
	if _, _, err := w.store.PutEventType(w.ctx, "order.paid", w.now, func(t *outbox.EventType, _ bool) error {
		t.Description = "half done"
		return refused
	}); !errors.Is(err, refused) {
		w.Errorf("an edit that fails: %v", err)
	}
	w.must(w.store.DeleteEventType(w.ctx, "invoice.sent"))
	if err := w.store.DeleteEventType(w.ctx, "invoice.sent"); !errors.Is(err, outbox.ErrNotFound) {
		w.Errorf("deleted again: %v", err)
	}
	if _, err := w.store.EventType(w.ctx, "invoice.sent"); !errors.Is(err, outbox.ErrNotFound) {
		w.Errorf("read after it was deleted: %v", err)
	}
	again, err := w.store.EventType(w.ctx, "order.paid")
	w.must(err)
	w.equal("description", again.Description, "of order.paid")
}

// forgotten executes what asks the owner to forget an erased event, and returns of which.
func (w *world) forgotten() (ids []outbox.EventID) {
	w.Helper()
	for _, row := range w.ofKind(outbox.OutboxCommand) {
		w.equal("command", row.Command.Name, outbox.CommandForget)
		ids = append(ids, row.Command.Event)
		w.must(w.store.EndCommand(w.ctx, w.lease, row))
		w.must(w.store.EndCommand(w.ctx, w.lease, row))
	}
	w.equal("commands left", len(w.ofKind(outbox.OutboxCommand)), 0)
	return ids
}

func erasedIsGone(w *world) {
	acme := w.tenant("acme")
	w.own()
	d := w.planned(w.endpoint(acme, "*"), "order.paid")
	w.finish(w.refused(d))
	w.equal("before", len(w.verify().Checks) > 0, true)
	w.must(w.store.ErasePayload(w.ctx, acme.TenantRef, d.Event))
	w.must(w.store.ErasePayload(w.ctx, acme.TenantRef, d.Event))
	w.equal("told", w.forgotten(), []outbox.EventID{d.Event, d.Event})
	for _, tenant := range []outbox.TenantRef{acme.TenantRef, {}} {
		if _, err := w.store.Payload(w.ctx, tenant, d.Event); !errors.Is(err, outbox.ErrPayloadGone) {
			w.Errorf("payload: %v", err)
		}
		v, err := w.store.Event(w.ctx, tenant, d.Event)
		w.must(err)
		w.equal("the event says so", v.PayloadErased, true)
		w.equal("and how many bytes it had", v.PayloadBytes, len(`{"n":1}`))
		w.equal("its type", v.Type, "order.paid")
	}
	if _, err := w.store.RequestReplay(w.ctx, acme.TenantRef, d.ID); !errors.Is(err, outbox.ErrPayloadGone) {
		w.Errorf("replay: %v", err)
	}
	w.equal("state", w.view(d).State, outbox.StateDead)
	w.verify()
}

func erasedWaits(w *world) {
	acme := w.tenant("acme")
	w.own()
	e := w.endpoint(acme, "*")
	planned := w.planned(e, "order.paid")
	dead := w.planned(e, "order.paid")
	w.finish(w.refused(dead))
	asked := w.replay(dead) // before the bytes went
	w.equal("planned again", len(asked), 1)
	waiting := w.publishOne(acme, "order.paid", `{"n":2}`)
	for _, id := range []outbox.EventID{planned.Event, dead.Event, waiting.ID} {
		w.must(w.store.ErasePayload(w.ctx, acme.TenantRef, id))
	}
	rows := w.source(w.ofKind(outbox.OutboxEvent))
	if len(rows) != 1 || rows[0].Source == nil || rows[0].HasPayload || rows[0].Source.Payload != nil {
		w.Errorf("an erased event to be routed: %+v", rows)
	}
	w.forgotten()
	w.route()
	for _, lane := range []outbox.Lane{outbox.LaneLive, outbox.LaneReplay} {
		for _, due := range w.pending(e, lane) {
			if !due.Gone || due.Payload != nil {
				w.Errorf("%s of lane %d: gone is %t, %q", due.Event, lane, due.Gone, due.Payload)
			}
		}
	}
	w.verify()
}

func erasedIsKnown(w *world) {
	acme := w.tenant("acme")
	first := w.publishOne(acme, "order.paid", `{"n":1}`)
	w.must(w.store.ErasePayload(w.ctx, acme.TenantRef, first.ID))
	again := first
	again.Chosen = true
	accepted := w.publish(again)
	w.equal("a duplicate", accepted[0].Duplicate, true)
	other := w.event(acme, "order.paid", `{"n":2}`)
	other.ID, other.Chosen = first.ID, true
	_, conflicts, err := w.store.InsertEvents(w.ctx, []outbox.NewEvent{other})
	w.must(err)
	if len(conflicts) != 1 || !errors.Is(conflicts[0].Err, outbox.ErrIDConflict) {
		w.Errorf("other bytes under its id: %v", conflicts)
	}
	if _, err := w.store.Payload(w.ctx, acme.TenantRef, first.ID); !errors.Is(err, outbox.ErrPayloadGone) {
		w.Errorf("the bytes are back: %v", err)
	}
}

func erasingStrangers(w *world) {
	for _, pair := range []func(string) (outbox.Tenant, outbox.Tenant){w.neighbours, w.strangers} {
		acme, globex := pair("acme")
		event := w.publishOne(acme, "order.paid", `{"n":1}`)
		for what, err := range map[string]error{
			"another tenant's": w.store.ErasePayload(w.ctx, globex.TenantRef, event.ID),
			"one that is none": w.store.ErasePayload(w.ctx, acme.TenantRef, outbox.NewEventID(w.now)),
		} {
			if !errors.Is(err, outbox.ErrNotFound) {
				w.Errorf("%s: %v", what, err)
			}
		}
		payload, err := w.store.Payload(w.ctx, acme.TenantRef, event.ID)
		w.must(err)
		w.equal("payload", string(payload), `{"n":1}`)
	}
}

func emptyIsNotErased(w *world) {
	acme := w.tenant("acme")
	w.own()
	e := w.endpoint(acme, "*")
	event := w.publishOne(acme, "order.paid", ``)
	w.must(w.store.ErasePayload(w.ctx, acme.TenantRef, event.ID))
	w.forgotten()
	w.route()
	due := w.pending(e, outbox.LaneLive)
	if len(due) != 1 || due[0].Gone {
		w.Fatalf("an empty payload is taken for none: %+v", due)
	}
	payload, err := w.store.Payload(w.ctx, acme.TenantRef, event.ID)
	w.must(err)
	w.equal("payload", string(payload), "")
}
