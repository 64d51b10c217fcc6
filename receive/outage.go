package receive

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// When a store counts as lost, and how often it is asked then. Every request that waits for a store
// in vain spends its whole budget of the provider's patience, and holds a connection meanwhile.
const (
	lostAfter = 3 // requests in a row
	askEvery  = time.Second
)

var errStoreLost = errors.New("receive: the store did not answer the last requests, and was not asked")

// outage remembers whether a store answers, so that while it does not, one request a second waits
// for it and the others do not.
type outage struct {
	mu       sync.Mutex
	failures int // in a row
	reason   error
	since    time.Time // of the first of them
	next     time.Time // lost: when it is asked again
}

// ask reports whether a request should ask the store; the error is what to take for its answer.
func (o *outage) ask(now time.Time) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.failures < lostAfter {
		return nil
	}
	if now.Before(o.next) {
		return fmt.Errorf("%w; it said: %w", errStoreLost, o.reason)
	}
	o.next = now.Add(askEvery)
	return nil
}

// answered takes down how asking ended. lost and back are set at the moments at which that changes
// what the store counts as.
func (o *outage) answered(now time.Time, err error) (lost, back bool, since time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err == nil {
		back, since = o.failures >= lostAfter, o.since
		o.failures, o.reason = 0, nil
		return false, back, since
	}
	if o.failures == 0 {
		o.since = now
	}
	o.failures++
	o.reason = err
	if o.failures == lostAfter {
		o.next, lost = now.Add(askEvery), true
	}
	return lost, false, o.since
}

// storeAnswered tells of a store that failed, that is lost, and that is back.
func (e *engine) storeAnswered(ctx context.Context, err error) {
	lost, back, since := e.outage.answered(time.Now(), err)
	o := Observation{Step: StepStore, Err: err}
	if err != nil {
		o.Outcome, o.Reason = Failed, down(err)
		e.note(ctx, o)
	}
	switch {
	case lost:
		o.Outcome = StoreLost
		e.note(ctx, o)
	case back:
		o.Outcome, o.Age = StoreBack, time.Since(since)
		e.note(ctx, o)
	}
}
