package api

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/waybill-dev/waybill/internal/outbox"
	"github.com/waybill-dev/waybill/signature"
)

func TestEndpoint_rateLimit(t *testing.T) { onBoth(t, endpoint_rateLimit) }

func endpoint_rateLimit(t *testing.T, f *fixture) {
	f.tenant("acme")
	at := acmeEndpoints + "/" + f.endpoint("acme", `"uid":"crm","rate_limit":{"count":50,"per_seconds":1}`)
	shown := func(a *reply, want any) {
		t.Helper()
		if diff := cmp.Diff(want, a.get("rate_limit")); diff != "" {
			t.Errorf("%s: %s", a.what, diff)
		}
	}
	limit := func(count, per float64) any { return map[string]any{"count": count, "per_seconds": per} }
	shown(f.call("GET", at, nil), limit(50, 1))
	shown(f.call("PATCH", at, `{"description":"x"}`), limit(50, 1))
	shown(f.call("PATCH", at, `{"rate_limit":{"count":20}}`), limit(20, 1))
	shown(f.call("PATCH", at, `{"rate_limit":{"per_seconds":0.25}}`), limit(20, 0.25))
	shown(f.call("PUT", acmeEndpoints+"/crm", `{"rate_limit":{"count":7,"per_seconds":60}}`), limit(7, 60))
	shown(f.call("PUT", acmeEndpoints+"/crm", `{}`), limit(7, 60))
	f.call("PUT", acmeEndpoints+"/crm", `{"rate_limit":{"count":7}}`).wantProblem(422, CodeMissingField)
	f.call("PATCH", at, `{"rate_limit":{"count":0}}`).wantProblem(422, CodeInvalidField)
	shown(f.call("PATCH", at, `{"rate_limit":null}`), nil)
	f.call("PATCH", at, `{"rate_limit":{"count":7}}`).wantProblem(422, CodeMissingField)
	shown(f.call("GET", at, nil), nil)
}

func TestEndpoint_health(t *testing.T) { onBoth(t, endpoint_health) }

func endpoint_health(t *testing.T, f *fixture) {
	f.tenant("acme")
	ep := f.endpoint("acme", `"max_in_flight":6`)
	at := acmeEndpoints + "/" + ep
	first := f.delivered("a.b")
	f.delivered("a.b")
	now := f.clock.Now().Truncate(time.Millisecond)
	stamped := func(d time.Duration) any { return now.Add(d).UTC().Format(stampLayout) }
	id, err := outbox.ParseEndpointID(ep)
	must(t, err)
	must(t, f.store.WriteHealth(t.Context(), f.owner, []outbox.EndpointHealth{{
		Shard: f.ref("acme").Shard, Tenant: f.ref("acme").ID, Endpoint: id,
		Breaker: outbox.BreakerOpen, NextProbeAt: now.Add(time.Minute), OpenedAt: now.Add(-time.Second), ConsecutiveFailures: 23,
		Limit: 3, Rate: 2.5, InFlight: 1, PausedUntil: now.Add(time.Hour), SuccessAt: now.Add(-time.Hour),
		Failure: outbox.FailureInfo{At: now.Add(-time.Second), Kind: outbox.KindRefused, Message: "Nothing listens at the address."},
	}}, now))
	want := map[string]any{
		"breaker": "open", "consecutive_failures": 23.0, "opened_at": stamped(-time.Second), "next_probe_at": stamped(time.Minute),
		"limit": 3.0, "rate": 2.5, "paused_until": stamped(time.Hour), "in_flight": 1.0,
		"pending": 2.0, "oldest_pending_at": first.SendableAt.UTC().Format(stampLayout), "last_success_at": stamped(-time.Hour),
		"last_failure": map[string]any{"at": stamped(-time.Second), "kind": "refused", "message": "Nothing listens at the address.", "status_code": nil},
		"last_outage":  nil,
	}
	for what, got := range map[string]any{
		"GET":                 f.call("GET", at, nil).get("health"),
		"PATCH":               f.call("PATCH", at, `{"description":"x"}`).get("health"),
		"PUT":                 f.call("PUT", at, `{}`).get("health"),
		"list":                f.call("GET", acmeEndpoints, nil).get("data", 0, "health"),
		"operator's look-up":  f.call("GET", "/v1/endpoints/"+ep, nil).get("health"),
		"list of all tenants": f.call("GET", "/v1/endpoints", nil).get("data", 0, "health"),
	} {
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", what, diff)
		}
	}
	if other := f.call("GET", acmeEndpoints+"/"+f.endpoint("acme", ""), nil).get("health", "breaker"); other != "closed" {
		t.Errorf("another endpoint's breaker is %v", other)
	}
}

