package postgres

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype/zeronull"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// Route implements outbox.Routing, in two round trips: one that takes the shards, compares the
// configuration and takes the outbox rows, and one that writes what they became.
func (s *Store) Route(ctx context.Context, lease outbox.Lease, plans []outbox.Plan, next map[outbox.EndpointID]int64, now time.Time) (outbox.Routed, error) {
	if len(plans) == 0 {
		return outbox.Routed{}, nil
	}
	var routed outbox.Routed
	err := plainly(func(passOver bool) (err error) {
		routed, err = s.route(ctx, lease, plans, next, now, passOver)
		return err
	})
	return routed, err
}

func (s *Store) route(ctx context.Context, lease outbox.Lease, plans []outbox.Plan, next map[outbox.EndpointID]int64, now time.Time, passOver bool) (outbox.Routed, error) {
	var routed outbox.Routed
	var f fence
	var parked []outbox.DeliveryID
	strict := strictOf(plans)
	taken := make(map[int64]rowTaken, len(plans))
	err := s.transact(ctx, hot,
		func(b *pgx.Batch) error {
			shards := map[outbox.Shard]bool{}
			for i := range plans {
				shards[plans[i].Row.Shard] = true
			}
			f.queue(b, lease, shards)
			queueStale(b, lease, shards, &routed.Stale)
			queueTakeRows(b, plans, taken)
			if strict != nil {
				strict.queueLook(b)
			}
			return nil
		},
		func(b *pgx.Batch) error {
			if err := f.check(); err != nil {
				return err
			}
			var written int
			for i := range plans {
				switch pos := plans[i].Row.Pos; taken[pos] {
				case rowGone:
					routed.Gone = append(routed.Gone, pos)
				case rowWritten:
					written++
				}
			}
			if len(routed.Gone) == 0 && written == len(plans) {
				return errNothingWritten // all of it was written by an earlier run of this call
			}
			if written > 0 {
				// The numbers of the others may depend on deliveries that this call will not insert.
				for i := range plans {
					if pos := plans[i].Row.Pos; taken[pos] == rowWritten {
						routed.Gone = append(routed.Gone, pos)
					}
				}
			}
			if len(routed.Gone) > 0 || len(routed.Stale) > 0 {
				return errNothingWritten
			}
			var stored map[outbox.DeliveryID]*outbox.Delivery
			stored, parked = strict.decide()
			queuePlans(b, plans, stored, outbox.JobID{}, now, passOver)
			queueMarks(b, plans, next)
			queueRoutedLedger(b, plans, now)
			return nil
		},
	)
	if errors.Is(err, errNothingWritten) {
		return routed, nil
	}
	if err != nil {
		return outbox.Routed{}, err
	}
	return outbox.Routed{Parked: parked}, nil
}

// queueStale finds the shards whose configuration is newer than what was planned with. Whoever
// published an event saw the endpoint it expects to be told committed, so the revision that
// belongs to that endpoint is in this statement's sight, whatever the node had loaded.
func queueStale(b *pgx.Batch, lease outbox.Lease, shards map[outbox.Shard]bool, stale *[]outbox.Shard) {
	var names []int16
	var known []int64
	for shard := range shards {
		names, known = append(names, int16(shard)), append(known, lease.Revisions[shard])
	}
	b.Queue(`
		SELECT mine.shard
		FROM unnest($1::smallint[], $2::bigint[]) AS mine (shard, revision)
		WHERE mine.revision <> (
			SELECT coalesce(sum(c.revision), 0)
			FROM waybill.shard_config AS c
			WHERE c.shard = mine.shard
		)
		ORDER BY mine.shard`,
		names, known,
	).Query(func(rows pgx.Rows) error {
		var shard int16
		_, err := pgx.ForEachRow(rows, []any{&shard}, func() error {
			*stale = append(*stale, outbox.Shard(shard))
			return nil
		})
		return err
	})
}

// rowTaken says what became of a plan's outbox row.
type rowTaken int

const (
	rowGone    rowTaken = iota // not there, or somewhere else than the plan was made from
	rowTook                    // deleted or moved on by this transaction
	rowWritten                 // moved on by an earlier run of this call, whose commit was never answered
)

