package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// erased tells what is left of an event e whose bytes were erased (outbox.Erased).
const erased = `(octet_length(e.payload) = 0 AND e.sha256 <> '\xe3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855'::bytea)`

// takeBytes erases an event's bytes and leaves how many there were.
const takeBytes = `erased_bytes = coalesce(erased_bytes, octet_length(payload)), payload = ''`

// ErasePayload implements outbox.Erasing.
func (s *Store) ErasePayload(ctx context.Context, tenant outbox.TenantRef, id outbox.EventID) error {
	return s.edit(ctx, func(tx pgx.Tx) error {
		var found int64
		for _, table := range []string{"waybill.event", "waybill.event_kept"} {
			tag, err := tx.Exec(ctx, `
				UPDATE `+table+`
				SET `+takeBytes+`
				WHERE shard = $1 AND tenant = $2 AND id = $3`,
				int16(tenant.Shard), int64(tenant.ID), uuid(id))
			if err != nil {
				return err
			}
			found += tag.RowsAffected()
		}
		if found == 0 {
			return outbox.ErrNotFound
		}
		return insertCommand(ctx, tx, tenant, outbox.EndpointID{}, outbox.Command{Name: outbox.CommandForget, Event: id})
	})
}

// EndCommand implements outbox.Routing.
func (s *Store) EndCommand(ctx context.Context, lease outbox.Lease, row outbox.OutboxRow) error {
	var f fence
	return s.transact(ctx, hot,
		func(b *pgx.Batch) error {
			f.queue(b, lease, map[outbox.Shard]bool{row.Shard: true})
			return nil
		},
		func(b *pgx.Batch) error {
			if err := f.check(); err != nil {
				return err
			}
			b.Queue(`
				DELETE FROM waybill.outbox
				WHERE shard = $1 AND pos = $2`,
				int16(row.Shard), row.Pos)
			return nil
		},
	)
}
