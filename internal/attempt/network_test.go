package attempt_test

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/waybill-dev/waybill/internal/attempt"
	"github.com/waybill-dev/waybill/internal/egress"
	"github.com/waybill-dev/waybill/internal/outbox"
)

// hangUp closes a connection with a reset instead of a farewell.
func hangUp(conn net.Conn) {
	conn.(*net.TCPConn).SetLinger(0)
	conn.Close()
}

// deaf is a port whose queue is full: the kernel drops every further attempt to connect.
func deaf(t *testing.T) string {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Close(fd) })
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	name, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	addr := fmt.Sprintf("127.0.0.1:%d", name.(*syscall.SockaddrInet4).Port)
	for { // until one more does not get in
		conn, err := net.DialTimeout("tcp", addr, 100*time.Millisecond)
		if err != nil {
			return addr
		}
		t.Cleanup(func() { conn.Close() })
	}
}

func TestSender_connectionsThatFail(t *testing.T) {
	b := newBench(t, egress.Config{})
	onceOpen, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed := onceOpen.Addr().String()
	onceOpen.Close()
	after := func(behave func(conn net.Conn)) string {
		return newSink(t, func(s *sink, conn net.Conn) {
			if s.receive(bufio.NewReader(conn)) {
				behave(conn)
			}
		}).url()
	}
	transient := func(kind outbox.Kind) verdict { return verdict{outbox.OutcomeTransient, kind, 0} }
	for name, row := range map[string]struct {
		url  string
		want verdict
		says string
	}{
		"nobody listens":           {"http://" + closed, transient(outbox.KindRefused), "refused the connection"},
		"nobody takes the call":    {"http://" + deaf(t), transient(outbox.KindTimeout), "No connection"},
		"closed at once":           {newSink(t, func(_ *sink, conn net.Conn) {}).url(), transient(outbox.KindReset), "closed the connection"},
		"reset at once":            {newSink(t, func(_ *sink, conn net.Conn) { hangUp(conn) }).url(), transient(outbox.KindReset), "closed the connection"},
		"closed after the request": {after(func(net.Conn) {}), transient(outbox.KindReset), "closed the connection"},
		"reset after the request":  {after(hangUp), transient(outbox.KindReset), "closed the connection"},
		"reset within the answer": {after(func(conn net.Conn) {
			io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhe")
			hangUp(conn)
		}), delivered, ""},
		"never answers": {after(func(conn net.Conn) { io.Copy(io.Discard, conn) }), transient(outbox.KindTimeout), "did not answer within 0.4 seconds"},
	} {
		t.Run(name, func(t *testing.T) {
			out := b.send(t, row.url, within(400*time.Millisecond))
			expect(t, out, row.want)
			if !strings.Contains(out.Message, row.says) {
				t.Errorf("%q does not say %q", out.Message, row.says)
			}
		})
	}
}

func TestSender_namesThatFail(t *testing.T) {
	s := answers(t, reply(200, "", "ok"))
	b := newBench(t, egress.Config{Resolver: names(t,
		map[string]string{"good.test": "127.0.0.1", "private.test": "10.0.0.1"},
		map[string]int{"servfail.test": dns.RcodeServerFailure, "refused.test": dns.RcodeRefused, "silent.test": -1},
	)})
	for host, want := range map[string]verdict{
		"good.test":     delivered,
		"missing.test":  {outbox.OutcomeTransient, outbox.KindDNSNotFound, 0},
		"servfail.test": {outbox.OutcomeTransient, outbox.KindDNSTemporary, 0},
		"refused.test":  {outbox.OutcomeTransient, outbox.KindDNSTemporary, 0},
		"private.test":  {outbox.OutcomePermanent, outbox.KindEgressDenied, 0},
		"localhost":     delivered,
	} {
		t.Run(host, func(t *testing.T) {
			out := b.send(t, "http://"+host+":"+s.port()+"/")
			expect(t, out, want)
			if out.Outcome != outbox.OutcomeDelivered && !strings.Contains(out.Message, host) {
				t.Errorf("%q does not name the host", out.Message)
			}
			if strings.Contains(out.Message, "10.0.0.1") || strings.Contains(out.Message, "lookup") {
				t.Errorf("%q shows what is inside", out.Message)
			}
			if strings.HasSuffix(host, ".test") && out.Timing.DNS <= 0 {
				t.Errorf("timing %+v of a lookup", out.Timing)
			}
		})
	}
	if !testing.Short() {
		out := b.send(t, "http://silent.test:"+s.port()+"/", within(10*time.Second))
		expect(t, out, verdict{outbox.OutcomeTransient, outbox.KindDNSTemporary, 0})
	}
}

