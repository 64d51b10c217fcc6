package inbound

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// Bounds of the log of refused and repeated requests: strangers can send any number of them.
const (
	flushEvery = time.Second
	// maxSamples of one source, outcome and reason are written at each turn; the rest is counted in
	// the last of them.
	maxSamples = 20
	maxPending = 10_000
)

// requestLog writes down, a little later, the requests that made no event. It may lose some: they
// prove nothing that the events do not.
type requestLog struct {
	store Store
	log   *slog.Logger

	mu      sync.Mutex
	pending []outbox.InboundRequest
	alike   map[likeness]like
}

// likeness is what requests are counted together by.
type likeness struct {
	source  outbox.SourceID
	outcome outbox.InboundOutcome
	reason  string
}

type like struct{ count, last int } // last is the place in pending

func newRequestLog(store Store, log *slog.Logger) *requestLog {
	return &requestLog{store: store, log: log, alike: map[likeness]like{}}
}

func (l *requestLog) add(r outbox.InboundRequest) {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := likeness{r.Source, r.Outcome, r.Reason}
	seen := l.alike[k]
	seen.count++
	switch {
	case seen.count > maxSamples, len(l.pending) >= maxPending && seen.count > 1:
		l.pending[seen.last].Times++
	case len(l.pending) >= maxPending:
		return
	default:
		r.Times = 1
		seen.last = len(l.pending)
		l.pending = append(l.pending, r)
	}
	l.alike[k] = seen
}

// run flushes until ctx ends, and then once more.
func (l *requestLog) run(ctx context.Context) {
	tick := time.NewTicker(flushEvery)
	defer tick.Stop()
	failing := false
	for {
		select {
		case <-ctx.Done():
			l.flush(context.WithoutCancel(ctx))
			return
		case <-tick.C:
			err := l.flush(ctx)
			if err != nil && !failing {
				l.log.WarnContext(ctx, "refused and repeated webhooks cannot be written down", "error", err)
			}
			failing = err != nil
		}
	}
}

// flush writes what is pending. What cannot be written is dropped.
func (l *requestLog) flush(ctx context.Context) error {
	l.mu.Lock()
	batch := l.pending
	l.pending = nil
	clear(l.alike)
	l.mu.Unlock()
	if len(batch) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	return l.store.RecordRequests(ctx, batch)
}
