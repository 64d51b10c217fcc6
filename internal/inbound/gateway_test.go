package inbound_test

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/internal/inbound"
	"github.com/waybill-dev/waybill/internal/keyring"
	"github.com/waybill-dev/waybill/internal/outbox"
	"github.com/waybill-dev/waybill/internal/publish"
	"github.com/waybill-dev/waybill/internal/sqlite"
	"github.com/waybill-dev/waybill/receive/providers"
	"github.com/waybill-dev/waybill/receive/receivetest"
)

// world is a gateway over a real store, and what providers do to it.
type world struct {
	t       *testing.T
	store   *breakable
	gateway *inbound.Gateway
	mux     *http.ServeMux
	clock   *outbox.Clock
	acme    outbox.Tenant
	log     bytes.Buffer
}

// breakable is the store, except while it is told to fail.
type breakable struct {
	outbox.Store
	err   atomic.Pointer[error]
	hang  atomic.Bool
	calls atomic.Int64 // that could write
}

func (b *breakable) InsertEvents(ctx context.Context, batch []outbox.NewEvent) ([]outbox.Accepted, []outbox.Conflict, error) {
	b.calls.Add(1)
	if b.hang.Load() {
		<-ctx.Done()
		return nil, nil, &outbox.WriteError{Fault: outbox.FaultRetry, Err: ctx.Err()}
	}
	if err := b.err.Load(); err != nil {
		return nil, nil, *err
	}
	return b.Store.InsertEvents(ctx, batch)
}

func (b *breakable) RecordRequests(ctx context.Context, requests []outbox.InboundRequest) error {
	if err := b.err.Load(); err != nil {
		return *err
	}
	return b.Store.RecordRequests(ctx, requests)
}

func (b *breakable) Source(ctx context.Context, name string) (outbox.Source, error) {
	if b.hang.Load() {
		<-ctx.Done()
		return outbox.Source{}, ctx.Err()
	}
	if err := b.err.Load(); err != nil {
		return outbox.Source{}, *err
	}
	return b.Store.Source(ctx, name)
}

