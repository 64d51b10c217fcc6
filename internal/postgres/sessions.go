package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/waybill-dev/waybill/internal/outbox"
)

const sessionColumns = `
	s.id, s.tenant, coalesce(t.shard, 0), coalesce(t.key, ''), s.permissions, s.person, s.theme, s.path, s.return_url,
	s.created_by, s.key_prefix, s.created_at, s.link_expires_at, s.expires_at, s.used_at, s.revoked_at`

// sessionTables leaves out what belongs to a deleted tenant.
const sessionTables = `
	waybill.session s
	LEFT JOIN waybill.tenant t ON t.id = s.tenant AND t.deleted_at IS NULL`

const sessionLives = `(s.tenant = 0 OR t.id IS NOT NULL)`

func collectSessions(list *[]outbox.Session) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		for rows.Next() {
			var s outbox.Session
			var shard int16
			var person, theme []byte
			var permissions pgtype.FlatArray[outbox.Permission]
			err := rows.Scan(intoID(&s.ID), &s.Tenant.ID, &shard, &s.TenantKey, &permissions, &person, &theme, &s.Path, &s.ReturnURL,
				&s.CreatedBy, &s.KeyPrefix, &s.CreatedAt, &s.LinkExpiresAt, &s.ExpiresAt, intoTime(&s.UsedAt), intoTime(&s.RevokedAt))
			if err != nil {
				return err
			}
			s.Tenant.Shard, s.Permissions = outbox.Shard(shard), permissions
			if err := errors.Join(json.Unmarshal(person, &s.User), json.Unmarshal(theme, &s.Theme)); err != nil {
				return err
			}
			*list = append(*list, s)
		}
		return rows.Err()
	}
}

// CreateSession implements outbox.Sessions.
func (s *Store) CreateSession(ctx context.Context, made outbox.Session, code outbox.Digest) error {
	return s.edit(ctx, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `
			INSERT INTO waybill.session
				(id, tenant, code, permissions, person, theme, path, return_url, created_by, key_prefix, created_at, link_expires_at, expires_at)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)
			ON CONFLICT (id) DO NOTHING`, // the same again after an unknown commit
			uuid(made.ID), int64(made.Tenant.ID), code[:], made.Permissions, made.User, storedMap(made.Theme), made.Path, made.ReturnURL,
			made.CreatedBy, made.KeyPrefix, made.CreatedAt, made.LinkExpiresAt, made.ExpiresAt)
		return err
	})
}

// TakeSession implements outbox.Sessions.
func (s *Store) TakeSession(ctx context.Context, code, token outbox.Digest, now time.Time) (session outbox.Session, taken bool, err error) {
	err = s.edit(ctx, func(tx pgx.Tx) error {
		// The update waits for another exchange of the same code, and then finds it used. A token
		// that took it already is an exchange whose commit was not answered.
		tag, err := tx.Exec(ctx, `
			UPDATE waybill.session
			SET token = $2, used_at = coalesce(used_at, $3)
			WHERE code = $1 AND (token IS NULL OR token = $2)
				AND revoked_at IS NULL AND link_expires_at > $3 AND expires_at > $3`,
			code[:], token[:], now)
		if err != nil {
			return err
		}
		if tag.RowsAffected() == 0 {
			return errNothingWritten // and nothing to put on record
		}
		taken = true
		return nil
	})
	if err != nil && !errors.Is(err, errNothingWritten) {
		return outbox.Session{}, false, err
	}
	session, err = s.SessionByCode(ctx, code)
	return session, taken && err == nil, err
}

// SessionByCode implements outbox.Sessions.
func (s *Store) SessionByCode(ctx context.Context, code outbox.Digest) (outbox.Session, error) {
	return s.sessionWhere(ctx, "s.code = $1", code[:])
}

// SessionByToken implements outbox.Sessions.
func (s *Store) SessionByToken(ctx context.Context, token outbox.Digest, now time.Time) (outbox.Session, error) {
	return s.sessionWhere(ctx, "s.token = $1 AND s.revoked_at IS NULL AND s.expires_at > $2", token[:], now)
}

func (s *Store) sessionWhere(ctx context.Context, where string, args ...any) (outbox.Session, error) {
	var list []outbox.Session
	err := s.read(ctx, people, func(b *pgx.Batch) {
		list = nil
		b.Queue(`
			SELECT `+sessionColumns+`
			FROM `+sessionTables+`
			WHERE `+where+` AND `+sessionLives,
			args...,
		).Query(collectSessions(&list))
	})
	return only(list, err)
}

// Sessions implements outbox.Sessions.
func (s *Store) Sessions(ctx context.Context, tenant outbox.TenantRef, after outbox.SessionID, page outbox.Page) ([]outbox.Session, error) {
	beyond, order := past(page, "s.id", "$2"), direction(page)
	var list []outbox.Session
	err := s.read(ctx, people, func(b *pgx.Batch) {
		list = nil
		b.Queue(`
			SELECT `+sessionColumns+`
			FROM `+sessionTables+`
			WHERE s.tenant = $1 AND `+sessionLives+`
				AND ($2::uuid IS NULL OR `+beyond+`)
			ORDER BY s.id `+order+`
			LIMIT $3`,
			int64(tenant.ID), uuid(after), page.Limit,
		).Query(collectSessions(&list))
	})
	return list, err
}

// RevokeSession implements outbox.Sessions.
func (s *Store) RevokeSession(ctx context.Context, tenant outbox.TenantRef, id outbox.SessionID, now time.Time) error {
	return s.edit(ctx, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, `
			UPDATE waybill.session
			SET revoked_at = coalesce(revoked_at, $3)
			WHERE id = $1 AND tenant = $2`,
			uuid(id), int64(tenant.ID), now)
		if err == nil && tag.RowsAffected() == 0 {
			err = outbox.ErrNotFound
		}
		return err
	})
}

// RevokeSessions implements outbox.Sessions.
func (s *Store) RevokeSessions(ctx context.Context, tenant outbox.TenantRef, now time.Time) (n int, err error) {
	err = s.edit(ctx, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, `
			UPDATE waybill.session
			SET revoked_at = $2
			WHERE tenant = $1 AND revoked_at IS NULL AND expires_at > $2`,
			int64(tenant.ID), now)
		n = int(tag.RowsAffected())
		return err
	})
	return n, err
}

// pruneSessions forgets sessions that ended before the given time.
func (s *Store) pruneSessions(ctx context.Context, before time.Time) error {
	return s.inBatches(ctx, "prune sessions", `
		WITH pruned AS (
			DELETE FROM waybill.session
			WHERE id IN (
				SELECT id
				FROM waybill.session
				WHERE expires_at < $1
				LIMIT $2
			)
			RETURNING 1
		)
		SELECT count(*)
		FROM pruned`,
		before, pruneBatch)
}
