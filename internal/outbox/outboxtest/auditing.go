package outboxtest

import (
	"bytes"
	"errors"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

var auditing = topic{"the record of changes", []promise{
	{"whatever an author changes goes on record, once", auditOnce},
	{"what fails is not on record, and what is on record happened", auditTogether},
	{"an entry comes back as it was made", auditKept},
	{"a tenant made by the change is found for its entry, and its successor sees none of it", auditTenants},
	{"the record is filtered and read page by page", auditFilters},
	{"no secret of an endpoint gets into it", auditSecrets},
}}

// author is a key about to do something.
func (w *world) author(action string) *outbox.Author {
	return &outbox.Author{Entry: outbox.AuditEntry{
		ID: outbox.NewAuditID(w.now), Action: action, Actor: outbox.Actor{Kind: outbox.ActorKey, Name: "ci", ID: "wbk_12345678"},
	}}
}

// record is what is on record, oldest first.
func (w *world) record(q outbox.AuditQuery) []outbox.AuditEntry {
	w.Helper()
	list, err := w.store.AuditEntries(w.ctx, q, outbox.Page{Limit: 250, Ascending: true})
	w.must(err)
	return list
}

func (w *world) actions(q outbox.AuditQuery) (actions []string) {
	w.Helper()
	for _, e := range w.record(q) {
		actions = append(actions, e.Action)
	}
	return actions
}

// Every way to change something, through a store of somebody's.
func auditOnce(w *world) {
	acme := w.tenant("acme")
	e := w.endpoint(acme, "*")
	gone := w.endpoint(acme, "*")
	key := w.key(acme, "k")
	s := w.offer(acme, "code")
	w.offer(acme, "another")
	for i, act := range []func(store outbox.Store) error{
		func(store outbox.Store) error {
			_, _, err := store.PutTenant(w.ctx, "new", w.now, func(*outbox.Tenant, bool) error { return nil })
			return err
		},
		func(store outbox.Store) error {
			_, err := store.EditTenant(w.ctx, "acme", w.now, func(*outbox.Tenant) error { return nil })
			return err
		},
		func(store outbox.Store) error {
			_, err := store.EditEndpoint(w.ctx, acme.TenantRef, outbox.EndpointRef{ID: e.ID}, w.now, func(*outbox.Endpoint) ([]outbox.Command, error) {
				return []outbox.Command{{Name: outbox.CommandProbe}}, nil
			})
			return err
		},
		func(store outbox.Store) error {
			_, err := store.DeleteEndpoint(w.ctx, acme.TenantRef, outbox.EndpointRef{ID: gone.ID}, w.now, 1)
			return err
		},
		func(store outbox.Store) error { return store.SetDispatch(w.ctx, outbox.DispatchState{At: w.now}) },
		func(store outbox.Store) error { return store.DeleteKey(w.ctx, key.ID, w.now) },
		func(store outbox.Store) error {
			_, _, err := store.TakeSession(w.ctx, digestOf("code"), digestOf("token"), w.now)
			return err
		},
		func(store outbox.Store) error { return store.Note(w.ctx) },
		func(store outbox.Store) error { return store.RevokeSession(w.ctx, acme.TenantRef, s.ID, w.now) },
		func(store outbox.Store) error {
			_, err := store.RevokeSessions(w.ctx, acme.TenantRef, w.now)
			return err
		},
	} {
		by := w.author("act")
		store := w.store.By(by)
		w.must(act(store))
		if by.Due() || len(w.record(outbox.AuditQuery{})) != i+1 {
			w.Fatalf("act %d: %d entries, still due: %v", i, len(w.record(outbox.AuditQuery{})), by.Due())
		}
		_, err := store.EditTenant(w.ctx, "acme", w.now, func(*outbox.Tenant) error { return nil })
		w.must(err)
		if len(w.record(outbox.AuditQuery{})) != i+1 {
			w.Fatalf("act %d: its second transaction went on record too", i)
		}
	}
	// Whoever looks, and whoever is nobody's author, leaves no entry.
	before := len(w.record(outbox.AuditQuery{}))
	store := w.store.By(w.author("look"))
	_, err := store.Tenant(w.ctx, "acme")
	w.must(err)
	w.tenant("unrecorded")
	if got := len(w.record(outbox.AuditQuery{})); got != before {
		w.Fatalf("%d entries, want %d", got, before)
	}
}

func auditTogether(w *world) {
	acme := w.tenant("acme")
	w.offer(acme, "code")
	w.exchange("code", "token", true)
	refused := errors.New("refused")
	by := w.author("act")
	store := w.store.By(by)
	if _, err := store.EditTenant(w.ctx, "acme", w.now, func(t *outbox.Tenant) error { t.Name = "x"; return refused }); !errors.Is(err, refused) {
		w.Fatalf("refused: %v", err)
	}
	if err := store.DeleteKey(w.ctx, outbox.NewKeyID(w.now), w.now); !errors.Is(err, outbox.ErrNotFound) {
		w.Fatalf("a key that is not there: %v", err)
	}
	if _, taken, err := store.TakeSession(w.ctx, digestOf("code"), digestOf("another"), w.now); taken || err != nil {
		w.Fatalf("a code that was used: %v, %v", taken, err)
	}
	if got := w.record(outbox.AuditQuery{}); len(got) != 0 || !by.Due() {
		w.Fatalf("on record: %v", got)
	}
}

func auditKept(w *world) {
	acme := w.tenant("acme")
	by := w.author("tenant.update")
	by.Entry.Tenant, by.Entry.TenantKey, by.Entry.Object = acme.TenantRef, "acme", "acme"
	by.Entry.RequestID, by.Entry.Address = "req_1", "2001:db8::1"
	by.Entry.Changes = outbox.Changes{"name": {From: "", To: "Zoë"}, "max_in_flight": {From: 10.0, To: 20.0}, "secrets": {}}
	_, err := w.store.By(by).EditTenant(w.ctx, "acme", w.now, func(t *outbox.Tenant) error { t.Name = "Zoë"; return nil })
	w.must(err)
	want := by.Entry
	want.Tenant.Shard = 0 // entries are nobody's shard's
	w.equal("the record", w.record(outbox.AuditQuery{}), []outbox.AuditEntry{want})
}

func auditTenants(w *world) {
	by := w.author("tenant.create")
	by.Entry.TenantKey = "acme"
	acme, _, err := w.store.By(by).PutTenant(w.ctx, "acme", w.now, func(*outbox.Tenant, bool) error { return nil })
	w.must(err)
	by = w.author("delivery.replay")
	by.Entry.Tenant = acme.TenantRef
	_, err = w.store.By(by).EditTenant(w.ctx, "acme", w.now, func(*outbox.Tenant) error { return nil })
	w.must(err)
	for _, e := range w.record(outbox.AuditQuery{Tenant: acme.TenantRef}) {
		if e.Tenant.ID != acme.ID || e.TenantKey != "acme" {
			w.Fatalf("an entry of tenant %d %q", e.Tenant.ID, e.TenantKey)
		}
	}
	if got := w.actions(outbox.AuditQuery{Tenant: acme.TenantRef}); len(got) != 2 {
		w.Fatalf("acme's record: %v", got)
	}
	_, err = w.store.DeleteTenant(w.ctx, "acme", "Ops", w.now)
	w.must(err)
	successor := w.tenant("acme")
	if got := w.actions(outbox.AuditQuery{Tenant: successor.TenantRef}); len(got) != 0 {
		w.Fatalf("the successor sees %v", got)
	}
	if got := w.record(outbox.AuditQuery{}); len(got) != 2 || got[0].TenantKey != "acme" {
		w.Fatalf("everybody's record: %v", got)
	}
}

func auditFilters(w *world) {
	acme, other := w.neighbours("acme")
	began := w.now
	for i, action := range []string{"a", "b", "a", "c", "a"} {
		by := w.author(action)
		by.Entry.Tenant, by.Entry.Object = []outbox.Tenant{acme, other}[i%2].TenantRef, []string{"x", "y"}[i%2]
		if i == 4 {
			by.Entry.Actor.ID = "wbk_another1"
		}
		w.must(w.store.By(by).SetDispatch(w.ctx, outbox.DispatchState{At: w.now}))
		w.now = w.now.Add(time.Second)
	}
	for name, row := range map[string]struct {
		query outbox.AuditQuery
		want  []string
	}{
		"everything":  {outbox.AuditQuery{}, []string{"a", "b", "a", "c", "a"}},
		"one tenant":  {outbox.AuditQuery{Tenant: other.TenantRef}, []string{"b", "c"}},
		"one action":  {outbox.AuditQuery{Action: "a"}, []string{"a", "a", "a"}},
		"one actor":   {outbox.AuditQuery{Actor: "wbk_another1"}, []string{"a"}},
		"one object":  {outbox.AuditQuery{Object: "y"}, []string{"b", "c"}},
		"a time":      {outbox.AuditQuery{From: began.Add(time.Second), To: began.Add(3 * time.Second)}, []string{"b", "a"}},
		"two at once": {outbox.AuditQuery{Tenant: acme.TenantRef, To: began.Add(time.Second)}, []string{"a"}},
		"nothing":     {outbox.AuditQuery{Action: "z"}, nil},
	} {
		w.equal(name, w.actions(row.query), row.want)
	}
	var read []string
	for q := (outbox.AuditQuery{}); ; {
		list, err := w.store.AuditEntries(w.ctx, q, outbox.Page{Limit: 2})
		w.must(err)
		for _, e := range list {
			read, q.After = append(read, e.Action), e.ID
		}
		if len(list) < 2 {
			break
		}
	}
	w.equal("newest first, by pages", read, []string{"a", "c", "a", "b", "a"})
}

func auditSecrets(w *world) {
	door := w.backdoor()
	acme := w.tenant("acme")
	const header, token, secret = "canary-of-a-header", "canary-of-a-token", "whsec_Y2FuYXJ5LW9mLWEtc2lnbmluZy1zZWNyZXQ="
	by := w.author("endpoint.create")
	_, _, err := w.store.By(by).PutEndpoint(w.ctx, acme.TenantRef, outbox.EndpointRef{}, w.now, func(e *outbox.Endpoint, _ bool) error {
		before := *e
		e.URL, e.State, e.Timeout, e.EventTypes = "https://hooks.example.com/", outbox.EndpointActive, outbox.DefaultTimeout, []string{"*"}
		e.Headers = map[string]string{"X-Token": header}
		e.Credentials.Headers = map[string]string{"Authorization": token}
		e.Secrets = []outbox.Secret{{Value: secret, CreatedAt: w.now}}
		by.Entry.Changes = outbox.EndpointChanges(&before, e)
		return nil
	})
	w.must(err)
	entry := w.record(outbox.AuditQuery{})[0]
	for _, name := range []string{"url", "state", "headers", "secret_headers", "secrets"} {
		if _, has := entry.Changes[name]; !has {
			w.Errorf("that %s changed is not on record", name)
		}
	}
	dump, err := door.Dump(w.ctx)
	w.must(err)
	if !bytes.Contains(dump, []byte("https://hooks.example.com/")) {
		w.Fatal("the dump does not even hold the URL; it proves nothing")
	}
	for _, canary := range []string{header, token, secret, secret[6:]} {
		if bytes.Contains(dump, []byte(canary)) {
			w.Errorf("%q lies in the database in clear", canary)
		}
	}
}
