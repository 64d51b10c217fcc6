package receivetest

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/waybill-dev/waybill/receive"
	"github.com/waybill-dev/waybill/receive/internal/row"
)

// Store is memory that passes for a durable database, and fails on command. It serves Inbox and
// Sync. Its clock is the process's, plus what Advance added; in a synctest bubble, the bubble's.
type Store struct {
	mu     sync.Mutex
	rows   map[[32]byte]*event
	order  int // of arrival
	skew   time.Duration
	faults map[string][]fault
	epoch  int
	tokens map[receive.Token]int // the epoch in which a token was granted
}

type event struct {
	row.Row
	record  receive.Record
	kept    bool // record is stored, not only its key
	arrived int
	due     time.Time
	reason  string
	buried  time.Time
}

type fault struct {
	err     error
	applied bool
	delay   time.Duration
}

// ErrCrashed is what a run of a crashed process gets from the store, if it still asks.
var ErrCrashed = errors.New("receivetest: this run's process has crashed")

// NewStore makes an empty store.
func NewStore() *Store {
	return &Store{rows: map[[32]byte]*event{}, faults: map[string][]fault{}, tokens: map[receive.Token]int{}}
}

// Fail makes the next n calls of op ("claim", "settle", "put", "take", "extend", "bury", "letters",
// "revive") end in err; if applied, after having had their effect: the answer was lost, not the
// question.
func (s *Store) Fail(op string, n int, err error, applied bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for range n {
		s.faults[op] = append(s.faults[op], fault{err: err, applied: applied})
	}
}

// Delay makes the next n calls of op take d, or until their context ends; what had to wait too long
// has no effect.
func (s *Store) Delay(op string, n int, d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for range n {
		s.faults[op] = append(s.faults[op], fault{delay: d})
	}
}

// Mend takes back what Fail and Delay ordered and has not come up yet.
func (s *Store) Mend() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.faults)
}

// Crash forgets every running handler, as a killed process does: their claims stay until their
// leases end, and whatever those runs still ask for fails with ErrCrashed and has no effect.
func (s *Store) Crash() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.epoch++
}

// Wipe forgets everything, as an eviction, or a failover that lost what was written, does.
func (s *Store) Wipe() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.rows)
}

// Advance lets the store's clock run ahead.
func (s *Store) Advance(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.skew += d
}

// Len is the number of events the store remembers.
func (s *Store) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.rows)
}

