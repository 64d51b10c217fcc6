package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype/zeronull"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// Backlogs implements outbox.Reading.
func (s *Store) Backlogs(ctx context.Context, tenant outbox.TenantRef, endpoints []outbox.EndpointRow, limit int) (map[outbox.EndpointID]outbox.Backlog, error) {
	of := map[outbox.EndpointID]outbox.Backlog{}
	err := s.read(ctx, people, func(b *pgx.Batch) {
		clear(of)
		// The index alone tells how many there are. The oldest is the one of the oldest event: of
		// live deliveries, replays and tests one row each is read.
		b.Queue(`
			SELECT w.id, p.n, p.oldest
			FROM waybill.endpoint AS w
			CROSS JOIN LATERAL (
				WITH counted AS MATERIALIZED (
					SELECT d.lane, d.dlv
					FROM waybill.delivery AS d
					WHERE d.shard = w.shard AND d.endpoint = w.id
					ORDER BY d.lane, d.next_at, d.dlv
					LIMIT $3
				)
				SELECT (SELECT count(*) FROM counted) AS n, min(d.sendable_at) AS oldest
				FROM (
					SELECT DISTINCT ON (lane) dlv
					FROM counted
					ORDER BY lane, dlv
				) AS first
				JOIN waybill.delivery AS d ON d.shard = w.shard AND d.dlv = first.dlv
			) AS p
			WHERE w.id = ANY ($1) AND ($2 = 0 OR w.tenant = $2) AND p.n > 0`,
			column(endpoints, func(e *outbox.EndpointRow) zeronull.UUID { return uuid(e.Endpoint) }), int64(tenant.ID), limit,
		).Query(func(rows pgx.Rows) error {
			var id outbox.EndpointID
			var found outbox.Backlog
			_, err := pgx.ForEachRow(rows, []any{intoID(&id), &found.Pending, &found.Oldest}, func() error {
				of[id] = found
				return nil
			})
			return err
		})
	})
	return of, err
}

// Ahead implements outbox.Reading.
func (s *Store) Ahead(ctx context.Context, deliveries []outbox.Delivery, limit int) (map[outbox.DeliveryID]int, error) {
	ahead := map[outbox.DeliveryID]int{}
	err := s.read(ctx, people, func(b *pgx.Batch) {
		b.Queue(`
			SELECT w.dlv, p.n
			FROM unnest($1::smallint[], $2::uuid[], $3::smallint[], $4::timestamptz[], $5::uuid[]) AS w (shard, endpoint, lane, next_at, dlv)
			CROSS JOIN LATERAL (
				SELECT count(*) AS n
				FROM (
					SELECT
					FROM waybill.delivery AS d
					WHERE d.shard = w.shard AND d.endpoint = w.endpoint AND d.lane = w.lane AND (d.next_at, d.dlv) < (w.next_at, w.dlv)
					LIMIT $6
				) AS before
			) AS p`,
			column(deliveries, func(d *outbox.Delivery) int16 { return int16(d.Shard) }),
			column(deliveries, func(d *outbox.Delivery) zeronull.UUID { return uuid(d.Endpoint) }),
			column(deliveries, func(d *outbox.Delivery) int16 { return int16(d.Lane) }),
			column(deliveries, func(d *outbox.Delivery) time.Time { return d.NextAt }),
			column(deliveries, func(d *outbox.Delivery) zeronull.UUID { return uuid(d.ID) }),
			limit,
		).Query(func(rows pgx.Rows) error {
			var id outbox.DeliveryID
			var n int
			_, err := pgx.ForEachRow(rows, []any{intoID(&id), &n}, func() error {
				ahead[id] = n
				return nil
			})
			return err
		})
	})
	return ahead, err
}

// Predecessors implements outbox.Reading.
func (s *Store) Predecessors(ctx context.Context, parked []outbox.Delivery) (map[outbox.DeliveryID]outbox.Predecessor, error) {
	of := map[outbox.DeliveryID]outbox.Predecessor{}
	err := s.read(ctx, people, func(b *pgx.Batch) {
		clear(of)
		b.Queue(`
			SELECT w.dlv, p.dlv, p.next_at
			FROM unnest($1::smallint[], $2::uuid[], $3::text[], $4::bigint[], $5::uuid[]) AS w (shard, endpoint, key, sequence, dlv)
			CROSS JOIN LATERAL (
				(
					SELECT d.dlv, d.next_at
					FROM waybill.delivery AS d
					WHERE d.shard = w.shard AND d.endpoint = w.endpoint AND `+keyOfD+` = w.key
						AND d.turn_at IS NOT NULL AND d.next_at < `+parkedAt+`
					LIMIT 1
				)
				UNION ALL
				(
					SELECT l.dlv, NULL
					FROM waybill.dead_letter AS l
					WHERE l.shard = w.shard AND l.endpoint = w.endpoint AND `+keyOfL+` = w.key
						AND l.holds AND l.sequence < w.sequence
					ORDER BY l.sequence
					LIMIT 1
				)
				LIMIT 1
			) AS p`,
			column(parked, func(d *outbox.Delivery) int16 { return int16(d.Shard) }),
			column(parked, func(d *outbox.Delivery) zeronull.UUID { return uuid(d.Endpoint) }),
			column(parked, func(d *outbox.Delivery) string { return d.OrderingKey }),
			column(parked, func(d *outbox.Delivery) int64 { return d.Sequence }),
			column(parked, func(d *outbox.Delivery) zeronull.UUID { return uuid(d.ID) }),
		).Query(func(rows pgx.Rows) error {
			var id, first outbox.DeliveryID
			var next *time.Time
			_, err := pgx.ForEachRow(rows, []any{intoID(&id), intoID(&first), &next}, func() error {
				p := outbox.Predecessor{ID: first, Dead: next == nil}
				if next != nil {
					p.NextAt = *next
				}
				of[id] = p
				return nil
			})
			return err
		})
	})
	return of, err
}

// HastenOldest implements outbox.Routing. It does its work even where the outbox row is gone: the
// answer of an earlier run may have been lost, and doing it twice meets the same delivery.
func (s *Store) HastenOldest(ctx context.Context, lease outbox.Lease, row outbox.OutboxRow, now time.Time) (*outbox.Delivery, error) {
	var f fence
	var found []outbox.Delivery
	err := s.transact(ctx, hot,
		func(b *pgx.Batch) error {
			f.queue(b, lease, map[outbox.Shard]bool{row.Shard: true})
			return nil
		},
		func(b *pgx.Batch) error {
			if err := f.check(); err != nil {
				return err
			}
			// A row that is locked is being ended or put off by a result.
			b.Queue(`
				WITH first AS (
					SELECT d.shard, d.dlv
					FROM waybill.delivery AS d
					WHERE d.shard = $1 AND d.endpoint = $2 AND d.next_at < $4
					ORDER BY d.lane, d.next_at, d.dlv
					LIMIT 1
					FOR UPDATE SKIP LOCKED
				)
				UPDATE waybill.delivery AS d
				SET next_at = least(d.next_at, $3)
				FROM first
				WHERE d.shard = first.shard AND d.dlv = first.dlv
				RETURNING `+deliveryColumns,
				int16(row.Shard), uuid(row.Endpoint), now, outbox.Parked,
			).Query(collectDeliveries(&found))
			b.Queue(`
				DELETE FROM waybill.outbox
				WHERE shard = $1 AND pos = $2`,
				int16(row.Shard), row.Pos)
			return nil
		},
	)
	if err != nil || len(found) == 0 {
		return nil, err
	}
	return &found[0], nil
}
