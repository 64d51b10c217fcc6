package egress

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// canary is a server on loopback that counts what reaches it.
type canary struct {
	port  string
	hits  atomic.Int64
	conns atomic.Int64
}

func newCanary(t *testing.T, host string) *canary {
	t.Helper()
	c := &canary{}
	l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.hits.Add(1)
		io.WriteString(w, r.Host)
	}))
	srv.Listener.Close()
	srv.Listener = l
	srv.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			c.conns.Add(1)
		}
	}
	srv.Start()
	t.Cleanup(srv.Close)
	_, c.port, _ = net.SplitHostPort(l.Addr().String())
	return c
}

// post sends a POST through the guard and returns the answer's body. The URL is taken as it is,
// as an edited row of the database would be.
func post(t testing.TB, g *Guard, rawURL string, internal bool) (string, error) {
	t.Helper()
	return postAs(t, g, rawURL, Peer{Internal: internal})
}

func postAs(t testing.TB, g *Guard, rawURL string, peer Peer) (string, error) {
	t.Helper()
	u, err := url.Parse(rawURL)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	req := (&http.Request{Method: http.MethodPost, URL: u, Header: http.Header{}, Body: http.NoBody}).WithContext(ctx)
	res, err := g.RoundTrip(req, peer, &Trip{})
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	return string(body), err
}

func denied(err error) string {
	if e, ok := errors.AsType[*DeniedError](err); ok {
		return e.Reason
	}
	return ""
}

func TestGuard_dialsNothingThatIsNotPublic(t *testing.T) {
	c := newCanary(t, "127.0.0.1")
	g := guard(t, Policy{})
	for _, host := range []string{
		"127.0.0.1", "127.1", "2130706433", "0x7f.1", "0", "0.0.0.0", "[::]", "[::1]", "[::ffff:127.0.0.1]", "[::127.0.0.1]",
		"[64:ff9b::7f00:1]", "localhost", "x.localhost", "169.254.169.254", "10.0.0.1", "[fe80::1%25lo]",
	} {
		_, err := post(t, g, "http://"+host+":"+c.port+"/", false)
		dial, ok := errors.AsType[*DialError](err)
		if !ok || dial.Step != StepPolicy || denied(err) == "" {
			t.Errorf("%s: error %v, want a refusal", host, err)
		}
	}
	if n := c.conns.Load(); n != 0 {
		t.Errorf("%d connections reached this machine", n)
	}
}

func TestGuard_anyForbiddenAddressRefusesTheHost(t *testing.T) {
	ns := newNameServer(t)
	c := newCanary(t, "127.0.0.1")
	g, err := New(Config{Policy: Policy{Allow: prefixes("127.0.0.0/8")}, Resolver: ns.addr})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	for name, addrs := range map[string][]string{
		"private-last.test":    {"127.0.0.1", "10.0.0.1"},
		"private-first.test":   {"10.0.0.1", "127.0.0.1"},
		"link-local-ipv6.test": {"127.0.0.1", "fe80::1"},
		"loopback-ipv6.test":   {"127.0.0.1", "::1"},
		"mapped.test":          {"127.0.0.1", "64:ff9b::7f00:1"},
		"metadata.test":        {"169.254.169.254"},
	} {
		ns.answer(name, addrs)
		_, err := post(t, g, "http://"+name+":"+c.port+"/", false)
		if denied(err) == "" {
			t.Errorf("%s (%v): error %v, want a refusal", name, addrs, err)
		}
	}
	if n := c.conns.Load(); n != 0 {
		t.Errorf("%d connections were made", n)
	}
	ns.answer("good.test", []string{"127.0.0.1"})
	body, err := post(t, g, "http://good.test:"+c.port+"/", false)
	if err != nil || body != "good.test:"+c.port {
		t.Errorf("a host with allowed addresses only: host header %q, error %v", body, err)
	}
}

