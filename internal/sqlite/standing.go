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

// Recorded implements outbox.Dispatching.
func (s *Store) Recorded(ctx context.Context, _ []outbox.Shard, slots []outbox.HeldSlot) (map[outbox.DeliveryID]bool, error) {
	recorded := map[outbox.DeliveryID]bool{}
	err := s.read(ctx, func(r *session) error {
		for i := range slots {
			slot := &slots[i]
			var began outbox.AttemptID
			if !slot.Began.IsZero() {
				began = outbox.AttemptFloor(slot.Began)
			}
			var found bool
			if err := r.get(`
				SELECT EXISTS (SELECT 1 FROM waybill_attempt WHERE dlv = ? AND n = ? AND id >= ?)`,
				[]any{slot.Delivery[:], slot.Attempt + 1, began[:]}, &found); err != nil {
				return err
			}
			if found {
				recorded[slot.Delivery] = true
			}
		}
		return nil
	})
	return recorded, err
}
