package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype/zeronull"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// like is a pattern that finds the text anywhere.
func like(text string) string {
	return "%" + strings.NewReplacer(`\`, `\\`, `%`, `\%`, `_`, `\_`).Replace(text) + "%"
}

// FindEndpoints implements outbox.Looking. Configuration is small: it is read from end to end.
func (s *Store) FindEndpoints(ctx context.Context, tenant outbox.TenantRef, text string, limit int) ([]outbox.Endpoint, error) {
	var list []outbox.Endpoint
	err := s.read(ctx, people, func(b *pgx.Batch) {
		list = nil
		b.Queue(`
			SELECT `+endpointColumns+`
			FROM waybill.endpoint
			WHERE deleted_at IS NULL
				AND ($1 = 0 OR tenant = $1)
				AND (uid ILIKE $2 OR url ILIKE $2 OR description ILIKE $2
					OR EXISTS (SELECT FROM jsonb_each_text(metadata) AS m WHERE m.value ILIKE $2))
			ORDER BY id DESC
			LIMIT $3`,
			int64(tenant.ID), like(text), limit,
		).Query(s.collectEndpoints(&list))
	})
	return list, err
}

// EndpointsEver implements outbox.Looking.
func (s *Store) EndpointsEver(ctx context.Context, tenant outbox.TenantRef, limit int) ([]outbox.Endpoint, error) {
	var list []outbox.Endpoint
	err := s.read(ctx, people, func(b *pgx.Batch) {
		list = nil
		b.Queue(`
			SELECT `+endpointColumns+`
			FROM waybill.endpoint
			WHERE shard = $1 AND tenant = $2
			ORDER BY id DESC
			LIMIT $3`,
			int16(tenant.Shard), int64(tenant.ID), limit,
		).Query(s.collectEndpoints(&list))
	})
	return list, err
}

// EventOfKey implements outbox.Looking.
func (s *Store) EventOfKey(ctx context.Context, tenant outbox.TenantRef, key string) (outbox.EventID, error) {
	var id outbox.EventID
	err := s.read(ctx, people, func(b *pgx.Batch) {
		b.Queue(`
			SELECT event
			FROM waybill.idempotency
			WHERE shard = $1 AND tenant = $2 AND kind = 0 AND key = $3`,
			int16(tenant.Shard), int64(tenant.ID), key,
		).QueryRow(func(row pgx.Row) error {
			err := row.Scan(intoID(&id))
			if errors.Is(err, pgx.ErrNoRows) {
				return nil
			}
			return err
		})
	})
	if err == nil && id.IsZero() {
		err = outbox.ErrNotFound
	}
	return id, err
}

// EventsWithMetadata implements outbox.Looking.
func (s *Store) EventsWithMetadata(ctx context.Context, tenant outbox.TenantRef, text string, limit int) ([]outbox.EventID, error) {
	return s.eventIDs(ctx, `
		SELECT e.id
		FROM (
			SELECT id, metadata
			FROM waybill.event
			WHERE shard = $1 AND tenant = $2
			ORDER BY id DESC
			LIMIT $5
		) AS e
		WHERE e.metadata IS NOT NULL AND EXISTS (SELECT FROM jsonb_each_text(e.metadata) AS m WHERE m.value = $3)
		ORDER BY e.id DESC
		LIMIT $4`,
		int16(tenant.Shard), int64(tenant.ID), text, limit, outbox.MaxListScan)
}

// EventsAfter implements outbox.Looking.
func (s *Store) EventsAfter(ctx context.Context, tenant outbox.TenantRef, after outbox.EventID, limit int) ([]outbox.EventID, error) {
	return s.eventIDs(ctx, `
		SELECT id
		FROM waybill.event
		WHERE shard = $1 AND tenant = $2 AND id > $3
		ORDER BY id
		LIMIT $4`,
		int16(tenant.Shard), int64(tenant.ID), [16]byte(after), limit)
}

func (s *Store) eventIDs(ctx context.Context, sql string, args ...any) ([]outbox.EventID, error) {
	var ids []outbox.EventID
	err := s.read(ctx, people, func(b *pgx.Batch) {
		ids = nil
		b.Queue(sql, args...).Query(func(rows pgx.Rows) error {
			var id outbox.EventID
			_, err := pgx.ForEachRow(rows, []any{intoID(&id)}, func() error {
				ids = append(ids, id)
				return nil
			})
			return err
		})
	})
	return ids, err
}

// AttemptsEnded implements outbox.Looking. Of the partitions and pages only those are read whose
// ids are of that time.
func (s *Store) AttemptsEnded(ctx context.Context, q outbox.EndedQuery, limit int) ([]outbox.AttemptView, error) {
	var list []outbox.AttemptView
	shards := q.Shards
	if shards == nil {
		shards = shardsOf(q.Tenant)
	}
	err := s.read(ctx, people, func(b *pgx.Batch) {
		list = nil
		b.Queue(`
			SELECT a.id, a.n, a.round, a.sequence, a.dlv, a.event, a.event_type, a.endpoint, a.tenant, a.shard, t.key,
				a.trigger, a.outcome, a.at, a.duration, a.url, a.kind, a.message, a.status_code, a.request_bytes
			FROM waybill.attempt AS a
			LEFT JOIN waybill.tenant AS t ON t.id = a.tenant
			WHERE a.id >= $1
				AND (a.at + a.duration / 1000 * interval '1 microsecond', a.id) > ($2, $3)
				AND ($4 = 0 OR a.tenant = $4)
				AND a.shard = ANY ($5)
			ORDER BY a.at + a.duration / 1000 * interval '1 microsecond', a.id
			LIMIT $6`,
			uuid(outbox.AttemptFloor(q.Since())), q.After, [16]byte(q.AfterID), int64(q.Tenant.ID), shardColumn(shards), limit,
		).Query(func(rows pgx.Rows) error {
			for rows.Next() {
				var v outbox.AttemptView
				var status zeronull.Int2
				a := &v.Attempt
				if err := rows.Scan(
					intoID(&a.ID), &v.N, &v.Round, &v.Sequence, intoID(&v.Delivery), intoID(&v.Event), &v.EventType, intoID(&v.Endpoint), &v.Tenant.ID, intoShard(&v.Tenant.Shard), intoText(&v.TenantKey),
					&a.Trigger, &a.Outcome, &a.At, (*int64)(&a.Duration), &a.URL, intoText(&a.Kind), intoText(&a.Message), &status, &a.RequestBytes); err != nil {
					return err
				}
				a.StatusCode = int(status)
				list = append(list, v)
			}
			return rows.Err()
		})
	})
	return list, err
}

// Unwell implements outbox.Looking. Only endpoints that were unwell at some time have a row.
func (s *Store) Unwell(ctx context.Context, limit int) ([]outbox.EndpointHealth, error) {
	var found []outbox.EndpointHealth
	err := s.read(ctx, people, func(b *pgx.Batch) {
		found = nil
		b.Queue(`
			SELECT h.shard, h.endpoint, h.tenant, h.breaker, h.next_probe_at, h.detail
			FROM waybill.endpoint_health AS h
			JOIN waybill.endpoint AS e ON e.id = h.endpoint AND e.deleted_at IS NULL
			WHERE h.breaker <> 'closed' OR h.detail ? 'failing_since'
			ORDER BY h.breaker = 'closed', h.updated_at DESC, h.endpoint
			LIMIT $1`,
			limit,
		).Query(func(rows pgx.Rows) error {
			var err error
			found, err = scanHealth(rows)
			return err
		})
	})
	return found, err
}

// Standing implements outbox.Looking.
func (s *Store) Standing(ctx context.Context) (outbox.Standing, error) {
	var st outbox.Standing
	err := s.read(ctx, people, func(b *pgx.Batch) {
		b.Queue(`
			SELECT coalesce(sum(planned), 0)::bigint - coalesce(sum(delivered), 0)::bigint - coalesce(sum(dead), 0)::bigint - coalesce(sum(cancelled), 0)::bigint,
				coalesce(sum(dead), 0)::bigint + coalesce(sum(cancelled), 0)::bigint - coalesce(sum(revived), 0)::bigint - coalesce(sum(purged), 0)::bigint
			FROM waybill.ledger`,
		).QueryRow(func(row pgx.Row) error { return row.Scan(&st.Pending, &st.Dead) })
	})
	return st, err
}

// ReportNode implements outbox.Looking.
func (s *Store) ReportNode(ctx context.Context, r outbox.NodeReport) error {
	detail, err := json.Marshal(&r)
	if err != nil {
		return err
	}
	return s.transact(ctx, hot, func(b *pgx.Batch) error {
		b.Queue(`
			INSERT INTO waybill.node_report (node, at, detail)
			VALUES ($1, $2, $3)
			ON CONFLICT (node) DO UPDATE
			SET at = excluded.at,
			    detail = excluded.detail`,
			uuid(r.Node), r.At, string(detail))
		b.Queue(`
			DELETE FROM waybill.node_report AS r
			WHERE r.at < $1::timestamptz - interval '1 day' AND NOT EXISTS (SELECT FROM waybill.node AS n WHERE n.id = r.node)`,
			r.At)
		return nil
	})
}

// Cluster implements outbox.Looking.
func (s *Store) Cluster(ctx context.Context) (outbox.Cluster, error) {
	var c outbox.Cluster
	look := people
	look.snapshot = true
	err := s.transact(ctx, look, func(b *pgx.Batch) error {
		c = outbox.Cluster{}
		b.Queue(`
			SELECT n.id, n.beat, n.started_at, n.draining, r.at, r.detail
			FROM waybill.node AS n
			LEFT JOIN waybill.node_report AS r ON r.node = n.id
			ORDER BY n.id`,
		).Query(func(rows pgx.Rows) error {
			for rows.Next() {
				var n outbox.NodeView
				var detail []byte
				if err := rows.Scan(intoID(&n.NodeBeat.Node), &n.Beat, &n.StartedAt, &n.Draining, intoTime(&n.At), &detail); err != nil {
					return err
				}
				if detail != nil {
					if err := json.Unmarshal(detail, &n.NodeReport); err != nil {
						return err
					}
				}
				n.NodeReport.Node = n.NodeBeat.Node
				c.Nodes = append(c.Nodes, n)
			}
			return rows.Err()
		})
		b.Queue(`
			SELECT shard, node, epoch, released
			FROM waybill.shard
			ORDER BY shard`,
		).Query(func(rows pgx.Rows) error {
			var st outbox.ShardState
			_, err := pgx.ForEachRow(rows, []any{intoShard(&st.Shard), intoID(&st.Node), &st.Epoch, &st.Released}, func() error {
				c.Shards = append(c.Shards, st)
				return nil
			})
			return err
		})
		return nil
	})
	for i := range c.Nodes {
		for _, st := range c.Shards {
			if st.Node == c.Nodes[i].NodeBeat.Node {
				c.Nodes[i].Shards++
			}
		}
	}
	return c, err
}

// OutboxHeads implements outbox.Looking.
func (s *Store) OutboxHeads(ctx context.Context, shards []outbox.Shard) (map[outbox.Shard]int64, error) {
	heads := map[outbox.Shard]int64{}
	err := s.read(ctx, people, func(b *pgx.Batch) {
		clear(heads)
		b.Queue(`
			SELECT w.shard, o.pos
			FROM unnest($1::smallint[]) AS w (shard)
			CROSS JOIN LATERAL (
				SELECT pos
				FROM waybill.outbox AS o
				WHERE o.shard = w.shard
				ORDER BY o.pos
				LIMIT 1
			) AS o`,
			shardColumn(slices.Clone(shards)),
		).Query(func(rows pgx.Rows) error {
			var shard outbox.Shard
			var pos int64
			_, err := pgx.ForEachRow(rows, []any{intoShard(&shard), &pos}, func() error {
				heads[shard] = pos
				return nil
			})
			return err
		})
	})
	return heads, err
}
