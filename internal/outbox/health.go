package outbox

import (
	"context"
	"time"
)

// BreakerState is how an endpoint's breaker stands.
type BreakerState string

const (
	BreakerClosed  BreakerState = "closed"  // deliveries flow
	BreakerOpen    BreakerState = "open"    // everything waits for the next probe
	BreakerProbing BreakerState = "probing" // one delivery is out to see whether the server is back
)

// EndpointHealth is what a shard's owner has learned about an endpoint: for people, and for the
// next owner, who goes on from it.
type EndpointHealth struct {
	Shard    Shard      `json:"-"`
	Tenant   TenantID   `json:"-"`
	Endpoint EndpointID `json:"-"`

	Breaker     BreakerState  `json:"-"`
	NextProbeAt time.Time     `json:"-"` // zero while closed
	Cooldown    time.Duration `json:"cooldown,omitzero"`
	OpenedAt    time.Time     `json:"opened_at,omitzero"`
	// ClosedAt is when the breaker last closed; retry windows count from it at the earliest.
	ClosedAt            time.Time `json:"closed_at,omitzero"`
	ConsecutiveFailures int       `json:"consecutive_failures,omitzero"`

	// Failing is the run of failures since the last success.
	FailingSince time.Time `json:"failing_since,omitzero"`
	FailedDays   int       `json:"failed_days,omitzero"` // days with a failed attempt
	FailedDay    time.Time `json:"failed_day,omitzero"`  // the latest of them
	Failures     int       `json:"failures,omitzero"`    // attempts

	Limit       int       `json:"limit,omitzero"`        // attempts at once its server bears; 0: its cap
	Rate        float64   `json:"rate,omitzero"`         // requests a second it takes; 0: unlimited
	PausedUntil time.Time `json:"paused_until,omitzero"` // its server asked for a pause
	InFlight    int       `json:"in_flight,omitzero"`
	// TenantInFlight is the attempts under way over all of the tenant's endpoints.
	TenantInFlight int `json:"tenant_in_flight,omitzero"`
	// Average is the moving average of its attempts' durations, for estimates.
	Average   time.Duration `json:"average,omitzero"`
	SuccessAt time.Time     `json:"success_at,omitzero"`
	Failure   FailureInfo   `json:"failure,omitzero"`
	// Outage is the latest time its breaker was open; zero: it never was.
	Outage Outage `json:"outage,omitzero"`
}

// Outage is a time in which an endpoint's server only failed.
type Outage struct {
	From     time.Time   `json:"from,omitzero"` // of the first failure
	OpenedAt time.Time   `json:"opened_at,omitzero"`
	To       time.Time   `json:"to,omitzero"` // zero: it goes on
	Cause    FailureInfo `json:"cause,omitzero"`
}

// Health keeps what owners learn about endpoints. It is written when a breaker changes, and at
// most every ten seconds while an endpoint fails or is limited; never on the happy path.
type Health interface {
	// WriteHealth replaces rows. Those of shards that the lease does not hold are passed over.
	WriteHealth(ctx context.Context, lease Lease, rows []EndpointHealth, now time.Time) error
	// LoadHealth reads what a former owner learned.
	LoadHealth(ctx context.Context, shards []Shard) ([]EndpointHealth, error)
	// HealthOf reads the health of some of a tenant's endpoints, of any tenant's where that is
	// zero. One nobody wrote about is missing.
	HealthOf(ctx context.Context, tenant TenantRef, endpoints []EndpointRow) (map[EndpointID]EndpointHealth, error)
}

// RateLimit is a fixed limit: at most Count requests begin within any span of Per.
type RateLimit struct {
	Count int
	Per   time.Duration
}

// Bounds of a rate limit.
const (
	MaxRateCount = 10_000
	MinRatePer   = 10 * time.Millisecond
	MaxRatePer   = 24 * time.Hour
)

// DispatchState is the stop switch over all nodes: while paused nothing is sent, and publishing,
// routing and everything else go on.
type DispatchState struct {
	Paused bool
	Reason string
	At     time.Time // when it was last set; zero: never
	By     string

	// Environment is what the database belongs to, "" where nobody has said; it is not set with
	// the switch. Foreign says that it is another one than that of whoever looks (In).
	Environment string
	Foreign     bool
}

// Switch keeps the stop switch. Every node learns of it by its next heartbeat.
type Switch interface {
	Dispatch(ctx context.Context) (DispatchState, error)
	SetDispatch(ctx context.Context, state DispatchState) error
}
