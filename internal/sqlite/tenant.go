package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

const tenantColumns = `t.id, t.shard, t.key, t.name, t.weight, t.max_in_flight, t.state, t.egress, t.retry, t.metadata,
	t.max_endpoints, t.created_at, t.updated_at, t.resumed_at, t.deleted_at`

func scanTenant(scan scan) (outbox.Tenant, error) {
	var t outbox.Tenant
	var key sql.NullString
	var retry, metadata string
	err := scan(&t.ID, &t.Shard, &key, &t.Name, &t.Weight, &t.MaxInFlight, &t.State, &t.Egress, &retry, &metadata,
		&t.MaxEndpoints, timeTo{&t.CreatedAt}, timeTo{&t.UpdatedAt}, timeTo{&t.ResumedAt}, timeTo{&t.DeletedAt})
	t.Key = key.String
	// An edit by hand may leave JSON of another shape here. The tenant then has the instance's
	// policy and no metadata; failing would stop every tenant from being loaded.
	var policy retryJSON
	if json.Unmarshal([]byte(retry), &policy) == nil {
		t.Retry = policy.policy()
	}
	if json.Unmarshal([]byte(metadata), &t.Metadata) != nil {
		t.Metadata = nil
	}
	return t, err
}

// tenantByKey returns a living tenant.
func tenantByKey(r *session, key string) (t outbox.Tenant, err error) {
	err = outbox.ErrNotFound
	if end := r.each(`
		SELECT `+tenantColumns+`
		FROM waybill_tenant t
		WHERE t.key = ?`,
		[]any{key},
		func(scan scan) error {
			t, err = scanTenant(scan)
			return errStop
		}); end != nil {
		return t, end
	}
	return t, err
}

// PutTenant changes the tenant under key or makes it.
func (s *Store) PutTenant(ctx context.Context, key string, now time.Time, edit func(t *outbox.Tenant, exists bool) error) (t outbox.Tenant, created bool, err error) {
	err = s.write(ctx, func(w *session) error {
		var err error
		t, err = tenantByKey(w, key)
		created = errors.Is(err, outbox.ErrNotFound)
		switch {
		case created:
			t = outbox.NewTenant(key, now)
		case err != nil:
			return err
		}
		if err := edit(&t, !created); err != nil {
			return err
		}
		t, err = storeTenant(w, t, key, now, created)
		return err
	})
	if err != nil {
		return outbox.Tenant{}, false, err
	}
	return t, created, nil
}

// EditTenant changes a tenant that must exist.
func (s *Store) EditTenant(ctx context.Context, key string, now time.Time, edit func(t *outbox.Tenant) error) (t outbox.Tenant, err error) {
	err = s.write(ctx, func(w *session) error {
		var err error
		if t, err = tenantByKey(w, key); err != nil {
			return err
		}
		if err := edit(&t); err != nil {
			return err
		}
		t, err = storeTenant(w, t, key, now, false)
		return err
	})
	if err != nil {
		return outbox.Tenant{}, err
	}
	return t, nil
}

