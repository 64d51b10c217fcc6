package outboxtest

import (
	"fmt"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/waybill-dev/waybill/internal/outbox"
)

var histories = topic{"random histories", []promise{
	{"whatever happens in whatever order, the store and the books agree", anyHistory},
}}

// history is one run: two tenants in a shard of their own, a store, and the books.
type history struct {
	*world
	books     *books
	tenants   []outbox.Tenant
	endpoints []outbox.Endpoint
	before    map[string]int64
	last      []outbox.Result // the newest batch, to be sent again
	plans     []outbox.Plan   // the newest routing, to be sent again
	next      map[outbox.EndpointID]int64
}

func anyHistory(w *world) {
	run := 0
	w.property(15*time.Second, func(t *rapid.T) {
		h := newHistory(w.within(t), run)
		run++
		t.Repeat(map[string]func(*rapid.T){
			"publish": h.publish,
			"route":   h.route,
			"reroute": h.reroute,
			"finish":  h.finish,
			"again":   h.again,
			"ask":     h.ask,
			"replay":  h.replay,
			"cancel":  h.cancel,
			"expire":  h.expire,
			"takeOver": func(*rapid.T) {
				h.own()
			},
			"maintain": func(*rapid.T) { h.maintain() },
			"audit":    h.audit,
		})
		h.audit(t)
	})
}

// newHistory starts a run in a shard that no earlier run has used, as far as there are shards.
func newHistory(w *world, run int) *history {
	w.Helper()
	w.scope = []outbox.Shard{outbox.Shard(run)}
	w.own()
	h := &history{world: w, books: newBooks()}
	for i := 0; len(h.tenants) < 2; i++ {
		if key := fmt.Sprintf("run-%d-%d", run, i); outbox.ShardOf(key) == outbox.Shard(run) {
			h.tenants = append(h.tenants, w.tenant(key))
		}
	}
	h.endpoints = []outbox.Endpoint{w.endpoint(h.tenants[0], "*"), w.endpoint(h.tenants[0], "a", "b"), w.endpoint(h.tenants[1], "b")}
	h.before = totals(w.verify())
	return h
}

// compare holds every delivery the store shows against its account.
func (h *history) compare() {
	type line struct {
		State    outbox.DeliveryState
		Reason   outbox.DeadReason
		Sequence int64
		Round    int
		Attempt  int
		NextAt   time.Time
	}
	got, want := map[outbox.DeliveryID]line{}, map[outbox.DeliveryID]line{}
	for _, tenant := range h.tenants {
		for _, v := range h.listDeliveries(outbox.DeliveryQuery{Tenant: tenant.TenantRef}, 250, false) {
			l := line{State: v.State, Sequence: v.Sequence, Round: v.Round, Attempt: v.Attempt}
			if v.Dead != nil {
				l.Reason = v.Dead.Reason
			}
			if v.State == outbox.StatePending {
				l.NextAt = v.NextAt
			}
			if a := h.books.accounts[v.ID]; a != nil && a.lateEnd && a.state == outbox.StateDelivered {
				if v.Attempt < 1 || v.Attempt > a.tries {
					h.Fatalf("%d tries are told, %d are kept", v.Attempt, a.tries)
				}
				a.Attempt = v.Attempt
			}
			got[v.ID] = l
		}
	}
	for id, a := range h.books.accounts {
		l := line{State: a.state, Reason: a.reason, Sequence: a.Sequence, Round: a.Round, Attempt: a.Attempt}
		if a.state == outbox.StatePending {
			l.NextAt = a.NextAt
		}
		want[id] = l
	}
	h.equal("deliveries", got, want)
}

// audit lets the store prove its books, and holds them and every row against ours.
func (h *history) audit(*rapid.T) {
	h.compare()
	h.equal("totals", since(h.before, totals(h.verify())), h.books.totals())
	for _, id := range h.books.order {
		a := h.books.accounts[id]
		if a.state == outbox.StatePending {
			h.equal("as it is stored", h.stored(a.Delivery), a.Delivery)
		}
		h.equal("tries kept", len(h.attempts(a.Delivery)), a.tries)
	}
}

