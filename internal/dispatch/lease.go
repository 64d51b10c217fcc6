package dispatch

import (
	"context"
	"errors"
	"sync"
	"time"
)

// errLeaseOver is the cause of an attempt's context that ended because the node may no longer
// act for its shards. What such an attempt did is unknown; it counts as no attempt.
var errLeaseOver = errors.New("the node's lease is over")

// tenure is the time a node may act, moved on by every successful heartbeat. Its context ends at
// the deadline, and a new one begins with the next success.
type tenure struct {
	mu    sync.Mutex
	until time.Time // with monotonic reading
	wall  time.Time // the same on the wall clock, which runs on while a machine sleeps
	ctx   context.Context
	end   context.CancelCauseFunc
	timer *time.Timer
}

// extend moves the deadline to leaseFor after sent, the moment the heartbeat was sent: the
// database cannot have seen it earlier.
func (t *tenure) extend(sent time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.until, t.wall = sent.Add(leaseFor), sent.Round(0).Add(leaseFor)
	left := time.Until(t.until)
	if left <= 0 {
		return
	}
	if t.ctx == nil || t.ctx.Err() != nil {
		t.ctx, t.end = context.WithCancelCause(context.Background())
	}
	if t.timer == nil {
		t.timer = time.AfterFunc(left, t.expire)
		return
	}
	t.timer.Reset(left)
}

func (t *tenure) expire() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if time.Now().Before(t.until) {
		return // moved on while the timer fired
	}
	t.end(errLeaseOver)
}

// current returns the context to act under, and whether the node may act at all.
func (t *tenure) current() (context.Context, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	if t.ctx == nil || t.ctx.Err() != nil || !now.Before(t.until) || !now.Round(0).Before(t.wall) {
		return nil, false
	}
	return t.ctx, true
}

// cut ends the current context for good.
func (t *tenure) cut() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.timer != nil {
		t.timer.Stop()
	}
	if t.end != nil {
		t.end(errLeaseOver)
	}
}
