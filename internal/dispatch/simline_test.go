package dispatch

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// line is a process's way to its database. It can be slow, lose answers, apply late what it said
// had failed, be dead for a while, or bring about the process's end at any call.
type line struct {
	outbox.Store
	bubble *sync.WaitGroup // of what is still to be applied

	mu      sync.Mutex
	rand    *rand.Rand
	faults  float64       // how often a call goes wrong, 0 to 1
	dead    bool          // the process has ended
	cut     chan struct{} // not nil: what is sent waits until it is closed
	crashIn int           // > 0: the process ends at this call from now
	before  bool          // it ends before the call is applied
	beat    time.Time     // when the last heartbeat that was answered was sent
	lapsed  time.Time     // when a heartbeat last succeeded after the lease had been over
	crash   func()
	note    func(format string, args ...any)
}

// lapsedSince reports whether the process's lease has been over at some time since.
func (l *line) lapsedSince(at time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dead || l.lapsed.After(at) || time.Since(l.beat) >= leaseFor
}

var errDead = &outbox.WriteError{Fault: outbox.FaultRetry, Err: errors.New("the process has ended")}

// whim is what becomes of one call.
type whim struct {
	delay   time.Duration // before it is applied
	refused bool          // nothing is applied, and the caller knows
	lost    bool          // the caller does not know
	applied bool          // though lost
	late    time.Duration // when it is, though lost
	crash   bool
	before  bool
}

// late are the calls that can be applied after their caller has given up. Those that begin by
// locking their shards cannot: whoever tries again waits for the lock.
var late = map[string]bool{"Finish": true, "Beat": true, "Take": true, "Release": true, "Join": true, "Leave": true, "WriteHealth": true}

func (l *line) decide(what string, write bool) (whim, <-chan struct{}, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dead {
		return whim{}, nil, errDead
	}
	var w whim
	if l.crashIn > 0 {
		if l.crashIn--; l.crashIn == 0 {
			w.crash, w.before = true, l.before
			return w, l.cut, nil
		}
	}
	if l.faults == 0 || l.rand.Float64() >= l.faults {
		return w, l.cut, nil
	}
	switch w.delay = time.Duration(l.rand.IntN(200)) * time.Millisecond; l.rand.IntN(8) {
	case 0, 1:
		w.refused = true
	case 2:
		w.lost = write
	case 3:
		w.lost, w.applied = write, true
	case 4:
		if w.lost = write; late[what] {
			w.late = time.Duration(1+l.rand.IntN(5000)) * time.Millisecond
		}
	case 5:
		w.delay = time.Duration(l.rand.IntN(5000)) * time.Millisecond
	}
	return w, l.cut, nil
}

// through makes a call over the line.
func through[T any](ctx context.Context, l *line, what string, write bool, apply func(context.Context) (T, error)) (T, error) {
	var none T
	w, cut, err := l.decide(what, write)
	if err != nil {
		return none, err
	}
	if cut != nil {
		select {
		case <-cut:
		case <-ctx.Done():
			return none, &outbox.WriteError{Fault: outbox.FaultUnknown, Err: ctx.Err()}
		}
	}
	if w.delay > 0 && !sleep(ctx, w.delay) {
		return none, &outbox.WriteError{Fault: outbox.FaultRetry, Err: ctx.Err()}
	}
	switch {
	case w.crash && w.before:
		l.note("the process ends before %s", what)
		l.crash()
		return none, errDead
	case w.crash:
		_, err := apply(ctx)
		l.note("the process ends after %s (%v)", what, err)
		l.crash()
		return none, errDead
	case w.refused:
		return none, &outbox.WriteError{Fault: outbox.FaultRetry, Err: errors.New("try again")}
	case w.lost && w.late > 0:
		l.note("%s is applied %v late", what, w.late)
		l.bubble.Go(func() {
			time.Sleep(w.late)
			_, _ = apply(context.WithoutCancel(ctx))
		})
		return none, errCut
	case w.lost:
		if w.applied {
			_, err = apply(ctx)
		}
		l.note("the answer of %s is lost; applied %v (%v)", what, w.applied, err)
		return none, errCut
	}
	l.mu.Lock()
	dead := l.dead
	l.mu.Unlock()
	if dead { // it ended while this waited
		return none, errDead
	}
	return apply(ctx)
}

type nothing struct{}

// do is through for a call that has no answer.
func (l *line) do(ctx context.Context, what string, apply func(context.Context) error) error {
	_, err := through(ctx, l, what, true, func(ctx context.Context) (nothing, error) { return nothing{}, apply(ctx) })
	return err
}

func (l *line) By(*outbox.Author) outbox.Store { return l }

