package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// standing is where a delivery stands, whichever table says so.
type standing struct {
	outbox.Delivery // as it was last pending
	state           outbox.DeliveryState
	planned         time.Time // the first time; zero where that is no longer known
}

// standingOf finds where a delivery stands: ErrNotFound if it never was, or is no longer kept.
func standingOf(r *session, id outbox.DeliveryID) (standing, error) {
	at := standing{state: outbox.StatePending}
	err := r.get(`
		SELECT `+deliveryColumns+`, planned_at
		FROM waybill_delivery
		WHERE dlv = ?`,
		[]any{id[:]}, append(deliveryTo(&at.Delivery), timeTo{&at.planned})...)
	if !errors.Is(err, sql.ErrNoRows) {
		return at, err
	}
	err = r.get(`
		SELECT dlv, shard, tenant, endpoint, event, event_type, sequence, ordering_key, round, attempt, round_start, lane, 0, sendable_at, NULL, planned_at, state
		FROM waybill_dead_letter
		WHERE dlv = ?`,
		[]any{id[:]}, append(deliveryTo(&at.Delivery), timeTo{&at.planned}, &at.state)...)
	if !errors.Is(err, sql.ErrNoRows) {
		at.NextAt = time.Time{}
		return at, err
	}
	// Delivered: the last attempt that ended a round tells. The ordering key is the event's.
	err = r.get(`
		SELECT a.dlv, a.shard, a.tenant, a.endpoint, a.event, a.event_type, a.sequence, coalesce(v.ordering_key, ''),
			a.round, (SELECT max(n) FROM waybill_attempt WHERE dlv = a.dlv), 0, a.round > 0, 0, a.at, NULL
		FROM waybill_attempt a
		LEFT JOIN waybill_event v ON v.shard = a.shard AND v.tenant = a.tenant AND v.id = a.event
		WHERE a.dlv = ? AND a.final = 1 AND a.outcome = 'delivered'
		ORDER BY a.n DESC, a.round DESC
		LIMIT 1`,
		[]any{id[:]}, deliveryTo(&at.Delivery)...)
	if errors.Is(err, sql.ErrNoRows) {
		return standing{}, outbox.ErrNotFound
	}
	at.state, at.planned, at.NextAt, at.SendableAt = outbox.StateDelivered, time.Time{}, time.Time{}, time.Time{}
	return at, err
}

// Replay executes outbox rows of kind replay.
func (s *Store) Replay(ctx context.Context, lease outbox.Lease, rows []outbox.OutboxRow, now time.Time) (due []outbox.Delivery, err error) {
	err = s.write(ctx, func(w *session) error {
		due = nil
		var books books
		var keys keySet
		for i := range rows {
			if err := fence(w, lease, []outbox.Shard{rows[i].Shard}); err != nil {
				return err
			}
			taken, err := takeOutbox(w, rows[i])
			if err != nil {
				return err
			}
			if !taken {
				continue
			}
			d, again, err := replayOne(w, &rows[i], &books, &keys, now)
			if err != nil {
				return err
			}
			if again {
				due = append(due, d)
			}
		}
		freed, err := keys.giveTurns(w, now)
		if err != nil {
			return err
		}
		due = append(due, freed...)
		return books.write(w)
	})
	if err != nil {
		return nil, err
	}
	return due, nil
}

// replayOne makes a delivery due: again reports that it is. A strict one is parked, and its key
// noted: it is due if its turn comes.
func replayOne(w *session, row *outbox.OutboxRow, books *books, keys *keySet, now time.Time) (d outbox.Delivery, again bool, err error) {
	at, err := standingOf(w, outbox.NewDeliveryID(row.Event, row.Endpoint))
	if errors.Is(err, outbox.ErrNotFound) {
		return d, false, nil
	}
	if err != nil {
		return d, false, err
	}
	d = at.Delivery
	if at.state == outbox.StatePending {
		if d.Parked() {
			return d, false, nil
		}
		d.NextAt = now
		_, err := w.exec("UPDATE waybill_delivery SET next_at = ? WHERE dlv = ?", micros(now), d.ID[:])
		return d, err == nil, err
	}
	d, again, parked, err := planAgain(w, &at, books, keys, replayBy{nextAt: now}, now)
	if errors.Is(err, outbox.ErrEndpointGone) || errors.Is(err, outbox.ErrPayloadGone) {
		return d, false, nil
	}
	return d, again && !parked, err
}

