package egress

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
)

// tunneller is a proxy that takes every name for loopback, except one it forbids and one it does
// not find.
type tunneller struct {
	net.Listener
	mu    sync.Mutex
	asked []string // with the credentials, if any
}

func newTunneller(t *testing.T) *tunneller {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &tunneller{Listener: l}
	var conns sync.WaitGroup
	conns.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			conns.Go(func() { p.serve(conn) })
		}
	})
	t.Cleanup(func() { l.Close(); conns.Wait() })
	return p
}

func (p *tunneller) serve(conn net.Conn) {
	defer conn.Close()
	req, err := http.ReadRequest(bufio.NewReader(conn))
	if err != nil {
		return
	}
	p.mu.Lock()
	p.asked = append(p.asked, strings.TrimSpace(req.Method+" "+req.Host+" "+req.Header.Get("Proxy-Authorization")))
	p.mu.Unlock()
	host, port, _ := net.SplitHostPort(req.Host)
	switch host {
	case "forbidden.example.com":
		io.WriteString(conn, "HTTP/1.1 403 Forbidden\r\n\r\n")
		return
	case "absent.example.com":
		io.WriteString(conn, "HTTP/1.1 502 Bad Gateway\r\n\r\n")
		return
	case "endless.example.com":
		for err == nil {
			_, err = io.WriteString(conn, "HTTP/1.1 200 OK\r\nX: "+strings.Repeat("x", 1000)+"\r\n")
		}
		return
	}
	there, err := net.Dial("tcp", "127.0.0.1:"+port)
	if err != nil {
		return
	}
	defer there.Close()
	io.WriteString(conn, "HTTP/1.1 200 Connection established\r\nVia: it\r\n\r\n")
	go func() { io.Copy(there, conn); there.(*net.TCPConn).CloseWrite() }()
	io.Copy(conn, there)
}

func TestGuard_goesThroughTheProxyItIsGiven(t *testing.T) {
	p := newTunneller(t)
	proxy, err := ParseProxy("http://us%40er:pass@" + p.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	plain := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "for "+r.Host) }))
	t.Cleanup(plain.Close)
	_, port, _ := net.SplitHostPort(plain.Listener.Addr().String())
	// No name is looked up here: there is no resolver to ask.
	g, err := New(Config{Policy: Policy{Proxy: proxy}, Resolver: "127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	if g.Proxy() != p.Addr().String() {
		t.Errorf("the proxy is named %q", g.Proxy())
	}
	for range 2 {
		if body, err := post(t, g, "http://hooks.example.com:"+port+"/", false); err != nil || body != "for hooks.example.com:"+port {
			t.Errorf("%q, %v", body, err)
		}
	}
	for host, step := range map[string]Step{
		"forbidden.example.com": StepPolicy, "absent.example.com": StepConnect, "endless.example.com": StepConnect,
		"127.0.0.1": StepPolicy, "[::1]": StepPolicy, "169.254.169.254": StepPolicy, "localhost": StepPolicy, "2130706433": StepPolicy,
	} {
		_, err := post(t, g, "http://"+host+":"+port+"/", false)
		if failed, ok := errors.AsType[*DialError](err); !ok || failed.Step != step {
			t.Errorf("%s: %v, want %s", host, err, step)
		}
		if err != nil && strings.Contains(err.Error(), "pass") {
			t.Errorf("the error holds the password: %v", err)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if first := "CONNECT hooks.example.com:" + port + " Basic dXNAZXI6cGFzcw=="; p.asked[0] != first {
		t.Errorf("asked %q, want %q", p.asked[0], first)
	}
	if slices.ContainsFunc(p.asked, func(s string) bool { return strings.Contains(s, "127.0.0.1") || strings.Contains(s, "localhost") }) {
		t.Errorf("the proxy was asked for this machine: %v", p.asked)
	}
	if len(p.asked) != 4 { // the first connection is used twice
		t.Errorf("asked %d times: %v", len(p.asked), p.asked)
	}
}

func TestGuard_aProxyThatIsAwayIsNotTheReceiversFault(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	proxy, err := ParseProxy("http://" + l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	g, err := New(Config{Policy: Policy{Proxy: proxy}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = post(t, g, "http://hooks.example.com/", false)
	if failed, ok := errors.AsType[*DialError](err); !ok || failed.Step != StepConnect || !strings.Contains(err.Error(), "egress proxy") {
		t.Errorf("%v", err)
	}
}

func TestParseProxy_takesOneForm(t *testing.T) {
	for _, bad := range []string{"", "proxy:3128", "https://proxy:3128", "socks5://proxy:1080", "http://gateway", "http://gateway:3128/path", "http://:3128"} {
		if _, err := ParseProxy(bad); err == nil || bad != "" && strings.Contains(err.Error(), bad) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}
