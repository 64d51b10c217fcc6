package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// snapshotAge is how old the proof's snapshot may grow before people are told: it keeps the
// database from tidying up.
const snapshotAge = 5 * time.Minute

// proof lets statements run long; they read whole tables.
var proof = limits{lock: 2 * time.Second, statement: 2 * time.Hour, plan: planEach, scans: true, snapshot: true}

// Verify implements outbox.Upkeep. Everything is read in one snapshot; what that shows is what
// was committed at one moment, whatever the nodes do meanwhile.
func (s *Store) Verify(ctx context.Context, deep bool) (outbox.Report, error) {
	began := time.Now()
	books := newBooks()
	var faults []numberFault
	var turns outbox.Check
	trips := []trip{func(b *pgx.Batch) error {
		books.queue(b)
		queueTurnFaults(b, &turns)
		return nil
	}}
	if deep {
		trips = append(trips, func(b *pgx.Batch) error {
			queueNumbers(b, &faults)
			return nil
		})
	}
	if err := s.transact(ctx, proof, trips...); err != nil {
		return outbox.Report{}, err
	}
	report := books.report()
	report.Checks = append(report.Checks, turns)
	if deep {
		check := outbox.Check{Name: "every number of every endpoint belongs to exactly one delivery"}
		for _, f := range faults {
			check.Broken = append(check.Broken, outbox.Imbalance{
				Where: fmt.Sprintf("endpoint %s, number %d", f.endpoint, f.number),
				Left:  1,
				Right: f.deliveries,
			})
		}
		report.Checks = append(report.Checks, check)
	}
	if age := time.Since(began); age > snapshotAge {
		report.Warning = fmt.Sprintf("the proof held a snapshot for %s; the database could not tidy up meanwhile", age.Round(time.Second))
	}
	return report, nil
}

// books are the sums of the proof, by shard and by shard and day.
type books struct {
	at     time.Time
	shards map[int16]*shardSums
	days   map[shardDay]*daySums
	// kept are the days whose events are still there; a retired day took its events along.
	kept map[string]bool
}

type shardDay struct {
	shard int16
	day   string // as in 2026-11-30
}

type shardSums struct {
	planned, delivered, dead, cancelled, replayed, revived, purged int64 // counted
	pending, deadRows, cancelledRows                               int64 // there now
}

type daySums struct {
	routed, matched, unmatched int64 // counted
	events, waiting            int64 // there now
}

func newBooks() *books {
	return &books{shards: map[int16]*shardSums{}, days: map[shardDay]*daySums{}, kept: map[string]bool{}}
}

func (b *books) shard(n int16) *shardSums {
	if b.shards[n] == nil {
		b.shards[n] = &shardSums{}
	}
	return b.shards[n]
}

func (b *books) day(k shardDay) *daySums {
	if b.days[k] == nil {
		b.days[k] = &daySums{}
	}
	return b.days[k]
}

