package app

import (
	"context"
	"fmt"
	"os"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/waybill-dev/waybill/internal/access"
	"github.com/waybill-dev/waybill/internal/api"
	"github.com/waybill-dev/waybill/internal/attempt"
	"github.com/waybill-dev/waybill/internal/catalogue"
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

// build makes each part once. A later one stands on the earlier ones.
func (a *App) build(ctx context.Context) error {
	for _, part := range []func(context.Context) error{
		a.buildStore, a.writeSettings, a.buildSender, a.buildNode, a.buildIntake, a.buildServers,
	} {
		if err := part(ctx); err != nil {
			return err
		}
	}
	return nil
}

// buildStore opens the database, counted, traced if that is on, and guarded.
func (a *App) buildStore(ctx context.Context) error {
	store, waker, err := openStore(ctx, a.cfg, a.log, &a.life)
	if err != nil {
		return err
	}
	a.waker = waker
	a.registry = prometheus.NewRegistry()
	a.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	a.counted = metrics.New(a.registry)
	store = metrics.Measure(store, a.counted)
	if a.traces = tracing.Configured(os.Getenv); a.traces {
		tracer, err := tracing.New(ctx, version.String())
		if err != nil {
			return err
		}
		a.life.onStop("traces", stopSoon, tracer.Close)
		store = tracing.Trace(store, tracer)
	}
	if a.bystander, err = a.standBy(ctx, store); err != nil {
		return err
	}
	a.store = a.bystander
	return a.admitOperator(ctx)
}

// writeSettings tells the database what its own functions go by.
func (a *App) writeSettings(ctx context.Context) error {
	err := a.store.WriteSettings(ctx, outbox.Settings{
		MaxPayload:           a.cfg.MaxPayload,
		Retention:            a.cfg.Retention,
		IdempotencyRetention: a.cfg.IdempotencyRetention,
		CreateUnknownTenants: a.cfg.CreateUnknownTenants,
	})
	if err != nil {
		return fmt.Errorf("write settings: %w", err)
	}
	return nil
}

func (a *App) policy() egress.Policy {
	return egress.Policy{
		Allow:         a.cfg.EgressAllow,
		AllowInternal: a.cfg.EgressAllowInternal,
		Ports:         a.cfg.EgressPorts,
		Schemes:       a.cfg.EndpointSchemes,
		Proxy:         a.cfg.EgressProxy,
	}
}

// buildSender makes what reaches out.
func (a *App) buildSender(context.Context) (err error) {
	if a.guard, err = egress.New(egress.Config{Policy: a.policy()}); err != nil {
		return err
	}
	a.life.onStop("connections", stopSoon, func(context.Context) error { a.guard.Close(); return nil })
	a.sender = attempt.New(attempt.Config{
		Guard:        a.guard,
		Clock:        &a.clock,
		UserAgent:    a.cfg.UserAgent,
		HeaderPrefix: a.cfg.HeaderPrefix,
		Traces:       a.traces,
		Log:          a.log,
	})
	keys, err := a.derived("thin deliveries")
	if err != nil {
		return err
	}
	a.links = thin.New(a.publicURL, keys)
	return nil
}

// buildNode makes what does the work of the shards that are this process's.
func (a *App) buildNode(context.Context) error {
	isolation, err := a.isolation(quarantine.Settings{Policy: a.policy(), UserAgent: a.cfg.UserAgent, HeaderPrefix: a.cfg.HeaderPrefix})
	if err != nil {
		return err
	}
	a.announce = &announcer{store: a.store, clock: &a.clock, log: a.log, notices: make(chan dispatch.Notice, maxNotices)}
	a.watching = newWatching(a, a.counted)
	a.gate = priority.New()
	a.node = dispatch.New(dispatch.Config{
		Store:         a.store,
		Sender:        a.sender,
		Gate:          a.gate,
		Clock:         &a.clock,
		Log:           a.log,
		Left:          a.guard.CloseIdle,
		Thin:          a.links,
		Notify:        a.announce.notify,
		Isolation:     isolation,
		Observe:       a.watching.observer(),
		Exclusive:     a.waker == nil,
		Wake:          others(a.waker),
		MaxInFlight:   a.cfg.MaxInFlight,
		Retry:         a.cfg.Retry,
		MaxPendingAge: a.cfg.MaxPendingAge,
		Grace:         a.cfg.ShutdownGrace,
	})
	a.books = metrics.Watch(a.registry, metrics.Sources{Store: a.store, Clock: &a.clock, Node: a.node.Status, Version: version.String()})
	return nil
}

// others is how the node wakes the others, nil where there can be none.
func others(waker *postgres.Waker) dispatch.Wake {
	if waker == nil {
		return nil
	}
	return waker
}

// buildIntake makes what accepts events.
func (a *App) buildIntake(context.Context) error {
	a.publish = publish.New(publish.Config{Store: a.store, Gate: a.gate, Handoff: a.node, Log: a.log})
	a.life.onStop("publishing", stopSoon, a.publish.Close)
	a.announce.publish = a.publish
	a.inbound = inbound.New(inbound.Config{
		Store:     a.store,
		Publisher: a.publish,
		Clock:     &a.clock,
		Log:       a.log,
		Client:    a.guard.Client(),
		Registry:  a.registry,
		Catalogue: catalogue.New(a.store),
	})
	return nil
}

// buildServers makes what programs and people talk to, and listens.
func (a *App) buildServers(context.Context) error {
	a.sessions = session.New(session.Config{
		Store: a.store, Clock: &a.clock, Portal: a.publicURL, Dashboard: a.dashboardURL, FrameAncestors: a.cfg.FrameAncestors,
	})
	fingerprintKeys, err := a.derived("fingerprints of secrets")
	if err != nil {
		return err
	}
	shown := previewer{a.sender, a.links, a.cfg.Retry}
	programs, err := api.New(api.Config{
		Links:        a.sessions,
		Store:        a.store,
		Publisher:    a.publish,
		Guard:        registration{a.guard, a.cfg.HeaderPrefix},
		Inbound:      a.inbound,
		Clock:        &a.clock,
		Log:          a.log,
		BootstrapKey: a.cfg.APIKey.Reveal(),
		Keys:         access.NewKeys(a.store, &a.clock, a.log),

		FingerprintKey:        fingerprintKeys[0],
		MaxEndpointsPerTenant: a.cfg.MaxEndpointsPerTenant,
		RateLimit:             float64(a.cfg.RateLimit),
		TrustedProxies:        a.cfg.TrustedProxies,
		CORSOrigins:           a.cfg.CORSOrigins,

		Thin:                 a.links,
		Previewer:            shown,
		Trier:                shown,
		Retry:                a.cfg.Retry,
		MaxPayload:           a.cfg.MaxPayload,
		CreateUnknownTenants: a.cfg.CreateUnknownTenants,
		Ready:                a.ready,
		Wake:                 a.node.Wrote,
		Live:                 a.node.Live,
		Registry:             a.registry,
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

// registration judges URLs and headers when an endpoint is made or changed.
type registration struct {
	*egress.Guard
	prefix string
}

func (r registration) CheckHeaders(headers map[string]string) (map[string]string, error) {
	return attempt.CheckHeaders(headers, r.prefix)
}
