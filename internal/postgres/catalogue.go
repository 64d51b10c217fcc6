package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype/zeronull"

	"github.com/waybill-dev/waybill/internal/outbox"
)

const eventTypeColumns = "name, description, schema, example, on_invalid, archived, created_at, updated_at"

func collectEventTypes(list *[]outbox.EventType) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		for rows.Next() {
			var t outbox.EventType
			var schema, example *string
			err := rows.Scan(&t.Name, &t.Description, &schema, &example, &t.OnInvalid, &t.Archived, &t.CreatedAt, &t.UpdatedAt)
			if err != nil {
				return err
			}
			if schema != nil {
				t.Schema = []byte(*schema)
			}
			if example != nil {
				t.Example = []byte(*example)
			}
			*list = append(*list, t)
		}
		return rows.Err()
	}
}

// PutEventType implements outbox.Catalogue.
func (s *Store) PutEventType(ctx context.Context, name string, now time.Time, edit func(t *outbox.EventType, exists bool) error) (outbox.EventType, bool, error) {
	var t outbox.EventType
	var created bool
	err := s.edit(ctx, func(tx pgx.Tx) error {
		// Two that make the same one take turns, though there is no row to lock yet.
		if _, err := tx.Exec(ctx, `
			SELECT pg_advisory_xact_lock(hashtextextended('waybill event type ' || $1, 0))`, name); err != nil {
			return err
		}
		t = outbox.EventType{Name: name, OnInvalid: outbox.OnInvalidWarn}
		rows, err := tx.Query(ctx, `
			SELECT `+eventTypeColumns+`
			FROM waybill.event_type
			WHERE name = $1`,
			name)
		if err != nil {
			return err
		}
		var found []outbox.EventType
		if err := collectEventTypes(&found)(rows); err != nil {
			return err
		}
		if created = len(found) == 0; !created {
			t = found[0]
		}
		if err := edit(&t, !created); err != nil {
			return err
		}
		return tx.QueryRow(ctx, `
			INSERT INTO waybill.event_type (name, description, schema, example, on_invalid, archived, created_at, updated_at)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $7)
			ON CONFLICT (name) DO UPDATE
			SET description = excluded.description, schema = excluded.schema, example = excluded.example,
				on_invalid = excluded.on_invalid, archived = excluded.archived, updated_at = excluded.updated_at
			RETURNING created_at, updated_at`,
			name, t.Description, zeronull.Text(t.Schema), zeronull.Text(t.Example), string(t.OnInvalid), t.Archived, now).
			Scan(&t.CreatedAt, &t.UpdatedAt)
	})
	return t, created, err
}

// EventType implements outbox.Catalogue.
func (s *Store) EventType(ctx context.Context, name string) (outbox.EventType, error) {
	var list []outbox.EventType
	err := s.read(ctx, people, func(b *pgx.Batch) {
		list = nil
		b.Queue(`
			SELECT `+eventTypeColumns+`
			FROM waybill.event_type
			WHERE name = $1`,
			name,
		).Query(collectEventTypes(&list))
	})
	return only(list, err)
}

// EventTypes implements outbox.Catalogue.
func (s *Store) EventTypes(ctx context.Context, after string, page outbox.Page) ([]outbox.EventType, error) {
	beyond, order := past(page, "name", "$1"), direction(page)
	var list []outbox.EventType
	err := s.read(ctx, people, func(b *pgx.Batch) {
		list = nil
		b.Queue(`
			SELECT `+eventTypeColumns+`
			FROM waybill.event_type
			WHERE $1 = '' OR `+beyond+`
			ORDER BY name `+order+`
			LIMIT $2`,
			after, page.Limit,
		).Query(collectEventTypes(&list))
	})
	return list, err
}

// DeleteEventType implements outbox.Catalogue.
func (s *Store) DeleteEventType(ctx context.Context, name string) error {
	return s.edit(ctx, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, `
			DELETE FROM waybill.event_type
			WHERE name = $1`,
			name)
		if err == nil && tag.RowsAffected() == 0 {
			err = outbox.ErrNotFound
		}
		return err
	})
}

// CatalogueRevision implements outbox.Catalogue.
func (s *Store) CatalogueRevision(ctx context.Context) (int64, error) {
	var revision int64
	err := s.read(ctx, people, func(b *pgx.Batch) {
		b.Queue(`
			SELECT CASE WHEN is_called THEN last_value ELSE 0 END
			FROM waybill.catalogue_revision`,
		).QueryRow(func(row pgx.Row) error { return row.Scan(&revision) })
	})
	return revision, err
}