// queueTakeRows deletes the outbox rows that are planned to their end and moves the others on,
// unless they are not where the plan was made from: a chunk must not be planned twice.
func queueTakeRows(b *pgx.Batch, plans []outbox.Plan, taken map[int64]rowTaken) {
	var ended, moved []*outbox.Plan
	for i := range plans {
		if plans[i].Last {
			ended = append(ended, &plans[i])
		} else {
			moved = append(moved, &plans[i])
		}
	}
	take := func(rows pgx.Rows) error {
		var pos int64
		_, err := pgx.ForEachRow(rows, []any{&pos}, func() error {
			taken[pos] = rowTook
			return nil
		})
		return err
	}
	byPosition := func(a, b *outbox.Plan) int {
		return cmp.Or(cmp.Compare(a.Row.Shard, b.Row.Shard), cmp.Compare(a.Row.Pos, b.Row.Pos))
	}
	slices.SortFunc(ended, byPosition)
	slices.SortFunc(moved, byPosition)
	shard := func(p **outbox.Plan) int16 { return int16((*p).Row.Shard) }
	pos := func(p **outbox.Plan) int64 { return (*p).Row.Pos }
	after := func(p **outbox.Plan) zeronull.UUID { return uuid((*p).Row.After) }
	// The shard is compared by ANY for the reason ofResult gives.
	if len(ended) > 0 {
		b.Queue(`
			DELETE FROM waybill.outbox AS o
			USING unnest($1::smallint[], $2::bigint[], $3::uuid[]) AS p (shard, pos, after)
			WHERE o.shard = ANY (ARRAY[p.shard]) AND o.pos = p.pos AND o.after IS NOT DISTINCT FROM p.after
			RETURNING o.pos`,
			column(ended, shard), column(ended, pos), column(ended, after),
		).Query(take)
	}
	if len(moved) > 0 {
		next := column(moved, func(p **outbox.Plan) zeronull.UUID {
			last := (*p).Deliveries[len((*p).Deliveries)-1]
			return uuid(last.Endpoint)
		})
		b.Queue(`
			SELECT o.pos
			FROM unnest($1::smallint[], $2::bigint[], $3::uuid[]) AS p (shard, pos, next)
			JOIN waybill.outbox AS o ON o.shard = ANY (ARRAY[p.shard]) AND o.pos = p.pos
			WHERE o.after = p.next`,
			column(moved, shard), column(moved, pos), next,
		).Query(func(rows pgx.Rows) error {
			var pos int64
			_, err := pgx.ForEachRow(rows, []any{&pos}, func() error {
				taken[pos] = rowWritten
				return nil
			})
			return err
		})
		b.Queue(`
			UPDATE waybill.outbox AS o
			SET after = p.next
			FROM unnest($1::smallint[], $2::bigint[], $3::uuid[], $4::uuid[]) AS p (shard, pos, after, next)
			WHERE o.shard = ANY (ARRAY[p.shard]) AND o.pos = p.pos AND o.after IS NOT DISTINCT FROM p.after
			RETURNING o.pos`,
			column(moved, shard), column(moved, pos), column(moved, after), next,
		).Query(take)
	}
}

// queuePlans inserts the deliveries and counts those that were really inserted. The strict ones
// are stored as it was decided. job is the job that plans them, zero for none. Those that are there
// already fail the statement, or are passed over.
func queuePlans(b *pgx.Batch, plans []outbox.Plan, strict map[outbox.DeliveryID]*outbox.Delivery, job outbox.JobID, now time.Time, passOver bool) {
	var all []*outbox.Delivery
	for i := range plans {
		for j := range plans[i].Deliveries {
			d := &plans[i].Deliveries[j]
			if d.Strict() {
				d = strict[d.ID]
			}
			all = append(all, d)
		}
	}
	if len(all) == 0 {
		return
	}
	b.Queue(`
		WITH planned AS (
			INSERT INTO waybill.delivery
				(shard, dlv, tenant, endpoint, event, event_type, sequence, ordering_key,
				round, attempt, round_start, lane, next_at, sendable_at, turn_at, job)
			SELECT shard, dlv, tenant, endpoint, event, event_type, sequence, ordering_key,
				round, attempt, round_start, lane, next_at, sendable_at, turn_at, $17
			FROM unnest($2::smallint[], $3::uuid[], $4::bigint[], $5::uuid[], $6::uuid[], $7::text[], $8::bigint[],
				$9::text[], $10::int[], $11::int[], $12::int[], $13::smallint[], $14::timestamptz[], $15::timestamptz[],
				$16::timestamptz[])
				AS new (shard, dlv, tenant, endpoint, event, event_type, sequence, ordering_key,
				round, attempt, round_start, lane, next_at, sendable_at, turn_at)
			`+passing(passOver, "(shard, dlv)")+`
			RETURNING shard
		)
		INSERT INTO waybill.ledger (shard, at, planned)
		SELECT shard, $1, count(*)
		FROM planned
		GROUP BY shard`,
		append(append([]any{now}, deliveryArrays(all)...), uuid(job))...)
}

