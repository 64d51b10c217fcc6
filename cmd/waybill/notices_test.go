package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/internal/client"
	"github.com/waybill-dev/waybill/signature"
)

// told is an operational event as its receiver gets it.
type told struct {
	Type, At, Tenant string
	Endpoint         *struct{ ID, UID, URL, Description string }
	Reason           struct {
		Kind, Message *string
		StatusCode    *int `json:"status_code"`
	}
	Since         *string
	Pending, Dead int
	PortalPath    string `json:"portal_path"`
	Job           *struct {
		State              string
		Matched, Delivered int
	}
}

// The operator subscribes to what happens to customers' endpoints like to anything else: by an
// endpoint of the tenant waybill. It hears, signed, that one fails, has its first dead letter, is
// back, has been replayed to, and is disabled.
func TestServe_theOperatorHearsOfCustomersEndpoints(t *testing.T) {
	secret := signature.GenerateSecret()
	key, err := signature.ParseSecret(secret)
	if err != nil {
		t.Fatal(err)
	}
	verifier := signature.Verifier{Secrets: []signature.Secret{key}}
	var mu sync.Mutex
	heard := map[string][]told{}
	ops := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		var one told
		if _, err := verifier.Verify(r.Header, body); err != nil {
			t.Errorf("an operational event does not verify: %v", err)
		}
		if err := json.Unmarshal(body, &one); err != nil {
			t.Errorf("%s: %v", body, err)
		}
		mu.Lock()
		defer mu.Unlock()
		heard[one.Type] = append(heard[one.Type], one)
	}))
	t.Cleanup(ops.Close)
	var status atomic.Int64
	status.Store(500)
	crm := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(int(status.Load())) }))
	t.Cleanup(crm.Close)

	s := serve(t)
	s.want(201, "PUT", "/v1/tenants/waybill", `{}`)
	s.want(201, "PUT", "/v1/tenants/waybill/endpoints/ops", fmt.Sprintf(`{"url":%q,"secrets":[{"value":%q}],"event_types":["endpoint.*","delivery.dead","replay.finished"]}`, ops.URL, secret))
	s.want(201, "PUT", "/v1/tenants/acme", `{}`)
	made := decode[client.Endpoint](t, s.want(201, "PUT", "/v1/tenants/acme/endpoints/crm", fmt.Sprintf(`{"url":%q,"description":"their CRM","retry":{"max_attempts":1},"max_in_flight":1}`, crm.URL)))
	await := func(kind string) told {
		t.Helper()
		wait(t, kind, func() bool { mu.Lock(); defer mu.Unlock(); return len(heard[kind]) > 0 })
		mu.Lock()
		defer mu.Unlock()
		return heard[kind][0]
	}
	of := func(one told, status int) {
		t.Helper()
		if one.Tenant != "acme" || one.Endpoint == nil || one.Endpoint.ID != made.ID || one.Endpoint.UID != "crm" ||
			one.Endpoint.URL != crm.URL || one.Endpoint.Description != "their CRM" || one.PortalPath != "endpoints/"+made.ID {
			t.Errorf("%s is about %q, %+v, %q", one.Type, one.Tenant, one.Endpoint, one.PortalPath)
		}
		if at, err := time.Parse(time.RFC3339, one.At); err != nil || time.Since(at).Abs() > time.Minute {
			t.Errorf("%s is of %s", one.Type, one.At)
		}
		if r := one.Reason; status != 0 && (r.StatusCode == nil || *r.StatusCode != status || r.Kind == nil || r.Message == nil || *r.Message == "") {
			t.Errorf("%s: reason %+v, want status %d", one.Type, r, status)
		}
	}
	publish := func(n int) {
		t.Helper()
		for range n {
			s.want(202, "POST", "/v1/tenants/acme/events", `{"type":"a.b","payload":{}}`)
		}
	}

	publish(25) // 20 are tried, one by one, and are dead; then the breaker is open and five wait
	of(await("delivery.dead"), 500)
	failing := await("endpoint.failing")
	of(failing, 500)
	if failing.Since == nil {
		t.Error("nobody says since when it fails")
	}
	status.Store(200)
	s.want(202, "POST", "/v1/tenants/acme/endpoints/crm/probe", ``)
	of(await("endpoint.recovered"), 0)
	wait(t, "the five that waited", func() bool {
		return len(decode[client.Page[client.Delivery]](t, s.want(200, "GET", "/v1/tenants/acme/deliveries?state=delivered", "")).Data) == 5
	})
	now := time.Now().UTC()
	s.want(202, "POST", "/v1/tenants/acme/replays", fmt.Sprintf(`{"endpoint_id":%q,"from":%q,"to":%q,"state":"dead"}`, made.ID, now.Add(-time.Hour).Format(time.RFC3339), now.Add(time.Hour).Format(time.RFC3339)))
	replayed := await("replay.finished")
	if j := replayed.Job; j == nil || j.State != "done" || j.Matched != 20 || j.Delivered != 20 {
		t.Errorf("the replay is told as %+v, want 20 of 20", replayed.Job)
	}
	status.Store(410)
	publish(3)
	of(await("endpoint.disabled"), 410)
	if e := decode[client.Endpoint](t, s.want(200, "GET", "/v1/tenants/acme/endpoints/crm", "")); e.State != "disabled" {
		t.Errorf("the endpoint is %s", e.State)
	}
	mu.Lock()
	defer mu.Unlock()
	for kind, all := range heard {
		if len(all) != 1 {
			t.Errorf("%s was heard %d times, want once", kind, len(all))
		}
	}
	if len(heard) != 5 {
		t.Errorf("heard %d kinds", len(heard))
	}
}