// A name that stays out of DNS is a wrong URL, but only once that was seen for a while.
func TestSender_anAbsentNameBecomesPermanent(t *testing.T) {
	known := map[string]string{}
	b := newBench(t, egress.Config{Resolver: names(t, known, nil)})
	start := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	look := func(host string, after time.Duration, want outbox.Outcome) {
		t.Helper()
		b.at(start.Add(after))
		if out := b.send(t, "http://"+host+"/"); out.Outcome != want || out.Kind != outbox.KindDNSNotFound {
			t.Errorf("%s after %s: %s %s, want %s", host, after, out.Outcome, out.Kind, want)
		}
	}
	look("a.test", 0, outbox.OutcomeTransient)
	look("a.test", 2*time.Second, outbox.OutcomeTransient)
	look("a.test", 4*time.Minute, outbox.OutcomeTransient) // three looks, too soon
	look("b.test", 5*time.Minute+time.Second, outbox.OutcomeTransient)
	look("a.test", 5*time.Minute+time.Second, outbox.OutcomePermanent)
	look("b.test", 11*time.Minute, outbox.OutcomeTransient) // long enough, two looks
	look("b.test", 12*time.Minute, outbox.OutcomePermanent)
	look("a.test", 72*time.Hour, outbox.OutcomeTransient) // nobody looked in between
}

// authority issues certificates for tests.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// issue makes a certificate; parent nil signs it with itself.
func issue(t testing.TB, parent *authority, change func(*x509.Certificate)) (authority, tls.Certificate) {
	t.Helper()
	key := newKey(t)
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(time.Now().UnixNano()),
		Subject:               pkix.Name{CommonName: "hooks.example.com"},
		NotBefore:             time.Now().Add(-48 * time.Hour),
		NotAfter:              time.Date(2031, 5, 3, 12, 0, 0, 0, time.UTC),
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames:              []string{"hooks.example.com"},
		BasicConstraintsValid: true,
	}
	change(template)
	signer := parent
	if signer == nil {
		signer = &authority{template, key}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, signer.cert, &key.PublicKey, signer.key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	chain := tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: cert}
	if parent != nil && parent.cert.CheckSignatureFrom(parent.cert) != nil {
		chain.Certificate = append(chain.Certificate, parent.cert.Raw) // an intermediate is sent along
	}
	return authority{cert, key}, chain
}

func isCA(name string) func(*x509.Certificate) {
	return func(c *x509.Certificate) {
		c.Subject, c.DNSNames, c.IsCA, c.KeyUsage, c.ExtKeyUsage = pkix.Name{CommonName: name}, nil, true, x509.KeyUsageCertSign, nil
	}
}

// secure makes a receiver that speaks TLS as the configuration says and answers 200.
func secure(t *testing.T, cfg *tls.Config) *sink {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return newSinkOn(t, tls.NewListener(l, cfg), func(s *sink, conn net.Conn) {
		for r := bufio.NewReader(conn); s.receive(r); {
			io.WriteString(conn, reply(200, "", "ok"))
		}
	})
}

