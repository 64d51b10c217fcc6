package pgsql

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/waybill-dev/waybill/receive"
	"github.com/waybill-dev/waybill/receive/internal/columns"
)

// Rows is what *sql.Rows and pgx.Rows have in common. Close reads to the end of the statement, so
// that after it, and after Err, a statement outside a transaction is committed.
type Rows interface {
	Next() bool
	Scan(dest ...any) error
	Close() error
	Err() error
}

// Querier runs one statement: a pool, which commits it, or a transaction.
type Querier interface {
	Query(ctx context.Context, sql string, args ...any) (Rows, error)
}

// DB is a pool.
type DB interface {
	Querier
	// Tx runs do in a transaction and commits it if do returns nil.
	Tx(ctx context.Context, do func(Querier) error) error
}

// Events is a receive.InboxStore and a receive.ClaimStore on a PostgreSQL database.
type Events struct{ DB DB }

var (
	_ receive.InboxStore = Events{}
	_ receive.ClaimStore = Events{}
	_ receive.Checker    = Events{}
	_ receive.Pruner     = Events{}
)

// lockedFor is what is told of a row that another transaction has locked at this moment: how much
// is left of its hold is not known, only that looking again at once is in vain.
const lockedFor = 100 * time.Millisecond

// each runs a statement and calls row for every row of its answer.
func each(ctx context.Context, q Querier, sql string, args []any, row func(scan func(...any) error) error) error {
	rows, err := q.Query(ctx, sql, args...)
	if err != nil {
		return err
	}
	for rows.Next() {
		if err := row(rows.Scan); err != nil {
			return errors.Join(err, rows.Close())
		}
	}
	return errors.Join(rows.Close(), rows.Err())
}

// one runs a statement that answers at most one row, and reports whether it did.
func one(ctx context.Context, q Querier, sql string, args []any, dest ...any) (found bool, err error) {
	err = each(ctx, q, sql, args, func(scan func(...any) error) error {
		found = true
		return scan(dest...)
	})
	return found && err == nil, err
}

// claimSQL is the whole claim, in one round trip that waits for nobody:
// $1 key, $2 token, $3 lease in µs, $4 the advisory lock, $5… the key's parts, digest, flags.
const claimSQL = `
	WITH clock AS MATERIALIZED (
		SELECT clock_timestamp() AS now
	),
	found AS MATERIALIZED (
		SELECT key, state, token, due, expires_at, crashes
		FROM waybill_receive.event
		WHERE key = $1::bytea
		FOR UPDATE SKIP LOCKED
	),
	taken AS (
		UPDATE waybill_receive.event AS e
		SET state = 1, token = $2::bytea, due = clock.now + $3::bigint * interval '1 microsecond',
			fence = e.fence + 1, run = e.run + 1,
			crashes = CASE e.state WHEN 1 THEN e.crashes + 1 WHEN 0 THEN e.crashes ELSE 0 END,
			received_at = CASE e.state WHEN 2 THEN clock.now ELSE e.received_at END,
			digest = CASE e.state WHEN 2 THEN $10::bytea ELSE e.digest END,
			body = CASE e.state WHEN 2 THEN NULL ELSE e.body END,
			expires_at = NULL, ended_at = NULL, reply_status = NULL, reply_type = NULL, reply_body = NULL
		FROM found, clock
		WHERE e.key = found.key
			AND (found.state = 0 OR found.state = 1 AND found.due <= clock.now AND found.token <> $2::bytea
				OR found.state = 2 AND found.expires_at <= clock.now)
		RETURNING e.state, e.fence, e.run, e.crashes, 0::bigint AS remains, e.received_at, e.digest
	),
	fresh AS MATERIALIZED (
		SELECT CASE
			WHEN EXISTS (SELECT FROM waybill_receive.event WHERE key = $1::bytea) THEN false
			ELSE pg_try_advisory_xact_lock($4::bigint)
		END AS ok
	),
	made AS (
		INSERT INTO waybill_receive.event
			(key, source, account, id, place, id_digest, digest, id_signed, state, token, due, fence, run, received_at)
		SELECT $1::bytea, $5::text, $6::bytea, $7::bytea, $8::integer, $9::bytea, $10::bytea, $11::boolean, 1, $2::bytea,
			clock.now + $3::bigint * interval '1 microsecond', 1, 1, clock.now
		FROM fresh, clock
		WHERE fresh.ok
		ON CONFLICT (key) DO NOTHING
		RETURNING state, fence, run, crashes, 0::bigint AS remains, received_at, digest
	)
	SELECT true, state, fence, run, crashes, remains, 0::bigint, digest, NULL::integer, NULL::text, NULL::bytea
	FROM made
	UNION ALL
	SELECT true, state, fence, run, crashes, remains,
		(extract(epoch FROM clock.now - received_at) * 1000000)::bigint, digest, NULL, NULL, NULL
	FROM taken, clock
	UNION ALL
	SELECT state = 1 AND token = $2::bytea, state, fence, run, crashes,
		(extract(epoch FROM due - clock.now) * 1000000)::bigint,
		(extract(epoch FROM clock.now - received_at) * 1000000)::bigint, digest, reply_status, reply_type, reply_body
	FROM waybill_receive.event, clock
	WHERE key = $1::bytea AND NOT EXISTS (SELECT FROM taken)
	UNION ALL
	SELECT false, 1, 0, 0, 0, 0, 0, $10::bytea, NULL, NULL, NULL
	FROM fresh
	WHERE NOT fresh.ok AND NOT EXISTS (SELECT FROM waybill_receive.event WHERE key = $1::bytea)`

