package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// maintenanceLock is the advisory lock of the node that maintains.
const maintenanceLock = 0x77617962

// bounds of one call, so that it ends; the next one goes on.
const (
	pruneBatch   = 2_000
	pruneBatches = 200
)

// Maintain implements outbox.Upkeep. A step that fails does not keep the others from running.
func (s *Store) Maintain(ctx context.Context, m outbox.Maintenance) error {
	return s.alone(ctx, func() error {
		cutoff := m.Now.Add(-m.Retention)
		return errors.Join(
			s.addPartitions(ctx, m.Now),
			s.retirePartitions(ctx, m.Now.Add(-m.KeepDays())),
			s.purgeDeadLetters(ctx, cutoff, m.Now),
			s.pruneKeys(ctx, m.Now.Add(-m.IdempotencyRetention)),
			s.pruneJobs(ctx, m.Now.Add(-m.Retention)),
			s.pruneInbound(ctx, m.Now),
			s.pruneSessions(ctx, cutoff),
			s.pruneAudit(ctx, m.Now.Add(-max(m.Retention, outbox.AuditAge))),
			s.pruneKept(ctx),
			s.pruneMarks(ctx, m.Shards),
			s.foldLedger(ctx, m.Shards, m.Now),
			s.foldTraffic(ctx, m.Now, cutoff),
			s.pruneNodes(ctx),
			s.pruneTombstones(ctx, cutoff.Add(-24*time.Hour)),
		)
	})
}

// alone runs work while no other node does. The lock belongs to a transaction, not to a session,
// because behind a bouncer a session lock may be left on a connection that nobody owns. It is
// taken by the simple protocol: with the other one the statement's portal stays open, and its
// snapshot would be what the retirement of a partition waits for.
//
// It is held on a connection of its own: one of the pool's, held for as long as the work takes and
// waits for another, would stop a node whose pool has only that one.
func (s *Store) alone(ctx context.Context, work func() error) error {
	conn, err := s.maintenanceConn(ctx)
	if err != nil {
		return fmt.Errorf("maintenance: %w", err)
	}
	defer closeSoon(ctx, conn)
	tx, err := conn.Begin(ctx)
	if err != nil {
		return fmt.Errorf("maintenance: %w", err)
	}
	// Closing would end it as well, at some later moment: a call right after this one would find
	// the lock still taken, and do nothing.
	defer tx.Rollback(context.WithoutCancel(ctx))
	var first bool
	err = tx.QueryRow(ctx, `
		SELECT pg_try_advisory_xact_lock($1)
		FROM set_config('idle_in_transaction_session_timeout', '0', true)`,
		pgx.QueryExecModeSimpleProtocol, maintenanceLock).Scan(&first)
	if err != nil || !first {
		return err
	}
	return work()
}

// inBatches repeats a transaction until it finds fewer rows than a batch has.
func (s *Store) inBatches(ctx context.Context, what, sql string, args ...any) error {
	for range pruneBatches {
		var n int64
		err := s.transact(ctx, hot, func(b *pgx.Batch) error {
			b.Queue(sql, args...).QueryRow(func(row pgx.Row) error { return row.Scan(&n) })
			return nil
		})
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		if n < pruneBatch {
			return nil
		}
	}
	return nil
}

