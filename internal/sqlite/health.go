package sqlite

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// WriteHealth implements outbox.Health.
func (s *Store) WriteHealth(ctx context.Context, lease outbox.Lease, rows []outbox.EndpointHealth, now time.Time) error {
	return s.write(ctx, func(w *session) error {
		for i := range rows {
			h := &rows[i]
			detail, err := json.Marshal(h)
			if err != nil {
				return err
			}
			if _, err := w.exec(`
				INSERT INTO waybill_endpoint_health (shard, endpoint, tenant, breaker, next_probe_at, detail, updated_at)
				SELECT shard, ?, ?, ?, ?, ?, ?
				FROM waybill_shard
				WHERE shard = ? AND node = ? AND epoch = ?
				ON CONFLICT (endpoint) DO UPDATE
				SET breaker = excluded.breaker,
				    next_probe_at = excluded.next_probe_at,
				    detail = excluded.detail,
				    updated_at = excluded.updated_at`,
				h.Endpoint[:], int64(h.Tenant), string(h.Breaker), microsOrNull(h.NextProbeAt), string(detail), micros(now),
				int64(h.Shard), lease.Node[:], lease.Epochs[h.Shard]); err != nil {
				return err
			}
		}
		return nil
	})
}

// LoadHealth implements outbox.Health.
func (s *Store) LoadHealth(ctx context.Context, shards []outbox.Shard) (found []outbox.EndpointHealth, err error) {
	err = s.read(ctx, func(r *session) error {
		found = nil
		for _, shard := range shards {
			err := r.each(`
				SELECT shard, endpoint, tenant, breaker, next_probe_at, detail
				FROM waybill_endpoint_health
				WHERE shard = ?`,
				[]any{int64(shard)},
				func(scan scan) error {
					h, err := scanHealth(scan)
					found = append(found, h)
					return err
				})
			if err != nil {
				return err
			}
		}
		return nil
	})
	return found, err
}

// HealthOf implements outbox.Health.
func (s *Store) HealthOf(ctx context.Context, tenant outbox.TenantRef, endpoints []outbox.EndpointRow) (map[outbox.EndpointID]outbox.EndpointHealth, error) {
	of := map[outbox.EndpointID]outbox.EndpointHealth{}
	err := s.read(ctx, func(r *session) error {
		for _, e := range endpoints {
			err := r.each(`
				SELECT shard, endpoint, tenant, breaker, next_probe_at, detail
				FROM waybill_endpoint_health
				WHERE endpoint = ?1 AND (?2 = 0 OR tenant = ?2)`,
				[]any{e.Endpoint[:], int64(tenant.ID)},
				func(scan scan) error {
					h, err := scanHealth(scan)
					of[e.Endpoint] = h
					return err
				})
			if err != nil {
				return err
			}
		}
		return nil
	})
	return of, err
}

func scanHealth(scan scan) (outbox.EndpointHealth, error) {
	var h outbox.EndpointHealth
	var breaker, detail string
	err := scan(&h.Shard, idTo{(*[16]byte)(&h.Endpoint)}, &h.Tenant, &breaker, timeTo{&h.NextProbeAt}, &detail)
	h.Breaker = outbox.BreakerState(breaker)
	return h, errors.Join(err, json.Unmarshal([]byte(detail), &h))
}
