package postgres

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// Join implements outbox.Ownership.
func (s *Store) Join(ctx context.Context, node outbox.NodeID, now time.Time) error {
	return s.transact(ctx, hot, func(b *pgx.Batch) error {
		b.Queue(`
			INSERT INTO waybill.node (id, started_at)
			VALUES ($1, $2)
			ON CONFLICT (id) DO NOTHING`,
			uuid(node), now)
		return nil
	})
}

// Leave implements outbox.Ownership.
func (s *Store) Leave(ctx context.Context, node outbox.NodeID) error {
	return s.transact(ctx, hot, func(b *pgx.Batch) error {
		b.Queue(`
			DELETE FROM waybill.node
			WHERE id = $1`,
			uuid(node))
		return nil
	})
}

// foldRevisions is how many rows of shard_config one shard may have before a heartbeat folds
// them: routing reads their sum.
const foldRevisions = 100

// Beat implements outbox.Ownership. It runs on a connection of its own.
func (s *Store) Beat(ctx context.Context, node outbox.NodeID, draining bool) (outbox.Beat, error) {
	beat := outbox.Beat{Revisions: map[outbox.Shard]int64{}}
	var crowded []int16
	err := transactOn(ctx, s.pulse, hot, func(b *pgx.Batch) error {
		// A row that somebody removed comes back: the node is alive.
		b.Queue(`
			INSERT INTO waybill.node AS n (id, beat, started_at, draining)
			VALUES ($1, 1, clock_timestamp(), $2)
			ON CONFLICT (id) DO UPDATE
			SET beat = n.beat + 1, draining = excluded.draining, seen_at = clock_timestamp()`,
			uuid(node), draining)
		b.Queue(`SELECT clock_timestamp()`).QueryRow(func(row pgx.Row) error {
			return row.Scan(&beat.Now)
		})
		queueDispatch(b, &beat.Dispatch)
		b.Queue(`
			SELECT shard, sum(revision)::bigint, count(*)
			FROM waybill.shard_config
			GROUP BY shard`,
		).Query(func(rows pgx.Rows) error {
			var shard int16
			var revision, n int64
			_, err := pgx.ForEachRow(rows, []any{&shard, &revision, &n}, func() error {
				beat.Revisions[outbox.Shard(shard)] = revision
				if n > foldRevisions {
					crowded = append(crowded, shard)
				}
				return nil
			})
			return err
		})
		b.Queue(`
			SELECT id, beat, started_at, draining
			FROM waybill.node
			ORDER BY id`,
		).Query(func(rows pgx.Rows) error {
			var n outbox.NodeBeat
			_, err := pgx.ForEachRow(rows, []any{intoID(&n.Node), &n.Beat, &n.StartedAt, &n.Draining}, func() error {
				beat.Nodes = append(beat.Nodes, n)
				return nil
			})
			return err
		})
		b.Queue(`
			SELECT shard, node, epoch, released
			FROM waybill.shard
			ORDER BY shard`,
		).Query(func(rows pgx.Rows) error {
			var shard int16
			var st outbox.ShardState
			_, err := pgx.ForEachRow(rows, []any{&shard, intoID(&st.Node), &st.Epoch, &st.Released}, func() error {
				st.Shard = outbox.Shard(shard)
				beat.Shards = append(beat.Shards, st)
				return nil
			})
			return err
		})
		return nil
	})
	if err != nil {
		return outbox.Beat{}, err
	}
	for shard := range outbox.Shards {
		beat.Revisions[outbox.Shard(shard)] += 0 // a shard nobody configured has revision 0
	}
	beat.NoteOwners()
	if len(crowded) > 0 {
		if err := s.foldRevisions(ctx, crowded); err != nil {
			s.log.WarnContext(ctx, "fold configuration revisions", "error", err) // the next beat tries again
		}
	}
	return beat, nil
}

// foldRevisions replaces the rows of a shard by their sum. Two that run at once share the work:
// a row deleted by the other is passed over.
func (s *Store) foldRevisions(ctx context.Context, shards []int16) error {
	return s.transact(ctx, hot, func(b *pgx.Batch) error {
		b.Queue(`
			WITH folded AS (
				DELETE FROM waybill.shard_config
				WHERE shard = ANY ($1)
				RETURNING shard, revision
			)
			INSERT INTO waybill.shard_config (shard, revision)
			SELECT shard, sum(revision)
			FROM folded
			GROUP BY shard`,
			shards)
		return nil
	})
}