func (b *books) queue(batch *pgx.Batch) {
	batch.Queue(`SELECT clock_timestamp()`).QueryRow(func(row pgx.Row) error { return row.Scan(&b.at) })
	batch.Queue(`
		SELECT shard, coalesce(sum(planned), 0)::bigint, coalesce(sum(delivered), 0)::bigint,
			coalesce(sum(dead), 0)::bigint, coalesce(sum(cancelled), 0)::bigint, coalesce(sum(replayed), 0)::bigint,
			coalesce(sum(revived), 0)::bigint, coalesce(sum(purged), 0)::bigint
		FROM waybill.ledger
		GROUP BY shard`,
	).Query(func(rows pgx.Rows) error {
		var shard int16
		var s shardSums
		_, err := pgx.ForEachRow(rows, []any{&shard, &s.planned, &s.delivered, &s.dead, &s.cancelled, &s.replayed, &s.revived, &s.purged}, func() error {
			*b.shard(shard) = s
			return nil
		})
		return err
	})
	batch.Queue(`
		SELECT shard, count(*)
		FROM waybill.delivery
		GROUP BY shard`,
	).Query(func(rows pgx.Rows) error {
		var shard int16
		var n int64
		_, err := pgx.ForEachRow(rows, []any{&shard, &n}, func() error {
			b.shard(shard).pending = n
			return nil
		})
		return err
	})
	batch.Queue(`
		SELECT shard, count(*) FILTER (WHERE state = 'dead'), count(*) FILTER (WHERE state = 'cancelled')
		FROM waybill.dead_letter
		GROUP BY shard`,
	).Query(func(rows pgx.Rows) error {
		var shard int16
		var dead, cancelled int64
		_, err := pgx.ForEachRow(rows, []any{&shard, &dead, &cancelled}, func() error {
			b.shard(shard).deadRows, b.shard(shard).cancelledRows = dead, cancelled
			return nil
		})
		return err
	})
	batch.Queue(`
		SELECT to_date(right(i.inhrelid::regclass::text, 8), 'YYYYMMDD')::text
		FROM pg_inherits AS i
		WHERE i.inhparent = 'waybill.event'::regclass AND NOT i.inhdetachpending`,
	).Query(func(rows pgx.Rows) error {
		var day string
		_, err := pgx.ForEachRow(rows, []any{&day}, func() error {
			b.kept[day] = true
			return nil
		})
		return err
	})
	batch.Queue(`
		SELECT shard, day::text, coalesce(sum(routed), 0)::bigint, coalesce(sum(matched), 0)::bigint, coalesce(sum(unmatched), 0)::bigint
		FROM waybill.ledger
		WHERE day IS NOT NULL
		GROUP BY shard, day`,
	).Query(func(rows pgx.Rows) error {
		var k shardDay
		var d daySums
		_, err := pgx.ForEachRow(rows, []any{&k.shard, &k.day, &d.routed, &d.matched, &d.unmatched}, func() error {
			*b.day(k) = d
			return nil
		})
		return err
	})
	batch.Queue(`
		SELECT shard, to_date(right(part::regclass::text, 8), 'YYYYMMDD')::text, n
		FROM (
			SELECT shard, tableoid AS part, count(*) AS n
			FROM waybill.event
			GROUP BY shard, tableoid
		) AS counted`,
	).Query(func(rows pgx.Rows) error {
		var k shardDay
		var n int64
		_, err := pgx.ForEachRow(rows, []any{&k.shard, &k.day, &n}, func() error {
			b.day(k).events = n
			return nil
		})
		return err
	})
	batch.Queue(`
		SELECT shard, day::text, count(*)
		FROM (
			SELECT shard,
				(to_timestamp(('x' || left(replace(event::text, '-', ''), 12))::bit(48)::bigint / 1000.0) AT TIME ZONE 'UTC')::date AS day
			FROM waybill.outbox
			WHERE kind = 0
		) AS waiting
		GROUP BY shard, day`,
	).Query(func(rows pgx.Rows) error {
		var k shardDay
		var n int64
		_, err := pgx.ForEachRow(rows, []any{&k.shard, &k.day, &n}, func() error {
			b.day(k).waiting = n
			return nil
		})
		return err
	})
}

// report compares.
func (b *books) report() outbox.Report {
	r := outbox.Report{At: b.at}
	planned := outbox.Check{Name: "planned = delivered + dead + cancelled + pending"}
	letters := outbox.Check{Name: "dead + cancelled - revived - purged = dead letters"}
	events := outbox.Check{Name: "routed + waiting = events"}
	matched := outbox.Check{Name: "routed = matched + unmatched"}
	compare := func(c *outbox.Check, where string, left, right int64) {
		if left != right {
			c.Broken = append(c.Broken, outbox.Imbalance{Where: where, Left: left, Right: right})
		}
	}
	for shard := range int16(outbox.Shards) {
		s, ok := b.shards[shard]
		if !ok {
			continue
		}
		where := fmt.Sprintf("shard %d", shard)
		compare(&planned, where, s.planned, s.delivered+s.dead+s.cancelled+s.pending)
		compare(&letters, where, s.dead+s.cancelled-s.revived-s.purged, s.deadRows+s.cancelledRows)
		r.Planned += s.planned
		r.Delivered += s.delivered
		r.Pending += s.pending
		r.Dead += s.dead
		r.Cancelled += s.cancelled
		r.Replayed += s.replayed
	}
	for k, d := range b.days {
		where := fmt.Sprintf("shard %d, events of %s", k.shard, k.day)
		if b.kept[k.day] {
			compare(&events, where, d.routed+d.waiting, d.events)
		}
		compare(&matched, where, d.routed, d.matched+d.unmatched)
		r.Events += d.events
		r.Routed += d.routed
		r.Matched += d.matched
		r.Unmatched += d.unmatched
		r.Waiting += d.waiting
	}
	r.Checks = []outbox.Check{planned, letters, events, matched}
	return r
}

