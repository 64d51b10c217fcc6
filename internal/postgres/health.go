package postgres

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype/zeronull"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// WriteHealth implements outbox.Health.
func (s *Store) WriteHealth(ctx context.Context, lease outbox.Lease, rows []outbox.EndpointHealth, now time.Time) error {
	details := make([]string, len(rows))
	for i := range rows {
		detail, err := json.Marshal(&rows[i])
		if err != nil {
			return err
		}
		details[i] = string(detail)
	}
	return s.transact(ctx, hot, func(b *pgx.Batch) error {
		b.Queue(`
			INSERT INTO waybill.endpoint_health (shard, endpoint, tenant, breaker, next_probe_at, detail, updated_at)
			SELECT h.shard, h.endpoint, h.tenant, h.breaker, h.next_probe_at, h.detail, $8
			FROM unnest($1::smallint[], $2::uuid[], $3::bigint[], $4::text[], $5::timestamptz[], $6::jsonb[], $9::bigint[])
				AS h (shard, endpoint, tenant, breaker, next_probe_at, detail, epoch)
			JOIN waybill.shard AS s ON s.shard = h.shard AND s.node = $7 AND s.epoch = h.epoch
			ORDER BY h.shard, h.endpoint
			ON CONFLICT (shard, endpoint) DO UPDATE
			SET breaker = excluded.breaker,
			    next_probe_at = excluded.next_probe_at,
			    detail = excluded.detail,
			    updated_at = excluded.updated_at`,
			column(rows, func(h *outbox.EndpointHealth) int16 { return int16(h.Shard) }),
			column(rows, func(h *outbox.EndpointHealth) zeronull.UUID { return uuid(h.Endpoint) }),
			column(rows, func(h *outbox.EndpointHealth) int64 { return int64(h.Tenant) }),
			column(rows, func(h *outbox.EndpointHealth) string { return string(h.Breaker) }),
			column(rows, func(h *outbox.EndpointHealth) zeronull.Timestamptz { return at(h.NextProbeAt) }),
			details, uuid(lease.Node), now,
			column(rows, func(h *outbox.EndpointHealth) int64 { return lease.Epochs[h.Shard] }),
		)
		return nil
	})
}

// LoadHealth implements outbox.Health.
func (s *Store) LoadHealth(ctx context.Context, shards []outbox.Shard) ([]outbox.EndpointHealth, error) {
	var found []outbox.EndpointHealth
	err := s.transact(ctx, hot, func(b *pgx.Batch) error {
		b.Queue(`
			SELECT shard, endpoint, tenant, breaker, next_probe_at, detail
			FROM waybill.endpoint_health
			WHERE shard = ANY ($1)`,
			shardColumn(shards),
		).Query(func(rows pgx.Rows) error {
			var err error
			found, err = scanHealth(rows)
			return err
		})
		return nil
	})
	return found, err
}

// HealthOf implements outbox.Health.
func (s *Store) HealthOf(ctx context.Context, tenant outbox.TenantRef, endpoints []outbox.EndpointRow) (map[outbox.EndpointID]outbox.EndpointHealth, error) {
	of := map[outbox.EndpointID]outbox.EndpointHealth{}
	err := s.read(ctx, people, func(b *pgx.Batch) {
		b.Queue(`
			SELECT h.shard, h.endpoint, h.tenant, h.breaker, h.next_probe_at, h.detail
			FROM unnest($1::smallint[], $2::uuid[]) AS w (shard, endpoint)
			JOIN waybill.endpoint_health AS h ON h.shard = w.shard AND h.endpoint = w.endpoint
			WHERE $3 = 0 OR h.tenant = $3`,
			append(endpointRows(endpoints), int64(tenant.ID))...,
		).Query(func(rows pgx.Rows) error {
			found, err := scanHealth(rows)
			for _, h := range found {
				of[h.Endpoint] = h
			}
			return err
		})
	})
	return of, err
}

// endpointRows is a list of endpoints as two columns.
func endpointRows(endpoints []outbox.EndpointRow) []any {
	return []any{
		column(endpoints, func(e *outbox.EndpointRow) int16 { return int16(e.Shard) }),
		column(endpoints, func(e *outbox.EndpointRow) zeronull.UUID { return uuid(e.Endpoint) }),
	}
}

func scanHealth(rows pgx.Rows) ([]outbox.EndpointHealth, error) {
	var found []outbox.EndpointHealth
	for rows.Next() {
		var h outbox.EndpointHealth
		var detail []byte
		if err := rows.Scan(intoShard(&h.Shard), intoID(&h.Endpoint), &h.Tenant, intoText(&h.Breaker), intoTime(&h.NextProbeAt), &detail); err != nil {
			return nil, err
		}
		if err := json.Unmarshal(detail, &h); err != nil {
			return nil, err
		}
		found = append(found, h)
	}
	return found, rows.Err()
}