// call runs apply under the lock, with the fault ordered for op, if any.
func (s *Store) call(ctx context.Context, op string, apply func(now time.Time) error) error {
	var f fault
	s.mu.Lock()
	if queue := s.faults[op]; len(queue) > 0 {
		f, s.faults[op] = queue[0], queue[1:]
	}
	s.mu.Unlock()
	if f.delay > 0 {
		select {
		case <-time.After(f.delay):
		case <-ctx.Done():
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if f.err != nil && !f.applied {
		return f.err
	}
	err := apply(time.Now().Add(s.skew))
	if f.err != nil {
		return f.err
	}
	return err
}

func (s *Store) grant(c *receive.Claim) {
	if c != nil {
		s.tokens[c.Token] = s.epoch
	}
}

func (s *Store) crashed(c *receive.Claim) bool {
	epoch, known := s.tokens[c.Token]
	return known && epoch != s.epoch
}

// Claim is receive.ClaimStore's.
func (s *Store) Claim(ctx context.Context, r *receive.Record, token receive.Token, lease time.Duration) (found receive.Found, err error) {
	err = s.call(ctx, "claim", func(now time.Time) error {
		e := s.rows[r.Key.Hash()]
		if e == nil {
			e = &event{arrived: s.order, record: receive.Record{Key: r.Key}}
			s.order++
			s.rows[r.Key.Hash()] = e
		}
		found = e.Claim(now, r, token, lease)
		s.grant(found.Claim)
		return nil
	})
	if err != nil {
		return receive.Found{}, err
	}
	return found, nil
}

// Settle is receive.ClaimStore's and receive.InboxStore's.
func (s *Store) Settle(ctx context.Context, c *receive.Claim, o receive.Outcome) error {
	return s.call(ctx, "settle", func(now time.Time) error {
		if s.crashed(c) {
			return ErrCrashed
		}
		e := s.rows[c.Key.Hash()]
		if e == nil {
			return receive.ErrLeaseLost
		}
		if err := e.Settle(now, c, o); err != nil || o.Look {
			return err
		}
		e.due = now.Add(o.After)
		if o.State == receive.Dead {
			e.bury(now, o.Record, o.Reason)
		}
		return nil
	})
}

func (e *event) bury(now time.Time, r *receive.Record, reason string) {
	if r != nil && !e.kept {
		received := e.First
		if received.IsZero() {
			received = now
		}
		e.record, e.kept = *r, true
		e.record.ReceivedAt = received
	}
	if e.buried.IsZero() {
		e.reason, e.buried = reason, now
	}
}

// Put is receive.InboxStore's.
func (s *Store) Put(ctx context.Context, records []receive.Record) (found []receive.Found, err error) {
	err = s.call(ctx, "put", func(now time.Time) error {
		for _, r := range records {
			e := s.rows[r.Key.Hash()]
			if e != nil && e.Forgotten(now) {
				e = nil
			}
			if e == nil {
				r.ReceivedAt = now
				e = &event{record: r, kept: true, arrived: s.order, due: now}
				e.Seen, e.First, e.Digest = true, now, r.Digest
				s.order++
				s.rows[r.Key.Hash()] = e
				found = append(found, receive.Found{New: true})
				continue
			}
			f := receive.Found{State: e.State, Since: now.Sub(e.First), OtherBody: e.Digest != r.Digest}
			if e.State == receive.Held {
				if f.Left = e.Until.Sub(now); f.Left <= 0 {
					f.State, f.Left = receive.Free, 0
				}
			}
			found = append(found, f)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}

// Take is receive.InboxStore's.
func (s *Store) Take(ctx context.Context, source string, n int, lease time.Duration) (taken []receive.Taken, err error) {
	err = s.call(ctx, "take", func(now time.Time) error {
		var due []*event
		for _, e := range s.rows {
			if e.kept && e.record.Key.Source == source && e.isDue(now) {
				due = append(due, e)
			}
		}
		slices.SortFunc(due, func(a, b *event) int {
			return cmp.Or(a.since().Compare(b.since()), cmp.Compare(a.arrived, b.arrived))
		})
		for _, e := range due[:min(n, len(due))] {
			e.Begin(now, receive.NewToken(), lease)
			c := e.ClaimOf(e.record.Key)
			s.grant(c)
			taken = append(taken, receive.Taken{Record: e.record, Claim: c})
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return taken, nil
}

// since is from when on the event is due.
func (e *event) since() time.Time {
	if e.State == receive.Held {
		return e.Until
	}
	return e.due
}

func (e *event) isDue(now time.Time) bool {
	return (e.State == receive.Free || e.State == receive.Held) && !now.Before(e.since())
}

// Extend is receive.InboxStore's.
func (s *Store) Extend(ctx context.Context, c *receive.Claim, lease time.Duration) error {
	return s.call(ctx, "extend", func(now time.Time) error {
		e := s.rows[c.Key.Hash()]
		switch {
		case s.crashed(c):
			return ErrCrashed
		case e == nil:
			return receive.ErrLeaseLost
		}
		return e.Extend(now, c, lease)
	})
}

// Bury is receive.DeadLetterStore's.
func (s *Store) Bury(ctx context.Context, r *receive.Record, reason string) error {
	return s.call(ctx, "bury", func(now time.Time) error {
		e := s.rows[r.Key.Hash()]
		if e == nil {
			e = &event{arrived: s.order}
			e.Seen, e.First, e.Digest = true, now, r.Digest
			s.order++
			s.rows[r.Key.Hash()] = e
		}
		e.State = receive.Dead
		e.bury(now, r, reason)
		return nil
	})
}

// Letters is receive.DeadLetterStore's.
func (s *Store) Letters(ctx context.Context, source string) iter.Seq2[receive.DeadLetter, error] {
	return func(yield func(receive.DeadLetter, error) bool) {
		var letters []receive.DeadLetter
		err := s.call(ctx, "letters", func(time.Time) error {
			for _, e := range s.rows {
				if e.State == receive.Dead && e.kept && e.record.Key.Source == source {
					letters = append(letters, receive.DeadLetter{Record: e.record, Reason: e.reason, Runs: e.Run, At: e.buried})
				}
			}
			return nil
		})
		if err != nil {
			yield(receive.DeadLetter{}, err)
			return
		}
		slices.SortFunc(letters, func(a, b receive.DeadLetter) int { return a.At.Compare(b.At) })
		for _, l := range letters {
			if !yield(l, nil) {
				return
			}
		}
	}
}

// Revive is receive.DeadLetterStore's.
func (s *Store) Revive(ctx context.Context, key receive.Key) error {
	return s.call(ctx, "revive", func(now time.Time) error {
		e := s.rows[key.Hash()]
		if e == nil {
			return receive.ErrNotFound
		}
		if err := e.Revive(); err != nil {
			return err
		}
		e.due, e.buried, e.reason = now, time.Time{}, ""
		return nil
	})
}

// Prune is receive.Pruner's.
func (s *Store) Prune(ctx context.Context) (removed int, err error) {
	err = s.call(ctx, "prune", func(now time.Time) error {
		for hash, e := range s.rows {
			claimed := !e.kept && (e.State == receive.Free || e.State == receive.Held)
			if e.Forgotten(now) || claimed && now.Sub(e.since()) >= receive.ClaimMemory {
				delete(s.rows, hash)
				removed++
			}
		}
		return nil
	})
	return removed, err
}

var (
	_ receive.InboxStore = (*Store)(nil)
	_ receive.ClaimStore = (*Store)(nil)
	_ receive.Pruner     = (*Store)(nil)
)
