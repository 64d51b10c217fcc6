package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// Backlogs implements outbox.Reading.
func (s *Store) Backlogs(ctx context.Context, tenant outbox.TenantRef, endpoints []outbox.EndpointRow, limit int) (map[outbox.EndpointID]outbox.Backlog, error) {
	of := map[outbox.EndpointID]outbox.Backlog{}
	err := s.read(ctx, func(r *session) error {
		for _, e := range endpoints {
			var b outbox.Backlog
			if err := r.get(`
				SELECT count(*), min(sendable_at)
				FROM (
					SELECT sendable_at
					FROM waybill_delivery
					WHERE shard = ?1 AND endpoint = ?2 AND (?3 = 0 OR tenant = ?3)
					LIMIT ?4
				)`,
				[]any{int64(e.Shard), e.Endpoint[:], int64(tenant.ID), limit}, &b.Pending, timeTo{&b.Oldest}); err != nil {
				return err
			}
			if b.Pending > 0 {
				of[e.Endpoint] = b
			}
		}
		return nil
	})
	return of, err
}

// Ahead implements outbox.Reading.
func (s *Store) Ahead(ctx context.Context, deliveries []outbox.Delivery, limit int) (map[outbox.DeliveryID]int, error) {
	ahead := map[outbox.DeliveryID]int{}
	err := s.read(ctx, func(r *session) error {
		for i := range deliveries {
			d := &deliveries[i]
			var n int
			if err := r.get(`
				SELECT count(*)
				FROM (
					SELECT 1
					FROM waybill_delivery
					WHERE shard = ? AND endpoint = ? AND lane = ? AND (next_at, dlv) < (?, ?)
					LIMIT ?
				)`,
				[]any{int64(d.Shard), d.Endpoint[:], int64(d.Lane), micros(d.NextAt), d.ID[:], limit}, &n); err != nil {
				return err
			}
			ahead[d.ID] = n
		}
		return nil
	})
	return ahead, err
}

// Predecessors implements outbox.Reading.
func (s *Store) Predecessors(ctx context.Context, parked []outbox.Delivery) (map[outbox.DeliveryID]outbox.Predecessor, error) {
	of := map[outbox.DeliveryID]outbox.Predecessor{}
	err := s.read(ctx, func(r *session) error {
		for i := range parked {
			d := &parked[i]
			key := keyOf(d)
			var first outbox.Predecessor
			err := r.get(`
				SELECT dlv, next_at
				FROM waybill_delivery
				WHERE shard = ?1 AND endpoint = ?2 AND ordering_key = ?3
					AND turn_at IS NOT NULL AND next_at < `+parkedAt+`
				LIMIT 1`,
				key.args(), idTo{(*[16]byte)(&first.ID)}, timeTo{&first.NextAt})
			if errors.Is(err, sql.ErrNoRows) {
				first.Dead = true
				err = r.get(`
					SELECT dlv
					FROM waybill_dead_letter
					WHERE shard = ?1 AND endpoint = ?2 AND ordering_key = ?3
						AND holds = 1 AND sequence < ?4
					ORDER BY sequence
					LIMIT 1`,
					append(key.args(), d.Sequence), idTo{(*[16]byte)(&first.ID)})
			}
			if errors.Is(err, sql.ErrNoRows) {
				continue
			}
			if err != nil {
				return err
			}
			of[d.ID] = first
		}
		return nil
	})
	return of, err
}

// HastenOldest implements outbox.Routing. It does its work even where the outbox row is gone: the
// answer of an earlier run may have been lost, and doing it twice meets the same delivery.
func (s *Store) HastenOldest(ctx context.Context, lease outbox.Lease, row outbox.OutboxRow, now time.Time) (first *outbox.Delivery, err error) {
	err = s.write(ctx, func(w *session) error {
		first = nil
		if err := fence(w, lease, []outbox.Shard{row.Shard}); err != nil {
			return err
		}
		if _, err := takeOutbox(w, row); err != nil {
			return err
		}
		found, err := pendingRows(w, `
			SELECT `+deliveryColumns+`
			FROM waybill_delivery
			WHERE shard = ? AND endpoint = ? AND next_at < ?
			ORDER BY lane, next_at, dlv
			LIMIT 1`,
			int64(row.Shard), row.Endpoint[:], micros(outbox.Parked))
		if err != nil || len(found) == 0 {
			return err
		}
		first = &found[0]
		if !first.NextAt.After(now) {
			return nil
		}
		first.NextAt = now
		_, err = w.exec("UPDATE waybill_delivery SET next_at = ? WHERE dlv = ?", micros(now), first.ID[:])
		return err
	})
	if err != nil {
		return nil, err
	}
	return first, nil
}
