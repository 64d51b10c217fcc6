package postgres

import (
	"bytes"
	"context"
	"encoding/json"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype/zeronull"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// ReadOutbox implements outbox.Routing.
func (s *Store) ReadOutbox(ctx context.Context, shards []outbox.Shard, after []int64, perShard int) ([]outbox.OutboxRow, error) {
	var list []outbox.OutboxRow
	err := s.read(ctx, hot, func(b *pgx.Batch) {
		list = nil
		b.Queue(`
			SELECT s.shard, o.pos, o.kind, o.tenant, o.event, o.endpoint, o.after, o.args
			FROM unnest($1::smallint[], $2::bigint[]) AS s (shard, after)
			CROSS JOIN LATERAL (
				SELECT o.pos, o.kind, o.tenant, o.event, o.endpoint, o.after, o.args
				FROM waybill.outbox AS o
				WHERE o.shard = s.shard AND o.pos > s.after
				ORDER BY o.pos
				LIMIT $3
			) AS o`,
			shardColumn(shards), after, perShard,
		).Query(func(rows pgx.Rows) error {
			for rows.Next() {
				var o outbox.OutboxRow
				var shard int16
				var args []byte
				err := rows.Scan(&shard, &o.Pos, &o.Kind, &o.Tenant, intoID(&o.Event), intoID(&o.Endpoint), intoID(&o.After), &args)
				if err != nil {
					return err
				}
				o.Shard = outbox.Shard(shard)
				if args != nil {
					if err := json.Unmarshal(args, &o.Command); err != nil {
						return err
					}
				}
				list = append(list, o)
			}
			return rows.Err()
		})
	})
	return list, err
}

// OutboxTip implements outbox.Routing.
func (s *Store) OutboxTip(ctx context.Context) (int64, error) {
	var tip int64
	err := s.read(ctx, hot, func(b *pgx.Batch) {
		b.Queue(`
			SELECT CASE WHEN is_called THEN last_value ELSE 0 END
			FROM waybill.outbox_pos_seq`,
		).QueryRow(func(row pgx.Row) error { return row.Scan(&tip) })
	})
	return tip, err
}

// ReadEvents implements outbox.Routing.
func (s *Store) ReadEvents(ctx context.Context, rows []outbox.OutboxRow, maxPayload int64) error {
	var wanted []int
	var r idRange
	for i := range rows {
		rows[i].Source, rows[i].HasPayload = nil, false
		if !rows[i].Event.IsZero() {
			wanted = append(wanted, i)
			r.add(rows[i].Event)
		}
	}
	if len(wanted) == 0 {
		return nil
	}
	return s.read(ctx, people, func(b *pgx.Batch) {
		b.Queue(`
			SELECT n, type, ordering_key, metadata, sha256, created_at,
				CASE WHEN total <= $4 THEN payload END
			FROM (
				SELECT w.n, e.type, e.ordering_key, e.metadata, e.sha256, e.created_at, e.payload,
					sum(octet_length(e.payload)) OVER (ORDER BY w.n) AS total
				FROM unnest($1::smallint[], $2::bigint[], $3::uuid[]) WITH ORDINALITY AS w (shard, tenant, id, n)
				CROSS JOIN LATERAL (`+eventOfW+`) AS e
			) AS found`,
			column(wanted, func(i *int) int16 { return int16(rows[*i].Shard) }),
			column(wanted, func(i *int) int64 { return int64(rows[*i].Tenant) }),
			column(wanted, func(i *int) zeronull.UUID { return uuid(rows[*i].Event) }),
			maxPayload, uuid(r.low), uuid(r.high),
		).Query(func(found pgx.Rows) error {
			for found.Next() {
				var n int
				var e outbox.Event
				var metadata, sum []byte
				err := found.Scan(&n, &e.Type, intoText(&e.OrderingKey), &metadata, &sum, &e.CreatedAt, &e.Payload)
				if err != nil {
					return err
				}
				row := &rows[wanted[n-1]]
				e.ID, e.Tenant = row.Event, outbox.TenantRef{ID: row.Tenant, Shard: row.Shard}
				copy(e.SHA256[:], sum)
				if metadata != nil {
					if err := json.Unmarshal(metadata, &e.Metadata); err != nil {
						return err
					}
				}
				row.Source, row.HasPayload = &e, e.Payload != nil
				if e.Payload != nil && outbox.Erased(len(e.Payload), e.SHA256) {
					e.Payload, row.HasPayload = nil, false
				}
			}
			return found.Err()
		})
	})
}

// eventOfW finds the event of a row w of (shard, tenant, id), wherever it is kept. $5 and $6 are
// the range of ids asked for.
const eventOfW = `
	SELECT e.type, e.ordering_key, e.metadata, e.sha256, e.created_at, e.payload, e.erased_bytes
	FROM waybill.event AS e
	WHERE e.shard = w.shard AND e.tenant = w.tenant AND e.id = w.id AND e.id BETWEEN $5 AND $6
	UNION ALL
	SELECT k.type, k.ordering_key, k.metadata, k.sha256, k.created_at, k.payload, k.erased_bytes
	FROM waybill.event_kept AS k
	WHERE k.shard = w.shard AND k.tenant = w.tenant AND k.id = w.id`

// idRange is the smallest range that covers some event ids.
type idRange struct{ low, high outbox.EventID }

func (r *idRange) add(id outbox.EventID) {
	if r.low.IsZero() || bytes.Compare(id[:], r.low[:]) < 0 {
		r.low = id
	}
	if bytes.Compare(id[:], r.high[:]) > 0 {
		r.high = id
	}
}

// NextSequences implements outbox.Routing.
func (s *Store) NextSequences(ctx context.Context, endpoints map[outbox.EndpointID]outbox.Shard) (map[outbox.EndpointID]int64, error) {
	next := make(map[outbox.EndpointID]int64, len(endpoints))
	var ids uuids
	var shards []int16
	for id, shard := range endpoints {
		next[id] = 1
		ids = append(ids, uuid(id))
		shards = append(shards, int16(shard))
	}
	err := s.read(ctx, hot, func(b *pgx.Batch) {
		b.Queue(`
			SELECT w.endpoint, m.next
			FROM unnest($1::smallint[], $2::uuid[]) AS w (shard, endpoint)
			CROSS JOIN LATERAL (
				SELECT m.next
				FROM waybill.mark AS m
				WHERE m.shard = w.shard AND m.endpoint = w.endpoint
				ORDER BY m.next DESC
				LIMIT 1
			) AS m`,
			shards, ids,
		).Query(func(rows pgx.Rows) error {
			var id outbox.EndpointID
			var n int64
			_, err := pgx.ForEachRow(rows, []any{intoID(&id), &n}, func() error {
				next[id] = n
				return nil
			})
			return err
		})
	})
	return next, err
}

// fence locks the lease's rows of the given shards for as long as the transaction lasts and
// returns which are held, so that nobody can take a shard while work for it is being written.
type fence struct {
	want int
	held int
}

func (f *fence) queue(b *pgx.Batch, lease outbox.Lease, shards map[outbox.Shard]bool) {
	f.want, f.held = len(shards), 0
	var names []int16
	var epochs []int64
	for shard := range shards {
		epoch, ok := lease.Epochs[shard]
		if !ok {
			epoch = -1 // matches no row
		}
		names, epochs = append(names, int16(shard)), append(epochs, epoch)
	}
	b.Queue(`
		SELECT s.shard
		FROM unnest($2::smallint[], $3::bigint[]) AS mine (shard, epoch)
		JOIN waybill.shard AS s ON s.shard = mine.shard
		WHERE s.node = $1 AND s.epoch = mine.epoch
		ORDER BY s.shard
		FOR UPDATE OF s`,
		uuid(lease.Node), names, epochs,
	).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			f.held++
		}
		return rows.Err()
	})
}

