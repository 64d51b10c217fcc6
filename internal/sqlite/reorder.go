package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// Reorder brings an endpoint's rows in line with its ordering. Each call leaves the rows and
// waybill_endpoint_order in accord, so it does not matter which one is the last before a crash:
// the next start sees what is still to be done.
func (s *Store) Reorder(ctx context.Context, lease outbox.Lease, shard outbox.Shard, endpoint outbox.EndpointID, from outbox.ReorderFrom, limit int, now time.Time) (done outbox.Reordered, err error) {
	err = s.write(ctx, func(w *session) error {
		done = outbox.Reordered{}
		if err := fence(w, lease, []outbox.Shard{shard}); err != nil {
			return err
		}
		// One that is gone is as good as one whose deliveries go side by side: they are cancelled.
		var strict, hold bool
		err := w.get(`
			SELECT ordering = 'strict', on_dead = 'hold'
			FROM waybill_endpoint
			WHERE id = ? AND deleted_at IS NULL`,
			[]any{endpoint[:]}, &strict, &hold)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		order, err := readOrder(w, endpoint)
		if err != nil {
			return err
		}
		r := reordering{session: w, shard: shard, endpoint: endpoint, limit: limit, now: now, done: &done}
		switch {
		case !strict && order.state == "":
			done.Done = true
			return nil
		case !strict:
			return r.leave()
		case !order.keeps():
			return r.park(hold)
		default:
			return r.giveTurns(order, hold, from)
		}
	})
	if err != nil {
		return outbox.Reordered{}, err
	}
	return done, nil
}

// reordering is one call of Reorder.
type reordering struct {
	*session
	shard    outbox.Shard
	endpoint outbox.EndpointID
	limit    int
	now      time.Time
	done     *outbox.Reordered
}

func (r *reordering) setState(state string, hold bool) error {
	_, err := r.exec(`
		INSERT INTO waybill_endpoint_order (endpoint, shard, hold, state)
		VALUES (?, ?, ?, ?)
		ON CONFLICT (endpoint) DO UPDATE SET hold = excluded.hold, state = excluded.state`,
		r.endpoint[:], int64(r.shard), hold, state)
	return err
}

// leave makes strict deliveries ones that go side by side, and dead letters hold nothing.
func (r *reordering) leave() error {
	if err := r.setState("leaving", false); err != nil {
		return err
	}
	rows, err := pendingRows(r.session, `
		SELECT `+deliveryColumns+`
		FROM waybill_delivery
		WHERE shard = ? AND endpoint = ? AND turn_at IS NOT NULL
		LIMIT ?`,
		int64(r.shard), r.endpoint[:], r.limit)
	if err != nil {
		return err
	}
	for i := range rows {
		d := &rows[i]
		if d.Parked() {
			d.NextAt = r.now
		}
		d.TurnAt = time.Time{}
		if _, err := r.exec(`
			UPDATE waybill_delivery
			SET next_at = ?, turn_at = NULL
			WHERE dlv = ?`,
			micros(d.NextAt), d.ID[:]); err != nil {
			return err
		}
	}
	r.done.Freed = rows
	_, released, err := letGo(r.session, r.shard, r.endpoint, 1<<63-1)
	if err != nil {
		return err
	}
	if r.done.Done = len(rows) < r.limit && released < maxLetGo; !r.done.Done {
		return nil
	}
	_, err = r.exec("DELETE FROM waybill_endpoint_order WHERE endpoint = ?", r.endpoint[:])
	return err
}

// park parks deliveries that were planned side by side. They leave the front of the index they
// are found by, so each call begins at the start. Once none is left, what is planned from then on
// is kept in order.
func (r *reordering) park(hold bool) error {
	if err := r.setState("parking", hold); err != nil {
		return err
	}
	for _, lane := range []outbox.Lane{outbox.LaneLive, outbox.LaneReplay} {
		if err := r.each(`
			SELECT dlv
			FROM waybill_delivery
			WHERE shard = ? AND endpoint = ? AND lane = ? AND next_at < `+parkedAt+`
			ORDER BY next_at, dlv
			LIMIT ?`,
			[]any{int64(r.shard), r.endpoint[:], int64(lane), r.limit - len(r.done.Parked)},
			func(scan scan) error {
				var id outbox.DeliveryID
				err := scan(idTo{(*[16]byte)(&id)})
				r.done.Parked = append(r.done.Parked, id)
				return err
			}); err != nil {
			return err
		}
	}
	for _, id := range r.done.Parked {
		if _, err := r.exec(`
			UPDATE waybill_delivery
			SET next_at = `+parkedAt+`, turn_at = `+parkedAt+`
			WHERE dlv = ?`,
			id[:]); err != nil {
			return err
		}
	}
	if len(r.done.Parked) == r.limit {
		return nil
	}
	return r.setState("freeing", hold)
}

// giveTurns gives the turns of the next keys.
func (r *reordering) giveTurns(order orderOf, hold bool, from outbox.ReorderFrom) error {
	if order.hold != hold {
		order.state = "freeing"
		if err := r.setState(order.state, hold); err != nil {
			return err
		}
	}
	var keys keySet
	var released int
	if !hold {
		var err error
		if keys, released, err = letGo(r.session, r.shard, r.endpoint, 1<<63-1); err != nil {
			return err
		}
	}
	r.done.Next = from
	walked := 0
	for ; walked < r.limit; walked++ {
		k := orderKey{shard: r.shard, endpoint: r.endpoint}
		err := r.get(`
			SELECT ordering_key
			FROM waybill_delivery
			WHERE shard = ? AND endpoint = ? AND turn_at IS NOT NULL AND (NOT ? OR ordering_key > ?)
			ORDER BY ordering_key
			LIMIT 1`,
			[]any{int64(r.shard), r.endpoint[:], r.done.Next.Begun, r.done.Next.Key}, &k.key)
		if errors.Is(err, sql.ErrNoRows) {
			break
		}
		if err != nil {
			return err
		}
		keys.add(k)
		r.done.Next = outbox.ReorderFrom{Begun: true, Key: k.key}
	}
	var err error
	if r.done.Freed, err = keys.giveTurns(r.session, r.now); err != nil {
		return err
	}
	if r.done.Done = walked < r.limit && released < maxLetGo; !r.done.Done {
		return nil
	}
	r.done.Next = outbox.ReorderFrom{}
	if order.state == "strict" {
		return nil
	}
	return r.setState("strict", hold)
}
