package api

import (
	"strings"
	"testing"

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
