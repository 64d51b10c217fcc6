package postgres

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype/zeronull"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// Replay implements outbox.Routing, in three round trips: take the rows, look at what they ask
// for, write. The shards stay locked meanwhile, so that only a late result can interfere, and
// every write meets that by what its statement returns.
func (s *Store) Replay(ctx context.Context, lease outbox.Lease, rows []outbox.OutboxRow, now time.Time) ([]outbox.Delivery, error) {
	if len(rows) == 0 {
		return nil, nil
	}
	var f fence
	var r replays
	// planEach, because it looks at events and attempts of given days.
	err := s.transact(ctx, limits{lock: hot.lock, statement: hot.statement, plan: planEach},
		func(b *pgx.Batch) error {
			shards := map[outbox.Shard]bool{}
			for i := range rows {
				shards[rows[i].Shard] = true
			}
			f.queue(b, lease, shards)
			r.queueTake(b, rows)
			return nil
		},
		func(b *pgx.Batch) error {
			if err := f.check(); err != nil {
				return err
			}
			r.queueLook(b, now)
			return nil
		},
		func(b *pgx.Batch) error {
			r.queueWrite(b, now)
			return nil
		},
	)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(r.due, func(d outbox.Delivery) bool { return d.Parked() }), nil
}

// replays follows the deliveries of one Replay call, or of one step of a job.
type replays struct {
	job     *outbox.Job   // nil: each was asked for by itself, and pending ones become due
	spacing time.Duration // between those of a job
	wanted  []wantedReplay
	pending map[outbox.DeliveryID]bool
	letters map[outbox.DeliveryID]bool // dead letters, of a job those it is about
	usable  map[outbox.DeliveryID]bool // event and endpoint still exist
	ended   map[outbox.DeliveryID]outbox.Delivery
	due     []outbox.Delivery

	planned, skipped int64 // of a job
}

type wantedReplay struct {
	shard    outbox.Shard
	tenant   outbox.TenantID
	dlv      outbox.DeliveryID
	event    outbox.EventID
	endpoint outbox.EndpointID
	nextAt   time.Time // once it is planned
}

func (r *replays) queueTake(b *pgx.Batch, rows []outbox.OutboxRow) {
	byPos := make(map[int64]*outbox.OutboxRow, len(rows))
	for i := range rows {
		byPos[rows[i].Pos] = &rows[i]
	}
	seen := map[outbox.DeliveryID]bool{}
	b.Queue(`
		DELETE FROM waybill.outbox AS o
		USING unnest($1::smallint[], $2::bigint[]) AS p (shard, pos)
		WHERE o.shard = ANY (ARRAY[p.shard]) AND o.pos = p.pos
		RETURNING o.pos`,
		column(rows, func(o *outbox.OutboxRow) int16 { return int16(o.Shard) }),
		column(rows, func(o *outbox.OutboxRow) int64 { return o.Pos }),
	).Query(func(taken pgx.Rows) error {
		var pos int64
		_, err := pgx.ForEachRow(taken, []any{&pos}, func() error {
			o := byPos[pos]
			dlv := outbox.NewDeliveryID(o.Event, o.Endpoint)
			if !seen[dlv] {
				seen[dlv] = true
				r.wanted = append(r.wanted, wantedReplay{shard: o.Shard, tenant: o.Tenant, dlv: dlv, event: o.Event, endpoint: o.Endpoint})
			}
			return nil
		})
		return err
	})
}