// storeTenant writes the tenant and reads it back, as the triggers left it.
func storeTenant(w *session, t outbox.Tenant, key string, now time.Time, created bool) (outbox.Tenant, error) {
	values := []any{
		t.Name, t.Weight, t.MaxInFlight, string(t.State), string(t.Egress), storedRetry(t.Retry), mapJSON(t.Metadata), t.MaxEndpoints, micros(now),
	}
	var err error
	if created {
		_, err = w.exec(`
			INSERT INTO waybill_tenant
				(name, weight, max_in_flight, state, egress, retry, metadata, max_endpoints, updated_at, shard, key, created_at, resumed_at)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
			append(values, int64(outbox.ShardOf(key)), key, micros(now), micros(now))...)
	} else {
		_, err = w.exec(`
			UPDATE waybill_tenant
			SET name = ?, weight = ?, max_in_flight = ?, state = ?, egress = ?, retry = ?, metadata = ?, max_endpoints = ?, updated_at = ?
			WHERE id = ?`,
			append(values, int64(t.ID))...)
	}
	if err != nil {
		return outbox.Tenant{}, err
	}
	return tenantByKey(w, key)
}

// DeleteTenant deletes the tenant and its endpoints, and what its sources have in quarantine.
func (s *Store) DeleteTenant(ctx context.Context, key, by string, now time.Time) (job outbox.Job, err error) {
	err = s.write(ctx, func(w *session) error {
		t, err := tenantByKey(w, key)
		if err != nil {
			return err
		}
		if _, err := w.exec(`
			UPDATE waybill_tenant
			SET key = NULL, deleted_at = ?, updated_at = ?
			WHERE id = ?`,
			micros(now), micros(now), int64(t.ID)); err != nil {
			return err
		}
		if _, err := w.exec(`
			UPDATE waybill_endpoint
			SET deleted_at = ?, updated_at = ?, headers = NULL, secrets = NULL, credentials = NULL
			WHERE tenant = ? AND deleted_at IS NULL`,
			micros(now), micros(now), int64(t.ID)); err != nil {
			return err
		}
		if _, err := dropBodies(w, "s.tenant = ?", int64(t.ID), outbox.InboundID{}, outbox.LastInboundID, maxDropped); err != nil {
			return err
		}
		var pending int
		if err := w.get(`
			SELECT count(*)
			FROM (SELECT 1 FROM waybill_delivery WHERE tenant = ? LIMIT ?)`,
			[]any{int64(t.ID), outbox.MaxJobRows}, &pending); err != nil {
			return err
		}
		job = outbox.NewDeleteTenantJob(t, pending, by, now)
		if _, err := insertJob(w, &job); err != nil {
			return err
		}
		row := jobCommand(&job, outbox.CommandCancelTenant)
		row.Command.Reason = job.Reason
		_, err = insertOutbox(w, row)
		return err
	})
	if err != nil {
		return outbox.Job{}, err
	}
	return job, nil
}

// Tenant returns a living tenant.
func (s *Store) Tenant(ctx context.Context, key string) (t outbox.Tenant, err error) {
	err = s.read(ctx, func(r *session) error {
		t, err = tenantByKey(r, key)
		return err
	})
	return t, err
}

// Tenants lists living tenants. Names are compared in Go: SQLite folds the case of ASCII only.
func (s *Store) Tenants(ctx context.Context, q outbox.TenantQuery, page outbox.Page) (list []outbox.Tenant, err error) {
	search := strings.ToLower(q.Search)
	where, args := filter{}.
		and("t.deleted_at IS NULL").
		andIf(q.State != "", "t.state = ?", string(q.State)).
		andIf(q.After != 0 && page.Ascending, "t.id > ?", int64(q.After)).
		andIf(q.After != 0 && !page.Ascending, "t.id < ?", int64(q.After)).
		sql()
	err = s.read(ctx, func(r *session) error {
		return r.eachOnce(ctx, `
			SELECT `+tenantColumns+`
			FROM waybill_tenant t
			WHERE `+where+`
			ORDER BY t.id `+direction(page),
			args,
			func(scan scan) error {
				t, err := scanTenant(scan)
				if err != nil {
					return err
				}
				if strings.Contains(strings.ToLower(t.Key), search) || strings.Contains(strings.ToLower(t.Name), search) {
					list = append(list, t)
				}
				if len(list) == page.Limit {
					return errStop
				}
				return nil
			})
	})
	return list, err
}

// WriteSettings stores what publishers read in the database.
func (s *Store) WriteSettings(ctx context.Context, set outbox.Settings) error {
	unknown := "reject"
	if set.CreateUnknownTenants {
		unknown = "create"
	}
	return s.write(ctx, func(w *session) error {
		_, err := w.exec(`
			UPDATE waybill_setting
			SET max_payload = ?, unknown_tenant = ?, retention = ?, idempotency_retention = ?`,
			set.MaxPayload, unknown, set.Retention.Microseconds(), set.IdempotencyRetention.Microseconds())
		return err
	})
}
