package bench

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// healthy is what the customers do who must not be hurt: 100 events a second over 20 tenants.
func healthy(group string, d time.Duration) load {
	return load{Group: group, Tenants: 20, Batch: 1, Workers: 8, Rate: 100, Duration: d}
}

// against measures the healthy customers alone and then while disturb is at work, half of the
// time each.
func (r *rig) against(ctx context.Context, name string, disturb func(ctx context.Context) (loadResult, error)) (map[string]Figures, error) {
	for _, group := range []string{"first", "quiet", "healthy"} {
		if err := r.customers(ctx, group, "hook", 20, "active"); err != nil {
			return nil, err
		}
	}
	// The first events of a process wait for what is then kept: connections, plans, configuration.
	// That would be told as what quiet is like.
	if _, err := r.measure(ctx, healthy("first", r.duration/8)); err != nil {
		return nil, err
	}
	quiet, err := r.measure(ctx, healthy("quiet", r.duration/2))
	if err != nil {
		return nil, err
	}
	disturbing, stop := context.WithCancel(ctx)
	defer stop()
	var beside loadResult
	ended := make(chan error, 1)
	go func() {
		var err error
		beside, err = disturb(disturbing)
		ended <- err
	}()
	f, err := r.measure(ctx, healthy("healthy", r.duration/2))
	if err != nil {
		stop()
	}
	if disturbErr := <-ended; err == nil {
		err = disturbErr
	}
	f.Beside = float64(beside.Published) / beside.Elapsed.Seconds()
	f.QuietP99 = quiet.P99
	f.VsQuiet = f.P99 / quiet.P99
	return map[string]Figures{name: f}, err
}

// noisy: one customer's server hangs for ten seconds a request, and a thousand events wait for it.
func noisy(ctx context.Context, r *rig) (map[string]Figures, error) {
	if err := r.customers(ctx, "hanging", "hang", 1, "active"); err != nil {
		return nil, err
	}
	return r.against(ctx, "noisy", func(ctx context.Context) (loadResult, error) {
		return r.publish(ctx, load{Group: "hanging", Tenants: 1, Batch: 500, Workers: 1, Events: 1000, Backlog: 1 << 40, Duration: r.duration / 2, Leave: true})
	})
}

// noisyPublish: one customer publishes a million events at once, or as many as it can meanwhile.
func noisyPublish(ctx context.Context, r *rig) (map[string]Figures, error) {
	if err := r.customers(ctx, "flood", "hook", 1, "active"); err != nil {
		return nil, err
	}
	return r.against(ctx, "noisy-publish", func(ctx context.Context) (loadResult, error) {
		return r.publish(ctx, load{Group: "flood", Tenants: 1, Batch: 1000, Workers: 1, Events: 1_000_000, Backlog: 1 << 40, Duration: r.duration / 2, Leave: true})
	})
}

// recovery: a server that takes 50 requests a second comes back to a backlog.
func recovery(ctx context.Context, r *rig) (map[string]Figures, error) {
	if err := r.customers(ctx, "back", "limited", 1, "paused"); err != nil {
		return nil, err
	}
	waiting := int64(limitedTo * r.duration.Seconds() / 2)
	if _, err := r.publish(ctx, load{Group: "back", Tenants: 1, Batch: 100, Workers: 1, Events: waiting / 100 * 100, Backlog: 1 << 40, Duration: r.duration, Leave: true}); err != nil {
		return nil, err
	}
	if err := r.routed(ctx, "back-0"); err != nil {
		return nil, err
	}
	if err := r.endpoint(ctx, "back", 0, map[string]any{"state": "active"}); err != nil {
		return nil, err
	}
	begin := time.Now()
	if err := r.recorded(ctx, load{Group: "back", Tenants: 1}); err != nil {
		return nil, err
	}
	took := time.Since(begin)
	s, err := r.sink.stats(ctx, "back")
	if err != nil {
		return nil, err
	}
	if s.Distinct != waiting/100*100 {
		return nil, fmt.Errorf("%d waited, %d arrived", waiting/100*100, s.Distinct)
	}
	return map[string]Figures{"recovery": {
		PerSecond: float64(s.Distinct) / took.Seconds(),
		P50:       s.P50,
		P99:       s.P99,
		RSS:       peakRSS(r.servers[0].cmd.Process.Pid),
		TooMany:   float64(s.TooMany) / float64(s.Requests),
	}}, nil
}

