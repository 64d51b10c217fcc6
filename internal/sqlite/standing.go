package sqlite

import (
	"context"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// PendingAttempts implements outbox.Dispatching.
func (s *Store) PendingAttempts(ctx context.Context, _ []outbox.Shard, ids []outbox.DeliveryID) (map[outbox.DeliveryID]int, error) {
	attempts := map[outbox.DeliveryID]int{}
	err := s.read(ctx, func(r *session) error {
		for _, id := range ids {
			err := r.each(`
				SELECT attempt
				FROM waybill_delivery
				WHERE dlv = ?`,
				[]any{id[:]},
				func(scan scan) error {
					var n int
					err := scan(&n)
					attempts[id] = n
					return err
				})
			if err != nil {
				return err
			}
		}
		return nil
	})
	return attempts, err
}
