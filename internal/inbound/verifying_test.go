package inbound_test

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha1"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/internal/inbound"
	"github.com/waybill-dev/waybill/internal/outbox"
)

func TestGateway_secretsAreReadAsTheProviderSpellsThem(t *testing.T) {
	w := newWorld(t)
	key := base64.StdEncoding.EncodeToString([]byte("a key of thirty bytes, in ascii"))
	at := fmt.Sprint(time.Now().Unix())
	sign := func(key string) string {
		return "v1," + base64.StdEncoding.EncodeToString(mac(key, "msg_1."+at+`.{}`))
	}
	for i, text := range []string{"whsec_" + key, key} {
		name := fmt.Sprint("svix", i)
		w.source(name, "svix", secrets(text))
		w.want(text, w.post(name, `{}`, "Webhook-Id", "msg_1", "Webhook-Timestamp", at, "Webhook-Signature", sign("a key of thirty bytes, in ascii")), 200)
		w.want("its text as the key", w.post(name, `{}`, "Webhook-Id", "msg_1", "Webhook-Timestamp", at, "Webhook-Signature", sign(text)), 401)
	}
	for _, text := range []string{"v1,whsec_" + key, " whsec_" + key + "\n", "", "whsec_", "whsec_%%%", "short"} {
		_, err := inbound.Check(&outbox.Source{Name: "s", Provider: "svix", Tenant: w.acme.TenantRef, Keep: time.Hour, Secrets: []outbox.SourceSecret{{Value: text}}})
		var wrong *inbound.SecretError
		if !errors.As(err, &wrong) || wrong.Detail == "" || strings.Contains(wrong.Detail, key) {
			t.Errorf("%q is taken: %v", text, err)
		}
	}
	// GitHub's secrets are free text, and their UTF-8 bytes are the key.
	w.source("gh", "github", secrets("ein Geheimnis mit é und 🚀"))
	w.want("a secret that is not ASCII", w.post("gh", `{}`, "X-Hub-Signature-256", "sha256="+hexed("ein Geheimnis mit é und 🚀", `{}`), "X-Github-Delivery", "1"), 200)
}

func TestGateway_anyOfSeveralSignatures(t *testing.T) {
	w := newWorld(t)
	raw := []byte("0123456789abcdef0123456789abcdef")
	w.source("svix", "svix", secrets("whsec_"+base64.StdEncoding.EncodeToString(raw)))
	w.source("billing", "stripe")
	at := fmt.Sprint(time.Now().Unix())
	n := 0
	svix := func(form string) *httptest.ResponseRecorder {
		n++
		id := fmt.Sprint("msg_", n)
		good := base64.StdEncoding.EncodeToString(mac(string(raw), id+"."+at+".{}"))
		return w.post("svix", "{}", "Webhook-Id", id, "Webhook-Timestamp", at, "Webhook-Signature", strings.ReplaceAll(form, "GOOD", good))
	}
	bad := base64.StdEncoding.EncodeToString(make([]byte, 32))
	for form, status := range map[string]int{
		"v1,GOOD": 200, "v1," + bad + " v1,GOOD v2," + bad: 200, "v1," + bad + "  v1,GOOD": 200, "v1 v1,GOOD": 200, "v1,%%% v1,GOOD": 200,
		"v1a,GOOD": 401, "v2,GOOD": 401, "GOOD": 401, "v1": 401, "v1,%%%": 401, "": 401,
	} {
		w.want(form, svix(form), status)
	}
	id, good := "msg_twice", ""
	good = base64.StdEncoding.EncodeToString(mac(string(raw), id+"."+at+".{}"))
	w.want("the header twice, the bad one first", w.post("svix", "{}", "Webhook-Id", id, "Webhook-Timestamp", at, "Webhook-Signature", "v1,"+bad, "Webhook-Signature", "v1,"+good), 200)

	for form, status := range map[string]int{
		"t=AT,v1=zz,v1=GOOD,v0=11": 200, "t=AT,v1=" + strings.Repeat("0", 64) + ",v1=GOOD": 200, "t=AT,v1=GOOD": 200,
		"t=AT,v0=GOOD": 401, "t=AT": 401, "v1=GOOD": 401,
	} {
		n++
		body := fmt.Sprintf(`{"id":"evt_%d"}`, n)
		header := strings.ReplaceAll(strings.ReplaceAll(form, "AT", at), "GOOD", hexed(secret, at+"."+body))
		w.want(form, w.post("billing", body, "Stripe-Signature", header), status)
	}
}

func TestGateway_timestamps(t *testing.T) {
	w := newWorld(t)
	w.source("billing", "stripe")
	now := time.Now().Unix()
	before := w.store.calls.Load()
	for at, want := range map[string]string{
		fmt.Sprint(now + 3600): "too_new", fmt.Sprint(now - 3600): "too_old", "abc": "malformed", fmt.Sprint(now * 1000): "too_new", "1e9": "malformed", " 17": "malformed", "": "malformed",
	} {
		w.want("t="+at, w.post("billing", `{"id":"e"}`, "Stripe-Signature", stripeAt(at, `{"id":"e"}`, secret)), 401)
		_ = want
	}
	if n := w.store.calls.Load(); n != before {
		t.Errorf("%d writes for requests that do not verify", n-before)
	}
	reasons := map[string]int{}
	for _, r := range w.requests("billing", outbox.InboundRejected, 7) {
		reasons[r.Reason]++
		if r.Detail == "" || strings.Contains(r.Detail, secret) {
			t.Errorf("detail %q", r.Detail)
		}
	}
	if reasons["too_new"] != 2 || reasons["too_old"] != 1 || reasons["malformed"] != 4 {
		t.Errorf("reasons %v", reasons)
	}
	for i, at := range []int64{now, now + 1, now + 290, now - 290} {
		body := fmt.Sprintf(`{"id":"evt_%d"}`, i)
		w.want("within five minutes", w.post("billing", body, "Stripe-Signature", stripeAt(fmt.Sprint(at), body, secret)), 200)
	}
	w.count(4)
}

func TestGateway_headerNamesInAnyCase(t *testing.T) {
	w := newWorld(t)
	w.source("gh", "github")
	server := httptest.NewServer(w.mux)
	defer server.Close()
	for i, names := range [][2]string{{"x-hub-signature-256", "x-github-delivery"}, {"X-Hub-Signature-256", "X-GitHub-Delivery"}, {"X-HUB-SIGNATURE-256", "X-GITHUB-DELIVERY"}} {
		body := fmt.Sprintf(`{"n":%d}`, i)
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+"/in/gh", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header[names[0]], r.Header[names[1]] = []string{"sha256=" + hexed(secret, body)}, []string{fmt.Sprint("guid-", i)}
		res, err := server.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != 200 {
			t.Errorf("%v: %d", names, res.StatusCode)
		}
	}
	for i, e := range w.events() {
		if e.Metadata["source_id"] != fmt.Sprint("guid-", i) || e.Metadata["header:X-Github-Delivery"] != fmt.Sprint("guid-", i) {
			t.Errorf("metadata %v", e.Metadata)
		}
	}
}

func TestGateway_rotationAndChangeOfDerivation(t *testing.T) {
	w := newWorld(t)
	const old, young = "whsec_the_old_secret_of_them_all", "whsec_the_new_secret_of_them_all"
	w.source("billing", "stripe", func(s *outbox.Source) {
		s.Secrets = []outbox.SourceSecret{{ID: "2", Value: young}, {ID: "1", Value: old, ExpiresAt: time.Now().Add(time.Second)}}
	})
	for i, key := range []string{old, young} {
		body := fmt.Sprintf(`{"id":"evt_%d"}`, i)
		w.want(key, w.post("billing", body, "Stripe-Signature", stripe(body, key)), 200)
	}
	w.source("billing", "stripe", func(s *outbox.Source) {
		s.Secrets = []outbox.SourceSecret{{ID: "2", Value: young}, {ID: "1", Value: old, ExpiresAt: time.Now().Add(-time.Second)}}
	})
	w.want("the old one, ended", w.post("billing", `{"id":"evt_9"}`, "Stripe-Signature", stripe(`{"id":"evt_9"}`, old)), 401)
	w.source("billing", "stripe", func(s *outbox.Source) { s.Secrets = nil })
	w.want("without any", w.stripe("billing", `{"id":"evt_9"}`), 401)

	// A provider that goes over from the text to what it decodes to, on a day nobody knows.
	raw := "0123456789abcdef01234567"
	text := "pol_" + base64.StdEncoding.EncodeToString([]byte(raw))
	w.source("polar", inbound.Custom, secrets(text), func(s *outbox.Source) {
		s.Settings.Verify = &outbox.SourceCheck{Signed: "{body}", Header: "X-Sig", Form: "{hex}", SecretEncodings: []string{"utf8", "base64"}, SecretPrefix: "pol_"}
	})
	w.want("the text is the key", w.post("polar", `1`, "X-Sig", hexed(text, `1`)), 200)
	w.want("what it decodes to is", w.post("polar", `2`, "X-Sig", hexed(raw, `2`)), 200)
	w.want("neither", w.post("polar", `3`, "X-Sig", hexed("x"+raw, `3`)), 401)
}

