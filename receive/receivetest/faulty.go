package receivetest

import (
	"context"
	"errors"
	"iter"
	"sync"
	"sync/atomic"
	"time"

	"github.com/waybill-dev/waybill/receive"
)

// faults are what a store in bad hands does: the next calls fail, are late, or have their effect and
// lose their answer; and runs of a process that crashed change nothing any more.
type faults struct {
	mu     sync.Mutex
	queue  map[string][]fault
	epoch  int
	tokens map[receive.Token]int // the epoch in which a token was granted
	calls  atomic.Int64
}

func newFaults() *faults {
	return &faults{queue: map[string][]fault{}, tokens: map[receive.Token]int{}}
}

func (f *faults) fail(op string, n int, err error, applied bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for range n {
		f.queue[op] = append(f.queue[op], fault{err: err, applied: applied})
	}
}

// delay makes the next n calls of op take until their context ends, without effect.
func (f *faults) delay(op string, n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for range n {
		f.queue[op] = append(f.queue[op], fault{delay: 1})
	}
}

func (f *faults) mend() {
	f.mu.Lock()
	defer f.mu.Unlock()
	clear(f.queue)
}

// crash forgets every running handler, as a killed process does.
func (f *faults) crash() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.epoch++
}

func (f *faults) granted(token receive.Token) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.tokens[token] = f.epoch
}

func (f *faults) dead(token receive.Token) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	epoch, known := f.tokens[token]
	return known && epoch != f.epoch
}

func (f *faults) call(ctx context.Context, op string, apply func() error) error {
	f.calls.Add(1)
	var one fault
	f.mu.Lock()
	if queue := f.queue[op]; len(queue) > 0 {
		one, f.queue[op] = queue[0], queue[1:]
	}
	f.mu.Unlock()
	switch {
	case one.delay > 0:
		<-ctx.Done()
		return ctx.Err()
	case one.err != nil && !one.applied:
		return one.err
	}
	return errors.Join(apply(), one.err)
}

// faultyClaims is a ClaimStore in bad hands.
type faultyClaims struct {
	*faults
	good receive.ClaimStore
}

func (s faultyClaims) Claim(ctx context.Context, r *receive.Record, token receive.Token, lease time.Duration) (found receive.Found, err error) {
	err = s.call(ctx, "claim", func() error {
		found, err = s.good.Claim(ctx, r, token, lease)
		if found.Claim != nil {
			s.granted(token)
		}
		return err
	})
	if err != nil {
		found = receive.Found{}
	}
	return found, err
}

func (s faultyClaims) Settle(ctx context.Context, c *receive.Claim, o receive.Outcome) error {
	if s.dead(c.Token) {
		return ErrCrashed
	}
	return s.call(ctx, "settle", func() error { return s.good.Settle(ctx, c, o) })
}

// faultyInbox is an InboxStore in bad hands.
type faultyInbox struct {
	*faults
	good receive.InboxStore
}

func (s faultyInbox) Put(ctx context.Context, records []receive.Record) (found []receive.Found, err error) {
	err = s.call(ctx, "put", func() error {
		found, err = s.good.Put(ctx, records)
		return err
	})
	return found, err
}

func (s faultyInbox) Take(ctx context.Context, source string, n int, lease time.Duration) (taken []receive.Taken, err error) {
	err = s.call(ctx, "take", func() error {
		taken, err = s.good.Take(ctx, source, n, lease)
		for _, t := range taken {
			s.granted(t.Claim.Token)
		}
		return err
	})
	return taken, err
}

func (s faultyInbox) Extend(ctx context.Context, c *receive.Claim, lease time.Duration) error {
	if s.dead(c.Token) {
		return ErrCrashed
	}
	return s.call(ctx, "extend", func() error { return s.good.Extend(ctx, c, lease) })
}

func (s faultyInbox) Settle(ctx context.Context, c *receive.Claim, o receive.Outcome) error {
	if s.dead(c.Token) {
		return ErrCrashed
	}
	return s.call(ctx, "settle", func() error { return s.good.Settle(ctx, c, o) })
}

func (s faultyInbox) Bury(ctx context.Context, r *receive.Record, reason string) error {
	return s.call(ctx, "bury", func() error { return s.good.Bury(ctx, r, reason) })
}

func (s faultyInbox) Letters(ctx context.Context, source string) iter.Seq2[receive.DeadLetter, error] {
	return s.good.Letters(ctx, source)
}

func (s faultyInbox) Revive(ctx context.Context, key receive.Key) error {
	return s.call(ctx, "revive", func() error { return s.good.Revive(ctx, key) })
}
