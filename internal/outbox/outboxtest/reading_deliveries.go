package outboxtest

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

var deliveries = topic{"reading deliveries", []promise{
	{"a delivery is of the time its event was accepted, in every state", deliveryCreated},
	{"lists go by id, both ways, page by page, through ties", listDeliveriesByID},
	{"a walk meets every delivery once while the world goes on", walkDuringWork},
	{"what is listed is what is shown alone", listedIsShown},
	{"states of endpoint and tenant are told", configurationStates},
	{"a foreign or unknown delivery is not found", foreignDelivery},
	{"a delivery's tenant is found by its id", deliveryTenant},
	{"pending deliveries are counted up to a limit", pendingOf},
	{"deliveries are counted by state, as far as it is cheap", counting},
}}

// everySort gives each delivery a fate by its place: pending, tried, delivered, dead, cancelled,
// replayed and pending, replayed and delivered.
func (w *world) everySort(planned []outbox.Delivery) {
	w.Helper()
	for i, d := range planned {
		switch i % 7 {
		case 0:
		case 1:
			w.finish(w.failed(d))
		case 2:
			w.finish(w.delivered(d))
		case 3:
			w.finish(w.refused(d))
		case 4:
			w.finish(outbox.Result{Delivery: d, Dead: outbox.DeadCancelled, DeadMessage: "It was not wanted any more.", At: w.now})
		case 5:
			w.finish(w.delivered(d))
			w.replay(d)
		case 6:
			w.finish(w.refused(d))
			w.replay(d)
			w.finish(w.delivered(w.stored(d)))
		}
	}
}

func listDeliveriesByID(w *world) {
	acme, globex := w.neighbours("acme")
	w.endpoint(acme, "*")
	w.endpoint(acme, "*")
	w.endpoint(globex, "*")
	var batch []outbox.NewEvent
	for i := range 14 { // several in each millisecond
		e := w.event(acme, "a.b", `{}`)
		e.ID = outbox.NewEventID(w.now.Add(time.Duration(i/5) * time.Millisecond))
		batch = append(batch, e, w.event(globex, "a.b", `{}`))
	}
	w.publish(batch...)
	planned := w.route()
	w.everySort(planned)
	var want []outbox.DeliveryID
	for _, d := range planned {
		if d.Tenant == acme.ID {
			want = append(want, d.ID)
		}
	}
	w.equal("planned", len(want), 28)
	want = sorted(want)
	q := outbox.DeliveryQuery{Tenant: acme.TenantRef}
	for _, limit := range []int{1, 5, 28, 250} {
		w.equal(fmt.Sprintf("oldest first by %d", limit), deliveryIDs(w.listDeliveries(q, limit, true)), want)
	}
	slices.Reverse(want)
	for _, limit := range []int{1, 5, 28, 250} {
		w.equal(fmt.Sprintf("newest first by %d", limit), deliveryIDs(w.listDeliveries(q, limit, false)), want)
	}
	w.equal("the operator's list", len(w.listDeliveries(outbox.DeliveryQuery{}, 11, false)), 42)
	q.After = outbox.DeliveryCeil(w.now.Add(time.Hour))
	w.equal("from a position that is no delivery", deliveryIDs(w.listDeliveries(q, 5, false)), want)
}

func walkDuringWork(w *world) {
	acme := w.tenant("acme")
	w.endpoint(acme, "*")
	start := w.plannedMany(acme, "a.b", 21)
	got := map[outbox.DeliveryID]int{}
	q := outbox.DeliveryQuery{Tenant: acme.TenantRef}
	fates := []func(outbox.Delivery) outbox.Result{w.delivered, w.failed, w.refused}
	for step := 0; ; step++ {
		page, after, err := w.store.Deliveries(w.ctx, q, outbox.Page{Limit: 3})
		w.must(err)
		for _, v := range page {
			got[v.ID]++
		}
		if after.IsZero() {
			break
		}
		q.After = after
		// Something new arrives and something listed or not yet listed changes tables.
		w.now = w.now.Add(time.Second)
		w.finish(fates[step%3](start[step]), fates[step%3](start[20-step]))
		w.plannedMany(acme, "a.b", 1)
	}
	for _, d := range start {
		if got[d.ID] != 1 {
			w.Errorf("%s was met %d times", d.ID, got[d.ID])
		}
	}
	w.equal("deliveries met", len(got), len(start))
}

func listedIsShown(w *world) {
	acme := w.tenant("acme")
	w.endpoint(acme, "*")
	w.everySort(w.plannedMany(acme, "a.b", 14))
	views := w.listDeliveries(outbox.DeliveryQuery{Tenant: acme.TenantRef}, 250, false)
	w.equal("listed", len(views), 14)
	for _, v := range views {
		w.equal("in the list and alone", v, w.view(v.Delivery))
		operator, err := w.store.Delivery(w.ctx, outbox.TenantRef{}, v.ID)
		w.must(err)
		w.equal("for the operator", operator, v)
	}
}

