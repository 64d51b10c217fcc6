package api

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// instantly accepts everything, so that what is measured is the API alone.
type instantly struct{}

func (instantly) Submit(_ context.Context, events []outbox.NewEvent) ([]outbox.Accepted, []outbox.Conflict, error) {
	out := make([]outbox.Accepted, len(events))
	for i := range events {
		out[i] = outbox.Accepted{ID: events[i].ID, CreatedAt: events[i].CreatedAt}
	}
	return out, nil, nil
}

// oneTenant is a store that knows a single tenant and nothing else.
type oneTenant struct{ Store }

func (oneTenant) Tenant(_ context.Context, key string) (outbox.Tenant, error) {
	return outbox.NewTenant(key, time.Now()), nil
}

// discard is an http.ResponseWriter without a connection.
type discard struct{ header http.Header }

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) WriteHeader(int)             {}
func (d *discard) Write(p []byte) (int, error) { return len(p), nil }

var kilobyte = `{"type":"payment.succeeded","payload":{"id":"pay_0123456789","text":"` + strings.Repeat("lorem ipsum ", 80) + `"}}`

func BenchmarkPublish_handler(b *testing.B) {
	handler, err := New(Config{Store: oneTenant{}, Publisher: instantly{}, Guard: testGuard{}, BootstrapKey: operatorKey})
	if err != nil {
		b.Fatal(err)
	}
	body := strings.NewReader(kilobyte)
	r, err := http.NewRequestWithContext(b.Context(), "POST", "/v1/tenants/acme/events", body)
	if err != nil {
		b.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+operatorKey)
	r.Header.Set("Content-Type", "application/json")
	w := &discard{header: http.Header{}}
	b.ReportAllocs()
	for b.Loop() {
		body.Reset(kilobyte)
		handler.ServeHTTP(w, r)
	}
}

func BenchmarkPublish_reading(b *testing.B) {
	in := intake{now: time.Now(), maxPayload: 1 << 20}
	body := []byte(kilobyte)
	tenant := &outbox.Tenant{}
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		it, err := in.single(body)
		if err != nil {
			b.Fatal(err)
		}
		in.finish(&it.NewEvent, tenant)
	}
}
