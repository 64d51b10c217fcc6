package postgres_test

import (
	"testing"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// A hundred thousand deliveries wait behind one key. Ending the first, planning another behind
// them and reading what is due meet a few index entries each: the server counts them.
func TestStore_aBacklogBehindOneKeyCostsNothing(t *testing.T) {
	a := newBacklog(t, outbox.OrderingStrict)
	ctx, tenant, e, now := t.Context(), a.tenant, a.endpoint, a.now
	const backlog = 100_000
	shard, id := int16(tenant.Shard), e.ID[:]
	a.must(`ALTER TABLE waybill.delivery SET (autovacuum_enabled = off)`)
	a.must(`INSERT INTO waybill.endpoint_order (shard, endpoint, hold, state) VALUES ($1, encode($2, 'hex')::uuid, false, 'strict')`, shard, id)
	a.must(`
		INSERT INTO waybill.delivery (shard, dlv, tenant, endpoint, event, event_type, sequence, ordering_key, next_at, sendable_at, turn_at)
		SELECT $1, gen_random_uuid(), $3, encode($2, 'hex')::uuid, gen_random_uuid(), 'a.b', n, 'k',
			CASE n WHEN 1 THEN now() ELSE '9999-12-31 00:00:00+00' END, now(), CASE n WHEN 1 THEN now() ELSE '9999-12-31 00:00:00+00' END
		FROM generate_series(1, $4::bigint) AS n`, shard, id, int64(tenant.ID), int64(backlog))

	lease := a.lease()
	before := a.indexReads()
	const rounds = 20
	for i := range int64(rounds) {
		due, err := a.store.FetchDue(ctx, []outbox.FetchRequest{{Shard: tenant.Shard, Endpoint: e.ID, Limit: 100}}, now.Add(time.Hour), 1<<20)
		if err != nil || len(due[0].Rows) != 1 || due[0].Rows[0].Sequence != i+1 {
			t.Fatal(due, err)
		}
		done, err := a.store.Finish(ctx, []outbox.Result{{Delivery: due[0].Rows[0].Delivery, Delivered: true, At: now, Attempt: &outbox.Attempt{
			ID: outbox.NewAttemptID(now), Trigger: outbox.TriggerSchedule, At: now, Outcome: outbox.OutcomeDelivered, StatusCode: 200,
		}}})
		if err != nil || len(done.Freed) != 1 || done.Freed[0].Sequence != i+2 {
			t.Fatal(done, err)
		}
		event := newEvent(tenant)
		event.OrderingKey = "k"
		accepted, _, err := a.store.InsertEvents(ctx, []outbox.NewEvent{event})
		if err != nil {
			t.Fatal(err)
		}
		number := backlog + i + 1
		routed, err := a.store.Route(ctx, lease, []outbox.Plan{{
			Row:  outbox.OutboxRow{Shard: tenant.Shard, Pos: accepted[0].Pos, Tenant: tenant.ID, Event: event.ID},
			Last: true, Matched: true,
			Deliveries: []outbox.Delivery{{
				Shard: tenant.Shard, ID: outbox.NewDeliveryID(event.ID, e.ID), Tenant: tenant.ID, Endpoint: e.ID, Event: event.ID, EventType: "a.b",
				Sequence: number, OrderingKey: "k", NextAt: now, SendableAt: now, TurnAt: now,
			}},
		}}, map[outbox.EndpointID]int64{e.ID: number + 1}, now)
		if err != nil || len(routed.Parked) != 1 {
			t.Fatal(routed, err)
		}
		if heads, err := a.store.Heads(ctx, []outbox.Shard{tenant.Shard}); err != nil || len(heads) != 1 {
			t.Fatal(heads, err)
		}
	}
	a.close(a.store)
	if read := a.indexReads() - before; read > 100*rounds {
		t.Errorf("%d index entries were met in %d rounds", read, rounds)
	}
}

// indexReads counts the entries of the deliveries' indexes that were met.
func (a *application) indexReads() (n int64) {
	a.t.Helper()
	for _, read := range a.entriesRead("delivery", "dead_letter") {
		n += read
	}
	return n
}
