package outbox

import "time"

// Delivery is one event on its way to one endpoint: a row of the delivery table, which holds
// live work only. See docs/delivery-states.md.
type Delivery struct {
	Shard       Shard
	ID          DeliveryID
	Tenant      TenantID
	Endpoint    EndpointID
	Event       EventID
	EventType   string
	Sequence    int64  // gapless per endpoint, from 1, given at routing
	OrderingKey string // "" for none
	Round       int    // replays so far
	Attempt     int    // attempts made so far, over all rounds
	RoundStart  int    // attempts made before this round; the back-off exponent counts from it
	Lane        Lane
	NextAt      time.Time // when it may be tried
	SendableAt  time.Time // when it was planned or replayed; ages and windows count from it
	// TurnAt is when its turn in its ordering key came, Parked until then; windows count from it
	// too. Zero for one that waits for no other.
	TurnAt time.Time
}

// Lane separates live deliveries from replays, which must never delay them.
type Lane int16

const (
	LaneLive   Lane = 0
	LaneReplay Lane = 1
	// LaneTest is for test events. They go out at once, whatever the endpoint's state, breaker and
	// rates say, are tried once, and teach the breaker nothing but success.
	LaneTest Lane = 2
)

// Lanes is how many lanes there are.
const Lanes = 3

// DeliveryState is where a delivery stands.
type DeliveryState string

const (
	StatePending   DeliveryState = "pending"   // a delivery row exists
	StateDelivered DeliveryState = "delivered" // a final attempt with outcome delivered
	StateDead      DeliveryState = "dead"      // a dead letter; a person can replay it
	StateCancelled DeliveryState = "cancelled" // a dead letter nobody needs to act on
)

// DeadReason says why a delivery ended undelivered.
type DeadReason string

const (
	DeadPermanent DeadReason = "permanent" // an answer that another try cannot change
	DeadExhausted DeadReason = "exhausted" // the retry window or the attempts are used up
	DeadExpired   DeadReason = "expired"   // pending longer than WAYBILL_MAX_PENDING_AGE
	DeadPoison    DeadReason = "poison"    // handling it kills the process
	DeadCancelled DeadReason = "cancelled" // its endpoint was deleted, its backlog discarded
)

// State returns the state a dead letter with this reason has.
func (r DeadReason) State() DeliveryState {
	if r == DeadCancelled {
		return StateCancelled
	}
	return StateDead
}

// Due is a delivery read for sending, with what it sends.
type Due struct {
	Delivery
	// Payload is nil and Gone is set where the event's bytes are no longer kept.
	Payload        []byte
	Gone           bool
	EventCreatedAt time.Time
	EventMetadata  map[string]string
}
