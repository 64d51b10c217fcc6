package outboxtest

import (
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

var waiting = topic{"what deliveries wait behind", []promise{
	{"a delivery is shown with the limits it is under", limitsAreShown},
	{"what waits is counted for each endpoint, up to a limit", backlogs},
	{"a tenant's backlogs are its own", backlogsOfTenant},
	{"those ahead are counted by lane and place, up to a limit", countsAhead},
	{"a parked one tells whom it waits for", orderPredecessors},
}}

func limitsAreShown(w *world) {
	acme := w.tenant("acme")
	plain := w.endpoint(acme, "a.b")
	limited := w.endpointWith(acme, func(e *outbox.Endpoint) {
		e.EventTypes, e.MaxInFlight, e.RateLimit = []string{"c.d"}, 3, &outbox.RateLimit{Count: 5, Per: time.Minute}
	})
	free, held := w.planned(plain, "a.b"), w.planned(limited, "c.d")
	w.equal("of a plain endpoint", w.view(free).Limits, outbox.DeliveryLimits{TenantInFlight: outbox.DefaultMaxInFlight})
	full := outbox.DeliveryLimits{TenantInFlight: 25, EndpointInFlight: 3, Rate: &outbox.RateLimit{Count: 5, Per: time.Minute}}
	_, err := w.store.EditTenant(w.ctx, "acme", w.now, func(t *outbox.Tenant) error {
		t.MaxInFlight = 25
		return nil
	})
	w.must(err)
	w.equal("of a limited one", w.view(held).Limits, full)
	list, _, err := w.store.Deliveries(w.ctx, outbox.DeliveryQuery{Tenant: acme.TenantRef, Endpoint: limited.ID}, outbox.Page{Limit: 10})
	w.must(err)
	w.equal("in a list", []outbox.DeliveryLimits{list[0].Limits}, []outbox.DeliveryLimits{full})
}

func backlogs(w *world) {
	acme, globex := w.strangers("acme")
	busy, idle, far := w.endpoint(acme, "a.b"), w.endpoint(acme, "c.d"), w.endpoint(globex, "a.b")
	planned := w.now
	for range 3 {
		w.planned(busy, "a.b")
		w.now = w.now.Add(time.Second)
	}
	w.planned(far, "a.b")
	of := func(limit int, endpoints ...outbox.Endpoint) map[outbox.EndpointID]outbox.Backlog {
		w.Helper()
		found, err := w.store.Backlogs(w.ctx, outbox.TenantRef{}, rowsOf(endpoints...), limit)
		w.must(err)
		return found
	}
	w.equal("all", of(10, busy, idle, far), map[outbox.EndpointID]outbox.Backlog{
		busy.ID: {Pending: 3, Oldest: planned},
		far.ID:  {Pending: 1, Oldest: w.now},
	})
	w.equal("at most two", of(2, busy)[busy.ID].Pending, 2)
	w.equal("of none", of(10), map[outbox.EndpointID]outbox.Backlog{})
}

func backlogsOfTenant(w *world) {
	acme, globex := w.neighbours("acme")
	mine, theirs := w.endpoint(acme, "*"), w.endpoint(globex, "*")
	w.planned(mine, "a.b")
	w.planned(theirs, "a.b")
	found, err := w.store.Backlogs(w.ctx, acme.TenantRef, rowsOf(mine, theirs), 10)
	w.must(err)
	w.equal("acme's", found, map[outbox.EndpointID]outbox.Backlog{mine.ID: {Pending: 1, Oldest: w.now}})
}

func countsAhead(w *world) {
	acme := w.tenant("acme")
	e, other := w.endpoint(acme, "a.b"), w.endpoint(acme, "c.d")
	w.planned(other, "c.d")
	var line []outbox.Delivery
	for range 4 {
		w.now = w.now.Add(time.Second)
		line = append(line, w.planned(e, "a.b"))
	}
	replayed := w.planned(e, "a.b")
	w.finish(w.refused(replayed))
	w.replay(replayed)
	w.finish(w.failed(line[0])) // to the end of the line
	all := append([]outbox.Delivery{w.stored(line[0]), w.stored(replayed)}, line[1:]...)
	for limit, most := range map[int]int{10: 3, 2: 2} {
		got, err := w.store.Ahead(w.ctx, all, limit)
		w.must(err)
		w.equal("ahead", got, map[outbox.DeliveryID]int{
			line[1].ID: 0, line[2].ID: 1, line[3].ID: min(2, most), line[0].ID: most, replayed.ID: 0,
		})
	}
	got, err := w.store.Ahead(w.ctx, nil, 10)
	w.must(err)
	w.equal("of none", got, map[outbox.DeliveryID]int{})
}
