package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/waybill-dev/waybill/internal/outbox"
)

const tenantColumns = `
	id, shard, key, name, weight, max_in_flight, max_endpoints, state, egress, retry, metadata,
	created_at, updated_at, resumed_at, deleted_at`

// scanTenant reads tenantColumns. A damaged retry policy or metadata leaves them empty and says so.
func scanTenant(row pgx.CollectableRow) (t outbox.Tenant, damage error, err error) {
	var shard int16
	var retry, metadata []byte
	err = row.Scan(
		&t.ID, &shard, &t.Key, &t.Name, &t.Weight, &t.MaxInFlight, &t.MaxEndpoints, &t.State, &t.Egress, &retry, &metadata,
		&t.CreatedAt, &t.UpdatedAt, &t.ResumedAt, intoTime(&t.DeletedAt))
	if err != nil {
		return t, nil, err
	}
	t.Shard = outbox.Shard(shard)
	var policy retryText
	damage = errors.Join(json.Unmarshal(retry, &policy), json.Unmarshal(metadata, &t.Metadata))
	t.Retry = policy.policy()
	return t, damage, nil
}

// collectTenants reads tenantColumns row by row. The retry policy and metadata of a row that
// somebody damaged count as absent, which a person is told.
func (s *Store) collectTenants(ctx context.Context, list *[]outbox.Tenant) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		for rows.Next() {
			t, damage, err := scanTenant(rows)
			if err != nil {
				return err
			}
			if damage != nil {
				s.log.WarnContext(ctx, "tenant row is damaged", "tenant", t.Key, "error", damage)
			}
			*list = append(*list, t)
		}
		return rows.Err()
	}
}

// tenantRow runs a query for one tenant, in a transaction or for a look.
func (s *Store) tenantRow(ctx context.Context, tx pgx.Tx, sql string, args ...any) (outbox.Tenant, error) {
	rows, err := tx.Query(ctx, sql, args...)
	if err != nil {
		return outbox.Tenant{}, err
	}
	var list []outbox.Tenant
	err = s.collectTenants(ctx, &list)(rows)
	return only(list, err)
}

// Tenant implements outbox.Configuration.
func (s *Store) Tenant(ctx context.Context, key string) (outbox.Tenant, error) {
	var list []outbox.Tenant
	err := s.read(ctx, people, func(b *pgx.Batch) {
		list = nil
		b.Queue(`
			SELECT `+tenantColumns+`
			FROM waybill.tenant
			WHERE key = $1 AND deleted_at IS NULL`,
			key,
		).Query(s.collectTenants(ctx, &list))
	})
	return only(list, err)
}

// Tenants implements outbox.Configuration.
func (s *Store) Tenants(ctx context.Context, q outbox.TenantQuery, page outbox.Page) ([]outbox.Tenant, error) {
	if !utf8.ValidString(q.Search) || strings.ContainsRune(q.Search, 0) {
		return nil, nil // no stored text holds it, and the database would not even look
	}
	beyond, order := past(page, "id", "$3"), direction(page)
	var list []outbox.Tenant
	err := s.read(ctx, people, func(b *pgx.Batch) {
		list = nil
		b.Queue(`
			SELECT `+tenantColumns+`
			FROM waybill.tenant
			WHERE deleted_at IS NULL
				AND ($1 = '' OR strpos(lower(key), lower($1)) > 0 OR strpos(lower(name), lower($1)) > 0)
				AND ($2 = '' OR state = $2)
				AND ($3 = 0 OR `+beyond+`)
			ORDER BY id `+order+`
			LIMIT $4`,
			q.Search, string(q.State), int64(q.After), page.Limit,
		).Query(s.collectTenants(ctx, &list))
	})
	return list, err
}

// EditTenant implements outbox.Configuration.
func (s *Store) EditTenant(ctx context.Context, key string, now time.Time, edit func(t *outbox.Tenant) error) (outbox.Tenant, error) {
	var t outbox.Tenant
	err := s.edit(ctx, func(tx pgx.Tx) (err error) {
		t, err = s.lockTenant(ctx, tx, key)
		if err != nil {
			return err
		}
		t, err = s.changeTenant(ctx, tx, t, now, edit)
		return err
	})
	return t, err
}

