package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// PutSignatureScheme implements outbox.Signing.
func (s *Store) PutSignatureScheme(ctx context.Context, scheme outbox.SignatureScheme, now time.Time) (stored outbox.SignatureScheme, created bool, err error) {
	err = s.write(ctx, func(w *session) error {
		var err error
		stored, err = schemeByName(w, scheme.Name)
		created = errors.Is(err, outbox.ErrNotFound)
		if err != nil && !created {
			return err
		}
		if _, err := w.exec(`
			INSERT INTO waybill_signature_scheme (name, definition, created_at, updated_at)
			VALUES (?, ?, ?, ?)
			ON CONFLICT (name) DO UPDATE
			SET definition = excluded.definition, updated_at = excluded.updated_at`,
			scheme.Name, string(scheme.Definition), micros(now), micros(now)); err != nil {
			return err
		}
		stored, err = schemeByName(w, scheme.Name)
		return err
	})
	return stored, created, err
}

// SignatureScheme implements outbox.Signing.
func (s *Store) SignatureScheme(ctx context.Context, name string) (scheme outbox.SignatureScheme, err error) {
	err = s.read(ctx, func(r *session) error {
		scheme, err = schemeByName(r, name)
		return err
	})
	return scheme, err
}

func schemeByName(r *session, name string) (outbox.SignatureScheme, error) {
	scheme := outbox.SignatureScheme{Name: name}
	err := r.get(`
		SELECT definition, created_at, updated_at
		FROM waybill_signature_scheme
		WHERE name = ?`,
		[]any{name}, textTo{&scheme.Definition}, timeTo{&scheme.CreatedAt}, timeTo{&scheme.UpdatedAt})
	if errors.Is(err, sql.ErrNoRows) {
		err = outbox.ErrNotFound
	}
	return scheme, err
}

// SignatureSchemes implements outbox.Signing.
func (s *Store) SignatureSchemes(ctx context.Context) (list []outbox.SignatureScheme, err error) {
	err = s.read(ctx, func(r *session) error {
		list, err = allSchemes(r)
		return err
	})
	return list, err
}

func allSchemes(r *session) (list []outbox.SignatureScheme, err error) {
	err = r.each(`
		SELECT name, definition, created_at, updated_at
		FROM waybill_signature_scheme
		ORDER BY name`,
		nil,
		func(scan scan) error {
			var scheme outbox.SignatureScheme
			err := scan(&scheme.Name, textTo{&scheme.Definition}, timeTo{&scheme.CreatedAt}, timeTo{&scheme.UpdatedAt})
			list = append(list, scheme)
			return err
		})
	return list, err
}

// DeleteSignatureScheme implements outbox.Signing.
func (s *Store) DeleteSignatureScheme(ctx context.Context, name string) error {
	return s.write(ctx, func(w *session) error {
		if _, err := schemeByName(w, name); err != nil {
			return err
		}
		var used bool
		if err := w.get(`
			SELECT EXISTS (
				SELECT 1
				FROM waybill_endpoint AS e, json_each(e.signing) AS s
				WHERE e.deleted_at IS NULL AND s.value = ?
			)`,
			[]any{name}, &used); err != nil {
			return err
		}
		if used {
			return outbox.ErrConflict
		}
		_, err := w.exec("DELETE FROM waybill_signature_scheme WHERE name = ?", name)
		return err
	})
}

// textTo reads a text column into bytes, nil where it is NULL.
type textTo struct{ to *[]byte }

// Scan implements sql.Scanner.
func (t textTo) Scan(src any) error {
	switch v := src.(type) {
	case nil:
		*t.to = nil
	case string:
		*t.to = []byte(v)
	case []byte:
		*t.to = append([]byte(nil), v...)
	default:
		return errors.New("not a text")
	}
	return nil
}
