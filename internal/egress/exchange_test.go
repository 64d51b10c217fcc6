package egress

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

const own = "HTTP/1.1 500 Own\r\nContent-Length: 0\r\n\r\n"

// planted is an answer that nobody asked for; taken for one it is a delivery that never was.
const planted = "HTTP/1.1 200 Planted\r\nContent-Length: 0\r\n\r\n"

// script is a receiver whose n-th connection is handed to serve. Where cfg is set it speaks TLS.
func script(t *testing.T, cfg *tls.Config, serve func(n int, conn net.Conn)) *url.URL {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	var open sync.Map
	wg.Go(func() {
		for n := 0; ; n++ {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			open.Store(conn, nil)
			wg.Go(func() {
				defer conn.Close()
				if cfg != nil {
					secured := tls.Server(conn, cfg)
					defer secured.Close()
					serve(n, secured)
					return
				}
				serve(n, conn)
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		open.Range(func(conn, _ any) bool { conn.(net.Conn).Close(); return true })
		wg.Wait()
	})
	u := &url.URL{Scheme: "http", Host: l.Addr().String(), Path: "/"}
	if cfg != nil {
		u.Scheme = "https"
	}
	return u
}

// take reads a request, whole.
func take(in *bufio.Reader) bool {
	req, err := http.ReadRequest(in)
	if err != nil {
		return false
	}
	_, err = io.Copy(io.Discard, req.Body)
	return err == nil
}

// send sends a request with a body of the given length and reads the answer to its end.
func send(t *testing.T, g *Guard, u *url.URL, peer Peer, length int) (status int, trip Trip, err error) {
	t.Helper()
	req := (&http.Request{
		Method: http.MethodPost, URL: u, Header: http.Header{}, ContentLength: int64(length),
		Body: io.NopCloser(bytes.NewReader(make([]byte, length))),
	}).WithContext(t.Context())
	res, err := g.RoundTrip(req, peer, &trip)
	if err != nil {
		return 0, trip, err
	}
	defer res.Body.Close()
	_, err = io.Copy(io.Discard, res.Body)
	return res.StatusCode, trip, err
}

// onLoopback is a guard that trusts the returned certificate.
func onLoopback(t *testing.T) (*Guard, *tls.Config) {
	t.Helper()
	srv := httptest.NewTLSServer(nil)
	srv.Close()
	roots := x509.NewCertPool()
	roots.AddCert(srv.Certificate())
	g, err := New(Config{Policy: Policy{Allow: prefixes("127.0.0.0/8")}, RootCAs: roots})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	return g, &tls.Config{Certificates: srv.TLS.Certificates}
}

// What follows an answer is never the answer to the next request: that one gets its own, on the
// same connection only if nothing was left over.
func TestGuard_aConnectionIsReusedOnlyAfterAnExactAnswer(t *testing.T) {
	for name, row := range map[string]struct {
		answer string
		status int // 0: no answer
		reused bool
	}{
		"no body":                          {"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", 200, true},
		"a body":                           {"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", 200, true},
		"chunks":                           {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", 200, true},
		"chunks and a trailer":             {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nx: y\r\n\r\n", 200, true},
		"204":                              {"HTTP/1.1 204 No Content\r\n\r\n", 204, true},
		"204 that has no length":           {"HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n", 204, true},
		"an interim answer first":          {"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", 200, true},
		"says close":                       {"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n", 200, false},
		"HTTP/1.0":                         {"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n", 200, false},
		"two answers":                      {"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n" + planted, 200, false},
		"two answers, the first with body": {"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok" + planted, 200, false},
		"two answers, the first chunked":   {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n" + planted, 200, false},
		"two answers, more than a buffer":  {"HTTP/1.1 200 OK\r\nContent-Length: 6000\r\n\r\n" + strings.Repeat("x", 6000) + planted, 200, false},
		"many answers":                     {strings.Repeat(planted, 1000), 200, false},
		"one byte too many":                {"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok!", 200, false},
		"a line break too many":            {"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n\r\n", 200, false},
		"204 and an answer":                {"HTTP/1.1 204 No Content\r\n\r\n" + planted, 204, false},
		"204 and a body":                   {"HTTP/1.1 204 No Content\r\n\r\nhello", 204, false},
		"204 with a length and a body":     {"HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\nhello", 204, false},
		"204 with a length, body to come":  {"HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n", 204, false},
		"204 in chunks":                    {"HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 204, false},
		"304 with a length, body to come":  {"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", 304, false},
		"switches protocols":               {"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n" + planted, 101, false},
		"interim answers without end":      {strings.Repeat("HTTP/1.1 100 Continue\r\n\r\n", 5000) + planted, 0, false},
		"an answer that is none":           {"hello\r\n\r\n" + planted, 0, false},
	} {
		for _, secured := range []bool{false, true} {
			t.Run(map[bool]string{false: "plain/", true: "TLS/"}[secured]+name, func(t *testing.T) {
				g, cfg := onLoopback(t)
				if !secured {
					cfg = nil
				}
				u := script(t, cfg, func(n int, conn net.Conn) {
					in := bufio.NewReader(conn)
					for first := n == 0; take(in); first = false {
						if first {
							io.WriteString(conn, row.answer)
						} else {
							io.WriteString(conn, own)
						}
					}
				})
				status, _, err := send(t, g, u, Peer{}, 10)
				if status != row.status || (err != nil) != (row.status == 0) {
					t.Errorf("answered %d, %v, want %d", status, err, row.status)
				}
				status, trip, err := send(t, g, u, Peer{}, 10)
				if status != 500 || err != nil || trip.Reused != row.reused {
					t.Errorf("the next request: %d, %v, on a used connection: %v, want %v", status, err, trip.Reused, row.reused)
				}
				if n := g.open.Load(); n != 1 {
					t.Errorf("%d connections are open, want 1", n)
				}
			})
		}
	}
}

// await waits until bytes have come that nobody read.
func await(t *testing.T, conn *Conn) {
	t.Helper()
	eventually(t, "bytes have come", func() bool {
		n := 0
		err := conn.socket.raw.Read(func(fd uintptr) bool {
			n, _, _ = syscall.Recvfrom(int(fd), make([]byte, 1), syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
			return true
		})
		return err == nil && n > 0
	})
}

func TestGuard_whatComesWhileIdleIsNoAnswer(t *testing.T) {
	for name, secured := range map[string]bool{"plain": false, "TLS": true} {
		t.Run(name, func(t *testing.T) {
			g, cfg := onLoopback(t)
			if !secured {
				cfg = nil
			}
			more := make(chan struct{})
			u := script(t, cfg, func(n int, conn net.Conn) {
				in := bufio.NewReader(conn)
				for take(in) {
					io.WriteString(conn, own)
					if n == 0 {
						<-more
						io.WriteString(conn, planted)
					}
				}
			})
			_, first, err := send(t, g, u, Peer{}, 10)
			if err != nil {
				t.Fatal(err)
			}
			close(more)
			await(t, first.Conn)
			status, trip, err := send(t, g, u, Peer{}, 10)
			if status != 500 || err != nil || trip.Reused {
				t.Errorf("the next request: %d, %v, on a used connection: %v", status, err, trip.Reused)
			}
		})
	}
}

// glued holds back what is written until it is told to let go, so that it arrives as one.
type glued struct {
	net.Conn
	held bytes.Buffer
}

func (c *glued) Write(p []byte) (int, error) { return c.held.Write(p) }

func (c *glued) Read(p []byte) (int, error) {
	c.letGo()
	return c.Conn.Read(p)
}

func (c *glued) letGo() {
	c.Conn.Write(c.held.Bytes())
	c.held.Reset()
}

// An answer that is there before the request is sent cannot be one to it.
func TestGuard_anAnswerBeforeTheRequestIsNone(t *testing.T) {
	t.Run("a connection that nobody has used", func(t *testing.T) {
		g, _ := onLoopback(t)
		u := script(t, nil, func(n int, conn net.Conn) {
			if n == 0 {
				io.WriteString(conn, planted)
			}
			for in := bufio.NewReader(conn); take(in); {
				io.WriteString(conn, own)
			}
		})
		p, err := g.pool(u, Peer{})
		if err != nil {
			t.Fatal(err)
		}
		conn, err := p.target.connection() // as for an attempt that ran out of time meanwhile
		if err != nil {
			t.Fatal(err)
		}
		await(t, conn)
		p.put(conn)
		status, trip, err := send(t, g, u, Peer{}, 10)
		if status != 500 || err != nil || trip.Conn == conn {
			t.Errorf("%d, %v, on the connection with the planted answer: %v", status, err, trip.Conn == conn)
		}
	})
	t.Run("behind the handshake", func(t *testing.T) {
		g, cfg := onLoopback(t)
		cfg.MaxVersion = tls.VersionTLS12 // where the last word of the handshake is the server's
		cfg.SessionTicketsDisabled = true
		u := script(t, nil, func(_ int, conn net.Conn) {
			both := &glued{Conn: conn}
			secured := tls.Server(both, cfg)
			if secured.Handshake() == nil {
				io.WriteString(secured, planted)
				both.letGo()
				io.Copy(io.Discard, conn)
			}
		})
		u.Scheme = "https"
		if status, _, err := send(t, g, u, Peer{}, 10); !errors.Is(err, errEarly) {
			t.Errorf("%d, %v, want %v", status, err, errEarly)
		}
		if n := g.open.Load(); n != 0 {
			t.Errorf("%d connections are open", n)
		}
	})
}

func TestGuard_endpointsShareNoConnection(t *testing.T) {
	c := newCanary(t, "127.0.0.1")
	g, _ := onLoopback(t)
	u := &url.URL{Scheme: "http", Host: "127.0.0.1:" + c.port, Path: "/"}
	one, two := Peer{Endpoint: outbox.NewEndpointID(time.Now())}, Peer{Endpoint: outbox.NewEndpointID(time.Now())}
	for i, peer := range []Peer{one, two, one, two, one} {
		_, trip, err := send(t, g, u, peer, 10)
		if err != nil || trip.Reused != (i >= 2) {
			t.Errorf("request %d: %v, on a used connection: %v", i, err, trip.Reused)
		}
	}
	if n := c.conns.Load(); n != 2 {
		t.Errorf("%d connections, want one each", n)
	}
}

// A receiver that answers without reading is believed, and costs its connection.
func TestGuard_anAnswerToAHalfReadRequest(t *testing.T) {
	for name, hold := range map[string]bool{"hangs up": false, "goes on not reading": true} {
		t.Run(name, func(t *testing.T) {
			g, _ := onLoopback(t)
			u := script(t, nil, func(_ int, conn net.Conn) {
				in := bufio.NewReader(conn)
				if _, err := in.ReadString('\n'); err != nil {
					return
				}
				io.WriteString(conn, "HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")
				if hold {
					<-t.Context().Done()
				}
			})
			for range 20 {
				status, trip, err := send(t, g, u, Peer{}, 8<<20)
				if status != 413 || err != nil || trip.Reused {
					t.Fatalf("%d, %v, on a used connection: %v", status, err, trip.Reused)
				}
			}
			if n := g.open.Load(); n != 0 {
				t.Errorf("%d connections are open", n)
			}
		})
	}
}
