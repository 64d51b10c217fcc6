package sqlite

import (
	"context"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// InsertTest stores an event that is for one endpoint alone.
func (s *Store) InsertTest(ctx context.Context, e outbox.Event, endpoint outbox.EndpointID) error {
	return s.write(ctx, func(w *session) error {
		n, err := w.exec(`
			INSERT INTO waybill_event (shard, tenant, id, type, ordering_key, metadata, payload, sha256, created_at)
			VALUES (?, ?, ?, ?, '', ?, ?, ?, ?)
			ON CONFLICT (shard, tenant, id) DO NOTHING`,
			int64(e.Tenant.Shard), int64(e.Tenant.ID), e.ID[:], e.Type, mapJSON(e.Metadata), blob(e.Payload), e.SHA256[:], micros(e.CreatedAt))
		if err != nil || n == 0 {
			return err
		}
		_, err = insertOutbox(w, outbox.OutboxRow{
			Shard:    e.Tenant.Shard,
			Kind:     outbox.OutboxEvent,
			Tenant:   e.Tenant.ID,
			Event:    e.ID,
			Endpoint: endpoint,
		})
		return err
	})
}
