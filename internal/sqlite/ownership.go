package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// Join registers the node.
func (s *Store) Join(ctx context.Context, node outbox.NodeID, now time.Time) error {
	return s.write(ctx, func(w *session) error {
		_, err := w.exec(`
			INSERT INTO waybill_node (id, started_at)
			VALUES (?, ?)
			ON CONFLICT (id) DO NOTHING`,
			node[:], micros(now))
		return err
	})
}

// Leave removes the node.
func (s *Store) Leave(ctx context.Context, node outbox.NodeID) error {
	return s.write(ctx, func(w *session) error {
		_, err := w.exec("DELETE FROM waybill_node WHERE id = ?", node[:])
		return err
	})
}

// Beat writes the node's heartbeat and reads everyone's.
func (s *Store) Beat(ctx context.Context, node outbox.NodeID, draining bool) (outbox.Beat, error) {
	var beat outbox.Beat
	err := s.write(ctx, func(w *session) error {
		beat = outbox.Beat{Now: time.Now().UTC().Truncate(time.Microsecond), Revisions: map[outbox.Shard]int64{}}
		if _, err := w.exec(`
			INSERT INTO waybill_node (id, beat, started_at, draining)
			VALUES (?, 1, ?, ?)
			ON CONFLICT (id) DO UPDATE SET beat = beat + 1, draining = excluded.draining`,
			node[:], micros(beat.Now), draining); err != nil {
			return err
		}
		var err error
		if beat.Dispatch, err = dispatchState(w); err != nil {
			return err
		}
		if err := w.each("SELECT id, beat, started_at, draining FROM waybill_node ORDER BY id", nil, func(scan scan) error {
			var n outbox.NodeBeat
			err := scan(idTo{(*[16]byte)(&n.Node)}, &n.Beat, timeTo{&n.StartedAt}, &n.Draining)
			beat.Nodes = append(beat.Nodes, n)
			return err
		}); err != nil {
			return err
		}
		return w.each(`
			SELECT s.shard, s.node, s.epoch, s.released, c.revision
			FROM waybill_shard s
			JOIN waybill_shard_config c USING (shard)
			ORDER BY s.shard`,
			nil,
			func(scan scan) error {
				var state outbox.ShardState
				var revision int64
				err := scan(&state.Shard, idTo{(*[16]byte)(&state.Node)}, &state.Epoch, &state.Released, &revision)
				beat.Shards = append(beat.Shards, state)
				beat.Revisions[state.Shard] = revision
				return err
			})
	})
	if err != nil {
		return outbox.Beat{}, err
	}
	beat.NoteOwners()
	return beat, nil
}

// Take makes node the owner of shards.
func (s *Store) Take(ctx context.Context, node outbox.NodeID, shards []outbox.ShardState) (outbox.Lease, map[outbox.Shard][]outbox.HeldSlot, error) {
	var lease outbox.Lease
	var held map[outbox.Shard][]outbox.HeldSlot
	err := s.write(ctx, func(w *session) error {
		lease = outbox.Lease{Node: node, Epochs: map[outbox.Shard]int64{}}
		held = map[outbox.Shard][]outbox.HeldSlot{}
		for _, state := range shards {
			var slots []outbox.HeldSlot
			err := w.get(`
				SELECT held
				FROM waybill_shard
				WHERE shard = ?1 AND epoch = ?2 AND node IS ?3
					AND (node IS NULL OR node = ?4 OR ?5 = coalesce((SELECT beat FROM waybill_node WHERE id = ?3), 0))`,
				[]any{int64(state.Shard), state.Epoch, idOrNull(state.Node), node[:], state.Beat}, jsonTo{&slots})
			if errors.Is(err, sql.ErrNoRows) {
				continue
			}
			if err != nil {
				return err
			}
			if _, err := w.exec(`
				UPDATE waybill_shard
				SET node = ?, epoch = epoch + 1, released = 0, held = '[]'
				WHERE shard = ?`,
				node[:], int64(state.Shard)); err != nil {
				return err
			}
			lease.Epochs[state.Shard] = state.Epoch + 1
			if len(slots) > 0 {
				held[state.Shard] = slots
			}
		}
		return nil
	})
	if err != nil {
		return outbox.Lease{}, nil, err
	}
	return lease, held, nil
}

// Release gives shards up.
func (s *Store) Release(ctx context.Context, lease outbox.Lease, held map[outbox.Shard][]outbox.HeldSlot) error {
	return s.write(ctx, func(w *session) error {
		for _, shard := range slices.Sorted(maps.Keys(lease.Epochs)) {
			slots := "[]"
			if len(held[shard]) > 0 {
				slots = toJSON(held[shard])
			}
			if _, err := w.exec(`
				UPDATE waybill_shard
				SET node = NULL, released = 1, held = ?
				WHERE shard = ? AND node = ? AND epoch = ?`,
				slots, int64(shard), lease.Node[:], lease.Epochs[shard]); err != nil {
				return err
			}
		}
		return nil
	})
}