func newWorld(t *testing.T) *world {
	t.Helper()
	keys, err := keyring.New(keyring.NewKey())
	if err != nil {
		t.Fatal(err)
	}
	store, err := sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(t.TempDir(), "waybill.db"), Keyring: keys})
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, store: &breakable{Store: store}, clock: &outbox.Clock{}, mux: http.NewServeMux()}
	if w.acme, _, err = store.PutTenant(t.Context(), "acme", time.Now(), func(*outbox.Tenant, bool) error { return nil }); err != nil {
		t.Fatal(err)
	}
	committer := publish.New(publish.Config{Store: w.store, RetryFor: 200 * time.Millisecond, CommitTimeout: time.Second})
	w.gateway = inbound.New(inbound.Config{
		Store: w.store, Publisher: committer, Clock: w.clock,
		Log: slog.New(slog.NewTextHandler(&lockedWriter{w: &w.log}, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	w.mux.Handle("/in/{source}", w.gateway)
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	running.Go(func() { w.gateway.Run(ctx) })
	t.Cleanup(func() {
		stop()
		running.Wait()
		closing, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 5*time.Second)
		defer cancel()
		committer.Close(closing)
		store.Close()
	})
	return w
}

type lockedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *lockedWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

const secret = "whsec_this_is_a_secret_of_the_tests"

// source makes a source of a provider with one secret.
func (w *world) source(name, provider string, change ...func(*outbox.Source)) {
	w.t.Helper()
	_, _, err := w.store.PutSource(w.t.Context(), name, time.Now(), func(s *outbox.Source, _ bool) error {
		s.Provider, s.Tenant, s.TenantKey = provider, w.acme.TenantRef, "acme"
		s.Secrets = []outbox.SourceSecret{{ID: "sec_1", Value: secret}}
		for _, c := range change {
			c(s)
		}
		_, err := inbound.Check(s)
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.gateway.Forget(name)
}

func secrets(values ...string) func(*outbox.Source) {
	return func(s *outbox.Source) {
		s.Secrets = nil
		for _, v := range values {
			s.Secrets = append(s.Secrets, outbox.SourceSecret{ID: v[:4], Value: v})
		}
	}
}

// post sends body with headers, name and value in turn, and returns the answer.
func (w *world) post(source, body string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, "/in/"+source, strings.NewReader(body))
	return w.send(r, headers...)
}

func (w *world) send(r *http.Request, headers ...string) *httptest.ResponseRecorder {
	for i := 0; i < len(headers); i += 2 {
		r.Header[headers[i]] = append(r.Header[headers[i]], headers[i+1])
	}
	answer := httptest.NewRecorder()
	w.mux.ServeHTTP(answer, r)
	return answer
}

func (w *world) want(what string, answer *httptest.ResponseRecorder, status int) {
	w.t.Helper()
	if answer.Code != status {
		w.t.Errorf("%s: %d, want %d", what, answer.Code, status)
	}
}

// events are what is stored for acme, by the provider's id, with their bytes.
func (w *world) events() []outbox.Event {
	w.t.Helper()
	views, _, err := w.store.Events(w.t.Context(), outbox.EventQuery{Tenant: w.acme.TenantRef}, outbox.Page{Limit: 250, Ascending: true})
	if err != nil {
		w.t.Fatal(err)
	}
	var out []outbox.Event
	for _, v := range views {
		e := v.Event
		if e.Payload, err = w.store.Payload(w.t.Context(), w.acme.TenantRef, e.ID); err != nil {
			w.t.Fatal(err)
		}
		out = append(out, e)
	}
	slices.SortFunc(out, func(a, b outbox.Event) int { return strings.Compare(a.Metadata["source_id"], b.Metadata["source_id"]) })
	return out
}

func (w *world) count(want int) {
	w.t.Helper()
	if n := len(w.events()); n != want {
		w.t.Errorf("%d events, want %d", n, want)
	}
}

// requests are what the source's list shows, once something of the outcome is in it.
func (w *world) requests(source string, outcome outbox.InboundOutcome, want int) []outbox.InboundRequest {
	w.t.Helper()
	src, err := w.store.Source(w.t.Context(), source)
	if err != nil {
		w.t.Fatal(err)
	}
	for deadline := time.Now().Add(5 * time.Second); ; {
		list, _, err := w.store.Requests(w.t.Context(), outbox.RequestQuery{Source: src.ID, Shard: outbox.SourceShard(source), Outcome: outcome}, outbox.Page{Limit: 250})
		if err != nil {
			w.t.Fatal(err)
		}
		if len(list) == want {
			return list
		}
		if time.Now().After(deadline) {
			w.t.Fatalf("%d requests are %s, want %d", len(list), outcome, want)
		}
		<-time.After(20 * time.Millisecond)
	}
}

func mac(key, text string) []byte {
	h := hmac.New(sha256.New, []byte(key))
	h.Write([]byte(text))
	return h.Sum(nil)
}

func hexed(key, text string) string { return hex.EncodeToString(mac(key, text)) }

// stripe is the header Stripe would send now.
func stripe(body string, keys ...string) string {
	return stripeAt(fmt.Sprint(time.Now().Unix()), body, keys...)
}

func stripeAt(at, body string, keys ...string) string {
	header := "t=" + at
	for _, key := range keys {
		header += ",v1=" + hexed(key, at+"."+body)
	}
	return header
}

func (w *world) stripe(source, body string) *httptest.ResponseRecorder {
	return w.post(source, body, "Stripe-Signature", stripe(body, secret), "Content-Type", "application/json")
}

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

func TestGateway_repeats(t *testing.T) {
	w := newWorld(t)
	w.source("one", "stripe")
	w.source("two", "stripe")
	body := `{"id":"evt_1","type":"a.b"}`
	w.want("first", w.stripe("one", body), 200)
	w.want("again", w.stripe("one", body), 200)
	w.count(1)
	first := w.events()[0].ID
	w.want("the same event at another address", w.stripe("two", body), 200)
	w.want("an id in other letters", w.stripe("one", `{"id":"EVT_1","type":"a.b"}`), 200)
	w.count(3)
	dup := w.requests("one", outbox.InboundDuplicate, 1)[0]
	if dup.ProviderID != "evt_1" || dup.Event != first {
		t.Errorf("duplicate %+v", dup)
	}

	// Another body under an id that is signed: kept beside the first, and shown.
	w.want("another body", w.stripe("one", `{"id":"evt_1","type":"a.c"}`), 200)
	w.count(3)
	kept := w.requests("one", outbox.InboundQuarantined, 1)[0]
	if string(kept.Body) != `{"id":"evt_1","type":"a.c"}` || kept.Event != first {
		t.Errorf("quarantined %+v", kept)
	}
	w.requests("one", outbox.InboundAccepted, 2)
}

// An id outside the signature can be put on any old signed body. It must not take the place of the
// real event of that id.
func TestGateway_unsignedIDsAreGuardedByTheBody(t *testing.T) {
	w := newWorld(t)
	w.source("gh", "github")
	github := func(id, body string) *httptest.ResponseRecorder {
		return w.post("gh", body, "X-Hub-Signature-256", "sha256="+hexed(secret, body), "X-Github-Delivery", id)
	}
	w.want("an old body under the next event's id", github("guid-2", `{"n":1}`), 200)
	w.want("the next event", github("guid-2", `{"n":2}`), 200)
	w.want("its repeat", github("guid-2", `{"n":2}`), 200)
	w.count(2)

	// Shopify gives one id to an event under each of its topics.
	w.source("shop", "shopify")
	shopify := func(topic string) *httptest.ResponseRecorder {
		return w.post("shop", `{"id":1}`, "X-Shopify-Hmac-Sha256", base64.StdEncoding.EncodeToString(mac(secret, `{"id":1}`)), "X-Shopify-Event-Id", "e1", "X-Shopify-Topic", topic)
	}
	w.want("orders/create", shopify("orders/create"), 200)
	w.want("orders/paid", shopify("orders/paid"), 200)
	w.want("orders/paid again", shopify("orders/paid"), 200)
	w.count(4)
}

func TestGateway_withoutAnID(t *testing.T) {
	w := newWorld(t)
	custom := func(s *outbox.Source) {
		s.Settings.Verify = &outbox.SourceCheck{Signed: "{body}", Header: "X-Sig", Form: "{hex}"}
	}
	w.source("plain", inbound.Custom, custom)
	w.source("merged", inbound.Custom, custom, func(s *outbox.Source) { s.Settings.ID = &outbox.SourcePlace{BodyWithin: time.Hour} })
	for range 2 {
		for _, name := range []string{"plain", "merged"} {
			w.want(name, w.post(name, `{"a":1}`, "X-Sig", hexed(secret, `{"a":1}`)), 200)
		}
	}
	of := map[string]int{}
	for _, e := range w.events() {
		of[e.Metadata["source"]]++
	}
	if of["plain"] != 2 || of["merged"] != 1 {
		t.Errorf("events %v: two equal events are two, unless the source says otherwise", of)
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

// SendGrid sends arrays; each element is an event of its own, with an id of its own.
func TestGateway_batches(t *testing.T) {
	w := newWorld(t)
	mail := receivetest.NewSource(t, "mail", providers.SendGrid())
	w.source("mail", "sendgrid", secrets(mail.Secrets[0].Value))
	send := func(body string) *httptest.ResponseRecorder {
		r := receivetest.Request(t, mail, body)
		r.URL.Path = "/in/mail"
		return w.send(r)
	}
	const one, two, three = `{"sg_event_id":"1","event":"open"}`, `{ "sg_event_id": "2", "event":"click" }`, `{"sg_event_id":"3","event":"bounce"}`
	w.want("one", send("["+one+"]"), 200)
	w.want("three, of which one is known", send("[\r\n"+one+",\r\n"+two+",\r\n"+three+"]\r\n"), 200)
	events := w.events()
	if len(events) != 3 || string(events[1].Payload) != two || events[1].Type != "click" || string(events[2].Payload) != three {
		t.Errorf("events %+v", events)
	}
	w.requests("mail", outbox.InboundDuplicate, 1)
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

// A hundred copies at once are one event, and each of them a success.
func TestGateway_aHundredCopiesAtOnce(t *testing.T) {
	w := newWorld(t)
	w.source("billing", "stripe")
	body := `{"id":"evt_1","type":"a.b"}`
	var group sync.WaitGroup
	for range 100 {
		group.Go(func() {
			if answer := w.stripe("billing", body); answer.Code != 200 {
				t.Errorf("%d", answer.Code)
			}
		})
	}
	group.Wait()
	w.count(1)
}
