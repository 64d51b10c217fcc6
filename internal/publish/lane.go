package publish

import (
	"cmp"
	"slices"
	"sync"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// submission is one call of Submit.
type submission struct {
	events []outbox.NewEvent
	bytes  int
	keyed  bool
	begun  bool         // a writer has it; guarded by the lane
	done   chan outcome // receives exactly one outcome if begun
}

type outcome struct {
	accepted  []outbox.Accepted
	conflicts []outbox.Conflict
	err       error
}

func newSubmission(events []outbox.NewEvent) *submission {
	s := &submission{events: events, done: make(chan outcome, 1)}
	for i := range events {
		s.bytes += len(events[i].Payload)
		s.keyed = s.keyed || events[i].Keyed()
	}
	return s
}

// tenant is whose submission it is; one across tenants is the first one's.
func (s *submission) tenant() outbox.TenantID { return s.events[0].Tenant.ID }

// lanes keep what is small apart from what is bulk: an event that somebody waits for must not stand
// behind another's thousand.
type lanes struct {
	small, bulk *lane
}

// of chooses the lane. What one tenant has in the small one is bounded, so that a flood of single
// events is bulk too.
func (l lanes) of(s *submission) *lane {
	if cfg := &l.small.cfg; len(s.events) > cfg.SmallEvents || s.bytes > cfg.SmallBytes ||
		l.small.has(s.tenant())+len(s.events) > 2*cfg.SmallEvents {
		return l.bulk
	}
	return l.small
}

// lane is a bounded queue of submissions with its writers.
type lane struct {
	cfg  Config
	bulk bool

	mu      sync.Mutex
	changed *sync.Cond
	waiting []*submission
	ready   int // events in waiting
	events  int // accepted and not yet answered, waiting or under way
	bytes   int
	tenants map[outbox.TenantID]int // events, likewise
	writing int                     // events in transactions that go well so far
	closed  bool
}

func newLane(cfg Config, bulk bool) *lane {
	l := &lane{cfg: cfg, bulk: bulk, tenants: map[outbox.TenantID]int{}}
	l.changed = sync.NewCond(&l.mu)
	return l
}

// has is how many events of a tenant are accepted and not yet answered.
func (l *lane) has(tenant outbox.TenantID) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.tenants[tenant]
}

// put queues s, or says why not.
func (l *lane) put(s *submission) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return ErrClosed
	}
	full := l.events+len(s.events) > l.cfg.QueueEvents || l.bytes+s.bytes > l.cfg.QueueBytes
	if full && l.events > 0 {
		return ErrBusy
	}
	l.waiting = append(l.waiting, s)
	l.ready += len(s.events)
	l.events += len(s.events)
	l.bytes += s.bytes
	l.tenants[s.tenant()] += len(s.events)
	if l.mayWrite() {
		l.changed.Signal()
	}
	return nil
}

// drop takes a submission out of the queue again; false if a writer has begun it.
func (l *lane) drop(s *submission) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s.begun {
		return false
	}
	for i, other := range l.waiting {
		if other == s {
			l.waiting = append(l.waiting[:i], l.waiting[i+1:]...)
			l.ready -= len(s.events)
			l.forget(s)
			break
		}
	}
	return true
}

// besides is how many events make it worth while to begin a transaction beside another.
const besides = 50

// mayWrite reports whether it pays to begin a transaction now: always when none is under way,
// else once half as many events wait as are being written, and enough for one to be cheap: a
// transaction costs the database as much as four events. Without the second rule the writer that
// is free takes each event as it comes, and a loaded server commits ones and twos.
func (l *lane) mayWrite() bool {
	if len(l.waiting) == 0 {
		return false
	}
	return l.closed || l.writing == 0 || l.ready >= max(min(besides, l.cfg.MaxEvents), l.writing/2)
}

// take waits for work and returns the submissions of one transaction; false when the lane is
// closed and empty.
func (l *lane) take() ([]*submission, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for !l.mayWrite() {
		if l.closed && len(l.waiting) == 0 {
			return nil, false
		}
		l.changed.Wait()
	}
	batch, rest := l.fill()
	l.waiting = rest
	for _, s := range batch {
		s.begun = true
		l.ready -= len(s.events)
		l.writing += len(s.events)
	}
	return batch, true
}

// fill chooses what fits into one transaction, oldest first, and where not all does, by turns of
// the tenants. Two submissions with one key never
// share a transaction: the second has to meet what the first one stored.
func (l *lane) fill() (batch, rest []*submission) {
	var events, bytes int
	seen := map[identity]bool{}
	if l.ready > l.cfg.MaxEvents {
		l.byTurns()
	}
	for i, s := range l.waiting {
		if i > 0 && (events+len(s.events) > l.cfg.MaxEvents || bytes+s.bytes > l.cfg.MaxBytes) {
			return batch, append(rest, l.waiting[i:]...)
		}
		if s.keyed && meets(s, seen) {
			rest = append(rest, s)
			continue
		}
		batch = append(batch, s)
		events += len(s.events)
		bytes += s.bytes
	}
	return batch, rest
}

// byTurns orders what waits so that each tenant's first comes before anybody's second.
func (l *lane) byTurns() {
	turn := make(map[*submission]int, len(l.waiting))
	turns := make(map[outbox.TenantID]int, len(l.tenants))
	for _, s := range l.waiting {
		turn[s] = turns[s.tenant()]
		turns[s.tenant()]++
	}
	slices.SortStableFunc(l.waiting, func(a, b *submission) int { return cmp.Compare(turn[a], turn[b]) })
}

// identity is what one event can meet another by.
type identity struct {
	tenant outbox.TenantID
	key    string
	id     outbox.EventID
	inbox  [32]byte
}

// meets reports whether s shares an identity with those seen; if not, it adds its own.
func meets(s *submission, seen map[identity]bool) bool {
	own := make([]identity, 0, 2*len(s.events))
	for i := range s.events {
		e := &s.events[i]
		if e.IdempotencyKey != "" {
			own = append(own, identity{tenant: e.Tenant.ID, key: e.IdempotencyKey})
		}
		if e.Chosen {
			own = append(own, identity{tenant: e.Tenant.ID, id: e.ID})
		}
		if e.Inbound != nil {
			own = append(own, identity{inbox: e.Inbound.Key})
		}
	}
	for _, k := range own {
		if seen[k] {
			return true
		}
	}
	for _, k := range own {
		seen[k] = true
	}
	return false
}

// release says that a transaction of n events is over or in trouble, and no longer a reason for
// others to wait for it.
func (l *lane) release(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.writing -= n
	l.changed.Broadcast()
}

// answer gives s its outcome and frees its place in the queue.
func (l *lane) answer(s *submission, out outcome) {
	s.done <- out
	l.mu.Lock()
	defer l.mu.Unlock()
	l.forget(s)
}

func (l *lane) forget(s *submission) {
	l.events -= len(s.events)
	l.bytes -= s.bytes
	if l.tenants[s.tenant()] -= len(s.events); l.tenants[s.tenant()] == 0 {
		delete(l.tenants, s.tenant())
	}
}

func (l *lane) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	l.changed.Broadcast()
}
