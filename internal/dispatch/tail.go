package dispatch

import (
	"context"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// tailSlack is how far back, in time, the tail looks: a transaction that took its position that
// long ago and commits only now is found by the next poll instead of the sweep.
const tailSlack = 10 * time.Second

// tail remembers where the tail read begins.
type tail struct {
	samples []tip // the newest position at moments of the last tailSlack, oldest first
	// full holds, per shard, where its last page ended if it was full: the next read goes on
	// there instead of reading the same page again.
	full map[outbox.Shard]int64
}

type tip struct {
	at  time.Time
	pos int64
}

// note adds a sample and forgets those that are too old to be the start.
func (t *tail) note(now time.Time, pos int64) {
	t.samples = append(t.samples, tip{now, pos})
	for len(t.samples) > 1 && now.Sub(t.samples[1].at) >= tailSlack {
		t.samples = t.samples[1:]
	}
}

// start is the newest position known tailSlack ago.
func (t *tail) start() int64 {
	if len(t.samples) == 0 {
		return 0
	}
	return t.samples[0].pos
}

// poll reads the tail. A shard whose last page was full is read on in large pages, apart from the
// others: somebody's million rows must be got past before what stands behind them is seen.
func (n *Node) poll(ctx context.Context, t *tail) (int, error) {
	var calm, crowded []outbox.Shard
	var calmAfter, crowdedAfter []int64
	for _, s := range n.Shards() {
		if at, full := t.full[s]; full && at > t.start() && len(crowded) < crowds {
			crowded, crowdedAfter = append(crowded, s), append(crowdedAfter, at)
		} else {
			calm, calmAfter = append(calm, s), append(calmAfter, t.start())
		}
	}
	clear(t.full)
	found, err := n.pollShards(ctx, t, calm, calmAfter, pageRows)
	if err != nil {
		return found, err
	}
	more, err := n.pollShards(ctx, t, crowded, crowdedAfter, crowdRows)
	return found + more, err
}

func (n *Node) pollShards(ctx context.Context, t *tail, shards []outbox.Shard, after []int64, page int) (int, error) {
	if len(shards) == 0 {
		return 0, nil
	}
	rows, err := n.cfg.Store.ReadOutbox(ctx, shards, after, page)
	if err != nil {
		return 0, err
	}
	forEachPage(rows, func(rows []outbox.OutboxRow) {
		if len(rows) >= page {
			t.full[rows[0].Shard] = rows[len(rows)-1].Pos
		}
	})
	return n.takeIn(ctx, rows)
}