// purgeDeadLetters forgets those that died before the cut-off, but for those that others wait
// behind.
func (s *Store) purgeDeadLetters(ctx context.Context, cutoff, now time.Time) error {
	return s.inBatches(ctx, "purge dead letters", `
		WITH doomed AS (
			SELECT l.shard, l.dlv
			FROM waybill.dead_letter AS l
			WHERE l.at < $1
				AND NOT (l.holds AND EXISTS (
					SELECT FROM waybill.delivery AS d
					WHERE d.shard = l.shard AND d.endpoint = l.endpoint AND `+keyOfD+` = `+keyOfL+` AND d.turn_at IS NOT NULL
				))
			LIMIT $3
			FOR UPDATE SKIP LOCKED
		),
		known AS (
			UPDATE waybill.setting
			SET kept_since = $4
			WHERE kept_since < $4 AND EXISTS (SELECT FROM doomed)
		),
		purged AS (
			DELETE FROM waybill.dead_letter AS l
			USING doomed
			WHERE l.shard = doomed.shard AND l.dlv = doomed.dlv
			RETURNING l.shard
		),
		counted AS (
			INSERT INTO waybill.ledger (shard, at, purged)
			SELECT shard, $2, count(*)
			FROM purged
			GROUP BY shard
		)
		SELECT count(*)
		FROM purged`,
		cutoff, now, pruneBatch, cutoff.UTC().Truncate(day))
}

// pruneJobs forgets jobs that were made before the given time and have ended.
func (s *Store) pruneJobs(ctx context.Context, before time.Time) error {
	return s.inBatches(ctx, "prune jobs", `
		WITH doomed AS (
			SELECT j.shard, j.id
			FROM waybill.job AS j
			WHERE j.shard = ANY ($3) AND j.id < $1 AND j.finished_at IS NOT NULL
			LIMIT $2
			FOR UPDATE SKIP LOCKED
		),
		pruned AS (
			DELETE FROM waybill.job AS j
			USING doomed AS d
			WHERE j.shard = ANY (ARRAY[d.shard]) AND j.id = d.id
			RETURNING 1
		)
		SELECT count(*)
		FROM pruned`,
		uuid(outbox.JobFloor(before)), pruneBatch, shardColumn(allShards))
}

// pruneKeys forgets idempotency keys made before the given time.
func (s *Store) pruneKeys(ctx context.Context, before time.Time) error {
	return s.inBatches(ctx, "prune idempotency keys", `
		WITH doomed AS (
			SELECT i.shard, i.tenant, i.kind, i.key
			FROM waybill.idempotency AS i
			WHERE i.created_at < $1
			LIMIT $2
			FOR UPDATE SKIP LOCKED
		),
		pruned AS (
			DELETE FROM waybill.idempotency AS i
			USING doomed AS d
			WHERE i.shard = d.shard AND i.tenant = d.tenant AND i.kind = d.kind AND i.key = d.key
			RETURNING 1
		)
		SELECT count(*)
		FROM pruned`,
		before, pruneBatch)
}

// pruneKept forgets kept events that no outbox row, no pending delivery and no dead letter needs
// any more.
func (s *Store) pruneKept(ctx context.Context) error {
	return s.maintenance(ctx, "prune kept events", `
		DELETE FROM waybill.event_kept AS r
		USING (SELECT e.shard, e.tenant, e.id, `+millisecond+` FROM waybill.event_kept AS e) AS k
		WHERE r.shard = k.shard AND r.tenant = k.tenant AND r.id = k.id
			AND NOT EXISTS (
				SELECT FROM waybill.delivery AS d
				WHERE d.shard = k.shard AND d.dlv BETWEEN k.low AND k.high AND d.event = k.id
			)
			AND NOT EXISTS (
				SELECT FROM waybill.dead_letter AS l
				WHERE l.shard = k.shard AND l.dlv BETWEEN k.low AND k.high AND l.event = k.id
			)
			AND NOT EXISTS (
				SELECT FROM waybill.outbox AS o
				WHERE o.shard = k.shard AND o.event = k.id
			)`)
}

// pruneMarks keeps the highest mark of each endpoint.
func (s *Store) pruneMarks(ctx context.Context, shards []outbox.Shard) error {
	return s.maintenance(ctx, "prune marks", `
		DELETE FROM waybill.mark AS m
		USING (
			SELECT shard, endpoint, max(next) AS next
			FROM waybill.mark
			WHERE shard = ANY ($1)
			GROUP BY shard, endpoint
			HAVING count(*) > 1
		) AS newest
		WHERE m.shard = newest.shard AND m.endpoint = newest.endpoint AND m.next < newest.next`,
		shardColumn(shards))
}

