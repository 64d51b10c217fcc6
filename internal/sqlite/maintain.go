package sqlite

import (
	"context"
	"sync"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// Bounds of the upkeep: the writer must never be held up for long, and one call must end.
const (
	maxPruned = 500    // rows a transaction
	maxSwept  = 20_000 // events a call looks at
)

// sweep remembers how far retention has looked: events that dead letters keep alive stay at the
// front of the table, and must not be all that is ever looked at.
type sweep struct {
	mu    sync.Mutex
	after outbox.EventID
}

// Maintain deletes what is no longer kept, in small transactions between everybody else's. There
// are no partitions to make.
func (s *Store) Maintain(ctx context.Context, m outbox.Maintenance) error {
	if !s.sweep.mu.TryLock() {
		return nil // somebody is at it
	}
	defer s.sweep.mu.Unlock()
	oldest := dayOf(m.Now.Add(-m.KeepDays())) // whole days go, as they would with partitions
	for _, step := range []func() error{
		func() error { return s.prune(ctx, pruneKeys, micros(m.Now.Add(-m.IdempotencyRetention))) },
		func() error { return s.prune(ctx, pruneRequests, micros(m.Now.Add(-m.IdempotencyRetention))) },
		func() error {
			floor := outbox.JobFloor(m.Now.Add(-m.Retention))
			return s.prune(ctx, pruneJobs, floor[:])
		},
		func() error { return s.pruneInbound(ctx, m.Now) },
		func() error { return s.purge(ctx, m.Now.Add(-m.Retention), m.Now) },
		func() error { return s.retire(ctx, oldest) },
		func() error { return s.sweepEvents(ctx, oldest) },
		func() error {
			floor := outbox.AttemptFloor(dayStart(oldest))
			return s.prune(ctx, pruneAttempts, floor[:])
		},
		func() error { return s.foldLedger(ctx, m.Now) },
		func() error { return s.foldTraffic(ctx, m.Now, m.Now.Add(-m.Retention)) },
		func() error { return s.prune(ctx, pruneSessions, micros(m.Now.Add(-m.Retention))) },
		func() error {
			floor := outbox.AuditFloor(m.Now.Add(-max(m.Retention, outbox.AuditAge)))
			return s.prune(ctx, pruneAudit, floor[:])
		},
		func() error { return s.forgetNodes(ctx, m.Now.Add(-m.Retention)) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

const (
	pruneKeys = `
		DELETE FROM waybill_idempotency
		WHERE (tenant, key) IN (
			SELECT tenant, key FROM waybill_idempotency
			WHERE created_at < ?
			LIMIT ?)`
	pruneJobs = `
		DELETE FROM waybill_job
		WHERE id IN (
			SELECT id FROM waybill_job
			WHERE id < ? AND finished_at IS NOT NULL
			LIMIT ?)`
	pruneRequests = `
		DELETE FROM waybill_request
		WHERE (tenant, key) IN (
			SELECT tenant, key FROM waybill_request
			WHERE claimed_at < ?
			LIMIT ?)`
	pruneSessions = `
		DELETE FROM waybill_session
		WHERE id IN (
			SELECT id FROM waybill_session
			WHERE expires_at < ?
			LIMIT ?)`
	pruneAudit = `
		DELETE FROM waybill_audit
		WHERE id IN (
			SELECT id FROM waybill_audit
			WHERE id < ?
			LIMIT ?)`
	pruneAttempts = `
		DELETE FROM waybill_attempt
		WHERE rowid IN (
			SELECT rowid FROM waybill_attempt
			WHERE id < ?
			ORDER BY id
			LIMIT ?)`
)

// prune runs a statement that deletes the rows before a bound, until none are left.
func (s *Store) prune(ctx context.Context, statement string, before any) error {
	for {
		var n int64
		if err := s.write(ctx, func(w *session) (err error) {
			n, err = w.exec(statement, before, maxPruned)
			return err
		}); err != nil || n < maxPruned {
			return err
		}
	}
}

// purge deletes dead letters whose own retention is over, but for those that others wait behind.
// Their events go with the sweep.
func (s *Store) purge(ctx context.Context, before, now time.Time) error {
	for {
		var n int64
		if err := s.write(ctx, func(w *session) error {
			var books books
			var ids []outbox.DeliveryID
			n = 0
			if err := w.each(`
				SELECT dlv, shard
				FROM waybill_dead_letter AS l
				WHERE at < ?
					AND NOT (holds = 1 AND EXISTS (
						SELECT 1 FROM waybill_delivery AS d
						WHERE d.shard = l.shard AND d.endpoint = l.endpoint AND d.ordering_key = l.ordering_key AND d.turn_at IS NOT NULL
					))
				LIMIT ?`,
				[]any{micros(before), maxPruned},
				func(scan scan) error {
					var id outbox.DeliveryID
					var shard outbox.Shard
					err := scan(idTo{(*[16]byte)(&id)}, &shard)
					ids = append(ids, id)
					books.on(shard, now).purged++
					return err
				}); err != nil {
				return err
			}
			for _, id := range ids {
				deleted, err := w.exec("DELETE FROM waybill_dead_letter WHERE dlv = ?", id[:])
				if err != nil {
					return err
				}
				n += deleted
			}
			return books.write(w)
		}); err != nil || n < maxPruned {
			return err
		}
	}
}

// retire closes the days before oldest in the books, before the first of their events goes: an
// interrupted sweep must not look like lost events.
func (s *Store) retire(ctx context.Context, oldest int64) error {
	return s.write(ctx, func(w *session) error {
		moved, err := w.exec("UPDATE waybill_retired SET before_day = ? WHERE before_day < ?", oldest, oldest)
		if err != nil || moved == 0 {
			return err
		}
		if _, err := w.exec(`
			INSERT INTO waybill_ledger_event (shard, day, routed, matched, unmatched)
			SELECT shard, 0, sum(routed), sum(matched), sum(unmatched)
			FROM waybill_ledger_event
			WHERE day > 0 AND day < ?
			GROUP BY shard
			ON CONFLICT (shard, day) DO UPDATE SET
				routed = routed + excluded.routed,
				matched = matched + excluded.matched,
				unmatched = unmatched + excluded.unmatched`, oldest); err != nil {
			return err
		}
		_, err = w.exec("DELETE FROM waybill_ledger_event WHERE day > 0 AND day < ?", oldest)
		return err
	})
}

// sweepEvents deletes the events of retired days, but those which something still needs: an
// outbox row, a pending delivery, a dead letter.
func (s *Store) sweepEvents(ctx context.Context, oldest int64) error {
	floor := outbox.EventFloor(dayStart(oldest))
	waiting, err := s.waitingBefore(ctx, floor)
	if err != nil {
		return err
	}
	for looked := 0; looked < maxSwept; looked += maxPruned {
		var ids []outbox.EventID
		if err := s.write(ctx, func(w *session) error {
			ids = nil
			var tenants []outbox.TenantRef
			if err := w.each(`
				SELECT id, shard, tenant
				FROM waybill_event
				WHERE id > ? AND id < ?
				ORDER BY id
				LIMIT ?`,
				[]any{s.sweep.after[:], floor[:], maxPruned},
				func(scan scan) error {
					var id outbox.EventID
					var ref outbox.TenantRef
					err := scan(idTo{(*[16]byte)(&id)}, &ref.Shard, &ref.ID)
					ids = append(ids, id)
					tenants = append(tenants, ref)
					return err
				}); err != nil {
				return err
			}
			for i, id := range ids {
				if waiting[id] {
					continue
				}
				if keep, err := needed(w, id); err != nil {
					return err
				} else if keep {
					continue
				}
				if _, err := w.exec(`
					DELETE FROM waybill_event
					WHERE shard = ? AND tenant = ? AND id = ?`,
					int64(tenants[i].Shard), int64(tenants[i].ID), id[:]); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			return err
		}
		if len(ids) < maxPruned {
			s.sweep.after = outbox.EventID{}
			return nil
		}
		s.sweep.after = ids[len(ids)-1]
	}
	return nil
}

// waitingBefore returns the old events that outbox rows are about. None can be added behind our
// back: an event as old as that is no longer accepted.
func (s *Store) waitingBefore(ctx context.Context, floor outbox.EventID) (map[outbox.EventID]bool, error) {
	waiting := map[outbox.EventID]bool{}
	err := s.read(ctx, func(r *session) error {
		return r.eachOnce(ctx, "SELECT event FROM waybill_outbox WHERE event < ?", []any{floor[:]}, func(scan scan) error {
			var id outbox.EventID
			err := scan(idTo{(*[16]byte)(&id)})
			waiting[id] = true
			return err
		})
	})
	return waiting, err
}

// needed reports whether a delivery may still send an event's bytes.
func needed(r *session, id outbox.EventID) (found bool, err error) {
	low, high := outbox.DeliveryFloor(id.Time()), outbox.DeliveryCeil(id.Time())
	err = r.each(`
		SELECT 1 FROM waybill_delivery WHERE dlv >= ?1 AND dlv <= ?2 AND event = ?3
		UNION ALL
		SELECT 1 FROM waybill_dead_letter WHERE dlv >= ?1 AND dlv <= ?2 AND event = ?3
		LIMIT 1`,
		[]any{low[:], high[:], id[:]},
		func(scan) error { found = true; return errStop })
	return found, err
}

// foldLedger adds the hours of a day to one line once they are 48 hours old.
func (s *Store) foldLedger(ctx context.Context, now time.Time) error {
	return s.write(ctx, func(w *session) error {
		day := int64((24 * time.Hour) / time.Microsecond)
		before := micros(now.Add(-48 * time.Hour).Truncate(24 * time.Hour))
		var hours int64
		err := w.get("SELECT count(*) FROM waybill_ledger WHERE at < ? AND at % ? <> 0", []any{before, day}, &hours)
		if err != nil || hours == 0 {
			return err
		}
		if _, err := w.exec(`
			INSERT INTO waybill_ledger (shard, at, planned, delivered, dead, cancelled, replayed, revived, purged)
			SELECT shard, at - at % ?2, sum(planned), sum(delivered), sum(dead), sum(cancelled), sum(replayed), sum(revived), sum(purged)
			FROM waybill_ledger
			WHERE at < ?1 AND at % ?2 <> 0
			GROUP BY 1, 2
			ON CONFLICT (shard, at) DO UPDATE SET
				planned = planned + excluded.planned,
				delivered = delivered + excluded.delivered,
				dead = dead + excluded.dead,
				cancelled = cancelled + excluded.cancelled,
				replayed = replayed + excluded.replayed,
				revived = revived + excluded.revived,
				purged = purged + excluded.purged`, before, day); err != nil {
			return err
		}
		_, err = w.exec("DELETE FROM waybill_ledger WHERE at < ? AND at % ? <> 0", before, day)
		return err
	})
}

// forgetNodes removes the rows of processes that ended without leaving. One that lives is back
// with its next beat.
func (s *Store) forgetNodes(ctx context.Context, before time.Time) error {
	return s.write(ctx, func(w *session) error {
		_, err := w.exec(`
			DELETE FROM waybill_node
			WHERE started_at < ? AND id NOT IN (SELECT node FROM waybill_shard WHERE node IS NOT NULL)`,
			micros(before))
		return err
	})
}
