package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

const eventTypeColumns = "name, description, schema, example, on_invalid, archived, created_at, updated_at"

func eventTypeTo(t *outbox.EventType) []any {
	return []any{&t.Name, &t.Description, textTo{&t.Schema}, textTo{&t.Example}, &t.OnInvalid, &t.Archived, timeTo{&t.CreatedAt}, timeTo{&t.UpdatedAt}}
}

// PutEventType implements outbox.Catalogue.
func (s *Store) PutEventType(ctx context.Context, name string, now time.Time, edit func(t *outbox.EventType, exists bool) error) (t outbox.EventType, created bool, err error) {
	err = s.write(ctx, func(w *session) error {
		var err error
		t, err = eventTypeByName(w, name)
		if created = errors.Is(err, outbox.ErrNotFound); created {
			t = outbox.EventType{Name: name, OnInvalid: outbox.OnInvalidWarn}
		} else if err != nil {
			return err
		}
		if err := edit(&t, !created); err != nil {
			return err
		}
		if _, err := w.exec(`
			INSERT INTO waybill_event_type (name, description, schema, example, on_invalid, archived, created_at, updated_at)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?)
			ON CONFLICT (name) DO UPDATE
			SET description = excluded.description, schema = excluded.schema, example = excluded.example,
				on_invalid = excluded.on_invalid, archived = excluded.archived, updated_at = excluded.updated_at`,
			name, t.Description, textOrNull(string(t.Schema)), textOrNull(string(t.Example)), string(t.OnInvalid), t.Archived, micros(now), micros(now)); err != nil {
			return err
		}
		t, err = eventTypeByName(w, name)
		return err
	})
	return t, created, err
}

func eventTypeByName(r *session, name string) (t outbox.EventType, err error) {
	err = r.get(`
		SELECT `+eventTypeColumns+`
		FROM waybill_event_type
		WHERE name = ?`,
		[]any{name}, eventTypeTo(&t)...)
	if errors.Is(err, sql.ErrNoRows) {
		err = outbox.ErrNotFound
	}
	return t, err
}

// EventType implements outbox.Catalogue.
func (s *Store) EventType(ctx context.Context, name string) (t outbox.EventType, err error) {
	err = s.read(ctx, func(r *session) error {
		t, err = eventTypeByName(r, name)
		return err
	})
	return t, err
}

// EventTypes implements outbox.Catalogue.
func (s *Store) EventTypes(ctx context.Context, after string, page outbox.Page) (list []outbox.EventType, err error) {
	where, args := filter{}.
		and("name IS NOT NULL").
		andIf(after != "" && page.Ascending, "name > ?", after).
		andIf(after != "" && !page.Ascending, "name < ?", after).
		sql()
	err = s.read(ctx, func(r *session) error {
		return r.eachOnce(ctx, `
			SELECT `+eventTypeColumns+`
			FROM waybill_event_type
			WHERE `+where+`
			ORDER BY name `+direction(page),
			args,
			func(scan scan) error {
				var t outbox.EventType
				if err := scan(eventTypeTo(&t)...); err != nil {
					return err
				}
				if list = append(list, t); len(list) == page.Limit {
					return errStop
				}
				return nil
			})
	})
	return list, err
}

// DeleteEventType implements outbox.Catalogue.
func (s *Store) DeleteEventType(ctx context.Context, name string) error {
	return s.write(ctx, func(w *session) error {
		n, err := w.exec("DELETE FROM waybill_event_type WHERE name = ?", name)
		if err == nil && n == 0 {
			err = outbox.ErrNotFound
		}
		return err
	})
}

// CatalogueRevision implements outbox.Catalogue.
func (s *Store) CatalogueRevision(ctx context.Context) (revision int64, err error) {
	err = s.read(ctx, func(r *session) error {
		return r.get("SELECT catalogue_revision FROM waybill_setting", nil, &revision)
	})
	return revision, err
}