// replayBy says who asks for a delivery to be planned again, and when it is due.
type replayBy struct {
	job    outbox.JobID // zero: nobody but the one who asked for this delivery
	was    string       // what it was, as JSON
	nextAt time.Time
}

// planAgain plans a delivery that has ended. A strict one is parked, and its key noted.
func planAgain(w *session, at *standing, books *books, keys *keySet, by replayBy, now time.Time) (d outbox.Delivery, again, parked bool, err error) {
	d = at.Delivery
	created, err := replayable(w, &d)
	if err != nil {
		return d, false, false, err
	}
	count := books.on(d.Shard, now)
	if at.state != outbox.StateDelivered {
		if _, err := w.exec("DELETE FROM waybill_dead_letter WHERE dlv = ?", d.ID[:]); err != nil {
			return d, false, false, err
		}
		count.revived++
	}
	d.Round++
	d.RoundStart = d.Attempt
	d.Lane = outbox.LaneReplay
	d.NextAt, d.SendableAt = by.nextAt, now
	order, err := readOrder(w, d.Endpoint)
	if err != nil {
		return d, false, false, err
	}
	d.TurnAt = time.Time{}
	if order.keeps() {
		d.NextAt, d.TurnAt = outbox.Parked, outbox.Parked
		keys.add(keyOf(&d))
	}
	planned := at.planned
	if planned.IsZero() {
		planned = created
	}
	n, err := insertDelivery(w, &d, planned)
	count.planned += n
	count.replayed += n
	if err == nil && !by.job.IsZero() {
		_, err = w.exec("UPDATE waybill_delivery SET job = ?, was = ? WHERE dlv = ?", by.job[:], by.was, d.ID[:])
	}
	return d, n == 1, d.Parked(), err
}

// replayable makes sure that a delivery can be sent again, and returns its event's time.
func replayable(r *session, d *outbox.Delivery) (created time.Time, err error) {
	var one int
	err = r.get(`
		SELECT 1
		FROM waybill_endpoint
		WHERE id = ? AND deleted_at IS NULL`,
		[]any{d.Endpoint[:]}, &one)
	if errors.Is(err, sql.ErrNoRows) {
		return created, outbox.ErrEndpointGone
	}
	if err != nil {
		return created, err
	}
	var gone bool
	err = r.get(`
		SELECT v.created_at, `+erased+`
		FROM waybill_event v
		WHERE v.shard = ? AND v.tenant = ? AND v.id = ?`,
		[]any{int64(d.Shard), int64(d.Tenant), d.Event[:]}, timeTo{&created}, &gone)
	if gone || errors.Is(err, sql.ErrNoRows) {
		return created, outbox.ErrPayloadGone
	}
	return created, err
}

// RequestReplay asks the owner of the delivery's shard to send it again.
func (s *Store) RequestReplay(ctx context.Context, tenant outbox.TenantRef, id outbox.DeliveryID) (outbox.DeliveryState, error) {
	var at standing
	err := s.write(ctx, func(w *session) error {
		var err error
		if at, err = standingOf(w, id); err != nil {
			return err
		}
		if tenant.ID != 0 && at.Tenant != tenant.ID {
			return outbox.ErrNotFound
		}
		if _, err := replayable(w, &at.Delivery); err != nil {
			return err
		}
		_, err = insertOutbox(w, outbox.OutboxRow{
			Shard:    at.Shard,
			Kind:     outbox.OutboxReplay,
			Tenant:   at.Tenant,
			Event:    at.Event,
			Endpoint: at.Endpoint,
		})
		return err
	})
	if err != nil {
		return "", err
	}
	return at.state, nil
}
