package sqlite

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// sourceQuery reads living sources; a condition follows.
const sourceQuery = `
	SELECT s.id, s.name, s.provider, s.tenant, coalesce(t.shard, 0), coalesce(t.key, ''), s.state, s.settings, s.secrets,
		s.keep, s.created_at, s.updated_at
	FROM waybill_source s
	LEFT JOIN waybill_tenant t ON t.id = s.tenant AND t.deleted_at IS NULL
	WHERE s.deleted_at IS NULL`

func sourcePlace(id outbox.SourceID) string { return fmt.Sprintf("secrets of %s", id) }

func (s *Store) scanSource(scan scan) (src outbox.Source, err error) {
	var settings string
	var secrets []byte
	err = scan(idTo{(*[16]byte)(&src.ID)}, &src.Name, &src.Provider, &src.Tenant.ID, &src.Tenant.Shard, &src.TenantKey,
		&src.State, &settings, &secrets, lengthTo{&src.Keep}, timeTo{&src.CreatedAt}, timeTo{&src.UpdatedAt})
	if err != nil {
		return src, err
	}
	if err := json.Unmarshal([]byte(settings), &src.Settings); err != nil {
		return src, fmt.Errorf("settings of source %s: %w", src.Name, err)
	}
	if secrets == nil {
		return src, nil
	}
	var sealed outbox.SealedSource
	plain, err := s.open(secrets, sourcePlace(src.ID))
	if err == nil {
		err = json.Unmarshal(plain, &sealed)
	}
	src.Unseal(sealed)
	if err != nil {
		return src, fmt.Errorf("secrets of source %s: %w", src.Name, err)
	}
	return src, nil
}

func (s *Store) sourceByName(r *session, name string) (src outbox.Source, err error) {
	err = outbox.ErrNotFound
	if end := r.each(sourceQuery+` AND s.name = ?`, []any{name}, func(scan scan) error {
		src, err = s.scanSource(scan)
		return errStop
	}); end != nil {
		return src, end
	}
	return src, err
}

// PutSource changes the source under name or makes it.
func (s *Store) PutSource(ctx context.Context, name string, now time.Time, edit func(s *outbox.Source, exists bool) error) (src outbox.Source, created bool, err error) {
	err = s.write(ctx, func(w *session) error {
		found, err := s.sourceByName(w, name)
		created = errors.Is(err, outbox.ErrNotFound)
		switch {
		case created:
			found = outbox.Source{ID: outbox.NewSourceID(now), Name: name, State: outbox.SourceActive, Keep: outbox.DefaultKeep, CreatedAt: now}
		case err != nil:
			return err
		}
		if err := edit(&found, !created); err != nil {
			return err
		}
		found.UpdatedAt = now
		src = found
		return s.storeSource(w, &src)
	})
	if err != nil {
		return outbox.Source{}, false, err
	}
	return src, created, nil
}

func (s *Store) storeSource(w *session, src *outbox.Source) error {
	var secrets []byte
	if sealed, some := src.Sealed(); some {
		var err error
		if secrets, err = s.seal([]byte(toJSON(sealed)), sourcePlace(src.ID)); err != nil {
			return err
		}
	}
	_, err := w.exec(`
		INSERT INTO waybill_source (id, shard, name, provider, tenant, state, settings, secrets, keep, created_at, updated_at)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (id) DO UPDATE
		SET provider = excluded.provider, tenant = excluded.tenant, state = excluded.state, settings = excluded.settings,
			secrets = excluded.secrets, keep = excluded.keep, updated_at = excluded.updated_at`,
		src.ID[:], int64(outbox.SourceShard(src.Name)), src.Name, src.Provider, int64(src.Tenant.ID), string(src.State),
		toJSON(src.Settings), secrets, src.Keep.Microseconds(), micros(src.CreatedAt), micros(src.UpdatedAt))
	return err
}

// DeleteSource ends a source; the name is free at once.
func (s *Store) DeleteSource(ctx context.Context, name string, now time.Time) error {
	return s.write(ctx, func(w *session) error {
		if _, err := dropBodies(w, "s.name = ?", name, outbox.InboundID{}, outbox.LastInboundID, maxDropped); err != nil {
			return err
		}
		n, err := w.exec(`
			UPDATE waybill_source
			SET name = NULL, secrets = NULL, deleted_at = ?, updated_at = ?
			WHERE name = ?`,
			micros(now), micros(now), name)
		if err == nil && n == 0 {
			err = outbox.ErrNotFound
		}
		return err
	})
}

// Source finds a living source.
func (s *Store) Source(ctx context.Context, name string) (src outbox.Source, err error) {
	err = s.read(ctx, func(r *session) error {
		src, err = s.sourceByName(r, name)
		return err
	})
	return src, err
}

// Sources lists the living ones by creation.
func (s *Store) Sources(ctx context.Context, after outbox.SourceID, page outbox.Page) (list []outbox.Source, err error) {
	where, args := filter{}.
		andIf(!after.IsZero() && page.Ascending, "s.id > ?", after[:]).
		andIf(!after.IsZero() && !page.Ascending, "s.id < ?", after[:]).
		sql()
	err = s.read(ctx, func(r *session) error {
		return r.eachOnce(ctx, sourceQuery+` AND `+where+`
			ORDER BY s.id `+direction(page)+`
			LIMIT ?`,
			append(args, page.Limit), func(scan scan) error {
				src, err := s.scanSource(scan)
				list = append(list, src)
				return err
			})
	})
	return list, err
}