func TestSender_tls(t *testing.T) {
	root, _ := issue(t, nil, isCA("a root"))
	stranger, _ := issue(t, nil, isCA("a root nobody trusts"))
	past := time.Date(2025, 11, 3, 12, 0, 0, 0, time.UTC)
	oldIntermediate, _ := issue(t, &root, func(c *x509.Certificate) {
		isCA("an intermediate")(c)
		c.NotBefore, c.NotAfter = past.AddDate(-1, 0, 0), past
	})
	with := func(parent *authority, change func(*x509.Certificate)) *tls.Config {
		_, chain := issue(t, parent, change)
		return &tls.Config{Certificates: []tls.Certificate{chain}}
	}
	good := func() *tls.Config { return with(&root, func(*x509.Certificate) {}) }
	demanding := func(version uint16) *tls.Config {
		cfg := good()
		cfg.ClientAuth, cfg.MinVersion, cfg.MaxVersion = tls.RequireAnyClientCert, version, version
		return cfg
	}
	old := good()
	old.MinVersion, old.MaxVersion = tls.VersionTLS10, tls.VersionTLS11
	asking := good()
	asking.ClientAuth = tls.RequestClientCert

	b := newBench(t, egress.Config{
		RootCAs:  pool(root.cert),
		Resolver: names(t, map[string]string{"hooks.example.com": "127.0.0.1"}, nil),
	})
	certificate := verdict{outbox.OutcomePermanent, outbox.KindTLSCertificate, 0}
	client := verdict{outbox.OutcomePermanent, outbox.KindTLSClientCertificate, 0}
	handshake := verdict{outbox.OutcomeTransient, outbox.KindTLSHandshake, 0}
	const untilThen, untilPast = "3 May 2031", "3 Nov 2025"
	for name, row := range map[string]struct {
		sink *sink
		want verdict
		says []string
	}{
		"all in order":              {secure(t, good()), delivered, nil},
		"asks, but does not insist": {secure(t, asking), delivered, nil},
		"expired": {secure(t, with(&root, func(c *x509.Certificate) { c.NotBefore, c.NotAfter = past.AddDate(-1, 0, 0), past })),
			certificate, []string{"expired on " + untilPast, "renew"}},
		"not valid yet": {secure(t, with(&root, func(c *x509.Certificate) { c.NotBefore = time.Date(2030, 1, 2, 0, 0, 0, 0, time.UTC) })),
			certificate, []string{"only from 2 Jan 2030", untilThen}},
		"for another host": {secure(t, with(&root, func(c *x509.Certificate) { c.DNSNames = []string{"other.example.com"} })),
			certificate, []string{"another name", untilThen}},
		"self-signed":                   {secure(t, with(nil, func(*x509.Certificate) {})), certificate, []string{"self-signed", untilThen}},
		"of an authority nobody trusts": {secure(t, with(&stranger, func(*x509.Certificate) {})), certificate, []string{"not publicly trusted", untilThen}},
		"with an intermediate expired":  {secure(t, with(&oldIntermediate, func(*x509.Certificate) {})), certificate, []string{"in the chain", untilPast}},
		"for clients only": {secure(t, with(&root, func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth} })),
			certificate, []string{"may not be used for a web server"}},
		"demands a client certificate, TLS 1.2": {secure(t, demanding(tls.VersionTLS12)), client, []string{"client certificate"}},
		"demands a client certificate, TLS 1.3": {secure(t, demanding(tls.VersionTLS13)), client, []string{"client certificate"}},
		"TLS 1.1 only":                          {secure(t, old), handshake, []string{"TLS 1.2"}},
		"plain HTTP": {newSink(t, func(_ *sink, conn net.Conn) {
			io.WriteString(conn, reply(400, "", "client sent a TLS hello")+"close")
			io.Copy(io.Discard, conn)
		}), handshake, []string{"does not speak TLS on port"}},
		"closes in the handshake": {newSink(t, func(_ *sink, conn net.Conn) { conn.Read(make([]byte, 100)) }), handshake, []string{"broke off"}},
		"resets in the handshake": {newSink(t, func(_ *sink, conn net.Conn) { conn.Read(make([]byte, 1)); hangUp(conn) }), handshake, []string{"broke off"}},
		"cut in the handshake": {newSink(t, func(_ *sink, conn net.Conn) {
			conn.Read(make([]byte, 100))
			conn.Write([]byte{22, 3, 3, 0, 100, 2, 0}) // the beginning of a ServerHello
		}), handshake, []string{"broke off"}},
		"silent in the handshake": {newSink(t, func(_ *sink, conn net.Conn) { io.Copy(io.Discard, conn) }),
			verdict{outbox.OutcomeTransient, outbox.KindTimeout, 0}, []string{"within"}},
	} {
		t.Run(name, func(t *testing.T) {
			out := b.send(t, "https://hooks.example.com:"+row.sink.port()+"/hook", within(700*time.Millisecond))
			expect(t, out, row.want)
			for _, part := range append(row.says, "hooks.example.com") {
				if row.says != nil && !strings.Contains(out.Message, part) {
					t.Errorf("%q does not say %q", out.Message, part)
				}
			}
			if strings.Contains(out.Message, "x509") || strings.Contains(out.Message, "tls:") {
				t.Errorf("%q is an error's text", out.Message)
			}
			requests := row.sink.received()
			if sent := len(requests) > 0; sent != (row.want == delivered) {
				t.Errorf("the receiver got %d requests", len(requests))
			}
			if out.Timing.DNS <= 0 && row.want.kind != outbox.KindTimeout {
				t.Errorf("timing %+v", out.Timing)
			}
			if row.want == delivered && (out.Timing.TLS <= 0 || out.Timing.Connect <= 0 || out.Timing.FirstByte < out.Timing.TLS) {
				t.Errorf("timing %+v", out.Timing)
			}
		})
	}
}