func (l *line) Join(ctx context.Context, node outbox.NodeID, now time.Time) error {
	return l.do(ctx, "Join", func(ctx context.Context) error { return l.Store.Join(ctx, node, now) })
}

func (l *line) Leave(ctx context.Context, node outbox.NodeID) error {
	return l.do(ctx, "Leave", func(ctx context.Context) error { return l.Store.Leave(ctx, node) })
}

func (l *line) Beat(ctx context.Context, node outbox.NodeID, draining bool) (outbox.Beat, error) {
	sent := time.Now()
	b, err := through(ctx, l, "Beat", true, func(ctx context.Context) (outbox.Beat, error) { return l.Store.Beat(ctx, node, draining) })
	if err == nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		if now := time.Now(); !l.beat.IsZero() && now.Sub(l.beat) >= leaseFor {
			l.lapsed = now // though it was sent in time
		}
		l.beat = sent
	}
	return b, err
}

func (l *line) Take(ctx context.Context, node outbox.NodeID, shards []outbox.ShardState) (outbox.Lease, map[outbox.Shard][]outbox.HeldSlot, error) {
	type answer struct {
		lease outbox.Lease
		held  map[outbox.Shard][]outbox.HeldSlot
	}
	a, err := through(ctx, l, "Take", true, func(ctx context.Context) (answer, error) {
		lease, held, err := l.Store.Take(ctx, node, shards)
		return answer{lease, held}, err
	})
	return a.lease, a.held, err
}

func (l *line) Release(ctx context.Context, lease outbox.Lease, held map[outbox.Shard][]outbox.HeldSlot) error {
	return l.do(ctx, "Release", func(ctx context.Context) error { return l.Store.Release(ctx, lease, held) })
}

func (l *line) Revisions(ctx context.Context, shards []outbox.Shard) (map[outbox.Shard]int64, error) {
	return through(ctx, l, "Revisions", false, func(ctx context.Context) (map[outbox.Shard]int64, error) { return l.Store.Revisions(ctx, shards) })
}

func (l *line) LoadConfig(ctx context.Context, shards []outbox.Shard) (outbox.ShardConfig, error) {
	return through(ctx, l, "LoadConfig", false, func(ctx context.Context) (outbox.ShardConfig, error) { return l.Store.LoadConfig(ctx, shards) })
}

func (l *line) Heads(ctx context.Context, shards []outbox.Shard) ([]outbox.Head, error) {
	return through(ctx, l, "Heads", false, func(ctx context.Context) ([]outbox.Head, error) { return l.Store.Heads(ctx, shards) })
}

func (l *line) ReadOutbox(ctx context.Context, shards []outbox.Shard, after []int64, perShard int) ([]outbox.OutboxRow, error) {
	return through(ctx, l, "ReadOutbox", false, func(ctx context.Context) ([]outbox.OutboxRow, error) {
		return l.Store.ReadOutbox(ctx, shards, after, perShard)
	})
}

func (l *line) ReadEvents(ctx context.Context, rows []outbox.OutboxRow, maxPayload int64) error {
	_, err := through(ctx, l, "ReadEvents", false, func(ctx context.Context) (nothing, error) {
		return nothing{}, l.Store.ReadEvents(ctx, rows, maxPayload)
	})
	return err
}

func (l *line) OutboxTip(ctx context.Context) (int64, error) {
	return through(ctx, l, "OutboxTip", false, l.Store.OutboxTip)
}

func (l *line) NextSequences(ctx context.Context, endpoints map[outbox.EndpointID]outbox.Shard) (map[outbox.EndpointID]int64, error) {
	return through(ctx, l, "NextSequences", false, func(ctx context.Context) (map[outbox.EndpointID]int64, error) {
		return l.Store.NextSequences(ctx, endpoints)
	})
}

func (l *line) Route(ctx context.Context, lease outbox.Lease, plans []outbox.Plan, next map[outbox.EndpointID]int64, now time.Time) (outbox.Routed, error) {
	return through(ctx, l, "Route", true, func(ctx context.Context) (outbox.Routed, error) { return l.Store.Route(ctx, lease, plans, next, now) })
}

func (l *line) Replay(ctx context.Context, lease outbox.Lease, rows []outbox.OutboxRow, now time.Time) ([]outbox.Delivery, error) {
	return through(ctx, l, "Replay", true, func(ctx context.Context) ([]outbox.Delivery, error) { return l.Store.Replay(ctx, lease, rows, now) })
}

func (l *line) HastenOldest(ctx context.Context, lease outbox.Lease, row outbox.OutboxRow, now time.Time) (*outbox.Delivery, error) {
	return through(ctx, l, "HastenOldest", true, func(ctx context.Context) (*outbox.Delivery, error) { return l.Store.HastenOldest(ctx, lease, row, now) })
}

