package api

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/internal/access"
)

// withRealKeys runs a test on either store, with the keys of that store.
func withRealKeys(t *testing.T, run func(t *testing.T, f *fixture)) {
	onBoth(t, run, func(cfg *Config) { cfg.Keys = access.NewKeys(cfg.Store, cfg.Clock, cfg.Log) })
}

// key makes a key and returns it with its id.
func (f *fixture) key(body string) (key, id string) {
	f.t.Helper()
	a := f.call("POST", "/v1/keys", body).want(201)
	return a.text("key"), a.text("id")
}

func as(key string) []string { return []string{"Authorization", "Bearer " + key} }

func TestKeys_liveFromTheirMakingToTheirEnd(t *testing.T) {
	withRealKeys(t, func(t *testing.T, f *fixture) {
		f.tenant("acme")
		key, id := f.key(`{"name":"ci","scopes":["read","publish","read"]}`)
		who := f.call("GET", "/v1/whoami", nil, as(key)...).want(200).json()
		if who["name"] != "ci" || who["operator"] != true || who["tenant"] != nil || who["prefix"] != key[:12] || who["expires_at"] != nil || len(who["scopes"].([]any)) != 2 {
			t.Errorf("whoami %v", who)
		}
		list := f.call("GET", "/v1/keys", nil).want(200)
		if list.text("data", 0, "id") != id || list.text("data", 0, "prefix") != key[:12] || list.text("data", 0, "created_by") != "bootstrap" || list.text("data", 0, "last_used_at") == "" {
			t.Errorf("list %s", list.body)
		}
		for _, secret := range []string{key, key[12:]} {
			if bytes.Contains(list.body, []byte(secret)) || strings.Contains(f.log.String(), secret) {
				t.Error("the key is shown again")
			}
		}
		f.call("PUT", "/v1/tenants/acme", `{}`, as(key)...).wantProblem(403, CodeForbidden)
		f.call("GET", "/v1/tenants/acme", nil, as(key)...).want(200)
		f.call("DELETE", "/v1/keys/"+id, nil).want(204)
		f.call("GET", "/v1/tenants/acme", nil, as(key)...).wantProblem(401, CodeUnauthorized)
		f.call("DELETE", "/v1/keys/"+id, nil).wantProblem(404, CodeNotFound)
	})
}

// An answer that is kept may hold a secret. Who may do less than its first caller could not have
// asked for it, and does not get it by asking again under the same idempotency key.
func TestKeys_withFewerScopesAreNotGivenWhatOthersWere(t *testing.T) {
	withRealKeys(t, func(t *testing.T, f *fixture) {
		f.tenant("acme")
		reader, _ := f.key(`{"name":"reader","scopes":["read"]}`)
		writer, _ := f.key(`{"name":"writer","scopes":["write"],"tenant":"acme"}`)
		again := []string{"Idempotency-Key", "deploy-42"}
		first := f.call("POST", "/v1/operator-sessions", `{}`, again...).want(201)
		f.call("POST", "/v1/operator-sessions", `{}`, append(as(reader), again...)...).wantProblem(422, CodeIdempotencyMismatch)
		if same := f.call("POST", "/v1/operator-sessions", `{}`, again...).want(201); same.text("url") != first.text("url") {
			t.Error("its own caller does not get the first answer again")
		}
		f.call("POST", "/v1/tenants/acme/portal-sessions", `{}`, again...).want(201)
		f.call("POST", "/v1/tenants/acme/portal-sessions", `{}`, append(as(writer), again...)...).wantProblem(422, CodeIdempotencyMismatch)
	})
}

// A session is never more than the key it was made with.
func TestKeys_endTheSessionsMadeWithThem(t *testing.T) {
	withRealKeys(t, func(t *testing.T, f *fixture) {
		f.tenant("acme")
		key, id := f.key(`{"name":"ops","scopes":["admin"]}`)
		mine := f.call("POST", "/v1/operator-sessions", `{}`, as(key)...).want(201).text("id")
		theirs := f.call("POST", "/v1/tenants/acme/portal-sessions", `{}`, as(key)...).want(201).text("id")
		other := f.call("POST", "/v1/operator-sessions", `{}`).want(201).text("id")
		f.call("DELETE", "/v1/keys/"+id, nil).want(204)
		states := map[string]string{}
		for _, path := range []string{"/v1/operator-sessions", "/v1/tenants/acme/portal-sessions"} {
			for _, row := range f.call("GET", path, nil).want(200).json()["data"].([]any) {
				states[row.(map[string]any)["id"].(string)] = row.(map[string]any)["state"].(string)
			}
		}
		if states[mine] != "revoked" || states[theirs] != "revoked" || states[other] != "unused" {
			t.Errorf("the key's %s and %s, another's %s", states[mine], states[theirs], states[other])
		}

		short, _ := f.key(`{"name":"short","scopes":["admin"],"expires_at":"` + f.clock.Now().Add(time.Minute).Format(time.RFC3339) + `"}`)
		made := f.call("POST", "/v1/operator-sessions", `{"expires_in_seconds":7200}`, as(short)...).want(201)
		ends, err := time.Parse(time.RFC3339, made.text("expires_at"))
		if err != nil || ends.After(f.clock.Now().Add(time.Minute)) {
			t.Errorf("the session ends %v, after its key: %v", ends, err)
		}
	})
}

