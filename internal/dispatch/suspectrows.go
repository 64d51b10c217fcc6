package dispatch

import (
	"context"
	"errors"

	"github.com/waybill-dev/waybill/internal/outbox"
	"github.com/waybill-dev/waybill/internal/quarantine"
)

// suspectRows holds the outbox rows that may have killed a process while they were routed, and
// what was accepted behind them for the same tenants, which must not be numbered before them.
type suspectRows struct {
	suspects map[int64]outbox.Suspect // by position
	waiting  []outbox.OutboxRow       // read
	behind   map[outbox.TenantID][]outbox.OutboxRow
}

// maxBehind is how many rows of a tenant wait in memory behind a suspect one.
const maxBehind = 1000

func (r *suspectRows) suspect(s outbox.Suspect) {
	if r.suspects == nil {
		r.suspects = map[int64]outbox.Suspect{}
		r.behind = map[outbox.TenantID][]outbox.OutboxRow{}
	}
	r.suspects[s.Pos] = s
}

func (r *suspectRows) acquit(pos int64) { delete(r.suspects, pos) }

// condemned reports whether the row is to be given up: whatever it is planned for is dead.
func (r *suspectRows) condemned(pos int64) bool {
	return len(r.suspects) > 0 && r.suspects[pos].Strikes >= outbox.MaxStrikes
}

// setAside keeps a row from being routed if it is suspected, or behind one that is. The caller
// holds the lock.
func (n *Node) setAside(row outbox.OutboxRow) bool {
	r := &n.rows
	if len(r.suspects) == 0 || r.condemned(row.Pos) {
		return false
	}
	if _, suspected := r.suspects[row.Pos]; suspected {
		r.waiting = append(r.waiting, row)
		return true
	}
	for i := range r.waiting {
		if r.waiting[i].Tenant != row.Tenant {
			continue
		}
		if len(r.behind[row.Tenant]) < maxBehind {
			r.behind[row.Tenant] = append(r.behind[row.Tenant], row)
		} else {
			n.queue.Forget(row.Pos) // read again later
		}
		return true
	}
	return false
}

// dropShards forgets the rows of shards that are no longer owned. The caller holds the lock.
func (n *Node) dropRows(gone map[outbox.Shard]bool) {
	r := &n.rows
	if len(r.suspects) == 0 {
		return
	}
	for pos, s := range r.suspects {
		if gone[s.Shard] {
			r.acquit(pos)
		}
	}
	keep := func(rows []outbox.OutboxRow) (kept []outbox.OutboxRow) {
		for i := range rows {
			if gone[rows[i].Shard] {
				n.queue.Forget(rows[i].Pos)
			} else {
				kept = append(kept, rows[i])
			}
		}
		return kept
	}
	r.waiting = keep(r.waiting)
	for tenant, rows := range r.behind {
		r.behind[tenant] = keep(rows)
	}
}

// tryRow lets a process of its own route the suspect row that has waited longest, and reports
// whether there was one that came to something.
func (n *Node) tryRow(ctx context.Context) (bool, error) {
	n.mu.Lock()
	if len(n.rows.waiting) == 0 {
		n.mu.Unlock()
		return false, nil
	}
	row := n.rows.waiting[0]
	suspect := n.rows.suspects[row.Pos]
	endpoints := n.directory.subscribers(row.Tenant)
	n.mu.Unlock()

	one := []outbox.OutboxRow{row}
	if err := n.cfg.Store.ReadEvents(ctx, one, maxFetchedBytes); err != nil {
		return false, err
	}
	var err error
	if n.cfg.Isolation != nil && one[0].Source != nil {
		err = n.cfg.Isolation.Route(ctx, one[0], endpoints)
	}
	switch {
	case err == nil:
		n.clear(ctx, []outbox.Suspect{suspect})
		n.readmit(row, nil)
		return true, nil
	case errors.Is(err, quarantine.ErrDied):
		struck, err := n.strike(ctx, suspect, err)
		if err != nil {
			return false, err
		}
		n.readmit(row, &struck)
		return true, nil
	}
	return false, err
}

// readmit puts a row back into the queue, before what waited behind it, once it is survived
// (struck is nil) or condemned; else it waits for its next turn, behind other suspects.
func (n *Node) readmit(row outbox.OutboxRow, struck *outbox.Suspect) {
	n.mu.Lock()
	defer n.mu.Unlock()
	r := &n.rows
	if len(r.waiting) == 0 || r.waiting[0].Pos != row.Pos {
		return // its shard was given up meanwhile
	}
	if struck != nil {
		r.suspects[row.Pos] = *struck
		if struck.Strikes < outbox.MaxStrikes {
			r.waiting = append(r.waiting[1:], row)
			return
		}
	} else {
		r.acquit(row.Pos)
	}
	r.waiting = r.waiting[1:]
	for i := range r.waiting {
		if r.waiting[i].Tenant == row.Tenant {
			// Another suspect of the tenant still holds back what waits.
			n.queue.Again(row, n.directory.weight(row.Tenant))
			n.wakeRouters()
			return
		}
	}
	weight := n.directory.weight(row.Tenant)
	behind := r.behind[row.Tenant]
	delete(r.behind, row.Tenant)
	for i := len(behind) - 1; i >= 0; i-- {
		n.queue.Again(behind[i], weight)
	}
	n.queue.Again(row, weight)
	n.wakeRouters()
}

// condemn makes suspects, beyond all doubt, of what condemned rows are planned for, before it
// exists: when it does, it is given up without an attempt.
func (n *Node) condemn(ctx context.Context, lease outbox.Lease, plans []outbox.Plan) error {
	var suspects []outbox.Suspect
	n.mu.Lock()
	for i := range plans {
		if !n.rows.condemned(plans[i].Row.Pos) {
			continue
		}
		for j := range plans[i].Deliveries {
			d := &plans[i].Deliveries[j]
			s := outbox.Suspect{Shard: d.Shard, Delivery: d.ID, Strikes: outbox.MaxStrikes}
			suspects = append(suspects, s)
			n.sched.ward.suspect(s)
		}
	}
	n.mu.Unlock()
	if len(suspects) == 0 {
		return nil
	}
	return n.cfg.Store.MarkSuspects(ctx, lease, suspects, n.cfg.Clock.Now())
}
