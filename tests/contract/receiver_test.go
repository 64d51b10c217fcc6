package contract

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/waybill-dev/waybill/tests/loopback"
)

// receiver is a customer's server. It keeps what it gets, and answers as it is told.
type receiver struct {
	URL string

	mu     sync.Mutex
	bodies map[string][][]byte // by webhook-id
	status int
	first  map[string]int // what some paths answer to the first request of an event
}

func newReceiver(t *testing.T) *receiver {
	t.Helper()
	host, port, err := loopback.Address()
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.ParseIP(host), Port: port})
	if err != nil {
		t.Fatal(err)
	}
	r := &receiver{bodies: map[string][][]byte{}, status: http.StatusOK, first: map[string]int{}}
	server := &httptest.Server{Listener: listener, Config: &http.Server{Handler: r}}
	server.Start()
	t.Cleanup(server.Close)
	r.URL = server.URL
	return r
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	id := req.Header.Get("webhook-id")
	r.bodies[id] = append(r.bodies[id], body)
	status := r.status
	if own, has := r.first[req.URL.Path]; has && len(r.bodies[id]) == 1 {
		status = own
	}
	w.WriteHeader(status)
}

func (r *receiver) answer(status int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.status = status
}

// fails makes a path answer so to the first request of each event.
func (r *receiver) fails(path string, status int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.first[path] = status
}

func (r *receiver) got(id string) [][]byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.bodies[id]
}