// A name that answers a good address first and a forbidden one later gets to nobody: there is one
// lookup per connection, and what it returned is what is dialled.
func TestGuard_aNameIsLookedUpOncePerConnection(t *testing.T) {
	ns := newNameServer(t)
	outside, inside := newCanary(t, "127.0.0.2"), newCanary(t, "127.0.0.1")
	g, err := New(Config{Policy: Policy{Allow: prefixes("127.0.0.2/32")}, Resolver: ns.addr})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	ns.answer("rebind.test", []string{"127.0.0.2"}, []string{"127.0.0.1"})
	if _, err := post(t, g, "http://rebind.test:"+outside.port+"/", false); err != nil {
		t.Fatal(err)
	}
	if n := ns.lookups("rebind.test"); n != 1 {
		t.Errorf("%d lookups for one connection", n)
	}
	g.CloseIdle(outbox.EndpointID{})
	if _, err := post(t, g, "http://rebind.test:"+inside.port+"/", false); denied(err) != "loopback" {
		t.Errorf("after the name moved: error %v, want a refusal", err)
	}
	if inside.conns.Load() != 0 || outside.hits.Load() != 1 {
		t.Errorf("%d connections inside, %d requests outside", inside.conns.Load(), outside.hits.Load())
	}
}

// The socket layer judges again, whatever address it was led to.
func TestTarget_control_hasTheLastWord(t *testing.T) {
	c := newCanary(t, "127.0.0.1")
	g := guard(t, Policy{})
	u, _ := url.Parse("http://hooks.example.com:" + c.port)
	tg, err := g.target(u, Peer{})
	if err != nil {
		t.Fatal(err)
	}
	addr := netip.MustParseAddrPort("127.0.0.1:" + c.port)
	if conn, err := tg.connect(t.Context(), []netip.AddrPort{addr}); err == nil {
		conn.Close()
		t.Error("an address that was never judged is dialled")
	} else if denied(err) != "loopback" {
		t.Errorf("error %v, want a refusal", err)
	}
	if err := tg.control(t.Context(), "tcp4", "8.8.8.8:"+c.port, nil); err != nil {
		t.Errorf("a public address: %v", err)
	}
	for _, row := range [][2]string{{"tcp4", "8.8.8.8:1"}, {"udp4", "8.8.8.8:" + c.port}, {"unix", "/run/postgresql/.s.PGSQL.5432"}, {"tcp6", "[fe80::1%lo]:" + c.port}} {
		if tg.control(t.Context(), row[0], row[1], nil) == nil {
			t.Errorf("socket %v is let through", row)
		}
	}
}

func TestGuard_lookupFailures(t *testing.T) {
	ns := newNameServer(t)
	g, err := New(Config{Policy: Policy{Allow: prefixes("127.0.0.0/8")}, Resolver: ns.addr})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	ns.fail("servfail.test", dns.RcodeServerFailure)
	ns.fail("refused.test", dns.RcodeRefused)
	ns.answer("no-records.test")
	for name, absent := range map[string]bool{"missing.test": true, "no-records.test": true, "servfail.test": false, "refused.test": false} {
		_, err := post(t, g, "http://"+name+"/", false)
		dial, ok := errors.AsType[*DialError](err)
		if !ok || dial.Step != StepLookup || dial.NoSuchHost() != absent || dial.Timing.DNS == 0 {
			t.Errorf("%s: error %v, want a failed lookup (absent: %v) that took time", name, err, absent)
		}
	}
}

func TestGuard_strangersNamesDoNotUseTheSearchList(t *testing.T) {
	tg := &target{guard: guard(t, Policy{}), host: "hooks.example.com"}
	var asked string
	tg.guard.resolver = &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		return nil, errors.New("no network in this test")
	}}
	_, err := tg.resolve(t.Context())
	if dnsErr, ok := errors.AsType[*net.DNSError](err); ok {
		asked = dnsErr.Name
	}
	if asked != "hooks.example.com." {
		t.Errorf("asked for %q, want the absolute name (%v)", asked, err)
	}
}

func TestGuard_triesTheNextAddressWhenOneRefuses(t *testing.T) {
	ns := newNameServer(t)
	c := newCanary(t, "127.0.0.3")
	g, err := New(Config{Policy: Policy{Allow: prefixes("127.0.0.0/8")}, Resolver: ns.addr})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	ns.answer("two.test", []string{"127.0.0.2", "127.0.0.3"}) // nobody listens on the first
	if _, err := post(t, g, "http://two.test:"+c.port+"/", false); err != nil {
		t.Errorf("the second address was not reached: %v", err)
	}
	ns.answer("none.test", []string{"127.0.0.2", "127.0.0.4"})
	_, err = post(t, g, "http://none.test:"+c.port+"/", false)
	if dial, ok := errors.AsType[*DialError](err); !ok || dial.Step != StepConnect || !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("no address answers: error %v, want a refused connection", err)
	}
}

