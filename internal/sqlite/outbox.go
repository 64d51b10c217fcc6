package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// ReadOutbox returns thin rows of the shards.
func (s *Store) ReadOutbox(ctx context.Context, shards []outbox.Shard, after []int64, perShard int) (rows []outbox.OutboxRow, err error) {
	err = s.read(ctx, func(r *session) error {
		// Most polls find nothing new anywhere: one step tells, instead of one for each shard.
		var newest int64
		if err := r.get("SELECT coalesce(max(pos), 0) FROM waybill_outbox", nil, &newest); err != nil {
			return err
		}
		for i, shard := range shards {
			if after[i] >= newest {
				continue
			}
			if err := r.each(`
				SELECT pos, kind, tenant, event, endpoint, after, args
				FROM waybill_outbox
				WHERE shard = ? AND pos > ?
				ORDER BY pos
				LIMIT ?`,
				[]any{int64(shard), after[i], perShard},
				func(scan scan) error {
					row := outbox.OutboxRow{Shard: shard}
					err := scan(&row.Pos, &row.Kind, &row.Tenant, idTo{(*[16]byte)(&row.Event)}, idTo{(*[16]byte)(&row.Endpoint)},
						idTo{(*[16]byte)(&row.After)}, jsonTo{&row.Command})
					rows = append(rows, row)
					return err
				}); err != nil {
				return err
			}
		}
		return nil
	})
	return rows, err
}

// OutboxTip returns the newest position given out.
func (s *Store) OutboxTip(ctx context.Context) (tip int64, err error) {
	err = s.read(ctx, func(r *session) error {
		return r.get("SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'waybill_outbox'", nil, &tip)
	})
	return tip, err
}

// eventColumns without the payload.
const eventColumns = "v.id, v.shard, v.tenant, v.type, v.ordering_key, v.metadata, v.sha256, v.created_at"

// eventTo lists where the columns go.
func eventTo(e *outbox.Event) []any {
	return []any{
		idTo{(*[16]byte)(&e.ID)}, &e.Tenant.Shard, &e.Tenant.ID, &e.Type, &e.OrderingKey, jsonTo{&e.Metadata}, digestTo{&e.SHA256}, timeTo{&e.CreatedAt},
	}
}

// ReadEvents fills in the events of outbox rows.
func (s *Store) ReadEvents(ctx context.Context, rows []outbox.OutboxRow, maxPayload int64) error {
	return s.read(ctx, func(r *session) error {
		left := maxPayload
		for i := range rows {
			row := &rows[i]
			if row.Kind == outbox.OutboxCommand {
				continue
			}
			event, payload, size, err := readEvent(r, outbox.TenantRef{ID: row.Tenant, Shard: row.Shard}, row.Event, left)
			if errors.Is(err, outbox.ErrNotFound) {
				row.Source, row.HasPayload = nil, false
				continue
			}
			if err != nil {
				return err
			}
			// The first that does not fit ends it: those behind it would come without the ones
			// before them.
			if left -= size; left < 0 {
				left = -1
			} else {
				event.Payload, row.HasPayload = payload, true
			}
			if outbox.Erased(int(size), event.SHA256) {
				event.Payload, row.HasPayload = nil, false
			}
			row.Source = &event
		}
		return nil
	})
}

// readEvent reads an event, with its payload if that is at most so many bytes, and how many it
// has.
func readEvent(r *session, tenant outbox.TenantRef, id outbox.EventID, most int64) (e outbox.Event, payload []byte, size int64, err error) {
	err = r.get(`
		SELECT `+eventColumns+`, length(v.payload), CASE WHEN length(v.payload) <= ? THEN v.payload END
		FROM waybill_event v
		WHERE v.shard = ? AND v.tenant = ? AND v.id = ?`,
		[]any{most, int64(tenant.Shard), int64(tenant.ID), id[:]},
		append(eventTo(&e), &size, &payload)...)
	if errors.Is(err, sql.ErrNoRows) {
		err = outbox.ErrNotFound
	}
	return e, payload, size, err
}

// NextSequences reads the next number of each endpoint.
func (s *Store) NextSequences(ctx context.Context, endpoints map[outbox.EndpointID]outbox.Shard) (map[outbox.EndpointID]int64, error) {
	next := make(map[outbox.EndpointID]int64, len(endpoints))
	err := s.read(ctx, func(r *session) error {
		for id := range endpoints {
			n := int64(1)
			err := r.get("SELECT next FROM waybill_mark WHERE endpoint = ?", []any{id[:]}, &n)
			if err != nil && !errors.Is(err, sql.ErrNoRows) {
				return err
			}
			next[id] = n
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return next, nil
}

// takeOutbox deletes a row the owner has executed. It reports false where the row was gone: a
// run of the same call had committed.
func takeOutbox(w *session, row outbox.OutboxRow) (bool, error) {
	n, err := w.exec("DELETE FROM waybill_outbox WHERE pos = ? AND shard = ?", row.Pos, int64(row.Shard))
	return n == 1, err
}

// EndCommand implements outbox.Routing.
func (s *Store) EndCommand(ctx context.Context, lease outbox.Lease, row outbox.OutboxRow) error {
	return s.write(ctx, func(w *session) error {
		if err := fence(w, lease, []outbox.Shard{row.Shard}); err != nil {
			return err
		}
		_, err := takeOutbox(w, row)
		return err
	})
}

// hourOf is the line of the ledger a moment belongs to.
func hourOf(at time.Time) int64 { return micros(at.Truncate(time.Hour)) }
