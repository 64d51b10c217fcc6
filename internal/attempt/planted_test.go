package attempt_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/internal/attempt"
	"github.com/waybill-dev/waybill/internal/egress"
	"github.com/waybill-dev/waybill/internal/outbox"
)

// plants are answers with more behind them than was asked for; what is in the second half is
// written on its own.
var plants = [][2]string{
	{reply(200, "", "") + reply(200, "", ""), ""},
	{reply(200, "", ""), reply(200, "", "")},
	{reply(200, "", "ok") + strings.Repeat(reply(200, "", ""), 3), ""},
	{"HTTP/1.1 204 No Content\r\n\r\n" + reply(200, "", ""), ""},
	{"HTTP/1.1 204 No Content\r\n\r\n", reply(200, "", "")},
	{"HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\nhello", ""},
	{"HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n", "hello"},
	{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n" + reply(200, "", ""), ""},
	{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", reply(200, "", "")},
}

// Two tenants have an endpoint each on one host and port. One plants answers that nobody asked
// for; the other fails every event. Not one of its events may count as delivered, nor may it be
// told that it broke the protocol.
func TestSender_aPlantedAnswerSettlesNobodyElsesDelivery(t *testing.T) {
	var n atomic.Int64
	s := newSink(t, func(s *sink, conn net.Conn) {
		for r := bufio.NewReader(conn); ; {
			request, ok := s.next(r)
			if !ok {
				return
			}
			if strings.HasPrefix(request, "POST /victim") {
				io.WriteString(conn, reply(500, "", ""))
				continue
			}
			plant := plants[int(n.Add(1))%len(plants)]
			io.WriteString(conn, plant[0])
			if plant[1] != "" {
				io.WriteString(conn, plant[1])
			}
		}
	})
	b := newBench(t, egress.Config{})
	target := func(path string) *attempt.Target {
		return b.Prepare(attempt.Endpoint{
			ID:      outbox.NewEndpointID(time.Now()),
			URL:     "http://" + s.Addr().String() + path,
			Secrets: []outbox.Secret{{Value: testSecret}},
		})
	}
	const events, workers = 600, 20
	var wg sync.WaitGroup
	for _, path := range []string{"/evil", "/victim"} {
		to := target(path)
		for range workers {
			wg.Go(func() {
				for range events / workers {
					out := b.do(t, to)
					if path == "/victim" && (out.Kind != outbox.KindHTTPStatus || out.StatusCode != 500) {
						t.Errorf("the victim's attempt ended as %s %s %d (%s)", out.Outcome, out.Kind, out.StatusCode, out.Message)
					}
				}
			})
		}
	}
	wg.Wait()
}

// The same at one endpoint: an event that the receiver refuses is not delivered, whatever it
// glued behind the answer to the event before.
func TestSender_aGluedAnswerSettlesNoOtherDelivery(t *testing.T) {
	var n atomic.Int64
	s := newSink(t, func(s *sink, conn net.Conn) {
		for r := bufio.NewReader(conn); ; {
			request, ok := s.next(r)
			switch {
			case !ok:
				return
			case strings.HasSuffix(request, "refuse"):
				io.WriteString(conn, reply(500, "", ""))
			default:
				plant := plants[int(n.Add(1))%len(plants)]
				io.WriteString(conn, plant[0]+plant[1])
			}
		}
	})
	b := newBench(t, egress.Config{})
	target := b.Prepare(attempt.Endpoint{URL: s.url(), Secrets: []outbox.Secret{{Value: testSecret}}})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := range 100 {
				payload, want := "accept", outbox.OutcomeDelivered
				if i%2 == 1 {
					payload, want = "refuse", outbox.OutcomeTransient
				}
				out := b.Do(t.Context(), attempt.Request{Target: target, Event: testEvent, EventType: "a", N: 1, Sequence: int64(i), Payload: []byte(payload)})
				if out.Outcome != want || want == outbox.OutcomeTransient && out.StatusCode != 500 {
					t.Errorf("%s: %s %s %d (%s)", payload, out.Outcome, out.Kind, out.StatusCode, out.Message)
				}
			}
		})
	}
	wg.Wait()
}

// A status line that came is what is recorded, also of a receiver that hangs up on a large event.
func TestSender_anAnswerToAHalfReadEventIsRecorded(t *testing.T) {
	s := newSink(t, func(_ *sink, conn net.Conn) {
		if _, err := bufio.NewReader(conn).ReadString('\n'); err == nil {
			io.WriteString(conn, reply(413, "Connection: close\r\n", "too large"))
		}
	})
	b := newBench(t, egress.Config{})
	target := b.Prepare(attempt.Endpoint{URL: s.url(), Secrets: []outbox.Secret{{Value: testSecret}}})
	for _, size := range []int{2, 10 << 10, 100 << 10, 1 << 20} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			for range 50 {
				out := b.Do(t.Context(), attempt.Request{Target: target, Event: testEvent, EventType: "a", N: 1, Sequence: 1, Payload: make([]byte, size)})
				expect(t, out, verdict{outbox.OutcomePermanent, outbox.KindHTTPStatus, 413})
			}
		})
	}
}
