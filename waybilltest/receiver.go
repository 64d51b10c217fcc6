package waybilltest

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/signature"
)

// Receiver is a customer's server for tests. It listens on loopback, verifies every request as a
// careful customer does, keeps it, and answers as scripted, or 204. It is safe for concurrent use.
type Receiver struct {
	// URL is the address to give to the endpoint.
	URL string

	t       testing.TB
	mu      sync.Mutex
	changed chan struct{} // closed and replaced with every request kept
	secrets []signature.Secret
	script  []Answer
	got     []Delivery
}

// Delivery is one request that reached the receiver.
type Delivery struct {
	ID        string // webhook-id: the event's id
	EventType string // waybill-event-type
	Attempt   int    // waybill-attempt, from 1
	Sequence  int64  // waybill-sequence, gapless per endpoint
	Header    http.Header
	Body      []byte
	At        time.Time
	// Err says why the request was refused with 401: its signature does not verify under any
	// trusted secret, or its time is off.
	Err error
	// Status is what was answered; 0 if the connection was cut instead.
	Status int
}

// Answer is how the receiver treats one request.
type Answer struct {
	Status int // 0: 204
	Header http.Header
	Body   string
	// Wait is how long to think first. It ends early when the sender hangs up.
	Wait time.Duration
	// Hangup cuts the connection instead of answering.
	Hangup bool
}

// maxBody is more than any payload: 1 MiB is the most an instance can accept.
const maxBody = 2 << 20

// NewReceiver starts a receiver that stops with the test. Until it trusts a secret it refuses
// everything.
func NewReceiver(t testing.TB) *Receiver {
	r := &Receiver{t: t, changed: make(chan struct{})}
	server := httptest.NewServer(r)
	t.Cleanup(server.Close)
	r.URL = server.URL
	return r
}

// Trust adds signing secrets, "whsec_…": a request that verifies under any of them is genuine.
// An endpoint's secret is known only after it was made with the receiver's URL. A text that is
// no secret fails the test at once.
func (r *Receiver) Trust(secrets ...string) {
	r.t.Helper()
	for _, text := range secrets {
		secret, err := signature.ParseSecret(text)
		if err != nil {
			r.t.Fatalf("waybilltest: %v", err)
		}
		r.mu.Lock()
		r.secrets = append(r.secrets, secret)
		r.mu.Unlock()
	}
}

// Answer scripts the next genuine requests, one answer each; those after them get 204.
func (r *Receiver) Answer(script ...Answer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.script = append(r.script, script...)
}

// Received returns every request so far, refused ones too, in order of arrival.
func (r *Receiver) Received() []Delivery {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]Delivery(nil), r.got...)
}

// Await returns the first n genuine requests answered with 2xx, in order of arrival, and fails
// the test at once if they do not come within the given time.
func (r *Receiver) Await(n int, within time.Duration) []Delivery {
	r.t.Helper()
	deadline := time.NewTimer(within)
	defer deadline.Stop()
	for {
		r.mu.Lock()
		changed := r.changed
		var accepted, refused []Delivery
		for _, d := range r.got {
			if d.Err != nil {
				refused = append(refused, d)
			} else if d.Status/100 == 2 {
				accepted = append(accepted, d)
			}
		}
		all := len(r.got)
		r.mu.Unlock()
		if len(accepted) >= n {
			return accepted[:n]
		}
		select {
		case <-changed:
		case <-deadline.C:
			for _, d := range refused {
				r.t.Logf("refused %s: %v", d.ID, d.Err)
			}
			r.t.Fatalf("waited %s for %d deliveries: %d requests came, %d accepted, %d refused as not genuine",
				within, n, all, len(accepted), len(refused))
		}
	}
}

// ServeHTTP is the receiver's HTTP side; httptest calls it.
func (r *Receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, maxBody))
	if err != nil {
		return // the sender went away, or sends what no sender of ours may
	}
	d := Delivery{
		ID:        req.Header.Get("webhook-id"),
		EventType: req.Header.Get("waybill-event-type"),
		Header:    req.Header.Clone(),
		Body:      body,
		At:        time.Now(),
	}
	d.Attempt, _ = strconv.Atoi(req.Header.Get("waybill-attempt"))
	d.Sequence, _ = strconv.ParseInt(req.Header.Get("waybill-sequence"), 10, 64)

	answer := r.judge(&d)
	if answer.Wait > 0 {
		select {
		case <-time.After(answer.Wait):
		case <-req.Context().Done():
		}
	}
	r.keep(d)
	if answer.Hangup {
		panic(http.ErrAbortHandler) // net/http's way to cut the connection without an answer
	}
	for name, values := range answer.Header {
		w.Header()[http.CanonicalHeaderKey(name)] = values
	}
	w.WriteHeader(d.Status)
	io.WriteString(w, answer.Body)
}

// judge verifies the request and takes its answer from the script.
func (r *Receiver) judge(d *Delivery) Answer {
	r.mu.Lock()
	defer r.mu.Unlock()
	verifier := signature.Verifier{Secrets: r.secrets}
	if _, d.Err = verifier.Verify(d.Header, d.Body); d.Err != nil {
		d.Status = http.StatusUnauthorized
		return Answer{}
	}
	var answer Answer
	if len(r.script) > 0 {
		answer, r.script = r.script[0], r.script[1:]
	}
	switch {
	case answer.Hangup:
		d.Status = 0
	case answer.Status == 0:
		d.Status = http.StatusNoContent
	default:
		d.Status = answer.Status
	}
	return answer
}

func (r *Receiver) keep(d Delivery) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.got = append(r.got, d)
	close(r.changed)
	r.changed = make(chan struct{})
}
