package api

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/internal/catalogue"
	"github.com/waybill-dev/waybill/internal/inbound"
	"github.com/waybill-dev/waybill/internal/outbox"
)

// withGateway serves /in/ as well.
func withGateway(t *testing.T) func(*Config) {
	return func(cfg *Config) {
		g := inbound.New(inbound.Config{Store: cfg.Store, Publisher: cfg.Publisher, Clock: cfg.Clock, Log: cfg.Log, Catalogue: catalogue.New(cfg.Store)})
		ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
		ended := make(chan struct{})
		go func() { g.Run(ctx); close(ended) }()
		t.Cleanup(func() { stop(); <-ended })
		cfg.Inbound = g
	}
}

const stripeSecret = "whsec_a_secret_of_the_tests"

// inboundStripe posts an event as Stripe would.
func (f *fixture) inboundStripe(source, key, body string) *reply {
	at := fmt.Sprint(time.Now().Unix())
	h := hmac.New(sha256.New, []byte(key))
	h.Write([]byte(at + "." + body))
	return f.call("POST", "/in/"+source, body, "Authorization", "-", "Stripe-Signature", fmt.Sprintf("t=%s,v1=%x", at, h.Sum(nil)))
}

func TestSources_life(t *testing.T) {
	run := func(t *testing.T, f *fixture) {
		f.tenant("acme")
		made := f.call("PUT", "/v1/sources/billing", `{"provider":"stripe","tenant":"acme","secrets":["`+stripeSecret+`"],"event_type":"stripe.{topic}"}`).want(201)
		if made.text("source") != "billing" || made.text("path") != "/in/billing" || made.text("tenant") != "acme" || made.text("event_type") != "stripe.{topic}" {
			t.Errorf("%s", made.body)
		}
		if id := made.text("id"); !strings.HasPrefix(id, "src_") {
			t.Errorf("id %q", id)
		}
		// Three days of retries, thirty of resending by hand, an hour for clocks.
		if keep := made.json()["keep_seconds"].(float64); keep != (33*24+1)*3600 {
			t.Errorf("kept for %v s", keep)
		}
		f.call("PUT", "/v1/sources/billing", `{"max_body":2000}`).want(200)
		got := f.call("GET", "/v1/sources/billing", nil).want(200)
		if got.text("event_type") != "stripe.{topic}" || got.json()["max_body"].(float64) != 2000 {
			t.Errorf("absent fields did not keep their value: %s", got.body)
		}

		f.inboundStripe("billing", stripeSecret, `{"id":"evt_1","type":"invoice.paid"}`).want(200)
		f.inboundStripe("billing", stripeSecret, `{"id":"evt_1","type":"invoice.paid"}`).want(200)
		f.inboundStripe("billing", stripeSecret, `{"id":"evt_1","type":"invoice.void"}`).want(200)
		f.inboundStripe("billing", "whsec_somebody_elses", `{"id":"evt_2"}`).want(401)
		f.call("POST", "/in/nobody", `{}`, "Authorization", "-").want(404)
		for outcome, want := range map[string]int{"accepted": 1, "duplicate": 1, "quarantined": 1, "rejected": 1, "": 4} {
			address := "/v1/sources/billing/requests"
			if outcome != "" {
				address += "?outcome=" + outcome
			}
			rows := f.rowsOf(address, want)
			for _, row := range rows {
				if outcome != "" && row["outcome"] != outcome {
					t.Errorf("%s: %v", outcome, row)
				}
			}
			if outcome == "quarantined" {
				one := f.call("GET", "/v1/sources/billing/requests/"+rows[0]["id"].(string), nil).want(200)
				if one.text("body_base64") != rows[0]["body_base64"] || one.text("outcome") != "quarantined" {
					t.Errorf("alone it is %s", one.body)
				}
			}
			if outcome == "quarantined" && rows[0]["body_base64"] != "eyJpZCI6ImV2dF8xIiwidHlwZSI6Imludm9pY2Uudm9pZCJ9" {
				t.Errorf("quarantined %v", rows[0])
			}
			if outcome == "rejected" && (rows[0]["reason"] != "mismatch" || rows[0]["detail"] == nil) {
				t.Errorf("rejected %v", rows[0])
			}
		}
		for _, id := range []string{outbox.NewInboundID(time.Now()).String(), "in_0", "evt_01m8nr6fzjezsmcdf2aftwjyw0"} {
			f.call("GET", "/v1/sources/billing/requests/"+id, nil).wantProblem(404, CodeNotFound)
		}
		event := f.call("GET", "/v1/tenants/acme/events", nil).want(200)
		if event.text("data", 0, "type") != "stripe.invoice.paid" || event.text("data", 0, "metadata", "source_id") != "evt_1" {
			t.Errorf("%s", event.body)
		}
		if first := f.walk("/v1/sources/billing/requests?limit=1", "id"); len(first) != 4 {
			t.Errorf("page by page: %v", first)
		}

		// A new secret beside the old one, and then alone.
		added := f.call("POST", "/v1/sources/billing/secrets", `{"secret":"whsec_a_new_secret_of_ours","overlap_seconds":3600}`).want(201)
		if strings.Contains(string(added.body), "a_new_secret") || strings.Contains(string(added.body), "a_secret_of_the_tests") {
			t.Errorf("a secret is shown: %s", added.body)
		}
		f.inboundStripe("billing", stripeSecret, `{"id":"evt_3"}`).want(200)
		f.inboundStripe("billing", "whsec_a_new_secret_of_ours", `{"id":"evt_4"}`).want(200)
		f.call("DELETE", "/v1/sources/billing/secrets/"+added.text("secrets", 1, "id"), nil).want(204)
		f.inboundStripe("billing", stripeSecret, `{"id":"evt_5"}`).want(401)
		f.inboundStripe("billing", "whsec_a_new_secret_of_ours", `{"id":"evt_5"}`).want(200)
		f.call("DELETE", "/v1/sources/billing/secrets", nil).want(204)
		f.inboundStripe("billing", "whsec_a_new_secret_of_ours", `{"id":"evt_6"}`).want(401)

		f.call("PUT", "/v1/sources/other", `{"provider":"svix","tenant":"acme"}`).want(201)
		if names := f.walk("/v1/sources?limit=1", "source"); len(names) != 2 {
			t.Errorf("sources %v", names)
		}
		f.call("DELETE", "/v1/sources/billing", nil).want(204)
		f.call("GET", "/v1/sources/billing", nil).wantProblem(404, CodeNotFound)
		f.inboundStripe("billing", "whsec_a_new_secret_of_ours", `{"id":"evt_7"}`).want(404)
	}
	onBoth(t, run, withGateway(t))
}

