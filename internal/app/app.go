package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/waybill-dev/waybill/internal/api"
	"github.com/waybill-dev/waybill/internal/attempt"
	"github.com/waybill-dev/waybill/internal/config"
	"github.com/waybill-dev/waybill/internal/dispatch"
	"github.com/waybill-dev/waybill/internal/egress"
	"github.com/waybill-dev/waybill/internal/inbound"
	"github.com/waybill-dev/waybill/internal/metrics"
	"github.com/waybill-dev/waybill/internal/outbox"
	"github.com/waybill-dev/waybill/internal/postgres"
	"github.com/waybill-dev/waybill/internal/priority"
	"github.com/waybill-dev/waybill/internal/publish"
	"github.com/waybill-dev/waybill/internal/session"
	"github.com/waybill-dev/waybill/internal/thin"
	"github.com/waybill-dev/waybill/internal/version"
)

// stopSoon bounds the stopping of what has nothing of its own to wait for.
const stopSoon = 10 * time.Second

// App is the server. Create it with New and run it once.
type App struct {
	cfg         config.Config
	log         *slog.Logger
	life        lifecycle
	clock       outbox.Clock
	store       outbox.Store
	bystander   *bystander
	waker       *postgres.Waker // nil: no other node can be there
	registry    *prometheus.Registry
	counted     *metrics.Metrics
	traces      bool
	guard       *egress.Guard
	sender      *attempt.Sender
	links       *thin.Links
	gate        *priority.Gate
	node        *dispatch.Node
	publish     *publish.Committer
	announce    *announcer
	books       *metrics.Books
	sessions    *session.Manager
	inbound     *inbound.Gateway
	listener    net.Listener
	server      *http.Server
	admin       net.Listener // nil: everything is on the one
	adminServer *http.Server
	started     time.Time
	draining    atomic.Bool
	watching    watching
	watch       watch
	pruned      pruning
}

// New opens the database and the listener. Nothing is accepted or sent before Run. An error has
// undone what was done.
func New(ctx context.Context, cfg config.Config, log *slog.Logger) (*App, error) {
	egress.CatchStrayLog(log)
	a := &App{cfg: cfg, log: log, started: time.Now(), pruned: pruning{asked: make(chan struct{}, 1)}}
	if err := a.build(ctx); err != nil {
		return nil, errors.Join(err, a.life.stop())
	}
	return a, nil
}

// Addr returns the address the server listens on, with the port it really got.
func (a *App) Addr() string { return a.listener.Addr().String() }

// errDispatchEnded is joined to the reason.
var errDispatchEnded = errors.New("dispatch ended")

// Run serves until ctx ends, then stops: no new requests, no new attempts, what is in flight
// finishes or is released within the grace. It returns nil after a clean stop.
func (a *App) Run(ctx context.Context) error {
	a.log.InfoContext(ctx, "serving", "listen", a.Addr(), "database", a.cfg.Database(), "version", version.String())
	failed := make(chan error, 2)
	telling := begin(ctx, endless(a.wakeOthers))
	counting := begin(ctx, endless(a.watching.tally.Run))
	dispatching := begin(ctx, a.node.Run)
	tending := begin(ctx, endless(a.upkeep), endless(a.prove), endless(a.announce.run), endless(a.watchWork), endless(a.inbound.Run))
	go a.serveRequests(failed)
	go a.serveAdmin(failed)

	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
	case <-dispatching.done:
		err = errDispatchEnded
	}
	a.log.InfoContext(ctx, "stopping")
	a.draining.Store(true)
	a.watching.feed.Close()
	tending.cancel()
	dispatching.cancel()
	// While the node finishes, requests that are under way may still publish.
	if err == nil {
		a.linger(ctx)
	}
	err = errors.Join(err, a.stopServing(ctx), dispatching.stop(), tending.stop())
	// The last figures of dispatching are written, and the others told what this node gave up.
	err = errors.Join(err, counting.stop(), telling.stop(), a.life.stop())
	if err == nil {
		a.log.InfoContext(ctx, "stopped")
	}
	return err
}

// wakeOthers carries wake-ups between the nodes.
func (a *App) wakeOthers(ctx context.Context) {
	if a.waker != nil {
		a.waker.Run(ctx, a.node.Woken)
	}
}

// serveRequests answers until the listener is closed.
func (a *App) serveRequests(failed chan<- error) {
	if err := a.server.Serve(a.listener); !errors.Is(err, http.ErrServerClosed) {
		failed <- fmt.Errorf("serve: %w", err)
	}
}

// stopServing lets requests that are under way end.
func (a *App) stopServing(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopSoon)
	defer cancel()
	if err := a.server.Shutdown(ctx); err != nil {
		return errors.Join(err, a.server.Close())
	}
	return a.listenerClosed()
}

// listenerClosed closes a listener that was never served.
func (a *App) listenerClosed() error {
	if err := a.listener.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// ready says what keeps the server from being ready, and takes note that somebody asked.
func (a *App) ready(ctx context.Context) []api.Check {
	checks := a.checks(ctx)
	a.watch.answered(!slices.ContainsFunc(checks, func(c api.Check) bool { return !c.OK }), time.Now())
	return checks
}

func (a *App) checks(ctx context.Context) []api.Check {
	store := api.Check{Name: "store", OK: true}
	if err := a.store.Ping(ctx); err != nil {
		store = api.Check{Name: "store", Detail: "The database does not answer."}
	}
	draining := api.Check{Name: "accepting", OK: !a.draining.Load()}
	if !draining.OK {
		draining.Detail = "The server is stopping."
	}
	return []api.Check{store, a.work(), draining}
}
