package outboxtest

import (
	"bytes"
	"slices"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

var health = topic{"health of endpoints", []promise{
	{"everything that was learned comes back", healthComesBack},
	{"a later row replaces an earlier one", healthIsReplaced},
	{"rows of a shard that was lost are passed over", healthOfLostShard},
	{"a tenant's health is its own", healthOfTenant},
}}

// learned is health with every field set.
func (w *world) learned(e outbox.Endpoint) outbox.EndpointHealth {
	return outbox.EndpointHealth{
		Shard: e.Tenant.Shard, Tenant: e.Tenant.ID, Endpoint: e.ID,
		Breaker: outbox.BreakerOpen, NextProbeAt: w.now.Add(30*time.Second + 7*time.Microsecond), Cooldown: 30 * time.Second,
		OpenedAt: w.now.Add(-time.Minute), ClosedAt: w.now.Add(-time.Hour), ConsecutiveFailures: 20,
		FailingSince: w.now.Add(-2 * time.Minute), FailedDays: 3, FailedDay: w.now.Truncate(24 * time.Hour), Failures: 41,
		Limit: 4, Rate: 12.5, PausedUntil: w.now.Add(time.Second), InFlight: 2, TenantInFlight: 9, Average: 123456 * time.Microsecond, SuccessAt: w.now.Add(-3 * time.Minute),
		Failure: outbox.FailureInfo{At: w.now, Kind: outbox.KindHTTPStatus, Message: "Your server answered 503 ☂.", StatusCode: 503},
		Outage:  outbox.Outage{From: w.now.Add(-2 * time.Minute), OpenedAt: w.now.Add(-time.Minute), To: w.now, Cause: outbox.FailureInfo{At: w.now.Add(-time.Minute), Kind: outbox.KindTimeout, Message: "No answer."}},
	}
}

func (w *world) writeHealth(rows ...outbox.EndpointHealth) {
	w.Helper()
	w.owned()
	w.must(w.store.WriteHealth(w.ctx, w.lease, rows, w.now))
}

// loadHealth reads what the next owner of the shards learns, in the order of the endpoints.
func (w *world) loadHealth(shards ...outbox.Shard) []outbox.EndpointHealth {
	w.Helper()
	found, err := w.store.LoadHealth(w.ctx, shards)
	w.must(err)
	slices.SortFunc(found, func(a, b outbox.EndpointHealth) int { return bytes.Compare(a.Endpoint[:], b.Endpoint[:]) })
	return found
}

// healthOf reads what a person sees of endpoints, who may look at the tenant's alone.
func (w *world) healthOf(tenant outbox.Tenant, endpoints ...outbox.Endpoint) map[outbox.EndpointID]outbox.EndpointHealth {
	w.Helper()
	of, err := w.store.HealthOf(w.ctx, tenant.TenantRef, rowsOf(endpoints...))
	w.must(err)
	return of
}

func rowsOf(endpoints ...outbox.Endpoint) []outbox.EndpointRow {
	rows := make([]outbox.EndpointRow, len(endpoints))
	for i, e := range endpoints {
		rows[i] = outbox.EndpointRow{Shard: e.Tenant.Shard, Endpoint: e.ID}
	}
	return rows
}

func healthComesBack(w *world) {
	acme := w.tenant("acme")
	sick, plain, unknown := w.endpoint(acme, "*"), w.endpoint(acme, "*"), w.endpoint(acme, "*")
	full := w.learned(sick)
	closed := outbox.EndpointHealth{Shard: acme.Shard, Tenant: acme.ID, Endpoint: plain.ID, Breaker: outbox.BreakerClosed}
	w.writeHealth()
	w.writeHealth(full, closed)
	want := []outbox.EndpointHealth{full, closed}
	slices.SortFunc(want, func(a, b outbox.EndpointHealth) int { return bytes.Compare(a.Endpoint[:], b.Endpoint[:]) })
	w.equal("for the next owner", w.loadHealth(acme.Shard), want)
	w.equal("for another shard's owner", w.loadHealth(acme.Shard+1), []outbox.EndpointHealth{})
	w.equal("for nobody", w.loadHealth(), []outbox.EndpointHealth{})
	w.equal("for people", w.healthOf(acme, sick, plain, unknown), map[outbox.EndpointID]outbox.EndpointHealth{sick.ID: full, plain.ID: closed})
	w.equal("of none", w.healthOf(acme), map[outbox.EndpointID]outbox.EndpointHealth{})
}

func healthIsReplaced(w *world) {
	acme := w.tenant("acme")
	e := w.endpoint(acme, "*")
	w.writeHealth(w.learned(e))
	w.now = w.now.Add(time.Minute)
	better := outbox.EndpointHealth{Shard: acme.Shard, Tenant: acme.ID, Endpoint: e.ID, Breaker: outbox.BreakerProbing, NextProbeAt: w.now}
	w.writeHealth(better)
	w.writeHealth(better)
	w.equal("after a later write", w.loadHealth(acme.Shard), []outbox.EndpointHealth{better})
}

func healthOfLostShard(w *world) {
	acme, globex := w.strangers("acme")
	kept, lost := w.endpoint(acme, "*"), w.endpoint(globex, "*")
	w.own()
	thief := w.join()
	w.take(thief, w.shards(thief)[globex.Shard])
	w.writeHealth(w.learned(lost), w.learned(kept))
	w.equal("of the shard that is held", w.loadHealth(acme.Shard), []outbox.EndpointHealth{w.learned(kept)})
	w.equal("of the shard that was lost", w.loadHealth(globex.Shard), []outbox.EndpointHealth{})
}

func healthOfTenant(w *world) {
	acme, globex := w.neighbours("acme")
	far := w.tenant("initech")
	mine, theirs, elsewhere := w.endpoint(acme, "*"), w.endpoint(globex, "*"), w.endpoint(far, "*")
	w.writeHealth(w.learned(mine), w.learned(theirs), w.learned(elsewhere))
	w.equal("of a foreign endpoint", w.healthOf(acme, theirs), map[outbox.EndpointID]outbox.EndpointHealth{})
	w.equal("of an own one", w.healthOf(globex, theirs, mine, elsewhere), map[outbox.EndpointID]outbox.EndpointHealth{theirs.ID: w.learned(theirs)})
	w.equal("for the operator", w.healthOf(outbox.Tenant{}, theirs, elsewhere),
		map[outbox.EndpointID]outbox.EndpointHealth{theirs.ID: w.learned(theirs), elsewhere.ID: w.learned(elsewhere)})
}
