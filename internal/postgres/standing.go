package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// PendingAttempts implements outbox.Dispatching.
func (s *Store) PendingAttempts(ctx context.Context, shards []outbox.Shard, ids []outbox.DeliveryID) (map[outbox.DeliveryID]int, error) {
	attempts := map[outbox.DeliveryID]int{}
	err := s.transact(ctx, hot, func(b *pgx.Batch) error {
		b.Queue(`
			SELECT d.dlv, d.attempt
			FROM unnest($1::smallint[], $2::uuid[]) AS w (shard, dlv)
			JOIN waybill.delivery AS d ON d.shard = w.shard AND d.dlv = w.dlv`,
			column(shards, func(s *outbox.Shard) int16 { return int16(*s) }),
			column(ids, func(id *outbox.DeliveryID) [16]byte { return *id }),
		).Query(func(rows pgx.Rows) error {
			for rows.Next() {
				var id [16]byte
				var n int
				if err := rows.Scan(&id, &n); err != nil {
					return err
				}
				attempts[id] = n
			}
			return rows.Err()
		})
		return nil
	})
	return attempts, err
}
