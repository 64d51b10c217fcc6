package api

import (
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/waybill-dev/waybill/internal/outbox"
	"github.com/waybill-dev/waybill/internal/session"
)

const acmeSessions = "/v1/tenants/acme/portal-sessions"

// opened opens the link of an answer as a browser would.
func (f *fixture) opened(a *reply) (session.Principal, session.Outcome) {
	f.t.Helper()
	link := a.text("url")
	p, outcome, err := f.sessions.Exchange(httptest.NewRecorder(), httptest.NewRequest("POST", "/", nil), link[strings.LastIndex(link, "/")+1:])
	must(f.t, err)
	return p, outcome
}

func TestPortalSession_isWhatWasAskedFor(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		f.tenant("acme")
		before := f.clock.Now()
		made := f.call("POST", acmeSessions, `{"expires_in_seconds":7200,"link_expires_in_seconds":60,"permissions":["secrets","replay"],
			"user":{"id":"u_1","name":"Zoë","email":"zoe@example.com"},"path":"/deliveries?state=dead","return_url":"https://app.example.com/x","theme":{"mode":"dark","accent":"#0a7f5a"}}`).want(201)
		if url := made.text("url"); !strings.HasPrefix(url, "https://hooks.example.com/portal/open/") {
			t.Errorf("url %s", url)
		}
		p, outcome := f.opened(made)
		if outcome != session.Opened || p.Operator || p.TenantKey != "acme" || p.Actor() != (outbox.Actor{Kind: outbox.ActorPortal, Name: "Zoë", ID: made.text("id")}) || p.CreatedBy != "bootstrap" {
			t.Errorf("outcome %d, %+v", outcome, p)
		}
		want := []outbox.Permission{outbox.PermissionView, outbox.PermissionReplay, outbox.PermissionSecrets}
		if diff := cmp.Diff(want, p.Permissions); diff != "" {
			t.Error(diff)
		}
		if life := p.ExpiresAt.Sub(before).Round(time.Minute); life != 2*time.Hour {
			t.Errorf("it lives for %v", life)
		}
		if life := p.LinkExpiresAt.Sub(before).Round(10 * time.Second); life != time.Minute {
			t.Errorf("the link is good for %v", life)
		}
		list := f.call("GET", acmeSessions, nil).want(200)
		if list.text("data", 0, "state") != "open" || list.text("data", 0, "user", "id") != "u_1" || list.text("data", 0, "theme", "accent") != "#0a7f5a" {
			t.Errorf("list %s", list.body)
		}
		if code := made.text("url")[len("https://hooks.example.com/portal/open/"):]; strings.Contains(string(list.body), code) || strings.Contains(f.log.String(), code) {
			t.Error("the code is shown again")
		}
	})
}

func TestPortalSession_defaults(t *testing.T) {
	f := newFixture(t)
	f.tenant("acme")
	for body, want := range map[string][]outbox.Permission{
		``:                   outbox.PortalPermissions,
		`{}`:                 outbox.PortalPermissions,
		`{"permissions":[]}`: {outbox.PermissionView},
		`{"read_only":true}`: {outbox.PermissionView},
		`{"read_only":true,"permissions":["manage"]}`: {outbox.PermissionView},
		`{"permissions":["manage","manage"]}`:         {outbox.PermissionView, outbox.PermissionManage},
	} {
		var sent any
		if body != "" {
			sent = body
		}
		p, _ := f.opened(f.call("POST", acmeSessions, sent).want(201))
		if diff := cmp.Diff(want, p.Permissions); diff != "" {
			t.Errorf("%s: %s", body, diff)
		}
		if p.ReadOnly() != (len(want) == 1) {
			t.Errorf("%s: read only %v", body, p.ReadOnly())
		}
		if got := p.ExpiresAt.Sub(p.CreatedAt).Round(time.Second); got != time.Hour {
			t.Errorf("%s: %v", body, got)
		}
		if got := p.LinkExpiresAt.Sub(p.CreatedAt).Round(time.Second); got != 5*time.Minute {
			t.Errorf("%s: link %v", body, got)
		}
	}
	// The link ends no later than the session.
	p, _ := f.opened(f.call("POST", acmeSessions, `{"expires_in_seconds":10}`).want(201))
	if !p.LinkExpiresAt.Equal(p.ExpiresAt) {
		t.Errorf("the link ends at %v, the session at %v", p.LinkExpiresAt, p.ExpiresAt)
	}
}

