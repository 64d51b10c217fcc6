package sqlite

import (
	"context"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// Expire ends deliveries that have waited too long.
func (s *Store) Expire(ctx context.Context, lease outbox.Lease, before time.Time, limit int, now time.Time) (ended outbox.Ended, err error) {
	shards := leased(lease)
	err = s.write(ctx, func(w *session) error {
		ended = outbox.Ended{}
		if err := fence(w, lease, shards); err != nil {
			return err
		}
		// A delivery's id has its event's time, which is at most a little after the planning. So
		// the old ones are at the front of the table, among them only what was replayed since. (The plus keeps the search from starting with
		// the shard and sorting everything there is.)
		latest := outbox.DeliveryCeil(before.Add(outbox.ChosenIDFuture))
		rows, err := pendingRows(w, `
			SELECT `+deliveryColumns+`
			FROM waybill_delivery
			WHERE dlv <= ? AND sendable_at < ? AND +shard IN (SELECT value FROM json_each(?))
			ORDER BY dlv
			LIMIT ?`,
			latest[:], micros(before), shardList(shards), limit)
		if err != nil {
			return err
		}
		ended, err = buryAll(w, rows, keySet{}, letter{
			reason:  outbox.DeadExpired,
			message: outbox.ReasonExpired,
			at:      now,
		})
		return err
	})
	if err != nil {
		return outbox.Ended{}, err
	}
	return ended, nil
}

// Cancel executes a command.
func (s *Store) Cancel(ctx context.Context, lease outbox.Lease, row outbox.OutboxRow, limit int, now time.Time) (ended outbox.Ended, done bool, err error) {
	err = s.write(ctx, func(w *session) error {
		ended, done = outbox.Ended{}, false
		if err := fence(w, lease, []outbox.Shard{row.Shard}); err != nil {
			return err
		}
		// A command that is gone was executed; what was planned since is none of its business.
		var waits bool
		if err := w.get(`
			SELECT EXISTS (SELECT 1 FROM waybill_outbox WHERE pos = ? AND shard = ?)`,
			[]any{row.Pos, int64(row.Shard)}, &waits); err != nil || !waits {
			done = err == nil
			return err
		}
		before := int64(1<<63 - 1)
		if !row.Command.Before.IsZero() {
			before = micros(row.Command.Before)
		}
		var rows []outbox.Delivery
		var keys keySet
		var released int
		var err error
		// One more than may end tells whether any are left.
		switch row.Command.Name {
		case outbox.CommandCancelEndpoint:
			rows, err = pendingRows(w, `
				SELECT `+deliveryColumns+`
				FROM waybill_delivery
				WHERE shard = ? AND endpoint = ? AND sendable_at <= ?
				LIMIT ?`,
				int64(row.Shard), row.Endpoint[:], before, limit+1)
			if err == nil {
				keys, released, err = letGo(w, row.Shard, row.Endpoint, before)
			}
		case outbox.CommandCancelTenant:
			rows, err = pendingRows(w, `
				SELECT `+deliveryColumns+`
				FROM waybill_delivery
				WHERE tenant = ? AND sendable_at <= ?
				LIMIT ?`,
				int64(row.Tenant), before, limit+1)
		}
		if err != nil {
			return err
		}
		if done = len(rows) <= limit && released < maxLetGo; done {
			if _, err := takeOutbox(w, row); err != nil {
				return err
			}
		}
		ended, err = buryAll(w, rows[:min(limit, len(rows))], keys, letter{
			reason:  outbox.DeadCancelled,
			message: row.Command.Reason,
			at:      now,
		})
		if err != nil || row.Command.Job.IsZero() {
			return err
		}
		job, err := readJob(w, row.Tenant, row.Command.Job)
		if err != nil {
			return err
		}
		if job.Done += int64(len(ended.Deliveries)); done {
			job.ScanEnded()
		}
		return saveJob(w, &job, now)
	})
	if err != nil {
		return outbox.Ended{}, false, err
	}
	return ended, done, nil
}

// pendingRows reads deliveries to be ended.
func pendingRows(w *session, query string, args ...any) (rows []outbox.Delivery, err error) {
	err = w.each(query, args, func(scan scan) error {
		var d outbox.Delivery
		err := scan(deliveryTo(&d)...)
		rows = append(rows, d)
		return err
	})
	return rows, err
}

// maxLetGo is how many dead letters let go of their keys in one transaction.
const maxLetGo = 1000

// letGo makes dead letters of the endpoint that were planned by the given time hold nothing any
// more, and returns their keys and how many they were.
func letGo(w *session, shard outbox.Shard, endpoint outbox.EndpointID, before int64) (keys keySet, n int, err error) {
	var ids []outbox.DeliveryID
	err = w.each(`
		SELECT dlv, ordering_key
		FROM waybill_dead_letter
		WHERE shard = ? AND endpoint = ? AND holds = 1 AND sendable_at <= ?
		LIMIT ?`,
		[]any{int64(shard), endpoint[:], before, maxLetGo},
		func(scan scan) error {
			var id outbox.DeliveryID
			k := orderKey{shard: shard, endpoint: endpoint}
			err := scan(idTo{(*[16]byte)(&id)}, &k.key)
			ids = append(ids, id)
			keys.add(k)
			return err
		})
	for i := 0; err == nil && i < len(ids); i++ {
		_, err = w.exec("UPDATE waybill_dead_letter SET holds = 0 WHERE dlv = ?", ids[i][:])
	}
	return keys, len(ids), err
}

// buryAll ends pending deliveries without another attempt, and gives the turns of their keys and
// of those given.
func buryAll(w *session, rows []outbox.Delivery, keys keySet, l letter) (ended outbox.Ended, err error) {
	var books books
	for i := range rows {
		d := &rows[i]
		buried, strict, err := bury(w, d, l)
		if err != nil {
			return outbox.Ended{}, err
		}
		if strict {
			keys.add(keyOf(d))
		}
		if buried {
			books.on(d.Shard, l.at).ended(l.reason)
			ended.Deliveries, ended.Endpoints = append(ended.Deliveries, d.ID), append(ended.Endpoints, d.Endpoint)
		}
	}
	if ended.Freed, err = keys.giveTurns(w, l.at); err != nil {
		return outbox.Ended{}, err
	}
	return ended, books.write(w)
}

func leased(lease outbox.Lease) []outbox.Shard {
	shards := make([]outbox.Shard, 0, len(lease.Epochs))
	for shard := range lease.Epochs {
		shards = append(shards, shard)
	}
	return shards
}
