package dispatch

import (
	"context"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

const (
	sweepEvery = time.Second
	// sweepShare bounds the part of wall time that sweeping may take, to one in so many.
	sweepShare = 20
)

// sweep reads the first rows of every shard, whatever their position, and returns when to do so
// again. What is committed late stands before everything that is younger, so it is soon among the
// first. Where a page is full the refill goes on behind it.
func (n *Node) sweep(ctx context.Context) (found int, again time.Time, err error) {
	begin := time.Now()
	shards := n.Shards()
	if len(shards) > 0 {
		found, err = n.sweepShards(ctx, shards)
	}
	end := time.Now()
	return found, end.Add(max(sweepEvery, sweepShare*end.Sub(begin))), err
}

func (n *Node) sweepShards(ctx context.Context, shards []outbox.Shard) (int, error) {
	rows, err := n.cfg.Store.ReadOutbox(ctx, shards, make([]int64, len(shards)), pageRows)
	if err != nil {
		return 0, err
	}
	// Before they are taken in, which reuses the slice.
	var full []outbox.OutboxRow
	forEachPage(rows, func(page []outbox.OutboxRow) {
		if len(page) >= pageRows {
			full = append(full, page[len(page)-1])
		}
	})
	found, err := n.takeIn(ctx, rows)
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, last := range full {
		if _, known := n.starved[last.Shard]; !known {
			n.starved[last.Shard] = starved{after: last.Pos, tenant: last.Tenant}
		}
	}
	return found, err
}
