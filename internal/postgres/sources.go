package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/waybill-dev/waybill/internal/outbox"
)

const sourceColumns = `
	s.id, s.name, s.provider, s.tenant, s.tenant_shard, s.tenant_key, s.state, s.settings, s.secrets, s.keep,
	s.created_at, s.updated_at`

// sourcesWithTenant is what sourceColumns are read from.
const sourcesWithTenant = `
	(
		SELECT s.*, t.shard AS tenant_shard, t.key AS tenant_key
		FROM waybill.source AS s
		LEFT JOIN waybill.tenant AS t ON t.id = s.tenant AND t.deleted_at IS NULL
		WHERE s.deleted_at IS NULL
	) AS s`

func sourcePlace(id outbox.SourceID) string { return fmt.Sprintf("secrets of %s", id) }

// collectSources reads sourceColumns row by row.
func (s *Store) collectSources(list *[]outbox.Source) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		for rows.Next() {
			var src outbox.Source
			var settings, secrets []byte
			var shard *int16
			err := rows.Scan(intoID(&src.ID), &src.Name, &src.Provider, &src.Tenant.ID, &shard, intoText(&src.TenantKey),
				&src.State, &settings, &secrets, &src.Keep, &src.CreatedAt, &src.UpdatedAt)
			if err != nil {
				return err
			}
			if shard != nil {
				src.Tenant.Shard = outbox.Shard(*shard)
			}
			if err := json.Unmarshal(settings, &src.Settings); err != nil {
				return fmt.Errorf("settings of source %s: %w", src.Name, err)
			}
			if secrets != nil {
				var sealed outbox.SealedSource
				if err := s.open(secrets, sourcePlace(src.ID), &sealed); err != nil {
					return fmt.Errorf("secrets of source %s: %w", src.Name, err)
				}
				src.Unseal(sealed)
			}
			*list = append(*list, src)
		}
		return rows.Err()
	}
}

// PutSource implements outbox.Inbox.
func (s *Store) PutSource(ctx context.Context, name string, now time.Time, edit func(s *outbox.Source, exists bool) error) (outbox.Source, bool, error) {
	var src outbox.Source
	var created bool
	err := s.edit(ctx, func(tx pgx.Tx) error {
		for {
			found, err := s.lockSource(ctx, tx, name)
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
			stored, err := s.storeSource(ctx, tx, &found, created)
			if err != nil {
				return err
			}
			if stored {
				src = found
				return nil
			}
			// Somebody else made it in between, so it is there to be edited now.
		}
	})
	return src, created, err
}

func (s *Store) lockSource(ctx context.Context, tx pgx.Tx, name string) (outbox.Source, error) {
	if _, err := tx.Exec(ctx, `
		SELECT
		FROM waybill.source
		WHERE name = $1 AND deleted_at IS NULL
		FOR UPDATE`,
		name); err != nil {
		return outbox.Source{}, err
	}
	rows, err := tx.Query(ctx, `
		SELECT `+sourceColumns+`
		FROM `+sourcesWithTenant+`
		WHERE s.name = $1`,
		name)
	if err != nil {
		return outbox.Source{}, err
	}
	var list []outbox.Source
	err = s.collectSources(&list)(rows)
	return only(list, err)
}

// storeSource writes a source; false if its name was taken meanwhile.
func (s *Store) storeSource(ctx context.Context, tx pgx.Tx, src *outbox.Source, created bool) (bool, error) {
	var secrets []byte
	if sealed, some := src.Sealed(); some {
		var err error
		if secrets, err = s.seal(sealed, sourcePlace(src.ID)); err != nil {
			return false, err
		}
	}
	settings, err := json.Marshal(src.Settings)
	if err != nil {
		return false, err
	}
	if created {
		tag, err := tx.Exec(ctx, `
			INSERT INTO waybill.source (id, name, provider, tenant, state, settings, secrets, keep, created_at, updated_at)
			VALUES ($1, $2, $3, $4, $5, $6::text::jsonb, $7, $8, $9, $10)
			ON CONFLICT (name) WHERE deleted_at IS NULL DO NOTHING`,
			uuid(src.ID), src.Name, src.Provider, int64(src.Tenant.ID), string(src.State), string(settings), secrets, src.Keep,
			src.CreatedAt, src.UpdatedAt)
		return tag.RowsAffected() == 1, err
	}
	_, err = tx.Exec(ctx, `
		UPDATE waybill.source
		SET provider = $2, tenant = $3, state = $4, settings = $5::text::jsonb, secrets = $6, keep = $7, updated_at = $8
		WHERE id = $1`,
		uuid(src.ID), src.Provider, int64(src.Tenant.ID), string(src.State), string(settings), secrets, src.Keep, src.UpdatedAt)
	return true, err
}

// DeleteSource implements outbox.Inbox.
func (s *Store) DeleteSource(ctx context.Context, name string, now time.Time) error {
	return s.edit(ctx, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, dropBodies("s.name = $1 AND s.deleted_at IS NULL"), name, noID, lastID, maxDropped); err != nil {
			return err
		}
		tag, err := tx.Exec(ctx, `
			UPDATE waybill.source
			SET deleted_at = $2, updated_at = $2, secrets = NULL
			WHERE name = $1 AND deleted_at IS NULL`,
			name, now)
		if err == nil && tag.RowsAffected() == 0 {
			err = outbox.ErrNotFound
		}
		return err
	})
}

// Source implements outbox.Inbox.
func (s *Store) Source(ctx context.Context, name string) (outbox.Source, error) {
	var list []outbox.Source
	err := s.read(ctx, people, func(b *pgx.Batch) {
		list = nil
		b.Queue(`
			SELECT `+sourceColumns+`
			FROM `+sourcesWithTenant+`
			WHERE s.name = $1`,
			name,
		).Query(s.collectSources(&list))
	})
	return only(list, err)
}

// Sources implements outbox.Inbox.
func (s *Store) Sources(ctx context.Context, after outbox.SourceID, page outbox.Page) ([]outbox.Source, error) {
	beyond, order := past(page, "s.id", "$1"), direction(page)
	var list []outbox.Source
	err := s.read(ctx, people, func(b *pgx.Batch) {
		list = nil
		b.Queue(`
			SELECT `+sourceColumns+`
			FROM `+sourcesWithTenant+`
			WHERE $1::uuid IS NULL OR `+beyond+`
			ORDER BY s.id `+order+`
			LIMIT $2`,
			uuid(after), page.Limit,
		).Query(s.collectSources(&list))
	})
	return list, err
}
