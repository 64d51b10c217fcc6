package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/waybill-dev/waybill/internal/outbox"
)

const schemeColumns = "name, definition::text, created_at, updated_at"

func collectSchemes(list *[]outbox.SignatureScheme) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		var scheme outbox.SignatureScheme
		var definition string
		_, err := pgx.ForEachRow(rows, []any{&scheme.Name, &definition, &scheme.CreatedAt, &scheme.UpdatedAt}, func() error {
			scheme.Definition = []byte(definition)
			*list = append(*list, scheme)
			return nil
		})
		return err
	}
}

// PutSignatureScheme implements outbox.Signing.
func (s *Store) PutSignatureScheme(ctx context.Context, scheme outbox.SignatureScheme, now time.Time) (outbox.SignatureScheme, bool, error) {
	stored := outbox.SignatureScheme{Name: scheme.Name, Definition: scheme.Definition}
	var created bool
	err := s.edit(ctx, func(tx pgx.Tx) error {
		return tx.QueryRow(ctx, `
			INSERT INTO waybill.signature_scheme (name, definition, created_at, updated_at)
			VALUES ($1, $2::text::json, $3, $3)
			ON CONFLICT (name) DO UPDATE
			SET definition = excluded.definition, updated_at = excluded.updated_at
			RETURNING created_at, updated_at, xmax = 0`,
			scheme.Name, string(scheme.Definition), now).Scan(&stored.CreatedAt, &stored.UpdatedAt, &created)
	})
	return stored, created, err
}

// SignatureScheme implements outbox.Signing.
func (s *Store) SignatureScheme(ctx context.Context, name string) (outbox.SignatureScheme, error) {
	var list []outbox.SignatureScheme
	err := s.read(ctx, people, func(b *pgx.Batch) {
		list = nil
		b.Queue(`
			SELECT `+schemeColumns+`
			FROM waybill.signature_scheme
			WHERE name = $1`,
			name,
		).Query(collectSchemes(&list))
	})
	return only(list, err)
}

// SignatureSchemes implements outbox.Signing.
func (s *Store) SignatureSchemes(ctx context.Context) ([]outbox.SignatureScheme, error) {
	var list []outbox.SignatureScheme
	err := s.read(ctx, people, func(b *pgx.Batch) {
		list = nil
		queueSchemes(b, &list)
	})
	return list, err
}

func queueSchemes(b *pgx.Batch, list *[]outbox.SignatureScheme) {
	b.Queue(`
		SELECT ` + schemeColumns + `
		FROM waybill.signature_scheme
		ORDER BY name`,
	).Query(collectSchemes(list))
}

// DeleteSignatureScheme implements outbox.Signing.
func (s *Store) DeleteSignatureScheme(ctx context.Context, name string) error {
	return s.edit(ctx, func(tx pgx.Tx) error {
		var used bool
		err := tx.QueryRow(ctx, `
			SELECT EXISTS (
				SELECT
				FROM waybill.endpoint AS e
				WHERE e.deleted_at IS NULL AND s.name = ANY (e.signing)
			)
			FROM waybill.signature_scheme AS s
			WHERE s.name = $1
			FOR UPDATE OF s`,
			name).Scan(&used)
		switch {
		case errors.Is(err, pgx.ErrNoRows):
			return outbox.ErrNotFound
		case err != nil:
			return err
		case used:
			return outbox.ErrConflict
		}
		_, err = tx.Exec(ctx, `
			DELETE FROM waybill.signature_scheme
			WHERE name = $1`,
			name)
		return err
	})
}
