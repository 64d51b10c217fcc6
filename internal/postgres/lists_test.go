package postgres_test

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
	"github.com/waybill-dev/waybill/internal/postgres"
)

// Every list, filter and count is asked of a million rows that the planner knows well, most of
// them one tenant's. What a look may read is bounded by its page, not by what lies there: a plan
// that first collects a tenant's day and then sorts it answers within milliseconds here and after
// a minute at ten millions. The server itself counts the index entries that were met.
func TestStore_listsReadAFewRowsOfAMillion(t *testing.T) {
	b := newBacklog(t, outbox.OrderingNone)
	began := b.now.Add(-20 * time.Hour)
	b.seedMillion(began)

	scanned := b.scans()
	whose := map[string]outbox.TenantRef{"large tenant's": b.tenant.TenantRef, "operator's": {}}
	span := func(from, to int) (time.Time, time.Time) {
		return began.Add(time.Duration(from) * time.Hour), began.Add(time.Duration(to) * time.Hour)
	}
	type look struct {
		rows int // at least so many are found
		do   func(s *postgres.Store, whose outbox.TenantRef) (int, error)
	}
	deliveries := func(rows int, ascending bool, edit func(q *outbox.DeliveryQuery)) look {
		return look{rows, func(s *postgres.Store, whose outbox.TenantRef) (int, error) {
			q := outbox.DeliveryQuery{Tenant: whose}
			edit(&q)
			list, _, err := s.Deliveries(t.Context(), q, outbox.Page{Limit: 50, Ascending: ascending})
			return len(list), err
		}}
	}
	events := func(rows int, ascending bool, edit func(q *outbox.EventQuery)) look {
		return look{rows, func(s *postgres.Store, whose outbox.TenantRef) (int, error) {
			q := outbox.EventQuery{Tenant: whose}
			edit(&q)
			list, _, err := s.Events(t.Context(), q, outbox.Page{Limit: 50, Ascending: ascending})
			return len(list), err
		}}
	}
	counts := func(edit func(q *outbox.CountQuery)) look {
		return look{1, func(s *postgres.Store, whose outbox.TenantRef) (int, error) {
			if whose.ID == 0 {
				return 1, nil // there is no such count
			}
			q := outbox.CountQuery{Tenant: whose}
			edit(&q)
			found, err := s.CountDeliveries(t.Context(), q, 10_000)
			return found[outbox.StateDelivered].N, err
		}}
	}
	type (
		dq = *outbox.DeliveryQuery
		eq = *outbox.EventQuery
		cq = *outbox.CountQuery
	)
	looks := map[string]look{
		"deliveries":                 deliveries(50, false, func(dq) {}),
		"deliveries, oldest first":   deliveries(50, true, func(dq) {}),
		"deliveries of a day":        deliveries(50, false, func(q dq) { q.From, q.To = span(2, 18) }),
		"none of a day, from behind": deliveries(0, true, func(q dq) { q.From, q.To = span(2, 18); q.EventTypes = []string{"none"} }),
		"deliveries, none":           deliveries(0, false, func(q dq) { q.EventTypes = []string{"none"} }),
		"pending":                    deliveries(50, false, func(q dq) { q.States = []outbox.DeliveryState{outbox.StatePending} }),
		"dead of a day":              deliveries(50, false, func(q dq) { q.States = []outbox.DeliveryState{outbox.StateDead}; q.From, q.To = span(2, 18) }),
		"delivered of a day":         deliveries(50, false, func(q dq) { q.States = []outbox.DeliveryState{outbox.StateDelivered}; q.From, q.To = span(2, 18) }),
		"answered with 418":          deliveries(0, false, func(q dq) { q.StatusCode = 418 }),
		"pending that timed out":     deliveries(0, false, func(q dq) { q.States, q.Kind = []outbox.DeliveryState{outbox.StatePending}, outbox.KindTimeout }),
		"an endpoint's":              deliveries(50, false, func(q dq) { q.Endpoint = b.endpoint.ID }),
		"an endpoint's of a day":     deliveries(50, true, func(q dq) { q.Endpoint = b.endpoint.ID; q.From, q.To = span(2, 18) }),
		"events":                     events(50, false, func(eq) {}),
		"events, oldest first":       events(50, true, func(eq) {}),
		"events of a day":            events(50, false, func(q eq) { q.From, q.To = span(2, 18) }),
		"events, none of a day":      events(0, true, func(q eq) { q.From, q.To = span(2, 18); q.EventTypes = []string{"none"} }),
		"events that nobody routed":  events(50, true, func(eq) {}),
		"failed events":              events(0, false, func(q eq) { q.State = outbox.EventFailed }),
		"pending events":             events(50, false, func(q eq) { q.State = outbox.EventUnrouted }),
		"cancelled events of a day":  events(0, false, func(q eq) { q.State = outbox.EventCancelled; q.From, q.To = span(2, 18) }),
		"counts":                     counts(func(cq) {}),
		"counts of a day":            counts(func(q cq) { q.From, q.To = span(2, 18) }),
		"counts of an endpoint":      counts(func(q cq) { q.Endpoint = b.endpoint.ID }),
		"backlogs": {1, func(s *postgres.Store, whose outbox.TenantRef) (int, error) {
			found, err := s.Backlogs(t.Context(), whose, []outbox.EndpointRow{{Shard: b.tenant.Shard, Endpoint: b.endpoint.ID}}, 1000)
			return found[b.endpoint.ID].Pending / 1000, err
		}},
	}
	// A row that is read is looked for in two more tables at most, by keys that find one each.
	const most = 4 * outbox.MaxListScan
	for _, name := range slices.Sorted(maps.Keys(looks)) {
		for who, tenant := range whose {
			t.Run(who+" "+name, func(t *testing.T) {
				store := open(t, b.dsn)
				before := b.entriesMet()
				n, err := looks[name].do(store, tenant)
				if err != nil || n < looks[name].rows {
					t.Errorf("found %d, want %d: %v", n, looks[name].rows, err)
				}
				b.close(store)
				if met := b.entriesMet() - before; met > most {
					t.Errorf("%d index entries were met, at most %d are for a look", met, most)
				}
			})
		}
	}
	for table, n := range b.scans() {
		if n > scanned[table] {
			t.Errorf("%s was read from end to end %d times", table, n-scanned[table])
		}
	}
}

