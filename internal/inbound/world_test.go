package inbound_test

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
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

	"github.com/waybill-dev/waybill/internal/catalogue"
	"github.com/waybill-dev/waybill/internal/inbound"
	"github.com/waybill-dev/waybill/internal/keyring"
	"github.com/waybill-dev/waybill/internal/outbox"
	"github.com/waybill-dev/waybill/internal/publish"
	"github.com/waybill-dev/waybill/internal/sqlite"
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

func (b *breakable) Quarantine(ctx context.Context, requests []outbox.InboundRequest) ([]outbox.Quarantined, error) {
	if err := b.err.Load(); err != nil {
		return nil, *err
	}
	return b.Store.Quarantine(ctx, requests)
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
		Store: w.store, Publisher: committer, Clock: w.clock, Catalogue: catalogue.New(w.store),
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

// requestsNow are what the source's list shows at this moment.
func (w *world) requestsNow(source string, outcome outbox.InboundOutcome) []outbox.InboundRequest {
	w.t.Helper()
	src, err := w.store.Source(w.t.Context(), source)
	if err != nil {
		w.t.Fatal(err)
	}
	list, _, err := w.store.Requests(w.t.Context(), outbox.RequestQuery{Source: src.ID, Shard: outbox.SourceShard(source), Outcome: outcome}, outbox.Page{Limit: 250})
	if err != nil {
		w.t.Fatal(err)
	}
	return list
}

// requests are what the source's list shows, once something of the outcome is in it.
func (w *world) requests(source string, outcome outbox.InboundOutcome, want int) []outbox.InboundRequest {
	w.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; {
		list := w.requestsNow(source, outcome)
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
