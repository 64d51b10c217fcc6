package dispatch

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
	"github.com/waybill-dev/waybill/internal/poison"
	"github.com/waybill-dev/waybill/internal/route"
)

// routeLoop takes rows of a class from the queue, whose turn it is first, and writes what becomes
// of them.
func (n *Node) routeLoop(ctx context.Context, class route.Class) {
	what := "route"
	if class == route.Many {
		what = "route a crowd"
	}
	wait := time.Duration(0)
	for {
		if wait > 0 {
			if !sleep(ctx, wait) {
				return
			}
		} else {
			select {
			case <-ctx.Done():
				return
			case <-n.routeNow[class]:
			}
		}
		err := n.routeQueued(ctx, class)
		n.report(ctx, what, err)
		switch {
		case err == nil:
			wait = 0
		default:
			wait = min(max(2*wait, 20*time.Millisecond), time.Second)
		}
	}
}

const (
	// routeEvery is how far apart a router begins its transactions at least, while fewer than
	// routeAtOnce events wait and all of them would only wait to be sent instead. A transaction costs
	// the database as much as seventy of its rows.
	routeEvery  = 20 * time.Millisecond
	routeAtOnce = 250
)

// gatherRows waits for more rows of a class while that delays nothing, and reports false if ctx ended
// first.
func (n *Node) gatherRows(ctx context.Context, class route.Class) bool {
	wait := time.Until(n.routedAt[class].Add(routeEvery))
	if wait <= 0 || !n.mayGather(class) {
		return true
	}
	late := time.NewTimer(wait)
	defer late.Stop()
	for n.mayGather(class) {
		select {
		case <-ctx.Done():
			return false
		case <-late.C:
			return true
		case <-n.routeNow[class]:
		}
	}
	return true
}

func (n *Node) mayGather(class route.Class) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.queue.Patient(class, routeAtOnce, n.busy)
}

// busy reports whether all endpoints of a tenant have enough to do until routeEvery is over. n.mu is
// held.
func (n *Node) busy(tenant outbox.TenantID) bool {
	for _, subscriber := range n.directory.subscribers(tenant) {
		if e := n.sched.endpoints[subscriber.ID]; e == nil || !e.busyFor(routeEvery) {
			return false
		}
	}
	return true
}

// routeQueued routes until nothing of the class is queued.
func (n *Node) routeQueued(ctx context.Context, class route.Class) error {
	for ctx.Err() == nil {
		if !n.gatherRows(ctx, class) {
			return nil
		}
		if _, may := n.tenure.current(); !may {
			return errLeaseOver
		}
		n.routedAt[class] = time.Now()
		b := n.nextBatch(class)
		if b.taken == 0 {
			return nil
		}
		done := n.giveWay(ctx, class, b.taken)
		err := n.routeBatch(ctx, b)
		n.mu.Lock()
		moved := n.queue.Release(class)
		n.mu.Unlock()
		if moved {
			n.wakeRouters()
		}
		done()
		if err != nil {
			return err
		}
	}
	return nil
}

// giveWay holds a crowd's rows back while it is others' turn. The caller calls done when they are
// routed.
func (n *Node) giveWay(ctx context.Context, class route.Class, rows int) (done func()) {
	if class == route.Many {
		return n.cfg.Gate.Bulk(ctx)
	}
	began := time.Now()
	return func() { n.cfg.Gate.Small(rows, time.Since(began)) }
}

// yielding is how many rows of a crowd one transaction routes while small work is about: what is
// routed is sent at once, and a burst of sending is in everybody's way too.
const yielding = 100

// wakeRouters makes both routers look at the queue.
func (n *Node) wakeRouters() {
	for _, now := range n.routeNow {
		wake(now)
	}
}

// batch is what one round of routing works on.
type batch struct {
	taken                     int // rows out of the queue
	events, replays, commands []outbox.OutboxRow
}

// nextBatch takes rows out of the queue, by turns. A row stays taken until it is settled.
func (n *Node) nextBatch(class route.Class) *batch {
	n.mu.Lock()
	defer n.mu.Unlock()
	b := &batch{}
	size := route.MaxDeliveries
	if class == route.Many && !n.cfg.Gate.Quiet() {
		size = yielding
	}
	for range size {
		row, ok := n.queue.Next(class)
		if !ok {
			break
		}
		b.taken++
		switch row.Kind {
		case outbox.OutboxEvent:
			if n.setAside(row) {
				continue
			}
			b.events = append(b.events, row)
		case outbox.OutboxReplay:
			b.replays = append(b.replays, row)
		default:
			b.commands = append(b.commands, row)
		}
	}
	return b
}

func (n *Node) routeBatch(ctx context.Context, b *batch) error {
	var errs []error
	if len(b.commands) > 0 {
		errs = append(errs, n.runCommands(ctx, b.commands))
	}
	if len(b.replays) > 0 {
		errs = append(errs, n.replay(ctx, b.replays))
	}
	if len(b.events) > 0 {
		errs = append(errs, n.routeEvents(ctx, b.events))
	}
	return errors.Join(errs...)
}

