package sqlite

import (
	"context"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// takeBytes erases an event's bytes and leaves how many there were.
const takeBytes = `erased_bytes = coalesce(erased_bytes, length(payload)), payload = X''`

// ErasePayload implements outbox.Erasing.
func (s *Store) ErasePayload(ctx context.Context, tenant outbox.TenantRef, id outbox.EventID) error {
	return s.write(ctx, func(w *session) error {
		n, err := w.exec(`
			UPDATE waybill_event
			SET `+takeBytes+`
			WHERE shard = ? AND tenant = ? AND id = ?`,
			int64(tenant.Shard), int64(tenant.ID), id[:])
		if err != nil {
			return err
		}
		if n == 0 {
			return outbox.ErrNotFound
		}
		_, err = insertOutbox(w, outbox.OutboxRow{
			Shard:   tenant.Shard,
			Kind:    outbox.OutboxCommand,
			Tenant:  tenant.ID,
			Command: outbox.Command{Name: outbox.CommandForget, Event: id},
		})
		return err
	})
}
