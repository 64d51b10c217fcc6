package attempt_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/internal/attempt"
	"github.com/waybill-dev/waybill/internal/egress"
	"github.com/waybill-dev/waybill/internal/outbox"
)

// Every status there is, by rule: what is not named here follows its class.
func TestSender_everyStatus(t *testing.T) {
	b := newBench(t, egress.Config{})
	rule := func(status int) (outbox.Outcome, outbox.Kind) {
		switch {
		case status < 200 || status > 599:
			return outbox.OutcomeTransient, outbox.KindProtocol
		case status < 300:
			return outbox.OutcomeDelivered, ""
		case status < 400:
			return outbox.OutcomePermanent, outbox.KindRedirect
		case status == 408, status == 409, status == 425, status == 429:
			return outbox.OutcomeTransient, outbox.KindHTTPStatus
		case status < 500, status == 501, status == 505:
			return outbox.OutcomePermanent, outbox.KindHTTPStatus
		}
		return outbox.OutcomeTransient, outbox.KindHTTPStatus
	}
	for status := 200; status <= 999; status++ {
		if status >= 600 && status != 600 && status != 999 {
			continue
		}
		s := answers(t, reply(status, "", ""))
		out := b.send(t, s.url())
		outcome, kind := rule(status)
		if out.StatusCode != status || out.Outcome != outcome || out.Kind != kind {
			t.Errorf("%d ends as %s %s with status %d, want %s %s", status, out.Outcome, out.Kind, out.StatusCode, outcome, kind)
		}
		if outcome != outbox.OutcomeDelivered && !strings.Contains(out.Message, fmt.Sprint(status)) {
			t.Errorf("%d: the sentence does not name it: %s", status, out.Message)
		}
	}
}

func TestSender_retryStatusesMakePermanentAnswersTransient(t *testing.T) {
	b := newBench(t, egress.Config{})
	with := func(statuses ...string) func(*attempt.Endpoint) {
		return func(e *attempt.Endpoint) { e.Retry.RetryStatuses = statuses }
	}
	for _, row := range []struct {
		status   int
		statuses []string
		want     outbox.Outcome
	}{
		{404, nil, outbox.OutcomePermanent},
		{404, []string{"404"}, outbox.OutcomeTransient},
		{404, []string{"410"}, outbox.OutcomePermanent},
		{404, []string{"4xx"}, outbox.OutcomeTransient},
		{302, []string{"4xx"}, outbox.OutcomePermanent},
		{302, []string{"3xx"}, outbox.OutcomeTransient},
		{501, []string{"5xx"}, outbox.OutcomeTransient},
		{500, []string{"404"}, outbox.OutcomeTransient},
		{200, []string{"404"}, outbox.OutcomeDelivered},
	} {
		s := answers(t, reply(row.status, "", ""))
		if out := b.send(t, s.url(), with(row.statuses...)); out.Outcome != row.want {
			t.Errorf("%d with retry_statuses %v: %s, want %s", row.status, row.statuses, out.Outcome, row.want)
		}
	}
}