// Take implements outbox.Ownership. A shard whose row is locked is being worked on by its owner
// and is passed over. One that an earlier run of this call took, whose commit was never answered,
// is taken again, with the slots in flight, which therefore stay in the row; from an owner that
// died nobody takes them over.
//
// The owner's row is locked, so that its next beat finds the shard taken or this call finds the beat
// moved on. One that is beating just now has its row locked itself and is passed over.
func (s *Store) Take(ctx context.Context, node outbox.NodeID, shards []outbox.ShardState) (outbox.Lease, map[outbox.Shard][]outbox.HeldSlot, error) {
	lease := outbox.Lease{Node: node, Epochs: map[outbox.Shard]int64{}, Revisions: map[outbox.Shard]int64{}}
	held := map[outbox.Shard][]outbox.HeldSlot{}
	err := s.transact(ctx, hot, func(b *pgx.Batch) error {
		b.Queue(`
			WITH owner AS MATERIALIZED (
				SELECT id, beat
				FROM waybill.node
				WHERE id = ANY ($3) AND id <> $1
				ORDER BY id
				FOR SHARE SKIP LOCKED
			), free AS (
				SELECT s.shard, CASE WHEN s.released OR s.node = $1 THEN s.held ELSE '[]' END AS held
				FROM unnest($2::smallint[], $3::uuid[], $4::bigint[], $5::bigint[]) AS seen (shard, node, epoch, beat)
				JOIN waybill.shard AS s ON s.shard = seen.shard
				WHERE s.node = $1 AND s.epoch IN (seen.epoch, seen.epoch + 1)
					OR s.node IS NOT DISTINCT FROM seen.node AND s.epoch = seen.epoch AND (
						s.node IS NULL
						OR (s.node, seen.beat) IN (SELECT id, beat FROM owner)
						OR seen.beat = 0 AND NOT EXISTS (SELECT FROM waybill.node AS n WHERE n.id = s.node))
				ORDER BY s.shard
				FOR UPDATE OF s SKIP LOCKED
			)
			UPDATE waybill.shard AS s
			SET node = $1, epoch = s.epoch + 1, released = false
			FROM free
			WHERE s.shard = free.shard
			RETURNING s.shard, s.epoch, free.held`,
			uuid(node),
			column(shards, func(st *outbox.ShardState) int16 { return int16(st.Shard) }),
			column(shards, func(st *outbox.ShardState) pgtype.UUID {
				return pgtype.UUID{Bytes: st.Node, Valid: !st.Node.IsZero()}
			}),
			column(shards, func(st *outbox.ShardState) int64 { return st.Epoch }),
			column(shards, func(st *outbox.ShardState) int64 { return st.Beat }),
		).Query(func(rows pgx.Rows) error {
			var shard int16
			var epoch int64
			var slots []outbox.HeldSlot
			_, err := pgx.ForEachRow(rows, []any{&shard, &epoch, &slots}, func() error {
				lease.Epochs[outbox.Shard(shard)] = epoch
				if len(slots) > 0 {
					held[outbox.Shard(shard)] = slots
				}
				slots = nil
				return nil
			})
			return err
		})
		return nil
	})
	if err != nil {
		return outbox.Lease{}, nil, err
	}
	return lease, held, nil
}

// leaseColumns is a lease as parallel columns, by shard.
func leaseColumns(lease outbox.Lease) (shards []int16, epochs []int64) {
	for _, shard := range slices.Sorted(maps.Keys(lease.Epochs)) {
		shards = append(shards, int16(shard))
		epochs = append(epochs, lease.Epochs[shard])
	}
	return shards, epochs
}

// Release implements outbox.Ownership.
func (s *Store) Release(ctx context.Context, lease outbox.Lease, held map[outbox.Shard][]outbox.HeldSlot) error {
	shards, epochs := leaseColumns(lease)
	texts := make([]string, len(shards))
	for i, shard := range shards {
		text, err := json.Marshal(append([]outbox.HeldSlot{}, held[outbox.Shard(shard)]...))
		if err != nil {
			return err
		}
		texts[i] = string(text)
	}
	return s.transact(ctx, hot, func(b *pgx.Batch) error {
		b.Queue(`
			WITH mine AS (
				SELECT s.shard, given.held
				FROM unnest($2::smallint[], $3::bigint[], $4::text[]) AS given (shard, epoch, held)
				JOIN waybill.shard AS s ON s.shard = given.shard
				WHERE s.node = $1 AND s.epoch = given.epoch
				ORDER BY s.shard
				FOR UPDATE OF s
			)
			UPDATE waybill.shard AS s
			SET node = NULL, released = true, held = mine.held::jsonb
			FROM mine
			WHERE s.shard = mine.shard`,
			uuid(lease.Node), shards, epochs, texts)
		return nil
	})
}

// Revisions implements outbox.Ownership.
func (s *Store) Revisions(ctx context.Context, shards []outbox.Shard) (map[outbox.Shard]int64, error) {
	var revisions map[outbox.Shard]int64
	err := s.read(ctx, hot, func(b *pgx.Batch) {
		revisions = map[outbox.Shard]int64{}
		queueRevisions(b, shardColumn(shards), revisions)
	})
	return revisions, err
}

