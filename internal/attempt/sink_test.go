package attempt_test

import (
	"bufio"
	"bytes"
	"crypto/x509"
	"flag"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"
	"os"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/waybill-dev/waybill/internal/attempt"
	"github.com/waybill-dev/waybill/internal/egress"
	"github.com/waybill-dev/waybill/internal/outbox"
)

// TestMain fails the run if attempts leave goroutines behind.
func TestMain(m *testing.M) {
	log.SetOutput(io.Discard) // net/http's servers report there what these tests do to them
	before := runtime.NumGoroutine()
	code := m.Run()
	fuzzing := flag.Lookup("test.fuzz").Value.String() != "" // which goes on listening for signals
	if code == 0 && !fuzzing && !settles(before) {
		io.WriteString(os.Stderr, "goroutines left behind:\n")
		buf := make([]byte, 1<<20)
		os.Stderr.Write(buf[:runtime.Stack(buf, true)])
		code = 1
	}
	os.Exit(code)
}

func settles(before int) bool {
	deadline := time.After(5 * time.Second)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for runtime.NumGoroutine() > before {
		select {
		case <-deadline:
			return false
		case <-tick.C:
		}
	}
	return true
}

const testSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

// sink is a receiver that answers with raw bytes, or does worse.
type sink struct {
	net.Listener

	mu       sync.Mutex
	requests []string // raw, in order of arrival
	conns    int
}

// newSink starts a receiver on loopback. behave is called once for every connection and should
// return when it is done with it; the connection is closed then.
func newSink(t testing.TB, behave func(s *sink, conn net.Conn)) *sink {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return newSinkOn(t, l, behave)
}

func newSinkOn(t testing.TB, l net.Listener, behave func(s *sink, conn net.Conn)) *sink {
	t.Helper()
	s := &sink{Listener: l}
	var wg sync.WaitGroup
	var open sync.Map
	wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			open.Store(conn, nil)
			s.mu.Lock()
			s.conns++
			s.mu.Unlock()
			wg.Go(func() {
				defer conn.Close()
				behave(s, conn)
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		open.Range(func(conn, _ any) bool { conn.(net.Conn).Close(); return true })
		wg.Wait()
	})
	return s
}

// framed matches answers that end without the connection ending.
var framed = regexp.MustCompile(`(?i)\nContent-Length: |\nTransfer-Encoding: chunked|^HTTP/1.1 (204|101)`)

// answers makes a receiver that reads a request, answers it with the given bytes and goes on
// with the next request of the connection; the last answer repeats. It hangs up after an answer
// whose end cannot be known otherwise, and after one that contains the word "close".
func answers(t testing.TB, replies ...string) *sink {
	t.Helper()
	n := 0
	return newSink(t, func(s *sink, conn net.Conn) {
		for r := bufio.NewReader(conn); ; {
			if !s.receive(r) {
				return
			}
			s.mu.Lock()
			reply := replies[min(n, len(replies)-1)]
			n++
			s.mu.Unlock()
			io.WriteString(conn, reply)
			if !framed.MatchString(reply) || strings.Contains(reply, "close") {
				return
			}
		}
	})
}

// receive reads one request, whole, and records its bytes.
func (s *sink) receive(r *bufio.Reader) bool {
	_, ok := s.next(r)
	return ok
}

// next is receive for those who want to see the request.
func (s *sink) next(r *bufio.Reader) (string, bool) {
	var raw bytes.Buffer
	length := 0
	for {
		line, err := r.ReadBytes('\n')
		if err != nil {
			return "", false
		}
		raw.Write(line)
		if len(line) == 2 {
			break
		}
		name, value, _ := bytes.Cut(line, []byte(":"))
		if bytes.EqualFold(name, []byte("Content-Length")) {
			length, _ = strconv.Atoi(string(bytes.TrimSpace(value)))
		}
	}
	if _, err := io.CopyN(&raw, r, int64(length)); err != nil {
		return "", false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = append(s.requests, raw.String())
	return raw.String(), true
}

func (s *sink) received() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.requests...)
}

func (s *sink) connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.conns
}

func (s *sink) port() string {
	_, port, _ := net.SplitHostPort(s.Addr().String())
	return port
}

func (s *sink) url() string { return "http://" + s.Addr().String() + "/hook" }

