package sqlite

import (
	"context"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

const apiKeyColumns = `
	k.id, k.name, k.prefix, k.tenant, coalesce(t.shard, 0), coalesce(t.key, ''), k.scopes,
	k.created_by, k.created_at, k.expires_at, k.last_used_at`

// keyTables leaves out what belongs to a deleted tenant, with keyLives.
const (
	keyTables = `
	waybill_api_key k
	LEFT JOIN waybill_tenant t ON t.id = k.tenant AND t.deleted_at IS NULL`
	keyLives = `(k.tenant = 0 OR t.id IS NOT NULL)`
)

func scanKey(scan scan) (k outbox.Key, err error) {
	err = scan(idTo{(*[16]byte)(&k.ID)}, &k.Name, &k.Prefix, &k.Tenant.ID, &k.Tenant.Shard, &k.TenantKey, jsonTo{&k.Scopes},
		&k.CreatedBy, timeTo{&k.CreatedAt}, timeTo{&k.ExpiresAt}, timeTo{&k.LastUsedAt})
	return k, err
}

// CreateKey implements outbox.Keys.
func (s *Store) CreateKey(ctx context.Context, k outbox.Key, digest outbox.Digest) error {
	return s.write(ctx, func(w *session) error {
		_, err := w.exec(`
			INSERT INTO waybill_api_key (id, name, prefix, digest, tenant, scopes, created_by, created_at, expires_at)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
			ON CONFLICT (id) DO NOTHING`, // the same again after an unknown commit
			k.ID[:], k.Name, k.Prefix, digest[:], int64(k.Tenant.ID), toJSON(k.Scopes), k.CreatedBy, micros(k.CreatedAt), microsOrNull(k.ExpiresAt))
		return err
	})
}

// KeyByDigest implements outbox.Keys.
func (s *Store) KeyByDigest(ctx context.Context, digest outbox.Digest, now time.Time) (found outbox.Key, err error) {
	err = s.read(ctx, func(r *session) error {
		err = outbox.ErrNotFound
		if end := r.each(`
			SELECT `+apiKeyColumns+`
			FROM `+keyTables+`
			WHERE k.digest = ? AND (k.expires_at IS NULL OR k.expires_at > ?) AND `+keyLives,
			[]any{digest[:], micros(now)},
			func(scan scan) error {
				found, err = scanKey(scan)
				return errStop
			}); end != nil {
			return end
		}
		return err
	})
	return found, err
}

// Keys implements outbox.Keys.
func (s *Store) Keys(ctx context.Context, q outbox.KeyQuery, page outbox.Page) (list []outbox.Key, err error) {
	where, args := filter{}.
		and(keyLives).
		andIf(q.Tenant.ID != 0, "k.tenant = ?", int64(q.Tenant.ID)).
		andIf(!q.After.IsZero() && page.Ascending, "k.id > ?", q.After[:]).
		andIf(!q.After.IsZero() && !page.Ascending, "k.id < ?", q.After[:]).
		sql()
	err = s.read(ctx, func(r *session) error {
		return r.eachOnce(ctx, `
			SELECT `+apiKeyColumns+`
			FROM `+keyTables+`
			WHERE `+where+`
			ORDER BY k.id `+direction(page)+`
			LIMIT ?`,
			append(args, page.Limit),
			func(scan scan) error {
				k, err := scanKey(scan)
				list = append(list, k)
				return err
			})
	})
	return list, err
}

// DeleteKey implements outbox.Keys.
func (s *Store) DeleteKey(ctx context.Context, id outbox.KeyID, now time.Time) error {
	return s.write(ctx, func(w *session) error {
		if _, err := w.exec(`
			UPDATE waybill_session
			SET revoked_at = ?
			WHERE revoked_at IS NULL AND key_prefix = (SELECT prefix FROM waybill_api_key WHERE id = ?)`,
			micros(now), id[:]); err != nil {
			return err
		}
		n, err := w.exec(`
			DELETE FROM waybill_api_key
			WHERE id = ?`,
			id[:])
		if err == nil && n == 0 {
			err = outbox.ErrNotFound
		}
		return err
	})
}

// TouchKey implements outbox.Keys.
func (s *Store) TouchKey(ctx context.Context, id outbox.KeyID, now time.Time) error {
	return s.write(ctx, func(w *session) error {
		_, err := w.exec(`
			UPDATE waybill_api_key
			SET last_used_at = max(coalesce(last_used_at, 0), ?)
			WHERE id = ?`,
			micros(now), id[:])
		return err
	})
}

// HasOperatorKey implements outbox.Keys.
func (s *Store) HasOperatorKey(ctx context.Context, now time.Time) (has bool, err error) {
	err = s.read(ctx, func(r *session) error {
		return r.get(`
			SELECT EXISTS (
				SELECT 1
				FROM waybill_api_key
				WHERE tenant = 0 AND (expires_at IS NULL OR expires_at > ?)
					AND EXISTS (SELECT 1 FROM json_each(scopes) WHERE value = 'admin')
			)`,
			[]any{micros(now)}, &has)
	})
	return has, err
}
