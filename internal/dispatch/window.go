package dispatch

import (
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// window is a fixed rate limit: at most count requests begin within any span of per. It keeps the
// moments of the last count starts, so the limit holds in every span and not only on average.
type window struct {
	per    time.Duration
	starts []time.Time // a ring; the oldest is at next
	next   int
}

// newWindow returns a limit nothing was sent under yet.
func newWindow(count int, per time.Duration, now time.Time) *window {
	w := &window{per: per, starts: make([]time.Time, count)}
	for i := range w.starts {
		w.starts[i] = now.Add(-per)
	}
	return w
}

// usedUp makes the limit begin as if it had been used up evenly until now: what a former owner
// sent in the last span is not known.
func (w *window) usedUp(now time.Time) {
	for i := range w.starts {
		w.starts[i] = now.Add(-w.per + time.Duration(i+1)*w.per/time.Duration(len(w.starts)))
	}
}

// nextAt says when the next request may start.
func (w *window) nextAt() time.Time { return w.starts[w.next].Add(w.per) }

// started notes a start.
func (w *window) started(now time.Time) {
	w.starts[w.next] = now
	w.next = (w.next + 1) % len(w.starts)
}

// setRateLimit gives the endpoint a limit, or takes it away. One that did not change goes on.
// taken says that the endpoint had another owner until now.
func (e *endpointQueue) setRateLimit(limit *outbox.RateLimit, taken bool, now time.Time) {
	switch {
	case limit == nil:
		e.window = nil
	case e.window == nil || len(e.window.starts) != limit.Count || e.window.per != limit.Per:
		e.window = newWindow(limit.Count, limit.Per, now)
		if taken {
			e.window.usedUp(now)
		}
	}
}