// queueLook makes pending deliveries due, locks the dead letters, and reads how the others ended.
// A job leaves pending ones alone.
func (r *replays) queueLook(b *pgx.Batch, now time.Time) {
	r.pending = map[outbox.DeliveryID]bool{}
	r.letters = map[outbox.DeliveryID]bool{}
	r.usable = map[outbox.DeliveryID]bool{}
	r.ended = map[outbox.DeliveryID]outbox.Delivery{}
	if len(r.wanted) == 0 {
		return
	}
	var days idRange
	for _, w := range r.wanted {
		days.add(w.event)
	}
	shards := column(r.wanted, func(w *wantedReplay) int16 { return int16(w.shard) })
	dlvs := column(r.wanted, func(w *wantedReplay) zeronull.UUID { return uuid(w.dlv) })
	tenants := column(r.wanted, func(w *wantedReplay) int64 { return int64(w.tenant) })
	if r.job == nil {
		b.Queue(`
			UPDATE waybill.delivery AS d
			SET next_at = CASE WHEN d.next_at = `+parkedAt+` THEN d.next_at ELSE $1 END
			FROM unnest($2::smallint[], $3::uuid[], $4::bigint[]) AS w (shard, dlv, tenant)
			WHERE `+ofWantedD+`
			RETURNING `+deliveryColumns,
			now, shards, dlvs, tenants,
		).Query(func(rows pgx.Rows) error {
			err := collectDeliveries(&r.due)(rows)
			for _, d := range r.due {
				r.pending[d.ID] = true
			}
			return err
		})
	} else {
		// The round is asked for to make it look at the row: an index that answers alone would, to a
		// planner that takes the table for empty, be as cheap to walk as to enter.
		b.Queue(`
			SELECT d.dlv, d.round
			FROM unnest($1::smallint[], $2::uuid[], $3::bigint[]) AS w (shard, dlv, tenant)
			JOIN waybill.delivery AS d ON `+ofWantedD,
			shards, dlvs, tenants,
		).Query(func(rows pgx.Rows) error {
			var id outbox.DeliveryID
			var round int
			_, err := pgx.ForEachRow(rows, []any{intoID(&id), &round}, func() error {
				r.pending[id] = true
				return nil
			})
			return err
		})
	}
	states, until := deadStates(r.job), time.Time{}
	if r.job != nil {
		until = r.job.CreatedAt
	}
	b.Queue(`
		SELECT l.dlv
		FROM unnest($1::smallint[], $2::uuid[], $3::bigint[]) AS w (shard, dlv, tenant)
		JOIN waybill.dead_letter AS l ON `+ofWanted("l")+`
		WHERE l.state = ANY ($4) AND ($5::timestamptz IS NULL OR l.at <= $5)
		FOR UPDATE OF l`,
		shards, dlvs, tenants, states, at(until),
	).Query(collectIDs(r.letters))
	queueUsable(b, r.wanted, days, r.usable)
	b.Queue(`
		SELECT w.n, a.event_type, a.sequence, a.ordering_key, a.round, a.n
		FROM unnest($1::smallint[], $2::uuid[]) WITH ORDINALITY AS w (shard, dlv, n)
		CROSS JOIN LATERAL (
			SELECT a.event_type, a.sequence, a.ordering_key, a.round, a.n, a.outcome, a.ended_at
			FROM waybill.attempt AS a
			WHERE a.shard = w.shard AND a.dlv = w.dlv AND a.id >= $3 AND a.final
			ORDER BY a.round DESC, a.n DESC
			LIMIT 1
		) AS a
		WHERE $4::timestamptz IS NULL OR a.outcome = 'delivered' AND a.ended_at <= $4`,
		shards, dlvs, uuid(outbox.AttemptFloor(days.low.Time().Add(-outbox.ChosenIDFuture))), at(until),
	).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			var n int
			var d outbox.Delivery
			if err := rows.Scan(&n, &d.EventType, &d.Sequence, intoText(&d.OrderingKey), &d.Round, &d.Attempt); err != nil {
				return err
			}
			w := r.wanted[n-1]
			d.Shard, d.Tenant, d.ID, d.Event, d.Endpoint = w.shard, w.tenant, w.dlv, w.event, w.endpoint
			r.ended[w.dlv] = d
		}
		return rows.Err()
	})
}