func TestSender_oddAnswers(t *testing.T) {
	b := newBench(t, egress.Config{})
	protocol := verdict{outbox.OutcomeTransient, outbox.KindProtocol, 0}
	status := func(want verdict, n int) verdict { want.status = n; return want }
	for name, row := range map[string]struct {
		raw  string
		want verdict
		body string
	}{
		"204":                            {"HTTP/1.1 204 No Content\r\n\r\n", status(delivered, 204), ""},
		"204 with a body":                {"HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\nhello", status(delivered, 204), ""},
		"200 with HTML":                  {reply(200, "Content-Type: text/html\r\n", "<html>"), delivered, "<html>"},
		"200 with nothing":               {reply(200, "", ""), delivered, ""},
		"only a status line":             {"HTTP/1.1 200 OK\r\n\r\n", delivered, ""},
		"a status line without a phrase": {"HTTP/1.1 200\r\n\r\n", delivered, ""},
		"bare line feeds":                {"HTTP/1.1 200 OK\n\nclose", delivered, "close"},
		"HTTP/1.0":                       {"HTTP/1.0 200 OK\r\n\r\nok close", delivered, "ok close"},
		"chunked, with a trailer":        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X\r\n\r\n2\r\nok\r\n0\r\nX: y\r\n\r\n", delivered, "ok"},
		"103, then 200":                  {"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" + reply(200, "", "ok"), delivered, "ok"},
		"100, then 200":                  {"HTTP/1.1 100 Continue\r\n\r\n" + reply(200, "", "ok"), delivered, "ok"},
		"shorter than it says":           {"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello close", delivered, "hello clos"},
		"cut off in its body":            {"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhello close", delivered, "hello close"},
		"cut off in a chunk":             {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n64\r\nhello close", delivered, "hello close"},
		"500 cut off in its body":        {"HTTP/1.1 500 No\r\nContent-Length: 100\r\n\r\noops close", verdict{outbox.OutcomeTransient, outbox.KindHTTPStatus, 500}, "oops close"},
		"bytes that are not UTF-8":       {reply(200, "", "\xe2\x28\x41"), delivered, "\xe2\x28\x41"},
		"500, bytes that are not UTF-8":  {reply(500, "", "\xe2\x28\x41"), verdict{outbox.OutcomeTransient, outbox.KindHTTPStatus, 500}, "\xe2\x28\x41"},
		"a NUL":                          {reply(200, "", "a\x00b"), delivered, "a\x00b"},
		"cut off in its header":          {"HTTP/1.1 200 OK\r\n", protocol, ""},
		"cut off in its status line":     {"HTTP/1.1 2", protocol, ""},
		"two lengths":                    {"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", protocol, ""},
		"a negative length":              {"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\nab", protocol, ""},
		"a banner of SSH":                {"SSH-2.0-x\r\n", protocol, ""},
		"HTTP/0.9":                       {"<html>hello</html>\r\n\r\n", protocol, ""},
		"HTTP/2 without asking":          {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", protocol, ""},
		"a status of two digits":         {"HTTP/1.1 99 What\r\n\r\n", protocol, ""},
		"a status of four digits":        {"HTTP/1.1 2000 OK\r\n\r\n", protocol, ""},
		"a status of letters":            {"HTTP/1.1 abc OK\r\n\r\n", protocol, ""},
		"a negative status":              {"HTTP/1.1 -20 OK\r\n\r\n", protocol, ""},
		"status 000":                     {"HTTP/1.1 000 Zero\r\n\r\n", protocol, ""},
		"status 999":                     {reply(999, "", "x"), status(protocol, 999), "x"},
		"status 101":                     {"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\nhello", status(protocol, 101), ""},
		"a header line without a colon":  {"HTTP/1.1 200 OK\r\nnonsense\r\n\r\n", protocol, ""},
		"a NUL in a header":              {"HTTP/1.1 200 OK\r\nServer: a\x00b\r\n\r\n", protocol, ""},
		"a header of 1 MB":               {"HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 1<<20) + "\r\n\r\n", protocol, ""},
		"twenty thousand header lines":   {"HTTP/1.1 200 OK\r\n" + strings.Repeat("X: y\r\n", 20_000) + "\r\n", protocol, ""},
		"five thousand early hints":      {strings.Repeat("HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n", 5_000) + reply(200, "", "ok"), protocol, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := answers(t, row.raw)
			out := b.send(t, s.url(), within(20*time.Second))
			expect(t, out, row.want)
			if string(out.ResponseBody) != row.body {
				t.Errorf("kept %q, want %q", out.ResponseBody, row.body)
			}
			if n := len(s.received()); n != 1 {
				t.Errorf("the receiver got %d requests", n)
			}
			if out.Duration > 10*time.Second {
				t.Errorf("took %s", out.Duration)
			}
		})
	}
}

func TestSender_redirectsAreShownAndNotFollowed(t *testing.T) {
	b := newBench(t, egress.Config{})
	for name, row := range map[string]struct{ location, says string }{
		"to a path":           {"/login", "http://127.0.0.1:"},
		"to another origin":   {"https://login.example.com:8443/x?token=sesame#y", " https://login.example.com:8443;"},
		"with userinfo":       {"https://alice:hunter2@login.example.com/", " https://login.example.com;"},
		"without a location":  {"", "without saying where to"},
		"to something else":   {"javascript:alert(1)", "without saying where to"},
		"to nothing readable": {"http://[::1", "without saying where to"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, status := range []int{300, 301, 302, 303, 304, 307, 308} {
				header := ""
				if row.location != "" {
					header = "Location: " + row.location + "\r\n"
				}
				s := answers(t, reply(status, header, ""))
				out := b.send(t, s.url())
				expect(t, out, verdict{outbox.OutcomePermanent, outbox.KindRedirect, status})
				if !strings.Contains(out.Message, row.says) {
					t.Errorf("%d: %q does not say %q", status, out.Message, row.says)
				}
				if strings.Contains(out.Message, "hunter2") || strings.Contains(out.Message, "sesame") {
					t.Errorf("%q shows a secret", out.Message)
				}
				if n := len(s.received()); n != 1 {
					t.Errorf("%d: the receiver got %d requests", status, n)
				}
			}
		})
	}
}

// stream writes the same piece until the other side hangs up, with a pause after each.
func stream(conn net.Conn, piece string, pause time.Duration) {
	tick := time.NewTicker(max(pause, 1))
	defer tick.Stop()
	for {
		if _, err := io.WriteString(conn, piece); err != nil {
			return
		}
		if pause > 0 {
			<-tick.C
		}
	}
}

func TestSender_answersThatDoNotEnd(t *testing.T) {
	const limit = 300 * time.Millisecond
	b := newBench(t, egress.Config{})
	timeout := verdict{outbox.OutcomeTransient, outbox.KindTimeout, 0}
	for name, row := range map[string]struct {
		behave    func(conn net.Conn)
		want      verdict
		truncated bool
		atOnce    bool // does not need the timeout to end
	}{
		"nothing at all": {func(conn net.Conn) { io.Copy(io.Discard, conn) }, timeout, false, false},
		"a drip of a status line": {func(conn net.Conn) {
			io.WriteString(conn, "HTTP/1.1 2")
			stream(conn, "0", 20*time.Millisecond)
		}, timeout, false, false},
		"a drip of header lines": {func(conn net.Conn) {
			io.WriteString(conn, "HTTP/1.1 200 OK\r\n")
			stream(conn, "X: y\r\n", 20*time.Millisecond)
		}, timeout, false, false},
		"a slow stream of early hints": {func(conn net.Conn) {
			stream(conn, "HTTP/1.1 103 Early Hints\r\n\r\n", 20*time.Millisecond)
		}, timeout, false, false},
		"200, then a drip": {func(conn net.Conn) {
			io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
			stream(conn, "x", 20*time.Millisecond)
		}, delivered, true, false},
		"200, then silence": {func(conn net.Conn) {
			io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n")
			io.Copy(io.Discard, conn)
		}, delivered, true, false},
		"500, then a drip": {func(conn net.Conn) {
			io.WriteString(conn, "HTTP/1.1 500 No\r\n\r\n")
			stream(conn, "x", 20*time.Millisecond)
		}, verdict{outbox.OutcomeTransient, outbox.KindHTTPStatus, 500}, true, false},
		"200, then a flood": {func(conn net.Conn) {
			io.WriteString(conn, "HTTP/1.1 200 OK\r\n\r\n")
			stream(conn, strings.Repeat("x", 64<<10), 0)
		}, delivered, true, true},
		"200, then a flood of chunks": {func(conn net.Conn) {
			io.WriteString(conn, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
			stream(conn, strings.Repeat("1\r\nx\r\n", 1000), 0)
		}, delivered, true, true},
		"a flood of header": {func(conn net.Conn) {
			io.WriteString(conn, "HTTP/1.1 200 OK\r\nX: ")
			stream(conn, strings.Repeat("x", 64<<10), 0)
		}, verdict{outbox.OutcomeTransient, outbox.KindProtocol, 0}, false, true},
		"a flood of early hints": {func(conn net.Conn) {
			stream(conn, strings.Repeat("HTTP/1.1 103 Early Hints\r\n\r\n", 100), 0)
		}, verdict{outbox.OutcomeTransient, outbox.KindProtocol, 0}, false, true},
		"101, then silence": {func(conn net.Conn) {
			io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n")
			io.Copy(io.Discard, conn)
		}, verdict{outbox.OutcomeTransient, outbox.KindProtocol, 101}, false, true},
		"101, then a drip": {func(conn net.Conn) {
			io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n")
			stream(conn, "x", 20*time.Millisecond)
		}, verdict{outbox.OutcomeTransient, outbox.KindProtocol, 101}, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSink(t, func(s *sink, conn net.Conn) {
				if s.receive(bufio.NewReader(conn)) {
					row.behave(conn)
				}
			})
			timeout := limit
			if row.atOnce {
				timeout = 10 * limit
			}
			out := b.send(t, s.url(), within(timeout))
			expect(t, out, row.want)
			if out.Truncated != row.truncated {
				t.Errorf("truncated: %v, want %v", out.Truncated, row.truncated)
			}
			if len(out.ResponseBody) > outbox.KeepOfFailure {
				t.Errorf("kept %d bytes", len(out.ResponseBody))
			}
			if out.Duration > limit+time.Second { // a busy machine is given a second
				t.Errorf("took %s", out.Duration)
			}
		})
	}
}

func TestSender_keepsABoundedPrefix(t *testing.T) {
	b := newBench(t, egress.Config{})
	for name, row := range map[string]struct {
		status, length, kept int
		truncated            bool
	}{
		"a success of 1 KiB":          {200, 1 << 10, 1 << 10, false},
		"a success of 1 KiB and one":  {200, 1<<10 + 1, 1 << 10, true},
		"a success of 16 KiB":         {200, 16 << 10, 1 << 10, true},
		"a success of 100 KiB":        {200, 100 << 10, 1 << 10, true},
		"a failure of 1 KiB and one":  {500, 1<<10 + 1, 1<<10 + 1, false},
		"a failure of 16 KiB":         {500, 16 << 10, 16 << 10, false},
		"a failure of 16 KiB and one": {500, 16<<10 + 1, 16 << 10, true},
		"a failure of 100 KiB":        {500, 100 << 10, 16 << 10, true},
	} {
		t.Run(name, func(t *testing.T) {
			body := strings.Repeat("x", row.length)
			s := answers(t, reply(row.status, "", body))
			out := b.send(t, s.url())
			if string(out.ResponseBody) != body[:row.kept] || out.Truncated != row.truncated {
				t.Errorf("kept %d bytes, truncated %v, want %d, %v", len(out.ResponseBody), out.Truncated, row.kept, row.truncated)
			}
		})
	}
}

// An answer that was read to its end leaves a connection to use again; a longer one does not.
func TestSender_reusesConnectionsOfAnswersThatFit(t *testing.T) {
	b := newBench(t, egress.Config{})
	for length, conns := range map[int]int{2: 1, 16 << 10: 1, 17 << 10: 3} {
		s := answers(t, reply(200, "", strings.Repeat("x", length)))
		target := b.Prepare(attempt.Endpoint{URL: s.url(), Secrets: []outbox.Secret{{Value: testSecret}}})
		for range 3 {
			expect(t, b.do(t, target), delivered)
		}
		if n := s.connections(); n != conns {
			t.Errorf("answers of %d bytes: 3 attempts took %d connections, want %d", length, n, conns)
		}
	}
}

// Text that is cut stays text: a limit in the middle of a character gives up the character.
func TestSender_truncatesBetweenCharacters(t *testing.T) {
	b := newBench(t, egress.Config{})
	s := answers(t, reply(500, "", strings.Repeat("€", 10_000))) // three bytes each; 16 KiB = 5461 × 3 + 1
	out := b.send(t, s.url())
	if got, want := string(out.ResponseBody), strings.Repeat("€", 5461); got != want || !out.Truncated {
		t.Errorf("kept %d bytes, truncated %v, want %d", len(got), out.Truncated, len(want))
	}
	s = answers(t, reply(500, "", strings.Repeat("\xff", 20_000)))
	if out := b.send(t, s.url()); len(out.ResponseBody) != outbox.KeepOfFailure {
		t.Errorf("of bytes that are no text %d are kept, want all %d", len(out.ResponseBody), outbox.KeepOfFailure)
	}
}

func TestSender_compressedAnswersAreNotUnpacked(t *testing.T) {
	var bomb bytes.Buffer
	z := gzip.NewWriter(&bomb)
	zeros := make([]byte, 1<<20)
	for range 8 {
		z.Write(zeros)
	}
	z.Close()
	b := newBench(t, egress.Config{})
	s := answers(t, reply(200, "Content-Encoding: gzip\r\n", bomb.String()))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range 20 {
		out := b.send(t, s.url())
		expect(t, out, delivered)
		if !bytes.Equal(out.ResponseBody, bomb.Bytes()[:outbox.KeepOfSuccess]) {
			t.Fatal("what is kept is not what was sent")
		}
	}
	runtime.ReadMemStats(&after)
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 4<<20 {
		t.Errorf("20 answers allocated %d MiB", grown>>20)
	}
}

func TestSender_keepsOnlyHarmlessHeaders(t *testing.T) {
	b := newBench(t, egress.Config{})
	s := answers(t, reply(500, "Set-Cookie: session=sesame\r\nX-REQUEST-ID: r1\r\nserver: nginx\r\nX-Internal: 10.0.0.1\r\nRetry-After: 120\r\nDate: Mon, 30 Nov 2026 12:00:00 GMT\r\n"+
		"Content-Type: text/\xe9\r\nCf-Ray: "+strings.Repeat("x", 5000)+"\r\n", "oops"))
	out := b.send(t, s.url())
	got := map[string]string{}
	for _, h := range out.ResponseHeaders {
		got[h.Name] = h.Value
	}
	want := map[string]string{
		"x-request-id": "r1", "server": "nginx", "retry-after": "120", "date": "Mon, 30 Nov 2026 12:00:00 GMT",
		"content-type": "text/\uFFFD", "content-length": "4", "cf-ray": strings.Repeat("x", 1024),
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("kept %v, want %v", got, want)
	}
}

func TestSender_retryAfterIsReadOfTransientAnswers(t *testing.T) {
	b := newBench(t, egress.Config{})
	b.at(time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC))
	for _, row := range []struct {
		status int
		value  string
		want   time.Duration
	}{
		{429, "120", 2 * time.Minute},
		{503, "120", 2 * time.Minute},
		{500, "7", 7 * time.Second},
		{429, "Mon, 30 Nov 2026 12:10:00 GMT", 10 * time.Minute},
		{404, "120", 0},
		{200, "120", 0},
	} {
		s := answers(t, reply(row.status, "Retry-After: "+row.value+"\r\n", ""))
		out := b.send(t, s.url())
		if d := (row.want - out.RetryAfter).Abs(); d > 5*time.Second || row.want == 0 && d != 0 {
			t.Errorf("%d with %q asks for %s, want %s", row.status, row.value, out.RetryAfter, row.want)
		}
	}
}

