package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// errNotRouted undoes a routing that met gone rows or stale configuration; it never leaves the
// store.
var errNotRouted = errors.New("not routed")

// Route writes the plans.
func (s *Store) Route(ctx context.Context, lease outbox.Lease, plans []outbox.Plan, next map[outbox.EndpointID]int64, now time.Time) (outbox.Routed, error) {
	var routed outbox.Routed
	err := s.write(ctx, func(w *session) error {
		routed = outbox.Routed{}
		shards := shardsOf(plans)
		if err := fence(w, lease, shards); err != nil {
			return err
		}
		for _, shard := range shards {
			var revision int64
			if err := w.get("SELECT revision FROM waybill_shard_config WHERE shard = ?", []any{int64(shard)}, &revision); err != nil {
				return err
			}
			if revision > lease.Revisions[shard] {
				routed.Stale = append(routed.Stale, shard)
			}
		}
		strict, err := decidePlans(w, plans)
		if err != nil {
			return err
		}
		routed.Parked = strict.parked
		var books books
		for i := range plans {
			gone, err := routePlan(w, &plans[i], &strict, &books, now)
			if err != nil {
				return err
			}
			if gone {
				routed.Gone = append(routed.Gone, plans[i].Row.Pos)
			}
		}
		if len(routed.Gone) > 0 || len(routed.Stale) > 0 {
			return errNotRouted
		}
		if err := writeMarks(w, plans, next); err != nil {
			return err
		}
		return books.write(w)
	})
	if errors.Is(err, errNotRouted) {
		routed.Parked = nil
		return routed, nil
	}
	if err != nil {
		return outbox.Routed{}, err
	}
	return routed, nil
}

func shardsOf(plans []outbox.Plan) []outbox.Shard {
	var shards []outbox.Shard
	for i := range plans {
		shards = append(shards, plans[i].Row.Shard)
	}
	slices.Sort(shards)
	return slices.Compact(shards)
}

// routePlan ends the outbox row or moves it on, and inserts the deliveries. It does so only where
// the row stands where the plan started: else the deliveries were planned from there already, may
// have ended since, and would be planned again.
func routePlan(w *session, plan *outbox.Plan, strict *strictPlans, books *books, now time.Time) (gone bool, err error) {
	var moved int64
	if plan.Last {
		moved, err = w.exec(`
			DELETE FROM waybill_outbox
			WHERE pos = ? AND shard = ? AND after IS ?`,
			plan.Row.Pos, int64(plan.Row.Shard), idOrNull(plan.Row.After))
	} else {
		after := plan.Row.After
		if n := len(plan.Deliveries); n > 0 {
			after = plan.Deliveries[n-1].Endpoint
		}
		moved, err = w.exec(`
			UPDATE waybill_outbox
			SET after = ?
			WHERE pos = ? AND shard = ? AND after IS ?`,
			idOrNull(after), plan.Row.Pos, int64(plan.Row.Shard), idOrNull(plan.Row.After))
		if err == nil && moved == 0 {
			// The same call may have committed, and been answered too late to be believed.
			again, err := movedPast(w, plan.Row, after)
			return !again, err
		}
	}
	if err != nil || moved == 0 {
		return true, err
	}
	count := books.on(plan.Row.Shard, now)
	for i := range plan.Deliveries {
		inserted, err := insertDelivery(w, strict.of(&plan.Deliveries[i]), now)
		if err != nil {
			return false, err
		}
		count.planned += inserted
	}
	if plan.Last {
		books.routed(plan.Row.Shard, plan.Row.Event, plan.Matched)
	}
	return false, nil
}

// movedPast reports whether an outbox row stands at or behind an endpoint.
func movedPast(w *session, row outbox.OutboxRow, endpoint outbox.EndpointID) (bool, error) {
	var past bool
	err := w.get(`
		SELECT coalesce(after >= ?, false)
		FROM waybill_outbox
		WHERE pos = ? AND shard = ?`,
		[]any{endpoint[:], row.Pos, int64(row.Shard)}, &past)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	return past, err
}

// insertDelivery plans a delivery, unless it is pending already.
func insertDelivery(w *session, d *outbox.Delivery, planned time.Time) (int64, error) {
	return w.exec(`
		INSERT INTO waybill_delivery (`+deliveryColumns+`, planned_at)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (dlv) DO NOTHING`,
		d.ID[:], int64(d.Shard), int64(d.Tenant), d.Endpoint[:], d.Event[:], d.EventType, d.Sequence, d.OrderingKey,
		int64(d.Round), int64(d.Attempt), int64(d.RoundStart), int64(d.Lane), micros(d.NextAt), micros(d.SendableAt), microsOrNull(d.TurnAt), micros(planned))
}

const deliveryColumns = `dlv, shard, tenant, endpoint, event, event_type, sequence, ordering_key, round, attempt, round_start, lane, next_at, sendable_at, turn_at`

// deliveryTo lists where the columns go.
func deliveryTo(d *outbox.Delivery) []any {
	return []any{
		idTo{(*[16]byte)(&d.ID)}, &d.Shard, &d.Tenant, idTo{(*[16]byte)(&d.Endpoint)}, idTo{(*[16]byte)(&d.Event)}, &d.EventType, &d.Sequence, &d.OrderingKey,
		&d.Round, &d.Attempt, &d.RoundStart, &d.Lane, timeTo{&d.NextAt}, timeTo{&d.SendableAt}, timeTo{&d.TurnAt},
	}
}

// writeMarks moves the endpoints' numbers on. They never go back: a number given twice would
// break every promise of order.
func writeMarks(w *session, plans []outbox.Plan, next map[outbox.EndpointID]int64) error {
	shards := map[outbox.EndpointID]outbox.Shard{}
	for i := range plans {
		for j := range plans[i].Deliveries {
			shards[plans[i].Deliveries[j].Endpoint] = plans[i].Row.Shard
		}
	}
	for id, n := range next {
		if _, err := w.exec(`
			INSERT INTO waybill_mark (endpoint, shard, next)
			VALUES (?, ?, ?)
			ON CONFLICT (endpoint) DO UPDATE SET next = max(next, excluded.next)`,
			id[:], int64(shards[id]), n); err != nil {
			return err
		}
	}
	return nil
}
