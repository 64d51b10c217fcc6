package api

import (
	"bufio"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// served starts the handler as serve does, on a real connection.
func (f *fixture) served() string {
	f.t.Helper()
	ts := httptest.NewUnstartedServer(f.handler)
	ts.Config = NewServer(f.handler, slog.New(slog.DiscardHandler))
	ts.Start()
	f.t.Cleanup(ts.Close)
	return strings.TrimPrefix(ts.URL, "http://")
}

// raw writes a request by hand and reads the answers to it.
func raw(t *testing.T, addr, request string, answers int) []*http.Response {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	go func() { _, _ = io.WriteString(conn, request) }() // the server may stop reading
	var out []*http.Response
	r := bufio.NewReader(conn)
	for range answers {
		method, _, _ := strings.Cut(request, " ")
		resp, err := http.ReadResponse(r, &http.Request{Method: method})
		must(t, err)
		body, err := io.ReadAll(resp.Body)
		must(t, err)
		resp.Body = io.NopCloser(strings.NewReader(string(body)))
		out = append(out, resp)
	}
	return out
}

func TestServer_onTheWire(t *testing.T) {
	f := newFixture(t)
	f.tenant("acme")
	addr := f.served()
	post := func(headers, body string) string {
		return "POST /v1/tenants/acme/events HTTP/1.1\r\nHost: x\r\n" + headers + "\r\n" + body
	}
	auth := "Authorization: Bearer " + operatorKey + "\r\n"
	event := `{"type":"a.b","payload":{"n": 1.0}}`
	sized := fmt.Sprintf("Content-Length: %d\r\n", len(event))

	two := raw(t, addr, post(auth+sized, event)+post(auth+sized, event), 2)
	if two[0].StatusCode != 202 || two[1].StatusCode != 202 || two[0].Header.Get("Waybill-Request-Id") == two[1].Header.Get("Waybill-Request-Id") {
		t.Errorf("two on one connection: %d and %d", two[0].StatusCode, two[1].StatusCode)
	}
	chunked := fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(event), event)
	for name, tc := range map[string]struct {
		request string
		want    int
	}{
		"chunked":                         {post(auth+"Transfer-Encoding: chunked\r\n", chunked), 202},
		"two lengths":                     {post(auth+sized+"Content-Length: 1\r\n", event), 400},
		"a huge body without a key":       {post("Content-Length: 1073741824\r\n", strings.Repeat("x", 1<<20)), 401},
		"a huge body":                     {post(auth+"Content-Length: 1073741824\r\n", strings.Repeat("x", 1<<20)), 413},
		"a huge body in chunks":           {post(auth+"Transfer-Encoding: chunked\r\n", fmt.Sprintf("%x\r\n%s", 1<<30, strings.Repeat("x", 1<<20))), 413},
		"waits for leave, gets a refusal": {post("Expect: 100-continue\r\n"+sized, ""), 401},
		"headers without end":             {post(auth+"X-A: "+strings.Repeat("a", 64<<10)+"\r\n", ""), 431},
	} {
		t.Run(name, func(t *testing.T) {
			if got := raw(t, addr, tc.request, 1)[0]; got.StatusCode != tc.want {
				t.Errorf("status %d, want %d", got.StatusCode, tc.want)
			}
		})
	}
	for _, address := range []string{"/v1//tenants", "/v1/tenants/../x", "//", "*", "/v1/tenants/%00", "/v1/sources/a%ffb"} {
		got := raw(t, addr, "GET "+address+" HTTP/1.1\r\nHost: x\r\n"+auth+"\r\n", 1)[0]
		if got.StatusCode != 404 || got.Header.Get("Waybill-Request-Id") == "" || got.Header.Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s: %d %v", address, got.StatusCode, got.Header)
		}
	}
	head := raw(t, addr, "HEAD /v1/tenants/acme/events HTTP/1.1\r\nHost: x\r\n"+auth+"\r\n", 1)[0]
	if head.StatusCode != 200 || head.Header.Get("Content-Type") != "application/json" {
		t.Errorf("HEAD: %d %v", head.StatusCode, head.Header)
	}
}

// A client that writes its whole body before it reads gets the refusal, not a broken pipe. 10 MB
// are more than the buffers of a connection hold.
func TestServer_refusalsReachWhoWritesFirst(t *testing.T) {
	f := newFixture(t)
	f.tenant("acme")
	addr := f.served()
	const size = 10 << 20
	for name, c := range map[string]struct {
		headers string
		want    int
	}{
		"too large":         {"Authorization: Bearer " + operatorKey + "\r\n", 413},
		"without a key":     {"", 401},
		"of the wrong type": {"Authorization: Bearer " + operatorKey + "\r\nContent-Type: text/plain\r\n", 415},
	} {
		for _, length := range []string{fmt.Sprintf("Content-Length: %d\r\n\r\n", size), fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n%x\r\n", size)} {
			conn, err := net.Dial("tcp", addr)
			must(t, err)
			if _, err := io.WriteString(conn, "POST /v1/tenants/acme/events HTTP/1.1\r\nHost: x\r\n"+c.headers+length+strings.Repeat("x", size)); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			got, err := http.ReadResponse(bufio.NewReader(conn), nil)
			must(t, err)
			if got.StatusCode != c.want {
				t.Errorf("%s: status %d, want %d", name, got.StatusCode, c.want)
			}
			must(t, got.Body.Close())
			must(t, conn.Close())
		}
	}
}