// PutTenant implements outbox.Configuration.
func (s *Store) PutTenant(ctx context.Context, key string, now time.Time, edit func(t *outbox.Tenant, exists bool) error) (outbox.Tenant, bool, error) {
	var t outbox.Tenant
	var created bool
	err := s.edit(ctx, func(tx pgx.Tx) (err error) {
		for {
			t, err = s.lockTenant(ctx, tx, key)
			if err == nil {
				created = false
				t, err = s.changeTenant(ctx, tx, t, now, func(t *outbox.Tenant) error { return edit(t, true) })
				return err
			}
			if !errors.Is(err, outbox.ErrNotFound) {
				return err
			}
			t = outbox.NewTenant(key, now)
			if err := edit(&t, false); err != nil {
				return err
			}
			created = true
			t, err = s.insertTenant(ctx, tx, t)
			if !errors.Is(err, outbox.ErrNotFound) {
				return err
			}
			// Somebody else made it in between, so it is there to be edited now.
		}
	})
	return t, created, err
}

func (s *Store) lockTenant(ctx context.Context, tx pgx.Tx, key string) (outbox.Tenant, error) {
	return s.tenantRow(ctx, tx, `
		SELECT `+tenantColumns+`
		FROM waybill.tenant
		WHERE key = $1 AND deleted_at IS NULL
		FOR UPDATE`,
		key)
}

// insertTenant returns ErrNotFound if the key is taken.
func (s *Store) insertTenant(ctx context.Context, tx pgx.Tx, t outbox.Tenant) (outbox.Tenant, error) {
	return s.tenantRow(ctx, tx, `
		INSERT INTO waybill.tenant
			(key, name, weight, max_in_flight, max_endpoints, state, egress, retry, metadata,
			created_at, updated_at, resumed_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)
		ON CONFLICT (key) WHERE deleted_at IS NULL DO NOTHING
		RETURNING `+tenantColumns,
		t.Key, t.Name, t.Weight, t.MaxInFlight, t.MaxEndpoints, string(t.State), string(t.Egress),
		storedRetry(t.Retry), storedMap(t.Metadata),
		t.CreatedAt, t.UpdatedAt, t.ResumedAt)
}

func (s *Store) changeTenant(ctx context.Context, tx pgx.Tx, t outbox.Tenant, now time.Time, edit func(t *outbox.Tenant) error) (outbox.Tenant, error) {
	if err := edit(&t); err != nil {
		return outbox.Tenant{}, err
	}
	return s.tenantRow(ctx, tx, `
		UPDATE waybill.tenant
		SET name = $2, weight = $3, max_in_flight = $4, max_endpoints = $5, state = $6, egress = $7,
			retry = $8, metadata = $9, updated_at = $10
		WHERE id = $1
		RETURNING `+tenantColumns,
		int64(t.ID), t.Name, t.Weight, t.MaxInFlight, t.MaxEndpoints, string(t.State), string(t.Egress),
		storedRetry(t.Retry), storedMap(t.Metadata), now)
}

// DeleteTenant implements outbox.Configuration.
func (s *Store) DeleteTenant(ctx context.Context, key, by string, now time.Time) (outbox.Job, error) {
	var job outbox.Job
	err := s.edit(ctx, func(tx pgx.Tx) error {
		t, err := s.lockTenant(ctx, tx, key)
		if err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `
			UPDATE waybill.tenant
			SET deleted_at = $2, updated_at = $2
			WHERE id = $1`,
			int64(t.ID), now); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `
			UPDATE waybill.endpoint
			SET deleted_at = $2, updated_at = $2, headers = NULL, secrets = NULL, credentials = NULL
			WHERE tenant = $1 AND deleted_at IS NULL`,
			int64(t.ID), now); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, dropBodies("s.tenant = $1"), int64(t.ID), noID, lastID, maxDropped); err != nil {
			return err
		}
		pending, err := countPending(ctx, tx, "shard = $2 AND tenant = $3", outbox.MaxJobRows, int16(t.Shard), int64(t.ID))
		if err != nil {
			return err
		}
		job = outbox.NewDeleteTenantJob(t, pending, by, now)
		if _, err := insertJob(ctx, tx, &job); err != nil {
			return err
		}
		return insertCommand(ctx, tx, t.TenantRef, outbox.EndpointID{}, outbox.Command{Name: outbox.CommandCancelTenant, Reason: job.Reason, Job: job.ID})
	})
	if err != nil {
		return outbox.Job{}, err
	}
	return job, nil
}

// storedMap is a map for a column that is never NULL.
func storedMap(m map[string]string) map[string]string {
	if m == nil {
		return map[string]string{}
	}
	return m
}
