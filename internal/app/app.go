package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/waybill-dev/waybill/internal/access"
	"github.com/waybill-dev/waybill/internal/api"
	"github.com/waybill-dev/waybill/internal/attempt"
	"github.com/waybill-dev/waybill/internal/catalogue"
	"github.com/waybill-dev/waybill/internal/config"
	"github.com/waybill-dev/waybill/internal/dispatch"
	"github.com/waybill-dev/waybill/internal/egress"
	"github.com/waybill-dev/waybill/internal/inbound"
	"github.com/waybill-dev/waybill/internal/metrics"
	"github.com/waybill-dev/waybill/internal/outbox"
	"github.com/waybill-dev/waybill/internal/postgres"
	"github.com/waybill-dev/waybill/internal/priority"
	"github.com/waybill-dev/waybill/internal/publish"
	"github.com/waybill-dev/waybill/internal/quarantine"
	"github.com/waybill-dev/waybill/internal/session"
	"github.com/waybill-dev/waybill/internal/thin"
	"github.com/waybill-dev/waybill/internal/tracing"
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

func (a *App) build(ctx context.Context) error {
	store, waker, err := openStore(ctx, a.cfg, a.log, &a.life)
	if err != nil {
		return err
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	counted := metrics.New(registry)
	store = metrics.Measure(store, counted)
	traces := tracing.Configured(os.Getenv)
	if traces {
		tracer, err := tracing.New(ctx, version.String())
		if err != nil {
			return err
		}
		a.life.onStop("traces", stopSoon, tracer.Close)
		store = tracing.Trace(store, tracer)
	}
	if a.bystander, err = a.guard(ctx, store); err != nil {
		return err
	}
	store = a.bystander
	a.store, a.waker = store, waker
	if err := a.admitOperator(ctx); err != nil {
		return err
	}
	if err := store.WriteSettings(ctx, outbox.Settings{
		MaxPayload:           a.cfg.MaxPayload,
		Retention:            a.cfg.Retention,
		IdempotencyRetention: a.cfg.IdempotencyRetention,
		CreateUnknownTenants: a.cfg.CreateUnknownTenants,
	}); err != nil {
		return fmt.Errorf("write settings: %w", err)
	}
	policy := egress.Policy{
		Allow:         a.cfg.EgressAllow,
		AllowInternal: a.cfg.EgressAllowInternal,
		Ports:         a.cfg.EgressPorts,
		Schemes:       a.cfg.EndpointSchemes,
		Proxy:         a.cfg.EgressProxy,
	}
	guard, err := egress.New(egress.Config{Policy: policy})
	if err != nil {
		return err
	}
	a.life.onStop("connections", stopSoon, func(context.Context) error { guard.Close(); return nil })

	isolation, err := a.isolation(quarantine.Settings{Policy: policy, UserAgent: a.cfg.UserAgent, HeaderPrefix: a.cfg.HeaderPrefix})
	if err != nil {
		return err
	}
	a.announce = &announcer{store: store, clock: &a.clock, log: a.log, notices: make(chan dispatch.Notice, maxNotices)}
	sender := attempt.New(attempt.Config{
		Guard:        guard,
		Clock:        &a.clock,
		UserAgent:    a.cfg.UserAgent,
		HeaderPrefix: a.cfg.HeaderPrefix,
		Traces:       traces,
		Log:          a.log,
	})
	linkKeys, err := a.derived("thin deliveries")
	if err != nil {
		return err
	}
	links := thin.New(a.publicURL, linkKeys)
	fingerprintKeys, err := a.derived("fingerprints of secrets")
	if err != nil {
		return err
	}
	a.watching = newWatching(a, counted)
	gate := priority.New()
	a.node = dispatch.New(dispatch.Config{
		Store:         store,
		Sender:        sender,
		Gate:          gate,
		Clock:         &a.clock,
		Log:           a.log,
		Left:          guard.CloseIdle,
		Thin:          links,
		Notify:        a.announce.notify,
		Isolation:     isolation,
		Observe:       a.watching.observer(),
		Exclusive:     waker == nil,
		Wake:          others(waker),
		MaxInFlight:   a.cfg.MaxInFlight,
		Retry:         a.cfg.Retry,
		MaxPendingAge: a.cfg.MaxPendingAge,
		Grace:         a.cfg.ShutdownGrace,
	})
	a.books = metrics.Watch(registry, metrics.Sources{Store: store, Clock: &a.clock, Node: a.node.Status, Version: version.String()})
	a.publish = publish.New(publish.Config{Store: store, Gate: gate, Handoff: a.node, Log: a.log})
	a.life.onStop("publishing", stopSoon, a.publish.Close)
	a.announce.publish = a.publish

	a.sessions = session.New(session.Config{
		Store: store, Clock: &a.clock, Portal: a.publicURL, Dashboard: a.dashboardURL, FrameAncestors: a.cfg.FrameAncestors,
	})
	a.inbound = inbound.New(inbound.Config{
		Store:     store,
		Publisher: a.publish,
		Clock:     &a.clock,
		Log:       a.log,
		Client:    guard.Client(),
		Registry:  registry,
		Catalogue: catalogue.New(store),
	})
	programs, err := api.New(api.Config{
		Links:        a.sessions,
		Store:        store,
		Publisher:    a.publish,
		Guard:        registration{guard, a.cfg.HeaderPrefix},
		Inbound:      a.inbound,
		Clock:        &a.clock,
		Log:          a.log,
		BootstrapKey: a.cfg.APIKey.Reveal(),
		Keys:         access.NewKeys(store, &a.clock, a.log),

		FingerprintKey:        fingerprintKeys[0],
		MaxEndpointsPerTenant: a.cfg.MaxEndpointsPerTenant,
		RateLimit:             float64(a.cfg.RateLimit),
		TrustedProxies:        a.cfg.TrustedProxies,
		CORSOrigins:           a.cfg.CORSOrigins,

		Thin:                 links,
		Previewer:            previewer{sender, links, a.cfg.Retry},
		Trier:                previewer{sender, links, a.cfg.Retry},
		Retry:                a.cfg.Retry,
		MaxPayload:           a.cfg.MaxPayload,
		CreateUnknownTenants: a.cfg.CreateUnknownTenants,
		Ready:                a.ready,
		Wake:                 a.node.Wrote,
		Live:                 a.node.Live,
		Registry:             registry,
		Traffic:              a.watching.tally,
		Feed:                 a.watching.feed,
		Development:          a.cfg.Development,
		Prune:                a.Prune,
		Version:              version.String(),
	})
	if err != nil {
		return err
	}
	handler, err := a.pages(programs)
	if err != nil {
		return err
	}
	return a.serve(programs, handler)
}

// others is how the node wakes the others, nil where there can be none.
func others(waker *postgres.Waker) dispatch.Wake {
	if waker == nil {
		return nil
	}
	return waker
}

// registration judges URLs and headers when an endpoint is made or changed.
type registration struct {
	*egress.Guard
	prefix string
}

func (r registration) CheckHeaders(headers map[string]string) (map[string]string, error) {
	return attempt.CheckHeaders(headers, r.prefix)
}

// Addr returns the address the server listens on, with the port it really got.
func (a *App) Addr() string { return a.listener.Addr().String() }

// Run serves until ctx ends, then stops: no new requests, no new attempts, what is in flight
// finishes or is released within the grace. It returns nil after a clean stop.
func (a *App) Run(ctx context.Context) error {
	a.log.InfoContext(ctx, "serving", "listen", a.Addr(), "database", a.cfg.Database(), "version", version.String())
	working, stopWorking := context.WithCancel(ctx)
	defer stopWorking()

	// Ended apart: requests that are under way may still publish while the node finishes.
	dispatching, stopDispatching := context.WithCancel(context.WithoutCancel(ctx))
	failed := make(chan error, 3)
	node := make(chan error, 1)
	go func() {
		err := a.node.Run(dispatching)
		node <- err
		if dispatching.Err() == nil {
			failed <- fmt.Errorf("dispatch ended: %w", err)
		}
	}()
	go func() {
		if err := a.server.Serve(a.listener); !errors.Is(err, http.ErrServerClosed) {
			failed <- fmt.Errorf("serve: %w", err)
		}
	}()
	go a.serveAdmin(failed)
	// Wake-ups go on to the end: a node that stops tells the others what it has given up.
	telling, stopTelling := context.WithCancel(context.WithoutCancel(ctx))
	defer stopTelling()
	var wakeups sync.WaitGroup
	if a.waker != nil {
		wakeups.Go(func() { a.waker.Run(telling, a.node.Woken) })
	}
	var background sync.WaitGroup
	background.Go(func() { a.upkeep(working) })
	background.Go(func() { a.prove(working) })
	background.Go(func() { a.announce.run(working) })
	background.Go(func() { a.watchWork(working) })
	// To the end of dispatching, whose last figures it writes.
	counting, stopCounting := context.WithCancel(context.WithoutCancel(ctx))
	defer stopCounting()
	var counted sync.WaitGroup
	counted.Go(func() { a.watching.tally.Run(counting) })
	background.Go(func() { a.inbound.Run(working) })

	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	a.log.InfoContext(ctx, "stopping")
	a.draining.Store(true)
	a.watching.feed.Close()
	stopWorking()
	stopDispatching()
	requests := make(chan error, 1)
	go func() {
		if err == nil {
			a.linger(ctx)
		}
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopSoon)
		defer cancel()
		requests <- a.stopServing(ending)
	}()
	err = errors.Join(err, <-requests, <-node)
	background.Wait()
	stopCounting()
	counted.Wait()
	stopTelling()
	wakeups.Wait()
	err = errors.Join(err, a.life.stop())
	if err == nil {
		a.log.InfoContext(ctx, "stopped")
	}
	return err
}

// stopServing lets requests that are under way end.
func (a *App) stopServing(ctx context.Context) error {
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
