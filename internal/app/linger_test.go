package app

import (
	"bufio"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/internal/config"
)

func TestWatch_tellsAWatcherFromAScriptThatWaitsForTheStart(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	type question struct {
		after time.Duration
		ready bool
	}
	for name, row := range map[string]struct {
		questions []question
		stops     time.Duration
		want      bool
	}{
		"nobody asks":              {nil, time.Hour, false},
		"asked until it was ready": {[]question{{0, false}, {time.Second, false}, {40 * time.Second, true}}, 41 * time.Second, false},
		"asked a little longer":    {[]question{{0, true}, {4 * time.Second, true}}, 5 * time.Second, false},
		"asked every ten seconds":  {[]question{{0, true}, {10 * time.Second, true}, {20 * time.Second, true}}, 29 * time.Second, true},
		"it was not ready lately":  {[]question{{0, true}, {10 * time.Second, false}}, 12 * time.Second, true},
		"never ready":              {[]question{{0, false}, {10 * time.Second, false}}, 12 * time.Second, false},
		"the watcher has gone":     {[]question{{0, true}, {10 * time.Second, true}}, time.Minute, false},
	} {
		t.Run(name, func(t *testing.T) {
			var w watch
			for _, q := range row.questions {
				w.answered(q.ready, start.Add(q.after))
			}
			if got := w.on(start.Add(row.stops)); got != row.want {
				t.Errorf("watched: %v, want %v", got, row.want)
			}
		})
	}
}

// serving runs a server on a new SQLite file, by more settings if there are; stop tells it to stop.
func serving(t *testing.T, more ...string) (a *App, stop context.CancelFunc, ended chan error) {
	t.Helper()
	const key = "the-key-of-the-lingering-test"
	cfg, err := config.Load(config.Sources{Environ: append(more,
		"WAYBILL_DATABASE_URL=sqlite://"+filepath.Join(t.TempDir(), "waybill.db"),
		"WAYBILL_LISTEN=127.0.0.1:0",
		"WAYBILL_API_KEY="+key,
	)})
	if err != nil {
		t.Fatal(err)
	}
	a, err = New(t.Context(), cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended = make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	return a, stop, ended
}

// asks sends one request on a connection of its own and returns status and body.
func asks(t *testing.T, a *App, method, path, body string) (int, string, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, "http://"+a.Addr()+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+a.cfg.APIKey.Reveal())
	req.Close = true
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer answer.Body.Close()
	content, err := io.ReadAll(answer.Body)
	return answer.StatusCode, string(content), err
}

func TestApp_whoWatchesIsToldBeforeTheListenerCloses(t *testing.T) {
	t.Parallel()
	a, stop, ended := serving(t)
	if status, body, err := asks(t, a, "PUT", "/v1/tenants/acme", `{}`); err != nil || status != http.StatusCreated {
		t.Fatalf("%d %s %v", status, body, err)
	}
	for {
		status, body, err := asks(t, a, "GET", "/readyz", "")
		if err != nil {
			t.Fatal(err, body)
		}
		if status == http.StatusOK {
			break
		}
	}
	// As if that had been a while ago, and somebody had asked again.
	a.watch.mu.Lock()
	a.watch.ready = a.watch.ready.Add(-time.Minute)
	a.watch.mu.Unlock()

	// A balancer's connection that is idle when the stop begins.
	idle, err := net.Dial("tcp", a.listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer idle.Close()
	answers := bufio.NewReader(idle)
	over := func() *http.Response {
		t.Helper()
		if _, err := io.WriteString(idle, "GET /healthz HTTP/1.1\r\nHost: waybill\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		answer, err := http.ReadResponse(answers, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		if _, err := io.Copy(io.Discard, answer.Body); err != nil {
			t.Fatal(err)
		}
		return answer
	}
	if over().Close {
		t.Error("a server that serves closes connections")
	}

	began := time.Now()
	stop()
	for !a.draining.Load() {
		select {
		case err := <-ended:
			t.Fatalf("it stopped at once: %v", err)
		case <-time.After(time.Millisecond):
		}
	}
	if status, body, err := asks(t, a, "GET", "/readyz", ""); err != nil || status != http.StatusServiceUnavailable || !strings.Contains(body, "The server is stopping.") {
		t.Errorf("/readyz of a stopping server: %d %s %v", status, body, err)
	}
	if status, body, err := asks(t, a, "POST", "/v1/tenants/acme/events", `{"type":"a.b","payload":{}}`); err != nil || status != http.StatusAccepted {
		t.Errorf("an event for a stopping server: %d %s %v", status, body, err)
	}
	if !over().Close {
		t.Error("a connection is kept beyond the stop")
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took < lingerFor || took > a.cfg.ShutdownGrace {
		t.Errorf("it took %v to stop", took)
	}
	if _, _, err := asks(t, a, "GET", "/readyz", ""); err == nil {
		t.Error("it still answers")
	}
}

func TestApp_nobodyWatchesNobodyIsWaitedFor(t *testing.T) {
	t.Parallel()
	a, stop, ended := serving(t)
	if status, body, err := asks(t, a, "GET", "/readyz", ""); err != nil {
		t.Fatal(status, body, err)
	}
	began := time.Now()
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took >= lingerFor {
		t.Errorf("it took %v to stop", took)
	}
}