// Claim implements receive.ClaimStore.
func (s Events) Claim(ctx context.Context, r *receive.Record, token receive.Token, lease time.Duration) (receive.Found, error) {
	hash := r.Key.Hash()
	args := append([]any{hash[:], token[:], lease.Microseconds(), lockOf(hash)}, columns.Key(&r.Key)...)
	args = append(args, r.Digest[:], r.IDSigned)
	for {
		var (
			state, run, crashes int
			mine                bool
			fence, left, since  int64
			digest              []byte
			reply               columns.Answer
		)
		found, err := one(ctx, s.DB, claimSQL, args, append([]any{&mine, &state, &fence, &run, &crashes, &left, &since, &digest}, reply.Dest()...)...)
		if err != nil {
			return receive.Found{}, err
		}
		if !found {
			continue // made and committed by another while this statement ran: now it can be seen
		}
		f := receive.Found{State: receive.State(state), Since: micros(since), OtherBody: string(digest) != string(r.Digest[:])}
		switch {
		case mine:
			f.Claim = &receive.Claim{Key: r.Key, Token: token, Granted: true, Fence: fence, Run: run, Crashes: crashes}
		case f.State == receive.Free, f.State == receive.Held:
			// A free row that was not taken is locked, and what holds it is not to be seen yet.
			f.State, f.Left = receive.Held, max(micros(left), lockedFor)
		case f.State == receive.Done:
			f.Reply = reply.Reply()
		}
		return f, nil
	}
}

// settleSQL is compare-and-set on held and token.
const settleSQL = `
	UPDATE waybill_receive.event
	SET state = $3::smallint, crashes = 0,
		due = clock_timestamp() + $4::bigint * interval '1 microsecond',
		expires_at = CASE WHEN $3::smallint = 2 THEN clock_timestamp() + $5::bigint * interval '1 microsecond' END,
		ended_at = CASE WHEN $3::smallint >= 2 THEN clock_timestamp() END,
		reason = $6::text, reply_status = $7::integer, reply_type = $8::text, reply_body = $9::bytea
	WHERE key = $1::bytea AND state = 1 AND token = $2::bytea
	RETURNING true`

func settleArgs(c *receive.Claim, o receive.Outcome) []any {
	hash := c.Key.Hash()
	args := []any{hash[:], c.Token[:], int(o.State), o.After.Microseconds(), o.Retain.Microseconds(), columns.Text(o.Reason)}
	return append(args, columns.Reply(o.Reply)...)
}

