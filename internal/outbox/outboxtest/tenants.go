package outboxtest

import (
	"errors"
	"strings"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

var tenants = topic{"tenants", []promise{
	{"a new tenant has the defaults and a shard of its own key", newTenant},
	{"everything about a tenant is kept", tenantComesBack},
	{"an edit sees what the last one left", editTenantSees},
	{"an edit that fails leaves the row as it was", failedTenantEdit},
	{"an unknown tenant is not found", unknownTenant},
	{"a deleted tenant is gone with its endpoints, and its key is free", deleteTenant},
	{"a tenant made again never sees the old rows", tenantMadeAgain},
	{"deleting counts what is pending, up to a limit", deleteTenantCounts},
	{"every change moves the revision of its shard alone", tenantRevisions},
	{"the time of becoming active is the database's", tenantResumed},
	{"settings can be written again", writeSettings},
}}

func newTenant(w *world) {
	var seen outbox.Tenant
	got, created, err := w.store.PutTenant(w.ctx, "acme", w.now, func(t *outbox.Tenant, exists bool) error {
		if exists {
			w.Error("it exists already")
		}
		seen = *t
		return nil
	})
	w.must(err)
	if !created {
		w.Error("it was not created")
	}
	seen.ID, seen.ResumedAt = 0, w.now
	w.equal("what edit saw", seen, outbox.NewTenant("acme", w.now))
	if got.ID < 1 {
		w.Errorf("id %d", got.ID)
	}
	want := outbox.NewTenant("acme", w.now)
	want.ID, want.ResumedAt = got.ID, got.ResumedAt
	w.equal("what was stored", got, want)
	read, err := w.store.Tenant(w.ctx, "acme")
	w.must(err)
	w.equal("what is read", read, got)
	// Published vectors: SHA-256("abc") begins with ba, SHA-256("a") with ca.
	if abc, a := w.tenant("abc").Shard, w.tenant("a").Shard; abc != 0xba || a != 0xca {
		w.Errorf("shards %#x and %#x, want 0xba and 0xca", abc, a)
	}
}

func tenantComesBack(w *world) {
	for name, change := range map[string]func(t *outbox.Tenant){
		"full": func(t *outbox.Tenant) {
			t.Name = "Acme 'Inc' ☂"
			t.Weight = 2.5
			t.MaxInFlight = 1000
			t.State = outbox.TenantPaused
			t.Egress = outbox.EgressInternal
			t.Metadata = map[string]string{"plan": "pro", "": "empty"}
			t.MaxEndpoints = new(7)
			t.Retry = outbox.RetryPolicy{Initial: 50 * time.Millisecond, Max: 90 * time.Minute, Window: 72 * time.Hour, MaxAttempts: 12, RetryStatuses: []string{"404", "4xx"}}
		},
		// No endpoints at all is not the same as the instance's limit, and no statuses at all
		// not the same as the instance's.
		"zero is a value": func(t *outbox.Tenant) {
			t.MaxEndpoints = new(0)
			t.Retry.RetryStatuses = []string{}
		},
		"nothing": func(*outbox.Tenant) {},
	} {
		key := strings.ReplaceAll(name, " ", "-")
		want := w.tenant(key)
		got, created, err := w.store.PutTenant(w.ctx, key, w.now, func(t *outbox.Tenant, exists bool) error {
			if !exists {
				w.Error("it does not exist")
			}
			change(t)
			return nil
		})
		w.must(err)
		if created {
			w.Errorf("%s: created twice", name)
		}
		change(&want)
		want.ResumedAt = got.ResumedAt
		read, err := w.store.Tenant(w.ctx, key)
		w.must(err)
		for where, tenant := range map[string]outbox.Tenant{"answer": got, "read": read, "configuration": w.configOf(want)} {
			w.equal(name+": "+where, tenant, want)
			if (tenant.Retry.RetryStatuses == nil) != (want.Retry.RetryStatuses == nil) {
				w.Errorf("%s: %s: statuses %#v, want %#v", name, where, tenant.Retry.RetryStatuses, want.Retry.RetryStatuses)
			}
		}
	}
}

// configOf finds a tenant in the owner's configuration.
func (w *world) configOf(tenant outbox.Tenant) outbox.Tenant {
	w.Helper()
	config, err := w.store.LoadConfig(w.ctx, []outbox.Shard{tenant.Shard})
	w.must(err)
	for _, t := range config.Tenants {
		if t.ID == tenant.ID {
			return t
		}
	}
	w.Fatalf("tenant %s is not in the configuration", tenant.Key)
	panic("unreachable")
}

func editTenantSees(w *world) {
	first := w.tenant("acme")
	w.now = w.now.Add(time.Minute)
	got, err := w.store.EditTenant(w.ctx, "acme", w.now, func(t *outbox.Tenant) error {
		w.equal("what edit saw", *t, first)
		t.Name = "Acme"
		t.UpdatedAt = w.now
		return nil
	})
	w.must(err)
	first.Name, first.UpdatedAt = "Acme", w.now
	w.equal("after", got, first)
}

func failedTenantEdit(w *world) {
	refusal := errors.New("no")
	_, _, err := w.store.PutTenant(w.ctx, "acme", w.now, func(*outbox.Tenant, bool) error { return refusal })
	if !errors.Is(err, refusal) {
		w.Errorf("error %v, want edit's own", err)
	}
	if _, err := w.store.Tenant(w.ctx, "acme"); !errors.Is(err, outbox.ErrNotFound) {
		w.Errorf("a refused tenant was made: %v", err)
	}

	before := w.tenant("acme")
	_, err = w.store.EditTenant(w.ctx, "acme", w.now.Add(time.Hour), func(t *outbox.Tenant) error {
		t.Name, t.State = "changed", outbox.TenantPaused
		return refusal
	})
	if !errors.Is(err, refusal) {
		w.Errorf("error %v, want edit's own", err)
	}
	after, err := w.store.Tenant(w.ctx, "acme")
	w.must(err)
	w.equal("after a refused edit", after, before)
}

func unknownTenant(w *world) {
	w.tenant("acme")
	never := func(*outbox.Tenant) error { w.Error("edit was called"); return nil }
	for _, key := range []string{"Acme", "acm", "acme2", "%"} {
		_, editErr := w.store.EditTenant(w.ctx, key, w.now, never)
		_, readErr := w.store.Tenant(w.ctx, key)
		_, deleteErr := w.store.DeleteTenant(w.ctx, key, "Ops", w.now)
		for what, err := range map[string]error{"edit": editErr, "read": readErr, "delete": deleteErr} {
			if !errors.Is(err, outbox.ErrNotFound) {
				w.Errorf("%s %q: %v, want not found", what, key, err)
			}
		}
	}
}

func deleteTenant(w *world) {
	acme, globex := w.neighbours("acme")
	e := w.endpointWith(acme, func(e *outbox.Endpoint) { e.UID = "main" })
	other := w.endpoint(globex, "*")
	_, err := w.store.DeleteTenant(w.ctx, "acme", "Ops", w.now)
	w.must(err)
	if _, err := w.store.Tenant(w.ctx, "acme"); !errors.Is(err, outbox.ErrNotFound) {
		w.Errorf("the tenant is still there: %v", err)
	}
	for _, ref := range []outbox.EndpointRef{{ID: e.ID}, {UID: "main"}} {
		if _, err := w.store.Endpoint(w.ctx, acme.TenantRef, ref); !errors.Is(err, outbox.ErrNotFound) {
			w.Errorf("its endpoint is still there: %v", err)
		}
	}
	config := w.config()
	if len(config.Tenants) != 1 || config.Tenants[0].ID != globex.ID || len(config.Endpoints) != 1 || config.Endpoints[0].ID != other.ID {
		w.Errorf("configuration %+v, want the neighbour's alone", config)
	}
	again := w.tenant("acme")
	if again.ID == acme.ID || again.Shard != acme.Shard {
		w.Errorf("made again as %+v, first %+v", again.TenantRef, acme.TenantRef)
	}
}

func tenantMadeAgain(w *world) {
	acme := w.tenant("acme")
	e := w.endpointWith(acme, func(e *outbox.Endpoint) { e.UID = "main" })
	event := w.keyed(acme, "k", `{"n":1}`)
	w.publish(event)
	d := w.route()[0]
	w.finish(w.refused(d))
	w.begin(acme.TenantRef, "request", oneRequest, outbox.IdempotencyNew, "")
	unrouted := w.publishOne(acme, "a.b", `{"n":2}`)

	_, err := w.store.DeleteTenant(w.ctx, "acme", "Ops", w.now)
	w.must(err)
	again := w.tenant("acme")

	notFound := func(what string, err error) {
		w.Helper()
		if !errors.Is(err, outbox.ErrNotFound) {
			w.Errorf("%s of the old tenant: %v, want not found", what, err)
		}
	}
	_, err = w.store.Event(w.ctx, again.TenantRef, event.ID)
	notFound("event", err)
	_, err = w.store.Event(w.ctx, again.TenantRef, unrouted.ID)
	notFound("unrouted event", err)
	_, err = w.store.Payload(w.ctx, again.TenantRef, event.ID)
	notFound("payload", err)
	_, err = w.store.Delivery(w.ctx, again.TenantRef, d.ID)
	notFound("delivery", err)
	_, err = w.store.RequestReplay(w.ctx, again.TenantRef, d.ID)
	notFound("replay", err)
	_, err = w.store.Endpoint(w.ctx, again.TenantRef, outbox.EndpointRef{ID: e.ID})
	notFound("endpoint", err)
	if n := len(w.listEvents(outbox.EventQuery{Tenant: again.TenantRef}, 10, false)); n != 0 {
		w.Errorf("%d events of the old tenant are listed", n)
	}
	if n := len(w.listDeliveries(outbox.DeliveryQuery{Tenant: again.TenantRef}, 10, false)); n != 0 {
		w.Errorf("%d deliveries of the old tenant are listed", n)
	}
	if w.publish(w.keyed(again, "k", `{"n":1}`))[0].Duplicate {
		w.Error("the old tenant's idempotency key was met")
	}
	w.begin(again.TenantRef, "request", otherRequest, outbox.IdempotencyNew, "")
	w.endpointWith(again, func(e *outbox.Endpoint) { e.UID = "main" })

	// The old event meets no endpoint any more, least of all the new tenant's.
	w.executeCommands()
	for _, planned := range w.route() {
		if planned.Event == unrouted.ID || planned.Tenant != again.ID {
			w.Errorf("the old tenant's event was planned: %+v", planned)
		}
	}
	w.verify()
}

func deleteTenantCounts(w *world) {
	acme, globex := w.neighbours("acme")
	w.endpoint(acme, "*")
	w.endpoint(acme, "*")
	w.endpoint(globex, "*")
	for range 3 {
		w.publishOne(acme, "a.b", `{}`)
		w.publishOne(globex, "a.b", `{}`)
	}
	w.route()
	job, err := w.store.DeleteTenant(w.ctx, "acme", "Ops", w.now)
	w.must(err)
	w.equal("pending", job.Matched, int64(6))
	w.equal("cancelled", len(w.executeCommands()), 6)
	report := w.verify()
	if report.Cancelled != 6 || report.Pending != 3 {
		w.Errorf("cancelled %d, pending %d; want 6 and the neighbour's 3", report.Cancelled, report.Pending)
	}
}

func writeSettings(w *world) {
	for _, s := range []outbox.Settings{
		{MaxPayload: 256 << 10, Retention: 720 * time.Hour, IdempotencyRetention: 24 * time.Hour},
		{MaxPayload: 1 << 20, Retention: 24 * time.Hour, IdempotencyRetention: time.Hour, CreateUnknownTenants: true},
	} {
		w.must(w.store.WriteSettings(w.ctx, s))
	}
}