// bench is a sender that may reach loopback, with what a test wants to set about it.
type bench struct {
	*attempt.Sender
	clock *outbox.Clock
	guard *egress.Guard
}

func newBench(t testing.TB, cfg egress.Config) bench {
	t.Helper()
	cfg.Policy.Allow = append(cfg.Policy.Allow, netip.MustParsePrefix("127.0.0.0/8"))
	guard, err := egress.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(guard.Close)
	clock := &outbox.Clock{}
	return bench{attempt.New(attempt.Config{Guard: guard, Clock: clock, UserAgent: "Waybill/test"}), clock, guard}
}

// at stops nothing: it sets the sender's clock to a time.
func (b bench) at(now time.Time) { b.clock.Set(now, time.Now()) }

var testEvent = outbox.NewEventID(time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC))

// send makes one attempt to a URL.
func (b bench) send(t testing.TB, url string, change ...func(*attempt.Endpoint)) attempt.Outcome {
	t.Helper()
	e := attempt.Endpoint{URL: url, Secrets: []outbox.Secret{{Value: testSecret}}, Timeout: 5 * time.Second}
	for _, c := range change {
		c(&e)
	}
	return b.do(t, b.Prepare(e))
}

func (b bench) do(t testing.TB, target *attempt.Target) attempt.Outcome {
	t.Helper()
	return b.Do(t.Context(), attempt.Request{
		Target: target, Event: testEvent, EventType: "payment.succeeded", N: 3, Sequence: 42,
		Trigger: outbox.TriggerSchedule, Payload: []byte(`{"id":"pay_1"}`),
	})
}

func within(d time.Duration) func(*attempt.Endpoint) {
	return func(e *attempt.Endpoint) { e.Timeout = d }
}

// names starts a DNS server that knows names on loopback: those in addrs by their address, those
// in rcodes by their failure. A name that is in neither does not exist.
func names(t testing.TB, addrs map[string]string, rcodes map[string]int) string {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	started := make(chan struct{})
	srv := &dns.Server{PacketConn: conn, NotifyStartedFunc: func() { close(started) }, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, req *dns.Msg) {
		q := req.Question[0]
		reply := new(dns.Msg).SetReply(req)
		reply.RecursionAvailable = true
		name := q.Name[:len(q.Name)-1]
		addr, known := addrs[name]
		rcode, failing := rcodes[name]
		switch {
		case failing && rcode < 0:
			return // says nothing
		case failing:
			reply.Rcode = rcode
		case !known:
			reply.Rcode = dns.RcodeNameError
		case q.Qtype == dns.TypeA:
			reply.Answer = []dns.RR{&dns.A{Hdr: dns.RR_Header{Name: q.Name, Rrtype: dns.TypeA, Class: dns.ClassINET}, A: net.ParseIP(addr)}}
		}
		w.WriteMsg(reply)
	})}
	go srv.ActivateAndServe()
	<-started
	t.Cleanup(func() { srv.Shutdown() })
	return conn.LocalAddr().String()
}

// verdict is what a row of a table expects.
type verdict struct {
	outcome outbox.Outcome
	kind    outbox.Kind
	status  int
}

var delivered = verdict{outbox.OutcomeDelivered, "", 200}

func expect(t *testing.T, out attempt.Outcome, want verdict) {
	t.Helper()
	got := verdict{out.Outcome, out.Kind, out.StatusCode}
	if got != want {
		t.Errorf("ended as %+v (%s), want %+v", got, out.Message, want)
	}
	if (out.Outcome == outbox.OutcomeDelivered) != (out.Message == "") {
		t.Errorf("%s with the message %q", out.Outcome, out.Message)
	}
	if out.Aborted {
		t.Error("counts as broken off by us")
	}
	if out.Duration <= 0 && out.Kind != outbox.KindConfig && out.Kind != outbox.KindEgressDenied {
		t.Error("took no time")
	}
}

func pool(certs ...*x509.Certificate) *x509.CertPool {
	p := x509.NewCertPool()
	for _, c := range certs {
		p.AddCert(c)
	}
	return p
}

func reply(status int, header, body string) string {
	return "HTTP/1.1 " + strconv.Itoa(status) + " " + http.StatusText(status) + "\r\n" + header + "Content-Length: " + strconv.Itoa(len(body)) + "\r\n\r\n" + body
}