// fence makes sure that the lease still holds for the shards.
func fence(w *session, lease outbox.Lease, shards []outbox.Shard) error {
	for _, shard := range shards {
		epoch, ok := lease.Epochs[shard]
		if !ok {
			return outbox.ErrFenced
		}
		var one int
		err := w.get(`
			SELECT 1
			FROM waybill_shard
			WHERE shard = ? AND node = ? AND epoch = ?`,
			[]any{int64(shard), lease.Node[:], epoch}, &one)
		if errors.Is(err, sql.ErrNoRows) {
			return outbox.ErrFenced
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Revisions implements outbox.Ownership.
func (s *Store) Revisions(ctx context.Context, shards []outbox.Shard) (map[outbox.Shard]int64, error) {
	revisions := map[outbox.Shard]int64{}
	err := s.read(ctx, func(r *session) error { return readRevisions(r, []any{shardList(shards)}, revisions) })
	return revisions, err
}

func readRevisions(r *session, shards []any, into map[outbox.Shard]int64) error {
	return r.each(`
		SELECT shard, revision
		FROM waybill_shard_config
		WHERE shard IN (SELECT value FROM json_each(?))`,
		shards,
		func(scan scan) error {
			var shard outbox.Shard
			var revision int64
			err := scan(&shard, &revision)
			into[shard] = revision
			return err
		})
}

// LoadConfig reads the configuration of the shards.
func (s *Store) LoadConfig(ctx context.Context, shards []outbox.Shard) (config outbox.ShardConfig, err error) {
	config.Revisions = map[outbox.Shard]int64{}
	list := []any{shardList(shards)}
	err = s.read(ctx, func(r *session) error {
		if err := readRevisions(r, list, config.Revisions); err != nil {
			return err
		}
		if err := r.each(`
			SELECT `+tenantColumns+`
			FROM waybill_tenant t
			WHERE t.deleted_at IS NULL AND t.shard IN (SELECT value FROM json_each(?))
			ORDER BY t.id`,
			list,
			func(scan scan) error {
				t, err := scanTenant(scan)
				config.Tenants = append(config.Tenants, t)
				return err
			}); err != nil {
			return err
		}
		if err := r.each(`
			SELECT `+endpointColumns+`
			FROM waybill_endpoint e
			WHERE e.deleted_at IS NULL AND e.shard IN (SELECT value FROM json_each(?))
			ORDER BY e.id`,
			list,
			func(scan scan) error {
				e, err := s.scanEndpoint(scan)
				config.Endpoints = append(config.Endpoints, e)
				return err
			}); err != nil {
			return err
		}
		if config.Schemes, err = allSchemes(r); err != nil {
			return err
		}
		return r.each(`
			SELECT e.shard, e.id
			FROM waybill_endpoint AS e
			LEFT JOIN waybill_endpoint_order AS o ON o.endpoint = e.id
			WHERE e.deleted_at IS NULL AND e.shard IN (SELECT value FROM json_each(?))
				AND CASE e.ordering
					WHEN 'strict' THEN o.state IS NOT 'strict' OR o.hold <> (e.on_dead = 'hold')
					ELSE o.state IS NOT NULL
				END`,
			list,
			func(scan scan) error {
				var row outbox.EndpointRow
				err := scan(&row.Shard, idTo{(*[16]byte)(&row.Endpoint)})
				config.Unordered = append(config.Unordered, row)
				return err
			})
	})
	if err != nil {
		return outbox.ShardConfig{}, err
	}
	return config, nil
}

// Heads finds the front of every endpoint and lane. It skips through the index from one endpoint
// to the next, so a backlog of any depth costs one step.
func (s *Store) Heads(ctx context.Context, shards []outbox.Shard) (heads []outbox.Head, err error) {
	err = s.read(ctx, func(r *session) error {
		for _, shard := range shards {
			at := outbox.Head{Shard: shard, Lane: -1}
			for {
				err := r.get(`
					SELECT endpoint, lane, tenant, next_at
					FROM waybill_delivery
					WHERE shard = ? AND (endpoint, lane) > (?, ?)
					ORDER BY endpoint, lane, next_at
					LIMIT 1`,
					[]any{int64(shard), at.Endpoint[:], int64(at.Lane)},
					idTo{(*[16]byte)(&at.Endpoint)}, &at.Lane, &at.Tenant, timeTo{&at.NextAt})
				if errors.Is(err, sql.ErrNoRows) {
					break
				}
				if err != nil {
					return err
				}
				if !at.NextAt.Equal(outbox.Parked) {
					heads = append(heads, at)
				}
			}
		}
		return nil
	})
	return heads, err
}
