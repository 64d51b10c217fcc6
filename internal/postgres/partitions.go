package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/waybill-dev/waybill/internal/outbox"
)

const (
	day = 24 * time.Hour
	// daysAhead is how many days a database goes on accepting events while nobody maintains it.
	daysAhead = 9
	// lockTries is how often one call tries a step that somebody's lock holds up.
	lockTries = 5
)

// partition is one day of a partitioned table.
type partition struct {
	parent   string // event or attempt
	day      time.Time
	attached bool
	pending  bool // a detachment was begun and not finished
}

func (p partition) name() string { return p.parent + "_" + p.day.Format("20060102") }
func (p partition) quoted() string {
	return pgx.Identifier{"waybill", p.name()}.Sanitize()
}

// partitions lists the days there are, attached or left behind by a retirement that was cut off.
func (s *Store) partitions(ctx context.Context) ([]partition, error) {
	var list []partition
	err := s.read(ctx, upkeep, func(b *pgx.Batch) {
		list = nil
		b.Queue(`
			SELECT c.relname, i.inhrelid IS NOT NULL, coalesce(i.inhdetachpending, false)
			FROM pg_class AS c
			LEFT JOIN pg_inherits AS i ON i.inhrelid = c.oid
			WHERE c.relnamespace = 'waybill'::regnamespace AND c.relkind = 'r'
				AND c.relname ~ '^(event|attempt)_[0-9]{8}$'
			ORDER BY c.relname`,
		).Query(func(rows pgx.Rows) error {
			var name string
			var p partition
			_, err := pgx.ForEachRow(rows, []any{&name, &p.attached, &p.pending}, func() error {
				parent, date, _ := strings.Cut(name, "_")
				at, err := time.Parse("20060102", date)
				if err != nil {
					return nil // somebody's own table
				}
				p.parent, p.day = parent, at
				list = append(list, p)
				return nil
			})
			return err
		})
	})
	return list, err
}

// addPartitions makes the days from yesterday to daysAhead. A step that waits for a lock gives
// up soon, because everybody behind it in the queue waits too, and is tried again.
func (s *Store) addPartitions(ctx context.Context, now time.Time) error {
	existing, err := s.partitions(ctx)
	if err != nil {
		return fmt.Errorf("partitions: %w", err)
	}
	var failed []error
	for n := -1; n <= daysAhead; n++ {
		for _, parent := range []string{"event", "attempt"} {
			p := partition{parent: parent, day: now.UTC().Truncate(day).Add(time.Duration(n) * day)}
			if slices.ContainsFunc(existing, func(e partition) bool { return e.name() == p.name() && e.attached }) {
				continue
			}
			err := patiently(func() error {
				return s.transact(ctx, upkeep, func(b *pgx.Batch) error {
					b.Queue(`SELECT waybill.add_partition($1, $2)`, p.parent, p.day)
					return nil
				})
			})
			if err != nil {
				failed = append(failed, fmt.Errorf("make partition %s: %w", p.name(), err))
			}
		}
	}
	return errors.Join(failed...)
}

// patiently tries again what failed because of somebody's lock.
func patiently(step func() error) error {
	var err error
	for range lockTries {
		if err = step(); outbox.FaultOf(err) != outbox.FaultLocked {
			break
		}
	}
	return err
}

