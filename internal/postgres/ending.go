package postgres

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// bury is the end of a statement that begins with the sub-select doomed. It ends the deliveries which doomed names by (shard, tenant, dlv), as dead letters with
// a reason and a message, and leaves their ids in ended. Rows that somebody is finishing just now are left
// alone. It goes on with what is to be selected, as buried or otherwise. $1 now, $2 reason, $3
// message.
const bury = `
	ended AS (
		DELETE FROM waybill.delivery AS d
		USING doomed AS w
		WHERE ` + ofWantedD + `
		RETURNING d.*
	),
	told AS (
		INSERT INTO waybill.job_tally (shard, job, failed, skipped)
		SELECT shard, job, count(*) FILTER (WHERE $2 <> 'cancelled'), count(*) FILTER (WHERE $2 = 'cancelled')
		FROM ended
		WHERE job IS NOT NULL
		GROUP BY shard, job
	),
	kept AS (
		INSERT INTO waybill.dead_letter
			(shard, dlv, tenant, endpoint, event, event_type, sequence, ordering_key, round,
			attempt, state, reason, message, sendable_at, at, holds)
		SELECT shard, dlv, tenant, endpoint, event, event_type, sequence, ordering_key, round,
			attempt, CASE $2 WHEN 'cancelled' THEN 'cancelled' ELSE 'dead' END, $2, nullif($3, ''), sendable_at, $1,
			$2 <> 'cancelled' AND ` + holding + `
		FROM ended AS d
	),
	counted AS (
		INSERT INTO waybill.ledger (shard, at, dead, cancelled)
		SELECT shard, $1, count(*) FILTER (WHERE $2 <> 'cancelled'), count(*) FILTER (WHERE $2 = 'cancelled')
		FROM ended
		GROUP BY shard
	)
	SELECT dlv, endpoint, coalesce(ordering_key, ''), turn_at IS NOT NULL, shard`

// burial collects what a statement has ended.
type burial struct {
	ids  []outbox.DeliveryID
	of   []outbox.EndpointID // whose they were
	keys keySet              // whose turns may have to be given
}

func (e *burial) collect(rows pgx.Rows) error {
	return e.collectBounded(rows, func(outbox.Shard, outbox.DeliveryID) {})
}

// collectBounded is collect for a statement that also says, by rows without an endpoint, how far
// it has read in a shard where it did not reach the end.
func (e *burial) collectBounded(rows pgx.Rows, stopped func(outbox.Shard, outbox.DeliveryID)) error {
	var id outbox.DeliveryID
	var k orderKey
	var strict *bool
	_, err := pgx.ForEachRow(rows, []any{intoID(&id), intoID(&k.endpoint), intoText(&k.key), &strict, intoShard(&k.shard)}, func() error {
		if strict == nil {
			stopped(k.shard, id)
			return nil
		}
		e.ids, e.of = append(e.ids, id), append(e.of, k.endpoint)
		if *strict {
			e.keys.add(k)
		}
		return nil
	})
	return err
}

