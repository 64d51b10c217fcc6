package postgres_test

import (
	"testing"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// Every hot statement runs against tables that are large, and that the planner knows nothing
// about, and must not read one from end to end. The server itself counts such reads.
func TestStore_hotStatementsReadNoWholeTable(t *testing.T) {
	a := newBacklog(t, outbox.OrderingNone)
	ctx, tenant, e, now := t.Context(), a.tenant, a.endpoint, a.now
	a.must(`ALTER TABLE waybill.delivery SET (autovacuum_enabled = off)`)
	a.must(`ALTER TABLE waybill.outbox SET (autovacuum_enabled = off)`)
	// A backlog of somebody else's, in the same shard.
	a.must(`
		INSERT INTO waybill.delivery (shard, dlv, tenant, endpoint, event, event_type, sequence, next_at, sendable_at)
		SELECT $1, gen_random_uuid(), 999, ('00000000-0000-0000-0000-' || lpad((n % 50)::text, 12, '0'))::uuid, gen_random_uuid(), 'a.b', n + 1, now(), now()
		FROM generate_series(0, 199999) AS n`, int16(tenant.Shard))
	a.must(`
		INSERT INTO waybill.outbox (shard, kind, tenant, event)
		SELECT $1, 0, 999, gen_random_uuid()
		FROM generate_series(1, 50000) AS n`, int16(tenant.Shard))
	a.must(`
		INSERT INTO waybill.mark (shard, endpoint, next)
		SELECT $1, gen_random_uuid(), n
		FROM generate_series(1, 50000) AS n`, int16(tenant.Shard))
	a.must(`
		INSERT INTO waybill.event (shard, tenant, id, type, payload, sha256, created_at)
		SELECT $1, 999, (lpad(to_hex(floor(extract(epoch FROM now()) * 1000)::bigint), 12, '0') || '7' || substr(gen_random_uuid()::text, 16))::uuid, 'a.b', '\x7b7d', '\x', now()
		FROM generate_series(1, 50000) AS n`, int16(tenant.Shard))
	a.must(`
		INSERT INTO waybill.attempt (shard, dlv, n, id, tenant, endpoint, event, event_type, sequence, round, trigger, outcome, final, at, ended_at, duration, url, request_bytes, truncated)
		SELECT shard, id, 1, id, tenant, id, id, type, 1, 0, 'schedule', 'delivered', true, now(), now(), 1, '', 1, false
		FROM waybill.event`)
	before := a.scans()

	lease := a.lease()
	// Often enough that every statement has its final plan.
	for i := range 8 {
		event := newEvent(tenant)
		accepted, _, err := a.store.InsertEvents(ctx, []outbox.NewEvent{event})
		if err != nil {
			t.Fatal(err)
		}
		keyed := newEvent(tenant)
		keyed.IdempotencyKey = keyed.ID.String()
		if _, _, err := a.store.InsertEvents(ctx, []outbox.NewEvent{keyed}); err != nil {
			t.Fatal(err)
		}
		rows, err := a.store.ReadOutbox(ctx, []outbox.Shard{tenant.Shard}, []int64{accepted[0].Pos - 1}, 1)
		if err != nil || len(rows) != 1 {
			t.Fatal(rows, err)
		}
		if err := a.store.ReadEvents(ctx, rows, 1<<20); err != nil || rows[0].Source == nil {
			t.Fatal(rows, err)
		}
		next, err := a.store.NextSequences(ctx, map[outbox.EndpointID]outbox.Shard{e.ID: tenant.Shard})
		if err != nil {
			t.Fatal(err)
		}
		d := outbox.Delivery{
			Shard: tenant.Shard, ID: outbox.NewDeliveryID(event.ID, e.ID), Tenant: tenant.ID, Endpoint: e.ID, Event: event.ID,
			EventType: event.Type, Sequence: next[e.ID], NextAt: now, SendableAt: now,
		}
		routed, err := a.store.Route(ctx, lease, []outbox.Plan{{Row: rows[0], Deliveries: []outbox.Delivery{d}, Last: true, Matched: true}},
			map[outbox.EndpointID]int64{e.ID: d.Sequence + 1}, now)
		if err != nil || len(routed.Gone)+len(routed.Stale) > 0 {
			t.Fatal(routed, err)
		}
		fetched, err := a.store.FetchDue(ctx, []outbox.FetchRequest{{Shard: d.Shard, Endpoint: d.Endpoint, Limit: 10}}, now, 1<<20)
		if err != nil || len(fetched[0].Rows) != 1 {
			t.Fatal(fetched, err)
		}
		if _, err := a.store.Heads(ctx, []outbox.Shard{tenant.Shard}); err != nil {
			t.Fatal(err)
		}
		if first, err := a.store.HastenOldest(ctx, lease, outbox.OutboxRow{Shard: d.Shard, Endpoint: d.Endpoint}, now); err != nil || first.ID != d.ID {
			t.Fatal(first, err)
		}
		if ahead, err := a.store.Ahead(ctx, []outbox.Delivery{d}, 1000); err != nil || ahead[d.ID] != 0 {
			t.Fatal(ahead, err)
		}
		backlogs, err := a.store.Backlogs(ctx, tenant.TenantRef, []outbox.EndpointRow{{Shard: d.Shard, Endpoint: d.Endpoint}}, 1000)
		if err != nil || backlogs[e.ID].Pending != 1 {
			t.Fatal(backlogs, err)
		}
		attempt := &outbox.Attempt{ID: outbox.NewAttemptID(now), Trigger: outbox.TriggerSchedule, At: now, Outcome: outbox.OutcomeTransient, Kind: outbox.KindTimeout}
		results := []outbox.Result{{Delivery: d, Attempt: attempt, RetryAt: now, At: now}}
		if _, err := a.store.Finish(ctx, results); err != nil {
			t.Fatal(err)
		}
		d.Attempt++
		final := *attempt
		final.ID = outbox.NewAttemptID(now)
		end := outbox.Result{Delivery: d, Attempt: &final, At: now, Dead: outbox.DeadExhausted}
		if i%2 == 0 {
			final.Outcome, final.Kind = outbox.OutcomeDelivered, ""
			end.Dead, end.Delivered = "", true
		}
		if _, err := a.store.Finish(ctx, []outbox.Result{end}); err != nil {
			t.Fatal(err)
		}
		if _, err := a.store.Expire(ctx, lease, now.Add(-5*days), 1000, now); err != nil {
			t.Fatal(err)
		}
		// People's look-ups.
		if _, err := a.store.Delivery(ctx, outbox.TenantRef{}, d.ID); err != nil {
			t.Fatal(err)
		}
		if _, err := a.store.Attempts(ctx, tenant.TenantRef, d.ID, 0, outbox.Page{Limit: 10}); err != nil {
			t.Fatal(err)
		}
		if _, _, err := a.store.Deliveries(ctx, outbox.DeliveryQuery{Tenant: tenant.TenantRef, Endpoint: e.ID}, outbox.Page{Limit: 50}); err != nil {
			t.Fatal(err)
		}
		if _, _, err := a.store.Deliveries(ctx, outbox.DeliveryQuery{StatusCode: 404}, outbox.Page{Limit: 50}); err != nil {
			t.Fatal(err)
		}
		if _, _, err := a.store.Events(ctx, outbox.EventQuery{Tenant: tenant.TenantRef, State: outbox.EventFailed}, outbox.Page{Limit: 50}); err != nil {
			t.Fatal(err)
		}
	}
	a.close(a.store)
	for table, n := range a.scans() {
		if n > before[table] {
			t.Errorf("%s was read from end to end %d times", table, n-before[table])
		}
	}
}

// scans counts, by table, how often it was read from end to end.
func (a *application) scans() map[string]int64 {
	a.t.Helper()
	a.must(`SELECT pg_stat_force_next_flush()`)
	a.must(`SELECT pg_stat_clear_snapshot()`)
	rows, err := a.Query(a.t.Context(), `
		SELECT relname, coalesce(seq_scan, 0)
		FROM pg_stat_user_tables
		WHERE schemaname = 'waybill' AND (relname IN ('delivery', 'outbox', 'mark', 'dead_letter', 'idempotency') OR relname ~ '^(event|attempt)_2')`)
	if err != nil {
		a.t.Fatal(err)
	}
	defer rows.Close()
	scans := map[string]int64{}
	for rows.Next() {
		var table string
		var n int64
		if err := rows.Scan(&table, &n); err != nil {
			a.t.Fatal(err)
		}
		scans[table] = n
	}
	if rows.Err() != nil || len(scans) == 0 {
		a.t.Fatal("no statistics", rows.Err())
	}
	return scans
}

// Somebody's open snapshot keeps dead rows from being tidied up. The tail of the outbox is read
// behind them all the same.
func TestReadOutbox_tailIsCheapUnderAnOpenSnapshot(t *testing.T) {
	const dead = 50_000
	a := newApplication(t)
	ctx := t.Context()
	tenant := a.tenant()
	reader := connect(t, a.dsn)
	for _, statement := range []string{`BEGIN ISOLATION LEVEL REPEATABLE READ`, `SELECT count(*) FROM waybill.outbox`} {
		if _, err := reader.Exec(ctx, statement); err != nil {
			t.Fatal(err)
		}
	}
	a.must(`
		INSERT INTO waybill.outbox (shard, kind, tenant, event)
		SELECT $1, 0, 999, gen_random_uuid()
		FROM generate_series(1, $2) AS n`, int16(tenant.Shard), dead)
	a.must(`DELETE FROM waybill.outbox`)
	tip, err := a.store.OutboxTip(ctx)
	if err != nil {
		t.Fatal(err)
	}
	a.must(`SELECT waybill.publish('acme', 'a.b', '{}')`)
	a.close(a.store)
	entries := func(after int64) int64 {
		store := open(t, a.dsn)
		before := a.entriesRead("outbox")["outbox_pkey"]
		rows, err := store.ReadOutbox(ctx, []outbox.Shard{tenant.Shard}, []int64{after}, 100)
		if err != nil || len(rows) != 1 {
			t.Fatal(rows, err)
		}
		a.close(store)
		return a.entriesRead("outbox")["outbox_pkey"] - before
	}
	if n := entries(0); n < dead {
		t.Fatalf("the sweep met %d entries: it proves nothing", n)
	}
	if n := entries(tip); n > 100 {
		t.Errorf("the tail met %d entries", n)
	}
}
