package sqlite

import (
	"context"
	"errors"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

const sessionColumns = `
	s.id, s.tenant, coalesce(t.shard, 0), coalesce(t.key, ''), s.permissions, s.person, s.theme, s.path, s.return_url,
	s.created_by, s.key_prefix, s.created_at, s.link_expires_at, s.expires_at, s.used_at, s.revoked_at`

// sessionTables leaves out what belongs to a deleted tenant.
const sessionTables = `
	waybill_session s
	LEFT JOIN waybill_tenant t ON t.id = s.tenant AND t.deleted_at IS NULL`

const sessionLives = `(s.tenant = 0 OR t.id IS NOT NULL)`

func scanSession(scan scan) (s outbox.Session, err error) {
	err = scan(idTo{(*[16]byte)(&s.ID)}, &s.Tenant.ID, &s.Tenant.Shard, &s.TenantKey, jsonTo{&s.Permissions}, jsonTo{&s.User}, jsonTo{&s.Theme}, &s.Path, &s.ReturnURL,
		&s.CreatedBy, &s.KeyPrefix, timeTo{&s.CreatedAt}, timeTo{&s.LinkExpiresAt}, timeTo{&s.ExpiresAt}, timeTo{&s.UsedAt}, timeTo{&s.RevokedAt})
	return s, err
}

// CreateSession implements outbox.Sessions.
func (s *Store) CreateSession(ctx context.Context, made outbox.Session, code outbox.Digest) error {
	return s.write(ctx, func(w *session) error {
		_, err := w.exec(`
			INSERT INTO waybill_session
				(id, tenant, code, permissions, person, theme, path, return_url, created_by, key_prefix, created_at, link_expires_at, expires_at)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
			ON CONFLICT (id) DO NOTHING`, // the same again after an unknown commit
			made.ID[:], int64(made.Tenant.ID), code[:], toJSON(made.Permissions), toJSON(made.User), mapJSON(made.Theme), made.Path, made.ReturnURL,
			made.CreatedBy, made.KeyPrefix, micros(made.CreatedAt), micros(made.LinkExpiresAt), micros(made.ExpiresAt))
		return err
	})
}

// TakeSession implements outbox.Sessions.
func (s *Store) TakeSession(ctx context.Context, code, token outbox.Digest, now time.Time) (taken outbox.Session, won bool, err error) {
	err = s.write(ctx, func(w *session) error {
		// A token that took the code already is an exchange whose commit was not answered.
		n, err := w.exec(`
			UPDATE waybill_session
			SET token = ?, used_at = coalesce(used_at, ?)
			WHERE code = ? AND (token IS NULL OR token = ?)
				AND revoked_at IS NULL AND link_expires_at > ? AND expires_at > ?`,
			token[:], micros(now), code[:], token[:], micros(now), micros(now))
		if err != nil {
			return err
		}
		if won = n == 1; !won {
			return outbox.ErrNotFound // and nothing to put on record
		}
		taken, err = sessionWhere(w, "s.code = ?", code[:])
		return err
	})
	if errors.Is(err, outbox.ErrNotFound) {
		taken, err = s.SessionByCode(ctx, code)
		return taken, false, err
	}
	if err != nil {
		return outbox.Session{}, false, err
	}
	return taken, won, nil
}

// SessionByCode implements outbox.Sessions.
func (s *Store) SessionByCode(ctx context.Context, code outbox.Digest) (found outbox.Session, err error) {
	err = s.read(ctx, func(r *session) error {
		found, err = sessionWhere(r, "s.code = ?", code[:])
		return err
	})
	return found, err
}

// SessionByToken implements outbox.Sessions.
func (s *Store) SessionByToken(ctx context.Context, token outbox.Digest, now time.Time) (found outbox.Session, err error) {
	err = s.read(ctx, func(r *session) error {
		found, err = sessionWhere(r, "s.token = ? AND s.revoked_at IS NULL AND s.expires_at > ?", token[:], micros(now))
		return err
	})
	return found, err
}

// sessionWhere finds one session. The condition is one of the three above.
func sessionWhere(r *session, where string, args ...any) (found outbox.Session, err error) {
	err = outbox.ErrNotFound
	if end := r.each(`
		SELECT `+sessionColumns+`
		FROM `+sessionTables+`
		WHERE `+where+` AND `+sessionLives,
		args,
		func(scan scan) error {
			found, err = scanSession(scan)
			return errStop
		}); end != nil {
		return found, end
	}
	return found, err
}

// Sessions implements outbox.Sessions.
func (s *Store) Sessions(ctx context.Context, tenant outbox.TenantRef, after outbox.SessionID, page outbox.Page) (list []outbox.Session, err error) {
	where, args := filter{}.
		and("s.tenant = ?", int64(tenant.ID)).
		and(sessionLives).
		andIf(!after.IsZero() && page.Ascending, "s.id > ?", after[:]).
		andIf(!after.IsZero() && !page.Ascending, "s.id < ?", after[:]).
		sql()
	err = s.read(ctx, func(r *session) error {
		return r.eachOnce(ctx, `
			SELECT `+sessionColumns+`
			FROM `+sessionTables+`
			WHERE `+where+`
			ORDER BY s.id `+direction(page)+`
			LIMIT ?`,
			append(args, page.Limit),
			func(scan scan) error {
				found, err := scanSession(scan)
				list = append(list, found)
				return err
			})
	})
	return list, err
}

// RevokeSession implements outbox.Sessions.
func (s *Store) RevokeSession(ctx context.Context, tenant outbox.TenantRef, id outbox.SessionID, now time.Time) error {
	return s.write(ctx, func(w *session) error {
		n, err := w.exec(`
			UPDATE waybill_session
			SET revoked_at = coalesce(revoked_at, ?)
			WHERE id = ? AND tenant = ?`,
			micros(now), id[:], int64(tenant.ID))
		if err == nil && n == 0 {
			err = outbox.ErrNotFound
		}
		return err
	})
}

// RevokeSessions implements outbox.Sessions.
func (s *Store) RevokeSessions(ctx context.Context, tenant outbox.TenantRef, now time.Time) (ended int, err error) {
	err = s.write(ctx, func(w *session) error {
		n, err := w.exec(`
			UPDATE waybill_session
			SET revoked_at = ?
			WHERE tenant = ? AND revoked_at IS NULL AND expires_at > ?`,
			micros(now), int64(tenant.ID), micros(now))
		ended = int(n)
		return err
	})
	return ended, err
}
