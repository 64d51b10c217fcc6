package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/waybill-dev/waybill/internal/keyring"
)

// AdmitKeys implements outbox.Configuration.
func (s *Store) AdmitKeys(ctx context.Context, admit func(marks, stored [][]byte) ([]byte, error)) error {
	return s.edit(ctx, func(tx pgx.Tx) error {
		// The lock makes servers that start at once take turns: with different keys, the second
		// must see the mark of the first.
		if _, err := tx.Exec(ctx, `SELECT FROM waybill.setting FOR UPDATE`); err != nil {
			return err
		}
		marks, err := blobs(ctx, tx, `
			SELECT mark
			FROM waybill.key_mark`)
		if err != nil {
			return err
		}
		stored, err := blobs(ctx, tx, `
			SELECT DISTINCT substring(sealed FROM 1 FOR $1)
			FROM waybill.endpoint,
				LATERAL (VALUES (headers), (secrets), (credentials)) AS value (sealed)
			WHERE deleted_at IS NULL AND sealed IS NOT NULL
			UNION
			SELECT substring(secrets FROM 1 FOR $1)
			FROM waybill.source
			WHERE deleted_at IS NULL AND secrets IS NOT NULL`,
			keyring.HeaderSize)
		if err != nil {
			return err
		}
		mark, err := admit(marks, stored)
		if err != nil || mark == nil {
			return err
		}
		_, err = tx.Exec(ctx, `
			INSERT INTO waybill.key_mark (mark)
			VALUES ($1)`,
			mark)
		return err
	})
}

// blobs reads a column.
func blobs(ctx context.Context, tx pgx.Tx, sql string, args ...any) ([][]byte, error) {
	rows, err := tx.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[[]byte])
}