// routeEvents plans events and writes the plans in one transaction. Rows for which there was no
// room in it go back to the queue.
func (n *Node) routeEvents(ctx context.Context, rows []outbox.OutboxRow) error {
	written, err := n.writeDownRows(ctx, rows)
	if err != nil {
		n.putBack(rows)
		return err
	}
	rows, judged, err := n.judge(ctx, rows)
	if err != nil {
		return err
	}
	n.routing.RLock()
	defer n.routing.RUnlock()
	now := n.cfg.Clock.Now()
	n.mu.Lock()
	// The configuration may change while numbers are read, and with it who subscribes: nothing is
	// planned for an endpoint whose number is not known.
	for missing := n.unnumbered(rows); len(missing) > 0; missing = n.unnumbered(rows) {
		n.mu.Unlock()
		if err := n.loadNumbers(ctx, missing); err != nil {
			n.putBack(rows)
			return err
		}
		n.mu.Lock()
	}
	lease := n.lease
	var plans []outbox.Plan
	planned := 0
	for i, row := range rows {
		if _, mine := lease.Epochs[row.Shard]; !mine {
			n.queue.Forget(row.Pos)
			continue
		}
		if row.HasPayload && !n.rows.condemned(row.Pos) {
			poison.Routed(row.Source.Payload)
		}
		if planned >= route.MaxDeliveries {
			for j := len(rows) - 1; j >= i; j-- {
				n.queue.Again(rows[j], n.directory.weight(rows[j].Tenant))
			}
			break
		}
		var plan outbox.Plan
		if row.Endpoint.IsZero() {
			plan = route.Event(row, n.directory.subscribers(row.Tenant), judged[row.Pos], numbering(n.numbers), route.MaxDeliveries-planned, now)
		} else {
			plan = route.Test(row, numbering(n.numbers), now)
		}
		planned += len(plan.Deliveries)
		plans = append(plans, plan)
	}
	next := map[outbox.EndpointID]int64{}
	for _, p := range plans {
		for i := range p.Deliveries {
			id := p.Deliveries[i].Endpoint
			next[id] = n.numbers[id]
			n.sched.reserve(p.Deliveries[i].ID)
		}
	}
	n.mu.Unlock()
	if len(plans) == 0 {
		return nil
	}

	if err := n.condemn(ctx, lease, plans); err != nil {
		return n.routeFailed(ctx, plans, outbox.Routed{}, err)
	}
	routed, err := n.cfg.Store.Route(ctx, lease, plans, next, now)
	if err == nil && len(routed.Gone) == 0 && len(routed.Stale) == 0 {
		n.planted(plans, routed.Parked)
		n.cfg.Observe.Routed(plans, now)
		n.clear(ctx, written)
		return nil
	}
	return n.routeFailed(ctx, plans, routed, err)
}

// planted hands freshly routed deliveries to the scheduler; nothing is read back. Those that are
// parked are read when their turn has come.
func (n *Node) planted(plans []outbox.Plan, parked []outbox.DeliveryID) {
	waits := make(map[outbox.DeliveryID]bool, len(parked))
	for _, id := range parked {
		waits[id] = true
	}
	n.mu.Lock()
	n.stall.routed++
	for _, p := range plans {
		for i := range p.Deliveries {
			due := outbox.Due{Delivery: p.Deliveries[i]}
			if p.Row.HasPayload {
				due.Payload, due.EventCreatedAt, due.EventMetadata = p.Row.Source.Payload, p.Row.Source.CreatedAt, p.Row.Source.Metadata
			}
			if _, mine := n.lease.Epochs[due.Shard]; mine && !waits[due.ID] {
				n.sched.offer(due)
			} else {
				n.sched.release(&due.Delivery, false)
			}
		}
		if p.Last {
			n.queue.Done(p.Row.Pos)
			n.rows.acquit(p.Row.Pos)
			continue
		}
		row := p.Row
		row.After = p.Deliveries[len(p.Deliveries)-1].Endpoint
		n.queue.Again(row, n.directory.weight(row.Tenant))
	}
	n.mu.Unlock()
	n.start()
	wake(n.fetchNow)
}

// routeFailed puts right what a routing transaction that did not come back clean may have left:
// the numbers must be read again, and after an unknown commit the deliveries may exist.
func (n *Node) routeFailed(ctx context.Context, plans []outbox.Plan, routed outbox.Routed, err error) error {
	gone := map[int64]bool{}
	for _, pos := range routed.Gone {
		gone[pos] = true
	}
	unknown := outbox.FaultOf(err) == outbox.FaultUnknown && err != nil
	n.mu.Lock()
	for i := len(plans) - 1; i >= 0; i-- {
		p := plans[i]
		for j := range p.Deliveries {
			delete(n.numbers, p.Deliveries[j].Endpoint)
			// A row that is gone was routed by a commit whose answer we never got (or by
			// another owner): its deliveries wait in the database.
			_, mine := n.lease.Epochs[p.Row.Shard]
			n.sched.release(&p.Deliveries[j], mine && (unknown || gone[p.Row.Pos]))
		}
		switch {
		case gone[p.Row.Pos]:
			n.queue.Done(p.Row.Pos)
		case unknown:
			n.queue.Forget(p.Row.Pos) // if it still exists it is read again
		default:
			n.queue.Again(p.Row, n.directory.weight(p.Row.Tenant))
		}
	}
	n.mu.Unlock()
	wake(n.fetchNow)
	if unknown {
		wake(n.sweepNow)
	}
	if len(routed.Stale) > 0 {
		return n.load(ctx, routed.Stale)
	}
	return err
}