// Settle implements receive.ClaimStore and receive.InboxStore.
func (s Events) Settle(ctx context.Context, c *receive.Claim, o receive.Outcome) error {
	if o.Look {
		return s.look(ctx, c, o.State)
	}
	if o.Record != nil && o.State == receive.Dead {
		return s.DB.Tx(ctx, func(q Querier) error {
			if err := settle(ctx, q, c, o); err != nil {
				return err
			}
			return keepRecord(ctx, q, o.Record)
		})
	}
	return settle(ctx, s.DB, c, o)
}

func settle(ctx context.Context, q Querier, c *receive.Claim, o receive.Outcome) error {
	var done bool
	found, err := one(ctx, q, settleSQL, settleArgs(c, o), &done)
	if err != nil || found {
		return err
	}
	state, mine, err := standing(ctx, q, c)
	if err == nil && !(mine && state == o.State) {
		err = receive.ErrLeaseLost
	}
	return err
}

// look says whether the run of c ended in a state, and changes nothing.
func (s Events) look(ctx context.Context, c *receive.Claim, want receive.State) error {
	state, mine, err := standing(ctx, s.DB, c)
	switch {
	case err != nil:
		return err
	case mine && state == want:
		return nil
	case mine && state == receive.Held:
		return receive.ErrNotCommitted
	}
	return receive.ErrLeaseLost
}

// standing reads the state of an event, and whether c's run was the last.
func standing(ctx context.Context, q Querier, c *receive.Claim) (state receive.State, mine bool, err error) {
	hash := c.Key.Hash()
	n := 0
	_, err = one(ctx, q, `
		SELECT state, token = $2::bytea
		FROM waybill_receive.event
		WHERE key = $1::bytea AND token IS NOT NULL`,
		[]any{hash[:], c.Token[:]}, &n, &mine)
	return receive.State(n), mine, err
}

// keepRecord stores what an event is, where only its key was.
func keepRecord(ctx context.Context, q Querier, r *receive.Record) error {
	return each(ctx, q, `
		UPDATE waybill_receive.event
		SET topic = $2::text, header = $3::text, body = $4::bytea, of = $5::integer, id_signed = $6::boolean, sent_at = $7::timestamptz
		WHERE key = $1::bytea AND body IS NULL`,
		append(hashOf(r), recordArgs(r)...), nil)
}

// Extend implements receive.InboxStore.
func (s Events) Extend(ctx context.Context, c *receive.Claim, lease time.Duration) error {
	hash := c.Key.Hash()
	var done bool
	found, err := one(ctx, s.DB, `
		UPDATE waybill_receive.event
		SET due = greatest(due, clock_timestamp() + $3::bigint * interval '1 microsecond')
		WHERE key = $1::bytea AND state = 1 AND token = $2::bytea
		RETURNING true`,
		[]any{hash[:], c.Token[:], lease.Microseconds()}, &done)
	if err == nil && !found {
		err = receive.ErrLeaseLost
	}
	return err
}

// Prune implements receive.Pruner.
func (s Events) Prune(ctx context.Context) (int, error) {
	n := 0
	_, err := one(ctx, s.DB, `
		WITH expired AS (
			SELECT key
			FROM waybill_receive.event
			WHERE state = 2 AND expires_at <= (SELECT clock_timestamp())
			ORDER BY expires_at
			LIMIT 1000
			FOR UPDATE SKIP LOCKED
		),
		unsettled AS (
			SELECT key
			FROM waybill_receive.event
			WHERE state < 2 AND body IS NULL AND due <= (SELECT clock_timestamp()) - make_interval(secs => $1::float8)
			ORDER BY due
			LIMIT 1000
			FOR UPDATE SKIP LOCKED
		),
		pruned AS (
			DELETE FROM waybill_receive.event AS e
			USING (SELECT key FROM expired UNION ALL SELECT key FROM unsettled) AS gone
			WHERE e.key = gone.key
			RETURNING 1
		)
		SELECT count(*)
		FROM pruned`, []any{receive.ClaimMemory.Seconds()}, &n)
	return n, err
}

