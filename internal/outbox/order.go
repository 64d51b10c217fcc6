package outbox

import (
	"context"
	"time"
)

// Ordering says whether the deliveries of an endpoint wait for each other.
type Ordering string

const (
	OrderingNone   Ordering = "none"   // side by side; waybill-sequence tells their order
	OrderingStrict Ordering = "strict" // one at a time for each ordering key, by sequence
)

// OnDead says what a dead delivery means to those behind it in its ordering key.
type OnDead string

const (
	OnDeadSkip OnDead = "skip" // the next one goes on, past a visible gap
	OnDeadHold OnDead = "hold" // they wait until it is replayed, or the backlog discarded
)

// Parked is the NextAt of a delivery whose turn in its ordering key has not come. It is behind
// every time that is ever due, so that reading what is due passes over a backlog of any length at
// no cost.
var Parked = time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)

// Strict reports whether the delivery keeps the order of its key.
func (d *Delivery) Strict() bool { return !d.TurnAt.IsZero() }

// Parked reports whether the delivery waits for others of its key.
func (d *Delivery) Parked() bool { return d.NextAt.Equal(Parked) }

// Predecessor is a delivery of the same ordering key that another one waits for: the one whose turn
// it is, or a dead one that holds the key.
type Predecessor struct {
	ID     DeliveryID
	Dead   bool
	NextAt time.Time // when it is tried next; zero of a dead one
}

// Finished is what the end of deliveries made due.
type Finished struct {
	// Freed are the deliveries whose turn came, due now.
	Freed []Delivery
}

// Ended is what a call ended, and what that made due.
type Ended struct {
	Deliveries []DeliveryID
	Endpoints  []EndpointID // whose they were, parallel to Deliveries
	Freed      []Delivery
}

// Order keeps the deliveries of strict endpoints in line: of each endpoint and ordering key (those
// of events without one share it) at most one pending delivery is due or being tried, and the
// others are Parked.
//
// Its turn has the one with the lowest sequence, unless a dead letter before it holds the key.
// Turns are given by every transaction that ends, plans or cancels a strict delivery, under the
// lock of its shard. A delivery that comes back with a lower number (a replay) does not interrupt
// the one whose turn it is, and is next.
type Order interface {
	// Reorder brings an endpoint's rows in line with its configuration, at most limit rows a
	// call; call it again with what it returned as Next until Done. It may be begun anew at any
	// point. What is planned meanwhile is kept in order from the moment a switch to strict has
	// parked the last row planned before. For an endpoint that is in line already, it gives turns
	// that are due and were not given, of limit keys a call: there should be none.
	Reorder(ctx context.Context, lease Lease, shard Shard, endpoint EndpointID, next ReorderFrom, limit int, now time.Time) (Reordered, error)
}

// ReorderFrom is where Reorder goes on among the ordering keys; zero: from the start.
type ReorderFrom struct {
	Begun bool
	Key   string // the last one looked at
}

// Reordered is what one call of Reorder did.
type Reordered struct {
	Parked []DeliveryID // no longer due
	Freed  []Delivery   // due now
	Next   ReorderFrom
	Done   bool
}
