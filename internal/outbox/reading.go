package outbox

import (
	"context"
	"time"
)

// MaxListScan is how many rows one list call reads at most. A rare filter over millions of rows
// therefore answers with a short, even empty, page and a cursor, never with a time-out.
const MaxListScan = 20_000

// Reading serves the lists and look-ups of people. A zero TenantRef means the operator's look at
// all tenants; any other finds that tenant's rows alone, a foreign id being ErrNotFound.
//
// List positions are keys: After is the id of the last row read (not shown), so a row that
// vanished meanwhile does no harm. Every list returns the position to go on from, or the zero id
// when there is no more.
type Reading interface {
	// Event finds an event. Without a tenant, an id that several tenants' events have is
	// ErrAmbiguous: none of them is preferred.
	Event(ctx context.Context, tenant TenantRef, id EventID) (EventView, error)
	// EventsByID finds the events of all tenants that have an id, one as a rule. A publisher may
	// choose the id, so it can be one that another tenant's event has. In the order of the tenants.
	EventsByID(ctx context.Context, id EventID) ([]EventView, error)
	Events(ctx context.Context, q EventQuery, page Page) ([]EventView, EventID, error)
	// Payload returns the event's bytes, ErrPayloadGone if they are no longer kept; without a
	// tenant, ErrAmbiguous as for Event.
	Payload(ctx context.Context, tenant TenantRef, id EventID) ([]byte, error)
	Delivery(ctx context.Context, tenant TenantRef, id DeliveryID) (DeliveryView, error)
	Deliveries(ctx context.Context, q DeliveryQuery, page Page) ([]DeliveryView, DeliveryID, error)
	// DeliveryTenant finds whose a delivery is (operator look-ups, then acted on by tenant).
	DeliveryTenant(ctx context.Context, id DeliveryID) (TenantRef, error)
	// Attempts lists the attempts of a delivery by number, after the given one (0: from the start).
	Attempts(ctx context.Context, tenant TenantRef, id DeliveryID, after int, page Page) ([]AttemptView, error)
	Attempt(ctx context.Context, tenant TenantRef, id AttemptID) (AttemptView, error)
	// RequestReplay writes an outbox row of kind replay and returns the state the delivery had.
	// ErrEndpointGone and ErrPayloadGone refuse it.
	RequestReplay(ctx context.Context, tenant TenantRef, id DeliveryID) (DeliveryState, error)
	// PendingOf counts an endpoint's pending deliveries, at most limit, and tells the time the
	// oldest was planned (zero: none).
	PendingOf(ctx context.Context, tenant TenantRef, id EndpointID, limit int) (int, time.Time, error)
	// Backlogs is PendingOf for several endpoints in one look; one without any is missing.
	Backlogs(ctx context.Context, tenant TenantRef, endpoints []EndpointRow, limit int) (map[EndpointID]Backlog, error)
	// Ahead counts, for deliveries as they were read, the pending ones of the same endpoint and
	// lane that come before each, at most limit.
	Ahead(ctx context.Context, deliveries []Delivery, limit int) (map[DeliveryID]int, error)
	// Predecessors tells whom parked deliveries, as they were read, wait for. One for which it is
	// nobody (its turn has come meanwhile) is missing.
	Predecessors(ctx context.Context, parked []Delivery) (map[DeliveryID]Predecessor, error)
}

// Backlog is what waits at an endpoint.
type Backlog struct {
	Pending int       // at most the limit of the look
	Oldest  time.Time // when the delivery of the oldest event among those was planned
}

// EventState sums up an event's deliveries.
type EventState string

const (
	EventUnrouted  EventState = "pending"   // deliveries pending, or not planned yet
	EventFailed    EventState = "failed"    // at least one is dead, none pending
	EventCancelled EventState = "cancelled" // at least one is cancelled, none pending or dead
	EventDelivered EventState = "delivered" // all delivered
	EventUnmatched EventState = "unmatched" // no endpoint wanted it
)

// EventView is an event as people see it; Payload is nil.
type EventView struct {
	Event
	TenantKey     string
	State         EventState
	PayloadBytes  int  // as they were published, also when they have been erased since
	PayloadErased bool // see Erasing
}

// EventQuery filters events by their own time, [From, To).
type EventQuery struct {
	Tenant     TenantRef
	EventTypes []string
	From, To   time.Time
	// State filters by "pending", "failed" or "cancelled", which have rows to be found by; "" for
	// all.
	State EventState
	After EventID
}

// DeliveryQuery filters deliveries; the times are the event's, [From, To).
type DeliveryQuery struct {
	Tenant     TenantRef
	Endpoint   EndpointID
	Event      EventID
	EventTypes []string
	States     []DeliveryState
	Kind       Kind
	Reason     DeadReason
	// StatusCode is an exact status, or with StatusClass the first digit (5 for 5xx); 0: any.
	// It is that of the last attempt.
	StatusCode  int
	StatusClass bool
	From, To    time.Time
	After       DeliveryID
}

// DeliveryView is a delivery as people see it, whichever table holds it.
type DeliveryView struct {
	Delivery
	TenantKey     string
	EndpointURL   string
	EndpointState EndpointState // of the configuration; "" where deleted
	TenantState   TenantState
	Limits        DeliveryLimits
	State         DeliveryState
	CreatedAt     time.Time // when its event was accepted, or the time in the id where that is gone
	FinishedAt    time.Time // zero while pending
	Last          *AttemptSummary
	Dead          *DeadInfo
}

// DeliveryLimits are the configured limits a delivery is under.
type DeliveryLimits struct {
	TenantInFlight   int        // 0 where the tenant is gone
	EndpointInFlight int        // 0: the tenant's
	Rate             *RateLimit // nil: none
}

// AttemptSummary is the last attempt in a list.
type AttemptSummary struct {
	ID         AttemptID
	N          int
	At         time.Time
	Duration   time.Duration
	StatusCode int
	Kind       Kind
	Message    string
}

// DeadInfo says why a delivery ended undelivered.
type DeadInfo struct {
	Reason  DeadReason
	Kind    Kind
	Message string
	At      time.Time
}

// AttemptView is an attempt with the delivery it belongs to.
type AttemptView struct {
	Attempt
	N         int // waybill-attempt: counts from 1 over all rounds
	Round     int
	Sequence  int64
	Delivery  DeliveryID
	Event     EventID
	EventType string
	Endpoint  EndpointID
	Tenant    TenantRef
	TenantKey string
}

// Report is the outcome of Verify.
type Report struct {
	At     time.Time
	Checks []Check
	// Totals over all shards, for people.
	Planned, Delivered, Pending, Dead, Cancelled, Replayed int64
	Events, Routed, Matched, Unmatched, Waiting            int64
	// Warning is set if the snapshot grew old while the proof ran.
	Warning string
}

// Check is one equation of the books.
type Check struct {
	Name   string // for example "planned = delivered + dead + cancelled + pending"
	Broken []Imbalance
}

// Imbalance is where an equation does not hold.
type Imbalance struct {
	Where       string // "shard 17", "shard 17, events of 2026-11-30", "endpoint ep_…, number 12"
	Left, Right int64
}

// Balanced reports whether every equation holds.
func (r *Report) Balanced() bool {
	for _, c := range r.Checks {
		if len(c.Broken) > 0 {
			return false
		}
	}
	return true
}
