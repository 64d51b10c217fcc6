package poison

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/tests/program"
)

// server is a waybill serve that is started again whenever it dies, as a service manager would.
type server struct {
	*program.Instance
	t *testing.T

	mu      sync.Mutex
	running *program.Process
	deaths  int
	stopped bool
	dead    func(n int) // called after each death, before the next start
	gone    chan struct{}
}

// maxDeaths is where the service manager gives up.
const maxDeaths = 6

func newServer(t *testing.T, binary, database string) *server {
	s := &server{Instance: program.NewInstance(t, binary, database), t: t, dead: func(int) {}, gone: make(chan struct{})}
	t.Cleanup(s.stop)
	return s
}

// run starts the program, and starts it again for as long as it dies.
func (s *server) run() {
	s.t.Helper()
	s.running = s.Start()
	go func() {
		defer close(s.gone)
		for {
			<-s.running.Ended() // how it ended is what the test is about
			s.mu.Lock()
			if s.stopped {
				s.mu.Unlock()
				return
			}
			s.deaths++
			deaths := s.deaths
			s.mu.Unlock()
			s.dead(deaths)
			if deaths >= maxDeaths {
				s.t.Errorf("it died %d times", deaths)
				return
			}
			again, err := s.Launch()
			if err != nil {
				s.t.Errorf("waybill serve: %v", err)
				return
			}
			s.mu.Lock()
			s.running = again
			s.mu.Unlock()
		}
	}()
}

// stop ends the program as a deploy would.
func (s *server) stop() {
	s.mu.Lock()
	again := s.stopped
	s.stopped = true
	running := s.running
	s.mu.Unlock()
	if again || running == nil {
		return
	}
	running.Stop()
	<-s.gone
}

func (s *server) died() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.deaths
}

// send sends a request and returns the status and the body; status 0 where there was no answer.
func (s *server) send(method, path string, body any) (int, []byte) {
	text, err := json.Marshal(body)
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(s.t.Context(), 10*time.Second)
	defer cancel()
	return s.Send(ctx, method, path, text)
}

// must sends a request that has to be answered with the status.
func (s *server) must(status int, method, path string, body, answer any) {
	s.t.Helper()
	got, text := s.send(method, path, body)
	if got != status {
		s.t.Fatalf("%s %s: %d %s", method, path, got, text)
	}
	if answer != nil {
		if err := json.Unmarshal(text, answer); err != nil {
			s.t.Fatalf("%s %s: %v\n%s", method, path, err, text)
		}
	}
}

// endpoint makes an endpoint in the given state.
func (s *server) endpoint(tenant, url, state string) (id string) {
	s.t.Helper()
	var made struct {
		ID string `json:"id"`
	}
	s.must(http.StatusCreated, http.MethodPost, "/v1/tenants/"+tenant+"/endpoints", map[string]any{
		"url": url, "state": state, "timeout_seconds": 1,
		"retry": map[string]any{"initial_seconds": 0.2, "max_seconds": 1},
	}, &made)
	return made.ID
}

func (s *server) resume(tenant, endpoint string) {
	// The program may die of what it is asked for before it answers.
	s.send(http.MethodPatch, "/v1/tenants/"+tenant+"/endpoints/"+endpoint, map[string]any{"state": "active"})
}

// publish publishes a payload; the program may die of it before it answers.
func (s *server) publish(tenant string, payload any) {
	s.send(http.MethodPost, "/v1/tenants/"+tenant+"/events", map[string]any{"type": "order.paid", "payload": payload})
}

// dead is a dead letter as the API shows it.
type dead struct {
	ID      string `json:"id"`
	EventID string `json:"event_id"`
	Dead    struct {
		Reason  string `json:"reason"`
		Message string `json:"message"`
	} `json:"dead"`
}

func (s *server) deadLetters() []dead {
	s.t.Helper()
	var list struct {
		Data []dead `json:"data"`
	}
	s.must(http.StatusOK, http.MethodGet, "/v1/deliveries?state=dead", nil, &list)
	return list.Data
}

func (s *server) String() string { return fmt.Sprintf("waybill serve, %d deaths", s.died()) }