// deliveryArrays are deliveries as arrays, in the order of deliveryColumns.
func deliveryArrays(all []*outbox.Delivery) []any {
	return []any{
		column(all, func(d **outbox.Delivery) int16 { return int16((*d).Shard) }),
		column(all, func(d **outbox.Delivery) zeronull.UUID { return uuid((*d).ID) }),
		column(all, func(d **outbox.Delivery) int64 { return int64((*d).Tenant) }),
		column(all, func(d **outbox.Delivery) zeronull.UUID { return uuid((*d).Endpoint) }),
		column(all, func(d **outbox.Delivery) zeronull.UUID { return uuid((*d).Event) }),
		column(all, func(d **outbox.Delivery) string { return (*d).EventType }),
		column(all, func(d **outbox.Delivery) int64 { return (*d).Sequence }),
		column(all, func(d **outbox.Delivery) zeronull.Text { return zeronull.Text((*d).OrderingKey) }),
		column(all, func(d **outbox.Delivery) int32 { return int32((*d).Round) }),
		column(all, func(d **outbox.Delivery) int32 { return int32((*d).Attempt) }),
		column(all, func(d **outbox.Delivery) int32 { return int32((*d).RoundStart) }),
		column(all, func(d **outbox.Delivery) int16 { return int16((*d).Lane) }),
		column(all, func(d **outbox.Delivery) time.Time { return (*d).NextAt }),
		column(all, func(d **outbox.Delivery) time.Time { return (*d).SendableAt }),
		column(all, func(d **outbox.Delivery) zeronull.Timestamptz { return at((*d).TurnAt) }),
	}
}

// queueMarks appends the next numbers of the endpoints.
func queueMarks(b *pgx.Batch, plans []outbox.Plan, next map[outbox.EndpointID]int64) {
	type mark struct {
		shard    outbox.Shard
		endpoint outbox.EndpointID
		next     int64
	}
	var marks []mark
	seen := make(map[outbox.EndpointID]bool, len(next))
	for i := range plans {
		for j := range plans[i].Deliveries {
			d := &plans[i].Deliveries[j]
			if n, ok := next[d.Endpoint]; ok && !seen[d.Endpoint] {
				seen[d.Endpoint] = true
				marks = append(marks, mark{d.Shard, d.Endpoint, n})
			}
		}
	}
	if len(marks) == 0 {
		return
	}
	b.Queue(`
		INSERT INTO waybill.mark (shard, endpoint, next)
		SELECT shard, endpoint, next
		FROM unnest($1::smallint[], $2::uuid[], $3::bigint[]) AS new (shard, endpoint, next)
		ON CONFLICT DO NOTHING`,
		column(marks, func(m *mark) int16 { return int16(m.shard) }),
		column(marks, func(m *mark) zeronull.UUID { return uuid(m.endpoint) }),
		column(marks, func(m *mark) int64 { return m.next }))
}

// queueRoutedLedger counts the events whose outbox rows this transaction deleted, by their day.
// It may count plans, because the transaction ends without a trace unless every row was there.
func queueRoutedLedger(b *pgx.Batch, plans []outbox.Plan, now time.Time) {
	type place struct {
		shard outbox.Shard
		day   time.Time
	}
	type count struct {
		place
		routed, matched, unmatched int64
	}
	counts := map[place]*count{}
	for i := range plans {
		p := &plans[i]
		if !p.Last {
			continue
		}
		at := place{p.Row.Shard, p.Row.Event.Day()}
		c := counts[at]
		if c == nil {
			c = &count{place: at}
			counts[at] = c
		}
		c.routed++
		if p.Matched {
			c.matched++
		} else {
			c.unmatched++
		}
	}
	if len(counts) == 0 {
		return
	}
	rows := make([]*count, 0, len(counts))
	for _, c := range counts {
		rows = append(rows, c)
	}
	b.Queue(`
		INSERT INTO waybill.ledger (shard, at, day, routed, matched, unmatched)
		SELECT shard, $1, day, routed, matched, unmatched
		FROM unnest($2::smallint[], $3::date[], $4::bigint[], $5::bigint[], $6::bigint[])
			AS new (shard, day, routed, matched, unmatched)`,
		now,
		column(rows, func(c **count) int16 { return int16((*c).shard) }),
		column(rows, func(c **count) time.Time { return (*c).day }),
		column(rows, func(c **count) int64 { return (*c).routed }),
		column(rows, func(c **count) int64 { return (*c).matched }),
		column(rows, func(c **count) int64 { return (*c).unmatched }))
}
