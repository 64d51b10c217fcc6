package bench

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// One caller posts to a server that accepts, refuses at length, and accepts again.
func TestCaller_readsWhatItIsAnswered(t *testing.T) {
	got := make(chan string, 8)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got <- fmt.Sprintf("%s %s %s %s", r.Method, r.URL.Path, r.Header.Get("Webhook-Id"), body)
		switch r.URL.Path {
		case "/refuses":
			w.Header().Set("Content-Length", "5000")
			w.WriteHeader(http.StatusServiceUnavailable)
			io.WriteString(w, "too busy"+strings.Repeat(".", 4992))
		case "/accepts":
			w.WriteHeader(http.StatusAccepted)
			io.WriteString(w, "stored")
		case "/silent":
			w.WriteHeader(http.StatusNoContent)
		}
	}))
	defer server.Close()
	c, err := newCaller(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	for i, path := range []string{"/accepts", "/silent", "/refuses", "/accepts"} {
		err := c.post(t.Context(), path, []field{{"Webhook-Id", fmt.Sprint(i)}}, []byte("{}"))
		switch {
		case path != "/refuses" && err != nil:
			t.Errorf("%s: %v", path, err)
		case path == "/refuses" && (err == nil || !strings.HasPrefix(err.Error(), "/refuses: 503 Service Unavailable: too busy...")):
			t.Errorf("%s: %v", path, err)
		}
		if sent, want := <-got, fmt.Sprintf("POST %s %d {}", path, i); sent != want {
			t.Errorf("sent %q, want %q", sent, want)
		}
	}
}
