package outboxtest

import (
	"fmt"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/waybill-dev/waybill/internal/outbox"
)

var orderHistories = topic{"random histories of strict order", []promise{
	{"whatever happens in whatever order, the turn is where the model says", anyOrderHistory},
}}

// ordered is the model of an endpoint: its deliveries and whose turn it is in each key.
type ordered struct {
	*world
	tenant   outbox.Tenant
	endpoint outbox.Endpoint
	rows     []*orderedRow
	turn     map[string]*orderedRow
	freed    map[outbox.DeliveryID]bool // by the latest step
}

type orderedRow struct {
	id      outbox.DeliveryID
	n       int64
	key     string
	pending bool
	holds   bool
	round   int
	attempt int
	planned time.Time
	seen    []outbox.Delivery // as owners fetched it
}

func anyOrderHistory(w *world) {
	run := 0
	w.property(15*time.Second, func(t *rapid.T) {
		o := newOrdered(w.within(t), run, t)
		run++
		t.Repeat(map[string]func(*rapid.T){
			"plan":   o.plan,
			"finish": o.finish,
			"late":   o.late,
			"replay": o.replay,
			"expire": o.expire,
			"cancel": o.cancel,
			"change": o.change,
			"":       func(*rapid.T) { o.audit() },
		})
		o.world.verify()
		o.drain()
	})
}

// newOrdered starts a run in a shard of its own.
func newOrdered(w *world, run int, t *rapid.T) *ordered {
	w.Helper()
	w.scope = []outbox.Shard{outbox.Shard(run)}
	w.own()
	o := &ordered{world: w, turn: map[string]*orderedRow{}}
	for i := 0; o.tenant.ID == 0; i++ {
		if key := fmt.Sprintf("run-%d-%d", run, i); outbox.ShardOf(key) == outbox.Shard(run) {
			o.tenant = w.tenant(key)
		}
	}
	o.endpoint = w.endpointWith(o.tenant, func(e *outbox.Endpoint) {
		e.Ordering = rapid.SampledFrom([]outbox.Ordering{outbox.OrderingNone, outbox.OrderingStrict, outbox.OrderingStrict}).Draw(t, "ordering")
		e.OnDead = rapid.SampledFrom([]outbox.OnDead{outbox.OnDeadSkip, outbox.OnDeadHold}).Draw(t, "on dead")
	})
	return o
}

func (o *ordered) strict() bool { return o.endpoint.Ordering == outbox.OrderingStrict }

// give gives the turn of a key, if it is free.
func (o *ordered) give(key string) {
	if !o.strict() || o.turn[key] != nil {
		return
	}
	var first *orderedRow
	for _, r := range o.rows {
		if r.key == key && r.pending && (first == nil || r.n < first.n) {
			first = r
		}
	}
	if first == nil || slices.ContainsFunc(o.rows, func(r *orderedRow) bool { return r.key == key && r.holds && r.n < first.n }) {
		return
	}
	o.turn[key] = first
	o.freed[first.id] = true
}

// end ends a delivery, undelivered if reason is not empty.
func (o *ordered) end(r *orderedRow, reason outbox.DeadReason) {
	r.pending = false
	r.holds = o.strict() && o.endpoint.OnDead == outbox.OnDeadHold && reason != "" && reason != outbox.DeadCancelled
	if o.turn[r.key] == r {
		delete(o.turn, r.key)
	}
}

// giveAll gives the turns of all keys.
func (o *ordered) giveAll() {
	for _, r := range o.rows {
		o.give(r.key)
	}
}

// audit compares who is due.
func (o *ordered) audit() {
	want := map[outbox.DeliveryID]bool{}
	for _, r := range o.rows {
		if r.pending && (!o.strict() || o.turn[r.key] == r) {
			want[r.id] = true
		}
	}
	due := o.due(o.endpoint)
	o.equal("due", ids(due), want)
	for _, d := range due {
		r := o.row(d.ID)
		o.equal("number", d.Sequence, r.n)
		r.attempt = d.Attempt // where it was replayed, the store counted on
		r.seen = append(r.seen, d)
	}
}

func (o *ordered) row(id outbox.DeliveryID) *orderedRow {
	return o.rows[slices.IndexFunc(o.rows, func(r *orderedRow) bool { return r.id == id })]
}

func (o *ordered) step() {
	o.now = o.now.Add(time.Millisecond)
	o.freed = map[outbox.DeliveryID]bool{}
}

func (o *ordered) plan(t *rapid.T) {
	o.step()
	keys := rapid.SliceOfN(rapid.SampledFrom([]string{"", "a", "b"}), 1, 4).Draw(t, "keys")
	all, parked := o.plannedKeys(o.tenant, keys...)
	for _, d := range all {
		o.rows = append(o.rows, &orderedRow{id: d.ID, n: d.Sequence, key: d.OrderingKey, pending: true, planned: o.now})
	}
	o.giveAll()
	want := map[outbox.DeliveryID]bool{}
	for _, d := range all {
		if o.strict() && !o.freed[d.ID] {
			want[d.ID] = true
		}
	}
	o.equal("parked", parked, want)
}

// result draws how a try of d ended.
func (o *ordered) result(t *rapid.T, d outbox.Delivery) outbox.Result {
	switch rapid.IntRange(0, 3).Draw(t, "fate") {
	case 0, 1:
		return o.delivered(d)
	case 2:
		return o.refused(d)
	}
	r := o.failed(d)
	r.RetryAt = o.now
	return r
}

