package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// Reorder implements outbox.Order. Each call is a transaction under the shard's lock that leaves
// the rows and endpoint_order in accord, so it does not matter which one is the last before a
// crash: the next owner sees what is still to be done.
func (s *Store) Reorder(ctx context.Context, lease outbox.Lease, shard outbox.Shard, endpoint outbox.EndpointID, from outbox.ReorderFrom, limit int, now time.Time) (outbox.Reordered, error) {
	var f fence
	r := reordering{shard: shard, endpoint: endpoint, from: from, limit: limit, now: now}
	err := s.transact(ctx, hot,
		func(b *pgx.Batch) error {
			f.queue(b, lease, map[outbox.Shard]bool{shard: true})
			r.queueLook(b)
			return nil
		},
		func(b *pgx.Batch) error {
			if err := f.check(); err != nil {
				return err
			}
			r.queueStep(b)
			return nil
		},
		func(b *pgx.Batch) error {
			r.queueEnd(b)
			return nil
		},
	)
	if err != nil {
		return outbox.Reordered{}, err
	}
	return r.done, nil
}

// reordering is one call of Reorder.
type reordering struct {
	shard    outbox.Shard
	endpoint outbox.EndpointID
	from     outbox.ReorderFrom
	limit    int
	now      time.Time

	strict, hold bool   // wanted
	state        string // of endpoint_order; "" for no row
	holds        bool   // of endpoint_order
	changed      int    // rows parked, made due or that let go
	keys         keySet // to be given their turns
	walked       int    // keys looked at
	done         outbox.Reordered
}

// queueLook reads what is wanted and what is. An endpoint that is gone is as good as one whose
// deliveries go side by side: they are cancelled.
func (r *reordering) queueLook(b *pgx.Batch) {
	b.Queue(`
		SELECT coalesce(e.ordering = 'strict', false), coalesce(e.on_dead = 'hold', false), coalesce(o.state, ''), coalesce(o.hold, false)
		FROM (SELECT $1::smallint AS shard, $2::uuid AS endpoint) AS w
		LEFT JOIN waybill.endpoint AS e ON e.id = w.endpoint AND e.deleted_at IS NULL
		LEFT JOIN waybill.endpoint_order AS o ON o.shard = w.shard AND o.endpoint = w.endpoint`,
		int16(r.shard), uuid(r.endpoint),
	).QueryRow(func(row pgx.Row) error { return row.Scan(&r.strict, &r.hold, &r.state, &r.holds) })
}

// queueStep does the next piece of work.
func (r *reordering) queueStep(b *pgx.Batch) {
	switch {
	case !r.strict && r.state == "":
	case !r.strict:
		r.queueState(b, "leaving", false)
		r.queueLeave(b)
		r.queueLetGo(b)
	case r.state == "" || r.state == "parking" || r.state == "leaving":
		r.queueState(b, "parking", r.hold)
		r.queuePark(b)
	default:
		if r.holds != r.hold {
			r.queueState(b, "freeing", r.hold)
			r.state = "freeing"
		}
		if !r.hold {
			r.queueLetGo(b)
		}
		r.queueWalk(b)
	}
}

// queueEnd gives turns and, where everything is done, says so.
func (r *reordering) queueEnd(b *pgx.Batch) {
	switch {
	case !r.strict:
		if r.done.Done = r.changed < r.limit; r.done.Done {
			b.Queue(`
				DELETE FROM waybill.endpoint_order
				WHERE shard = $1 AND endpoint = $2`,
				int16(r.shard), uuid(r.endpoint))
		}
	case r.state == "" || r.state == "parking" || r.state == "leaving":
		if r.changed < r.limit { // none is left: what is planned from here on is kept in order
			r.queueState(b, "freeing", r.hold)
		}
	default:
		queueTurns(b, r.keys, r.now, &r.done.Freed)
		if r.done.Done = r.walked < r.limit && r.changed < r.limit; !r.done.Done {
			return
		}
		r.done.Next = outbox.ReorderFrom{}
		if r.state != "strict" {
			r.queueState(b, "strict", r.hold)
		}
	}
}

func (r *reordering) queueState(b *pgx.Batch, state string, hold bool) {
	b.Queue(`
		INSERT INTO waybill.endpoint_order AS o (shard, endpoint, hold, state)
		VALUES ($1, $2, $3, $4)
		ON CONFLICT (shard, endpoint) DO UPDATE
		SET hold = excluded.hold, state = excluded.state
		WHERE o.hold <> excluded.hold OR o.state <> excluded.state`,
		int16(r.shard), uuid(r.endpoint), hold, state)
}