// backlog: the same throughput with and without a dead endpoint's rows pending, a million of them
// where the run is long enough to make so many (12,500 for each second of --duration). As many events
// are delivered beforehand: a database gets slower as it outgrows its memory, whatever it holds.
func backlog(ctx context.Context, r *rig) (map[string]Figures, error) {
	for _, group := range []string{"past", "empty", "beside"} {
		if err := r.customers(ctx, group, "hook", tenants, "active"); err != nil {
			return nil, err
		}
	}
	rows := min(1_000_000, int64(12_500*r.duration.Seconds()))
	past := throughput(r, "past", 100, 4)
	past.Events, past.Duration = rows, 2*r.duration
	if _, err := r.measure(ctx, past); err != nil {
		return nil, err
	}
	l := throughput(r, "empty", 100, 4)
	l.Duration /= 2
	empty, err := r.measure(ctx, l)
	if err != nil {
		return nil, err
	}
	if err := r.customers(ctx, "dead", "hook", 1, "paused"); err != nil {
		return nil, err
	}
	dead, err := r.publish(ctx, load{Group: "dead", Tenants: 1, Batch: 1000, Workers: 2, Events: rows, Backlog: 1 << 40, Duration: r.duration, Leave: true})
	if err != nil {
		return nil, err
	}
	if err := r.routed(ctx, "dead-0"); err != nil { // what is measured is rows that wait, not their making
		return nil, err
	}
	nobody, err := freeAddress() // connections to it are refused
	if err != nil {
		return nil, err
	}
	if err := r.endpoint(ctx, "dead", 0, map[string]any{"url": "http://" + nobody + "/dead", "state": "active"}); err != nil {
		return nil, err
	}
	l.Group = "beside"
	f, err := r.measure(ctx, l)
	if err != nil {
		return nil, err
	}
	f.Without = empty.PerSecond
	f.VsWithout = f.PerSecond / empty.PerSecond
	f.Rows = dead.Published
	return map[string]Figures{"backlog": f}, nil
}

// held: the same throughput, published by SQL, while somebody keeps a snapshot open.
func held(ctx context.Context, r *rig) (map[string]Figures, error) {
	if r.dsn == "" {
		return nil, nil // a SQLite file has one writer and no such snapshots
	}
	for _, group := range []string{"free", "held"} {
		if err := r.customers(ctx, group, "hook", tenants, "active"); err != nil {
			return nil, err
		}
	}
	l := throughput(r, "free", 100, 4)
	l.Duration, l.Database = l.Duration/2, r.dsn
	free, err := r.measure(ctx, l)
	if err != nil {
		return nil, err
	}
	conn, err := pgx.Connect(ctx, r.dsn)
	if err != nil {
		return nil, err
	}
	defer conn.Close(ctx)
	tx, err := conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		return nil, err
	}
	defer tx.Rollback(ctx)
	if _, err := tx.Exec(ctx, "SELECT count(*) FROM waybill.tenant"); err != nil {
		return nil, err
	}
	l.Group = "held"
	f, err := r.measure(ctx, l)
	if err != nil {
		return nil, err
	}
	f.Without = free.PerSecond
	f.VsWithout = f.PerSecond / free.PerSecond
	return map[string]Figures{"held": f}, nil
}

// nodes: throughput with one, two and three servers on one database.
func nodes(ctx context.Context, r *rig) (map[string]Figures, error) {
	if r.dsn == "" {
		return nil, nil // a SQLite file has one server
	}
	figures := map[string]Figures{}
	for n := 1; n <= 3; n++ {
		if n > 1 {
			if err := r.addServer(ctx); err != nil {
				return nil, err
			}
		}
		name := fmt.Sprintf("nodes-%d", n)
		if err := r.customers(ctx, name, "hook", tenants, "active"); err != nil {
			return nil, err
		}
		l := throughput(r, name, 100, 4)
		l.Duration /= 3
		f, err := r.measure(ctx, l)
		if err != nil {
			return nil, err
		}
		figures[name] = f
	}
	return figures, nil
}
