package attempt_test

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/internal/attempt"
	"github.com/waybill-dev/waybill/internal/egress"
	"github.com/waybill-dev/waybill/internal/outbox"
	"github.com/waybill-dev/waybill/signature"
)

// benchSink answers every request with 200 and a two-byte body. It is written by hand so that
// what is measured is the client: of a request it looks at the length of the body only.
func benchSink(b *testing.B) string {
	b.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				for r := bufio.NewReaderSize(conn, 16<<10); ; {
					length := 0
					for {
						line, err := r.ReadSlice('\n')
						if err != nil {
							return
						}
						if len(line) == 2 {
							break
						}
						if digits, ok := bytes.CutPrefix(line, []byte("Content-Length: ")); ok {
							length, _ = strconv.Atoi(string(digits[:len(digits)-2]))
						}
					}
					r.Discard(length)
					conn.Write([]byte("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nDate: Mon, 30 Nov 2026 12:00:00 GMT\r\nContent-Length: 2\r\n\r\nok"))
				}
			}()
		}
	}()
	return "http://" + l.Addr().String() + "/hook"
}

var kilobyte = []byte(`{"data":"` + strings.Repeat("x", 1013) + `"}`)

// The floor: a client that signs nothing, records nothing and classifies nothing.
func BenchmarkDo_bareClient(b *testing.B) {
	url := benchSink(b)
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 256, DisableCompression: true}}
	b.Cleanup(client.CloseIdleConnections)
	b.ReportAllocs()
	for b.Loop() {
		res, err := client.Post(url, "application/json", bytes.NewReader(kilobyte))
		if err != nil {
			b.Fatal(err)
		}
		io.Copy(io.Discard, res.Body)
		res.Body.Close()
	}
}

// The raw limit of the benchmark command: the same client, signing, recording nothing.
func BenchmarkDo_signingClient(b *testing.B) {
	url := benchSink(b)
	secret, err := signature.ParseSecret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	if err != nil {
		b.Fatal(err)
	}
	signer, err := signature.NewSigner(secret)
	if err != nil {
		b.Fatal(err)
	}
	client := &http.Client{Timeout: outbox.DefaultTimeout, Transport: &http.Transport{MaxIdleConnsPerHost: 256, DisableCompression: true}}
	b.Cleanup(client.CloseIdleConnections)
	b.ReportAllocs()
	for b.Loop() {
		now := time.Now()
		req, err := http.NewRequestWithContext(b.Context(), http.MethodPost, url, bytes.NewReader(kilobyte))
		if err != nil {
			b.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Webhook-Id", "evt_1")
		req.Header.Set("Webhook-Timestamp", strconv.FormatInt(now.Unix(), 10))
		req.Header.Set("Webhook-Signature", signer.Sign("evt_1", now, kilobyte))
		res, err := client.Do(req)
		if err != nil {
			b.Fatal(err)
		}
		io.Copy(io.Discard, res.Body)
		res.Body.Close()
	}
}

func BenchmarkDo_attempt(b *testing.B) {
	url := benchSink(b)
	s := newBench(b, egress.Config{})
	target := s.Prepare(attempt.Endpoint{URL: url, Secrets: []outbox.Secret{{Value: "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}}})
	event := outbox.NewEventID(s.clock.Now())
	b.ReportAllocs()
	for b.Loop() {
		out := s.Do(b.Context(), attempt.Request{Target: target, Event: event, EventType: "bench.event", N: 1, Sequence: 1, Trigger: outbox.TriggerSchedule, Payload: kilobyte})
		if out.Outcome != outbox.OutcomeDelivered {
			b.Fatal(out.Kind, out.Message)
		}
	}
}