// What this process knows of an endpoint it owns counts before what was written down.
func TestEndpoint_healthOfAnOwnShardIsLive(t *testing.T) {
	live := outbox.EndpointHealth{Breaker: outbox.BreakerClosed, InFlight: 10, TenantInFlight: 10, Average: time.Second}
	var owned outbox.EndpointID
	f := newFixture(t, func(cfg *Config) {
		cfg.Live = func(id outbox.EndpointID) (outbox.EndpointHealth, bool) { return live, id == owned }
	})
	f.tenant("acme")
	ep := f.endpoint("acme", "")
	d := f.delivered("a.b")
	owned = d.Endpoint
	if got := f.call("GET", acmeEndpoints+"/"+ep, nil).get("health", "in_flight"); got != 10.0 {
		t.Errorf("in flight: %v", got)
	}
	if got := f.call("GET", acmeDeliveries+"/"+d.ID.String(), nil).get("waiting", "reason"); got != "tenant_cap" {
		t.Errorf("waiting for %v", got)
	}
}

func TestEndpoint_probe(t *testing.T) { onBoth(t, endpoint_probe) }

func endpoint_probe(t *testing.T, f *fixture) {
	f.tenant("acme")
	ep := f.endpoint("acme", `"uid":"crm"`)
	d := f.delivered("a.b")
	f.finish(d, 503, "", true)
	at := acmeEndpoints + "/" + ep
	for _, name := range []string{at, acmeEndpoints + "/crm"} {
		want := map[string]any{"endpoint_id": ep, "pending": 1.0}
		if diff := cmp.Diff(want, f.call("POST", name+"/probe", nil).want(http.StatusAccepted).json()); diff != "" {
			t.Error(diff)
		}
	}
	if got := f.call("GET", acmeDeliveries+"/"+d.ID.String(), nil).get("waiting", "reason"); got != "retry" {
		t.Errorf("before the owner was asked: %v", got)
	}
	f.route()
	if got := f.call("GET", acmeDeliveries+"/"+d.ID.String(), nil).get("waiting", "reason"); got != "backlog" {
		t.Errorf("after the owner did it, the delivery waits for %v", got)
	}

	f.call("POST", at+"/probe", `{"now":true}`).wantProblem(422, CodeUnknownField)
	refused := func(because string) {
		t.Helper()
		if p := f.call("POST", at+"/probe", nil).wantProblem(409, CodeEndpointInactive); !strings.Contains(p.Detail, because) {
			t.Errorf("detail %q, want %q", p.Detail, because)
		}
	}
	f.call("PUT", "/v1/dispatch", `{"state":"paused"}`).want(http.StatusOK)
	refused("stopped on all nodes")
	f.call("PUT", "/v1/dispatch", `{"state":"running"}`).want(http.StatusOK)
	f.call("PATCH", "/v1/tenants/acme", `{"state":"paused"}`).want(http.StatusOK)
	refused("the tenant is paused")
	f.call("PATCH", "/v1/tenants/acme", `{"state":"active"}`).want(http.StatusOK)
	for _, state := range []string{"paused", "disabled", "draft"} {
		f.call("PATCH", at, `{"state":"`+state+`"}`).want(http.StatusOK)
		refused("the endpoint is " + state)
	}
	f.call("PATCH", at, `{"state":"active"}`).want(http.StatusOK)
	f.call("POST", at+"/probe", `{}`, "Authorization", "Bearer "+acmeKey).want(http.StatusAccepted)
}

func TestEndpoint_rotateSecret(t *testing.T) { onBoth(t, endpoint_rotateSecret) }

