package dispatch

import (
	"sync"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// panicCounter counts how often handling a delivery has panicked in this process. The count is
// not stored: a panic costs nobody but its delivery anything, so that a few more after a hand-over
// do no harm.
type panicCounter struct {
	mu   sync.Mutex
	seen map[panicKey]int
}

type panicKey struct {
	id    outbox.DeliveryID
	round int
}

// maxPanicking is how many deliveries are counted at once. Beyond, all begin anew.
const maxPanicking = 10_000

// count notes how an attempt ended and returns how many of the delivery's have panicked, 0 if this
// one did not.
func (p *panicCounter) count(d *outbox.Delivery, kind outbox.Kind) int {
	if kind != outbox.KindPanic {
		return 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.seen == nil || len(p.seen) >= maxPanicking {
		p.seen = map[panicKey]int{}
	}
	key := panicKey{d.ID, d.Round}
	p.seen[key]++
	n := p.seen[key]
	if n >= maxPanics {
		delete(p.seen, key)
	}
	return n
}
