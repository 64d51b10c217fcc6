package listen

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/waybill-dev/waybill/internal/client"
	"github.com/waybill-dev/waybill/signature"
)

// fakeServer streams events, and cuts the stream after every third.
type fakeServer struct {
	events []client.Event
	mu     sync.Mutex
	heard  []string // the Last-Event-ID of each connection
}

func (f *fakeServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	last := r.Header.Get("Last-Event-ID")
	f.mu.Lock()
	f.heard = append(f.heard, last)
	f.mu.Unlock()
	w.Header().Set("Content-Type", "text/event-stream")
	fmt.Fprint(w, ": waybill\n\n")
	if last == "" {
		last = "evt_000000"
		fmt.Fprintf(w, "id: %s\n\n", last)
	}
	sent := 0
	for _, e := range f.events {
		if e.ID <= last {
			continue
		}
		if sent == 3 {
			return
		}
		sent++
		payload := base64.StdEncoding.EncodeToString([]byte(payloadOf(e.ID)))
		fmt.Fprintf(w, "event: event\nid: %s\ndata: {\"id\":%q,\"type\":\"a.b\",\"payload_base64\":%q}\n\n: beat\n\n", e.ID, e.ID, payload)
	}
	w.(http.Flusher).Flush()
	<-r.Context().Done()
}

// payloadOf has white space and digits that must arrive as they are.
func payloadOf(id string) string { return fmt.Sprintf(`{ "event":"%s", "n":1.0 }`, id) }

func TestPuller_bringsEveryEventOnceThoughTheStreamIsCut(t *testing.T) {
	server := &fakeServer{}
	for i := range 8 {
		server.events = append(server.events, client.Event{ID: fmt.Sprintf("evt_%06d", i+1)})
	}
	api := httptest.NewServer(server)
	defer api.Close()
	c, err := client.New(client.Config{URL: api.URL})
	if err != nil {
		t.Fatal(err)
	}
	s := secret(t)
	arrived := make(chan string, 100)
	local := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		message, err := (&signature.Verifier{Secrets: []signature.Secret{s}}).Verify(r.Header, body)
		if err != nil || string(body) != payloadOf(message.ID) {
			t.Errorf("body %q: %v", body, err)
		}
		arrived <- message.ID
	}))
	defer local.Close()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- (&Puller{Client: c, Tenant: "acme", To: local.URL, Secret: s}).Run(ctx) }()
	for _, e := range server.events {
		select {
		case id := <-arrived:
			if id != e.ID {
				t.Errorf("got %s, want %s", id, e.ID)
			}
		case <-time.After(20 * time.Second):
			t.Fatalf("%s did not come", e.ID)
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if len(arrived) != 0 {
		t.Errorf("%d events came twice", len(arrived))
	}
	server.mu.Lock()
	defer server.mu.Unlock()
	if diff := cmp.Diff([]string{"", "evt_000003", "evt_000006"}, server.heard); diff != "" {
		t.Error(diff)
	}
}

func TestPuller_saysAtOnceWhatTheServerRefuses(t *testing.T) {
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusNotFound)
		io.WriteString(w, `{"status":404,"code":"unknown_tenant","detail":"there is no tenant acme"}`)
	}))
	defer api.Close()
	c, err := client.New(client.Config{URL: api.URL})
	if err != nil {
		t.Fatal(err)
	}
	err = (&Puller{Client: c, Tenant: "acme", Secret: secret(t)}).Run(t.Context())
	if want := "the server answered 404 unknown_tenant: there is no tenant acme"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}
