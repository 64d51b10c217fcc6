package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype/zeronull"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// InsertTest implements outbox.Testing.
func (s *Store) InsertTest(ctx context.Context, e outbox.Event, endpoint outbox.EndpointID) error {
	return s.edit(ctx, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `
			WITH stored AS (
				INSERT INTO waybill.event
					(shard, tenant, id, type, metadata, payload, sha256, created_at)
				VALUES ($1, $2, $3, $4, $5::jsonb, $6, $7, $8)
				ON CONFLICT DO NOTHING
				RETURNING shard, tenant, id
			)
			INSERT INTO waybill.outbox (shard, kind, tenant, event, endpoint)
			SELECT shard, 0, tenant, id, $9
			FROM stored`,
			int16(e.Tenant.Shard), int64(e.Tenant.ID), uuid(e.ID), e.Type, zeronull.Text(object(e.Metadata)), e.Payload, e.SHA256[:], e.CreatedAt,
			uuid(endpoint))
		return err
	})
}