// rowsOf reads a list until it has so many rows: some are written a little later.
func (f *fixture) rowsOf(address string, want int) []map[string]any {
	f.t.Helper()
	for deadline := time.Now().Add(5 * time.Second); ; {
		var page struct{ Data []map[string]any }
		f.call("GET", address, nil).want(200).into(&page)
		if len(page.Data) == want {
			return page.Data
		}
		if time.Now().After(deadline) {
			f.t.Fatalf("%s has %d rows, want %d", address, len(page.Data), want)
		}
		<-time.After(20 * time.Millisecond)
	}
}

func TestSources_refusals(t *testing.T) {
	f := newFixture(t, withGateway(t))
	f.tenant("acme")
	f.tenant(outbox.OperatorTenant)
	for _, test := range []struct{ body, path, word string }{
		{`{}`, "provider", "required"},
		{`{"provider":"stripe"}`, "tenant", "required"},
		{`{"provider":"acme-corp","tenant":"acme"}`, "provider", "stripe"},
		{`{"provider":"stripe","tenant":"acme","secrets":["short"]}`, "secrets[0]", ""},
		{`{"provider":"svix","tenant":"acme","secrets":["v1,whsec_c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0LTEyMzQ="]}`, "secrets[0]", "v1,"},
		{`{"provider":"svix","tenant":"acme","secrets":[" whsec_c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0LTEyMzQ=\n"]}`, "secrets[0]", "white space"},
		{`{"provider":"twilio","tenant":"acme","secrets":["0123456789abcdef"]}`, "verify.public_url", "address"},
		{`{"provider":"custom","tenant":"acme"}`, "", "required"},
		{`{"provider":"custom","tenant":"acme","verify":{"signed":"{timestamp}","header":"X-Sig","form":"{hex}"},"secrets":["0123456789abcdef"]}`, "", "{body}"},
		{`{"provider":"stripe","tenant":"acme","verify":{"signed":"{body}"}}`, "verify", "custom"},
		{`{"provider":"gitlab","tenant":"acme","verify":{"tolerance_seconds":60}}`, "verify.tolerance_seconds", "time"},
		{`{"provider":"stripe","tenant":"acme","event_type":"a b"}`, "event_type", ""},
		{`{"provider":"stripe","tenant":"acme","responses":{"failed":200}}`, "responses.failed", ""},
		{`{"provider":"stripe","tenant":"acme","responses":{"ok":500}}`, "responses.ok", ""},
		{`{"provider":"stripe","tenant":"acme","forward_headers":["X Y"]}`, "forward_headers", "header name"},
		{`{"provider":"stripe","tenant":"acme","max_body":2000000}`, "max_body", ""},
		{`{"provider":"stripe","tenant":"waybill"}`, "tenant", "reserved"},
	} {
		p := f.call("PUT", "/v1/sources/s", test.body).want(422).problem()
		found := false
		for _, item := range p.Errors {
			found = found || strings.HasPrefix(item.Path, test.path) && strings.Contains(item.Detail, test.word)
		}
		if !found {
			t.Errorf("%s: %+v, want %s: …%s…", test.body, p.Errors, test.path, test.word)
		}
		if strings.Contains(fmt.Sprint(p), "c2VjcmV0") {
			t.Errorf("%s: the answer shows a secret", test.body)
		}
	}
	// A secret that is added stands by itself in the request, so it is named by its field.
	f.call("PUT", "/v1/sources/s", `{"provider":"svix","tenant":"acme"}`).want(201)
	for _, secret := range []string{``, `short`, ` whsec_c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0LTEyMzQ=\n`} {
		if p := f.call("POST", "/v1/sources/s/secrets", `{"secret":"`+secret+`"}`).wantProblem(422, CodeInvalidSecret); p.Errors[0].Path != "secret" {
			t.Errorf("%q: complains of %s", secret, p.Errors[0].Path)
		}
	}
	f.call("DELETE", "/v1/sources/s", nil).want(204)
	f.call("PUT", "/v1/sources/s", `{"provider":"stripe","tenant":"nobody"}`).wantProblem(404, CodeUnknownTenant)
	f.call("PUT", "/v1/sources/.hidden", `{"provider":"stripe","tenant":"acme"}`).want(422)
	f.call("GET", "/v1/sources/s", nil).wantProblem(404, CodeNotFound)
}

