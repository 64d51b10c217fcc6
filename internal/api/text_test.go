package api

import (
	"bytes"
	"strings"
	"testing"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// JSON can escape half a surrogate pair, which is no text. Wherever text is taken it is refused
// with the place it stands at; a payload's bytes are none of our business.
func TestText_halfASurrogatePairIsRefused(t *testing.T) {
	f := newFixture(t)
	f.tenant("acme")
	const half = `\ud800`
	for _, c := range []struct{ method, address, body, path string }{
		{"PUT", "/v1/tenants/acme", `{"name":"HALF"}`, "name"},
		{"PATCH", "/v1/tenants/acme", `{"metadata":{"a":"HALF"}}`, "metadata.a"},
		{"PATCH", "/v1/tenants/acme", `{"metadata":{"HALF":"a"}}`, "metadata"},
		{"PATCH", "/v1/tenants/acme", `{"state":"HALF"}`, "state"},
		{"PATCH", "/v1/tenants/acme", `{"HALF":1}`, ""},
		{"PATCH", "/v1/tenants/acme", `{"retry":{"retry_statuses":["HALF"]}}`, "retry.retry_statuses[0]"},
		{"POST", acmeEndpoints, `{"url":"https://hooks.example.com/HALF"}`, "url"},
		{"POST", acmeEndpoints, `{"url":"https://hooks.example.com/","description":"HALF"}`, "description"},
		{"POST", acmeEndpoints, `{"url":"https://hooks.example.com/","headers":{"x-a":"HALF"}}`, "headers.x-a"},
		{"POST", acmeEndpoints, `{"url":"https://hooks.example.com/","uid":"HALF"}`, "uid"},
		{"POST", acmeEndpoints, `{"url":"https://hooks.example.com/","event_types":["HALF"]}`, "event_types[0]"},
		{"POST", acmeEvents, `{"type":"HALF","payload":1}`, "type"},
		{"POST", acmeEvents, `{"type":"a.b","payload":1,"id":"HALF"}`, "id"},
		{"POST", acmeEvents, `{"type":"a.b","payload":1,"ordering_key":"HALF"}`, "ordering_key"},
		{"POST", acmeEvents, `{"type":"a.b","payload":1,"idempotency_key":"HALF"}`, "idempotency_key"},
		{"POST", acmeEvents, `{"type":"a.b","payload":1,"metadata":{"a":"HALF"}}`, "metadata.a"},
		{"POST", acmeEvents, `{"type":"a.b","payload":1,"metadata":{"HALF":"a"}}`, "metadata"},
		{"POST", acmeEvents, `{"type":"a.b","payload":1,"HALF":1}`, ""},
	} {
		a := f.call(c.method, c.address, strings.ReplaceAll(c.body, "HALF", half)).want(422)
		if p := a.problem(); len(p.Errors) != 1 || p.Errors[0].Path != c.path || bytes.ContainsRune(a.body, '\uFFFD') {
			t.Errorf("%s %s: %s", c.address, c.body, a.body)
		}
	}
	payload := `{"` + half + `":"` + half + `"}`
	id := f.publish("acme", "a.b", payload)
	if got := f.call("GET", acmeEvents+"/"+id+"/payload", nil).want(200).body; string(got) != payload {
		t.Errorf("payload %s, want %s", got, payload)
	}
}

// What is no UTF-8 is refused before a database sees it, and so alike on both.
func TestText_invalidUTF8InAQueryIsRefused(t *testing.T) {
	onBoth(t, text_invalidUTF8InAQueryIsRefused)
}

func text_invalidUTF8InAQueryIsRefused(t *testing.T, f *fixture) {
	s := furnish(f)
	for _, r := range keyed() {
		for _, p := range r.query {
			a := s.call(r.method, s.address(r, "acme")+"?"+p.name+"=%ff", nil)
			if a.status != 400 && a.status != 422 || a.status == 422 && a.problem().Errors[0].Path != p.name {
				t.Errorf("%s, %s: %d %s", r.name, p.name, a.status, a.body)
			}
		}
		s.call(r.method, s.address(r, "acme")+"?%ff=1", r.sample()).wantProblem(422, CodeUnknownField)
	}
}

// The operator hears of the instance's own events at endpoints like any other.
func TestOperatorTenant_hasEndpointsAndNoPublishers(t *testing.T) {
	f := newFixture(t)
	f.tenant(outbox.OperatorTenant)
	ep := f.endpoint(outbox.OperatorTenant, `"uid":"pager"`)
	at := "/v1/tenants/" + outbox.OperatorTenant
	f.call("PUT", at+"/endpoints/pager", `{"description":"wakes somebody"}`).want(200)
	f.call("PATCH", at+"/endpoints/"+ep, `{"state":"paused"}`).want(200)
	event := `{"type":"a.b","payload":1}`
	f.call("POST", at+"/events", event).wantProblem(422, CodeReservedTenant)
	f.call("POST", at+"/events/batch", `{"events":[`+event+`]}`).wantProblem(422, CodeReservedTenant)
	f.call("POST", "/v1/events/batch", `{"events":[{"tenant":"waybill","type":"a.b","payload":1}]}`).wantProblem(422, CodeReservedTenant)
	if n := len(f.walk(at+"/events", "id")); n != 0 {
		t.Errorf("%d events were stored", n)
	}
	f.call("DELETE", at+"/endpoints/pager", nil).want(202)
}