// The address is chosen before the handshake; the handshake names the host all the same, or a server
// of many hosts would show another one's certificate.
func TestSender_theHandshakeNamesTheHost(t *testing.T) {
	root, _ := issue(t, nil, isCA("a root"))
	_, chain := issue(t, &root, func(*x509.Certificate) {})
	named := make(chan string, 1)
	s := secure(t, &tls.Config{Certificates: []tls.Certificate{chain}, GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		named <- hello.ServerName
		return nil, nil
	}})
	b := newBench(t, egress.Config{RootCAs: pool(root.cert), Resolver: names(t, map[string]string{"hooks.example.com": "127.0.0.1"}, nil)})
	expect(t, b.send(t, "https://Hooks.Example.COM.:"+s.port()+"/"), delivered)
	if name := <-named; name != "hooks.example.com" {
		t.Errorf("the handshake names %q", name)
	}
}

func TestSender_anAttemptCutShortByUsIsNotTheReceiversFault(t *testing.T) {
	entered := make(chan struct{}, 8) // one for every request
	s := newSink(t, func(s *sink, conn net.Conn) {
		if s.receive(bufio.NewReader(conn)) {
			entered <- struct{}{}
			io.Copy(io.Discard, conn)
		}
	})
	b := newBench(t, egress.Config{})
	target := b.Prepare(attempt.Endpoint{URL: s.url(), Secrets: []outbox.Secret{{Value: testSecret}}})
	r := attempt.Request{Target: target, Event: testEvent, EventType: "a", N: 1, Sequence: 1, Payload: []byte("{}")}

	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-entered; cancel() }()
	if out := b.Do(ctx, r); !out.Aborted || out.Outcome != outbox.OutcomeTransient {
		t.Errorf("cancelled: %+v", out)
	}
	ctx, cancel = context.WithTimeout(t.Context(), 50*time.Millisecond) // a deadline of the caller's
	defer cancel()
	if out := b.Do(ctx, r); !out.Aborted || out.Outcome != outbox.OutcomeTransient {
		t.Errorf("caller's deadline: %+v", out)
	}
	ctx, cancel = context.WithCancel(t.Context())
	cancel()
	if out := b.Do(ctx, r); !out.Aborted {
		t.Errorf("cancelled before it began: %+v", out)
	}
	if out := b.send(t, s.url(), within(50*time.Millisecond)); out.Aborted || out.Kind != outbox.KindTimeout {
		t.Errorf("its own timeout: %+v", out)
	}
}

// A status line that came is a fact, whoever ends the attempt.
func TestSender_aStatusLineOutlivesTheCallersContext(t *testing.T) {
	answered := make(chan struct{}, 1)
	s := newSink(t, func(s *sink, conn net.Conn) {
		if s.receive(bufio.NewReader(conn)) {
			io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhe")
			answered <- struct{}{}
			io.Copy(io.Discard, conn)
		}
	})
	b := newBench(t, egress.Config{})
	target := b.Prepare(attempt.Endpoint{URL: s.url(), Secrets: []outbox.Secret{{Value: testSecret}}})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		<-answered
		time.AfterFunc(100*time.Millisecond, cancel) // the sender has the status line by then
	}()
	out := b.Do(ctx, attempt.Request{Target: target, Event: testEvent, EventType: "a", N: 1, Sequence: 1})
	expect(t, out, delivered)
	if !out.Truncated || string(out.ResponseBody) != "he" {
		t.Errorf("kept %q, truncated %v", out.ResponseBody, out.Truncated)
	}
}

func TestSender_environmentProxiesAreIgnored(t *testing.T) {
	proxy, s := answers(t, reply(200, "", "")), answers(t, reply(200, "", ""))
	for _, name := range []string{"HTTP_PROXY", "http_proxy", "ALL_PROXY"} {
		t.Setenv(name, "http://"+proxy.Addr().String())
	}
	if os.Getenv("HTTP_PROXY") == "" {
		t.Fatal("the environment is not set")
	}
	expect(t, newBench(t, egress.Config{}).send(t, s.url()), delivered)
	if proxy.connections() != 0 || s.connections() != 1 {
		t.Errorf("%d connections to the proxy, %d to the receiver", proxy.connections(), s.connections())
	}
}