func TestKeys_ofATenantReachNobodyElse(t *testing.T) {
	withRealKeys(t, func(t *testing.T, f *fixture) {
		f.tenant("acme")
		f.tenant("other")
		key, _ := f.key(`{"name":"acme's","scopes":["admin"],"tenant":"acme"}`)
		f.call("GET", "/v1/tenants/acme", nil, as(key)...).want(200)
		f.call("GET", "/v1/tenants/other", nil, as(key)...).wantProblem(404, CodeUnknownTenant)
		f.call("POST", "/v1/tenants/other/events", `{"type":"a.b","payload":1}`, as(key)...).wantProblem(404, CodeUnknownTenant)
		// Even with the scope for everything it is no operator's.
		f.call("GET", "/v1/keys", nil, as(key)...).wantProblem(403, CodeForbidden)
		f.call("POST", "/v1/keys", `{"name":"k","scopes":["admin"]}`, as(key)...).wantProblem(403, CodeForbidden)
		f.call("PUT", "/v1/dispatch", `{"state":"paused"}`, as(key)...).wantProblem(403, CodeForbidden)
		if rows := f.walk("/v1/keys?tenant=acme", "name"); len(rows) != 1 {
			t.Errorf("acme's keys %v", rows)
		}
		f.call("GET", "/v1/keys?tenant=nobody", nil).wantProblem(404, CodeUnknownTenant)
		// A tenant made again under the name is another tenant.
		f.call("DELETE", "/v1/tenants/acme", nil).want(202)
		f.tenant("acme")
		f.eventually(func() bool { return f.call("GET", "/v1/tenants/acme", nil, as(key)...).status == 401 })
	})
}

// eventually waits for what holds within a second or so.
func (f *fixture) eventually(holds func() bool) {
	f.t.Helper()
	for end := time.Now().Add(30 * time.Second); !holds(); {
		if time.Now().After(end) {
			f.t.Fatal("it did not come")
		}
	}
}

func TestKeys_expire(t *testing.T) {
	withRealKeys(t, func(t *testing.T, f *fixture) {
		ends := f.clock.Now().Add(300 * time.Millisecond)
		key, _ := f.key(`{"name":"k","scopes":["read"],"expires_at":"` + ends.Format(time.RFC3339Nano) + `"}`)
		f.eventually(func() bool {
			a := f.call("GET", "/v1/whoami", nil, as(key)...)
			if expired := !f.clock.Now().Before(ends); a.status == 401 && !expired {
				t.Fatal("it ended too early")
			}
			return a.status == 401
		})
		if list := f.call("GET", "/v1/keys", nil).want(200); !bytes.Contains(list.body, []byte(`"expired":true`)) {
			t.Errorf("list %s", list.body)
		}
	})
}

func TestKeys_refuses(t *testing.T) {
	f := newFixture(t)
	for body, path := range map[string]string{
		`{}`:                                   "name",
		`{"name":"k"}`:                         "scopes",
		`{"name":"","scopes":["read"]}`:        "name",
		`{"name":null,"scopes":["read"]}`:      "name",
		`{"name":"k","scopes":[]}`:             "scopes",
		`{"name":"k","scopes":"read"}`:         "scopes",
		`{"name":"k","scopes":["root"]}`:       "scopes[0]",
		`{"name":"k","scopes":["read","any"]}`: "scopes[1]",
		`{"name":"k","scopes":["read"],"expires_at":"tomorrow"}`:             "expires_at",
		`{"name":"k","scopes":["read"],"expires_at":"2020-01-01T00:00:00Z"}`: "expires_at",
		`{"name":"k","scopes":["read"],"key":"mine"}`:                        "key",
	} {
		p := f.call("POST", "/v1/keys", body).want(422).problem()
		paths := []string{}
		for _, e := range p.Errors {
			paths = append(paths, e.Path)
		}
		if !strings.Contains(strings.Join(paths, " ")+" ", path+" ") {
			t.Errorf("%s: %v", body, paths)
		}
	}
	f.call("POST", "/v1/keys", `{"name":"k","scopes":["read"],"tenant":"nobody"}`).wantProblem(404, CodeUnknownTenant)
	f.call("DELETE", "/v1/keys/x", nil).wantProblem(404, CodeNotFound)
}
