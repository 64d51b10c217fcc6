package dispatch

import (
	"math/rand/v2"
	"sync"
	"time"

	"github.com/waybill-dev/waybill/internal/attempt"
	"github.com/waybill-dev/waybill/internal/outbox"
)

// verdict is what follows from an attempt, with its reason.
type verdict struct {
	delivered bool
	retryAt   time.Time
	dead      outbox.DeadReason
	why       string
}

// maxPanics is how often handling one delivery may panic before it is a dead letter.
const maxPanics = 3

// decide says what follows from an attempt's outcome. panics is how many of the delivery's
// attempts have panicked, if this one did. since is when the delivery could first be
// sent: the latest of its planning and of whatever held it back without trying.
func decide(d *outbox.Delivery, o *attempt.Outcome, policy outbox.RetryPolicy, panics int, since, now time.Time) verdict {
	made := d.Attempt - d.RoundStart + 1 // attempts in this round, with this one
	switch {
	case o.Outcome == outbox.OutcomeDelivered:
		return verdict{delivered: true, why: "delivered"}
	case o.Outcome == outbox.OutcomePermanent:
		return verdict{dead: outbox.DeadPermanent, why: "dead: permanent"}
	case d.Lane == outbox.LaneTest:
		return verdict{dead: outbox.DeadExhausted, why: "dead: a test is tried once"}
	case panics >= maxPanics:
		return verdict{dead: outbox.DeadPoison, why: "dead: panics"}
	case policy.MaxAttempts > 0 && made >= policy.MaxAttempts:
		return verdict{dead: outbox.DeadExhausted, why: "dead: attempts used up"}
	}
	at := now.Add(attempt.Backoff(policy, made-1, o.RetryAfter, rand.Float64())).Truncate(time.Microsecond)
	if at.Sub(since) > policy.Window {
		return verdict{dead: outbox.DeadExhausted, why: "dead: retry window over"}
	}
	return verdict{retryAt: at, why: "retry"}
}

// goneCounter counts the 410 answers of each endpoint.
type goneCounter struct {
	mu   sync.Mutex
	seen map[outbox.EndpointID][]time.Time
}

const goneWindow = 10 * time.Minute

// third notes a 410 and reports whether it is the third within ten minutes.
func (g *goneCounter) third(id outbox.EndpointID, now time.Time) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.seen == nil {
		g.seen = map[outbox.EndpointID][]time.Time{}
	}
	recent := g.seen[id][:0]
	for _, at := range g.seen[id] {
		if now.Sub(at) < goneWindow {
			recent = append(recent, at)
		}
	}
	recent = append(recent, now)
	if len(recent) >= 3 {
		delete(g.seen, id)
		return true
	}
	g.seen[id] = recent
	return false
}
