package dispatch

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

const (
	// reorderBatch is how many rows, or ordering keys, are put in order in one transaction.
	reorderBatch = 1000
	// Once a minute so many strict endpoints are looked through, each so many batches deep, for
	// turns that were not given. Nothing is ever found unless somebody edited the tables.
	checkEvery   = time.Minute
	checkedAtOne = 100
	checkedDeep  = 20
)

// free lets deliveries be read whose turn came. n.mu is held. Those of another owner's shard are
// found by that one, which reads a lane again when an attempt it knows of has ended.
func (n *Node) free(freed []outbox.Delivery) {
	for i := range freed {
		if _, mine := n.lease.Epochs[freed[i].Shard]; mine {
			n.sched.lower(&freed[i])
		}
	}
}

// lookForFreed reads again where deliveries became due that Finish did not name: a run of it whose
// commit was not answered may have given their turns.
func (n *Node) lookForFreed(results []outbox.Result) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for i := range results {
		d := &results[i].Delivery
		if e := n.sched.endpoints[d.Endpoint]; e != nil && d.Strict() && results[i].Final() {
			for lane := range e.lanes {
				e.lanes[lane].lower(fromTheStart)
				n.sched.wake(&e.lanes[lane])
			}
		}
	}
}

// orderLoop brings the rows of endpoints in line with their ordering, after it was changed.
func (n *Node) orderLoop(ctx context.Context) {
	check := time.NewTicker(checkEvery)
	defer check.Stop()
	var last outbox.EndpointID
	for {
		select {
		case <-ctx.Done():
			return
		case <-n.orderNow:
			err := n.reorderChanged(ctx)
			n.report(ctx, "order", err)
			if err != nil {
				if !sleep(ctx, time.Second) {
					return
				}
				wake(n.orderNow)
			}
		case <-check.C:
			var err error
			last, err = n.checkOrder(ctx, last)
			n.report(ctx, "order check", err)
		}
	}
}

// reorderChanged works off the endpoints whose rows are not in line.
func (n *Node) reorderChanged(ctx context.Context) error {
	for ctx.Err() == nil {
		n.mu.Lock()
		var row outbox.EndpointRow
		for _, row = range n.unordered {
			break
		}
		left := len(n.unordered)
		delete(n.unordered, row.Endpoint)
		n.mu.Unlock()
		if left == 0 {
			return nil
		}
		if _, err := n.reorder(ctx, row, 0); err != nil && !errors.Is(err, outbox.ErrFenced) {
			n.mu.Lock()
			n.unordered[row.Endpoint] = row
			n.mu.Unlock()
			return err
		}
	}
	return nil
}

// reorder puts an endpoint's rows in order, at most calls batches, 0 for all, and returns how many
// became due.
func (n *Node) reorder(ctx context.Context, row outbox.EndpointRow, calls int) (freed int, err error) {
	var from outbox.ReorderFrom
	for i := 0; calls == 0 || i < calls; i++ {
		n.mu.Lock()
		lease := n.lease
		n.mu.Unlock()
		done, err := n.cfg.Store.Reorder(ctx, lease, row.Shard, row.Endpoint, from, reorderBatch, n.cfg.Clock.Now())
		if err != nil {
			return freed, err
		}
		freed += len(done.Freed)
		n.mu.Lock()
		n.sched.drop(done.Parked)
		n.free(done.Freed)
		n.mu.Unlock()
		wake(n.fetchNow)
		if done.Done {
			break
		}
		from = done.Next
	}
	return freed, nil
}

// checkOrder looks through some strict endpoints, those after last, and returns where it got to.
func (n *Node) checkOrder(ctx context.Context, last outbox.EndpointID) (outbox.EndpointID, error) {
	var rows []outbox.EndpointRow
	n.mu.Lock()
	for id, e := range n.sched.endpoints {
		if e.target != nil && e.target.endpoint.Ordering == outbox.OrderingStrict && bytes.Compare(id[:], last[:]) > 0 {
			rows = append(rows, outbox.EndpointRow{Shard: e.tenant.shard, Endpoint: id})
		}
	}
	n.mu.Unlock()
	slices.SortFunc(rows, func(a, b outbox.EndpointRow) int { return bytes.Compare(a.Endpoint[:], b.Endpoint[:]) })
	last = outbox.EndpointID{} // around again, unless more follow
	if len(rows) > checkedAtOne {
		rows = rows[:checkedAtOne]
		last = rows[checkedAtOne-1].Endpoint
	}
	for _, row := range rows {
		freed, err := n.reorder(ctx, row, checkedDeep)
		if err != nil && !errors.Is(err, outbox.ErrFenced) {
			return last, err
		}
		if freed > 0 {
			n.cfg.Log.WarnContext(ctx, "deliveries waited for others that are gone; were the tables edited?",
				"endpoint", row.Endpoint, "freed", freed)
		}
	}
	return last, nil
}
