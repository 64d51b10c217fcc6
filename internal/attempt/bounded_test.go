package attempt_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/internal/attempt"
	"github.com/waybill-dev/waybill/internal/egress"
	"github.com/waybill-dev/waybill/internal/outbox"
)

// What a stranger's server can cost is bounded by what is read of it: the head of an answer up to
// 64 KiB and 16 KiB of its body, each a buffer over. However much there is, and however small it was
// packed.
func TestSender_readsNoMoreThanItKeepsOfAnyAnswer(t *testing.T) {
	const (
		deliveries = 200
		most       = (64 + 16 + 2*4 + 2) << 10 // bytes of one answer; 2 KiB for the request, which the receiver reads
	)
	if _, ok := readByProcess(t); !ok {
		t.Skip("the system does not say how much a process reads")
	}
	var bomb bytes.Buffer
	z := gzip.NewWriter(&bomb)
	zeros := make([]byte, 1<<20)
	for range 64 {
		z.Write(zeros)
	}
	z.Close()
	flood := bytes.Repeat([]byte("x"), 64<<10)
	fillers, hints := bytes.Repeat([]byte("X-Filler: y\r\n"), 1000), bytes.Repeat([]byte("HTTP/1.1 103 Early Hints\r\n\r\n"), 1000)
	b := newBench(t, egress.Config{})
	for name, row := range map[string]struct {
		behave  func(conn net.Conn)
		timeout time.Duration // 0: it ends by itself
	}{
		"a body without end": {func(conn net.Conn) {
			io.WriteString(conn, "HTTP/1.1 200 OK\r\n\r\n")
			pour(conn, flood)
		}, 0},
		"a huge body of a failure": {func(conn net.Conn) {
			io.WriteString(conn, "HTTP/1.1 500 No\r\nContent-Length: 1099511627776\r\n\r\n")
			pour(conn, flood)
		}, 0},
		"a header without end": {func(conn net.Conn) {
			io.WriteString(conn, "HTTP/1.1 200 OK\r\nX: ")
			pour(conn, flood)
		}, 0},
		"headers without end": {func(conn net.Conn) {
			io.WriteString(conn, "HTTP/1.1 200 OK\r\n")
			pour(conn, fillers)
		}, 0},
		"early hints without end": {func(conn net.Conn) {
			pour(conn, hints)
		}, 0},
		"64 MiB in 64 KiB": {func(conn net.Conn) {
			fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%s", bomb.Len(), bomb.Bytes())
		}, 0},
		"a drip": {func(conn net.Conn) {
			io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
			stream(conn, "x", 5*time.Millisecond)
		}, 100 * time.Millisecond},
		"101 and what follows": {func(conn net.Conn) {
			io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n")
			pour(conn, flood)
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSink(t, func(s *sink, conn net.Conn) {
				if s.receive(bufio.NewReader(conn)) {
					row.behave(conn)
				}
			})
			timeout := row.timeout
			if timeout == 0 {
				timeout = 30 * time.Second
			}
			target := b.Prepare(attempt.Endpoint{URL: s.url(), Secrets: []outbox.Secret{{Value: testSecret}}, Timeout: timeout})
			var memory runtime.MemStats
			runtime.ReadMemStats(&memory)
			allocated := memory.TotalAlloc
			before, _ := readByProcess(t)
			var wg sync.WaitGroup
			next := make(chan struct{})
			for range 20 {
				wg.Go(func() {
					for range next {
						if out := b.do(t, target); len(out.ResponseBody) > outbox.KeepOfFailure || out.Aborted {
							t.Errorf("kept %d bytes, %s", len(out.ResponseBody), out.Message)
						}
					}
				})
			}
			for range deliveries {
				next <- struct{}{}
			}
			close(next)
			wg.Wait()
			after, _ := readByProcess(t)
			runtime.ReadMemStats(&memory)
			if n := s.connections(); n < deliveries {
				t.Errorf("%d connections for %d answers that were not read to their end", n, deliveries)
			}
			each := (after - before) / deliveries
			t.Logf("%d bytes read and %d allocated of each answer; %s", each, (memory.TotalAlloc-allocated)/deliveries, resident())
			if each > most {
				t.Errorf("%d bytes were read of each answer, at most %d are to be", each, most)
			}
			if each := (memory.TotalAlloc - allocated) / deliveries; each > 1<<20 {
				t.Errorf("%d bytes were allocated for each answer", each)
			}
		})
	}
}

// pour writes the same bytes until the other side hangs up, and allocates nothing for it.
func pour(conn net.Conn, piece []byte) {
	for {
		if _, err := conn.Write(piece); err != nil {
			return
		}
	}
}

// readByProcess is how many bytes this process has read by system calls so far.
func readByProcess(t *testing.T) (total uint64, ok bool) {
	t.Helper()
	text, err := os.ReadFile("/proc/self/io")
	if err != nil {
		return 0, false
	}
	_, err = fmt.Sscanf(string(text), "rchar: %d", &total)
	return total, err == nil
}

// resident is the line of the process's memory, where the system has one.
func resident() string {
	text, _ := os.ReadFile("/proc/self/status")
	_, after, _ := strings.Cut(string(text), "VmRSS:")
	line, _, _ := strings.Cut(after, "\n")
	return "resident: " + strings.TrimSpace(line)
}
