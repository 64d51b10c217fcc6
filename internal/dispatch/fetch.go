package dispatch

import (
	"context"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// lanesPerFetch is how many endpoints' next rows one statement reads.
const lanesPerFetch = 64

// fetchLoop keeps a few due deliveries of every endpoint that may run in memory.
func (n *Node) fetchLoop(ctx context.Context) {
	for {
		n.mu.Lock()
		now := n.dueNow()
		reads := n.sched.wants(now, lanesPerFetch)
		next := n.sched.nextWake()
		gate := n.sched.openGates()
		n.mu.Unlock()
		n.start()
		if len(reads) > 0 {
			n.report(ctx, "fetch", n.fetch(ctx, reads, now))
			continue
		}
		wait := time.Minute
		if !next.IsZero() {
			wait = max(next.Sub(now), time.Millisecond)
		}
		if !gate.IsZero() {
			wait = min(wait, max(time.Until(gate), time.Millisecond))
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		case <-n.fetchNow:
		}
		timer.Stop()
	}
}

func (n *Node) fetch(ctx context.Context, reads []read, now time.Time) error {
	requests := make([]outbox.FetchRequest, len(reads))
	for i, r := range reads {
		requests[i] = r.request
	}
	found, err := n.cfg.Store.FetchDue(ctx, requests, now, maxFetchedBytes)
	n.mu.Lock()
	for i, r := range reads {
		if err != nil {
			n.sched.failed(r, now.Add(time.Second))
		} else {
			n.sched.fetched(r, found[i], now)
		}
	}
	n.mu.Unlock()
	if err == nil {
		n.start()
	}
	return err
}

// expireLoop ends, at intervals and in bounded steps, what nobody could try for too long.
func (n *Node) expireLoop(ctx context.Context) {
	const batch, perSecond = 1000, 5
	for sleep(ctx, time.Minute) {
		for {
			now := n.cfg.Clock.Now()
			n.mu.Lock()
			lease := n.lease
			n.mu.Unlock()
			if len(lease.Epochs) == 0 {
				break
			}
			ended, err := n.cfg.Store.Expire(ctx, lease, now.Add(-n.cfg.MaxPendingAge), batch, now)
			n.report(ctx, "expire", err)
			n.mu.Lock()
			n.sched.drop(ended.Deliveries)
			n.free(ended.Freed)
			n.mu.Unlock()
			n.expired(ended.Endpoints, now)
			n.cfg.Observe.Ended(len(ended.Deliveries), 0, outbox.DeadExpired, now)
			if err != nil || len(ended.Deliveries) < batch || !sleep(ctx, time.Second/perSecond) {
				break
			}
		}
	}
}