// foldLedger adds up the rows of an hour once they are two minutes old, and those of a day once
// they are two days old.
func (s *Store) foldLedger(ctx context.Context, shards []outbox.Shard, now time.Time) error {
	var failed []error
	for unit, before := range map[string]time.Time{
		"hour": now.Add(-2 * time.Minute),
		"day":  now.Add(-48 * time.Hour),
	} {
		failed = append(failed, s.maintenance(ctx, "fold the ledger", `
			WITH crowded AS (
				SELECT shard, date_trunc($3, at, 'UTC') AS start, day
				FROM waybill.ledger
				WHERE shard = ANY ($1) AND at < $2
				GROUP BY 1, 2, 3
				HAVING count(*) > 1
			),
			folded AS (
				DELETE FROM waybill.ledger AS l
				USING crowded AS c
				WHERE l.shard = c.shard AND l.day IS NOT DISTINCT FROM c.day
					AND l.at >= c.start AND l.at < c.start + ('1 ' || $3)::interval AND l.at < $2
				RETURNING l.*, c.start
			)
			INSERT INTO waybill.ledger
				(shard, at, day, routed, matched, unmatched, planned, replayed,
				delivered, dead, cancelled, revived, purged)
			SELECT shard, start, day, sum(routed), sum(matched), sum(unmatched), sum(planned), sum(replayed),
				sum(delivered), sum(dead), sum(cancelled), sum(revived), sum(purged)
			FROM folded
			GROUP BY shard, start, day`,
			shardColumn(shards), before, unit))
	}
	return errors.Join(failed...)
}

// pruneNodes forgets nodes that died a day ago and own nothing. One that lives after all comes
// back with its next heartbeat.
func (s *Store) pruneNodes(ctx context.Context) error {
	return s.maintenance(ctx, "prune nodes", `
		DELETE FROM waybill.node AS n
		WHERE n.seen_at < clock_timestamp() - interval '1 day'
			AND NOT EXISTS (SELECT FROM waybill.shard AS s WHERE s.node = n.id)`)
}

// pruneTombstones forgets deleted endpoints and tenants of which no history is left.
func (s *Store) pruneTombstones(ctx context.Context, before time.Time) error {
	return s.transact(ctx, upkeep, func(b *pgx.Batch) error {
		b.Queue(`
			WITH gone AS (
				DELETE FROM waybill.endpoint AS e
				WHERE e.deleted_at < $1
					AND NOT EXISTS (SELECT FROM waybill.delivery AS d WHERE d.shard = e.shard AND d.endpoint = e.id)
					AND NOT EXISTS (SELECT FROM waybill.dead_letter AS l WHERE l.shard = e.shard AND l.endpoint = e.id)
				RETURNING e.shard, e.id
			),
			ordered AS (
				DELETE FROM waybill.endpoint_order AS o
				USING gone
				WHERE o.shard = gone.shard AND o.endpoint = gone.id
			)
			DELETE FROM waybill.mark AS m
			USING gone
			WHERE m.shard = gone.shard AND m.endpoint = gone.id`,
			before)
		b.Queue(`
			DELETE FROM waybill.tenant AS t
			WHERE t.deleted_at < $1
				AND NOT EXISTS (SELECT FROM waybill.endpoint AS e WHERE e.tenant = t.id)
				AND NOT EXISTS (SELECT FROM waybill.outbox AS o WHERE o.shard = t.shard AND o.tenant = t.id)`,
			before)
		return nil
	})
}

func (s *Store) maintenance(ctx context.Context, what, sql string, args ...any) error {
	err := s.transact(ctx, upkeep, func(b *pgx.Batch) error {
		b.Queue(sql, args...)
		return nil
	})
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}