func endpoint_rotateSecret(t *testing.T, f *fixture) {
	f.tenant("acme")
	const given = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	created := f.call("POST", acmeEndpoints, `{"url":"https://hooks.example.com/"}`).want(http.StatusCreated)
	first, at := created.text("secret"), acmeEndpoints+"/"+created.text("id")
	stored := func() []outbox.Secret {
		t.Helper()
		id, err := outbox.ParseEndpointID(created.text("id"))
		must(t, err)
		e, err := f.store.Endpoint(t.Context(), f.ref("acme"), outbox.EndpointRef{ID: id})
		must(t, err)
		return e.Secrets
	}
	values := func() (all []string) {
		for _, s := range stored() {
			all = append(all, s.Value)
		}
		return all
	}

	// By default the old one goes on for a day.
	began := f.clock.Now()
	a := f.call("POST", at+"/secret/rotate", nil).want(http.StatusOK)
	second := a.text("secret")
	if _, err := signature.ParseSecret(second); err != nil || second == first {
		t.Errorf("the new secret: %v", err)
	}
	secrets := stored()
	if diff := cmp.Diff([]string{second, first}, values()); diff != "" {
		t.Fatal("stored secrets (by number alone) differ from the new and the old one")
	}
	end := secrets[1].ExpiresAt
	if !secrets[0].ExpiresAt.IsZero() || end.Before(began.Add(24*time.Hour)) || end.After(f.clock.Now().Add(24*time.Hour)) {
		t.Errorf("they end at %v and %v", secrets[0].ExpiresAt, end)
	}
	if a.text("previous_expires_at") != end.UTC().Format(stampLayout) {
		t.Errorf("previous_expires_at %v, stored is %v", a.get("previous_expires_at"), end)
	}

	// An earlier end is kept, a later one is brought forward.
	f.call("POST", at+"/secret/rotate", `{"secret":"`+strings.TrimPrefix(given, "whsec_")+`","scheme":"standard","overlap_seconds":172800}`).want(http.StatusOK)
	if secrets = stored(); secrets[0].Value != given || !secrets[2].ExpiresAt.Equal(end) || !secrets[1].ExpiresAt.After(end) {
		t.Errorf("after a longer overlap they end at %v and %v", secrets[1].ExpiresAt, secrets[2].ExpiresAt)
	}
	// The same once more changes nothing.
	before := stored()
	f.call("POST", at+"/secret/rotate", `{"secret":"`+given+`","overlap_seconds":172800}`).want(http.StatusOK)
	if len(stored()) != len(before) || !stored()[1].ExpiresAt.Equal(before[1].ExpiresAt) {
		t.Error("rotating to the newest secret changed the others")
	}

	for n := len(stored()); n < maxSecrets; n++ {
		f.call("POST", at+"/secret/rotate", `{}`).want(http.StatusOK)
	}
	f.call("POST", at+"/secret/rotate", `{}`).wantProblem(422, CodeSecretLimit)
	if n := len(stored()); n != maxSecrets {
		t.Errorf("%d secrets", n)
	}
	a = f.call("POST", at+"/secret/rotate", `{"overlap_seconds":0}`).want(http.StatusOK)
	if diff := cmp.Diff([]string{a.text("secret")}, values()); diff != "" {
		t.Error("rotating without overlap left other secrets")
	}

	for body, want := range map[string]string{
		`{"overlap_seconds":-1}`:      "overlap_seconds invalid_field",
		`{"overlap_seconds":2592001}`: "overlap_seconds invalid_field",
		`{"overlap_seconds":"1"}`:     "overlap_seconds invalid_field",
		`{"secret":"whsec_short"}`:    "secret invalid_secret",
		`{"secret":5}`:                "secret invalid_field",
		`{"scheme":"nope"}`:           "scheme invalid_field",
		`{"secrets":[]}`:              "secrets unknown_field",
	} {
		p := f.call("POST", at+"/secret/rotate", body).want(422).problem()
		if got := fmt.Sprint(p.Errors[0].Path, " ", p.Errors[0].Code); got != want {
			t.Errorf("%s: %s, want %s", body, got, want)
		}
	}
	if strings.Contains(f.log.String(), "whsec_") {
		t.Error("the log has a secret")
	}
	for _, address := range []string{at, acmeEndpoints} {
		if body := string(f.call("GET", address, nil).body); strings.Contains(body, "whsec_") {
			t.Errorf("%s shows a secret", address)
		}
	}
}

// A receiver that changes over within the overlap never sees a delivery it cannot verify.
func TestRotateSecrets_everyLiveSecretSigns(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	live := []outbox.Secret{{Value: "new", CreatedAt: now.Add(-time.Hour)}, {Value: "old", ExpiresAt: now.Add(time.Minute)}, {Value: "gone", ExpiresAt: now}}
	next, previous, err := rotateSecrets(live, outbox.Secret{Value: "newer"}, time.Hour, now)
	want := []outbox.Secret{{Value: "newer", CreatedAt: now}, {Value: "new", CreatedAt: now.Add(-time.Hour), ExpiresAt: now.Add(time.Hour)}, {Value: "old", ExpiresAt: now.Add(time.Minute)}}
	if err != nil || !previous.Equal(now.Add(time.Hour)) || !cmp.Equal(next, want) {
		t.Errorf("%d secrets, previous end at %v, %v", len(next), previous, err)
	}
	// Back to the one before: it has no end any more.
	next, _, _ = rotateSecrets(next, outbox.Secret{Value: "new"}, time.Hour, now)
	if next[0].Value != "new" || !next[0].ExpiresAt.IsZero() || next[1].Value != "newer" || !next[1].ExpiresAt.Equal(now.Add(time.Hour)) {
		t.Error("rotating back does not make the old secret the newest")
	}
	next, previous, err = rotateSecrets(nil, outbox.Secret{Value: "first"}, 0, now)
	if len(next) != 1 || !previous.IsZero() || err != nil {
		t.Errorf("of none: %d secrets, %v, %v", len(next), previous, err)
	}
}
