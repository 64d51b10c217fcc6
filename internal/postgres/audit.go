package postgres

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// By implements outbox.Audit.
func (s *Store) By(author *outbox.Author) outbox.Store { return &Store{server: s.server, by: author} }

// Note implements outbox.Audit.
func (s *Store) Note(ctx context.Context) error {
	return s.edit(ctx, func(pgx.Tx) error { return nil })
}

// queueNote writes the author's entry in the transaction of the change. Run again after an unknown
// commit it changes nothing.
func queueNote(b *pgx.Batch, e *outbox.AuditEntry) {
	b.Queue(`
		INSERT INTO waybill.audit
			(id, tenant, tenant_key, actor_kind, actor, actor_id, action, object, changes, request_id, address)
		VALUES (
			$1,
			CASE WHEN $2::bigint <> 0 OR $3 = '' THEN $2
				ELSE coalesce((SELECT id FROM waybill.tenant WHERE key = $3 AND deleted_at IS NULL), 0)
			END,
			CASE WHEN $2 = 0 OR $3 <> '' THEN $3
				ELSE coalesce((SELECT key FROM waybill.tenant WHERE id = $2), '')
			END,
			$4, $5, $6, $7, $8, $9, $10, $11
		)
		ON CONFLICT (id) DO NOTHING`,
		uuid(e.ID), int64(e.Tenant.ID), e.TenantKey, string(e.Actor.Kind), e.Actor.Name, e.Actor.ID, e.Action, e.Object,
		storedChanges(e.Changes), e.RequestID, e.Address)
}

func storedChanges(c outbox.Changes) outbox.Changes {
	if c == nil {
		return outbox.Changes{}
	}
	return c
}

// AuditEntries implements outbox.Audit.
func (s *Store) AuditEntries(ctx context.Context, q outbox.AuditQuery, page outbox.Page) ([]outbox.AuditEntry, error) {
	where, args := []string{"true"}, []any{}
	and := func(term string, value any) {
		args = append(args, value)
		where = append(where, term+" $"+strconv.Itoa(len(args)))
	}
	if q.Tenant.ID != 0 {
		and("tenant =", int64(q.Tenant.ID))
	}
	if q.Action != "" {
		and("action =", q.Action)
	}
	if q.Actor != "" {
		and("actor_id =", q.Actor)
	}
	if q.Object != "" {
		and("object =", q.Object)
	}
	if !q.From.IsZero() {
		and("id >=", uuid(outbox.AuditFloor(q.From)))
	}
	if !q.To.IsZero() {
		and("id <", uuid(outbox.AuditFloor(q.To)))
	}
	order := "DESC"
	if page.Ascending {
		order = "ASC"
	}
	switch {
	case q.After.IsZero():
	case page.Ascending:
		and("id >", uuid(q.After))
	default:
		and("id <", uuid(q.After))
	}
	args = append(args, page.Limit)
	var list []outbox.AuditEntry
	err := s.read(ctx, people, func(b *pgx.Batch) {
		list = nil
		b.Queue(`
			SELECT id, tenant, tenant_key, actor_kind, actor, actor_id, action, object, changes, request_id, address
			FROM waybill.audit
			WHERE `+strings.Join(where, " AND ")+`
			ORDER BY id `+order+`
			LIMIT $`+strconv.Itoa(len(args)),
			args...,
		).Query(func(rows pgx.Rows) error {
			for rows.Next() {
				var e outbox.AuditEntry
				var changes []byte
				err := rows.Scan(intoID(&e.ID), &e.Tenant.ID, &e.TenantKey, &e.Actor.Kind, &e.Actor.Name, &e.Actor.ID, &e.Action, &e.Object,
					&changes, &e.RequestID, &e.Address)
				if err != nil {
					return err
				}
				if err := json.Unmarshal(changes, &e.Changes); err != nil {
					return err
				}
				list = append(list, e)
			}
			return rows.Err()
		})
	})
	return list, err
}

// pruneAudit forgets what was done before the given time.
func (s *Store) pruneAudit(ctx context.Context, before time.Time) error {
	return s.inBatches(ctx, "prune the record of changes", `
		WITH pruned AS (
			DELETE FROM waybill.audit
			WHERE id IN (
				SELECT id
				FROM waybill.audit
				WHERE id < $1
				ORDER BY id
				LIMIT $2
			)
			RETURNING 1
		)
		SELECT count(*)
		FROM pruned`,
		uuid(outbox.AuditFloor(before)), pruneBatch)
}
