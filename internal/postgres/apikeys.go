package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/waybill-dev/waybill/internal/outbox"
)

const apiKeyColumns = `
	k.id, k.name, k.prefix, k.tenant, coalesce(t.shard, 0), coalesce(t.key, ''), k.scopes,
	k.created_by, k.created_at, k.expires_at, k.last_used_at`

// keyTables leaves out what belongs to a deleted tenant, with keyLives.
const (
	keyTables = `
	waybill.api_key k
	LEFT JOIN waybill.tenant t ON t.id = k.tenant AND t.deleted_at IS NULL`
	keyLives = `(k.tenant = 0 OR t.id IS NOT NULL)`
)

func collectKeys(list *[]outbox.Key) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		for rows.Next() {
			var k outbox.Key
			var shard int16
			var scopes pgtype.FlatArray[outbox.Scope]
			err := rows.Scan(intoID(&k.ID), &k.Name, &k.Prefix, &k.Tenant.ID, &shard, &k.TenantKey, &scopes,
				&k.CreatedBy, &k.CreatedAt, intoTime(&k.ExpiresAt), intoTime(&k.LastUsedAt))
			if err != nil {
				return err
			}
			k.Tenant.Shard, k.Scopes = outbox.Shard(shard), scopes
			*list = append(*list, k)
		}
		return rows.Err()
	}
}

// CreateKey implements outbox.Keys.
func (s *Store) CreateKey(ctx context.Context, k outbox.Key, digest outbox.Digest) error {
	return s.edit(ctx, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `
			INSERT INTO waybill.api_key (id, name, prefix, digest, tenant, scopes, created_by, created_at, expires_at)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
			ON CONFLICT (id) DO NOTHING`, // the same again after an unknown commit
			uuid(k.ID), k.Name, k.Prefix, digest[:], int64(k.Tenant.ID), k.Scopes, k.CreatedBy, k.CreatedAt, at(k.ExpiresAt))
		return err
	})
}

// KeyByDigest implements outbox.Keys.
func (s *Store) KeyByDigest(ctx context.Context, digest outbox.Digest, now time.Time) (outbox.Key, error) {
	var list []outbox.Key
	err := s.read(ctx, people, func(b *pgx.Batch) {
		list = nil
		b.Queue(`
			SELECT `+apiKeyColumns+`
			FROM `+keyTables+`
			WHERE k.digest = $1 AND (k.expires_at IS NULL OR k.expires_at > $2) AND `+keyLives,
			digest[:], now,
		).Query(collectKeys(&list))
	})
	return only(list, err)
}

// Keys implements outbox.Keys.
func (s *Store) Keys(ctx context.Context, q outbox.KeyQuery, page outbox.Page) ([]outbox.Key, error) {
	beyond, order := past(page, "k.id", "$2"), direction(page)
	var list []outbox.Key
	err := s.read(ctx, people, func(b *pgx.Batch) {
		list = nil
		b.Queue(`
			SELECT `+apiKeyColumns+`
			FROM `+keyTables+`
			WHERE ($1 = 0 OR k.tenant = $1) AND `+keyLives+`
				AND ($2::uuid IS NULL OR `+beyond+`)
			ORDER BY k.id `+order+`
			LIMIT $3`,
			int64(q.Tenant.ID), uuid(q.After), page.Limit,
		).Query(collectKeys(&list))
	})
	return list, err
}

// DeleteKey implements outbox.Keys.
func (s *Store) DeleteKey(ctx context.Context, id outbox.KeyID, now time.Time) error {
	return s.edit(ctx, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `
			UPDATE waybill.session
			SET revoked_at = $2
			WHERE revoked_at IS NULL AND key_prefix = (SELECT prefix FROM waybill.api_key WHERE id = $1)`,
			uuid(id), now); err != nil {
			return err
		}
		tag, err := tx.Exec(ctx, `
			DELETE FROM waybill.api_key
			WHERE id = $1`,
			uuid(id))
		if err == nil && tag.RowsAffected() == 0 {
			err = outbox.ErrNotFound
		}
		return err
	})
}

// TouchKey implements outbox.Keys.
func (s *Store) TouchKey(ctx context.Context, id outbox.KeyID, now time.Time) error {
	return s.transact(ctx, edits, func(b *pgx.Batch) error {
		b.Queue(`
			UPDATE waybill.api_key
			SET last_used_at = greatest(last_used_at, $2)
			WHERE id = $1`,
			uuid(id), now)
		return nil
	})
}

// HasOperatorKey implements outbox.Keys.
func (s *Store) HasOperatorKey(ctx context.Context, now time.Time) (has bool, err error) {
	err = s.read(ctx, people, func(b *pgx.Batch) {
		b.Queue(`
			SELECT EXISTS (
				SELECT
				FROM waybill.api_key
				WHERE tenant = 0 AND 'admin' = ANY(scopes) AND (expires_at IS NULL OR expires_at > $1)
			)`,
			now,
		).QueryRow(func(row pgx.Row) error { return row.Scan(&has) })
	})
	return has, err
}