func (l *line) EndCommand(ctx context.Context, lease outbox.Lease, row outbox.OutboxRow) error {
	return l.do(ctx, "EndCommand", func(ctx context.Context) error { return l.Store.EndCommand(ctx, lease, row) })
}

func (l *line) Cancel(ctx context.Context, lease outbox.Lease, row outbox.OutboxRow, limit int, now time.Time) (outbox.Ended, bool, error) {
	type answer struct {
		ended outbox.Ended
		done  bool
	}
	a, err := through(ctx, l, "Cancel", true, func(ctx context.Context) (answer, error) {
		ended, done, err := l.Store.Cancel(ctx, lease, row, limit, now)
		return answer{ended, done}, err
	})
	return a.ended, a.done, err
}

func (l *line) FetchDue(ctx context.Context, requests []outbox.FetchRequest, now time.Time, maxBytes int64) ([]outbox.Fetched, error) {
	return through(ctx, l, "FetchDue", false, func(ctx context.Context) ([]outbox.Fetched, error) {
		return l.Store.FetchDue(ctx, requests, now, maxBytes)
	})
}

func (l *line) Finish(ctx context.Context, results []outbox.Result) (outbox.Finished, error) {
	return through(ctx, l, "Finish", true, func(ctx context.Context) (outbox.Finished, error) { return l.Store.Finish(ctx, results) })
}

func (l *line) PendingAttempts(ctx context.Context, shards []outbox.Shard, ids []outbox.DeliveryID) (map[outbox.DeliveryID]int, error) {
	return through(ctx, l, "PendingAttempts", false, func(ctx context.Context) (map[outbox.DeliveryID]int, error) {
		return l.Store.PendingAttempts(ctx, shards, ids)
	})
}

func (l *line) Recorded(ctx context.Context, shards []outbox.Shard, slots []outbox.HeldSlot) (map[outbox.DeliveryID]bool, error) {
	return through(ctx, l, "Recorded", false, func(ctx context.Context) (map[outbox.DeliveryID]bool, error) {
		return l.Store.Recorded(ctx, shards, slots)
	})
}

func (l *line) Expire(ctx context.Context, lease outbox.Lease, before time.Time, limit int, now time.Time) (outbox.Ended, error) {
	return through(ctx, l, "Expire", true, func(ctx context.Context) (outbox.Ended, error) { return l.Store.Expire(ctx, lease, before, limit, now) })
}

func (l *line) Reorder(ctx context.Context, lease outbox.Lease, shard outbox.Shard, endpoint outbox.EndpointID, from outbox.ReorderFrom, limit int, now time.Time) (outbox.Reordered, error) {
	return through(ctx, l, "Reorder", true, func(ctx context.Context) (outbox.Reordered, error) {
		return l.Store.Reorder(ctx, lease, shard, endpoint, from, limit, now)
	})
}

func (l *line) WriteHealth(ctx context.Context, lease outbox.Lease, rows []outbox.EndpointHealth, now time.Time) error {
	return l.do(ctx, "WriteHealth", func(ctx context.Context) error { return l.Store.WriteHealth(ctx, lease, rows, now) })
}

func (l *line) LoadHealth(ctx context.Context, shards []outbox.Shard) ([]outbox.EndpointHealth, error) {
	return through(ctx, l, "LoadHealth", false, func(ctx context.Context) ([]outbox.EndpointHealth, error) { return l.Store.LoadHealth(ctx, shards) })
}

func (l *line) MarkSuspects(ctx context.Context, lease outbox.Lease, suspects []outbox.Suspect, now time.Time) error {
	return l.do(ctx, "MarkSuspects", func(ctx context.Context) error { return l.Store.MarkSuspects(ctx, lease, suspects, now) })
}

func (l *line) Suspects(ctx context.Context, shards []outbox.Shard) ([]outbox.Suspect, error) {
	return through(ctx, l, "Suspects", false, func(ctx context.Context) ([]outbox.Suspect, error) { return l.Store.Suspects(ctx, shards) })
}

func (l *line) Strike(ctx context.Context, lease outbox.Lease, one outbox.Suspect, now time.Time) (int, error) {
	return through(ctx, l, "Strike", true, func(ctx context.Context) (int, error) { return l.Store.Strike(ctx, lease, one, now) })
}

func (l *line) ClearSuspects(ctx context.Context, lease outbox.Lease, suspects []outbox.Suspect) error {
	return l.do(ctx, "ClearSuspects", func(ctx context.Context) error { return l.Store.ClearSuspects(ctx, lease, suspects) })
}
