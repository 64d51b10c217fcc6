package outbox

import (
	"sync/atomic"
	"time"
)

// Clock keeps database time: the database's now at the last heartbeat plus this process's own
// monotonic time since. A node whose wall clock is two hours ahead still signs
// timestamps that receivers accept, and schedules nothing two hours late.
//
// The zero Clock is the wall clock; it never steps back within a process.
type Clock struct {
	anchor atomic.Pointer[anchor]
}

type anchor struct {
	db    time.Time // what the database said
	local time.Time // with monotonic reading, when we knew it
}

// Set anchors the clock: the database's time was db at the local moment at. Half the round trip
// is the usual guess for at.
func (c *Clock) Set(db, at time.Time) { c.anchor.Store(&anchor{db: db.UTC(), local: at}) }

// Now returns database time, in UTC, to the microsecond (which is what both stores keep).
func (c *Clock) Now() time.Time {
	a := c.anchor.Load()
	if a == nil {
		local := time.Now()
		c.anchor.CompareAndSwap(nil, &anchor{db: local.UTC().Round(0), local: local})
		a = c.anchor.Load()
	}
	return a.db.Add(time.Since(a.local)).Truncate(time.Microsecond)
}
