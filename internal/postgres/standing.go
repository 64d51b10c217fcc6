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
			JOIN waybill.delivery AS d ON d.shard = ANY (ARRAY[w.shard]) AND d.dlv = w.dlv`,
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

// Recorded implements outbox.Dispatching. Every attempt asked for began within the last minute or
// so, which keeps the search to the newest partitions.
func (s *Store) Recorded(ctx context.Context, shards []outbox.Shard, slots []outbox.HeldSlot) (map[outbox.DeliveryID]bool, error) {
	recorded := map[outbox.DeliveryID]bool{}
	if len(slots) == 0 {
		return recorded, nil
	}
	began := func(slot *outbox.HeldSlot) outbox.AttemptID {
		if slot.Began.IsZero() {
			return firstAttempt(slot.Delivery)
		}
		return outbox.AttemptFloor(slot.Began)
	}
	earliest := began(&slots[0])
	for i := range slots {
		if id := began(&slots[i]); compareIDs(id, earliest) < 0 {
			earliest = id
		}
	}
	err := s.read(ctx, people, func(b *pgx.Batch) {
		b.Queue(`
			SELECT w.dlv
			FROM unnest($1::smallint[], $2::uuid[], $3::integer[], $4::uuid[]) AS w (shard, dlv, n, began)
			WHERE EXISTS (
				SELECT
				FROM waybill.attempt AS a
				WHERE a.shard = w.shard AND a.dlv = w.dlv AND a.n = w.n AND a.id >= w.began AND a.id >= $5
			)`,
			column(shards, func(s *outbox.Shard) int16 { return int16(*s) }),
			column(slots, func(slot *outbox.HeldSlot) [16]byte { return slot.Delivery }),
			column(slots, func(slot *outbox.HeldSlot) int32 { return int32(slot.Attempt + 1) }),
			column(slots, func(slot *outbox.HeldSlot) [16]byte { return began(slot) }),
			uuid(earliest),
		).Query(collectIDs(recorded))
	})
	return recorded, err
}
