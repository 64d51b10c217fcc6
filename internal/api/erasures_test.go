package api

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const acmeErasures = "/v1/tenants/acme/erasures"

func TestErasures_figures(t *testing.T) { onBoth(t, erasures_figures) }

func erasures_figures(t *testing.T, f *fixture) {
	f.tenant("acme")
	f.endpoint("acme", "")
	publish := func(person string) string {
		body := fmt.Sprintf(`{"type":"a.b","payload":{"name":"Ada"},"metadata":{"person":%q}}`, person)
		return f.call("POST", "/v1/tenants/acme/events", body).want(202).text("id")
	}
	first, second, other := publish("p_1"), publish("p_1"), publish("p_2")
	f.tick()

	f.call("POST", acmeErasures, `{}`).wantProblem(422, CodeMissingField)
	f.call("POST", acmeErasures, `{"from":"2026-01-01T00:00:00Z"}`).wantProblem(422, CodeMissingField)
	f.call("POST", acmeErasures, `{"metadata":{}}`).wantProblem(422, CodeMissingField)
	f.call("POST", acmeErasures, `{"metadata":{"person":1}}`).wantProblem(422, CodeInvalidField)
	f.call("POST", acmeErasures, `{"metadata":{"person":"p_1"},"endpoint_id":"ep_1"}`).wantProblem(422, CodeUnknownField)
	dry := f.call("POST", acmeErasures, `{"metadata":{"person":"p_1"},"dry_run":true}`).want(200).wantFigures("dry_run 2 0 0 0 0")
	if dry.text("type") != "erasure" {
		t.Errorf("%s", dry.body)
	}
	f.call("GET", "/v1/tenants/acme/events/"+first+"/payload", nil).want(200)

	made := f.call("POST", acmeErasures, `{"metadata":{"person":"p_1"},"reason":"GDPR 17"}`, "Idempotency-Key", "k").want(202).wantFigures("running 2 0 0 0 0")
	id := made.text("id")
	if !strings.HasPrefix(id, "era_") || made.text("filter", "metadata", "person") != "p_1" || made.text("reason") != "GDPR 17" {
		t.Errorf("%s", made.body)
	}
	f.call("POST", acmeErasures, `{"metadata":{"person":"p_2"},"reason":"GDPR 17"}`, "Idempotency-Key", "k").wantProblem(422, CodeIdempotencyMismatch)
	f.route()
	f.call("GET", acmeErasures+"/"+id, nil).want(200).wantFigures("done 2 2 0 0 0")
	f.call("GET", "/v1/erasures/"+id, nil).want(200).wantFigures("done 2 2 0 0 0")
	f.call("GET", "/v1/cancellations/can_"+id[4:], nil).wantProblem(404, CodeNotFound)
	f.call("GET", "/v1/erasures?tenant=nobody", nil).wantProblem(404, CodeUnknownTenant)
	for _, event := range []string{first, second} {
		f.call("GET", "/v1/tenants/acme/events/"+event+"/payload", nil).want(410)
		if state := f.call("GET", "/v1/events/"+event, nil).want(200).text("payload_state"); state != "erased" {
			t.Errorf("%s is %s", event, state)
		}
	}
	f.call("GET", "/v1/tenants/acme/events/"+other+"/payload", nil).want(200)

	byID := f.call("POST", acmeErasures, fmt.Sprintf(`{"event_ids":[%q,%q]}`, first, other)).want(202).wantFigures("running 2 0 0 0 0").text("id")
	f.route()
	f.call("GET", acmeErasures+"/"+byID, nil).want(200).wantFigures("done 2 2 0 0 1")
	f.call("GET", "/v1/erasures?tenant=nobody", nil).wantProblem(404, CodeUnknownTenant)
	if diff := cmp.Diff([]string{byID, id}, f.walk("/v1/erasures?tenant=acme", "id")); diff != "" {
		t.Error(diff)
	}
	third := publish("p_3")
	f.tick()
	all := f.call("POST", acmeErasures, `{`+span(f)+`}`).want(202).wantFigures("running 1 0 0 0 0").text("id")
	f.route()
	f.call("GET", acmeErasures+"/"+all, nil).want(200).wantFigures("done 1 1 0 0 0")
	f.call("GET", "/v1/tenants/acme/events/"+third+"/payload", nil).want(410)
	f.call("POST", acmeErasures+"/"+byID+"/cancel", `{}`).want(200).wantFigures("done 2 2 0 0 1")
}
