package api

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
)

// sightings are the answers that were seen in any test, by route and status. Every one must be
// documented, and TestRoutes_everyStatusIsSeen demands the reverse.
type sightings struct {
	mu   sync.Mutex
	mux  *http.ServeMux
	all  map[string]*route
	seen map[string]map[int]bool
}

var seen = newSightings()

func newSightings() *sightings {
	s := &sightings{mux: http.NewServeMux(), all: map[string]*route{}, seen: map[string]map[int]bool{}}
	for _, r := range routes() {
		pattern := r.method + " " + r.path
		s.mux.HandleFunc(pattern, func(http.ResponseWriter, *http.Request) {})
		s.all[pattern] = r
		s.seen[pattern] = map[int]bool{}
	}
	return s
}

// statuses are those the document has for a route.
func (r *route) statuses() []int {
	all := r.problems()
	for status := range r.answers {
		if !slices.Contains(all, status) {
			all = append(all, status)
		}
	}
	slices.Sort(all)
	return all
}

// routed reports whether the method is a route's at the address: this path's, or that of a more
// general one, to which "check" is an endpoint's uid.
func (s *sightings) routed(method, address string) bool {
	_, pattern := s.mux.Handler(httptest.NewRequest(method, address, nil))
	return s.all[pattern] != nil
}

// check notes an answer, and holds it to what is promised of every answer.
func (s *sightings) check(t *testing.T, r *http.Request, a *reply) {
	t.Helper()
	if a.header.Get("Waybill-Request-Id") == "" {
		t.Errorf("%s: no Waybill-Request-Id", a.what)
	}
	kind := a.header.Get("Content-Type")
	if a.status >= 400 && kind != "application/problem+json" && !strings.HasPrefix(r.URL.Path, "/readyz") {
		t.Errorf("%s: an error of type %q", a.what, kind)
	}
	if kind == "application/problem+json" && r.Method != http.MethodHead {
		p := a.problem()
		if p.Status != a.status || p.RequestID == "" || p.Title == "" || p.Detail == "" || p.Type == "" || p.Errors == nil || codes[p.Code].title == "" {
			t.Errorf("%s: incomplete problem %s", a.what, a.body)
		}
	}
	if !namesSomething(r.URL) {
		return // it has no route
	}
	_, pattern := s.mux.Handler(r)
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.all[pattern]
	if known == nil {
		return
	}
	if !slices.Contains(known.statuses(), a.status) {
		t.Errorf("%s: status %d is not in the document (%v); body %s", a.what, a.status, known.statuses(), a.body)
	}
	s.seen[pattern][a.status] = true
	always, sometimes := known.headersOf(a.status)
	for _, name := range always {
		if a.header.Get(name) == "" {
			t.Errorf("%s: status %d without %s", a.what, a.status, name)
		}
	}
	for name := range answerHeaders {
		if a.header.Get(name) != "" && !slices.Contains(append(always, sometimes...), name) {
			t.Errorf("%s: status %d with %s, which is not in the document", a.what, a.status, name)
		}
	}
}