// Check implements receive.Checker: whether the tables are there, and whether a commit waits for
// the disk.
func (s Events) Check(ctx context.Context) ([]receive.Problem, error) {
	var tables bool
	var synchronous, fsync string
	_, err := one(ctx, s.DB, `
		SELECT to_regclass('waybill_receive.version') IS NOT NULL AND to_regclass('waybill_receive.event') IS NOT NULL,
			current_setting('synchronous_commit'), current_setting('fsync')`, nil, &tables, &synchronous, &fsync)
	if err != nil {
		return nil, err
	}
	var problems []receive.Problem
	if !tables {
		problems = append(problems, receive.Problem{
			Rule: receive.Incomplete, Harm: receive.Loses,
			Detail: "the schema waybill_receive is not there",
			Remedy: "Run the store's Schema with your migrations, or call Migrate once",
		})
	}
	for setting, value := range map[string]string{"synchronous_commit": synchronous, "fsync": fsync} {
		if value == "off" {
			problems = append(problems, receive.Problem{
				Rule: receive.NotDurable, Harm: receive.Loses,
				Detail: fmt.Sprintf("%s is off: a commit is answered before the disk has it, and the provider is told that the event is safe", setting),
				Remedy: fmt.Sprintf("Set %s to on for this role or database", setting),
			})
		}
	}
	return problems, nil
}

// Letters implements receive.DeadLetterStore.
func (s Events) Letters(ctx context.Context, source string) iter.Seq2[receive.DeadLetter, error] {
	const page = 100
	return func(yield func(receive.DeadLetter, error) bool) {
		var at time.Time
		key := []byte{}
		for {
			var letters []receive.DeadLetter
			err := each(ctx, s.DB, `
				SELECT key, ended_at, coalesce(reason, ''), run, `+recordColumns+`
				FROM waybill_receive.event
				WHERE source = $1::text AND state = 3 AND (ended_at, key) > ($2::timestamptz, $3::bytea)
				ORDER BY ended_at, key
				LIMIT `+fmt.Sprint(page),
				[]any{source, at, key}, func(scan func(...any) error) error {
					var l receive.DeadLetter
					var r recordRow
					if err := scan(append([]any{&key, &at, &l.Reason, &l.Runs}, r.dest()...)...); err != nil {
						return err
					}
					l.At = at.UTC()
					var err error
					l.Record, err = r.record(source)
					letters = append(letters, l)
					return err
				})
			if err != nil {
				yield(receive.DeadLetter{}, err)
				return
			}
			for _, l := range letters {
				if !yield(l, nil) {
					return
				}
			}
			if len(letters) < page {
				return
			}
		}
	}
}

// Revive implements receive.DeadLetterStore.
func (s Events) Revive(ctx context.Context, key receive.Key) error {
	hash := key.Hash()
	var done bool
	found, err := one(ctx, s.DB, `
		UPDATE waybill_receive.event
		SET state = 0, token = NULL, crashes = 0, due = clock_timestamp(), expires_at = NULL, ended_at = NULL
		WHERE key = $1::bytea AND state >= 2
		RETURNING true`, []any{hash[:]}, &done)
	if err == nil && !found {
		err = receive.ErrNotFound
	}
	return err
}

// lockOf is the advisory lock of a key that has no row yet.
func lockOf(hash [32]byte) int64 { return int64(binary.BigEndian.Uint64(hash[:8])) }

func micros(n int64) time.Duration { return time.Duration(n) * time.Microsecond }

func hashOf(r *receive.Record) []any {
	hash := r.Key.Hash()
	return []any{hash[:]}
}

// recordArgs are topic, header, body, of, id_signed, sent_at.
func recordArgs(r *receive.Record) []any {
	var sentAt any
	if !r.SentAt.IsZero() {
		sentAt = r.SentAt
	}
	return append(columns.Record(r), sentAt)
}

const recordColumns = columns.Stored + `, sent_at, received_at`

// recordRow reads recordColumns.
type recordRow struct {
	columns.Row
	sentAt     *time.Time
	receivedAt time.Time
}

func (r *recordRow) dest() []any { return append(r.Dest(), &r.sentAt, &r.receivedAt) }

func (r *recordRow) record(source string) (receive.Record, error) {
	out, err := r.Record(source)
	out.ReceivedAt = r.receivedAt.UTC()
	if r.sentAt != nil {
		out.SentAt = r.sentAt.UTC()
	}
	return out, err
}
