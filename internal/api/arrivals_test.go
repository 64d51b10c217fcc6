package api

import (
	"encoding/base64"
	"strings"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// What was quarantined can be looked at whole and made an event after all, once, and it is put on
// record who did so.
func TestRequests_quarantinedAreReleased(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		f.tenant("acme")
		f.call("PUT", "/v1/event-types/invoice.paid", `{"schema":{"required":["amount"]},"on_invalid":"refuse"}`).want(201)
		f.call("PUT", "/v1/sources/billing", `{"provider":"stripe","tenant":"acme","secrets":["`+stripeSecret+`"]}`).want(201)
		large := `{"id":"evt_1","type":"invoice.paid","note":"` + strings.Repeat("x", maxListedBody) + `"}`
		f.inboundStripe("billing", stripeSecret, large).want(200)
		f.inboundStripe("billing", stripeSecret, `{"id":"evt_2","type":"other"}`).want(200)
		f.inboundStripe("billing", stripeSecret, `{"id":"evt_2","type":"other","changed":1}`).want(200)

		rows := f.rowsOf("/v1/sources/billing/requests?outcome=quarantined&order=asc", 2)
		if rows[0]["reason"] != "schema" || rows[0]["body_base64"] != nil || rows[0]["released_event_id"] != nil || rows[1]["reason"] != "other_body" || rows[1]["body_base64"] == nil {
			t.Errorf("%v", rows)
		}
		want := []struct{ eventType, body string }{{"invoice.paid", large}, {"other", `{"id":"evt_2","type":"other","changed":1}`}}
		for i, row := range rows {
			address := "/v1/sources/billing/requests/" + row["id"].(string)
			one := f.call("GET", address, nil).want(200)
			if body, err := base64.StdEncoding.DecodeString(one.text("body_base64")); err != nil || string(body) != want[i].body {
				t.Errorf("shown %s, %v", one.body, err)
			}
			first := f.call("POST", address+"/release", nil).want(202)
			if first.text("type") != want[i].eventType {
				t.Errorf("released as %s", first.body)
			}
			if again := f.call("POST", address+"/release", `{}`).want(202); again.text("event_id") != first.text("event_id") {
				t.Errorf("released again as %s, before %s", again.body, first.body)
			}
			if shown := f.call("GET", address, nil).want(200); shown.text("released_event_id") != first.text("event_id") || shown.json()["body_base64"] != nil || shown.json()["bytes"] != float64(len(want[i].body)) {
				t.Errorf("shown %s", shown.body)
			}
			if payload := f.call("GET", "/v1/tenants/acme/events/"+first.text("event_id")+"/payload", nil).want(200); string(payload.body) != want[i].body {
				t.Errorf("delivered %s", payload.body)
			}
		}
		// One event for each, one record for each; the other calls changed nothing.
		if events := f.walk("/v1/tenants/acme/events", "type"); len(events) != 3 {
			t.Errorf("events %v", events)
		}
		for _, list := range []string{"/v1/audit", "/v1/tenants/acme/audit"} {
			if n := len(f.walk(list+"?action=request.release", "object_id")); n != 2 {
				t.Errorf("%s has %d releases", list, n)
			}
		}
		f.inboundStripe("billing", stripeSecret, large).want(200) // its provider's repeat
		f.inboundStripe("billing", stripeSecret, want[1].body).want(200)
		f.rowsOf("/v1/sources/billing/requests?outcome=quarantined", 2)
		for _, row := range f.rowsOf("/v1/sources/billing/requests?outcome=accepted", 3) {
			f.call("POST", "/v1/sources/billing/requests/"+row["id"].(string)+"/release", nil).wantProblem(409, CodeNotQuarantined)
		}
		// One of the time before releases lacks what an event is made of.
		src, err := f.store.Source(t.Context(), "billing")
		if err != nil {
			t.Fatal(err)
		}
		old := outbox.InboundRequest{
			ID: outbox.NewInboundID(time.Now()), Source: src.ID, Shard: outbox.SourceShard("billing"), Outcome: outbox.InboundQuarantined,
			Reason: "other_body", Bytes: 2, Body: []byte("{}"),
		}
		if err := f.store.RecordRequests(t.Context(), []outbox.InboundRequest{old}); err != nil {
			t.Fatal(err)
		}
		a := f.call("POST", "/v1/sources/billing/requests/"+old.ID.String()+"/release", nil)
		a.wantProblem(409, CodeNotQuarantined)
		if !strings.Contains(string(a.body), "by a version that could not release any") {
			t.Errorf("%s", a.body)
		}
	}, withGateway(t))
}

