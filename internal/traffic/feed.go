package traffic

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

const (
	// feedBuffer is how far a reader may fall behind before it misses something.
	feedBuffer = 256
	// MaxReaders is how many may look on at once.
	MaxReaders = 200
	// othersEvery is how often the attempts of other nodes are looked for.
	othersEvery = time.Second
	// othersAtOnce bounds one such look; what is beyond it is skipped, and readers are told.
	othersAtOnce = 2_000
)

// Ended finds the attempts of other nodes.
type Ended interface {
	AttemptsEnded(ctx context.Context, q outbox.EndedQuery, limit int) ([]outbox.AttemptView, error)
}

// Feed hands on attempts as they are recorded. It is a dispatch.Observer, and safe for concurrent
// use. A reader that is slow misses attempts and nobody waits for it.
type Feed struct {
	mu      sync.Mutex
	readers map[*Reader]bool
	closed  bool
}

// NewFeed makes a feed that nobody reads.
func NewFeed() *Feed { return &Feed{readers: map[*Reader]bool{}} }

// Reader is somebody who looks on.
type Reader struct {
	// Attempts is closed when the feed is.
	Attempts <-chan outbox.AttemptView
	// Routed gets events that were just routed; it is closed when the feed is.
	Routed <-chan Routed

	feed     *Feed
	tenant   outbox.TenantID
	attempts chan outbox.AttemptView
	routed   chan Routed
	missed   int // guarded by feed.mu
}

// Routed is an event whose deliveries have been planned.
type Routed struct {
	Tenant outbox.TenantID
	Event  outbox.EventID
}

// Read begins to look on, at one tenant or (zero) all; false where too many do.
func (f *Feed) Read(tenant outbox.TenantID) (*Reader, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed || len(f.readers) >= MaxReaders {
		return nil, false
	}
	r := &Reader{feed: f, tenant: tenant, attempts: make(chan outbox.AttemptView, feedBuffer), routed: make(chan Routed, feedBuffer)}
	r.Attempts, r.Routed = r.attempts, r.routed
	f.readers[r] = true
	return r, true
}

// Close ends the looking on.
func (r *Reader) Close() {
	r.feed.mu.Lock()
	defer r.feed.mu.Unlock()
	delete(r.feed.readers, r)
}

// Missed returns how many attempts did not fit since it was last asked.
func (r *Reader) Missed() int {
	r.feed.mu.Lock()
	defer r.feed.mu.Unlock()
	n := r.missed
	r.missed = 0
	return n
}

// Close ends all reading; a server that stops would otherwise wait for it.
func (f *Feed) Close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return
	}
	f.closed = true
	for r := range f.readers {
		close(r.attempts)
		close(r.routed)
	}
}

// Recorded implements dispatch.Observer.
func (f *Feed) Recorded(results []outbox.Recorded) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed || len(f.readers) == 0 {
		return
	}
	for i := range results {
		if results[i].Attempt != nil {
			f.hand(seen(&results[i]))
		}
	}
}

// Routed implements dispatch.Observer.
func (f *Feed) Routed(plans []outbox.Plan, _ time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return
	}
	for r := range f.readers {
		for i := range plans {
			row := &plans[i].Row
			if !plans[i].Last || r.tenant != 0 && r.tenant != row.Tenant {
				continue
			}
			select {
			case r.routed <- Routed{row.Tenant, row.Event}:
			default: // it looks for itself every second
			}
		}
	}
}

// Ended implements dispatch.Observer: what ends without an attempt is not shown.
func (f *Feed) Ended(int, outbox.TenantID, outbox.DeadReason, time.Time) {}

// hand gives an attempt to everybody who may see it. f.mu is held.
func (f *Feed) hand(a outbox.AttemptView) {
	for r := range f.readers {
		if r.tenant != 0 && r.tenant != a.Tenant.ID {
			continue
		}
		select {
		case r.attempts <- a:
		default:
			r.missed++
		}
	}
}

// seen is an attempt as onlookers see it: without headers and bodies, which hold what a customer's
// server says to that customer.
func seen(r *outbox.Recorded) outbox.AttemptView {
	a := *r.Attempt
	a.RequestHeaders, a.ResponseHeaders, a.ResponseBody, a.Truncated = nil, nil, nil, false
	a.Timing = outbox.Timing{}
	d := &r.Delivery
	return outbox.AttemptView{
		Attempt: a, N: d.Attempt + 1, Round: d.Round, Sequence: d.Sequence,
		Delivery: d.ID, Event: d.Event, EventType: d.EventType, Endpoint: d.Endpoint,
		Tenant: outbox.TenantRef{ID: d.Tenant, Shard: d.Shard}, TenantKey: r.TenantKey,
	}
}

// Follow brings in the attempts that other nodes record, for as long as ctx lasts and somebody
// looks on. others tells which shards are not this node's.
func (f *Feed) Follow(ctx context.Context, store Ended, others func() []outbox.Shard, now func() time.Time, log *slog.Logger) {
	tick := time.NewTicker(othersEvery)
	defer tick.Stop()
	at := outbox.EndedQuery{}
	failing := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		at.Shards = others()
		if len(at.Shards) == 0 || !f.read() {
			at.After = time.Time{}
			continue
		}
		if at.After.IsZero() {
			at.After, at.AfterID = now(), outbox.AttemptID{}
			continue
		}
		found, err := store.AttemptsEnded(ctx, at, othersAtOnce)
		if err != nil && !failing && ctx.Err() == nil {
			log.WarnContext(ctx, "the attempts of other nodes cannot be followed", "error", err)
		}
		failing = err != nil
		f.mu.Lock()
		for i := range found {
			at.After, at.AfterID = found[i].At.Add(found[i].Duration), found[i].ID
			if !f.closed {
				f.hand(found[i])
			}
		}
		if len(found) == othersAtOnce {
			at.After = time.Time{} // too many to catch up with: on from now
			for r := range f.readers {
				r.missed++
			}
		}
		f.mu.Unlock()
	}
}

func (f *Feed) read() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.readers) > 0
}