// queueWrite plans again what has ended: dead letters from their row, delivered ones from their
// last attempt.
func (r *replays) queueWrite(b *pgx.Batch, now time.Time) {
	var again []wantedReplay
	var delivered []*outbox.Delivery
	for _, w := range r.wanted {
		d, finished := r.ended[w.dlv]
		if r.job != nil {
			finished = finished && !r.letters[w.dlv] && r.job.Filter.State.Covers(outbox.StateDelivered)
			switch {
			case r.pending[w.dlv] || !r.letters[w.dlv] && !finished:
				continue // it is not what the job is about
			case !r.usable[w.dlv]:
				r.skipped++
			default:
				r.planned++
			}
		}
		if r.pending[w.dlv] || !r.usable[w.dlv] {
			continue
		}
		w.nextAt = now.Add(time.Duration(len(again)) * r.spacing)
		again = append(again, w)
		if finished {
			d.Round, d.RoundStart, d.Lane, d.NextAt, d.SendableAt = d.Round+1, d.Attempt, outbox.LaneReplay, w.nextAt, now
			delivered = append(delivered, &d)
		}
	}
	if len(again) == 0 {
		return
	}
	var job outbox.JobID
	if r.job != nil {
		job = r.job.ID
	}
	shards := column(again, func(w *wantedReplay) int16 { return int16(w.shard) })
	dlvs := column(again, func(w *wantedReplay) zeronull.UUID { return uuid(w.dlv) })
	tenants := column(again, func(w *wantedReplay) int64 { return int64(w.tenant) })
	b.Queue(`
		WITH revived AS (
			DELETE FROM waybill.dead_letter AS l
			USING unnest($2::smallint[], $3::uuid[], $4::bigint[], $5::timestamptz[]) AS w (shard, dlv, tenant, next_at)
			WHERE `+ofWanted("l")+`
			RETURNING l.*, w.next_at, CASE WHEN $6::uuid IS NOT NULL THEN to_jsonb(l) END AS was
		),
		planned AS (
			INSERT INTO waybill.delivery AS d
				(shard, dlv, tenant, endpoint, event, event_type, sequence, ordering_key,
				round, attempt, round_start, lane, next_at, sendable_at, turn_at, job, was)
			SELECT r.shard, dlv, tenant, r.endpoint, event, event_type, sequence, ordering_key,
				round + 1, attempt, attempt, 1, CASE WHEN o.shard IS NULL THEN r.next_at ELSE `+parkedAt+` END, $1,
				CASE WHEN o.shard IS NOT NULL THEN `+parkedAt+` END, $6, r.was
			FROM revived AS r
			LEFT JOIN waybill.endpoint_order AS o ON o.shard = r.shard AND o.endpoint = r.endpoint AND `+inOrder+`
			RETURNING `+deliveryColumns+`
		),
		counted AS (
			INSERT INTO waybill.ledger (shard, at, planned, replayed, revived)
			SELECT shard, $1, count(*), count(*), count(*)
			FROM planned
			GROUP BY shard
		)
		SELECT `+deliveryColumns+`
		FROM planned AS d`,
		now, shards, dlvs, tenants,
		column(again, func(w *wantedReplay) time.Time { return w.nextAt }), uuid(job),
	).Query(collectDeliveries(&r.due))
	if len(delivered) > 0 {
		queueDeliveredAgain(b, delivered, now, job, &r.due)
	}
	b.Queue(`
		WITH k AS (
			SELECT DISTINCT d.shard, d.endpoint, `+keyOfD+` AS key
			FROM unnest($2::smallint[], $3::uuid[], $4::bigint[]) AS w (shard, dlv, tenant)
			JOIN waybill.delivery AS d ON `+ofWantedD+`
			WHERE d.turn_at IS NOT NULL
		)`+giveTurns,
		now, shards, dlvs, tenants,
	).Query(collectDeliveries(&r.due))
}

// ofWanted finds the row of w (shard, dlv, tenant) in a table that has deliveries, for the reason
// and in the way that ofResult gives.
func ofWanted(table string) string {
	return table + ".shard = ANY (ARRAY[w.shard]) AND " + table + ".tenant = w.tenant AND " + table + ".dlv = w.dlv"
}