// What a server sends outside of an answer is logged nowhere, and what a library says about
// strangers' bytes is counted only.
func TestCatchStrayLog_keepsStrangersBytesOut(t *testing.T) {
	var ours, stray bytes.Buffer
	log.SetOutput(&stray)
	egress.CatchStrayLog(slog.New(slog.NewTextHandler(&ours, &slog.HandlerOptions{Level: slog.LevelDebug})))
	t.Cleanup(func() { log.SetOutput(io.Discard); log.SetFlags(log.LstdFlags) })
	b := newBench(t, egress.Config{})
	s := answers(t, "HTTP/1.1 204 No Content\r\n\r\nforged line", reply(200, "", ""))
	for n := range 3 {
		out := b.send(t, s.url())
		if out.Outcome != outbox.OutcomeDelivered && out.Kind != outbox.KindReset && out.Kind != outbox.KindProtocol {
			t.Errorf("attempt %d ends as %s (%s)", n, out.Kind, out.Message)
		}
	}
	log.Print("a response starting with \"forged line\"")
	if stray.Len() > 0 || strings.Contains(ours.String(), "forged") || !strings.Contains(ours.String(), "lines=1") {
		t.Errorf("logged %q and %q", stray.String(), ours.String())
	}
}

// Many at once, of all kinds, each get their own answer.
func TestSender_manyAtOnce(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var served atomic.Int64
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		served.Add(1)
		body, _ := io.ReadAll(r.Body)
		w.Write(body)
	})}
	go srv.Serve(l)
	t.Cleanup(func() { srv.Close() })
	b := newBench(t, egress.Config{})
	target := b.Prepare(attempt.Endpoint{URL: "http://" + l.Addr().String(), Secrets: []outbox.Secret{{Value: testSecret}}})
	done := make(chan error)
	const workers, each = 32, 50
	for w := range workers {
		go func() {
			for n := range each {
				payload := fmt.Sprintf(`{"worker":%d,"n":%d}`, w, n)
				out := b.Do(t.Context(), attempt.Request{Target: target, Event: testEvent, EventType: "a", N: n, Sequence: int64(n), Payload: []byte(payload)})
				if out.Outcome != outbox.OutcomeDelivered || string(out.ResponseBody) != payload {
					done <- fmt.Errorf("%s got %q (%s)", payload, out.ResponseBody, out.Message)
					return
				}
			}
			done <- nil
		}()
	}
	for range workers {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if n := served.Load(); n != workers*each {
		t.Errorf("%d requests served, want %d", n, workers*each)
	}
}
