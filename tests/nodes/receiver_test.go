package nodes

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// receiver is the server of all customers. The last part of a URL's path is the tenant, so the
// requests open at once are counted for each.
type receiver struct {
	t   *testing.T
	url string

	mu       sync.Mutex
	expected map[string]expectation // by webhook-id
	requests map[string][]request   // by webhook-id, in order of arrival
	open     map[string]int         // by tenant
	most     map[string]int
	arrived  chan struct{} // closed and replaced whenever a request arrives
	// answer says what becomes of a request; nil: 204 at once.
	answer func(q request, done <-chan struct{}) int
}

type expectation struct {
	tenant string
	sent   time.Time
}

// request is one request of a node.
type request struct {
	id, tenant, node, attempt string
	at                        time.Time
	status                    int // 0: its sender was gone before the answer
	ended                     time.Time
}

func newReceiver(t *testing.T) *receiver {
	r := &receiver{
		t:        t,
		expected: map[string]expectation{},
		requests: map[string][]request{},
		open:     map[string]int{},
		most:     map[string]int{},
		arrived:  make(chan struct{}),
	}
	server := httptest.NewServer(r)
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	r.url = server.URL
	return r
}

// of is the URL of a tenant's endpoint.
func (r *receiver) of(tenant string) string { return r.url + "/in/" + tenant }

func (r *receiver) script(answer func(q request, done <-chan struct{}) int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answer = answer
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	q := request{
		id:      req.Header.Get("webhook-id"),
		tenant:  req.URL.Path[strings.LastIndexByte(req.URL.Path, '/')+1:],
		node:    req.Header.Get("user-agent"),
		attempt: req.Header.Get("waybill-attempt"),
		at:      time.Now(),
	}
	r.mu.Lock()
	r.requests[q.id] = append(r.requests[q.id], q)
	n := len(r.requests[q.id]) - 1
	r.open[q.tenant]++
	r.most[q.tenant] = max(r.most[q.tenant], r.open[q.tenant])
	answer := r.answer
	close(r.arrived)
	r.arrived = make(chan struct{})
	r.mu.Unlock()

	status := http.StatusNoContent
	if answer != nil {
		status = answer(q, req.Context().Done())
	}
	if req.Context().Err() != nil {
		status = 0
	}
	r.mu.Lock()
	r.open[q.tenant]--
	r.requests[q.id][n].status = status
	r.requests[q.id][n].ended = time.Now()
	r.mu.Unlock()
	if status == 0 {
		panic(http.ErrAbortHandler)
	}
	w.WriteHeader(status)
}

// hold keeps a request open for d, or until its sender is gone.
func hold(d time.Duration, done <-chan struct{}) {
	select {
	case <-time.After(d):
	case <-done:
	}
}

// expect notes an event that was accepted.
func (r *receiver) expect(id, tenant string, sent time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.expected[id] = expectation{tenant, sent}
}

// all returns every request that meets the condition, in order of arrival.
func (r *receiver) all(condition func(q request) bool) []request {
	r.mu.Lock()
	defer r.mu.Unlock()
	var found []request
	for _, requests := range r.requests {
		for _, q := range requests {
			if condition(q) {
				found = append(found, q)
			}
		}
	}
	slices.SortFunc(found, func(a, b request) int { return a.at.Compare(b.at) })
	return found
}

// missing counts the expected events that nobody has delivered.
func (r *receiver) missing() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for id := range r.expected {
		if !slices.ContainsFunc(r.requests[id], request.good) {
			n++
		}
	}
	return n
}

func (q request) good() bool { return q.status >= 200 && q.status < 300 }

func (r *receiver) awaitAll(patience time.Duration) {
	r.t.Helper()
	deadline := time.Now().Add(patience)
	for r.missing() > 0 {
		if time.Now().After(deadline) {
			r.t.Errorf("%d accepted events have not arrived", r.missing())
			return
		}
		pause(10 * time.Millisecond)
	}
}

// awaitRequest waits for the first request that meets the condition.
func (r *receiver) awaitRequest(patience time.Duration, what string, condition func(q request) bool) request {
	r.t.Helper()
	deadline := time.After(patience)
	for {
		r.mu.Lock()
		arrived := r.arrived
		r.mu.Unlock()
		if found := r.all(condition); len(found) > 0 {
			return found[0]
		}
		select {
		case <-arrived:
		case <-deadline:
			r.t.Fatalf("waited %s for %s", patience, what)
		}
	}
}

// latencies returns, for the expected events of the tenants sent within the span, the time from
// sending to the first good arrival, ascending.
func (r *receiver) latencies(tenants []string, from, to time.Time) []time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []time.Duration
	for id, e := range r.expected {
		if !slices.Contains(tenants, e.tenant) || e.sent.Before(from) || e.sent.After(to) {
			continue
		}
		for _, q := range r.requests[id] {
			if q.good() {
				all = append(all, q.at.Sub(e.sent))
				break
			}
		}
	}
	slices.Sort(all)
	return all
}

// settle reports everything that arrived and should not have: what nobody was told is accepted,
// and repeated requests without a cause. A request that failed is the cause of the next. Beyond
// that, a node must have been killed, frozen or cut off after it had started the earlier one.
func (r *receiver) settle(d *diary) {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	repeats := 0
	for id, requests := range r.requests {
		for i, q := range requests[1:] {
			earlier := requests[i]
			if earlier.status != 0 && !earlier.good() {
				continue
			}
			repeats++
			if !d.excuses(earlier.node, earlier.at.Add(-time.Second)) {
				r.t.Errorf("%s of %s was sent by %s at %s (attempt %s, answer %d) and again by %s at %s (attempt %s), and nothing had happened to %s",
					id, q.tenant, earlier.node, clockOf(earlier.at), earlier.attempt, earlier.status, q.node, clockOf(q.at), q.attempt, earlier.node)
			}
		}
	}
	r.t.Logf("%d events accepted, %d arrived, %d requests were repeats", len(r.expected), len(r.requests), repeats)
}

func clockOf(t time.Time) string { return t.Format("15:04:05.000") }

// capped fails the test if a tenant ever had more requests open than its cap.
func (r *receiver) capped(tenant string, most int) {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.most[tenant] > most {
		r.t.Errorf("tenant %s had %d requests open at once, its cap is %d", tenant, r.most[tenant], most)
	}
}
