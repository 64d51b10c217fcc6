package attempt_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"io"
	"net"
	"runtime"
	"runtime/metrics"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/internal/attempt"
	"github.com/waybill-dev/waybill/internal/egress"
	"github.com/waybill-dev/waybill/internal/outbox"
)

// A thousand deliveries to each kind of server that means harm, a hundred at a time: what they hold
// meanwhile is bounded, and nothing of it is held afterwards.
func TestSender_hostileAnswersHoldNoMemory(t *testing.T) {
	const peak, left = 32 << 20, 4 << 20
	bomb := gzipped(512 << 20)
	big := strings.Repeat("x", 64<<10)
	chunks := strings.Repeat("1\r\nx\r\n", 1000)
	hints := strings.Repeat("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n", 100)
	deliveries := 1000
	if testing.Short() {
		deliveries = 200
	}
	b := newBench(t, egress.Config{})
	for name, row := range map[string]struct {
		behave func(conn net.Conn)
		want   outbox.Outcome
	}{
		"a gzip bomb": {func(conn net.Conn) {
			io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n")
			conn.Write(bomb)
		}, outbox.OutcomeDelivered},
		"a body without end": {func(conn net.Conn) {
			io.WriteString(conn, "HTTP/1.1 200 OK\r\n\r\n")
			stream(conn, big, 0)
		}, outbox.OutcomeDelivered},
		"a failure without end": {func(conn net.Conn) {
			io.WriteString(conn, "HTTP/1.1 500 No\r\n\r\n")
			stream(conn, big, 0)
		}, outbox.OutcomeTransient},
		"chunks without end": {func(conn net.Conn) {
			io.WriteString(conn, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
			stream(conn, chunks, 0)
		}, outbox.OutcomeDelivered},
		"a header without end": {func(conn net.Conn) {
			io.WriteString(conn, "HTTP/1.1 200 OK\r\nX: ")
			stream(conn, big, 0)
		}, outbox.OutcomeTransient},
		"early hints without end": {func(conn net.Conn) { stream(conn, hints, 0) }, outbox.OutcomeTransient},
		"101, then a flood": {func(conn net.Conn) {
			io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n")
			stream(conn, big, 0)
		}, outbox.OutcomeTransient},
		"a drip": {func(conn net.Conn) {
			io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
			stream(conn, "x", 10*time.Millisecond)
		}, outbox.OutcomeDelivered},
		"silence": {func(conn net.Conn) { io.Copy(io.Discard, conn) }, outbox.OutcomeTransient},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSink(t, func(s *sink, conn net.Conn) {
				if s.receive(bufio.NewReader(conn)) {
					row.behave(conn)
				}
			})
			target := b.Prepare(attempt.Endpoint{URL: s.url(), Secrets: []outbox.Secret{{Value: testSecret}}, Timeout: 100 * time.Millisecond})
			before := liveHeap()
			var next atomic.Int64
			var wrong atomic.Pointer[attempt.Outcome]
			highest := watchHeap(t, func() {
				var workers sync.WaitGroup
				for range 100 {
					workers.Go(func() {
						for int(next.Add(1)) <= deliveries {
							out := b.Do(t.Context(), attempt.Request{Target: target, Event: testEvent, EventType: "a", N: 1, Payload: []byte("{}")})
							if len(out.ResponseBody) > outbox.KeepOfFailure || out.Kind != outbox.KindTimeout && out.Outcome != row.want {
								wrong.Store(&out)
							}
						}
					})
				}
				workers.Wait()
			})
			if out := wrong.Load(); out != nil {
				t.Errorf("ended as %s, %s (%s), %d bytes kept; want %s", out.Outcome, out.Kind, out.Message, len(out.ResponseBody), row.want)
			}
			t.Logf("at most %d KiB were held at once", (highest-before)>>10)
			if grown := highest - before; grown > peak {
				t.Errorf("%d MiB were held at once, at most %d may be", grown>>20, peak>>20)
			}
			if grown := liveHeap() - before; grown > left {
				t.Errorf("%d KiB are still held", grown>>10)
			}
		})
	}
}

// gzipped is so many zeros, packed.
func gzipped(n int64) []byte {
	var packed bytes.Buffer
	w, _ := gzip.NewWriterLevel(&packed, gzip.BestSpeed)
	zeros := make([]byte, 1<<20)
	for range n >> 20 {
		w.Write(zeros)
	}
	w.Close()
	return packed.Bytes()
}

// liveHeap is what is held once the garbage is gone.
func liveHeap() int64 {
	runtime.GC()
	runtime.GC() // what the first one only finalised
	return heapNow()
}

func heapNow() int64 {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(sample)
	return int64(sample[0].Value.Uint64())
}

// watchHeap returns the most that was on the heap, garbage included, while work was done.
func watchHeap(t *testing.T, work func()) (highest int64) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		work()
	}()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return max(highest, heapNow())
		case <-tick.C:
			highest = max(highest, heapNow())
		}
	}
}
