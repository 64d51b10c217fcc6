package poison

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"

	"github.com/waybill-dev/waybill/internal/poison"
	"github.com/waybill-dev/waybill/internal/postgres/pgtest"
	"github.com/waybill-dev/waybill/tests/program"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func TestServer_diesTwiceOfAPoisonEventAndNoMore(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the program and lets it die")
	}
	binary := program.Build(t, "poison")
	for name, mark := range map[string]string{"attempted": poison.AttemptMark, "routed": poison.RouteMark} {
		t.Run("when it is "+name+", sqlite", func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "waybill.db")
			poisoned(t, newServer(t, binary, "sqlite://"+path), mark, "sqlite", "file:"+path+"?_pragma=busy_timeout(5000)", "waybill_suspect")
		})
		t.Run("when it is "+name+", postgres", func(t *testing.T) {
			t.Parallel()
			dsn := pgtest.DSN(t)
			poisoned(t, newServer(t, binary, dsn), mark, "pgx", dsn, "waybill.suspect")
		})
	}
}

const (
	strangers = 6  // tenants that have nothing to do with it
	each      = 20 // events for each of them, and for the poisoned tenant beside its poison
	hanging   = 3  // events for an endpoint that never answers
)

func poisoned(t *testing.T, s *server, mark, driver, dsn, suspects string) {
	r := newReceiver(t)
	s.dead = func(n int) {
		written := countRows(t, driver, dsn, "SELECT count(*) FROM "+suspects)
		switch {
		case n == 1 && written != 0:
			t.Errorf("%d suspects are written down although no owner had died before", written)
		case n == 2 && written == 0:
			t.Error("after the second death nobody is suspected")
		}
		t.Logf("death %d: %d suspects", n, written)
	}
	s.run()

	// Everything is stored before anything is sent.
	var resume []func()
	for i := range strangers + 1 {
		tenant := fmt.Sprintf("tenant-%d", i)
		s.must(http.StatusCreated, http.MethodPut, "/v1/tenants/"+tenant, map[string]any{"max_in_flight": 4}, nil)
		id := s.endpoint(tenant, r.url+"/"+tenant, "paused")
		resume = append(resume, func() { s.resume(tenant, id) })
		for n := range each {
			s.publish(tenant, map[string]any{"tenant": i, "n": n})
		}
	}
	s.must(http.StatusCreated, http.MethodPut, "/v1/tenants/slow", map[string]any{"max_in_flight": 3}, nil)
	slow := s.endpoint("slow", r.url+"/hang", "paused")
	for n := range hanging {
		s.publish("slow", map[string]any{"hangs": n})
	}
	resume = append(resume, func() { s.resume("slow", slow) })
	s.publish("tenant-0", map[string]any{"bad": mark})
	for _, run := range resume {
		for tries := 0; tries < 40 && !s.up(); tries++ {
			<-time.After(250 * time.Millisecond)
		}
		run()
	}

	await(t, 90*time.Second, "the poison to be given up and the innocent delivered", func() bool {
		for _, run := range resume { // a request that met a death was not answered
			if s.up() {
				run()
			}
		}
		if !s.up() || len(r.missing()) > 0 {
			return false
		}
		status, text := s.send(http.MethodGet, "/v1/deliveries?state=dead", nil)
		return status == http.StatusOK && strings.Contains(string(text), `"poison"`)
	})

	letters := s.deadLetters()
	if len(letters) != 1 || letters[0].Dead.Reason != "poison" || !strings.Contains(letters[0].Dead.Message, "three times") {
		t.Errorf("dead letters: %+v, want the poison alone", letters)
	}
	if r.sawPoison() {
		t.Error("the poison was delivered")
	}
	if s.died() != 2 {
		t.Errorf("the server died %d times, want twice: once in ignorance, once writing down what it does", s.died())
	}
	strikes := 0
	for line := range strings.Lines(s.Log.All()) {
		if !strings.Contains(line, "a process died handling a suspect") {
			continue
		}
		strikes++
		if mark == poison.AttemptMark && !strings.Contains(line, letters[0].ID) {
			t.Errorf("an innocent was struck: %s", line)
		}
	}
	if strikes != 3 {
		t.Errorf("%d processes died of it, want 3", strikes)
	}
	if n := countRows(t, driver, dsn, "SELECT count(*) FROM "+suspects+" WHERE strikes > 0"); n != 0 {
		t.Errorf("%d suspects with strikes are left", n)
	}
	s.stop()
	sums := s.Verify()
	if want := (strangers+1)*each + hanging + 1; sums.Events != want || sums.Planned != want {
		t.Errorf("%d events, %d planned, want %d", sums.Events, sums.Planned, want)
	}
	if sums.Delivered != (strangers+1)*each || sums.Dead != 1 || sums.Pending != hanging {
		t.Errorf("%+v: want the innocent delivered, one dead, the hanging ones pending", sums)
	}
}

// up reports whether the server answers.
func (s *server) up() bool {
	status, _ := s.send(http.MethodGet, "/healthz", nil)
	return status == http.StatusOK
}

// receiver is the customers' server. It takes its time, so that much is in flight at a death.
type receiver struct {
	url string

	mu      sync.Mutex
	arrived map[string]bool
	poison  bool
}

func newReceiver(t *testing.T) *receiver {
	r := &receiver{arrived: map[string]bool{}}
	closing := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		if err != nil {
			return
		}
		if req.URL.Path == "/hang" {
			select {
			case <-closing:
			case <-req.Context().Done():
			}
			return
		}
		select {
		case <-time.After(30 * time.Millisecond):
		case <-req.Context().Done():
			return
		}
		var payload struct {
			Tenant, N int
			Bad       string
		}
		if err := json.Unmarshal(body, &payload); err != nil {
			t.Errorf("body %q: %v", body, err)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		if payload.Bad != "" {
			r.poison = true
		}
		r.arrived[fmt.Sprintf("%d/%d", payload.Tenant, payload.N)] = true
	}))
	t.Cleanup(func() {
		close(closing)
		server.Close()
	})
	r.url = server.URL
	return r
}

func (r *receiver) missing() (missing []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range strangers + 1 {
		for n := range each {
			if event := fmt.Sprintf("%d/%d", i, n); !r.arrived[event] {
				missing = append(missing, event)
			}
		}
	}
	return missing
}

func (r *receiver) sawPoison() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.poison
}

func countRows(t *testing.T, driver, dsn, query string) (n int) {
	db, err := sql.Open(driver, dsn)
	if err != nil {
		t.Error(err)
		return 0
	}
	defer db.Close()
	if err := db.QueryRowContext(context.Background(), query).Scan(&n); err != nil {
		t.Error(err)
	}
	return n
}

// await polls until what it waits for is there.
func await(t *testing.T, patience time.Duration, what string, there func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !there(); {
		if time.Now().After(deadline) {
			t.Fatalf("waited %s for %s", patience, what)
		}
		<-time.After(100 * time.Millisecond)
	}
}
