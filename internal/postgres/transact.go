package postgres

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// limits bound what a transaction may cost others.
type limits struct {
	lock      time.Duration // how long a statement may wait for a lock
	statement time.Duration // how long a statement may run
	plan      planning
	scans     bool // whether whole tables may be read
	snapshot  bool // whether all statements see one moment, and only read
}

// planning says how the statements of a transaction are planned.
type planning string

const (
	// planOnce keeps one plan per statement. For writes, and for reads of tables without
	// partitions: their plan never depends on the parameters.
	planOnce planning = "force_generic_plan"
	// planEach plans for the parameters at hand, so that of all partitions only those are
	// opened whose ids are asked for.
	planEach planning = "force_custom_plan"
)

var (
	hot    = limits{lock: 2 * time.Second, statement: 15 * time.Second, plan: planOnce}
	keyed  = limits{lock: 100 * time.Millisecond, statement: 15 * time.Second, plan: planEach}
	edits  = limits{lock: 5 * time.Second, statement: 15 * time.Second, plan: planOnce}
	people = limits{lock: 2 * time.Second, statement: 15 * time.Second, plan: planEach}
	upkeep = limits{lock: 200 * time.Millisecond, statement: 10 * time.Minute, plan: planEach, scans: true}
)

// The settings go with every transaction and not with the connection, because a bouncer may give
// each transaction another one. A session that is killed half-way must not keep its locks, hence
// the idle time-out. The scans and joins that are switched off can only be chosen here by a
// planner that believes a queue table to be empty; compiling a statement never pays.
const setLimits = `
	SELECT set_config('lock_timeout', $1, true),
	       set_config('statement_timeout', $2, true),
	       set_config('plan_cache_mode', $3, true),
	       set_config('idle_in_transaction_session_timeout', '3s', true),
	       set_config('enable_seqscan', $4, true),
	       set_config('enable_hashjoin', $4, true),
	       set_config('enable_mergejoin', $4, true),
	       set_config('jit', 'off', true)`

// queueBegin starts the transaction.
func (l limits) queueBegin(b *pgx.Batch) {
	if l.snapshot {
		b.Queue("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
	} else {
		b.Queue("BEGIN ISOLATION LEVEL READ COMMITTED")
	}
	l.queueSettings(b)
}

func (l limits) queueSettings(b *pgx.Batch) {
	scans := "off"
	if l.scans {
		scans = "on"
	}
	b.Queue(setLimits, milliseconds(l.lock), milliseconds(l.statement), string(l.plan), scans)
}

// trip queues the statements of one round trip. It may look at what the trips before it read;
// an error ends the transaction and is returned as it is.
type trip func(b *pgx.Batch) error

// errNothingWritten ends a transaction that turned out to have nothing to write. It never leaves
// the package.
var errNothingWritten = errors.New("nothing to write")

// transact runs one transaction in as many round trips as given: BEGIN goes with the first and
// COMMIT with the last, so nothing may be decided after the last has been queued.
//
// What an author does is put on record in the same transaction (outbox.Audit).
func (s *Store) transact(ctx context.Context, l limits, trips ...trip) error {
	if l.snapshot || !s.by.Due() {
		return transactOn(ctx, s.pool, l, trips...)
	}
	err := transactOn(ctx, s.pool, l, append(trips, func(b *pgx.Batch) error {
		queueNote(b, &s.by.Entry)
		return nil
	})...)
	if err == nil {
		s.by.Noted()
	}
	return err
}

func transactOn(ctx context.Context, pool *pgxpool.Pool, l limits, trips ...trip) error {
	conn, err := acquire(ctx, pool)
	if err != nil {
		return err
	}
	defer conn.Release()
	for i, queue := range trips {
		b := &pgx.Batch{}
		if i == 0 {
			l.queueBegin(b)
		}
		if err := queue(b); err != nil {
			rollback(ctx, conn)
			return err
		}
		at := working
		if i == len(trips)-1 {
			b.Queue("COMMIT")
			at = committing
		}
		if err := conn.SendBatch(ctx, b).Close(); err != nil {
			lost := conn.Conn().IsClosed()
			rollback(ctx, conn)
			return writeError(err, at, lost)
		}
	}
	return nil
}

// connPatience is how long a call waits for a free connection: whoever asked is answered "later",
// and never kept for good by calls that do not end.
const connPatience = 10 * time.Second

// acquire takes a connection; where none can be had, nothing was written.
func acquire(ctx context.Context, pool *pgxpool.Pool) (*pgxpool.Conn, error) {
	within, cancel := context.WithTimeout(ctx, connPatience)
	defer cancel()
	conn, err := pool.Acquire(within)
	if err != nil {
		if within.Err() != nil && ctx.Err() == nil {
			err = fmt.Errorf("no connection was free within %v: %w", connPatience, err)
		}
		return nil, &outbox.WriteError{Fault: outbox.FaultRetry, Err: err}
	}
	return conn, nil
}

// rollback saves the connection for the next user; where it fails the pool drops it, which
// rolls back too.
func rollback(ctx context.Context, conn *pgxpool.Conn) {
	if conn.Conn().IsClosed() || conn.Conn().PgConn().TxStatus() == 'I' {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	conn.Exec(ctx, "ROLLBACK")
}

// read runs statements that only look, in one round trip and all at one moment. A failure to
// reach the database is tried once more: after a restart of the server every pooled connection
// is dead, and a look can be repeated.
func (s *Store) read(ctx context.Context, l limits, queue func(b *pgx.Batch)) error {
	l.snapshot = true
	look := func(b *pgx.Batch) error {
		queue(b)
		return nil
	}
	err := s.transact(ctx, l, look)
	if fault := outbox.FaultOf(err); err != nil && ctx.Err() == nil &&
		(fault == outbox.FaultRetry || fault == outbox.FaultUnknown) {
		err = s.transact(ctx, l, look)
	}
	return err
}

func milliseconds(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }
