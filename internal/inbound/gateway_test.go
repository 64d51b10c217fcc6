package inbound_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

func TestGateway_storesTheBytesThatWereSigned(t *testing.T) {
	w := newWorld(t)
	w.source("billing", "stripe", func(s *outbox.Source) { s.Settings.EventType = "stripe.{topic}" })
	bodies := []string{
		`{"id":"evt_1","type":"a.b","cvss":{"score":0.0}}`,
		`{"id":"evt_2","type":"a.b", "n":1E2,  "m": 1.10}`,
		"{\"id\":\"evt_3\",\"type\":\"a/b c\",\"tier\":\"🚀 Gold é\u2028\"}\r\n",
		`{ "id": "evt_4", "b": 1.0, "a": "<&>", "big": 9007199254740993 }`,
	}
	for _, body := range bodies {
		w.want(body, w.stripe("billing", body), 200)
	}
	changed := strings.Replace(bodies[0], "0.0", "0", 1)
	w.want("0.0 became 0", w.post("billing", changed, "Stripe-Signature", stripe(bodies[0], secret)), 401)
	events := w.events()
	if len(events) != len(bodies) {
		t.Fatalf("%d events", len(events))
	}
	types := []string{"stripe.a.b", "stripe.a.b", "stripe.a.b.c", "stripe.billing"}
	for i, e := range events {
		if string(e.Payload) != bodies[i] || e.SHA256 != sha256.Sum256([]byte(bodies[i])) {
			t.Errorf("sent %q, stored %q", bodies[i], e.Payload)
		}
		if e.Type != types[i] || e.Metadata["source"] != "billing" || e.Metadata["source_id"] != fmt.Sprintf("evt_%d", i+1) || e.Metadata["header:Content-Type"] != "application/json" {
			t.Errorf("event %d: type %s, metadata %v", i, e.Type, e.Metadata)
		}
	}
}

func TestGateway_emptyBodies(t *testing.T) {
	w := newWorld(t)
	w.source("gh", "github")
	for i, body := range []string{"", "{}", "null", "[]", "not json", "\xff\x00"} {
		w.want(fmt.Sprintf("%q", body), w.post("gh", body, "X-Hub-Signature-256", "sha256="+hexed(secret, body), "X-Github-Delivery", fmt.Sprint(i)), 200)
		if got := w.events()[i].Payload; string(got) != body {
			t.Errorf("sent %q, stored %q", body, got)
		}
	}
}

// What nobody subscribed to is stored and answered with success: a 4xx would make some providers
// stop for good.
func TestGateway_whatNobodyWantsIsASuccess(t *testing.T) {
	w := newWorld(t)
	w.source("billing", "stripe")
	w.want("no endpoint at all", w.stripe("billing", `{"id":"evt_1","type":"of.no.interest"}`), 200)
	w.count(1)
}

