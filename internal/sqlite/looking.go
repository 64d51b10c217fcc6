package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// FindEndpoints implements outbox.Looking. Configuration is small: it is read from end to end.
func (s *Store) FindEndpoints(ctx context.Context, tenant outbox.TenantRef, text string, limit int) ([]outbox.Endpoint, error) {
	pattern := "%" + strings.NewReplacer(`\`, `\\`, `%`, `\%`, `_`, `\_`).Replace(text) + "%"
	return s.endpointsBy(ctx, `
		SELECT `+endpointColumns+`
		FROM waybill_endpoint e
		WHERE e.deleted_at IS NULL
			AND (?1 = 0 OR e.tenant = ?1)
			AND (e.uid LIKE ?2 ESCAPE '\' OR e.url LIKE ?2 ESCAPE '\' OR e.description LIKE ?2 ESCAPE '\'
				OR EXISTS (SELECT 1 FROM json_each(e.metadata) AS m WHERE m.value LIKE ?2 ESCAPE '\'))
		ORDER BY e.id DESC
		LIMIT ?3`,
		int64(tenant.ID), pattern, limit)
}

// EndpointsEver implements outbox.Looking.
func (s *Store) EndpointsEver(ctx context.Context, tenant outbox.TenantRef, limit int) ([]outbox.Endpoint, error) {
	return s.endpointsBy(ctx, `
		SELECT `+endpointColumns+`
		FROM waybill_endpoint e
		WHERE e.tenant = ?
		ORDER BY e.id DESC
		LIMIT ?`,
		int64(tenant.ID), limit)
}

func (s *Store) endpointsBy(ctx context.Context, query string, args ...any) (list []outbox.Endpoint, err error) {
	err = s.read(ctx, func(r *session) error {
		return r.each(query, args, func(scan scan) error {
			e, err := s.scanEndpoint(scan)
			list = append(list, e)
			return err
		})
	})
	return list, err
}

// EventOfKey implements outbox.Looking.
func (s *Store) EventOfKey(ctx context.Context, tenant outbox.TenantRef, key string) (id outbox.EventID, err error) {
	err = s.read(ctx, func(r *session) error {
		err := r.get(`
			SELECT event
			FROM waybill_idempotency
			WHERE tenant = ? AND key = ?`,
			[]any{int64(tenant.ID), key}, idTo{(*[16]byte)(&id)})
		if errors.Is(err, sql.ErrNoRows) {
			return outbox.ErrNotFound
		}
		return err
	})
	return id, err
}

// EventsWithMetadata implements outbox.Looking.
func (s *Store) EventsWithMetadata(ctx context.Context, tenant outbox.TenantRef, text string, limit int) ([]outbox.EventID, error) {
	return s.eventIDs(ctx, `
		SELECT v.id
		FROM (
			SELECT id, metadata
			FROM waybill_event
			WHERE shard = ? AND tenant = ?
			ORDER BY id DESC
			LIMIT ?
		) AS v
		WHERE v.metadata IS NOT NULL AND EXISTS (SELECT 1 FROM json_each(v.metadata) AS m WHERE m.value = ?)
		ORDER BY v.id DESC
		LIMIT ?`,
		int64(tenant.Shard), int64(tenant.ID), outbox.MaxListScan, text, limit)
}

// EventsAfter implements outbox.Looking.
func (s *Store) EventsAfter(ctx context.Context, tenant outbox.TenantRef, after outbox.EventID, limit int) ([]outbox.EventID, error) {
	return s.eventIDs(ctx, `
		SELECT id
		FROM waybill_event
		WHERE shard = ? AND tenant = ? AND id > ?
		ORDER BY id
		LIMIT ?`,
		int64(tenant.Shard), int64(tenant.ID), after[:], limit)
}

func (s *Store) eventIDs(ctx context.Context, query string, args ...any) (ids []outbox.EventID, err error) {
	err = s.read(ctx, func(r *session) error {
		return r.each(query, args, func(scan scan) error {
			var id outbox.EventID
			err := scan(idTo{(*[16]byte)(&id)})
			ids = append(ids, id)
			return err
		})
	})
	return ids, err
}

// AttemptsEnded implements outbox.Looking.
func (s *Store) AttemptsEnded(ctx context.Context, q outbox.EndedQuery, limit int) (list []outbox.AttemptView, err error) {
	floor := outbox.AttemptFloor(q.Since())
	where, args := filter{}.
		and("a.id >= ?", floor[:]).
		and("(a.at + a.duration, a.id) > (?, ?)", micros(q.After), q.AfterID[:]).
		andIf(q.Tenant.ID != 0, "a.tenant = ?", int64(q.Tenant.ID)).
		andIf(q.Shards != nil, "a.shard IN (SELECT value FROM json_each(?))", shardList(q.Shards)).
		sql()
	err = s.read(ctx, func(r *session) error {
		return r.eachOnce(ctx, `
			SELECT `+attemptColumns+`
			FROM waybill_attempt a
			LEFT JOIN waybill_tenant t ON t.id = a.tenant
			WHERE `+where+`
			ORDER BY a.at + a.duration, a.id
			LIMIT ?`,
			append(args, limit),
			func(scan scan) error {
				v, err := scanAttempt(scan)
				v.RequestHeaders, v.ResponseHeaders, v.ResponseBody, v.Truncated = nil, nil, nil, false
				v.Timing = outbox.Timing{}
				list = append(list, v)
				return err
			})
	})
	return list, err
}

// Unwell implements outbox.Looking. Only endpoints that were unwell at some time have a row.
func (s *Store) Unwell(ctx context.Context, limit int) (found []outbox.EndpointHealth, err error) {
	err = s.read(ctx, func(r *session) error {
		return r.each(`
			SELECT h.shard, h.endpoint, h.tenant, h.breaker, h.next_probe_at, h.detail
			FROM waybill_endpoint_health AS h
			JOIN waybill_endpoint AS e ON e.id = h.endpoint AND e.deleted_at IS NULL
			WHERE h.breaker <> 'closed' OR h.detail ->> 'failing_since' IS NOT NULL
			ORDER BY h.breaker = 'closed', h.updated_at DESC, h.endpoint
			LIMIT ?`,
			[]any{limit},
			func(scan scan) error {
				h, err := scanHealth(scan)
				found = append(found, h)
				return err
			})
	})
	return found, err
}

// Standing implements outbox.Looking.
func (s *Store) Standing(ctx context.Context) (st outbox.Standing, err error) {
	err = s.read(ctx, func(r *session) error {
		return r.get(`
			SELECT coalesce(sum(planned - delivered - dead - cancelled), 0), coalesce(sum(dead + cancelled - revived - purged), 0)
			FROM waybill_ledger`,
			nil, &st.Pending, &st.Dead)
	})
	return st, err
}

// ReportNode implements outbox.Looking.
func (s *Store) ReportNode(ctx context.Context, n outbox.NodeReport) error {
	return s.write(ctx, func(w *session) error {
		if _, err := w.exec(`
			DELETE FROM waybill_node_report
			WHERE node NOT IN (SELECT id FROM waybill_node)`); err != nil {
			return err
		}
		_, err := w.exec(`
			INSERT INTO waybill_node_report (node, at, detail)
			VALUES (?, ?, ?)
			ON CONFLICT (node) DO UPDATE
			SET at = excluded.at,
			    detail = excluded.detail`,
			n.Node[:], micros(n.At), toJSON(&n))
		return err
	})
}

// Cluster implements outbox.Looking.
func (s *Store) Cluster(ctx context.Context) (c outbox.Cluster, err error) {
	err = s.read(ctx, func(r *session) error {
		c = outbox.Cluster{}
		if err := r.each(`
			SELECT n.id, n.beat, n.started_at, n.draining, r.at, coalesce(r.detail, '{}')
			FROM waybill_node n
			LEFT JOIN waybill_node_report r ON r.node = n.id
			ORDER BY n.id`, nil, func(scan scan) error {
			var n outbox.NodeView
			var detail string
			if err := scan(idTo{(*[16]byte)(&n.NodeBeat.Node)}, &n.Beat, timeTo{&n.StartedAt}, &n.Draining, timeTo{&n.At}, &detail); err != nil {
				return err
			}
			err := json.Unmarshal([]byte(detail), &n.NodeReport)
			n.NodeReport.Node = n.NodeBeat.Node
			c.Nodes = append(c.Nodes, n)
			return err
		}); err != nil {
			return err
		}
		return r.each(`
			SELECT shard, node, epoch, released
			FROM waybill_shard
			ORDER BY shard`, nil, func(scan scan) error {
			var st outbox.ShardState
			err := scan(&st.Shard, idTo{(*[16]byte)(&st.Node)}, &st.Epoch, &st.Released)
			c.Shards = append(c.Shards, st)
			i := slices.IndexFunc(c.Nodes, func(n outbox.NodeView) bool { return n.NodeBeat.Node == st.Node })
			if i >= 0 {
				c.Nodes[i].Shards++
			}
			return err
		})
	})
	return c, err
}

// OutboxHeads implements outbox.Looking.
func (s *Store) OutboxHeads(ctx context.Context, shards []outbox.Shard) (map[outbox.Shard]int64, error) {
	heads := map[outbox.Shard]int64{}
	err := s.read(ctx, func(r *session) error {
		return r.each(`
			SELECT w.value, (SELECT min(o.pos) FROM waybill_outbox o WHERE o.shard = w.value)
			FROM json_each(?) AS w`,
			[]any{shardList(shards)},
			func(scan scan) error {
				var shard outbox.Shard
				var pos sql.NullInt64
				err := scan(&shard, &pos)
				if pos.Valid {
					heads[shard] = pos.Int64
				}
				return err
			})
	})
	return heads, err
}