// record records results, and lets the model know.
func (o *ordered) record(results []outbox.Result) {
	freed := o.finished(results...)
	for _, x := range results {
		r := o.row(x.Delivery.ID)
		if !r.pending || r.round != x.Delivery.Round || !x.Delivered && r.attempt != x.Delivery.Attempt {
			continue
		}
		r.attempt = x.Delivery.Attempt + 1
		if x.Final() {
			o.end(r, x.Dead)
		}
	}
	o.giveAll()
	o.equal("freed", ids(freed), o.freed)
}

func (o *ordered) finish(t *rapid.T) {
	o.step()
	due := o.due(o.endpoint)
	if len(due) == 0 {
		t.Skip("nothing is due")
	}
	var results []outbox.Result
	for _, d := range due {
		if rapid.Bool().Draw(t, "ended") {
			results = append(results, o.result(t, d))
		}
	}
	o.record(results)
}

// late records a result of a delivery as it was fetched some time.
func (o *ordered) late(t *rapid.T) {
	o.step()
	r := o.any(t)
	if len(r.seen) == 0 {
		t.Skip("it was never due")
	}
	o.record([]outbox.Result{o.result(t, rapid.SampledFrom(r.seen).Draw(t, "seen"))})
}

func (o *ordered) any(t *rapid.T) *orderedRow {
	if len(o.rows) == 0 {
		t.Skip("nothing is planned")
	}
	return rapid.SampledFrom(o.rows).Draw(t, "delivery")
}

func (o *ordered) replay(t *rapid.T) {
	o.step()
	want := map[outbox.DeliveryID]bool{}
	asked := map[outbox.DeliveryID]bool{}
	for range rapid.IntRange(1, 3).Draw(t, "replays") {
		r := o.any(t)
		if asked[r.id] {
			continue
		}
		asked[r.id] = true
		_, err := o.store.RequestReplay(o.ctx, o.tenant.TenantRef, r.id)
		o.must(err)
	}
	for _, r := range o.rows {
		switch {
		case !asked[r.id]:
		case r.pending:
			if !o.strict() || o.turn[r.key] == r {
				want[r.id] = true
			}
		default:
			r.pending, r.holds, r.planned = true, false, o.now
			r.round++
			if !o.strict() {
				want[r.id] = true
			}
		}
	}
	o.giveAll()
	for id := range o.freed {
		want[id] = true
	}
	o.equal("due", ids(o.executeReplays()), want)
}

func (o *ordered) expire(t *rapid.T) {
	o.step()
	before := o.now.Add(-time.Duration(rapid.IntRange(0, 20).Draw(t, "milliseconds")) * time.Millisecond)
	lease := outbox.Lease{Node: o.lease.Node, Epochs: map[outbox.Shard]int64{o.scope[0]: o.lease.Epochs[o.scope[0]]}}
	ended, err := o.store.Expire(o.ctx, lease, before, 1000, o.now)
	o.must(err)
	want := map[outbox.DeliveryID]bool{}
	for _, r := range o.rows {
		if r.pending && r.planned.Before(before) {
			want[r.id] = true
			o.end(r, outbox.DeadExpired)
		}
	}
	o.giveAll()
	o.equal("expired", set(ended.Deliveries), want)
	o.equal("freed", ids(ended.Freed), o.freed)
}

func (o *ordered) cancel(t *rapid.T) {
	o.step()
	before := o.now.Add(-time.Duration(rapid.IntRange(0, 20).Draw(t, "milliseconds")) * time.Millisecond)
	row := o.command(o.endpoint, outbox.Command{Name: outbox.CommandCancelEndpoint, Before: before})
	ended, done, err := o.store.Cancel(o.ctx, o.lease, row, 1000, o.now)
	o.must(err)
	want := map[outbox.DeliveryID]bool{}
	for _, r := range o.rows {
		switch {
		case r.planned.After(before):
		case r.pending:
			want[r.id] = true
			o.end(r, outbox.DeadCancelled)
		default:
			r.holds = false
		}
	}
	o.giveAll()
	o.equal("done", done, true)
	o.equal("cancelled", set(ended.Deliveries), want)
	o.equal("freed", ids(ended.Freed), o.freed)
}

// change switches the order, and brings the rows in line.
func (o *ordered) change(t *rapid.T) {
	o.step()
	was := o.strict()
	o.endpoint = o.setOrder(o.endpoint,
		rapid.SampledFrom([]outbox.Ordering{outbox.OrderingNone, outbox.OrderingStrict}).Draw(t, "ordering"),
		rapid.SampledFrom([]outbox.OnDead{outbox.OnDeadSkip, outbox.OnDeadHold}).Draw(t, "on dead"))
	o.reorder(o.endpoint)
	if !was || !o.strict() {
		clear(o.turn)
	}
	if !o.strict() || o.endpoint.OnDead == outbox.OnDeadSkip {
		for _, r := range o.rows {
			r.holds = false
		}
	}
	o.giveAll()
}

// drain delivers everything: nothing may be stuck but what is held.
func (o *ordered) drain() {
	for range len(o.rows) + 1 {
		o.step()
		o.audit()
		var results []outbox.Result
		for _, d := range o.due(o.endpoint) {
			results = append(results, o.delivered(d))
		}
		o.record(results)
	}
	for _, r := range o.rows {
		held := slices.ContainsFunc(o.rows, func(x *orderedRow) bool { return x.key == r.key && x.holds && x.n < r.n })
		if r.pending && !held {
			o.Fatalf("number %d of key %q is stuck", r.n, r.key)
		}
	}
	o.world.verify()
}
