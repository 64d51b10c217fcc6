package api

import (
	"strings"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

func TestEndpoint_test(t *testing.T) { onBoth(t, endpoint_test) }

func endpoint_test(t *testing.T, f *fixture) {
	f.tenant("acme")
	f.endpoint("acme", "")
	draft := f.endpoint("acme", `"uid":"draft","state":"draft","event_types":["other"]`)
	payload := `{ "b": 1.0, "a": "<&>", "n": 9007199254740993 }`
	a := f.call("POST", acmeEndpoints+"/draft/test", `{"type":"order.made","payload":`+payload+`}`).want(202)
	planned := f.route()
	if len(planned) != 1 || planned[0].ID.String() != a.text("delivery_id") || planned[0].Event.String() != a.text("event_id") || planned[0].Endpoint.String() != draft {
		t.Fatalf("planned %v, answered %s", planned, a.body)
	}
	if got := f.call("GET", "/v1/tenants/acme/events/"+a.text("event_id")+"/payload", nil).want(200).body; string(got) != payload {
		t.Errorf("payload %s", got)
	}
	event := f.call("GET", "/v1/tenants/acme/events/"+a.text("event_id"), nil).want(200)
	if event.text("type") != "order.made" || event.text("metadata", outbox.TestMark) != draft {
		t.Errorf("%s", event.body)
	}
	// The event was for nobody else, so nobody has missed it.
	f.tick()
	f.call("POST", acmeReplays, `{`+span(f)+`,"state":"missing","dry_run":true}`).want(200).wantFigures("dry_run 0 0 0 0 0")

	for body, want := range map[string]string{`{}`: testPayload, `{"payload":null}`: "null", ``: testPayload} {
		a := f.call("POST", acmeEndpoints+"/draft/test", body).want(202)
		if got := f.call("GET", "/v1/tenants/acme/events/"+a.text("event_id")+"/payload", nil).body; string(got) != want {
			t.Errorf("%s sent %s", body, got)
		}
	}
	at := acmeEndpoints + "/draft/test"
	f.call("POST", at, `{"type":"a b"}`).wantProblem(422, CodeInvalidField)
	f.call("POST", at, `{"payload":{]}`).wantProblem(422, CodeInvalidJSON)
	f.call("POST", at, `{"payload":"`+strings.Repeat("x", 256<<10)+`"}`).wantProblem(413, CodePayloadTooLarge)
	f.call("POST", acmeEndpoints+"/nobody/test", `{}`).wantProblem(404, CodeNotFound)
	f.call("PATCH", "/v1/tenants/acme", `{"state":"paused"}`).want(200)
	f.call("POST", at, `{}`).wantProblem(409, CodeEndpointInactive)
	f.call("PATCH", "/v1/tenants/acme", `{"state":"active"}`).want(200)
	f.call("PUT", "/v1/dispatch", `{"state":"paused"}`).want(200)
	f.call("POST", at, `{}`).wantProblem(409, CodeEndpointInactive)
}

// A test is an event published through the API, so the catalogue binds it as it binds the others.
func TestEndpoint_testFollowsTheCatalogue(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		f.tenant("acme")
		f.endpoint("acme", `"uid":"hook"`)
		const at = acmeEndpoints + "/hook/test"
		f.call("PUT", "/v1/event-types/order.paid", `{"schema":{"type":"object","required":["id"]},"on_invalid":"refuse"}`).want(201)
		if p := f.call("POST", at, `{"type":"order.paid","payload":{"no":"id"}}`).wantProblem(422, CodePayloadSchema); p.Errors[0].Path != "payload" {
			t.Errorf("%+v", p.Errors)
		}
		f.call("POST", at, `{"type":"order.paid"}`).wantProblem(422, CodePayloadSchema)
		if planned := f.route(); len(planned) > 0 {
			t.Errorf("what was refused is planned: %v", planned)
		}
		if a := f.call("POST", at, `{"type":"order.paid","payload":{"id":1}}`).want(202); strings.Contains(string(a.body), "warnings") {
			t.Errorf("%s", a.body)
		}
		// With an example there is something to send that follows the schema.
		f.call("PUT", "/v1/event-types/order.paid", `{"example":{"id":  9007199254740993}}`).want(200)
		f.later(2 * time.Second)
		a := f.call("POST", at, `{"type":"order.paid"}`).want(202)
		example := f.call("GET", "/v1/event-types/order.paid", nil).want(200).get("example")
		sent := f.call("GET", "/v1/tenants/acme/events/"+a.text("event_id")+"/payload", nil).want(200)
		if !strings.Contains(string(sent.body), "9007199254740993") || example == nil {
			t.Errorf("the example went out as %s", sent.body)
		}
		f.call("PUT", "/v1/event-types/order.paid", `{"on_invalid":"warn"}`).want(200)
		f.later(2 * time.Second)
		if a := f.call("POST", at, `{"type":"order.paid","payload":[]}`).want(202); a.text("warnings", 0, "path") != "payload" {
			t.Errorf("not warned of: %s", a.body)
		}
	})
}
