package outboxtest

import (
	"errors"
	"fmt"
	"slices"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// namesakes are events of several tenants under one id, which their publishers chose. An id is seen
// by every receiver, so a stranger can choose it on purpose.
func namesakes(w *world) {
	acme, globex := w.neighbours("acme") // in one shard
	_, hooli := w.strangers("acme")      // in another
	w.own()
	e := w.endpoint(acme, "*")
	first := w.event(acme, "order.paid", `{"of":"acme"}`)
	first.Chosen = true
	under := func(tenant outbox.Tenant, eventType, payload string) outbox.NewEvent {
		other := w.event(tenant, eventType, payload)
		other.ID, other.Chosen = first.ID, true
		return other
	}
	before, after := w.publishOne(acme, "order.made", `{}`), w.event(globex, "order.made", `{}`)
	w.publish(first)
	// What one of them meets in a batch says nothing about the other.
	accepted := w.publish(first, under(globex, "invoice.sent", `{"of":"globex", "n":2}`), under(hooli, "a.b", `3`))
	if !accepted[0].Duplicate || accepted[1].Duplicate || accepted[2].Duplicate {
		w.Errorf("the repeated one and those of others: %+v", accepted)
	}
	if accepted[0].Pos != 0 || accepted[1].Pos == 0 || accepted[1].Pos == accepted[2].Pos {
		w.Errorf("their places in the outbox: %+v", accepted)
	}
	w.publish(after)

	want := map[outbox.TenantID]string{acme.ID: "order.paid", globex.ID: "invoice.sent", hooli.ID: "a.b"}
	list, err := w.store.EventsByID(w.ctx, first.ID)
	w.must(err)
	got := map[outbox.TenantID]string{}
	for _, v := range list {
		got[v.Tenant.ID] = v.Type
	}
	w.equal("by id", got, want)
	w.equal("in the order of the tenants", slices.IsSortedFunc(list, func(a, b outbox.EventView) int { return int(a.Tenant.ID - b.Tenant.ID) }), true)
	if _, err := w.store.Event(w.ctx, outbox.TenantRef{}, first.ID); !errors.Is(err, outbox.ErrAmbiguous) {
		w.Errorf("one of three: %v", err)
	}
	if _, err := w.store.Payload(w.ctx, outbox.TenantRef{}, first.ID); !errors.Is(err, outbox.ErrAmbiguous) {
		w.Errorf("the bytes of one of three: %v", err)
	}
	none, err := w.store.EventsByID(w.ctx, outbox.NewEventID(w.now))
	w.must(err)
	w.equal("by an unknown id", len(none), 0)
	alone, err := w.store.EventsByID(w.ctx, before.ID)
	w.must(err)
	w.equal("by an id of one", len(alone) == 1 && alone[0].Tenant == acme.TenantRef, true)

	// However a list is cut into pages, it shows each of them once.
	for _, limit := range []int{1, 2, 3, 4, 250} {
		for _, ascending := range []bool{true, false} {
			seen := map[outbox.TenantID]string{}
			rows := 0
			q := outbox.EventQuery{}
			for {
				page, next, err := w.store.Events(w.ctx, q, outbox.Page{Limit: limit, Ascending: ascending})
				w.must(err)
				rows += len(page)
				for _, v := range page {
					if v.ID == first.ID {
						seen[v.Tenant.ID] += v.Type
					}
				}
				if next.IsZero() {
					break
				}
				q.After = next
			}
			w.equal(fmt.Sprintf("listed by %d, ascending %t", limit, ascending), seen, want)
			w.equal("with the others", rows, 5)
		}
	}

	// What became of one is not what became of the other.
	w.route()
	w.equal("planned", len(w.pending(e, outbox.LaneLive)), 2)
	states := func() map[outbox.TenantID]outbox.EventState {
		w.Helper()
		found := map[outbox.TenantID]outbox.EventState{}
		list, err := w.store.EventsByID(w.ctx, first.ID)
		w.must(err)
		for _, v := range list {
			found[v.Tenant.ID] = v.State
		}
		return found
	}
	w.equal("their states", states(), map[outbox.TenantID]outbox.EventState{acme.ID: outbox.EventUnrouted, globex.ID: outbox.EventUnmatched, hooli.ID: outbox.EventUnmatched})
	pending, _, err := w.store.Events(w.ctx, outbox.EventQuery{Tenant: globex.TenantRef, State: outbox.EventUnrouted}, outbox.Page{Limit: 10})
	w.must(err)
	w.equal("pending ones of a tenant without endpoints", len(pending), 0)

	w.must(w.store.ErasePayload(w.ctx, globex.TenantRef, first.ID))
	payload, err := w.store.Payload(w.ctx, acme.TenantRef, first.ID)
	w.must(err)
	w.equal("after another's was erased", string(payload), `{"of":"acme"}`)
	for _, due := range w.pending(e, outbox.LaneLive) {
		w.equal("what waits has its bytes", due.Gone, false)
	}
}
