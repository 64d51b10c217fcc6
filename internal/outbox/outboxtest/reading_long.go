package outboxtest

import (
	"bytes"
	"fmt"
	"slices"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

var longLists = topic{"long lists", []promise{
	{"what one call does not read to its end, the next ones find", findBehindMany},
}}

// findBehindMany looks for little behind more rows than one call reads. They are two events of
// one millisecond that went to very many endpoints each.
func findBehindMany(w *world) {
	large(w)
	acme := w.tenant("acme")
	w.endpoint(acme, "rare")
	rare := w.plannedMany(acme, "rare", 1)[0]
	w.now = w.now.Add(time.Second)
	var wide []outbox.EventID
	for range 2 {
		wide = append(wide, w.wide(acme, outbox.MaxListScan/2+500))
	}

	all := outbox.DeliveryQuery{Tenant: acme.TenantRef, EventTypes: []string{"rare"}}
	w.equal("newest first", deliveryIDs(w.listDeliveries(all, 250, false)), []outbox.DeliveryID{rare.ID})
	w.equal("oldest first", deliveryIDs(w.listDeliveries(all, 250, true)), []outbox.DeliveryID{rare.ID})
	q := outbox.EventQuery{Tenant: acme.TenantRef, State: outbox.EventUnrouted}
	for _, limit := range []int{1, 250} {
		w.equal(fmt.Sprintf("events by %d", limit), eventIDs(w.listEvents(q, limit, true)), append([]outbox.EventID{rare.Event}, sorted(wide)...))
	}
	q.EventTypes = []string{"rare"}
	w.equal("the rare event", eventIDs(w.listEvents(q, 250, false)), []outbox.EventID{rare.Event})
}

// wide publishes an event and plans it for so many endpoints, which need not exist for that.
func (w *world) wide(tenant outbox.Tenant, endpoints int) outbox.EventID {
	w.Helper()
	w.publishOne(tenant, "common", `{}`)
	w.config()
	row := w.source(w.outbox())[0]
	for rest := endpoints; rest > 0; rest -= 1000 {
		plan := outbox.Plan{Row: row, Matched: true, Last: rest <= 1000}
		for range min(rest, 1000) {
			plan.Deliveries = append(plan.Deliveries, w.delivery(row, outbox.Endpoint{ID: outbox.NewEndpointID(w.now)}, 1))
		}
		slices.SortFunc(plan.Deliveries, func(a, b outbox.Delivery) int { return bytes.Compare(a.Endpoint[:], b.Endpoint[:]) })
		w.routePlans([]outbox.Plan{plan}, nil)
		row.After = plan.Deliveries[len(plan.Deliveries)-1].Endpoint
	}
	return row.Event
}