// ofWantedD is ofWanted for a delivery d.
const ofWantedD = "d.shard = ANY (ARRAY[w.shard]) AND d.tenant = w.tenant AND d.dlv = w.dlv"

// collectIDs notes the deliveries that a query finds.
func collectIDs(into map[outbox.DeliveryID]bool) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		var id outbox.DeliveryID
		_, err := pgx.ForEachRow(rows, []any{intoID(&id)}, func() error {
			into[id] = true
			return nil
		})
		return err
	}
}

// queueDeliveredAgain plans deliveries that were delivered.
func queueDeliveredAgain(b *pgx.Batch, delivered []*outbox.Delivery, now time.Time, job outbox.JobID, due *[]outbox.Delivery) {
	// A dead letter was planned by the statement before, so its last attempt plans nothing here.
	b.Queue(`
		WITH planned AS (
			INSERT INTO waybill.delivery AS d
				(shard, dlv, tenant, endpoint, event, event_type, sequence, ordering_key,
				round, attempt, round_start, lane, next_at, sendable_at, turn_at, job, was)
			SELECT new.shard, dlv, tenant, new.endpoint, event, event_type, sequence, ordering_key,
				round, attempt, round_start, lane, CASE WHEN o.shard IS NULL THEN next_at ELSE `+parkedAt+` END, sendable_at,
				CASE WHEN o.shard IS NOT NULL THEN `+parkedAt+` END,
				$17, CASE WHEN $17::uuid IS NOT NULL THEN '{"state": "delivered"}'::jsonb END
			FROM unnest($2::smallint[], $3::uuid[], $4::bigint[], $5::uuid[], $6::uuid[], $7::text[], $8::bigint[],
				$9::text[], $10::int[], $11::int[], $12::int[], $13::smallint[], $14::timestamptz[], $15::timestamptz[],
				$16::timestamptz[])
				AS new (shard, dlv, tenant, endpoint, event, event_type, sequence, ordering_key,
				round, attempt, round_start, lane, next_at, sendable_at, turn_at)
			LEFT JOIN waybill.endpoint_order AS o ON o.shard = new.shard AND o.endpoint = new.endpoint AND `+inOrder+`
			ON CONFLICT (shard, dlv) DO NOTHING
			RETURNING `+deliveryColumns+`
		),
		counted AS (
			INSERT INTO waybill.ledger (shard, at, planned, replayed)
			SELECT shard, $1, count(*), count(*)
			FROM planned
			GROUP BY shard
		)
		SELECT `+deliveryColumns+`
		FROM planned AS d`,
		append(append([]any{now}, deliveryArrays(delivered)...), uuid(job))...,
	).Query(collectDeliveries(due))
}

// queueUsable finds those whose event, of the days, and endpoint still exist.
func queueUsable(b *pgx.Batch, wanted []wantedReplay, days idRange, usable map[outbox.DeliveryID]bool) {
	b.Queue(`
		SELECT w.n
		FROM unnest($1::smallint[], $2::bigint[], $3::uuid[], $4::uuid[]) WITH ORDINALITY AS w (shard, tenant, id, endpoint, n)
		JOIN waybill.endpoint AS ep ON ep.id = w.endpoint AND ep.deleted_at IS NULL
		CROSS JOIN LATERAL (`+eventOfW+`) AS e
		WHERE NOT `+erased,
		column(wanted, func(w *wantedReplay) int16 { return int16(w.shard) }),
		column(wanted, func(w *wantedReplay) int64 { return int64(w.tenant) }),
		column(wanted, func(w *wantedReplay) zeronull.UUID { return uuid(w.event) }),
		column(wanted, func(w *wantedReplay) zeronull.UUID { return uuid(w.endpoint) }),
		uuid(days.low), uuid(days.high),
	).Query(func(rows pgx.Rows) error {
		var n int
		_, err := pgx.ForEachRow(rows, []any{&n}, func() error {
			usable[wanted[n-1].dlv] = true
			return nil
		})
		return err
	})
}