func TestPortalSession_refuses(t *testing.T) {
	f := newFixture(t)
	f.tenant("acme")
	for body, path := range map[string]string{
		`{"expires_in_seconds":0}`:                    "expires_in_seconds",
		`{"expires_in_seconds":2592001}`:              "expires_in_seconds",
		`{"link_expires_in_seconds":"x"}`:             "link_expires_in_seconds",
		`{"permissions":["admin"]}`:                   "permissions[0]",
		`{"permissions":"view"}`:                      "permissions",
		`{"read_only":1}`:                             "read_only",
		`{"user":{"name":"x"}}`:                       "user.id",
		`{"user":"x"}`:                                "user",
		`{"path":"deliveries"}`:                       "path",
		`{"path":"//evil.example"}`:                   "path",
		`{"path":"/\\evil.example"}`:                  "path",
		`{"path":"/a/../../b"}`:                       "path",
		`{"path":"/%2e%2e/b"}`:                        "path",
		`{"path":"https://evil.example/"}`:            "path",
		`{"return_url":"javascript:alert(1)"}`:        "return_url",
		`{"return_url":"//evil.example"}`:             "return_url",
		`{"return_url":"https://u:p@evil.example"}`:   "return_url",
		`{"return_url":"data:text/html,x"}`:           "return_url",
		`{"theme":"pink"}`:                            "theme",
		`{"theme":{"accent":"red"}}`:                  "theme.accent",
		`{"theme":{"accent":"#000;}*{display:none"}}`: "theme.accent",
		`{"theme":{"logo":"https://x"}}`:              "theme.logo",
	} {
		a := f.call("POST", acmeSessions, body)
		if p := a.want(422).problem(); p.Errors[0].Path != path {
			t.Errorf("%s: %s", body, a.body)
		}
	}
	// A key gives nothing that it may not do itself.
	f.call("POST", acmeSessions, `{}`, "Authorization", "Bearer "+writeKey).wantProblem(403, CodeForbidden)
	f.call("POST", acmeSessions, `{}`, "Authorization", "Bearer "+acmeKey).want(201)
}

func TestOperatorSession_mayWhatItsKeyMay(t *testing.T) {
	f := newFixture(t)
	for key, want := range map[string][]outbox.Permission{
		operatorKey: append(outbox.PortalPermissions[:4:4], outbox.PermissionAdmin),
		readKey:     {outbox.PermissionView},
	} {
		made := f.call("POST", "/v1/operator-sessions", nil, "Authorization", "Bearer "+key).want(201)
		if !strings.HasPrefix(made.text("url"), "https://hooks.example.com/sign-in/") {
			t.Errorf("url %s", made.text("url"))
		}
		p, outcome := f.opened(made)
		if outcome != session.Opened || !p.Operator {
			t.Errorf("outcome %d, %+v", outcome, p)
		}
		if diff := cmp.Diff(want, p.Permissions); diff != "" {
			t.Error(diff)
		}
	}
	p, _ := f.opened(f.call("POST", "/v1/operator-sessions", `{"read_only":true}`).want(201))
	if !p.ReadOnly() || len(p.Permissions) != 1 {
		t.Errorf("read only: %v", p.Permissions)
	}
	f.call("POST", "/v1/operator-sessions", nil, "Authorization", "Bearer "+acmeKey).wantProblem(403, CodeForbidden)
}

func TestSessions_listAndRevoke(t *testing.T) {
	f := newFixture(t)
	f.tenant("acme")
	var made []*reply
	for range 5 {
		made = append(made, f.call("POST", acmeSessions, nil).want(201))
	}
	if rows := f.walk(acmeSessions+"?limit=2", "id"); len(rows) != 5 || len(slices.Compact(slices.Sorted(slices.Values(rows)))) != 5 {
		t.Errorf("rows %v", rows)
	}
	if a := f.call("DELETE", acmeSessions+"/"+made[0].text("id"), nil).want(204); len(a.body) != 0 || a.header.Get("Content-Length") != "" {
		t.Errorf("an answer without content has %q", a.body)
	}
	if _, outcome := f.opened(made[0]); outcome != session.Revoked {
		t.Errorf("outcome %d", outcome)
	}
	if _, outcome := f.opened(made[1]); outcome != session.Opened {
		t.Errorf("outcome %d", outcome)
	}
	f.call("DELETE", acmeSessions+"/ps_00000000000000000000000000", nil).wantProblem(404, CodeNotFound)
	f.call("DELETE", acmeSessions, nil).want(204)
	for _, a := range made[1:] {
		if _, outcome := f.opened(a); outcome != session.Revoked {
			t.Errorf("outcome %d", outcome)
		}
	}
	if rows := f.walk(acmeSessions, "state"); strings.Count(strings.Join(rows, " "), "revoked") != 5 {
		t.Errorf("states %v", rows)
	}
}