// numberFault is a number of an endpoint that does not belong to exactly one delivery.
type numberFault struct {
	endpoint   outbox.EndpointID
	number     int64
	deliveries int64
}

// queueNumbers finds numbers that are missing, given twice, or beyond the endpoint's mark; 100 at
// most. Where days have been retired, the proof begins at the first number of an event that is
// younger than that: numbers are given in the order of planning, so whatever was planned after it
// ended after the cut-off too and must be there.
func queueNumbers(b *pgx.Batch, faults *[]numberFault) {
	b.Queue(`
		WITH numbered AS MATERIALIZED (
			SELECT shard, endpoint, sequence, dlv FROM waybill.delivery
			UNION
			SELECT shard, endpoint, sequence, dlv FROM waybill.dead_letter
			UNION
			SELECT shard, endpoint, sequence, dlv FROM waybill.attempt WHERE final
		),
		kept AS MATERIALIZED (
			SELECT kept_since > '-infinity' AS retired,
				CASE WHEN kept_since > '-infinity' THEN waybill.id_floor(kept_since + interval '2 days') END AS floor
			FROM waybill.setting
		),
		numbers AS MATERIALIZED (
			SELECT n.shard, n.endpoint, count(*) AS deliveries, count(DISTINCT n.sequence) AS numbers,
				max(n.sequence) AS high,
				min(n.sequence) FILTER (WHERE n.dlv >= kept.floor) AS certain
			FROM numbered AS n
			CROSS JOIN kept
			GROUP BY n.shard, n.endpoint
		),
		expected AS MATERIALIZED (
			SELECT coalesce(m.shard, n.shard) AS shard, coalesce(m.endpoint, n.endpoint) AS endpoint,
				CASE WHEN kept.retired THEN coalesce(n.certain, m.next) ELSE 1 END AS low,
				coalesce(m.next, 1) AS next, n.deliveries, n.numbers, n.high
			FROM (
				SELECT shard, endpoint, max(next) AS next
				FROM waybill.mark
				GROUP BY shard, endpoint
			) AS m
			FULL JOIN numbers AS n ON n.shard = m.shard AND n.endpoint = m.endpoint
			CROSS JOIN kept
		),
		suspect AS MATERIALIZED (
			SELECT e.*
			FROM expected AS e
			CROSS JOIN kept
			WHERE kept.retired
				OR coalesce(e.deliveries, 0) <> e.next - 1
				OR coalesce(e.numbers, 0) <> e.next - 1
				OR coalesce(e.high, 0) <> e.next - 1
		)
		SELECT e.endpoint, number, count(n.dlv)
		FROM suspect AS e
		CROSS JOIN LATERAL generate_series(e.low, e.next - 1) AS number
		LEFT JOIN numbered AS n ON n.shard = e.shard AND n.endpoint = e.endpoint AND n.sequence = number
		GROUP BY e.endpoint, number
		HAVING count(n.dlv) <> 1
		UNION ALL
		SELECT e.endpoint, n.sequence, count(*)
		FROM suspect AS e
		JOIN numbered AS n ON n.shard = e.shard AND n.endpoint = e.endpoint
		WHERE n.sequence >= e.next
		GROUP BY e.endpoint, n.sequence
		ORDER BY 1, 2
		LIMIT 100`,
	).Query(func(rows pgx.Rows) error {
		var f numberFault
		_, err := pgx.ForEachRow(rows, []any{intoID(&f.endpoint), &f.number, &f.deliveries}, func() error {
			*faults = append(*faults, f)
			return nil
		})
		return err
	})
}