// Twilio signs the address it calls; behind a proxy that is not the one seen here, and it may write
// the port or leave it out.
func TestGateway_publicURL(t *testing.T) {
	w := newWorld(t)
	w.source("voice", "twilio", func(s *outbox.Source) {
		s.Settings.Verify = &outbox.SourceCheck{PublicURL: "https://hooks.example.com:8443/in/voice"}
	})
	for i, address := range []string{"https://hooks.example.com:8443/in/voice", "https://hooks.example.com/in/voice"} {
		form := fmt.Sprintf("CallSid=CA%d&From=%%2B49", i)
		h := hmac.New(sha1.New, []byte(secret))
		fmt.Fprintf(h, "%sCallSidCA%dFrom+49", address, i)
		w.want(address, w.post("voice", form, "X-Twilio-Signature", base64.StdEncoding.EncodeToString(h.Sum(nil)),
			"Content-Type", "application/x-www-form-urlencoded", "I-Twilio-Idempotency-Token", fmt.Sprint(i)), 200)
	}
	if _, err := inbound.Check(&outbox.Source{Name: "v", Provider: "twilio", Keep: time.Hour, Secrets: []outbox.SourceSecret{{Value: secret}}}); err == nil {
		t.Error("a source of Twilio's without its public address is taken")
	}
}

func TestGateway_handshakes(t *testing.T) {
	w := newWorld(t)
	w.source("slack", "slack")
	w.source("meta", "meta", func(s *outbox.Source) { s.Settings.Verify = &outbox.SourceCheck{ChallengeToken: "of-our-own-making"} })
	body := `{"type":"url_verification","challenge":"3eZbrw1aBm2rZgRNFdxV2595E9CY3gmdALWMmHkvFXO7tYXAYM8P"}`
	at := fmt.Sprint(time.Now().Unix())
	answer := w.post("slack", body, "X-Slack-Request-Timestamp", at, "X-Slack-Signature", "v0="+hexed(secret, "v0:"+at+":"+body))
	if answer.Code != 200 || answer.Body.String() != "3eZbrw1aBm2rZgRNFdxV2595E9CY3gmdALWMmHkvFXO7tYXAYM8P" {
		t.Errorf("Slack's challenge: %d %q", answer.Code, answer.Body)
	}
	w.want("unsigned", w.post("slack", body), 401)
	get := func(token string) *httptest.ResponseRecorder {
		return w.send(httptest.NewRequest(http.MethodGet, "/in/meta?hub.mode=subscribe&hub.challenge=1158201444&hub.verify_token="+token, nil))
	}
	if answer := get("of-our-own-making"); answer.Code != 200 || answer.Body.String() != "1158201444" {
		t.Errorf("Meta's challenge: %d %q", answer.Code, answer.Body)
	}
	w.want("with another token", get("guess"), 401)
	w.count(0)
}

// A provider whose secret was changed on one side only looks like silence; the operator is told.
func TestGateway_saysThatASourceRejects(t *testing.T) {
	w := newWorld(t)
	operator, _, err := w.store.PutTenant(t.Context(), outbox.OperatorTenant, time.Now(), func(*outbox.Tenant, bool) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	w.source("billing", "stripe")
	for i := range 30 {
		body := fmt.Sprintf(`{"id":"evt_%d"}`, i)
		w.want("with another secret", w.post("billing", body, "Stripe-Signature", stripe(body, "whsec_another_one_altogether")), 401)
	}
	for deadline := time.Now().Add(5 * time.Second); ; {
		views, _, err := w.store.Events(t.Context(), outbox.EventQuery{Tenant: operator.TenantRef}, outbox.Page{Limit: 10})
		if err != nil {
			t.Fatal(err)
		}
		if len(views) == 1 && views[0].Type == "source.rejecting" {
			payload, err := w.store.Payload(t.Context(), operator.TenantRef, views[0].ID)
			if err != nil || !bytes.Contains(payload, []byte(`"name":"billing"`)) || !bytes.Contains(payload, []byte(`"kind":"mismatch"`)) {
				t.Errorf("%s, %v", payload, err)
			}
			break
		}
		if len(views) > 1 || time.Now().After(deadline) {
			t.Fatalf("%d operational events", len(views))
		}
		<-time.After(20 * time.Millisecond)
	}
	// Thirty are one kind of thing: twenty rows, the last of which stands for the rest.
	total := 0
	for _, r := range w.requests("billing", outbox.InboundRejected, 20) {
		total += r.Times
	}
	if total != 30 {
		t.Errorf("the rows stand for %d requests, 30 came", total)
	}
	if strings.Contains(w.log.String(), secret) {
		t.Error("the secret is in the log")
	}
}