func queueRevisions(b *pgx.Batch, shards []int16, into map[outbox.Shard]int64) {
	b.Queue(`
		SELECT shard, sum(revision)::bigint
		FROM waybill.shard_config
		WHERE shard = ANY ($1)
		GROUP BY shard`,
		shards,
	).Query(func(rows pgx.Rows) error {
		var shard int16
		var revision int64
		_, err := pgx.ForEachRow(rows, []any{&shard, &revision}, func() error {
			into[outbox.Shard(shard)] = revision
			return nil
		})
		return err
	})
}

// LoadConfig implements outbox.Ownership.
func (s *Store) LoadConfig(ctx context.Context, shards []outbox.Shard) (outbox.ShardConfig, error) {
	var c outbox.ShardConfig
	err := s.read(ctx, limits{lock: hot.lock, statement: time.Minute, plan: planEach, scans: true}, func(b *pgx.Batch) {
		c = outbox.ShardConfig{Revisions: map[outbox.Shard]int64{}}
		wanted := shardColumn(shards)
		queueRevisions(b, wanted, c.Revisions)
		b.Queue(`
			SELECT `+tenantColumns+`
			FROM waybill.tenant
			WHERE shard = ANY ($1) AND deleted_at IS NULL
			ORDER BY id`,
			wanted,
		).Query(s.collectTenants(ctx, &c.Tenants))
		b.Queue(`
			SELECT `+endpointColumns+`
			FROM waybill.endpoint
			WHERE shard = ANY ($1) AND deleted_at IS NULL
			ORDER BY id`,
			wanted,
		).Query(s.collectEndpoints(&c.Endpoints))
		queueSchemes(b, &c.Schemes)
		b.Queue(`
			SELECT e.shard, e.id
			FROM waybill.endpoint AS e
			LEFT JOIN waybill.endpoint_order AS o ON o.shard = e.shard AND o.endpoint = e.id
			WHERE e.shard = ANY ($1) AND e.deleted_at IS NULL
				AND CASE e.ordering
					WHEN 'strict' THEN o.state IS DISTINCT FROM 'strict' OR o.hold <> (e.on_dead = 'hold')
					ELSE o.state IS NOT NULL
				END`,
			wanted,
		).Query(func(rows pgx.Rows) error {
			var e outbox.EndpointRow
			_, err := pgx.ForEachRow(rows, []any{intoShard(&e.Shard), intoID(&e.Endpoint)}, func() error {
				c.Unordered = append(c.Unordered, e)
				return nil
			})
			return err
		})
	})
	if err != nil {
		return outbox.ShardConfig{}, err
	}
	for _, shard := range shards {
		c.Revisions[shard] += 0 // a shard nobody configured has revision 0
	}
	return c, nil
}

// Heads implements outbox.Ownership. It walks the due index from one endpoint and lane to the
// next, so a backlog of millions costs no more than one row.
func (s *Store) Heads(ctx context.Context, shards []outbox.Shard) ([]outbox.Head, error) {
	var heads []outbox.Head
	err := s.read(ctx, limits{lock: hot.lock, statement: time.Minute, plan: planOnce}, func(b *pgx.Batch) {
		heads = nil
		b.Queue(`
			SELECT s.shard, head.endpoint, head.tenant, head.lane, head.next_at
			FROM unnest($1::smallint[]) AS s (shard)
			CROSS JOIN LATERAL (
				WITH RECURSIVE head AS (
					(
						SELECT d.endpoint, d.lane, d.tenant, d.next_at
						FROM waybill.delivery AS d
						WHERE d.shard = s.shard
						ORDER BY d.endpoint, d.lane, d.next_at, d.dlv
						LIMIT 1
					)
					UNION ALL
					SELECT next.endpoint, next.lane, next.tenant, next.next_at
					FROM head
					CROSS JOIN LATERAL (
						SELECT d.endpoint, d.lane, d.tenant, d.next_at
						FROM waybill.delivery AS d
						WHERE d.shard = s.shard AND (d.endpoint, d.lane) > (head.endpoint, head.lane)
						ORDER BY d.endpoint, d.lane, d.next_at, d.dlv
						LIMIT 1
					) AS next
				)
				SELECT endpoint, lane, tenant, next_at
				FROM head
				WHERE next_at < `+parkedAt+`
			) AS head`,
			shardColumn(shards),
		).Query(func(rows pgx.Rows) error {
			var shard int16
			var h outbox.Head
			_, err := pgx.ForEachRow(rows, []any{&shard, intoID(&h.Endpoint), &h.Tenant, &h.Lane, &h.NextAt}, func() error {
				h.Shard = outbox.Shard(shard)
				heads = append(heads, h)
				return nil
			})
			return err
		})
	})
	return heads, err
}
