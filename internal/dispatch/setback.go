package dispatch

import "time"

// setback keeps retries going when somebody sets the database's clock back. What waits was written
// by the old time: next_at may then be hours away although the retry is due in a second, and no row
// tells by which time it was written. So the schedule, and nothing else, goes on by the old time:
// it runs ahead of the database by what the clock was set back, and lets that go slowly.
//
// A clock set forward needs nothing of the kind: what waits is due at once, a first time too
// early, and within its caps.
//
// Only a node that was there knows. One that starts later sees what was written before by the new
// time, and tries it late.
type setback struct {
	ahead time.Duration
	at    time.Time // monotonic, of the last note
}

const (
	// noSetback is what a clock may seem to go back by itself: a heartbeat's round trip is only
	// halved, and clocks are slewed.
	noSetback = 2 * time.Second
	// letGo is the part of real time by which the schedule falls back to the database's: a wait
	// takes a tenth longer meanwhile.
	letGo = 10
)

// note compares what a heartbeat heard with what this node took the database's time to be then.
func (s *setback) note(heard, expected, now time.Time) {
	if !s.at.IsZero() {
		s.ahead = max(s.ahead-now.Sub(s.at)/letGo, 0)
		if by := expected.Sub(heard); by > noSetback || by < -noSetback {
			s.ahead = max(s.ahead+by, 0)
		}
	}
	s.at = now
}

// dueNow is the time by which deliveries and probes are due. The caller holds the lock.
func (n *Node) dueNow() time.Time { return n.cfg.Clock.Now().Add(n.sched.setback.ahead) }
