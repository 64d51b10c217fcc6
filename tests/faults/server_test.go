package faults

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"

	"github.com/waybill-dev/waybill/tests/program"
)

// server is a waybill serve that can be killed and started again at the same address.
type server struct {
	*program.Instance
	t       *testing.T
	running *program.Process
}

func newServer(t *testing.T, binary, database string) *server {
	return &server{t: t, Instance: program.NewInstance(t, binary, database)}
}

func (s *server) start() { s.running = s.Start() }

// endpoint makes a tenant and an endpoint that retries soon, and returns the secret.
func (s *server) endpoint(tenant, url string) string {
	s.t.Helper()
	status, text := s.Send(s.t.Context(), http.MethodPut, "/v1/tenants/"+tenant, []byte(`{"max_in_flight":20}`))
	if status != http.StatusCreated {
		s.t.Fatalf("tenant: %d %s", status, text)
	}
	status, text = s.Send(s.t.Context(), http.MethodPost, "/v1/tenants/"+tenant+"/endpoints",
		fmt.Appendf(nil, `{"url":%q,"retry":{"initial_seconds":0.05,"max_seconds":0.5}}`, url))
	var made struct {
		Secret string `json:"secret"`
	}
	if err := json.Unmarshal(text, &made); status != http.StatusCreated || err != nil {
		s.t.Fatalf("endpoint: %d %v %s", status, err, text)
	}
	return made.Secret
}
