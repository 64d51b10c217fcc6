package dispatch

import (
	"context"
	"errors"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// cancelBatch is how many deliveries a command ends in one transaction.
const cancelBatch = 1000

// runCommands executes what API nodes asked for, one transaction each. The configuration is read
// first: once an endpoint's pending deliveries are gone, nothing may be planned for it by what was
// known before.
func (n *Node) runCommands(ctx context.Context, rows []outbox.OutboxRow) error {
	var shards []outbox.Shard
	for _, row := range rows {
		shards = append(shards, row.Shard)
	}
	if err := n.load(ctx, shards); err != nil {
		n.putBack(rows)
		return err
	}
	var errs []error
	for _, row := range rows {
		done, err := n.runCommand(ctx, row)
		if err == nil && !done {
			n.putBack([]outbox.OutboxRow{row})
			n.wakeRouters()
			continue
		}
		n.settleRows([]outbox.OutboxRow{row}, err)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// runCommand executes one command and reports whether all of it is done.
func (n *Node) runCommand(ctx context.Context, row outbox.OutboxRow) (done bool, err error) {
	n.mu.Lock()
	lease := n.lease
	n.mu.Unlock()
	now := n.cfg.Clock.Now()
	switch row.Command.Name {
	case outbox.CommandProbe:
		d, err := n.cfg.Store.HastenOldest(ctx, lease, row, now)
		if err != nil || d == nil {
			return true, err
		}
		n.mu.Lock()
		n.sched.lower(d)
		n.sched.probeNow(d.Endpoint, now)
		n.mu.Unlock()
		wake(n.fetchNow)
		n.start()
		return true, nil
	case outbox.CommandForget:
		n.erased.add(row.Tenant, row.Command.Event)
		return true, n.cfg.Store.EndCommand(ctx, lease, row)
	case outbox.CommandCancelEndpoint, outbox.CommandCancelTenant:
		ended, done, err := n.cfg.Store.Cancel(ctx, lease, row, cancelBatch, now)
		n.mu.Lock()
		n.stall.routed++ // it takes as many transactions as there are thousands
		n.sched.drop(ended.Deliveries)
		n.free(ended.Freed)
		n.mu.Unlock()
		n.cfg.Observe.Ended(len(ended.Deliveries), row.Tenant, outbox.DeadCancelled, now)
		return done, err
	case outbox.CommandRunJob, outbox.CommandCancelJob:
		return true, n.takeJob(ctx, lease, row)
	}
	// Of a newer version, which runs beside this one during a deploy: the row stays for it.
	n.cfg.Log.WarnContext(ctx, "a command is not known to this version", "command", row.Command.Name, "position", row.Pos)
	return true, nil
}
