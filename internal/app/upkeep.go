package app

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// upkeepEvery is the pace of partitions, pruning and folding.
const upkeepEvery = time.Minute

// upkeep keeps the database small for as long as ctx lasts. What fails is tried again at the next
// turn; a database that is away has been reported by others already.
func (a *App) upkeep(ctx context.Context) {
	tick := time.NewTicker(upkeepEvery)
	defer tick.Stop()
	for failing := false; ; {
		err := a.maintain(ctx)
		if ctx.Err() != nil {
			return
		}
		if err != nil && !failing {
			a.log.WarnContext(ctx, "upkeep fails; retrying every minute", "error", err)
		}
		failing = err != nil
		select {
		case <-ctx.Done():
			return
		case <-a.pruned.asked:
		case <-tick.C:
		}
	}
}

func (a *App) maintain(ctx context.Context) error {
	now := a.clock.Now()
	days, err := a.keepDays(ctx, now)
	if err != nil {
		return err
	}
	return a.store.Maintain(ctx, outbox.Maintenance{
		Now:                  now,
		Retention:            a.cfg.Retention,
		IdempotencyRetention: a.cfg.IdempotencyRetention,
		Days:                 days,
		Shards:               a.node.Shards(),
	})
}

// keepDays says how long events and attempts are kept: for the retention, or shorter where
// somebody asked for it or they would take up too much.
func (a *App) keepDays(ctx context.Context, now time.Time) (time.Duration, error) {
	keep := a.cfg.Retention
	if before := a.pruned.before.Load(); before != nil {
		keep = min(keep, now.Sub(*before))
	}
	if a.cfg.RetentionBytes > 0 {
		vitals, err := a.store.Vitals(ctx, now)
		if err != nil {
			return 0, err
		}
		if vitals.Bytes > a.cfg.RetentionBytes {
			keep = min(keep, withoutOldest(vitals.OldestDay, now))
			if keep < a.leastDays() {
				a.log.WarnContext(ctx, "the database is larger than WAYBILL_RETENTION_BYTES, and what is left may still be needed by pending deliveries",
					"bytes", vitals.Bytes, "limit", a.cfg.RetentionBytes)
			}
		}
	}
	return max(keep, a.leastDays()), nil
}

const day = 24 * time.Hour

// withoutOldest is the age at which the oldest day goes and nothing else. Day by day, a pass at a
// time, the database comes down to its limit.
func withoutOldest(oldest, now time.Time) time.Duration {
	if oldest.IsZero() {
		return now.Sub(now.Truncate(day))
	}
	return now.Sub(oldest.Add(day))
}

// leastDays is how long events are kept whatever they take up: for as long as a delivery may be
// pending, and the days on both ends of that.
func (a *App) leastDays() time.Duration { return a.cfg.MaxPendingAge + 2*day }

// pruning is what operators ask for: everything before a time is to go at the next upkeep, and
// stays gone.
type pruning struct {
	before atomic.Pointer[time.Time]
	asked  chan struct{}
}

// Prune has events and attempts from before the given time removed, as retention would remove
// them, and returns the time that applies: what pending deliveries may need is kept.
func (a *App) Prune(before time.Time) time.Time {
	if latest := a.clock.Now().Add(-a.leastDays()); before.After(latest) {
		before = latest
	}
	before = before.UTC().Truncate(day)
	if was := a.pruned.before.Load(); was == nil || was.Before(before) {
		a.pruned.before.Store(&before)
	}
	select {
	case a.pruned.asked <- struct{}{}:
	default: // it is about to look anyway
	}
	return before
}
