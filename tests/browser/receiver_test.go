package browser

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"
)

// receivers are the customers' servers. Which answer a path gives is told by the flows, which
// also ask here what arrived.
type receivers struct {
	mu      sync.Mutex
	answers map[string]reply // by path
	hits    map[string]int   // by path
	last    map[string]arrived
}

// reply is what a path answers; the zero value is 200.
type reply struct {
	Status  int               `json:"status"`
	Headers map[string]string `json:"headers"`
	Body    string            `json:"body"`
	// Skew is added to the date header, in seconds.
	Skew int `json:"skew"`
	// Wait is how long an answer takes, in milliseconds.
	Wait int `json:"wait"`
}

// arrived is the last request of a path.
type arrived struct {
	Headers http.Header `json:"headers"`
	Body    []byte      `json:"body"`
}

// serveReceivers listens on the public address for deliveries, and on loopback for the flows.
func serveReceivers(t *testing.T) (control string) {
	t.Helper()
	r := &receivers{answers: map[string]reply{}, hits: map[string]int{}, last: map[string]arrived{}}
	r.listen(t, publicAddress+":80", http.HandlerFunc(r.receive))
	mux := http.NewServeMux()
	mux.HandleFunc("POST /answer", r.setAnswer)
	mux.HandleFunc("GET /hits", r.showHits)
	mux.HandleFunc("/", r.receive) // a receiver on loopback, which an allow list opens
	return "http://" + r.listen(t, "127.0.0.1:0", mux)
}

func (r *receivers) listen(t *testing.T, address string, h http.Handler) string {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: h, ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { server.Close() })
	return l.Addr().String()
}

func (r *receivers) receive(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return
	}
	r.mu.Lock()
	a := r.answers[req.URL.Path]
	r.hits[req.URL.Path]++
	r.last[req.URL.Path] = arrived{Headers: req.Header, Body: body}
	r.mu.Unlock()
	if a.Wait > 0 {
		select {
		case <-time.After(time.Duration(a.Wait) * time.Millisecond):
		case <-req.Context().Done():
			return
		}
	}
	for name, value := range a.Headers {
		w.Header().Set(name, value)
	}
	if a.Skew != 0 {
		w.Header().Set("Date", time.Now().Add(time.Duration(a.Skew)*time.Second).UTC().Format(http.TimeFormat))
	}
	if a.Status != 0 {
		w.WriteHeader(a.Status)
	}
	_, _ = io.WriteString(w, a.Body)
}

func (r *receivers) setAnswer(w http.ResponseWriter, req *http.Request) {
	var a reply
	if err := json.NewDecoder(req.Body).Decode(&a); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answers[req.FormValue("path")] = a
}

func (r *receivers) showHits(w http.ResponseWriter, req *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	path := req.FormValue("path")
	_ = json.NewEncoder(w).Encode(map[string]any{"hits": r.hits[path], "last": r.last[path]})
}