// retirePartitions drops the days that ended before the cut-off. A day that a transaction still
// looks at is left for the next call: nobody ever waits for it.
func (s *Store) retirePartitions(ctx context.Context, cutoff time.Time) error {
	existing, err := s.partitions(ctx)
	if err != nil {
		return fmt.Errorf("partitions: %w", err)
	}
	old := slices.DeleteFunc(existing, func(p partition) bool { return p.day.Add(day).After(cutoff) })
	if len(old) == 0 {
		return nil
	}
	if err := s.maintenance(ctx, "retire partitions", `
		UPDATE waybill.setting
		SET kept_since = $1
		WHERE kept_since < $1`,
		cutoff.UTC().Truncate(day)); err != nil {
		return err
	}
	conn, err := s.maintenanceConn(ctx)
	if err != nil {
		return fmt.Errorf("retire partitions: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	// One that was begun first: a table detaches only one at a time.
	slices.SortStableFunc(old, func(a, b partition) int {
		switch {
		case a.pending == b.pending:
			return 0
		case a.pending:
			return -1
		}
		return 1
	})
	stuck := map[string]bool{} // parents with a detachment that did not end
	var failed []error
	for _, p := range old {
		if stuck[p.parent] {
			continue
		}
		if err := retire(ctx, conn, p); err != nil {
			stuck[p.parent] = true
			if outbox.FaultOf(err) == outbox.FaultLocked {
				s.log.InfoContext(ctx, "a transaction still uses an old partition", "partition", p.name(), "error", err)
				continue
			}
			failed = append(failed, fmt.Errorf("retire partition %s: %w", p.name(), err))
		}
	}
	return errors.Join(failed...)
}

// maintenanceConn is a connection of its own: detaching concurrently needs to be outside a
// transaction, so its lock time-out belongs to the session.
func (s *Store) maintenanceConn(ctx context.Context) (*pgx.Conn, error) {
	conn, err := pgx.ConnectConfig(ctx, s.pool.Config().ConnConfig)
	if err != nil {
		return nil, err
	}
	if err := prepareConn(ctx, conn); err != nil {
		return nil, errors.Join(err, conn.Close(ctx))
	}
	if _, err := conn.Exec(ctx, "SET lock_timeout = '200ms'"); err != nil {
		return nil, errors.Join(err, conn.Close(ctx))
	}
	return conn, nil
}

// closeSoon ends a connection of maintenance even where ctx has ended.
func closeSoon(ctx context.Context, conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	conn.Close(ctx)
}

// retire takes one day out of its table and drops it. Events that an outbox row, a pending delivery
// or a dead letter still needs are kept: once before the day disappears from sight, so that none is ever
// missed, and once after, for those that a replay has come to need in between.
func retire(ctx context.Context, conn *pgx.Conn, p partition) error {
	if p.attached {
		if p.parent == "event" && !p.pending {
			if err := keepEvents(ctx, conn, p); err != nil {
				return err
			}
		}
		if err := patiently(func() error { return detach(ctx, conn, &p) }); err != nil {
			return err
		}
	}
	if p.parent == "event" {
		if err := keepEvents(ctx, conn, p); err != nil {
			return err
		}
	}
	return patiently(func() error {
		_, err := conn.Exec(ctx, "DROP TABLE IF EXISTS "+p.quoted())
		return asWriteError(conn, err)
	})
}

// detach never blocks a publisher: first the day is marked, which new transactions respect, and
// then those that began before are waited for. Where that takes too long the mark stays and the
// next try only has to wait.
func detach(ctx context.Context, conn *pgx.Conn, p *partition) error {
	how := "CONCURRENTLY"
	if p.pending {
		how = "FINALIZE"
	}
	_, err := conn.Exec(ctx, "ALTER TABLE waybill."+p.parent+" DETACH PARTITION "+p.quoted()+" "+how, pgx.QueryExecModeSimpleProtocol)
	if err == nil {
		return nil
	}
	looked := conn.QueryRow(ctx, `
		SELECT i.inhdetachpending
		FROM pg_inherits AS i
		WHERE i.inhrelid = $1::regclass`,
		"waybill."+p.name()).Scan(&p.pending)
	return errors.Join(asWriteError(conn, err), looked)
}

// keepEvents copies the events of a day that are still needed.
func keepEvents(ctx context.Context, conn *pgx.Conn, p partition) error {
	// A day that was taken out before an upgrade has not got the columns that came with it.
	var erasedBytes string
	if err := conn.QueryRow(ctx, `
		SELECT coalesce((
			SELECT 'e.' || attname
			FROM pg_attribute
			WHERE attrelid = $1::regclass AND attname = 'erased_bytes' AND NOT attisdropped
		), 'NULL::integer')`,
		p.quoted()).Scan(&erasedBytes); err != nil {
		return asWriteError(conn, err)
	}
	_, err := conn.Exec(ctx, `
		INSERT INTO waybill.event_kept
			(shard, tenant, id, type, ordering_key, metadata, payload, sha256, created_at, erased_bytes)
		SELECT e.shard, e.tenant, e.id, e.type, e.ordering_key, e.metadata, e.payload, e.sha256, e.created_at, `+erasedBytes+`
		FROM `+p.quoted()+` AS e
		JOIN (
			SELECT d.shard, d.tenant, d.event
			FROM waybill.delivery AS d
			WHERE d.dlv >= $1 AND d.dlv < $2
			UNION
			SELECT l.shard, l.tenant, l.event
			FROM waybill.dead_letter AS l
			WHERE l.dlv >= $1 AND l.dlv < $2
			UNION
			SELECT o.shard, o.tenant, o.event
			FROM waybill.outbox AS o
			WHERE o.event >= $1 AND o.event < $2
		) AS needed ON needed.shard = e.shard AND needed.tenant = e.tenant AND needed.event = e.id
		FOR SHARE OF e -- or bytes that are erased meanwhile would live on in the copy
		ON CONFLICT DO NOTHING`,
		uuid(outbox.DeliveryFloor(p.day)), uuid(outbox.DeliveryFloor(p.day.Add(day))))
	return asWriteError(conn, err)
}

func asWriteError(conn *pgx.Conn, err error) error {
	if err == nil {
		return nil
	}
	// "is already pending detach": somebody who was cut off has begun it.
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok && pgErr.Code == "55000" {
		return &outbox.WriteError{Fault: outbox.FaultLocked, Err: err}
	}
	return writeError(err, working, conn.IsClosed())
}
