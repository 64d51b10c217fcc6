package sqlite

import (
	"context"

	"github.com/waybill-dev/waybill/internal/keyring"
)

// AdmitKeys implements outbox.Configuration.
func (s *Store) AdmitKeys(ctx context.Context, admit func(marks, stored [][]byte) ([]byte, error)) error {
	return s.write(ctx, func(w *session) error {
		marks, err := blobs(w, `
			SELECT mark
			FROM waybill_key_mark`)
		if err != nil {
			return err
		}
		stored, err := blobs(w, `
			SELECT substr(headers, 1, ?)
			FROM waybill_endpoint
			WHERE deleted_at IS NULL AND headers IS NOT NULL
			UNION
			SELECT substr(secrets, 1, ?)
			FROM waybill_endpoint
			WHERE deleted_at IS NULL AND secrets IS NOT NULL
			UNION
			SELECT substr(credentials, 1, ?)
			FROM waybill_endpoint
			WHERE deleted_at IS NULL AND credentials IS NOT NULL
			UNION
			SELECT substr(secrets, 1, ?)
			FROM waybill_source
			WHERE deleted_at IS NULL AND secrets IS NOT NULL`,
			keyring.HeaderSize, keyring.HeaderSize, keyring.HeaderSize, keyring.HeaderSize)
		if err != nil {
			return err
		}
		mark, err := admit(marks, stored)
		if err != nil || mark == nil {
			return err
		}
		_, err = w.exec(`
			INSERT INTO waybill_key_mark (mark)
			VALUES (?)`,
			mark)
		return err
	})
}

// blobs reads a column.
func blobs(w *session, query string, args ...any) (list [][]byte, err error) {
	err = w.each(query, args, func(scan scan) error {
		var b []byte
		if err := scan(&b); err != nil {
			return err
		}
		list = append(list, b)
		return nil
	})
	return list, err
}
