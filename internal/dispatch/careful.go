package dispatch

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// carefulFor is how long a shard is run carefully after its last owner died.
const carefulFor = 10 * time.Minute

// beware notes what a takeover tells: which shards were not released, and what is suspected in
// them. What a former owner handed over in flight is no suspect: it lives, and its result takes
// the entry back. The caller holds the lock, and the shards are not worked on yet.
func (n *Node) beware(claims []outbox.ShardState, got outbox.Lease, held map[outbox.Shard][]outbox.HeldSlot, suspects []outbox.Suspect, now time.Time) {
	flying := map[outbox.DeliveryID]bool{}
	for _, c := range claims {
		if _, mine := got.Epochs[c.Shard]; !mine {
			continue
		}
		if c.Released {
			for _, slot := range held[c.Shard] {
				flying[slot.Delivery] = true
			}
			continue
		}
		if n.careful == nil {
			n.careful = map[outbox.Shard]time.Time{}
		}
		n.careful[c.Shard] = now.Add(carefulFor)
	}
	for _, s := range suspects {
		if _, mine := got.Epochs[s.Shard]; !mine || flying[s.Delivery] {
			continue
		}
		if s.Delivery.IsZero() {
			n.rows.suspect(s)
		} else {
			n.sched.ward.suspect(s)
		}
	}
}

// carefully reports whether what is handled in the shard is written down first. The caller holds
// the lock.
func (n *Node) carefully(shard outbox.Shard) bool {
	if len(n.careful) == 0 {
		return false
	}
	until, ok := n.careful[shard]
	if ok && time.Now().After(until) {
		delete(n.careful, shard)
		return false
	}
	return ok
}

// journal collects what is about to be attempted in careful shards, so that one transaction
// writes down many.
type journal struct {
	mu      sync.Mutex
	waiting []marking
	more    chan struct{}
}

// marking is a suspect whose attempt waits for it to be written down.
type marking struct {
	outbox.Suspect
	written chan bool // of capacity 1
}

func (j *journal) init() { j.more = make(chan struct{}, 1) }

func (j *journal) take() []marking {
	j.mu.Lock()
	defer j.mu.Unlock()
	batch := j.waiting[:min(len(j.waiting), recordBatch)]
	j.waiting = j.waiting[len(batch):]
	if len(j.waiting) > 0 {
		wake(j.more)
	}
	return batch
}

// writeDown writes down that a delivery is about to be attempted. It reports false if that did not
// come about while the node may act (ctx): then nothing may be attempted.
func (n *Node) writeDown(ctx context.Context, w *work) bool {
	e := marking{outbox.Suspect{Shard: w.due.Shard, Delivery: w.due.ID}, make(chan bool, 1)}
	n.journal.mu.Lock()
	n.journal.waiting = append(n.journal.waiting, e)
	n.journal.mu.Unlock()
	wake(n.journal.more)
	select {
	case written := <-e.written:
		return written && ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// journalLoop writes down what waits until ctx ends.
func (n *Node) journalLoop(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-n.journal.more:
		}
		batch := n.journal.take()
		err := n.writeEntries(ctx, batch)
		n.report(ctx, "suspects", err)
		if err != nil && !sleep(ctx, 50*time.Millisecond) { // they are read again, and at once
			return
		}
		for _, e := range batch {
			e.written <- err == nil
		}
	}
}

func (n *Node) writeEntries(ctx context.Context, batch []marking) error {
	suspects := make([]outbox.Suspect, len(batch))
	for i := range batch {
		suspects[i] = batch[i].Suspect
	}
	return n.lasting(ctx, func() error {
		n.mu.Lock()
		lease := n.lease
		n.mu.Unlock()
		return n.cfg.Store.MarkSuspects(ctx, lease, suspects, n.cfg.Clock.Now())
	})
}

// lasting tries a write again until the database has answered, the node may not act any more, or
// ctx has ended.
func (n *Node) lasting(ctx context.Context, write func() error) error {
	for wait := 20 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		err := write()
		if err == nil || errors.Is(err, outbox.ErrFenced) || outbox.FaultOf(err) == outbox.FaultRefused {
			return err
		}
		if _, may := n.tenure.current(); !may || !sleep(ctx, wait) {
			return err
		}
	}
}

// writeDownRows writes down those of the rows that are about to be routed in careful shards, and
// returns them.
func (n *Node) writeDownRows(ctx context.Context, rows []outbox.OutboxRow) ([]outbox.Suspect, error) {
	var suspects []outbox.Suspect
	n.mu.Lock()
	lease := n.lease
	for i := range rows {
		if n.carefully(rows[i].Shard) {
			suspects = append(suspects, outbox.Suspect{Shard: rows[i].Shard, Pos: rows[i].Pos})
		}
	}
	n.mu.Unlock()
	if len(suspects) == 0 {
		return nil, nil
	}
	return suspects, n.cfg.Store.MarkSuspects(ctx, lease, suspects, n.cfg.Clock.Now())
}

// clear forgets suspects that were survived. Where it fails they are found by the next owner, who
// forgets those that are gone and tries the others apart.
func (n *Node) clear(ctx context.Context, suspects []outbox.Suspect) {
	if len(suspects) == 0 {
		return
	}
	n.mu.Lock()
	lease := n.lease
	n.mu.Unlock()
	n.report(ctx, "clear suspects", n.cfg.Store.ClearSuspects(ctx, lease, suspects))
}

func shardsOf(states []outbox.ShardState) []outbox.Shard {
	shards := make([]outbox.Shard, len(states))
	for i := range states {
		shards[i] = states[i].Shard
	}
	return shards
}
