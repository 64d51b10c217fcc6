package dispatch

import (
	"context"
	"sync"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

const (
	// recordBatch is how many results one transaction records at most.
	recordBatch = 500
	// recorders is how many such transactions may be under way. With a second one the batches are
	// half as large, which costs more than its overlapping fsync saves.
	recorders = 1
	// recordEvery is how far apart such transactions begin at least while fewer than recordAtOnce
	// results wait. One costs the database as much as thirty of its rows, and nobody waits for a
	// result: the endpoint has its slot back when the attempt ends.
	recordEvery  = 20 * time.Millisecond
	recordAtOnce = recordBatch / 2
)

// recorder collects results on their way into the database. Results are facts: they are kept and
// tried again until the database has answered, whoever owns the shard by then.
type recorder struct {
	mu      sync.Mutex
	waiting []finished
	urgent  bool // somebody waits for one of them
	more    chan struct{}
	now     chan struct{} // what waits is to be recorded without delay
}

// finished is a result with the work it is of.
type finished struct {
	outbox.Result
	work *work
}

func (r *recorder) init() {
	r.more, r.now = make(chan struct{}, recorders), make(chan struct{}, recorders)
}

func (r *recorder) add(f finished) {
	r.mu.Lock()
	r.waiting = append(r.waiting, f)
	// The next of its ordering key has its turn when it is recorded; and a delivery that was written
	// down as what may kill is handled alone by the next process if this one dies before.
	r.urgent = r.urgent || f.Delivery.Strict() || f.Suspect
	atOnce := r.atOnce()
	r.mu.Unlock()
	wake(r.more)
	if atOnce {
		wake(r.now)
	}
}

func (r *recorder) atOnce() bool { return r.urgent || len(r.waiting) >= recordAtOnce }

// gather waits for more results until the given time, and reports false if ctx ended first.
func (r *recorder) gather(ctx context.Context, until time.Time) bool {
	select {
	case <-r.now: // of results that are recorded already
	default:
	}
	r.mu.Lock()
	atOnce := r.atOnce()
	r.mu.Unlock()
	wait := time.Until(until)
	if atOnce || wait <= 0 {
		return true
	}
	late := time.NewTimer(wait)
	defer late.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-late.C:
	case <-r.now:
	}
	return true
}

// take returns the oldest results, at most recordBatch.
func (r *recorder) take() []finished {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := min(len(r.waiting), recordBatch)
	if n == 0 {
		return nil
	}
	batch := r.waiting[:n:n]
	r.waiting = r.waiting[n:]
	if len(r.waiting) > 0 {
		wake(r.more)
	} else {
		r.waiting, r.urgent = nil, false
	}
	return batch
}

// recordLoop records results until ctx ends.
func (n *Node) recordLoop(ctx context.Context) {
	var all sync.WaitGroup
	for range recorders {
		all.Go(func() {
			var began time.Time
			for {
				select {
				case <-ctx.Done():
					return
				case <-n.recorder.more:
				}
				if !n.recorder.gather(ctx, began.Add(recordEvery)) {
					return
				}
				began = time.Now()
				if batch := n.recorder.take(); batch != nil && !n.record(ctx, batch) {
					return
				}
			}
		})
	}
	all.Wait()
}

// record writes a batch, for as long as it takes, and reports false if ctx ended first.
func (n *Node) record(ctx context.Context, batch []finished) bool {
	results := make([]outbox.Result, len(batch))
	for i := range batch {
		results[i] = batch[i].Result
	}
	again := false
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, 2*time.Second) {
		done, err := n.cfg.Store.Finish(ctx, results)
		n.report(ctx, "record", err)
		if err == nil {
			if again {
				n.lookForFreed(results)
			}
			told := observed(batch) // before its work goes back to the scheduler
			n.recorded(batch, done.Freed)
			n.cfg.Observe.Recorded(told)
			return true
		}
		again = true
		if outbox.FaultOf(err) == outbox.FaultRefused {
			return n.recordRefused(ctx, batch)
		}
		if !sleep(ctx, wait) {
			return false
		}
	}
}

// recordRefused finds the results the database refuses. One alone is recorded without the
// receiver's answer, which is the only part of it that a stranger wrote: a result that cannot be
// stored must not make its delivery run for ever.
func (n *Node) recordRefused(ctx context.Context, batch []finished) bool {
	if len(batch) > 1 {
		half := len(batch) / 2
		return n.record(ctx, batch[:half]) && n.record(ctx, batch[half:])
	}
	f := batch[0]
	if f.Attempt == nil || f.Attempt.ResponseBody == nil && f.Attempt.ResponseHeaders == nil && f.Attempt.RequestHeaders == nil {
		n.cfg.Log.ErrorContext(ctx, "the database refuses a result; its delivery is left pending",
			"delivery", f.Delivery.ID, "endpoint", f.Delivery.Endpoint)
		n.mu.Lock()
		n.sched.pending--
		n.mu.Unlock() // still taken: it is not sent again by this process
		return true
	}
	plain := *f.Attempt
	plain.ResponseBody, plain.ResponseHeaders, plain.RequestHeaders, plain.Truncated = nil, nil, nil, true
	f.Attempt = &plain
	return n.record(ctx, []finished{f})
}

func (n *Node) recorded(batch []finished, freed []outbox.Delivery) {
	n.mu.Lock()
	for i := range batch {
		n.sched.recorded(batch[i].work, batch[i].RetryAt)
	}
	n.free(freed)
	n.mu.Unlock()
	wake(n.fetchNow)
	n.start()
}