func (f *fence) check() error {
	if f.held < f.want {
		return outbox.ErrFenced
	}
	return nil
}

// deliveryColumns are the columns of a pending delivery, in the order scanDelivery reads.
const deliveryColumns = `
	d.shard, d.dlv, d.tenant, d.endpoint, d.event, d.event_type, d.sequence, d.ordering_key,
	d.round, d.attempt, d.round_start, d.lane, d.next_at, d.sendable_at, d.turn_at`

// intoDelivery returns the targets for deliveryColumns.
func intoDelivery(d *outbox.Delivery) []any {
	return []any{
		intoShard(&d.Shard), intoID(&d.ID), &d.Tenant, intoID(&d.Endpoint), intoID(&d.Event), &d.EventType, &d.Sequence, intoText(&d.OrderingKey),
		&d.Round, &d.Attempt, &d.RoundStart, &d.Lane, &d.NextAt, &d.SendableAt, intoTime(&d.TurnAt),
	}
}

// collectDeliveries reads deliveryColumns row by row.
func collectDeliveries(list *[]outbox.Delivery) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		for rows.Next() {
			var d outbox.Delivery
			if err := rows.Scan(intoDelivery(&d)...); err != nil {
				return err
			}
			*list = append(*list, d)
		}
		return rows.Err()
	}
}
