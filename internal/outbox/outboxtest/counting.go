package outboxtest

import (
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// counting follows six deliveries through every state, with a neighbour's beside them.
func counting(w *world) {
	acme, globex := w.neighbours("acme")
	e := w.endpoint(acme, "a.*")
	other := w.endpoint(acme, "b.*")
	w.endpoint(globex, "*")
	w.plannedMany(globex, "a.b", 9)
	start := w.now
	count := func(when string, q outbox.CountQuery, pending, delivered, dead, cancelled int) {
		w.Helper()
		got, err := w.store.CountDeliveries(w.ctx, q, 100)
		w.must(err)
		w.equal(when, got, map[outbox.DeliveryState]outbox.Count{
			outbox.StatePending: {N: pending}, outbox.StateDelivered: {N: delivered}, outbox.StateDead: {N: dead}, outbox.StateCancelled: {N: cancelled},
		})
	}
	all := outbox.CountQuery{Tenant: acme.TenantRef}
	count("before", all, 0, 0, 0, 0)
	mine := w.plannedMany(acme, "a.b", 4)
	w.now = w.now.Add(time.Hour)
	later := w.plannedMany(acme, "b.c", 2)
	count("planned", all, 6, 0, 0, 0)
	w.finish(w.delivered(mine[0]), w.failed(mine[1]), w.refused(mine[2]), w.refused(later[0]))
	count("some ended", all, 3, 1, 2, 0)
	count("of one endpoint", outbox.CountQuery{Tenant: acme.TenantRef, Endpoint: e.ID}, 2, 1, 1, 0)
	count("of the other", outbox.CountQuery{Tenant: acme.TenantRef, Endpoint: other.ID}, 1, 0, 1, 0)
	count("of the first hour", outbox.CountQuery{Tenant: acme.TenantRef, From: start, To: start.Add(time.Minute)}, 2, 1, 1, 0)
	count("of the second", outbox.CountQuery{Tenant: acme.TenantRef, From: start.Add(time.Minute)}, 1, 0, 1, 0)
	replayed := w.replay(mine[0])
	count("a delivered one is replayed", all, 4, 1, 2, 0)
	w.finish(w.delivered(replayed[0]))
	count("and delivered again", all, 3, 2, 2, 0)

	got, err := w.store.CountDeliveries(w.ctx, all, 2)
	w.must(err)
	w.equal("capped", got, map[outbox.DeliveryState]outbox.Count{
		outbox.StatePending: {N: 2, Capped: true}, outbox.StateDelivered: {N: 2, Capped: true}, outbox.StateDead: {N: 2, Capped: true}, outbox.StateCancelled: {Capped: true},
	})
}
