package sqlite

import (
	"context"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// By implements outbox.Audit.
func (s *Store) By(author *outbox.Author) outbox.Store { return &Store{file: s.file, by: author} }

// Note implements outbox.Audit.
func (s *Store) Note(ctx context.Context) error {
	return s.write(ctx, func(*session) error { return nil })
}

// note writes the author's entry in the transaction of the change. Run again it changes nothing.
func note(w *session, e *outbox.AuditEntry) error {
	changes := "{}"
	if len(e.Changes) > 0 {
		changes = toJSON(e.Changes)
	}
	_, err := w.exec(`
		INSERT INTO waybill_audit
			(id, tenant, tenant_key, actor_kind, actor, actor_id, action, object, changes, request_id, address)
		VALUES (
			?1,
			CASE WHEN ?2 <> 0 OR ?3 = '' THEN ?2
				ELSE coalesce((SELECT id FROM waybill_tenant WHERE key = ?3), 0)
			END,
			CASE WHEN ?2 = 0 OR ?3 <> '' THEN ?3
				ELSE coalesce((SELECT key FROM waybill_tenant WHERE id = ?2), '')
			END,
			?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11
		)
		ON CONFLICT (id) DO NOTHING`,
		e.ID[:], int64(e.Tenant.ID), e.TenantKey, string(e.Actor.Kind), e.Actor.Name, e.Actor.ID, e.Action, e.Object,
		changes, e.RequestID, e.Address)
	return err
}

// AuditEntries implements outbox.Audit.
func (s *Store) AuditEntries(ctx context.Context, q outbox.AuditQuery, page outbox.Page) (list []outbox.AuditEntry, err error) {
	from, to := outbox.AuditFloor(q.From), outbox.AuditFloor(q.To)
	where, args := filter{}.
		andIf(q.Tenant.ID != 0, "tenant = ?", int64(q.Tenant.ID)).
		andIf(q.Action != "", "action = ?", q.Action).
		andIf(q.Actor != "", "actor_id = ?", q.Actor).
		andIf(q.Object != "", "object = ?", q.Object).
		andIf(!q.From.IsZero(), "id >= ?", from[:]).
		andIf(!q.To.IsZero(), "id < ?", to[:]).
		andIf(!q.After.IsZero() && page.Ascending, "id > ?", q.After[:]).
		andIf(!q.After.IsZero() && !page.Ascending, "id < ?", q.After[:]).
		sql()
	err = s.read(ctx, func(r *session) error {
		return r.eachOnce(ctx, `
			SELECT id, tenant, tenant_key, actor_kind, actor, actor_id, action, object, changes, request_id, address
			FROM waybill_audit
			WHERE `+where+`
			ORDER BY id `+direction(page)+`
			LIMIT ?`,
			append(args, page.Limit),
			func(scan scan) error {
				var e outbox.AuditEntry
				err := scan(idTo{(*[16]byte)(&e.ID)}, &e.Tenant.ID, &e.TenantKey, &e.Actor.Kind, &e.Actor.Name, &e.Actor.ID, &e.Action, &e.Object,
					jsonTo{&e.Changes}, &e.RequestID, &e.Address)
				list = append(list, e)
				return err
			})
	})
	return list, err
}