func TestGuard_proxyVariablesChangeNothing(t *testing.T) {
	proxy, c := newCanary(t, "127.0.0.1"), newCanary(t, "127.0.0.2")
	for _, name := range []string{"HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"} {
		t.Setenv(name, "http://127.0.0.1:"+proxy.port)
	}
	g := guard(t, Policy{Allow: prefixes("127.0.0.0/8")})
	if _, err := post(t, g, "http://127.0.0.2:"+c.port+"/", false); err != nil {
		t.Fatal(err)
	}
	if proxy.conns.Load() != 0 || c.hits.Load() != 1 {
		t.Errorf("%d connections to the proxy, %d requests to the receiver", proxy.conns.Load(), c.hits.Load())
	}
}

func TestGuard_closeIdleClosesOneEndpointsConnectionsAlone(t *testing.T) {
	c := newCanary(t, "127.0.0.1")
	g := guard(t, Policy{Allow: prefixes("127.0.0.0/8")})
	one, two := outbox.NewEndpointID(time.Now()), outbox.NewEndpointID(time.Now())
	all := func() {
		t.Helper()
		for _, id := range []outbox.EndpointID{one, two} {
			if _, err := postAs(t, g, "http://127.0.0.1:"+c.port+"/", Peer{Endpoint: id}); err != nil {
				t.Fatal(err)
			}
		}
	}
	all()
	all()
	if n := c.conns.Load(); n != 2 {
		t.Fatalf("%d connections for two endpoints at one host, each used twice", n)
	}
	g.CloseIdle(one)
	eventually(t, "one connection is left", func() bool { return g.open.Load() == 1 })
	all()
	if n := c.conns.Load(); n != 3 {
		t.Errorf("%d connections, want a new one for the endpoint that left", n)
	}
	g.Close()
	eventually(t, "no connection is left", func() bool { return g.open.Load() == 0 })
}

// A connection that is in use when its origin is forgotten is not kept for later.
func TestGuard_closeIdleForgetsBusyConnectionsToo(t *testing.T) {
	hold, entered := make(chan struct{}), make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		entered <- struct{}{}
		<-hold
	}))
	t.Cleanup(srv.Close)
	g := guard(t, Policy{Allow: prefixes("127.0.0.0/8")})
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := post(t, g, srv.URL, false); err != nil {
			t.Error(err)
		}
	})
	<-entered
	g.CloseIdle(outbox.EndpointID{})
	close(hold)
	wg.Wait()
	eventually(t, "the connection is closed", func() bool { return g.open.Load() == 0 })
}

func TestGuard_classesShareNoConnection(t *testing.T) {
	c := newCanary(t, "127.0.0.1")
	g := guard(t, Policy{AllowInternal: prefixes("127.0.0.0/8")})
	u := "http://127.0.0.1:" + c.port + "/"
	if _, err := post(t, g, u, true); err != nil {
		t.Fatal(err)
	}
	if _, err := post(t, g, u, false); denied(err) != "loopback" {
		t.Errorf("a public tenant used an internal tenant's connection: %v", err)
	}
}

func TestGuard_policyHoldsForStoredURLsToo(t *testing.T) {
	c := newCanary(t, "127.0.0.1")
	closed, _ := ParsePorts("443")
	for name, policy := range map[string]Policy{
		"port":   {Allow: prefixes("127.0.0.0/8"), Ports: closed},
		"scheme": {Allow: prefixes("127.0.0.0/8"), Schemes: []string{"https"}},
	} {
		if _, err := post(t, guard(t, policy), "http://127.0.0.1:"+c.port+"/", false); denied(err) != name {
			t.Errorf("error %v, want a refusal of the %s", err, name)
		}
	}
	if c.conns.Load() != 0 {
		t.Error("a forbidden port or scheme was dialled")
	}
}

