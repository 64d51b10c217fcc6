package dispatch

import (
	"context"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

const (
	pollBusy = 25 * time.Millisecond
	pollIdle = time.Second
	tipEvery = time.Second
	// pageRows is how many rows of each shard one read returns at most; crowdRows of a shard that
	// is known to hold many.
	pageRows  = 500
	crowdRows = 5000
	// crowds is how many shards are read in large pages at once.
	crowds = 16
)

// intakeLoop reads the outbox, in small steps that take turns, so that none keeps the others
// waiting:
//
//	poll    the tail, often, for what was just committed
//	sweep   the start, every second, for what was committed late
//	refill  what neither got to, as room allows: a backlog found at the start, a flood
//
// A position is given out when a row is inserted and seen when its transaction commits, so
// "everything after the last one I saw" would lose rows.
func (n *Node) intakeLoop(ctx context.Context) {
	t := &tail{full: map[outbox.Shard]int64{}}
	pace := pollBusy
	var tipAt, sweepAt time.Time
	for ctx.Err() == nil {
		if now := time.Now(); !now.Before(tipAt) {
			n.report(ctx, "outbox tip", n.noteTip(ctx, t))
			tipAt = now.Add(tipEvery)
		}
		found, err := n.poll(ctx, t)
		n.report(ctx, "poll", err)
		count, err := n.refill(ctx)
		n.report(ctx, "refill", err)
		found += count
		if !time.Now().Before(sweepAt) {
			count, sweepAt, err = n.sweep(ctx)
			n.report(ctx, "sweep", err)
			found += count
		}
		if found > 0 || n.starving() {
			pace = pollBusy
		} else {
			pace = min(pace*2, pollIdle)
		}
		timer := time.NewTimer(min(pace, time.Until(sweepAt)))
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-n.pollNow:
			pace = pollBusy
		case <-n.sweepNow:
			sweepAt = time.Time{}
		}
		timer.Stop()
	}
}

func (n *Node) noteTip(ctx context.Context, t *tail) error {
	pos, err := n.cfg.Store.OutboxTip(ctx)
	if err == nil {
		t.note(time.Now(), pos)
	}
	return err
}

// takeIn puts rows into the queue that are not there yet, with their events, and returns how many.
// What there is no room for is noted, to be read again.
func (n *Node) takeIn(ctx context.Context, rows []outbox.OutboxRow) (int, error) {
	n.mu.Lock()
	fresh := rows[:0]
	room := map[outbox.TenantID]int{}
	for _, row := range rows {
		if n.queue.Taken(row.Pos) {
			continue
		}
		left, known := room[row.Tenant]
		if !known {
			left = n.queue.Room(row.Tenant)
		}
		if left > 0 {
			fresh = append(fresh, row)
		} else {
			n.starve(row)
		}
		room[row.Tenant] = left - 1
	}
	n.mu.Unlock()
	if len(fresh) == 0 {
		return 0, nil
	}
	if err := n.cfg.Store.ReadEvents(ctx, fresh, maxFetchedBytes); err != nil {
		return 0, err
	}
	added := 0
	n.mu.Lock()
	for _, row := range fresh {
		if _, mine := n.lease.Epochs[row.Shard]; mine && n.admit(row) {
			added++
		}
	}
	n.mu.Unlock()
	if added > 0 {
		n.wakeRouters()
	}
	return added, nil
}

// admit puts a row with its event into the queue and reports whether it did; one that found no
// room is noted. n.mu is held.
func (n *Node) admit(row outbox.OutboxRow) bool {
	if n.queue.Taken(row.Pos) {
		return false
	}
	if n.queue.Add(row, n.directory.weight(row.Tenant)) {
		return true
	}
	n.starve(row)
	return false
}

// starved says that rows of a shard wait in the database because there was no room for them.
type starved struct {
	after  int64           // they stand behind this position
	tenant outbox.TenantID // whose place was full
}

// starve notes a row that found no room. n.mu is held.
func (n *Node) starve(row outbox.OutboxRow) {
	s, known := n.starved[row.Shard]
	if !known || row.Pos-1 < s.after {
		n.starved[row.Shard] = starved{row.Pos - 1, row.Tenant}
	}
}

func (n *Node) starving() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.starved) > 0
}

// refill reads on where there was no room, for shards where there is again.
func (n *Node) refill(ctx context.Context) (int, error) {
	var shards []outbox.Shard
	var after []int64
	n.mu.Lock()
	for shard, s := range n.starved {
		_, mine := n.lease.Epochs[shard]
		switch {
		case !mine:
			delete(n.starved, shard)
		case len(shards) < crowds && n.queue.Hungry(s.tenant):
			shards, after = append(shards, shard), append(after, s.after)
			delete(n.starved, shard) // what does not fit this time either is noted again
		}
	}
	n.mu.Unlock()
	if len(shards) == 0 {
		return 0, nil
	}
	rows, err := n.cfg.Store.ReadOutbox(ctx, shards, after, crowdRows)
	if err == nil {
		// Before they are taken in, which reuses the slice: there may be more behind a full page.
		n.mu.Lock()
		forEachPage(rows, func(page []outbox.OutboxRow) {
			if len(page) >= crowdRows {
				next := page[len(page)-1]
				next.Pos++
				n.starve(next)
			}
		})
		n.mu.Unlock()
		var added int
		if added, err = n.takeIn(ctx, rows); err == nil {
			return added, nil
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for i, shard := range shards {
		n.starve(outbox.OutboxRow{Shard: shard, Pos: after[i] + 1})
	}
	return 0, err
}

func forEachPage(rows []outbox.OutboxRow, page func([]outbox.OutboxRow)) {
	for len(rows) > 0 {
		end := 1
		for end < len(rows) && rows[end].Shard == rows[0].Shard {
			end++
		}
		page(rows[:end])
		rows = rows[end:]
	}
}
