package postgres_test

import (
	"testing"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// Queue tables are analyzed when they happen to be empty, and a flood comes before they are again.
// Routing and finishing must find their rows by their keys all the same: a plan that walks the
// table for every batch stops everybody for seconds. The server itself counts the index entries.
func TestStore_findsRowsByKeyWhateverTheStatisticsSay(t *testing.T) {
	a := newBacklog(t, outbox.OrderingNone)
	ctx, tenant, e, now := t.Context(), a.tenant, a.endpoint, a.now
	const flood = 50_000
	fill := func(rows int) {
		a.must(`
			INSERT INTO waybill.delivery (shard, dlv, tenant, endpoint, event, event_type, sequence, next_at, sendable_at)
			SELECT $1, gen_random_uuid(), 999, gen_random_uuid(), gen_random_uuid(), 'a.b', n, now(), now()
			FROM generate_series(1, $2) AS n`, int16(tenant.Shard), rows)
		a.must(`
			INSERT INTO waybill.dead_letter (shard, dlv, tenant, endpoint, event, event_type, sequence, round, attempt, state, reason, sendable_at, at)
			SELECT $1, gen_random_uuid(), 999, gen_random_uuid(), gen_random_uuid(), 'a.b', n, 0, 1, 'dead', 'exhausted', now(), now()
			FROM generate_series(1, $2) AS n`, int16(tenant.Shard), rows)
		a.must(`
			INSERT INTO waybill.outbox (shard, kind, tenant, event)
			SELECT $1, 0, 999, gen_random_uuid()
			FROM generate_series(1, $2) AS n`, int16(tenant.Shard), rows)
	}
	// Pages that hold nothing: what the planner goes by afterwards is their density.
	fill(5000)
	for _, table := range []string{"delivery", "outbox", "dead_letter"} {
		a.must(`ALTER TABLE waybill.` + table + ` SET (autovacuum_enabled = off)`)
		a.must(`DELETE FROM waybill.` + table)
		a.must(`VACUUM ANALYZE waybill.` + table)
	}
	fill(flood)
	lease := a.lease()
	before := a.entriesRead("delivery", "outbox", "dead_letter")
	const rounds = 8
	for i := range rounds {
		event := newEvent(tenant)
		accepted, _, err := a.store.InsertEvents(ctx, []outbox.NewEvent{event})
		if err != nil {
			t.Fatal(err)
		}
		row := outbox.OutboxRow{Shard: tenant.Shard, Pos: accepted[0].Pos, Tenant: tenant.ID, Event: event.ID, Source: &event.Event}
		d := outbox.Delivery{
			Shard: tenant.Shard, ID: outbox.NewDeliveryID(event.ID, e.ID), Tenant: tenant.ID, Endpoint: e.ID, Event: event.ID,
			EventType: event.Type, Sequence: int64(i + 1), NextAt: now, SendableAt: now,
		}
		routed, err := a.store.Route(ctx, lease, []outbox.Plan{{Row: row, Deliveries: []outbox.Delivery{d}, Last: true, Matched: true}},
			map[outbox.EndpointID]int64{e.ID: d.Sequence + 1}, now)
		if err != nil || len(routed.Gone)+len(routed.Stale) > 0 {
			t.Fatal(routed, err)
		}
		failed := &outbox.Attempt{ID: outbox.NewAttemptID(now), Trigger: outbox.TriggerSchedule, At: now, Outcome: outbox.OutcomeTransient, Kind: outbox.KindTimeout}
		if _, err := a.store.Finish(ctx, []outbox.Result{{Delivery: d, Attempt: failed, RetryAt: now, At: now}}); err != nil {
			t.Fatal(err)
		}
		shards, held := []outbox.Shard{d.Shard}, []outbox.HeldSlot{{Delivery: d.ID, Began: now.Add(-time.Second)}}
		if tries, err := a.store.PendingAttempts(ctx, shards, []outbox.DeliveryID{d.ID}); err != nil || tries[d.ID] != 1 {
			t.Fatal(tries, err)
		}
		if recorded, err := a.store.Recorded(ctx, shards, held); err != nil || !recorded[d.ID] {
			t.Fatal(recorded, err)
		}
		if view, err := a.store.Delivery(ctx, tenant.TenantRef, d.ID); err != nil || view.State != outbox.StatePending {
			t.Fatal(view, err)
		}
		d.Attempt++
		last := *failed
		last.ID = outbox.NewAttemptID(now)
		end := outbox.Result{Delivery: d, Attempt: &last, At: now, Dead: outbox.DeadExhausted}
		if i%2 == 0 {
			last.Outcome, last.Kind = outbox.OutcomeDelivered, ""
			end.Dead, end.Delivered = "", true
		}
		if _, err := a.store.Finish(ctx, []outbox.Result{end}); err != nil {
			t.Fatal(err)
		}
		if i%4 < 2 {
			a.replayed(lease, tenant, d, now)
		}
	}
	job := outbox.Job{
		ID: outbox.NewJobID(now), Type: outbox.JobReplay, Tenant: tenant.TenantRef, TenantKey: tenant.Key, State: outbox.JobRunning,
		Filter: outbox.JobFilter{From: now.Add(-time.Hour), To: now.Add(time.Hour), State: outbox.ReplayAll}, CreatedBy: "test", CreatedAt: now.Add(time.Second),
	}
	if n, _, err := a.store.CountJob(ctx, job, 1000); err != nil || n != rounds/2 {
		t.Fatal(n, err)
	}
	job, err := a.store.CreateJob(ctx, job)
	if err != nil {
		t.Fatal(err)
	}
	step, err := a.store.StepJob(ctx, lease, job, 500, 0, now)
	if err != nil || len(step.Due) != rounds/2 {
		t.Fatal(step, err)
	}
	job.ID, job.Type, job.Filter.State, job.Key = outbox.NewJobID(now), outbox.JobCancellation, "", ""
	if job, err = a.store.CreateJob(ctx, job); err != nil {
		t.Fatal(err)
	}
	if step, err = a.store.StepJob(ctx, lease, job, 500, 0, now); err != nil || len(step.Ended) != rounds {
		t.Fatal(step, err)
	}
	a.close(a.store)
	for index, n := range a.entriesRead("delivery", "outbox", "dead_letter") {
		if read := n - before[index]; read > flood/2 {
			t.Errorf("%d entries of %s were read for %d rows", read, index, rounds)
		}
	}
}

// replayed asks for a delivery again, and plans it.
func (a *application) replayed(lease outbox.Lease, tenant outbox.Tenant, d outbox.Delivery, now time.Time) {
	a.t.Helper()
	ctx := a.t.Context()
	if _, err := a.store.RequestReplay(ctx, tenant.TenantRef, d.ID); err != nil {
		a.t.Fatal(err)
	}
	pos, err := a.store.OutboxTip(ctx)
	if err != nil {
		a.t.Fatal(err)
	}
	row := outbox.OutboxRow{Shard: tenant.Shard, Pos: pos, Kind: outbox.OutboxReplay, Tenant: tenant.ID, Event: d.Event, Endpoint: d.Endpoint}
	if due, err := a.store.Replay(ctx, lease, []outbox.OutboxRow{row}, now); err != nil || len(due) != 1 {
		a.t.Fatal(due, err)
	}
	if view, err := a.store.Delivery(ctx, tenant.TenantRef, d.ID); err != nil || view.State != outbox.StatePending {
		a.t.Fatal(view.State, err)
	}
}

// entriesRead counts, by index of the tables, the entries that were read.
func (a *application) entriesRead(tables ...string) map[string]int64 {
	a.t.Helper()
	a.must(`SELECT pg_stat_force_next_flush()`)
	a.must(`SELECT pg_stat_clear_snapshot()`)
	rows, err := a.Query(a.t.Context(), `
		SELECT indexrelname, coalesce(idx_tup_read, 0)
		FROM pg_stat_user_indexes
		WHERE schemaname = 'waybill' AND relname = ANY ($1)`, tables)
	if err != nil {
		a.t.Fatal(err)
	}
	defer rows.Close()
	reads := map[string]int64{}
	for rows.Next() {
		var index string
		var n int64
		if err := rows.Scan(&index, &n); err != nil {
			a.t.Fatal(err)
		}
		reads[index] = n
	}
	if rows.Err() != nil || len(reads) == 0 {
		a.t.Fatal("no statistics", rows.Err())
	}
	return reads
}