func (h *history) publish(t *rapid.T) {
	h.now = h.now.Add(time.Millisecond)
	var batch []outbox.NewEvent
	for range rapid.IntRange(1, 3).Draw(t, "events") {
		tenant := rapid.SampledFrom(h.tenants).Draw(t, "tenant")
		batch = append(batch, h.event(tenant, rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "type"), `{}`))
	}
	h.world.publish(batch...)
	for _, e := range batch {
		h.books.publish(e)
	}
	if rapid.Bool().Draw(t, "again") {
		h.world.publish(batch...)
	}
}

func (h *history) route(*rapid.T) {
	h.plans, h.next = h.plan(h.source(h.outbox()))
	h.routePlans(h.plans, h.next)
	h.books.route(h.endpoints, h.now)
}

// reroute runs the newest routing again, as after a commit that was not answered.
func (h *history) reroute(*rapid.T) {
	_, err := h.store.Route(h.ctx, h.lease, h.plans, h.next, h.now)
	h.must(err)
}

// some draws deliveries that exist; there may be none yet.
func (h *history) some(t *rapid.T, most int) []*account {
	if len(h.books.order) == 0 {
		t.Skip("nothing is planned")
	}
	var some []*account
	for range rapid.IntRange(1, most).Draw(t, "deliveries") {
		some = append(some, h.books.accounts[rapid.SampledFrom(h.books.order).Draw(t, "delivery")])
	}
	return some
}

func (h *history) finish(t *rapid.T) {
	h.now = h.now.Add(time.Millisecond)
	var results []outbox.Result
	for _, a := range h.some(t, 3) {
		// Mostly as it stands now, sometimes as another owner fetched it earlier.
		d := a.seen[len(a.seen)-1]
		if rapid.IntRange(0, 3).Draw(t, "late") == 0 {
			d = rapid.SampledFrom(a.seen).Draw(t, "seen")
		}
		if slices.ContainsFunc(results, func(r outbox.Result) bool { return r.Delivery.ID == d.ID }) {
			continue // which of two in one batch wins is not promised
		}
		var r outbox.Result
		switch rapid.IntRange(0, 3).Draw(t, "fate") {
		case 0:
			r = h.delivered(d)
		case 1:
			r = h.failed(d)
			r.RetryAt = h.now.Add(time.Duration(rapid.IntRange(0, 5).Draw(t, "seconds")) * time.Second)
		case 2:
			r = h.refused(d)
		case 3:
			r = outbox.Result{Delivery: d, Dead: outbox.DeadCancelled, At: h.now}
		}
		results = append(results, r)
	}
	h.world.finish(results...)
	for _, r := range results {
		h.books.finish(r)
	}
	h.last = results
}

// again sends the newest batch of results again, as after a commit that was not answered: no
// owner starts anything on these deliveries before it has the answer.
func (h *history) again(*rapid.T) { h.world.finish(h.last...) }

func (h *history) ask(t *rapid.T) {
	for _, a := range h.some(t, 2) {
		h.world.ask(a.Delivery, a.state)
		h.books.asked = append(h.books.asked, a.ID)
	}
}

func (h *history) replay(*rapid.T) {
	h.now = h.now.Add(time.Millisecond)
	h.executeReplays()
	h.books.executeReplays(h.now)
	h.last = nil
}

func (h *history) cancel(t *rapid.T) {
	e := rapid.SampledFrom(h.endpoints).Draw(t, "endpoint")
	h.command(e, outbox.Command{Name: outbox.CommandCancelEndpoint})
	got := h.executeCommands()
	want := h.books.endAll(outbox.DeadCancelled, func(a *account) bool { return a.Endpoint == e.ID })
	h.equal("cancelled", set(got), set(want))
}

func (h *history) expire(t *rapid.T) {
	before := h.now.Add(-time.Duration(rapid.IntRange(0, 10).Draw(t, "milliseconds")) * time.Millisecond)
	shard := h.scope[0]
	lease := outbox.Lease{Node: h.lease.Node, Epochs: map[outbox.Shard]int64{shard: h.lease.Epochs[shard]}}
	got, err := h.store.Expire(h.ctx, lease, before, 1000, h.now)
	h.must(err)
	want := h.books.endAll(outbox.DeadExpired, func(a *account) bool { return a.SendableAt.Before(before) })
	h.equal("expired", set(got.Deliveries), set(want))
}