// What went with its tenant cannot be released, not even to the tenant that has the source next.
func TestRequests_erasedAreNotReleased(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		f.tenant("acme")
		f.call("PUT", "/v1/event-types/invoice.paid", `{"schema":{"required":["amount"]},"on_invalid":"refuse"}`).want(201)
		f.call("PUT", "/v1/sources/billing", `{"provider":"stripe","tenant":"acme","secrets":["`+stripeSecret+`"]}`).want(201)
		f.inboundStripe("billing", stripeSecret, `{"id":"evt_1","type":"invoice.paid"}`).want(200)
		row := f.rowsOf("/v1/sources/billing/requests?outcome=quarantined", 1)[0]
		address := "/v1/sources/billing/requests/" + row["id"].(string)
		f.call("DELETE", "/v1/tenants/acme", nil).want(202)
		f.tenant("globex")
		f.call("PUT", "/v1/sources/billing", `{"tenant":"globex"}`).want(200)
		if shown := f.call("GET", address, nil).want(200).json(); shown["body_base64"] != nil || shown["bytes"] != float64(len(`{"id":"evt_1","type":"invoice.paid"}`)) {
			t.Errorf("shown %v", shown)
		}
		f.call("POST", address+"/release", nil).wantProblem(409, CodePayloadGone)
		if events := f.walk("/v1/tenants/globex/events", "type"); len(events) != 0 {
			t.Errorf("events %v", events)
		}
	}, withGateway(t))
}

// The address of a source answers as the rest does.
func TestSources_answersOfTheAddress(t *testing.T) {
	f := newFixture(t, withGateway(t))
	f.tenant("acme")
	f.call("PUT", "/v1/sources/billing", `{"provider":"stripe","tenant":"acme","secrets":["`+stripeSecret+`"],"max_body":100}`).want(201)
	f.call("PUT", "/v1/sources/wa", `{"provider":"meta","tenant":"acme","secrets":["of-the-app-0123456789"],"verify":{"challenge_token":"of-our-own-making"}}`).want(201)
	stranger := []string{"Authorization", "-"}
	f.call("POST", "/in/nobody", `{}`, stranger...).wantProblem(404, CodeNotFound)
	f.call("GET", "/in/nobody", nil, stranger...).wantProblem(404, CodeNotFound)
	f.call("POST", "/in/billing", `{}`, stranger...).wantProblem(401, CodeInvalidSignature)
	f.call("POST", "/in/billing", strings.Repeat("x", 101), stranger...).wantProblem(413, CodePayloadTooLarge)
	for method, allow := range map[string]string{"GET": "POST", "PUT": "POST", "DELETE": "POST"} {
		a := f.call(method, "/in/billing", nil, stranger...)
		a.wantProblem(405, CodeMethodNotAllowed)
		if a.header.Get("Allow") != allow {
			t.Errorf("%s: Allow %q", method, a.header.Get("Allow"))
		}
	}
	f.call("GET", "/in/wa?hub.mode=subscribe&hub.challenge=42&hub.verify_token=wrong", nil, stranger...).wantProblem(401, CodeInvalidSignature)
	f.call("PUT", "/v1/sources/billing", `{"state":"paused"}`).want(200)
	f.inboundStripe("billing", stripeSecret, `{}`).wantProblem(503, CodeUnavailable)
}