func configurationStates(w *world) {
	acme := w.tenant("acme")
	e := w.endpointWith(acme, func(e *outbox.Endpoint) { e.State = outbox.EndpointPaused })
	d := w.planned(e, "a.b")
	_, err := w.store.EditTenant(w.ctx, "acme", w.now, func(t *outbox.Tenant) error { t.State = outbox.TenantPaused; return nil })
	w.must(err)
	view := w.view(d)
	w.equal("states", []any{view.EndpointState, view.TenantState}, []any{outbox.EndpointPaused, outbox.TenantPaused})
	w.editEndpoint(e, func(e *outbox.Endpoint) { e.State, e.URL = outbox.EndpointActive, "https://new.example/" })
	view = w.view(d)
	w.equal("after an edit", []any{view.EndpointState, view.EndpointURL}, []any{outbox.EndpointActive, "https://new.example/"})
}

func foreignDelivery(w *world) {
	acme, globex := w.neighbours("acme")
	w.endpoint(acme, "*")
	planned := w.plannedMany(acme, "a.b", 7)
	w.everySort(planned)
	unknown := outbox.NewDeliveryID(planned[0].Event, outbox.NewEndpointID(w.now))
	for _, d := range planned {
		if _, err := w.store.Delivery(w.ctx, globex.TenantRef, d.ID); !errors.Is(err, outbox.ErrNotFound) {
			w.Errorf("a foreign delivery: %v, want not found", err)
		}
	}
	for _, id := range []outbox.DeliveryID{unknown, {}, outbox.DeliveryCeil(w.now.AddDate(1000, 0, 0))} {
		for _, tenant := range []outbox.TenantRef{acme.TenantRef, {}} {
			if _, err := w.store.Delivery(w.ctx, tenant, id); !errors.Is(err, outbox.ErrNotFound) {
				w.Errorf("an unknown delivery: %v, want not found", err)
			}
		}
	}
}

func deliveryTenant(w *world) {
	acme, globex := w.neighbours("acme")
	w.endpoint(acme, "*")
	w.endpoint(globex, "*")
	w.publishOne(globex, "a.b", `{}`)
	planned := w.plannedMany(acme, "a.b", 7)
	w.everySort(planned)
	for _, d := range planned {
		ref, err := w.store.DeliveryTenant(w.ctx, d.ID)
		w.must(err)
		w.equal("tenant", ref, outbox.TenantRef{ID: d.Tenant, Shard: d.Shard})
	}
	_, err := w.store.DeliveryTenant(w.ctx, outbox.NewDeliveryID(planned[0].Event, outbox.NewEndpointID(w.now)))
	if !errors.Is(err, outbox.ErrNotFound) {
		w.Errorf("of an unknown delivery: %v, want not found", err)
	}
}

func pendingOf(w *world) {
	acme, globex := w.neighbours("acme")
	e := w.endpoint(acme, "*")
	count := func(tenant outbox.TenantRef, limit, want int, oldest time.Time) {
		w.Helper()
		n, at, err := w.store.PendingOf(w.ctx, tenant, e.ID, limit)
		w.must(err)
		w.equal("pending", n, want)
		w.equal("oldest", at, oldest)
	}
	count(acme.TenantRef, 10, 0, time.Time{})
	start := w.now
	first := w.plannedMany(acme, "a.b", 3)
	w.now = w.now.Add(time.Hour)
	w.plannedMany(acme, "a.b", 4)
	count(acme.TenantRef, 10, 7, start)
	count(acme.TenantRef, 7, 7, start)
	count(acme.TenantRef, 5, 5, start)
	count(globex.TenantRef, 10, 0, time.Time{})
	w.finish(w.failed(first[0])) // its next try is later than everybody's, its age is not
	count(acme.TenantRef, 10, 7, start)
	w.finish(w.delivered(first[0]), w.delivered(first[1]), w.refused(first[2]))
	count(acme.TenantRef, 10, 4, w.now)
}

func deliveryCreated(w *world) {
	acme := w.tenant("acme")
	w.endpoint(acme, "*")
	event := w.event(acme, "a.b", `{}`)
	event.ID, event.Chosen = outbox.NewEventID(w.now.Add(-23*time.Hour)), true
	w.publish(event)
	accepted := w.now
	w.now = w.now.Add(time.Second)
	d := w.route()[0]
	created := func(when string) {
		w.Helper()
		w.equal("created, "+when, w.view(d).CreatedAt, accepted)
	}
	created("pending")
	w.finish(w.refused(d))
	created("dead")
	w.now = w.now.Add(time.Minute)
	d = w.replay(d)[0]
	created("replayed")
	w.finish(w.delivered(d))
	created("delivered")
}
