package outbox

import (
	"context"
	"time"
)

// Vitals is how the database stands, for monitoring. All of it is read in time that does not grow
// with the backlog: counts come from the ledger.
type Vitals struct {
	Pending        int64     // deliveries that are neither delivered nor ended
	DeadLetters    int64     // kept dead letters, dead and cancelled
	OldestPending  time.Time // when the oldest pending delivery's event was accepted; zero: none is pending
	OldestUnrouted time.Time // when the oldest event was accepted that is not routed yet; zero: all are
	// OldestTransaction is how long somebody has kept a transaction of this database open: the
	// longest on PostgreSQL, the wait for the file's write lock on SQLite.
	OldestTransaction time.Duration
	// PartitionDaysAhead is how many whole days after today can take events. A database without
	// partitions never runs out: MaxPartitionDays.
	PartitionDaysAhead int
	// Bytes is what is stored. A SQLite file may be larger, by room that is used again first.
	Bytes int64
	// OldestDay is the first day of which events or attempts are kept; zero: nothing is.
	OldestDay time.Time
}

// MaxPartitionDays stands for "no limit".
const MaxPartitionDays = 365

// Monitoring is what a monitoring system asks.
type Monitoring interface {
	Vitals(ctx context.Context, now time.Time) (Vitals, error)
}
