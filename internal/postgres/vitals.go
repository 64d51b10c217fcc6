package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype/zeronull"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// Vitals implements outbox.Monitoring. The oldest rows are found shard by shard through the
// primary keys, events among the first thousand rows of their shard: a large replay may stand
// before them.
func (s *Store) Vitals(ctx context.Context, now time.Time) (outbox.Vitals, error) {
	var v outbox.Vitals
	err := s.read(ctx, people, func(b *pgx.Batch) {
		v = outbox.Vitals{}
		b.Queue(`
			SELECT coalesce(sum(planned - delivered - dead - cancelled), 0)::bigint,
			       coalesce(sum(dead + cancelled - revived - purged), 0)::bigint
			FROM (
				SELECT coalesce(planned, 0) AS planned, coalesce(delivered, 0) AS delivered, coalesce(dead, 0) AS dead,
				       coalesce(cancelled, 0) AS cancelled, coalesce(revived, 0) AS revived, coalesce(purged, 0) AS purged
				FROM waybill.ledger
			) AS l`,
		).QueryRow(func(row pgx.Row) error { return row.Scan(&v.Pending, &v.DeadLetters) })
		var oldest zeronull.UUID
		b.Queue(`
			SELECT d.dlv
			FROM generate_series(0, 255) AS s (shard)
			CROSS JOIN LATERAL (
				SELECT dlv
				FROM waybill.delivery
				WHERE shard = s.shard
				ORDER BY dlv
				LIMIT 1
			) AS d
			ORDER BY d.dlv
			LIMIT 1`,
		).Query(func(rows pgx.Rows) error {
			_, err := pgx.ForEachRow(rows, []any{&oldest}, func() error {
				v.OldestPending = outbox.DeliveryID(oldest).Time()
				return nil
			})
			return err
		})
		b.Queue(`
			SELECT o.event
			FROM generate_series(0, 255) AS s (shard)
			CROSS JOIN LATERAL (
				SELECT event
				FROM (
					SELECT kind, event
					FROM waybill.outbox
					WHERE shard = s.shard
					ORDER BY pos
					LIMIT 1000
				) AS first
				WHERE kind = 0
				LIMIT 1
			) AS o
			ORDER BY o.event
			LIMIT 1`,
		).Query(func(rows pgx.Rows) error {
			_, err := pgx.ForEachRow(rows, []any{&oldest}, func() error {
				v.OldestUnrouted = outbox.EventID(oldest).Time()
				return nil
			})
			return err
		})
		b.Queue(`
			SELECT coalesce(extract(epoch FROM max(clock_timestamp() - xact_start)), 0)::float8, pg_database_size(current_database())
			FROM pg_stat_activity
			WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()`,
		).QueryRow(func(row pgx.Row) error {
			var seconds float64
			err := row.Scan(&seconds, &v.Bytes)
			v.OldestTransaction = time.Duration(seconds * float64(time.Second))
			return err
		})
	})
	if err != nil {
		return outbox.Vitals{}, err
	}
	days, err := s.partitions(ctx)
	if err != nil {
		return outbox.Vitals{}, err
	}
	there := map[time.Time]int{} // how many of the two tables have the day
	for _, p := range days {
		if p.attached {
			there[p.day]++
			if v.OldestDay.IsZero() || p.day.Before(v.OldestDay) {
				v.OldestDay = p.day
			}
		}
	}
	today := now.UTC().Truncate(day)
	for there[today.Add(time.Duration(v.PartitionDaysAhead+1)*day)] == 2 {
		v.PartitionDaysAhead++
	}
	return v, nil
}