func TestGateway_sizeBeforeAnythingElse(t *testing.T) {
	w := newWorld(t)
	w.source("billing", "stripe", func(s *outbox.Source) { s.Settings.MaxBody = 1000 })
	w.source("brevo", "brevo", func(s *outbox.Source) { s.Settings.MaxBody = 1000 })
	large := strings.Repeat("x", 1001)
	w.want("too large, and signed", w.post("billing", large, "Stripe-Signature", stripe(large, secret)), 413)
	w.want("too large, for a provider that stops at 413", w.post("brevo", large), 429)
	r := httptest.NewRequest(http.MethodPost, "/in/billing", io.MultiReader(strings.NewReader(large), endless{}))
	r.ContentLength = -1
	w.want("without a length, and without an end", w.send(r), 413)
	body := `{"id":"evt_1"}` + strings.Repeat(" ", 1000-14)
	w.want("just fits", w.stripe("billing", body), 200)
	w.count(1)
	for _, r := range w.requests("billing", outbox.InboundRejected, 2) {
		if r.Reason != "body" {
			t.Errorf("reason %q", r.Reason)
		}
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}

// With the database down a provider hears its try-again code, in time, and never 2xx.
func TestGateway_storeDown(t *testing.T) {
	w := newWorld(t)
	w.source("slack", "slack")
	w.source("brevo", "brevo")
	slack := func(n int) *httptest.ResponseRecorder {
		body := fmt.Sprintf(`{"event_id":"Ev%d"}`, n)
		at := fmt.Sprint(time.Now().Unix())
		return w.post("slack", body, "X-Slack-Request-Timestamp", at, "X-Slack-Signature", "v0="+hexed(secret, "v0:"+at+":"+body))
	}
	w.want("while it is well", slack(0), 200)
	w.want("while it is well", w.post("brevo", `{}`, "Authorization", secret), 200)
	for name, fail := range map[string]func(){
		"refused": func() {
			var err error = &outbox.WriteError{Fault: outbox.FaultRetry, Err: errors.New("no connection")}
			w.store.err.Store(&err)
		},
		"unknown": func() {
			var err error = &outbox.WriteError{Fault: outbox.FaultUnknown, Err: errors.New("cut during the commit")}
			w.store.err.Store(&err)
		},
		"silent": func() { w.store.hang.Store(true) },
	} {
		t.Run(name, func(t *testing.T) {
			fail()
			var group sync.WaitGroup
			for i := range 20 {
				group.Go(func() {
					began := time.Now()
					answer := slack(1 + i)
					if answer.Code != 503 || answer.Header().Get("Retry-After") == "" {
						t.Errorf("%d, Retry-After %q", answer.Code, answer.Header().Get("Retry-After"))
					}
					if took := time.Since(began); took > 3*time.Second {
						t.Errorf("Slack has hung up after 3 s; the answer took %v", took)
					}
				})
			}
			group.Wait()
			w.want("a provider that stops at 503", w.post("brevo", `{"n":`+name+`}`, "Authorization", secret), 429)
			w.store.err.Store(nil)
			w.store.hang.Store(false)
		})
	}
	for i := range 20 { // the provider's own retry
		for deadline := time.Now().Add(10 * time.Second); slack(1+i).Code != 200; {
			if time.Now().After(deadline) {
				t.Fatal("not taken after the database came back")
			}
		}
	}
	ids := map[string]int{}
	for _, e := range w.events() {
		if e.Metadata["source"] == "slack" {
			ids[e.Metadata["source_id"]]++
		}
	}
	if len(ids) != 21 {
		t.Errorf("%d of 21 events", len(ids))
	}
	for id, n := range ids {
		if n != 1 {
			t.Errorf("%s is stored %d times", id, n)
		}
	}
}

func TestGateway_whoCannotAcceptSaysComeAgain(t *testing.T) {
	w := newWorld(t)
	w.source("paused", "stripe", func(s *outbox.Source) { s.State = outbox.SourcePaused })
	w.want("paused", w.stripe("paused", `{"id":"evt_1"}`), 503)
	w.want("unknown", w.stripe("nobody", `{"id":"evt_1"}`), 404)
	w.want("no name at all", w.stripe("!", `{"id":"evt_1"}`), 404)
	w.source("orphan", "stripe")
	if _, err := w.store.DeleteTenant(t.Context(), "acme", "Ops", time.Now()); err != nil {
		t.Fatal(err)
	}
	w.gateway.Forget("orphan")
	w.want("of a deleted tenant", w.stripe("orphan", `{"id":"evt_1"}`), 503)
}

// A source whose row this version cannot use (a provider that another version knew, a secret that
// cannot be one) takes nothing unverified; its provider comes again. Without any secret nothing
// verifies, which is a refusal like any other.
func TestGateway_whatCannotVerifyAcceptsNothing(t *testing.T) {
	w := newWorld(t)
	for name, spoil := range map[string]func(*outbox.Source){
		"strange":   func(s *outbox.Source) { s.Provider = "somebody-new" },
		"toothless": func(s *outbox.Source) { s.Secrets = nil },
		"spoiled":   func(s *outbox.Source) { s.Secrets = []outbox.SourceSecret{{Value: ""}} },
	} {
		if _, _, err := w.store.PutSource(t.Context(), name, time.Now(), func(s *outbox.Source, _ bool) error {
			s.Provider, s.Tenant, s.TenantKey = "stripe", w.acme.TenantRef, "acme"
			s.Secrets = []outbox.SourceSecret{{ID: "sec_1", Value: secret}}
			spoil(s) // and nobody checks it
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		w.gateway.Forget(name)
		want := 503
		if name == "toothless" {
			want = 401
		}
		w.want(name, w.stripe(name, `{"id":"evt_1"}`), want)
		w.want(name+", unsigned", w.post(name, `{"id":"evt_1"}`), want)
	}
	if events := w.events(); len(events) != 0 {
		t.Errorf("%d events were accepted", len(events))
	}
}
