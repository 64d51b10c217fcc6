package app

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/waybill-dev/waybill/internal/api"
	"github.com/waybill-dev/waybill/internal/dispatch"
	"github.com/waybill-dev/waybill/internal/metrics"
	"github.com/waybill-dev/waybill/internal/outbox"
	"github.com/waybill-dev/waybill/internal/traffic"
	"github.com/waybill-dev/waybill/internal/version"
)

// watching is what people see of the node's work. None of it is on the way of an event.
type watching struct {
	tally *traffic.Tally
	feed  *traffic.Feed
	heads headWatch

	metrics *metrics.Metrics
}

func newWatching(a *App, m *metrics.Metrics) watching {
	return watching{tally: traffic.NewTally(a.store, a.log), feed: traffic.NewFeed(), metrics: m}
}

// observer is what the node tells.
func (w *watching) observer() dispatch.Observer {
	return dispatch.Observers{w.tally, w.feed, w.metrics}
}

// reportEvery is the pace of what a node says of itself.
const reportEvery = 5 * time.Second

// watch counts, shows and reports until ctx ends. The tally goes on for as long as the node does,
// which is until dispatching ends.
func (a *App) watchWork(ctx context.Context) {
	var all sync.WaitGroup
	all.Go(func() { a.watching.feed.Follow(ctx, a.store, a.node.Others, a.clock.Now, a.log) })
	all.Go(func() { a.reportNode(ctx) })
	all.Go(func() { a.lookAtHeads(ctx) })
	all.Wait()
}

// reportNode writes what this node says of itself.
func (a *App) reportNode(ctx context.Context) {
	name, err := os.Hostname()
	if err != nil {
		name = a.node.ID().String()
	}
	tick := time.NewTicker(reportEvery)
	defer tick.Stop()
	var before int64
	at := time.Now()
	for failing := false; ; {
		begun, oldest := a.node.Begun()
		now := time.Now()
		report := outbox.NodeReport{
			Node:           a.node.ID(),
			At:             a.clock.Now(),
			Name:           name,
			Version:        version.String(),
			InFlight:       a.node.Status().InFlight,
			MaxInFlight:    a.cfg.MaxInFlight,
			OldestRunnable: oldest,
		}
		if since := now.Sub(at).Seconds(); since > 0.1 {
			report.PerSecond = float64(begun-before) / since
		}
		before, at = begun, now
		err := a.store.ReportNode(ctx, report)
		if err != nil && !failing && ctx.Err() == nil {
			a.log.WarnContext(ctx, "cannot report this node", "error", err)
		}
		failing = err != nil
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// headWatch compares what is accepted with what is taken up. A node judges itself by what it has
// in memory; a node that no longer reads the outbox has nothing there, and finds itself idle.
type headWatch struct {
	mu    sync.Mutex
	heads map[outbox.Shard]head
	stuck time.Duration // for how long the oldest of them has stood still, and nothing was routed
}

type head struct {
	pos    int64
	routed int64 // transactions of the node's when it was first seen
	since  time.Time
}

const (
	headsEvery = 5 * time.Second
	// headPatience is for how long a row may be at the head of its shard while nothing is routed.
	headPatience = 20 * time.Second
)

// look compares with the look before. now is monotonic.
func (w *headWatch) look(heads map[outbox.Shard]int64, routed int64, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	next := make(map[outbox.Shard]head, len(heads))
	w.stuck = 0
	for shard, pos := range heads {
		h := w.heads[shard]
		if h.pos != pos || h.routed != routed {
			h = head{pos, routed, now}
		}
		next[shard] = h
		w.stuck = max(w.stuck, now.Sub(h.since))
	}
	w.heads = next
}

// problem says what stands still, "" if nothing does.
func (w *headWatch) problem() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stuck <= headPatience {
		return ""
	}
	return fmt.Sprintf("stalled: what was accepted is not taken up, for %d s", int(w.stuck.Seconds()))
}

// lookAtHeads looks, for as long as ctx lasts. What the database does not answer is others' to say.
func (a *App) lookAtHeads(ctx context.Context) {
	tick := time.NewTicker(headsEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		progress := a.node.Progress()
		heads, err := a.store.OutboxHeads(ctx, progress.Shards)
		if err == nil {
			a.watching.heads.look(heads, progress.Routed, time.Now())
		}
	}
}

// dispatchCheck asks the node how it stands. A node that does not even answer that stands still.
func (a *App) dispatchCheck() api.Check {
	answered := make(chan string, 1)
	go func() { answered <- a.node.Status().Problem(time.Since(a.started)) }()
	problem := ""
	select {
	case problem = <-answered:
	case <-time.After(3 * time.Second):
		problem = "stalled: the dispatcher does not answer"
	}
	if problem == "" {
		problem = a.watching.heads.problem()
	}
	return api.Check{Name: "dispatch", OK: problem == "", Detail: problem}
}
