package app

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"

	"github.com/waybill-dev/waybill/internal/api"
	"github.com/waybill-dev/waybill/internal/config"
	"github.com/waybill-dev/waybill/internal/outbox"
)

// bystander is the store of a process that may have to leave the work alone: because the database
// belongs to another environment (a copy that was restored somewhere must not send again what the
// original sends), or because dispatching is not its role. Its node beats and keeps the database's
// clock, and holds no shards. To the others it looks like one that is about to go, so they divide
// the work among themselves.
type bystander struct {
	outbox.Store
	environment string
	dispatches  bool
	log         *slog.Logger
	foreign     atomic.Bool // as the last look found it
}

// standBy claims the environment for this server, and wraps the store.
func (a *App) standBy(ctx context.Context, store outbox.Store) (*bystander, error) {
	of, err := store.ClaimEnvironment(ctx, a.cfg.Environment)
	if err != nil {
		return nil, fmt.Errorf("environment: %w", err)
	}
	b := &bystander{Store: store, environment: a.cfg.Environment, dispatches: a.cfg.Roles.Has(config.RoleDispatch), log: a.log}
	b.look(ctx, outbox.DispatchState{Environment: of})
	return b, nil
}

// look reads the stop switch as this process has to, and says when that changes who may work.
func (b *bystander) look(ctx context.Context, state outbox.DispatchState) outbox.DispatchState {
	state = state.In(b.environment)
	if was := b.foreign.Swap(state.Foreign); was != state.Foreign {
		if state.Foreign {
			b.log.WarnContext(ctx, "nothing is sent", "reason", state.Reason)
		} else {
			b.log.InfoContext(ctx, "the database was adopted; sending begins", "environment", b.environment)
		}
	}
	return state
}

// idle reports whether the process leaves routing and sending to others.
func (b *bystander) idle() bool { return !b.dispatches || b.foreign.Load() }

// Beat implements outbox.Ownership.
func (b *bystander) Beat(ctx context.Context, node outbox.NodeID, draining bool) (outbox.Beat, error) {
	beat, err := b.Store.Beat(ctx, node, draining || b.idle())
	if err == nil {
		beat.Dispatch = b.look(ctx, beat.Dispatch)
	}
	return beat, err
}

// Take implements outbox.Ownership.
func (b *bystander) Take(ctx context.Context, node outbox.NodeID, shards []outbox.ShardState) (outbox.Lease, map[outbox.Shard][]outbox.HeldSlot, error) {
	if b.idle() {
		return outbox.Lease{Node: node}, nil, nil
	}
	return b.Store.Take(ctx, node, shards)
}

// Dispatch implements outbox.Switch.
func (b *bystander) Dispatch(ctx context.Context) (outbox.DispatchState, error) {
	state, err := b.Store.Dispatch(ctx)
	if err == nil {
		state = b.look(ctx, state)
	}
	return state, err
}

// work is how the dispatcher stands, for /readyz: one that is not to work has nothing to be ready
// for.
func (a *App) work() api.Check {
	switch {
	case a.bystander.foreign.Load():
		return api.Check{Name: "dispatch", OK: true, Detail: "Paused: the database belongs to another environment; see waybill adopt."}
	case !a.bystander.dispatches:
		return api.Check{Name: "dispatch", OK: true, Detail: "Other processes dispatch."}
	}
	return a.dispatchCheck()
}
