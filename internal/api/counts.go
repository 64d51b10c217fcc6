package api

import (
	"net/http"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// countsView is how many deliveries there are in each state.
type countsView struct {
	Counts map[outbox.DeliveryState]countView `json:"counts" doc:"By state: pending, delivered, dead, cancelled"`
}

type countView struct {
	Count  int  `json:"count"`
	Capped bool `json:"capped,omitempty" doc:"Counting stopped here: there are at least so many"`
}

// maxStateCount is how far the deliveries of a state are counted.
const maxStateCount = 10_000

func countRoutes() []*route {
	return []*route{{method: "GET", path: "/v1/tenants/{tenant}/deliveries/counts", name: "countDeliveries", tag: "Deliveries", scope: ScopeRead,
		summary: "Count a tenant's deliveries by state", about: "Counting stops at 10,000 rows. What was delivered again by a replay counts again.",
		query:   queryOf(spanParams, []param{{name: "endpoint_id", about: "ep_…"}}),
		answers: map[int]any{http.StatusOK: countsView{}}, handle: (*API).countDeliveries}}
}

func (a *API) countDeliveries(q *request) (*answer, error) {
	p := q.params()
	query := outbox.CountQuery{Tenant: q.tenant.TenantRef, Endpoint: id(p, "endpoint_id", outbox.ParseEndpointID)}
	query.From, query.To = p.span()
	if err := p.err(); err != nil {
		return nil, err
	}
	counts, err := a.cfg.Store.CountDeliveries(q.Context(), query, maxStateCount)
	if err != nil {
		return nil, err
	}
	view := countsView{Counts: map[outbox.DeliveryState]countView{}}
	for state, n := range counts {
		view.Counts[state] = countView{Count: n.N, Capped: n.Capped}
	}
	return ok(view)
}
