package sqlite

import (
	"context"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// CountDeliveries counts the tenant's deliveries by state.
func (s *Store) CountDeliveries(ctx context.Context, q outbox.CountQuery, limit int) (map[outbox.DeliveryState]outbox.Count, error) {
	counts := map[outbox.DeliveryState]outbox.Count{}
	bounds := filter{}.and("tenant = ?", int64(q.Tenant.ID))
	if !q.Endpoint.IsZero() {
		bounds = bounds.and("endpoint = ?", q.Endpoint[:])
	}
	if !q.From.IsZero() {
		low := outbox.DeliveryFloor(q.From)
		bounds = bounds.and("dlv >= ?", low[:])
	}
	if !q.To.IsZero() {
		high := outbox.DeliveryFloor(q.To)
		bounds = bounds.and("dlv < ?", high[:])
	}
	err := s.read(ctx, func(r *session) error {
		count := func(table, state string, f filter) (all, cancelled int, err error) {
			where, args := f.sql()
			err = r.get(`
				SELECT count(*), count(*) FILTER (WHERE state = 'cancelled')
				FROM (
					SELECT `+state+` AS state
					FROM `+table+`
					WHERE `+where+`
					LIMIT ?
				)`,
				append(args[:len(args):len(args)], limit), &all, &cancelled)
			return all, cancelled, err
		}
		pending, _, err := count("waybill_delivery", "''", bounds)
		if err != nil {
			return err
		}
		ended, cancelled, err := count("waybill_dead_letter", "state", bounds)
		if err != nil {
			return err
		}
		delivered, _, err := count("waybill_attempt", "''", bounds.and("final = 1 AND outcome = 'delivered'"))
		if err != nil {
			return err
		}
		counts[outbox.StatePending] = outbox.Count{N: pending, Capped: pending >= limit}
		counts[outbox.StateDead] = outbox.Count{N: ended - cancelled, Capped: ended >= limit}
		counts[outbox.StateCancelled] = outbox.Count{N: cancelled, Capped: ended >= limit}
		counts[outbox.StateDelivered] = outbox.Count{N: delivered, Capped: delivered >= limit}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return counts, nil
}