// Cancel implements outbox.Routing.
func (s *Store) Cancel(ctx context.Context, lease outbox.Lease, row outbox.OutboxRow, limit int, now time.Time) (ended outbox.Ended, done bool, err error) {
	var of string
	var who any
	switch row.Command.Name {
	case outbox.CommandCancelEndpoint:
		of, who = "d.endpoint = $5", uuid(row.Endpoint)
	case outbox.CommandCancelTenant:
		of, who = "d.tenant = $5", int64(row.Tenant)
	default:
		return ended, false, fmt.Errorf("outbox row %d: unknown command %q", row.Pos, row.Command.Name)
	}
	var f fence
	var exists, left bool
	var buried burial
	var released int
	err = s.transact(ctx, hot,
		func(b *pgx.Batch) error {
			f.queue(b, lease, map[outbox.Shard]bool{row.Shard: true})
			b.Queue(`
				SELECT true
				FROM waybill.outbox
				WHERE shard = $1 AND pos = $2
				FOR UPDATE`,
				int16(row.Shard), row.Pos,
			).Query(func(rows pgx.Rows) error {
				exists = rows.Next()
				rows.Close()
				return rows.Err()
			})
			return nil
		},
		func(b *pgx.Batch) error {
			if err := f.check(); err != nil {
				return err
			}
			if !exists {
				return errNothingWritten
			}
			b.Queue(`
				WITH doomed AS (
					SELECT d.shard, d.tenant, d.dlv
					FROM waybill.delivery AS d
					WHERE d.shard = $4 AND `+of+` AND ($6::timestamptz IS NULL OR d.sendable_at <= $6)
					LIMIT $7
					FOR UPDATE SKIP LOCKED
				),`+bury+`
				FROM ended`,
				now, string(outbox.DeadCancelled), storable(row.Command.Reason),
				int16(row.Shard), who, at(row.Command.Before), limit,
			).Query(buried.collect)
			if row.Command.Name == outbox.CommandCancelEndpoint {
				queueLetGo(b, row, &buried.keys, &released)
			}
			b.Queue(`
				SELECT EXISTS (
					SELECT
					FROM waybill.delivery AS d
					WHERE d.shard = $1 AND `+of[:len(of)-1]+`2 AND ($3::timestamptz IS NULL OR d.sendable_at <= $3)
				)`,
				int16(row.Shard), who, at(row.Command.Before),
			).QueryRow(func(row pgx.Row) error { return row.Scan(&left) })
			return nil
		},
		func(b *pgx.Batch) error {
			queueTurns(b, buried.keys, now, &ended.Freed)
			left = left || released == letGo
			queueCancelled(b, row, len(buried.ids), !left, now)
			if !left {
				b.Queue(`
					DELETE FROM waybill.outbox
					WHERE shard = $1 AND pos = $2`,
					int16(row.Shard), row.Pos)
			}
			return nil
		},
	)
	if errors.Is(err, errNothingWritten) {
		return ended, true, nil // an earlier run of this call ended it
	}
	if err != nil {
		return outbox.Ended{}, false, err
	}
	ended.Deliveries, ended.Endpoints = buried.ids, buried.of
	return ended, !left, nil
}

// queueCancelled enters what a command has ended into its job, if it has one.
func queueCancelled(b *pgx.Batch, row outbox.OutboxRow, n int, last bool, now time.Time) {
	if row.Command.Job.IsZero() {
		return
	}
	b.Queue(`
		UPDATE waybill.job AS j
		SET done = CASE WHEN $4 THEN greatest(j.matched, j.done + $3) ELSE j.done + $3 END,
			matched = greatest(j.matched, j.done + $3),
			skipped = CASE WHEN $4 THEN greatest(j.matched - j.done - $3, 0) ELSE 0 END,
			scanned = $4,
			state = CASE WHEN $4 THEN 'done' ELSE j.state END,
			finished_at = CASE WHEN $4 THEN $5::timestamptz END
		WHERE j.shard = $1 AND j.id = $2 AND j.state = 'running'`,
		int16(row.Shard), uuid(row.Command.Job), int64(n), last, now)
}

// letGo is how many dead letters let go of their keys in one transaction.
const letGo = 1000

// queueLetGo makes dead letters of the command's endpoint hold nothing any more.
func queueLetGo(b *pgx.Batch, row outbox.OutboxRow, keys *keySet, n *int) {
	b.Queue(`
		UPDATE waybill.dead_letter AS l
		SET holds = false
		FROM (
			SELECT l.shard, l.tenant, l.dlv
			FROM waybill.dead_letter AS l
			WHERE l.shard = $1 AND l.endpoint = $2 AND l.holds AND ($3::timestamptz IS NULL OR l.sendable_at <= $3)
			LIMIT $4
		) AS w
		WHERE `+ofWanted("l")+`
		RETURNING l.endpoint, coalesce(l.ordering_key, ''), l.shard`,
		int16(row.Shard), uuid(row.Endpoint), at(row.Command.Before), letGo,
	).Query(func(rows pgx.Rows) error {
		var k orderKey
		_, err := pgx.ForEachRow(rows, []any{intoID(&k.endpoint), &k.key, intoShard(&k.shard)}, func() error {
			keys.add(k)
			*n++
			return nil
		})
		return err
	})
}

