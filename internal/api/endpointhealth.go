package api

import (
	"cmp"
	"context"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// healthView is how an endpoint stands.
type healthView struct {
	Breaker             outbox.BreakerState `json:"breaker" doc:"closed; open: everything waits for the next probe; probing: one delivery is out to see whether the server is back"`
	ConsecutiveFailures int                 `json:"consecutive_failures"`
	OpenedAt            *stamp              `json:"opened_at"`
	NextProbeAt         *stamp              `json:"next_probe_at"`
	Limit               int                 `json:"limit" doc:"Attempts at once: max_in_flight, or less while the server is slow"`
	Rate                *float64            `json:"rate" doc:"Requests a second the server takes, since it answered 429 or has just come back; null: no limit is known"`
	PausedUntil         *stamp              `json:"paused_until" doc:"The server asked for a pause, by Retry-After"`
	InFlight            int                 `json:"in_flight" doc:"Attempts under way"`
	Pending             int                 `json:"pending"`
	Capped              bool                `json:"pending_capped,omitempty" doc:"There are more than counted"`
	OldestPendingAt     *stamp              `json:"oldest_pending_at"`
	LastSuccessAt       *stamp              `json:"last_success_at" doc:"As far as it was noted: a healthy endpoint's is not written down at every success"`
	LastFailure         *failureView        `json:"last_failure"`
	LastOutage          *outageView         `json:"last_outage" doc:"The latest time in which everything waited because the server only failed"`
}

type outageView struct {
	From     stamp        `json:"from" doc:"Of the first failure"`
	OpenedAt stamp        `json:"opened_at" doc:"When the breaker opened"`
	To       *stamp       `json:"to" doc:"null: it goes on"`
	Cause    *failureView `json:"cause"`
}

type failureView struct {
	At         stamp       `json:"at"`
	Kind       outbox.Kind `json:"kind"`
	Message    string      `json:"message"`
	StatusCode *int        `json:"status_code" doc:"null where no status line came"`
}

// maxListed is how many rows are counted for each element of a list.
const maxListed = 1000

// healthOf reads how endpoints of the tenant stand, of any tenant where that is zero. It counts
// at most so many pending deliveries of each.
func (a *API) healthOf(ctx context.Context, tenant outbox.TenantRef, most int, endpoints ...outbox.EndpointRow) (func(*outbox.Endpoint, *outbox.Tenant) healthView, error) {
	known, err := a.standing(ctx, tenant, endpoints)
	if err != nil {
		return nil, err
	}
	backlogs, err := a.cfg.Store.Backlogs(ctx, tenant, endpoints, most+1)
	if err != nil {
		return nil, err
	}
	return func(e *outbox.Endpoint, t *outbox.Tenant) healthView {
		view := viewHealth(known[e.ID], slots(t.MaxInFlight, e.MaxInFlight))
		b := backlogs[e.ID]
		view.Pending, view.Capped, view.OldestPendingAt = min(b.Pending, most), b.Pending > most, stampOf(b.Oldest)
		return view
	}, nil
}

// standing returns what is known about endpoints: by the owner if that is in this process, else
// by what an owner wrote down. Endpoints that nothing is known about are missing.
func (a *API) standing(ctx context.Context, tenant outbox.TenantRef, endpoints []outbox.EndpointRow) (map[outbox.EndpointID]standing, error) {
	known := map[outbox.EndpointID]standing{}
	var elsewhere []outbox.EndpointRow
	for _, e := range endpoints {
		if h, ok := a.cfg.Live(e.Endpoint); ok {
			known[e.Endpoint] = standing{EndpointHealth: h, live: true}
		} else {
			elsewhere = append(elsewhere, e)
		}
	}
	if len(elsewhere) == 0 {
		return known, nil
	}
	written, err := a.cfg.Store.HealthOf(ctx, tenant, elsewhere)
	for id, h := range written {
		known[id] = standing{EndpointHealth: h}
	}
	return known, err
}

// standing is an endpoint's health and whether it is this moment's.
type standing struct {
	outbox.EndpointHealth
	live bool
}

// current reports whether in-flight counts mean anything: an owner writes while an endpoint is
// unwell, and what it wrote last, when all was well again, ages.
func (s *standing) current() bool {
	return s.live || s.Breaker != outbox.BreakerClosed && s.Breaker != "" || s.Limit > 0 || s.Rate > 0 || !s.FailingSince.IsZero()
}

// slots is how many attempts at once are allowed; an endpoint's 0 means the tenant's.
func slots(tenant, endpoint int) int {
	if endpoint == 0 {
		return tenant
	}
	return min(tenant, endpoint)
}

// newHealth is that of an endpoint made a moment ago.
func newHealth(e *outbox.Endpoint, t *outbox.Tenant) healthView {
	return viewHealth(standing{}, slots(t.MaxInFlight, e.MaxInFlight))
}

func viewHealth(s standing, most int) healthView {
	view := healthView{
		Breaker:             cmp.Or(s.Breaker, outbox.BreakerClosed),
		ConsecutiveFailures: s.ConsecutiveFailures,
		OpenedAt:            stampOf(s.OpenedAt),
		NextProbeAt:         stampOf(s.NextProbeAt),
		Limit:               most,
		Rate:                orNull(s.Rate),
		PausedUntil:         stampOf(s.PausedUntil),
		LastSuccessAt:       stampOf(s.SuccessAt),
	}
	if s.Limit > 0 {
		view.Limit = min(s.Limit, most)
	}
	if s.current() {
		view.InFlight = s.InFlight
	}
	view.LastFailure = viewFailure(s.Failure)
	if o := s.Outage; !o.OpenedAt.IsZero() {
		view.LastOutage = &outageView{From: stamp(o.From), OpenedAt: stamp(o.OpenedAt), To: stampOf(o.To), Cause: viewFailure(o.Cause)}
	}
	return view
}

func viewFailure(f outbox.FailureInfo) *failureView {
	if f.At.IsZero() {
		return nil
	}
	return &failureView{At: stamp(f.At), Kind: f.Kind, Message: f.Message, StatusCode: orNull(f.StatusCode)}
}

// showEndpoint answers with an endpoint as it stands.
func (a *API) showEndpoint(q *request, e *outbox.Endpoint, t *outbox.Tenant) (*answer, error) {
	health, err := a.healthOf(q.Context(), t.TenantRef, maxCounted, rowOf(e))
	if err != nil {
		return nil, err
	}
	return ok(a.viewEndpoint(e, t, health(e, t)))
}

func rowOf(e *outbox.Endpoint) outbox.EndpointRow {
	return outbox.EndpointRow{Shard: e.Tenant.Shard, Endpoint: e.ID}
}
