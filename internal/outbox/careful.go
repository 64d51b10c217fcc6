package outbox

import (
	"context"
	"time"
)

// Suspect is a delivery, or an outbox row, that may have killed a process: it was being handled,
// in a shard that is run carefully, when the shard's owner was last heard of.
type Suspect struct {
	Shard    Shard
	Delivery DeliveryID // zero for an outbox row
	Pos      int64      // of the outbox row; 0 for a delivery
	Strikes  int        // processes of its own that died of it
}

// MaxStrikes is how many processes may die of a suspect before it is given up as DeadPoison.
const MaxStrikes = 3

// Careful is the journal of shards whose last owner died. There, and nowhere else, what is about
// to be handled is written down first; its result takes it away again (Finish, for results with
// Suspect set). What is found at a takeover was being handled when the owner died. Every write
// needs the lease, and returns ErrFenced without it.
type Careful interface {
	// MarkSuspects writes suspects down. One that is there already keeps the larger number of
	// strikes.
	MarkSuspects(ctx context.Context, lease Lease, suspects []Suspect, now time.Time) error
	// Suspects returns what is written down for the shards, by shard, delivery and position. It
	// forgets what has no pending delivery or outbox row any more. No lease is needed.
	Suspects(ctx context.Context, shards []Shard) ([]Suspect, error)
	// Strike notes that one more process than s.Strikes says died of the suspect and returns how
	// many that makes. Running it again with the same s counts once.
	Strike(ctx context.Context, lease Lease, s Suspect, now time.Time) (int, error)
	// ClearSuspects forgets suspects that turned out harmless, or are gone.
	ClearSuspects(ctx context.Context, lease Lease, suspects []Suspect) error
}