// What is taken and may lose or repeat events is told with its remedy.
func TestSources_warnings(t *testing.T) {
	f := newFixture(t, withGateway(t))
	f.tenant("acme")
	for _, test := range []struct {
		body  string
		rules []string
	}{
		{`{"provider":"svix","tenant":"acme","secrets":["whsec_c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0LTEyMzQ="]}`, nil},
		{`{"provider":"svix","tenant":"acme"}`, []string{"secret"}},
		{`{"provider":"svix","tenant":"acme","secrets":["whsec_c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0LTEyMzQ="],"keep_seconds":86400}`, []string{"short-memory"}},
		{`{"provider":"github","tenant":"acme","secrets":["0123456789abcdef"]}`, []string{"no-retries", "unsigned-id", "body-limit"}},
		{`{"provider":"brevo","tenant":"acme","secrets":["0123456789abcdef"],"responses":{"failed":503}}`, []string{"stop-code"}},
		{`{"provider":"custom","tenant":"acme","verify":{"signed":"{body}","header":"X-Sig","form":"{hex}"},"secrets":["0123456789abcdef"]}`, []string{"no-id"}},
	} {
		f.call("DELETE", "/v1/sources/s", nil)
		var view struct {
			Warnings []struct{ Rule, Harm, Detail, Remedy string }
		}
		f.call("PUT", "/v1/sources/s", test.body).want(201).into(&view)
		has := map[string]bool{}
		for _, w := range view.Warnings {
			has[w.Rule] = true
			if w.Detail == "" || w.Remedy == "" || w.Harm == "" {
				t.Errorf("%s: %+v", test.body, w)
			}
		}
		for _, rule := range test.rules {
			if !has[rule] {
				t.Errorf("%s: %+v, want %s", test.body, view.Warnings, rule)
			}
		}
		if test.rules == nil && len(view.Warnings) > 0 {
			t.Errorf("%s: %+v, want none", test.body, view.Warnings)
		}
	}
}

// The challenge token is as good as a secret.
func TestSources_showNoSecret(t *testing.T) {
	f := newFixture(t, withGateway(t))
	f.tenant("acme")
	f.call("PUT", "/v1/sources/wa", `{"provider":"meta","tenant":"acme","secrets":["of-the-app-0123456789"],"verify":{"challenge_token":"of-our-own-making"}}`).want(201)
	f.call("GET", "/in/wa?hub.mode=subscribe&hub.challenge=42&hub.verify_token=of-our-own-making", nil, "Authorization", "-").want(http.StatusOK)
	// Nobody can send again what nobody is shown: it stays until somebody says null.
	has := func(body string, want any) {
		t.Helper()
		if got := f.call("PUT", "/v1/sources/wa", body).want(200).get("verify", "has_challenge_token"); got != want {
			t.Errorf("%s: a token of the handshake is there: %v, want %v", body, got, want)
		}
	}
	has(`{"verify":{"public_url":"https://example.com/in/wa"}}`, true)
	has(`{"verify":{"challenge_token":null}}`, false)
	has(`{"verify":{"challenge_token":"of-our-own-making"}}`, true)
	f.call("PUT", "/v1/sources/wa", `{"state":"paused"}`).want(200)
	f.call("POST", "/v1/sources/wa/secrets", `{"secret":"of-the-app-0123456789-new"}`).want(201)
	for _, address := range []string{"/v1/sources/wa", "/v1/sources", "/v1/sources/wa/requests"} {
		if a := f.call("GET", address, nil).want(200); strings.Contains(string(a.body), "of-the-app") || strings.Contains(string(a.body), "of-our-own") {
			t.Errorf("%s: %s", address, a.body)
		}
	}
	if strings.Contains(f.log.String(), "of-the-app") || strings.Contains(f.log.String(), "of-our-own") {
		t.Error("a secret is in the log")
	}
}
