package main

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"

	"github.com/waybill-dev/waybill/internal/client"
)

// What a receiver says, in whatever part of an answer, is stored with the attempt for those who may
// see it, and goes nowhere else: not into the log of any level, and not into the metrics.
func TestServe_receiversWordsStayWithTheAttempt(t *testing.T) {
	const canary = "CANARY_7f3a"
	s := serve(t, "WAYBILL_LOG=json", "WAYBILL_LOG_LEVEL=debug")
	answers := map[string]string{
		"http":    "HTTP/1.1 500 " + canary + "\r\nX-Note: " + canary + "\r\nLocation: http://" + canary + ".example/\r\nSet-Cookie: a=" + canary + "\r\nContent-Length: 11\r\n\r\n" + canary,
		"no-http": canary + " " + canary + "\r\n\r\n",
		"header":  "HTTP/1.1 200 OK\r\n" + canary + "\r\n\r\n",
		"length":  "HTTP/1.1 200 OK\r\nContent-Length: " + canary + "\r\n\r\n",
		"chunk":   "HTTP/1.1 500 X\r\nTransfer-Encoding: chunked\r\n\r\n" + canary + "\r\n",
		"unasked": "HTTP/1.1 204 No Content\r\n\r\n" + canary,
	}
	for name, answer := range answers {
		address := sayer(t, answer)
		ok(t, s.dir, s.env, "tenants", "put", name)
		ok(t, s.dir, s.env, "endpoints", "create", "--tenant", name, address)
		ok(t, s.dir, s.env, "publish", name, "a.b", "1")
	}
	wait(t, "an attempt at each", func() bool {
		tried := 0
		for _, d := range decode[client.Page[client.Delivery]](t, ok(t, s.dir, s.env, "deliveries", "list", "--json")).Data {
			if d.LastAttempt != nil {
				tried++
			}
		}
		return tried == len(answers)
	})
	_, figures := get(t, strings.TrimPrefix(s.env[len(s.env)-1], "WAYBILL_URL=")+"/metrics")
	if !strings.Contains(figures, "waybill_attempts_total") || strings.Contains(figures, canary) {
		t.Error("the metrics hold a receiver's words, or nothing")
	}
	s.stop(syscall.SIGTERM)
	log := s.errs.String()
	if !strings.Contains(log, `"attempt"`) {
		t.Fatal("the log has no attempts; the test shows nothing")
	}
	for line := range strings.Lines(log) {
		if strings.Contains(line, canary) {
			t.Errorf("the log holds a receiver's words: %s", line)
		}
	}
}

// sayer reads a request and answers with the bytes, whoever asks.
func sayer(t *testing.T, answer string) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				if req, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
					_, _ = io.Copy(io.Discard, req.Body)
					_, _ = io.WriteString(conn, answer)
				}
			}()
		}
	}()
	return "http://" + listener.Addr().String() + "/"
}
