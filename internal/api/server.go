package api

import (
	"context"
	"net/http"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// anyScope lets every valid key pass.
const anyScope Scope = "any"

type whoAmI struct {
	Name     string  `json:"name"`
	Operator bool    `json:"operator"`
	Tenant   *string `json:"tenant" doc:"The one tenant the key is for; null for an operator's key"`
	Scopes   []Scope `json:"scopes"`

	Prefix    *string `json:"prefix" doc:"The beginning of the key; null for the bootstrap key"`
	ExpiresAt *stamp  `json:"expires_at" doc:"null: never"`
}

func (a *API) whoAmI(q *request) (*answer, error) {
	scopes := q.who.Scopes
	if scopes == nil {
		scopes = []Scope{}
	}
	return ok(whoAmI{
		Name: q.who.Name, Operator: q.who.Operator(), Tenant: orNull(q.who.Tenant), Scopes: scopes,
		Prefix: orNull(q.who.Prefix), ExpiresAt: stampOf(q.who.ExpiresAt),
	})
}

type versionView struct {
	Version string `json:"version"`
	Go      string `json:"go"`
}

func (a *API) getVersion(*request) (*answer, error) {
	return ok(versionView{Version: a.cfg.Version, Go: runtime.Version()})
}

type healthzView struct {
	Status string `json:"status"`
}

func (a *API) healthz(*request) (*answer, error) { return ok(healthzView{Status: "ok"}) }

type readyzView struct {
	Status string  `json:"status" enum:"ready,not_ready"`
	Checks []Check `json:"checks"`
}

func (a *API) readyz(q *request) (*answer, error) {
	ctx, cancel := context.WithTimeout(q.Context(), 5*time.Second)
	defer cancel()
	view := readyzView{Status: "ready", Checks: a.cfg.Ready(ctx)}
	ans := &answer{status: http.StatusOK}
	for _, c := range view.Checks {
		if !c.OK {
			view.Status, ans.status = "not_ready", http.StatusServiceUnavailable
			ans.headers = http.Header{"Retry-After": {"1"}}
		}
	}
	ans.body = view
	return ans, nil
}

// showMetrics runs the client library's own handler and passes its answer on.
func (a *API) showMetrics(q *request) (*answer, error) {
	page := &buffered{header: http.Header{}, status: http.StatusOK}
	promhttp.HandlerFor(a.cfg.Registry, promhttp.HandlerOpts{DisableCompression: true}).ServeHTTP(page, q.Request)
	return &answer{status: page.status, raw: page.body, kind: page.header.Get("Content-Type")}, nil
}

// buffered is an http.ResponseWriter that keeps what is written.
type buffered struct {
	header http.Header
	status int
	body   []byte
}

func (b *buffered) Header() http.Header  { return b.header }
func (b *buffered) WriteHeader(code int) { b.status = code }
func (b *buffered) Write(p []byte) (int, error) {
	b.body = append(b.body, p...)
	return len(p), nil
}
