// Package program builds the waybill binary and runs it, for tests that need the real thing.
package program

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Build builds ./cmd/waybill for the test, with the given build tags, and returns its path.
func Build(t testing.TB, tags ...string) string {
	t.Helper()
	binary, err := Binary(t.Context(), tags...)
	if err != nil {
		t.Fatal(err)
	}
	return binary
}

// Binary is Build outside a test. Everything tested from one checkout shares the file: linking it
// takes seconds, and go build leaves alone what is up to date.
func Binary(ctx context.Context, tags ...string) (string, error) {
	const module = "github.com/waybill-dev/waybill"
	root, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	if err != nil {
		return "", fmt.Errorf("go list: %w", err)
	}
	dir := strings.TrimSpace(string(root)) // the test may be of a module that only uses this one
	folder := filepath.Join(dir, "bin", "tests")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return "", err
	}
	// One at a time; whoever waited finds it built.
	lock, err := os.Create(filepath.Join(folder, "lock"))
	if err != nil {
		return "", err
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return "", err
	}
	binary := filepath.Join(folder, strings.Join(append([]string{"waybill"}, tags...), "-"))
	cmd := exec.CommandContext(ctx, "go", "build", "-ldflags=-s -w", "-buildvcs=false", "-tags", strings.Join(tags, ","), "-o", binary, module+"/cmd/waybill")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return binary, nil
}

// Server is a running waybill serve.
type Server struct {
	URL    string
	APIKey string
	t      testing.TB
}

// Serve runs the binary until the test ends. Loopback receivers are allowed. A server that does
// not start, or does not stop cleanly, fails the test with what it logged.
func Serve(t testing.TB, binary, databaseURL string) *Server {
	t.Helper()
	place := NewInstance(t, binary, databaseURL)
	running := place.Start()
	t.Cleanup(running.Stop)
	s := &Server{URL: "http://" + place.Listen, APIKey: place.APIKey, t: t}
	s.awaitReady()
	return s
}

func (s *Server) awaitReady() {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), 20*time.Second)
	defer cancel()
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+"/readyz", nil)
		if err != nil {
			s.t.Fatal(err)
		}
		answer, err := http.DefaultClient.Do(req)
		if err != nil {
			s.t.Fatalf("waybill serve is not ready: %v", err)
		}
		answer.Body.Close()
		if answer.StatusCode == http.StatusOK {
			return
		}
	}
}

// Call sends a request with a JSON body (nil for none), wants the given status, and decodes the
// answer into the given value (nil to drop it).
func (s *Server) Call(method, path string, body any, status int, answer any) {
	s.t.Helper()
	var content io.Reader
	switch body := body.(type) {
	case nil:
	case []byte: // sent as it is
		content = bytes.NewReader(body)
	default:
		text, err := json.Marshal(body)
		if err != nil {
			s.t.Fatal(err)
		}
		content = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(s.t.Context(), method, s.URL+path, content)
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+s.APIKey)
	req.Header.Set("Content-Type", "application/json")
	got, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer got.Body.Close()
	text, err := io.ReadAll(got.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	if got.StatusCode != status {
		s.t.Fatalf("%s %s: %s, want %d\n%s", method, path, got.Status, status, text)
	}
	if answer != nil {
		if err := json.Unmarshal(text, answer); err != nil {
			s.t.Fatalf("%s %s: %v\n%s", method, path, err, text)
		}
	}
}

// Endpoint makes the tenant and an endpoint of it that wants everything, and returns its secret.
func (s *Server) Endpoint(tenant, url string) (secret string) {
	s.t.Helper()
	s.Call(http.MethodPut, "/v1/tenants/"+tenant, map[string]any{"max_in_flight": 50}, http.StatusCreated, nil)
	var made struct {
		Secret string `json:"secret"`
	}
	s.Call(http.MethodPost, "/v1/tenants/"+tenant+"/endpoints", map[string]any{"url": url}, http.StatusCreated, &made)
	if made.Secret == "" {
		s.t.Fatal("the answer to a new endpoint has no secret")
	}
	return made.Secret
}