func TestGuard_tlsVerifiesTheNameAndReportsItsTime(t *testing.T) {
	ns := newNameServer(t)
	srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, r.TLS.NegotiatedProtocol+" "+r.Proto)
	}))
	t.Cleanup(srv.Close)
	srv.EnableHTTP2 = true
	roots := x509.NewCertPool()
	roots.AddCert(srv.Certificate())
	g, err := New(Config{Policy: Policy{Allow: prefixes("127.0.0.0/8")}, Resolver: ns.addr, RootCAs: roots})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	_, port, _ := net.SplitHostPort(srv.Listener.Addr().String())
	ns.answer("www.example.com", []string{"127.0.0.1"}) // the test certificate covers example.com and below
	ns.answer("other.test", []string{"127.0.0.1"})

	var trip Trip
	u, _ := url.Parse("https://www.example.com:" + port + "/")
	res, err := g.RoundTrip((&http.Request{Method: http.MethodPost, URL: u, Header: http.Header{}, Body: http.NoBody}).WithContext(t.Context()), Peer{}, &trip)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil || !strings.HasSuffix(string(body), "HTTP/1.1") {
		t.Errorf("spoke %q, %v, want HTTP/1.1", body, err)
	}
	timing := trip.Conn.Timing()
	if timing.DNS <= 0 || timing.Connect <= 0 || timing.TLS <= 0 {
		t.Errorf("timing %+v, want all three", timing)
	}

	_, err = post(t, g, "https://other.test:"+port+"/", false)
	dial, ok := errors.AsType[*DialError](err)
	if _, verification := errors.AsType[*tls.CertificateVerificationError](err); !ok || dial.Step != StepTLS || !verification {
		t.Errorf("a certificate for another name: error %v", err)
	}
	if g.open.Load() != 1 {
		t.Errorf("%d connections open, want the good one", g.open.Load())
	}
}

func TestGuard_redirectsAreAnswers(t *testing.T) {
	var followed atomic.Bool
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/login" {
			followed.Store(true)
		}
		http.Redirect(w, r, "/login", http.StatusSeeOther)
	}))
	t.Cleanup(srv.Close)
	if _, err := post(t, guard(t, Policy{Allow: prefixes("127.0.0.0/8")}), srv.URL, false); err != nil || followed.Load() {
		t.Errorf("error %v, followed: %v", err, followed.Load())
	}
}

func TestGuard_manyHostsStayWithinTheLimit(t *testing.T) {
	g := guard(t, Policy{})
	at := func(i int) *url.URL {
		return &url.URL{Scheme: "https", Host: fmt.Sprintf("h%d.example", i), Path: "/"}
	}
	for i := range maxPools + 1 {
		if _, err := g.pool(at(i), Peer{}); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(g.pools); n > maxPools || n < maxPools/2 {
		t.Errorf("%d pools, at most %d and not fewer than half", n, maxPools)
	}
	for i, want := range map[int]bool{0: false, maxPools - 1: true, maxPools: true} {
		if g.pools[origin{Peer{}, "https", at(i).Host}] != nil != want {
			t.Errorf("pool %d is kept: %v, want %v", i, !want, want)
		}
	}
}

// Where all hosts together hold too many connections, those of quiet hosts go.
func TestGuard_tooManyConnectionsCloseTheQuietOnes(t *testing.T) {
	c := newCanary(t, "127.0.0.1")
	g := guard(t, Policy{Allow: prefixes("127.0.0.0/8")})
	if _, err := post(t, g, "http://127.0.0.1:"+c.port+"/", false); err != nil {
		t.Fatal(err)
	}
	g.open.Add(maxConns)
	g.trim()
	if n := g.open.Load(); n != maxConns+1 {
		t.Errorf("a connection that was just used is closed")
	}
	for _, p := range g.pools {
		p.usedAt.Add(-int64(time.Minute))
	}
	g.trimmedAt.Store(0)
	g.trim()
	eventually(t, "the quiet connection is closed", func() bool { return g.open.Load() == maxConns })
	g.open.Store(0)
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	deadline := time.After(30 * time.Second)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !is() {
		select {
		case <-deadline:
			t.Fatalf("not within 5 s: %s", what)
		case <-tick.C:
		}
	}
}
