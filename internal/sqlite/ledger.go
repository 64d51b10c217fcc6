package sqlite

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// books gathers what a transaction really changed and writes it as its last step. The lines are
// updated in place: with one writer nobody waits for one, and there is nothing to fold.
type books struct {
	lines  map[line]*counts
	events map[eventLine]*eventCounts
}

type line struct {
	shard outbox.Shard
	hour  int64
}

type counts struct {
	planned, delivered, dead, cancelled, replayed, revived, purged int64
}

type eventLine struct {
	shard outbox.Shard
	day   int64
}

type eventCounts struct {
	routed, matched, unmatched int64
}

// on returns the counters of a shard at a time.
func (b *books) on(shard outbox.Shard, at time.Time) *counts {
	key := line{shard, hourOf(at)}
	if b.lines[key] == nil {
		if b.lines == nil {
			b.lines = map[line]*counts{}
		}
		b.lines[key] = &counts{}
	}
	return b.lines[key]
}

// ended counts a delivery that ended with the reason.
func (c *counts) ended(reason outbox.DeadReason) {
	if reason.State() == outbox.StateCancelled {
		c.cancelled++
	} else {
		c.dead++
	}
}

// routed counts an event whose outbox row is gone for good.
func (b *books) routed(shard outbox.Shard, event outbox.EventID, matched bool) {
	key := eventLine{shard, dayOf(event.Time())}
	if b.events[key] == nil {
		if b.events == nil {
			b.events = map[eventLine]*eventCounts{}
		}
		b.events[key] = &eventCounts{}
	}
	c := b.events[key]
	c.routed++
	if matched {
		c.matched++
	} else {
		c.unmatched++
	}
}

// write adds everything to the ledger.
func (b *books) write(w *session) error {
	for _, key := range slices.SortedFunc(maps.Keys(b.lines), func(a, b line) int {
		return cmp.Or(cmp.Compare(a.shard, b.shard), cmp.Compare(a.hour, b.hour))
	}) {
		c := b.lines[key]
		if *c == (counts{}) {
			continue
		}
		if _, err := w.exec(`
			INSERT INTO waybill_ledger (shard, at, planned, delivered, dead, cancelled, replayed, revived, purged)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
			ON CONFLICT (shard, at) DO UPDATE SET
				planned = planned + excluded.planned,
				delivered = delivered + excluded.delivered,
				dead = dead + excluded.dead,
				cancelled = cancelled + excluded.cancelled,
				replayed = replayed + excluded.replayed,
				revived = revived + excluded.revived,
				purged = purged + excluded.purged`,
			int64(key.shard), key.hour, c.planned, c.delivered, c.dead, c.cancelled, c.replayed, c.revived, c.purged); err != nil {
			return err
		}
	}
	for _, key := range slices.SortedFunc(maps.Keys(b.events), func(a, b eventLine) int {
		return cmp.Or(cmp.Compare(a.shard, b.shard), cmp.Compare(a.day, b.day))
	}) {
		c := b.events[key]
		if _, err := w.exec(`
			INSERT INTO waybill_ledger_event (shard, day, routed, matched, unmatched)
			VALUES (?, ?, ?, ?, ?)
			ON CONFLICT (shard, day) DO UPDATE SET
				routed = routed + excluded.routed,
				matched = matched + excluded.matched,
				unmatched = unmatched + excluded.unmatched`,
			int64(key.shard), key.day, c.routed, c.matched, c.unmatched); err != nil {
			return err
		}
	}
	return nil
}