// queuePark parks deliveries that were planned side by side. They leave the front of the index
// they are found by, so each call begins at the start.
func (r *reordering) queuePark(b *pgx.Batch) {
	b.Queue(`
		UPDATE waybill.delivery AS d
		SET next_at = `+parkedAt+`, turn_at = `+parkedAt+`
		FROM (
			SELECT found.shard, found.dlv
			FROM unnest('{0,1}'::smallint[]) AS w (lane)
			CROSS JOIN LATERAL (
				SELECT d.shard, d.dlv
				FROM waybill.delivery AS d
				WHERE d.shard = $1 AND d.endpoint = $2 AND d.lane = w.lane AND d.next_at < `+parkedAt+`
				ORDER BY d.next_at, d.dlv
				LIMIT $3
			) AS found
			LIMIT $3
		) AS past
		WHERE d.shard = past.shard AND d.dlv = past.dlv
		RETURNING d.dlv`,
		int16(r.shard), uuid(r.endpoint), r.limit,
	).Query(func(rows pgx.Rows) error {
		var id outbox.DeliveryID
		_, err := pgx.ForEachRow(rows, []any{intoID(&id)}, func() error {
			r.done.Parked = append(r.done.Parked, id)
			r.changed++
			return nil
		})
		return err
	})
}

// queueLeave makes strict deliveries ones that go side by side.
func (r *reordering) queueLeave(b *pgx.Batch) {
	b.Queue(`
		UPDATE waybill.delivery AS d
		SET next_at = CASE WHEN d.next_at < `+parkedAt+` THEN d.next_at ELSE $4 END, turn_at = NULL
		FROM (
			SELECT d.shard, d.dlv
			FROM waybill.delivery AS d
			WHERE d.shard = $1 AND d.endpoint = $2 AND d.turn_at IS NOT NULL
			LIMIT $3
		) AS past
		WHERE d.shard = past.shard AND d.dlv = past.dlv
		RETURNING `+deliveryColumns,
		int16(r.shard), uuid(r.endpoint), r.limit, r.now,
	).Query(func(rows pgx.Rows) error {
		err := collectDeliveries(&r.done.Freed)(rows)
		r.changed = max(r.changed, len(r.done.Freed))
		return err
	})
}

// queueLetGo makes dead letters hold nothing any more.
func (r *reordering) queueLetGo(b *pgx.Batch) {
	b.Queue(`
		UPDATE waybill.dead_letter AS l
		SET holds = false
		FROM (
			SELECT l.shard, l.dlv
			FROM waybill.dead_letter AS l
			WHERE l.shard = $1 AND l.endpoint = $2 AND l.holds
			LIMIT $3
		) AS past
		WHERE l.shard = past.shard AND l.dlv = past.dlv
		RETURNING coalesce(l.ordering_key, '')`,
		int16(r.shard), uuid(r.endpoint), r.limit,
	).Query(func(rows pgx.Rows) error {
		k := orderKey{shard: r.shard, endpoint: r.endpoint}
		n := 0
		_, err := pgx.ForEachRow(rows, []any{&k.key}, func() error {
			r.keys.add(k)
			n++
			return nil
		})
		r.changed = max(r.changed, n)
		return err
	})
}

// queueWalk finds the next keys with strict deliveries, leaping from one to the next.
func (r *reordering) queueWalk(b *pgx.Batch) {
	r.done.Next = r.from
	b.Queue(`
		WITH RECURSIVE k AS (
			(
				SELECT `+keyOfD+` AS key
				FROM waybill.delivery AS d
				WHERE d.shard = $1 AND d.endpoint = $2 AND d.turn_at IS NOT NULL AND (NOT $3 OR `+keyOfD+` > $4)
				ORDER BY `+keyOfD+`
				LIMIT 1
			)
			UNION ALL
			SELECT next.key
			FROM k
			CROSS JOIN LATERAL (
				SELECT `+keyOfD+` AS key
				FROM waybill.delivery AS d
				WHERE d.shard = $1 AND d.endpoint = $2 AND d.turn_at IS NOT NULL AND `+keyOfD+` > k.key
				ORDER BY `+keyOfD+`
				LIMIT 1
			) AS next
		)
		SELECT key
		FROM k
		LIMIT $5`,
		int16(r.shard), uuid(r.endpoint), r.from.Begun, r.from.Key, r.limit,
	).Query(func(rows pgx.Rows) error {
		k := orderKey{shard: r.shard, endpoint: r.endpoint}
		_, err := pgx.ForEachRow(rows, []any{&k.key}, func() error {
			r.keys.add(k)
			r.walked++
			r.done.Next = outbox.ReorderFrom{Begun: true, Key: k.key}
			return nil
		})
		return err
	})
}