// seedMillion writes rows of the 20 hours from then on, in their order: three in four are the
// tenant's and its endpoint's, the others 250 tenants' in all shards. One event in four is
// pending after a try, one in ten is dead, the rest is delivered.
func (b *backlog) seedMillion(began time.Time) {
	b.t.Helper()
	b.close(b.store)
	shard, tenant, endpoint := int16(b.tenant.Shard), int64(b.tenant.ID), [16]byte(b.endpoint.ID)
	b.must(`
		CREATE TABLE seed AS
		SELECT n, at, type, CASE WHEN n % 4 = 1 THEN 'pending' WHEN n % 10 = 2 THEN 'dead' ELSE 'delivered' END AS fate,
			CASE WHEN n % 4 = 0 THEN (n / 4 % 250)::smallint ELSE $1 END AS shard,
			CASE WHEN n % 4 = 0 THEN 1000 + n / 4 % 250 ELSE $2 END AS tenant,
			CASE WHEN n % 4 = 0 THEN md5((n / 4 % 250)::text)::uuid ELSE $3 END AS endpoint,
			(ms || '7' || substr(md5('e' || n), 1, 19))::uuid AS event,
			(ms || substr(md5('d' || n), 1, 20))::uuid AS dlv,
			(ms || '7' || substr(md5('a' || n), 1, 19))::uuid AS attempt
		FROM (
			SELECT n, at, 'order.' || n % 5 AS type, lpad(to_hex(floor(extract(epoch FROM at) * 1000)::bigint), 12, '0') AS ms
			FROM (
				SELECT n, $4::timestamptz + n * interval '20 hours' / 360000 AS at
				FROM generate_series(0, 359999) AS n
			) AS moment
		) AS named`, shard, tenant, endpoint, began)
	for _, day := range []time.Time{began, b.now} {
		b.must(`SELECT waybill.add_partition(parent, $1) FROM unnest(ARRAY['event', 'attempt']) AS parent`, day.Format(time.DateOnly))
	}
	b.must(`INSERT INTO waybill.tenant (key) SELECT 'other-' || n FROM generate_series(1, 250) AS n`)
	b.must(`
		INSERT INTO waybill.event (shard, tenant, id, type, payload, sha256, created_at)
		SELECT shard, tenant, event, type, '\x7b7d', '\x00', at FROM seed ORDER BY n`)
	b.must(`
		INSERT INTO waybill.attempt (shard, dlv, n, id, tenant, endpoint, event, event_type, sequence, round, trigger, outcome, final, at, ended_at,
			duration, url, kind, status_code, request_bytes, truncated)
		SELECT shard, dlv, 1, attempt, tenant, endpoint, event, type, n + 1, 0, 'schedule',
			CASE fate WHEN 'pending' THEN 'transient' WHEN 'dead' THEN 'permanent' ELSE fate END, fate <> 'pending', at, CASE WHEN fate <> 'pending' THEN at END,
			1000, '', CASE WHEN fate <> 'delivered' THEN 'http_status' END, CASE fate WHEN 'delivered' THEN 200 ELSE 500 END, 2, false
		FROM seed ORDER BY n`)
	b.must(`
		INSERT INTO waybill.delivery (shard, dlv, tenant, endpoint, event, event_type, sequence, attempt, next_at, sendable_at)
		SELECT shard, dlv, tenant, endpoint, event, type, n + 1, 1, at + interval '1 day', at FROM seed WHERE fate = 'pending' ORDER BY n`)
	b.must(`
		INSERT INTO waybill.dead_letter (shard, dlv, tenant, endpoint, event, event_type, sequence, round, attempt, state, reason, sendable_at, at)
		SELECT shard, dlv, tenant, endpoint, event, type, n + 1, 0, 1, 'dead', 'permanent', at, at FROM seed WHERE fate = 'dead' ORDER BY n`)
	b.must(`DROP TABLE seed`)
	// Dispatch is down, and 40,000 events wait to be routed. They are the oldest.
	b.must(`
		INSERT INTO waybill.event (shard, tenant, id, type, payload, sha256, created_at)
		SELECT $1, $2, (lpad(to_hex(floor(extract(epoch FROM $3::timestamptz) * 1000)::bigint - 1), 12, '0') || '7' || substr(md5('w' || n), 1, 19))::uuid,
			'waiting', '\x7b7d', '\x00', $3
		FROM generate_series(1, 40000) AS n`, shard, tenant, began)
	b.must(`INSERT INTO waybill.outbox (shard, kind, tenant, event) SELECT shard, 0, tenant, id FROM waybill.event WHERE type = 'waiting' ORDER BY id`)
	b.must(`VACUUM (ANALYZE)`)
}

// entriesMet counts the index entries of the tables of deliveries and events that were met.
func (a *application) entriesMet() (n int64) {
	a.t.Helper()
	a.must(`SELECT pg_stat_clear_snapshot()`)
	err := a.QueryRow(a.t.Context(), `
		SELECT sum(idx_tup_read)::bigint
		FROM pg_stat_user_indexes
		WHERE schemaname = 'waybill' AND relname ~ '^(delivery|dead_letter|event|attempt|outbox)'`).Scan(&n)
	if err != nil {
		a.t.Fatal(err)
	}
	return n
}