// Expire implements outbox.Dispatching. No index is kept for it: a delivery is planned after its
// event's time, give or take how far ahead an id may be chosen, so the old ones lie at the start
// of the key. Among them may be many that were replayed lately; a cursor for each shard
// keeps a call from meeting the same ones again and again.
func (s *Store) Expire(ctx context.Context, lease outbox.Lease, before time.Time, limit int, now time.Time) (outbox.Ended, error) {
	var f fence
	var buried burial
	var ended outbox.Ended
	shards, _ := leaseColumns(lease)
	if len(shards) == 0 {
		return ended, nil
	}
	from := s.expiry.of(shards)
	read := map[int16]outbox.DeliveryID{} // how far, where the end was not reached
	err := s.transact(ctx, hot,
		func(b *pgx.Batch) error {
			held := map[outbox.Shard]bool{}
			for _, shard := range shards {
				held[outbox.Shard(shard)] = true
			}
			f.queue(b, lease, held)
			return nil
		},
		func(b *pgx.Batch) error {
			if err := f.check(); err != nil {
				return err
			}
			b.Queue(`
				WITH seen AS MATERIALIZED (
					SELECT d.shard, d.tenant, d.dlv, d.sendable_at
					FROM unnest($4::smallint[], $5::uuid[]) AS s (shard, dlv)
					CROSS JOIN LATERAL (
						SELECT d.shard, d.tenant, d.dlv, d.sendable_at
						FROM waybill.delivery AS d
						WHERE d.shard = s.shard AND d.dlv > s.dlv AND d.dlv < $6
						ORDER BY d.dlv
						LIMIT $7
					) AS d
				),
				doomed AS (
					SELECT d.shard, d.tenant, d.dlv
					FROM seen AS w
					JOIN waybill.delivery AS d ON `+ofWantedD+`
					WHERE w.sendable_at < $8
					LIMIT $9
					FOR UPDATE OF d SKIP LOCKED
				),`+bury+`
				FROM ended
				UNION ALL
				SELECT (array_agg(dlv ORDER BY dlv DESC))[1], NULL, NULL, NULL, shard
				FROM seen
				GROUP BY shard
				HAVING count(*) >= $7`,
				now, string(outbox.DeadExpired), outbox.ReasonExpired,
				shards, from, uuid(expiryBound(before)), outbox.MaxListScan, before, limit,
			).Query(func(rows pgx.Rows) error {
				return buried.collectBounded(rows, func(shard outbox.Shard, last outbox.DeliveryID) { read[int16(shard)] = last })
			})
			return nil
		},
		func(b *pgx.Batch) error {
			queueTurns(b, buried.keys, now, &ended.Freed)
			return nil
		},
	)
	if err != nil {
		return outbox.Ended{}, err
	}
	ended.Deliveries, ended.Endpoints = buried.ids, buried.of
	if len(buried.ids) < limit {
		s.expiry.moveOn(shards, read)
	}
	return ended, nil
}

// expiryBound is the smallest delivery id whose delivery cannot have been planned before the
// given time.
func expiryBound(before time.Time) outbox.DeliveryID {
	return outbox.DeliveryFloor(before.Add(outbox.ChosenIDFuture + time.Minute))
}

// expiryCursors remember, by shard, up to which delivery Expire has looked.
type expiryCursors struct {
	mu   sync.Mutex
	last map[int16]outbox.DeliveryID
}

func (c *expiryCursors) of(shards []int16) [][16]byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	from := make([][16]byte, len(shards))
	for i, shard := range shards {
		from[i] = c.last[shard]
	}
	return from
}

// moveOn goes behind what was read, or back to the start where the end was reached.
func (c *expiryCursors) moveOn(shards []int16, read map[int16]outbox.DeliveryID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.last == nil {
		c.last = map[int16]outbox.DeliveryID{}
	}
	for _, shard := range shards {
		if last, cut := read[shard]; cut {
			c.last[shard] = last
		} else {
			delete(c.last, shard)
		}
	}
}
