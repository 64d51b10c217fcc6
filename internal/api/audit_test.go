package api

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// record is what is on record, newest first.
func (f *fixture) record(t *testing.T) []outbox.AuditEntry {
	t.Helper()
	list, err := f.store.AuditEntries(t.Context(), outbox.AuditQuery{}, outbox.Page{Limit: 250})
	must(t, err)
	return list
}

// changesNothing are routes that are no GET and leave nothing behind.
var changesNothing = map[string]bool{}

// Every route that changes something leaves one entry, which says who, from where and what; one
// that is refused, repeated or only looks leaves none.
func TestAudit_everyChangeIsOnRecordOnce(t *testing.T) {
	s := newScene(t)
	for _, r := range keyed() {
		address := s.address(r, "acme")
		before := len(s.record(t))
		s.call(r.method, address, r.sample(), "Authorization", "Bearer wrong")
		s.call(r.method, address, r.sample(), "Authorization", "Bearer "+noScopeKey)
		s.call(r.method, address+"?nonsense=1", r.sample())
		if got := len(s.record(t)); got != before {
			t.Errorf("%s: refused, it left %d entries", r.name, got-before)
		}
		headers := []string{}
		if r.method == "POST" {
			headers = []string{"Idempotency-Key", "audit " + r.name}
		}
		a := s.call(r.method, address, r.sample(), headers...)
		if r.method == "POST" {
			s.call(r.method, address, r.sample(), headers...)
		}
		want := before + 1
		if !r.recorded() || changesNothing[r.name] {
			want = before
		}
		got := s.record(t)
		if len(got) != want {
			t.Errorf("%s: it left %d entries, want %d. A handler that changes something does so through q.store", r.name, len(got)-before, want-before)
			continue
		}
		if want == before {
			continue
		}
		e := got[0]
		if e.Actor != (outbox.Actor{Kind: outbox.ActorKey, Name: "bootstrap"}) || e.RequestID != a.header.Get("Waybill-Request-Id") || e.Address != "192.0.2.1" || e.Action == "" {
			t.Errorf("%s: %+v", r.name, e)
		}
		if strings.Contains(address, "/acme") && e.TenantKey != "acme" {
			t.Errorf("%s: its tenant is %q", r.name, e.TenantKey)
		}
	}
}

func TestAudit_saysWhatChanged(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		f.call("PUT", "/v1/tenants/acme", `{"name":"Acme"}`).want(201)
		f.call("PATCH", "/v1/tenants/acme", `{"weight":2,"name":"Acme"}`).want(200)
		ep := f.call("POST", acmeEndpoints, `{"url":"https://hooks.example.com/","headers":{"X-Token":"canary-header"}}`).want(201)
		id, secret := ep.text("id"), ep.text("secret")
		f.call("PATCH", acmeEndpoints+"/"+id, `{"state":"paused"}`).want(200)
		rotated := f.call("POST", acmeEndpoints+"/"+id+"/secret/rotate", `{}`).want(200).text("secret")
		link := f.call("POST", acmeSessions, `{"user":{"id":"u_1","name":"Zoë"}}`).want(201)
		f.opened(link)
		key, keyID := f.key(`{"name":"ci","scopes":["read"]}`)
		f.call("PUT", "/v1/dispatch", `{"state":"paused","reason":"moving house"}`).want(200)

		list := f.call("GET", "/v1/audit?order=asc", nil).want(200)
		var page struct {
			Data []struct {
				Action   string
				Tenant   *string
				ObjectID *string `json:"object_id"`
				Actor    struct{ Kind, Name string }
				Changes  map[string]struct{ From, To any }
			}
		}
		list.into(&page)
		var got []string
		for _, e := range page.Data {
			got = append(got, e.Action)
		}
		want := []string{"tenant.create", "tenant.update", "endpoint.create", "endpoint.update", "endpoint.rotate_secret", "portal_session.create", "session.open", "key.create", "dispatch.pause"}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatal(diff)
		}
		if c := page.Data[1].Changes; len(c) != 1 || c["weight"].From != 1.0 || c["weight"].To != 2.0 {
			t.Errorf("the weight: %v", c)
		}
		if c := page.Data[3].Changes; len(c) != 1 || c["state"].From != "active" || c["state"].To != "paused" || *page.Data[3].ObjectID != id {
			t.Errorf("the state: %v", c)
		}
		if c := page.Data[4].Changes; len(c) != 1 || c["secrets"].From != nil || c["secrets"].To != nil {
			t.Errorf("the rotation: %v", c)
		}
		if a := page.Data[6].Actor; a.Kind != "portal" || a.Name != "Zoë" || *page.Data[6].Tenant != "acme" {
			t.Errorf("the sign-in: %+v", page.Data[6])
		}
		if *page.Data[7].ObjectID != keyID || page.Data[7].Tenant != nil {
			t.Errorf("the key: %+v", page.Data[7])
		}
		for _, canary := range []string{"canary-header", secret, secret[6:], rotated, key, key[12:], link.text("url")[40:]} {
			if bytes.Contains(list.body, []byte(canary)) {
				t.Errorf("%.10s… is in the record", canary)
			}
		}
		if rows := f.walk("/v1/audit?action=key.create&limit=1", "object_id"); len(rows) != 1 || rows[0] != keyID {
			t.Errorf("filtered: %v", rows)
		}
		f.call("GET", "/v1/audit?tenant=nobody", nil).wantProblem(404, CodeUnknownTenant)
		f.call("GET", "/v1/audit?to=2020-01-01T00:00:00Z&from=2021-01-01T00:00:00Z", nil).want(422)

		// The tenant sees its own, and nothing of who among the operator's people it was.
		own := f.call("GET", "/v1/tenants/acme/audit", nil, "Authorization", "Bearer "+acmeKey).want(200)
		var seen struct{ Data []map[string]any }
		own.into(&seen)
		if len(seen.Data) != 7 {
			t.Errorf("acme sees %d entries, want 7: %s", len(seen.Data), own.body)
		}
		text, _ := json.Marshal(seen)
		if strings.Contains(string(text), "bootstrap") || strings.Contains(string(text), "192.0.2.1") || !strings.Contains(string(text), "Zoë") {
			t.Errorf("acme sees %s", text)
		}
	})
}

func TestRoute_actions(t *testing.T) {
	for name, want := range map[string]string{
		"createPortalSession": "portal_session.create", "patchTenant": "tenant.update", "deleteKey": "key.delete", "replayDelivery": "delivery.replay", "putEventType": "event_type.put",
	} {
		if got := (&route{name: name}).action(); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}
