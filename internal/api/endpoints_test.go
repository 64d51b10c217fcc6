package api

import (
	"bytes"
	"encoding/base64"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/waybill-dev/waybill/internal/outbox"
	"github.com/waybill-dev/waybill/signature"
)

const acmeEndpoints = "/v1/tenants/acme/endpoints"

func TestEndpoint_create(t *testing.T) {
	f := newFixture(t)
	f.tenant("acme")
	plain := f.call("POST", acmeEndpoints, `{"url":"HTTPS://Hooks.Example.com/a%2Fb?x=%20y&x=2#top"}`).want(http.StatusCreated)
	got := plain.json()
	id := plain.text("id")
	if plain.header.Get("Location") != acmeEndpoints+"/"+id {
		t.Errorf("location %q", plain.header.Get("Location"))
	}
	if _, err := signature.ParseSecret(plain.text("secret")); err != nil {
		t.Errorf("the generated secret: %v", err)
	}
	for _, volatile := range []string{"id", "secret", "secrets", "created_at", "updated_at"} {
		delete(got, volatile)
	}
	want := map[string]any{
		"tenant": "acme", "uid": nil, "url": "https://hooks.example.com/a%2Fb?x=%20y&x=2", "description": "", "metadata": map[string]any{},
		"event_types": []any{"*"}, "headers": map[string]any{}, "signing": map[string]any{"schemes": []any{"standard"}}, "max_in_flight": nil,
		"rate_limit": nil, "timeout_seconds": 10.0, "ordering": "none", "on_dead": "skip", "payload_mode": "full", "thin_ttl_seconds": 604800.0, "filter": nil, "secret_headers": []any{}, "client_certificate": nil, "state": "active", "state_reason": nil, "fault": nil,
		"retry": map[string]any{"initial_seconds": 2.0, "max_seconds": 3600.0, "window_seconds": 28800.0, "max_attempts": nil, "retry_statuses": []any{}},
		"health": map[string]any{
			"breaker": "closed", "consecutive_failures": 0.0, "opened_at": nil, "next_probe_at": nil, "limit": 10.0, "rate": nil, "paused_until": nil,
			"in_flight": 0.0, "pending": 0.0, "oldest_pending_at": nil, "last_success_at": nil, "last_failure": nil, "last_outage": nil,
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}

	full := f.call("POST", acmeEndpoints, `{"url":"https://hooks.example.com/","uid":"crm:1","description":"CRM","metadata":{"team":"blue"},"event_types":["b.c","a.*","b.c"],
		"headers":{"x-acme":"1"},"secrets":[{"value":"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"},{"scheme":"standard","value":"MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSx"}],
		"signing":{"schemes":["standard"]},"max_in_flight":3,"timeout_seconds":2.5,"ordering":"none","on_dead":"skip","payload_mode":"full","state":"paused","retry":{"max_attempts":1}}`).want(http.StatusCreated)
	got = full.json()
	if full.text("secret") != "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw" || got["uid"] != "crm:1" || got["max_in_flight"] != 3.0 || got["timeout_seconds"] != 2.5 ||
		!cmp.Equal(got["event_types"], []any{"b.c", "a.*"}) || !cmp.Equal(got["headers"], map[string]any{"X-Acme": "1"}) || full.text("state_reason", "code") != "manual" {
		t.Errorf("answer %s", full.body)
	}
	e, err := f.store.Endpoint(t.Context(), f.ref("acme"), outbox.EndpointRef{UID: "crm:1"})
	must(t, err)
	if len(e.Secrets) != 2 || e.Secrets[1].Value != "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSx" {
		t.Error("a secret given as base64 alone is not stored as the same key")
	}
	f.call("POST", acmeEndpoints, `{"url":"https://hooks.example.com/","uid":"crm:1"}`).wantProblem(409, CodeUIDTaken)
}

// ref finds a tenant in the store.
func (f *fixture) ref(key string) outbox.TenantRef {
	f.t.Helper()
	t, err := f.store.Tenant(f.t.Context(), key)
	must(f.t, err)
	return t.TenantRef
}

func TestEndpoint_refuses(t *testing.T) {
	f := newFixture(t)
	f.tenant("acme")
	key23 := base64.StdEncoding.EncodeToString(make([]byte, 23))
	for field, want := range map[string]string{
		`"url":"https://h.example/","url":"https://h.example/"`: "url duplicate_field",
		`"url":null`:                         "url invalid_field",
		`"url":5`:                            "url invalid_field",
		`"url":"http:///x"`:                  "url url_invalid",
		`"url":"//h/x"`:                      "url url_scheme",
		`"url":"ftp://h/"`:                   "url url_scheme",
		`"url":"javascript:alert(1)"`:        "url url_scheme",
		`"url":"https://h.example:0/"`:       "url url_port",
		`"url":"https://h.example:99999/"`:   "url url_port",
		`"url":"https://h.example:22/"`:      "url url_port",
		`"url":"https://h\t/"`:               "url url_invalid",
		`"url":"https://exa mple/"`:          "url url_invalid",
		`"url":"https://u:p@h.example/"`:     "url url_userinfo",
		`"url":"http://127.0.0.1/"`:          "url url_not_allowed",
		`"url":"http://[::ffff:127.0.0.1]/"`: "url url_not_allowed",
		`"url":"http://127.1/"`:              "url url_not_allowed",
		`"url":"http://2130706433/"`:         "url url_not_allowed",
		`"url":"http://0x7f000001/"`:         "url url_not_allowed",
		`"url":"http://169.254.169.254/"`:    "url url_not_allowed",
		`"url":"http://LOCALHOST./"`:         "url url_not_allowed",
		`"url":"https://h.example/` + strings.Repeat("a", 2048) + `"`: "url url_invalid",
		`"uid":""`:                         "uid invalid_field",
		`"uid":"a b"`:                      "uid invalid_field",
		`"uid":"ep_1"`:                     "uid invalid_field",
		`"description":7`:                  "description invalid_field",
		`"event_types":[]`:                 "event_types invalid_field",
		`"event_types":["a b"]`:            "event_types[0] invalid_field",
		`"event_types":["a.b","a*"]`:       "event_types[1] invalid_field",
		`"event_types":"a"`:                "event_types invalid_field",
		`"headers":{"Host":"x"}`:           "headers invalid_header",
		`"headers":{"webhook-id":"x"}`:     "headers invalid_header",
		`"headers":{"Waybill-X":"x"}`:      "headers invalid_header",
		`"headers":{"Content-Length":"1"}`: "headers invalid_header",
		`"headers":{"X A":"x"}`:            "headers invalid_header",
		`"headers":{"X-A":"a\r\nX-B: c"}`:  "headers invalid_header",
		`"headers":{"X-A":1}`:              "headers.X-A invalid_field",
		`"secrets":[]`:                     "secrets invalid_field",
		`"secrets":null`:                   "secrets invalid_field",
		`"secrets":["whsec_x"]`:            "secrets[0] invalid_field",
		`"secrets":[{"value":"v1,whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}]`:                 "secrets[0].value invalid_secret",
		`"secrets":[{"value":" whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n"}]`:                 "secrets[0].value invalid_secret",
		`"secrets":[{"value":"whsec_` + key23 + `"}]`:                                       "secrets[0].value invalid_secret",
		`"secrets":[{"value":"whsec_"}]`:                                                    "secrets[0].value invalid_secret",
		`"secrets":[{}]`:                                                                    "secrets[0].value missing_field",
		`"secrets":[{"scheme":"nobody","value":"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}]`:  "secrets[0].scheme invalid_field",
		`"secrets":[{"scheme":"svix","value":"MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}]`:          "secrets[0].value invalid_secret",
		`"secrets":[{"scheme":"ed25519","value":"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}]`: "secrets[0].value invalid_secret",
		`"signing":{"schemes":["nobody"]}`:                                                  "signing.schemes[0] invalid_field",
		`"signing":{"schemes":["stripe","stripe"]}`:                                         "signing.schemes[1] invalid_field",
		`"signing":{"schemes":["stripe"]},"headers":{"stripe-signature":"x"}`:               "signing.schemes[0] invalid_header",
		`"headers":{"x-key":"a"},"secret_headers":{"X-Key":"b"}`:                            "secret_headers.X-Key invalid_header",
		`"secret_headers":{"host":"x"}`:                                                     "secret_headers invalid_header",
		`"client_certificate":{"certificate":"x","private_key":"y"}`:                        "client_certificate.certificate invalid_field",
		`"client_certificate":{"certificate":"x"}`:                                          "client_certificate.private_key missing_field",
		`"signing":{"schemes":[]}`:                                                          "signing.schemes invalid_field",
		`"max_in_flight":0`:                                                                 "max_in_flight invalid_field",
		`"rate_limit":5`:                                                                    "rate_limit invalid_field",
		`"rate_limit":{"count":5}`:                                                          "rate_limit.per_seconds missing_field",
		`"rate_limit":{"per_seconds":1}`:                                                    "rate_limit.count missing_field",
		`"rate_limit":{"count":0,"per_seconds":1}`:                                          "rate_limit.count invalid_field",
		`"rate_limit":{"count":1.5,"per_seconds":1}`:                                        "rate_limit.count invalid_field",
		`"rate_limit":{"count":10001,"per_seconds":1}`:                                      "rate_limit.count invalid_field",
		`"rate_limit":{"count":1,"per_seconds":0}`:                                          "rate_limit.per_seconds invalid_field",
		`"rate_limit":{"count":1,"per_seconds":86401}`:                                      "rate_limit.per_seconds invalid_field",
		`"rate_limit":{"count":null,"per_seconds":1}`:                                       "rate_limit.count invalid_field",
		`"rate_limit":{"count":1,"per_seconds":1,"burst":2}`:                                "rate_limit.burst unknown_field",
		`"timeout_seconds":0.5`:                                                             "timeout_seconds invalid_field",
		`"timeout_seconds":31`:                                                              "timeout_seconds invalid_field",
		`"state":"broken"`:                                                                  "state invalid_field",
		`"ordering":"fifo"`:                                                                 "ordering invalid_field",
		`"ordering":true`:                                                                   "ordering invalid_field",
		`"on_dead":"stop"`:                                                                  "on_dead invalid_field",
		`"payload_mode":"half"`:                                                             "payload_mode invalid_field",
		`"thin_ttl_seconds":59`:                                                             "thin_ttl_seconds invalid_field",
		`"filter":[1]`:                                                                      "filter invalid_field",
		`"filter":{"a":{"$like":"x"}}`:                                                      "filter.a.$like invalid_field",
		`"backlog":"discard"`:                                                               "backlog unknown_field",
	} {
		body := `{"url":"https://hooks.example.com/",` + field + `}`
		if strings.HasPrefix(field, `"url"`) {
			body = `{` + field + `}`
		}
		p := f.call("POST", acmeEndpoints, body).want(422).problem()
		if len(p.Errors) != 1 || p.Errors[0].Path+" "+string(p.Errors[0].Code) != want {
			t.Errorf("%s: errors %+v, want %s", field, p.Errors, want)
		}
	}
	f.call("POST", acmeEndpoints, `{}`).wantProblem(422, CodeMissingField)
	if n := len(f.walk(acmeEndpoints, "id")); n != 0 {
		t.Errorf("%d endpoints were stored all the same", n)
	}
	id := f.endpoint("acme", "")
	f.call("PATCH", acmeEndpoints+"/"+id, `{"url":"http://10.0.0.1/"}`).wantProblem(422, CodeURLNotAllowed)
	f.call("PUT", acmeEndpoints+"/other", `{"url":"http://10.0.0.1/"}`).wantProblem(422, CodeURLNotAllowed)
}

func TestEndpoint_putByUID(t *testing.T) { onBoth(t, endpoint_putByUID) }

func endpoint_putByUID(t *testing.T, f *fixture) {
	f.tenant("acme")
	const main = acmeEndpoints + "/main"
	created := f.call("PUT", main, `{"url":"https://hooks.example.com/","description":"first","headers":{"X-A":"1"}}`).want(http.StatusCreated)
	if created.text("uid") != "main" || created.text("secret") == "" {
		t.Errorf("created %s", created.body)
	}
	again := f.call("PUT", main, `{"description":null,"timeout_seconds":5,"uid":"main"}`).want(http.StatusOK)
	got := again.json()
	if got["id"] != created.text("id") || got["description"] != "" || got["timeout_seconds"] != 5.0 || !cmp.Equal(got["headers"], map[string]any{"X-A": "1"}) || got["url"] != "https://hooks.example.com/" {
		t.Errorf("put again %s", again.body)
	}
	if _, shown := got["secret"]; shown {
		t.Error("an update shows a secret")
	}
	f.call("PUT", acmeEndpoints+"/"+created.text("id"), `{"description":"by id"}`).want(http.StatusOK)
	f.call("PUT", main, `{"uid":"else"}`).wantProblem(422, CodeInvalidField)
	f.call("PUT", acmeEndpoints+"/new", `{"description":"no url"}`).wantProblem(422, CodeMissingField)
	f.call("PUT", acmeEndpoints+"/"+outbox.NewEndpointID(time.Now()).String(), `{"url":"https://hooks.example.com/"}`).wantProblem(404, CodeNotFound)
	f.call("PUT", acmeEndpoints+"/ep_short", `{"url":"https://hooks.example.com/"}`).wantProblem(422, CodeInvalidField)
	f.call("PUT", acmeEndpoints+"/second", `{"url":"https://hooks.example.com/"}`).want(http.StatusCreated)
	f.call("PUT", acmeEndpoints+"/"+created.text("id"), `{"uid":"second"}`).wantProblem(409, CodeUIDTaken)
	f.call("PATCH", main, `{"uid":"second"}`).wantProblem(409, CodeUIDTaken)
	f.call("PATCH", main, `{"uid":"renamed"}`).want(http.StatusOK)
	f.call("GET", main, nil).wantProblem(404, CodeNotFound)
	f.call("GET", acmeEndpoints+"/renamed", nil).want(http.StatusOK)
	f.call("DELETE", acmeEndpoints+"/renamed", nil).want(http.StatusAccepted)
	f.call("DELETE", acmeEndpoints+"/renamed", nil).wantProblem(404, CodeNotFound)
	if a := f.call("PUT", acmeEndpoints+"/renamed", `{"url":"https://hooks.example.com/"}`).want(http.StatusCreated); a.text("id") == created.text("id") {
		t.Error("a uid used again brought the deleted endpoint back")
	}
}

func TestEndpoint_patch(t *testing.T) {
	f := newFixture(t)
	f.tenant("acme")
	at := acmeEndpoints + "/" + f.endpoint("acme", `"headers":{"X-A":"1","X-B":"2"},"metadata":{"a":"1"},"description":"d","max_in_flight":3,"timeout_seconds":3,"event_types":["a.b"],"retry":{"initial_seconds":1,"max_seconds":2}`)
	got := f.call("PATCH", at, `{"headers":{"x-b":null,"x-c":"3"},"metadata":{"b":"2"},"retry":{"max_seconds":null}}`).want(http.StatusOK).json()
	if !cmp.Equal(got["headers"], map[string]any{"X-A": "1", "X-C": "3"}) || !cmp.Equal(got["metadata"], map[string]any{"a": "1", "b": "2"}) ||
		got["retry"].(map[string]any)["initial_seconds"] != 1.0 || got["retry"].(map[string]any)["max_seconds"] != 3600.0 || got["description"] != "d" {
		t.Errorf("merged %v", got)
	}
	got = f.call("PATCH", at, `{"headers":null,"metadata":null,"retry":null,"description":null,"max_in_flight":null,"timeout_seconds":null,"event_types":null,"uid":null,"signing":null,"ordering":null}`).want(http.StatusOK).json()
	if len(got["headers"].(map[string]any)) != 0 || got["max_in_flight"] != nil || got["timeout_seconds"] != 10.0 || !cmp.Equal(got["event_types"], []any{"*"}) || got["retry"].(map[string]any)["initial_seconds"] != 2.0 {
		t.Errorf("reset %v", got)
	}
	f.call("PATCH", at, `{"url":null}`).wantProblem(422, CodeInvalidField)
	f.call("PATCH", at, `{"backlog":"discard","state":"paused"}`).wantProblem(422, CodeInvalidField)
	f.call("PATCH", at, `{"backlog":"burn"}`).wantProblem(422, CodeInvalidField)
}

func TestEndpoint_retryInEffect(t *testing.T) {
	f := newFixture(t, func(cfg *Config) { cfg.Retry = outbox.RetryPolicy{Window: time.Hour} })
	f.call("PUT", "/v1/tenants/acme", `{"retry":{"max_seconds":100,"retry_statuses":["404"]}}`).want(http.StatusCreated)
	at := acmeEndpoints + "/" + f.endpoint("acme", `"retry":{"initial_seconds":0.05}`)
	want := map[string]any{"initial_seconds": 0.05, "max_seconds": 100.0, "window_seconds": 3600.0, "max_attempts": nil, "retry_statuses": []any{"404"}}
	if diff := cmp.Diff(want, f.call("GET", at, nil).get("retry")); diff != "" {
		t.Error(diff)
	}
	got := f.call("PATCH", at, `{"retry":{"retry_statuses":[]}}`).get("retry", "retry_statuses")
	if !cmp.Equal(got, []any{}) {
		t.Errorf("an empty list is none, not the tenant's: %v", got)
	}
}

func TestEndpoint_statesAndBacklog(t *testing.T) { onBoth(t, endpoint_statesAndBacklog) }

func endpoint_statesAndBacklog(t *testing.T, f *fixture) {
	f.tenant("acme")
	id := f.endpoint("acme", "")
	at := acmeEndpoints + "/" + id
	paused := f.call("PATCH", at, `{"state":"paused"}`).want(http.StatusOK)
	if paused.text("state_reason", "code") != "manual" || paused.text("state_reason", "by") != "bootstrap" {
		t.Errorf("paused %s", paused.body)
	}
	if again := f.call("PATCH", at, `{"state":"paused"}`).want(http.StatusOK); again.text("state_reason", "at") != paused.text("state_reason", "at") {
		t.Error("pausing what is paused changed the reason")
	}
	f.publish("acme", "a.b", "1")
	f.route()
	if h := f.call("GET", at, nil).get("health").(map[string]any); h["pending"] != 1.0 || h["oldest_pending_at"] == nil {
		t.Errorf("health %v", h)
	}
	f.call("PATCH", at, `{"state":"active","backlog":"deliver"}`).want(http.StatusOK)
	f.call("PATCH", at, `{"state":"disabled"}`).want(http.StatusOK)
	active := f.call("PATCH", at, `{"state":"active","backlog":"discard"}`).want(http.StatusOK)
	if active.get("state_reason") != nil {
		t.Errorf("active %s", active.body)
	}
	f.route() // runs the command
	if got := f.call("GET", "/v1/tenants/acme/deliveries", nil).text("data", 0, "state"); got != "cancelled" {
		t.Errorf("the discarded delivery is %s", got)
	}
	f.publish("acme", "a.b", "2")
	f.route()
	if h := f.call("GET", at, nil).get("health").(map[string]any); h["pending"] != 1.0 {
		t.Errorf("what came after the discarding is not delivered: %v", h)
	}
	draft := f.endpoint("acme", `"state":"draft"`)
	f.publish("acme", "a.b", "3")
	f.route()
	if h := f.call("GET", acmeEndpoints+"/"+draft, nil).get("health").(map[string]any); h["pending"] != 0.0 {
		t.Errorf("a draft was routed to: %v", h)
	}
}

func TestEndpoint_deleteCancels(t *testing.T) { onBoth(t, endpoint_deleteCancels) }

func endpoint_deleteCancels(t *testing.T, f *fixture) {
	f.tenant("acme")
	at := acmeEndpoints + "/" + f.endpoint("acme", `"uid":"main"`)
	for range 3 {
		f.publish("acme", "a.b", "1")
	}
	f.route()
	a := f.call("DELETE", at, nil).want(http.StatusAccepted)
	if a.get("cancelling") != 3.0 || a.get("capped") != nil {
		t.Errorf("answer %s", a.body)
	}
	f.call("GET", at, nil).wantProblem(404, CodeNotFound)
	f.route()
	rows := f.call("GET", "/v1/tenants/acme/deliveries?state=cancelled", nil)
	if n := len(rows.get("data").([]any)); n != 3 || rows.text("data", 0, "dead", "reason") != "cancelled" {
		t.Errorf("%d cancelled rows: %s", n, rows.body)
	}
	f.call("POST", "/v1/tenants/acme/deliveries/"+rows.text("data", 0, "id")+"/replay", nil).wantProblem(409, CodeEndpointDeleted)
}

func TestEndpoints_list(t *testing.T) { onBoth(t, endpoints_list) }

func endpoints_list(t *testing.T, f *fixture) {
	f.tenant("acme")
	f.tenant("other")
	f.endpoint("acme", `"uid":"all"`)
	f.endpoint("acme", `"uid":"below","event_types":["a.*"]`)
	f.endpoint("acme", `"uid":"exact","event_types":["a","x.y"],"state":"paused"`)
	f.endpoint("other", `"uid":"theirs"`)
	for address, want := range map[string]string{
		acmeEndpoints:                          "exact below all",
		acmeEndpoints + "?order=asc&limit=1":   "all below exact",
		acmeEndpoints + "?limit=3":             "exact below all",
		acmeEndpoints + "?state=paused":        "exact",
		acmeEndpoints + "?event_type=a.b":      "below all",
		acmeEndpoints + "?event_type=a":        "exact all",
		"/v1/endpoints":                        "theirs exact below all",
		"/v1/endpoints?tenant=other":           "theirs",
		"/v1/endpoints?limit=2&event_type=a.b": "theirs below all",
	} {
		if got := strings.Join(f.walk(address, "uid"), " "); got != want {
			t.Errorf("%s: %q, want %q", address, got, want)
		}
	}
	f.call("GET", acmeEndpoints+"?event_type=a.*", nil).want(422)
	f.call("GET", "/v1/endpoints?tenant=nobody", nil).wantProblem(404, CodeUnknownTenant)
	for _, row := range f.call("GET", "/v1/endpoints", nil).get("data").([]any) {
		if m := row.(map[string]any); (m["tenant"] == "other") != (m["uid"] == "theirs") {
			t.Errorf("row %v", m)
		}
	}
}

// A signing secret is in the answer that made it and nowhere else: no other answer, no log.
func TestEndpoint_secretsAreShownOnce(t *testing.T) {
	f := newFixture(t)
	f.tenant("acme")
	created := f.call("POST", acmeEndpoints, `{"url":"https://hooks.example.com/","uid":"main"}`, "Idempotency-Key", "k").want(http.StatusCreated)
	secret := strings.TrimPrefix(created.text("secret"), "whsec_")
	const given = "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	f.publish("acme", "a.b", "1")
	d := f.route()[0]
	f.finish(d, 500, outbox.DeadPermanent, false)
	answers := []*reply{
		f.call("PATCH", acmeEndpoints+"/main", `{"description":"x"}`),
		f.call("PUT", acmeEndpoints+"/main", `{"description":"y"}`),
		f.call("PATCH", acmeEndpoints+"/main", `{"secrets":[{"value":"`+given+`"},{"value":"`+secret+`"}]}`).want(http.StatusOK),
		f.call("PATCH", acmeEndpoints+"/main", `{"secrets":[{"value":"`+given+`x"}]}`).want(422),
		f.call("PATCH", acmeEndpoints+"/main", `{"secrets":[{"value":"`+given+`","x":1}]}`).want(422),
		f.call("PATCH", acmeEndpoints+"/main", `{"secrets":["`+given+`"]}`).want(422),
	}
	for _, r := range routes() {
		if r.method == "GET" {
			answers = append(answers, f.call("GET", filled(r.path, f, d), nil))
		}
	}
	for _, a := range answers {
		if bytes.Contains(a.body, []byte(secret)) || bytes.Contains(a.body, []byte(given)) {
			t.Errorf("%s shows a secret: %s", a.what, a.body)
		}
	}
	if bytes.Contains(f.log.Bytes(), []byte(secret)) || bytes.Contains(f.log.Bytes(), []byte(given)) {
		t.Error("a secret is in the log")
	}
	e, err := f.store.Endpoint(t.Context(), f.ref("acme"), outbox.EndpointRef{UID: "main"})
	must(t, err)
	if len(e.Secrets) != 2 || e.Secrets[0].Value != "whsec_"+given || !e.Secrets[1].CreatedAt.Before(e.Secrets[0].CreatedAt) {
		t.Errorf("%d secrets; one that was kept must keep its age", len(e.Secrets))
	}
}

// filled puts real ids into a route's path.
func filled(path string, f *fixture, d outbox.Delivery) string {
	attempts := f.call("GET", "/v1/deliveries/"+d.ID.String()+"/attempts", nil)
	return strings.NewReplacer("{tenant}", "acme", "{ep}", d.Endpoint.String(), "{evt}", d.Event.String(), "{dlv}", d.ID.String(), "{att}", attempts.text("data", 0, "id")).Replace(path)
}

func TestEndpoint_limitBindsOtherKeysThanAnOperators(t *testing.T) {
	f := newFixture(t, func(cfg *Config) { cfg.MaxEndpointsPerTenant = 2 })
	f.tenant("acme")
	body := `{"url":"https://hooks.example.com/"}`
	for i := range 3 {
		want := []int{201, 201, 422}[i]
		f.call("POST", acmeEndpoints, body, "Authorization", "Bearer "+acmeKey).want(want)
	}
	f.call("PUT", acmeEndpoints+"/one", body, "Authorization", "Bearer "+acmeKey).wantProblem(422, CodeEndpointLimit)
	f.call("PUT", acmeEndpoints+"/one", body).want(http.StatusCreated)
	f.call("PUT", acmeEndpoints+"/one", `{}`, "Authorization", "Bearer "+acmeKey).want(http.StatusOK)
	f.call("PATCH", "/v1/tenants/acme", `{"max_endpoints":4}`).want(http.StatusOK)
	f.call("POST", acmeEndpoints, body, "Authorization", "Bearer "+acmeKey).want(http.StatusCreated)
	f.call("POST", acmeEndpoints, body, "Authorization", "Bearer "+acmeKey).wantProblem(422, CodeEndpointLimit)
}

func TestEndpoint_internalTenants(t *testing.T) {
	f := newFixture(t)
	f.tenant("acme")
	f.call("POST", acmeEndpoints, `{"url":"http://10.1.2.3/"}`).wantProblem(422, CodeURLNotAllowed)
	f.call("PATCH", "/v1/tenants/acme", `{"egress":"internal"}`).want(http.StatusOK)
	// No network is opened to internal tenants in this instance either.
	f.call("POST", acmeEndpoints, `{"url":"http://10.1.2.3/"}`).wantProblem(422, CodeURLNotAllowed)
}

// Many upserts of one name at once: one creates it, the others find it.
func TestPut_manyAtOnceMakeOne(t *testing.T) { onBoth(t, putManyAtOnceMakeOne) }

func putManyAtOnceMakeOne(t *testing.T, f *fixture) {
	for _, address := range []string{"/v1/tenants/acme", acmeEndpoints + "/main"} {
		statuses := make([]int, 16)
		var wg sync.WaitGroup
		for i := range statuses {
			wg.Go(func() {
				body := `{}`
				if strings.HasSuffix(address, "/main") {
					body = `{"url":"https://hooks.example.com/"}`
				}
				statuses[i] = f.call("PUT", address, body).status
			})
		}
		wg.Wait()
		slices.Sort(statuses)
		want := slices.Repeat([]int{200}, 15)
		if !slices.Equal(statuses, append(want, 201)) {
			t.Errorf("%s: %v", address, statuses)
		}
	}
	if n := len(f.walk(acmeEndpoints, "id")); n != 1 {
		t.Errorf("%d endpoints, want 1", n)
	}
}

// Order is a field like the others: given, kept where absent from PUT and PATCH, back to its
// default with null.
func TestEndpoint_ordering(t *testing.T) {
	f := newFixture(t)
	f.tenant("acme")
	steps := []struct {
		method, body, ordering, onDead string
	}{
		{"PUT", `{"url":"https://hooks.example.com/","ordering":"strict","on_dead":"hold"}`, "strict", "hold"},
		{"PUT", `{"url":"https://hooks.example.com/b"}`, "strict", "hold"},
		{"PATCH", `{"description":"ledger"}`, "strict", "hold"},
		{"PATCH", `{"on_dead":null}`, "strict", "skip"},
		{"PATCH", `{"ordering":"none","on_dead":"hold"}`, "none", "hold"},
		{"PATCH", `{"ordering":"strict"}`, "strict", "hold"},
		{"PATCH", `{"ordering":null,"on_dead":null}`, "none", "skip"},
	}
	for i, step := range steps {
		status := http.StatusOK
		if i == 0 {
			status = http.StatusCreated
		}
		answer := f.call(step.method, acmeEndpoints+"/ledger", step.body).want(status)
		read := f.call("GET", acmeEndpoints+"/ledger", "").want(http.StatusOK)
		for what, a := range map[string]string{"answer": answer.text("ordering") + " " + answer.text("on_dead"), "read": read.text("ordering") + " " + read.text("on_dead")} {
			if want := step.ordering + " " + step.onDead; a != want {
				t.Errorf("%s %s: %s: %s, want %s", step.method, step.body, what, a, want)
			}
		}
	}
}
