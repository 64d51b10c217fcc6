package receive_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/receive"
	"github.com/waybill-dev/waybill/receive/providers"
	"github.com/waybill-dev/waybill/receive/receivetest"
)

// freeStore costs nothing, so that what is measured is the receiver.
type freeStore struct{ receive.InboxStore }

var oneNew = []receive.Found{{New: true}}

func (freeStore) Put(context.Context, []receive.Record) ([]receive.Found, error) { return oneNew, nil }

func (freeStore) Claim(_ context.Context, r *receive.Record, token receive.Token, _ time.Duration) (receive.Found, error) {
	return receive.Found{State: receive.Held, Claim: &receive.Claim{Key: r.Key, Token: token, Granted: true, Run: 1, Fence: 1}}, nil
}

func (freeStore) Settle(context.Context, *receive.Claim, receive.Outcome) error { return nil }

// nowhere is a ResponseWriter that keeps nothing.
type nowhere struct{ header http.Header }

func (n nowhere) Header() http.Header         { return n.header }
func (n nowhere) Write(p []byte) (int, error) { return len(p), nil }
func (n nowhere) WriteHeader(int)             {}

// The target is 10 µs for a request of 1 KB, without its store.
func BenchmarkReceive(b *testing.B) {
	src := receivetest.NewSource(b, "billing", providers.Stripe())
	in, err := receive.NewInbox(b.Context(), receive.InboxConfig{Source: src, Store: freeStore{}, Handler: (&counter{}).handle, RunElsewhere: true})
	if err != nil {
		b.Fatal(err)
	}
	s, err := receive.NewSync(b.Context(), receive.SyncConfig{Source: src, Store: freeStore{}, Handler: (&counter{}).handle})
	if err != nil {
		b.Fatal(err)
	}
	body := `{"id":"evt_1","type":"invoice.paid","data":{"pad":"` + strings.Repeat("x", 960) + `"}}`
	for name, h := range map[string]http.Handler{"Inbox": in, "Sync": s} {
		b.Run(name, func(b *testing.B) {
			r := receivetest.Request(b, src, body)
			w := nowhere{http.Header{}}
			sent := []byte(body)
			raw := bytes.NewReader(sent)
			b.ReportAllocs()
			before := cpuTime(b)
			b.SetBytes(int64(len(body)))
			for b.Loop() {
				raw.Reset(sent)
				r.Body = io.NopCloser(raw)
				h.ServeHTTP(w, r)
			}
			// On a machine that does other things as well the time that passed says little.
			b.ReportMetric(float64(cpuTime(b)-before)/float64(b.N), "cpu-ns/op")
		})
	}
}

// cpuTime is what this process has used of the processors.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