func (n *Node) putBack(rows []outbox.OutboxRow) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for i := len(rows) - 1; i >= 0; i-- {
		n.queue.Again(rows[i], n.directory.weight(rows[i].Tenant))
	}
}

// unnumbered returns the endpoints the rows may be planned for whose next sequence is not known, in
// the shards that are the node's. n.mu is held.
func (n *Node) unnumbered(rows []outbox.OutboxRow) map[outbox.EndpointID]outbox.Shard {
	missing := map[outbox.EndpointID]outbox.Shard{}
	seen := map[outbox.TenantID]bool{}
	for i := range rows {
		if _, mine := n.lease.Epochs[rows[i].Shard]; !mine {
			continue
		}
		if only := rows[i].Endpoint; !only.IsZero() {
			if _, known := n.numbers[only]; !known {
				missing[only] = rows[i].Shard
			}
			continue
		}
		if seen[rows[i].Tenant] {
			continue
		}
		seen[rows[i].Tenant] = true
		for _, e := range n.directory.subscribers(rows[i].Tenant) {
			if _, known := n.numbers[e.ID]; !known {
				missing[e.ID] = rows[i].Shard
			}
		}
	}
	return missing
}

// loadNumbers reads the next sequence of endpoints.
func (n *Node) loadNumbers(ctx context.Context, missing map[outbox.EndpointID]outbox.Shard) error {
	n.mu.Lock()
	asked := n.lease
	n.mu.Unlock()
	numbers, err := n.cfg.Store.NextSequences(ctx, missing)
	if err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for id, next := range numbers {
		if _, known := n.numbers[id]; !known && n.stillHolds(asked, missing[id]) {
			n.numbers[id] = next
		}
	}
	return nil
}

// stillHolds reports whether the shard has been the node's without a break since the given lease.
// Numbers that were read before belong to whoever counted on from them meanwhile. n.mu is held.
func (n *Node) stillHolds(asked outbox.Lease, s outbox.Shard) bool {
	was, did := asked.Epochs[s]
	is, does := n.lease.Epochs[s]
	return did && does && was == is
}

// numbering counts on in the node's memory of sequences.
type numbering map[outbox.EndpointID]int64

func (m numbering) Next(id outbox.EndpointID) int64 {
	next, known := m[id]
	if !known {
		panic("dispatch: a delivery is planned for an endpoint whose number was not read")
	}
	m[id] = next + 1
	return next
}

// replay plans deliveries again, or makes pending ones due.
func (n *Node) replay(ctx context.Context, rows []outbox.OutboxRow) error {
	var shards []outbox.Shard
	for i := range rows {
		shards = append(shards, rows[i].Shard)
	}
	slices.Sort(shards)
	if err := n.catchUp(ctx, slices.Compact(shards)); err != nil {
		n.putBack(rows)
		return err
	}
	n.mu.Lock()
	lease := n.lease
	n.mu.Unlock()
	due, err := n.cfg.Store.Replay(ctx, lease, rows, n.cfg.Clock.Now())
	n.settleRows(rows, err)
	if err != nil {
		return err
	}
	n.mu.Lock()
	for i := range due {
		if _, mine := n.lease.Epochs[due[i].Shard]; !mine {
			continue
		}
		n.sched.lower(&due[i])
		if due[i].Lane == outbox.LaneLive { // it was pending, and somebody wants it tried now
			n.sched.probeNow(due[i].Endpoint, n.cfg.Clock.Now())
		}
	}
	n.mu.Unlock()
	wake(n.fetchNow)
	n.start()
	return nil
}

// settleRows forgets rows that were executed, and puts back those of a call that failed. After an
// unknown commit they are forgotten too: a row that still exists is read again by the sweep.
func (n *Node) settleRows(rows []outbox.OutboxRow, err error) {
	if err != nil && outbox.FaultOf(err) != outbox.FaultUnknown && !errors.Is(err, outbox.ErrFenced) {
		n.putBack(rows)
		return
	}
	n.mu.Lock()
	if err == nil {
		n.stall.routed++
	}
	for _, row := range rows {
		if err == nil {
			n.queue.Done(row.Pos)
		} else {
			n.queue.Forget(row.Pos)
		}
	}
	n.mu.Unlock()
	if err != nil {
		wake(n.sweepNow)
	}
}
