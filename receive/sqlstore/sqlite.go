package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"time"

	"github.com/waybill-dev/waybill/receive"
	"github.com/waybill-dev/waybill/receive/internal/columns"
)

// lite keeps events in a SQLite file. Time is this host's clock, which is also the file's.
type lite struct{ db *sql.DB }

// runner is a connection or a transaction.
type runner interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

func (l lite) migrate(ctx context.Context) error {
	_, err := l.db.ExecContext(ctx, schemaSQLite)
	return err
}

// write runs do in a transaction that has the file's one write lock from its start: one that reads
// first and then wants to write is refused by SQLite if anybody wrote in between.
func (l lite) write(ctx context.Context, do func(q runner, now int64) error) error {
	conn, err := l.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := patiently(ctx, func() error { _, err := conn.ExecContext(ctx, "BEGIN IMMEDIATE"); return err }); err != nil {
		return err
	}
	// From here on the connection is not left half-way because somebody's patience ended.
	if err := do(conn, time.Now().UnixMicro()); err != nil {
		_, end := conn.ExecContext(context.WithoutCancel(ctx), "ROLLBACK")
		return errors.Join(err, end)
	}
	_, err = conn.ExecContext(context.WithoutCancel(ctx), "COMMIT")
	if err != nil {
		_, end := conn.ExecContext(context.WithoutCancel(ctx), "ROLLBACK")
		return errors.Join(err, end)
	}
	return nil
}

// patiently repeats what another writer is in the way of, for as long as ctx lasts. The driver's own
// busy_timeout may be short, or none.
func patiently(ctx context.Context, do func() error) error {
	for {
		err := do()
		if err == nil || !busy(err) {
			return err
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		}
	}
}

// busy recognises SQLITE_BUSY by what every driver writes; their error types differ.
func busy(err error) bool {
	return strings.Contains(err.Error(), "SQLITE_BUSY") || strings.Contains(err.Error(), "database is locked")
}

const liteRow = `body IS NOT NULL, state, token, due, fence, run, crashes, received_at, expires_at, digest, reply_status, reply_type, reply_body`

// row is what is stored of an event but for its record.
type row struct {
	state                  receive.State
	token, digest          []byte
	due, fence, receivedAt int64
	run, crashes           int
	expiresAt              sql.NullInt64
	reply                  columns.Answer
	kept                   bool // the record is stored
}

// find reads the row of a key, or reports that there is none.
func find(ctx context.Context, q runner, hash [32]byte) (r row, found bool, err error) {
	err = q.QueryRowContext(ctx, `
		SELECT `+liteRow+`
		FROM waybill_receive_event
		WHERE key = ?`, hash[:]).
		Scan(append([]any{&r.kept, &r.state, &r.token, &r.due, &r.fence, &r.run, &r.crashes, &r.receivedAt, &r.expiresAt, &r.digest}, r.reply.Dest()...)...)
	if errors.Is(err, sql.ErrNoRows) {
		return row{}, false, nil
	}
	return r, err == nil, err
}

func (r *row) forgotten(now int64) bool {
	return r.state == receive.Done && r.expiresAt.Int64 <= now
}

// claimable reports whether a run may begin.
func (r *row) claimable(now int64) bool {
	return r.state == receive.Free || r.state == receive.Held && r.due <= now || r.forgotten(now)
}

func (r *row) has(token receive.Token) bool { return string(r.token) == string(token[:]) }

// answer is the row as a claim or a put finds it.
func (r *row) answer(rec *receive.Record, now int64) receive.Found {
	f := receive.Found{State: r.state, Since: micros(now - r.receivedAt), OtherBody: string(r.digest) != string(rec.Digest[:])}
	switch r.state {
	case receive.Held:
		f.Left = max(micros(r.due-now), 0)
	case receive.Done:
		f.Reply = r.reply.Reply()
	}
	return f
}

func (r *row) claim(key receive.Key, token receive.Token) *receive.Claim {
	return &receive.Claim{Key: key, Token: token, Granted: true, Fence: r.fence, Run: r.run, Crashes: r.crashes}
}

// Claim implements receive.ClaimStore. It looks before it asks for the write lock, so that what is
// held or done is answered at once, whatever transaction is under way.
func (l lite) Claim(ctx context.Context, rec *receive.Record, token receive.Token, lease time.Duration) (receive.Found, error) {
	hash := rec.Key.Hash()
	now := time.Now().UnixMicro()
	r, found, err := find(ctx, l.db, hash)
	if err != nil {
		return receive.Found{}, err
	}
	if found && (r.state == receive.Held && r.has(token) || !r.claimable(now)) {
		return granted(&r, rec, token, now), nil
	}
	var f receive.Found
	err = l.write(ctx, func(q runner, now int64) error {
		r, found, err := find(ctx, q, hash)
		if err != nil {
			return err
		}
		if found && (r.state == receive.Held && r.has(token) || !r.claimable(now)) {
			f = granted(&r, rec, token, now)
			return nil
		}
		switch {
		case !found, r.forgotten(now):
			r = row{fence: r.fence, run: r.run, receivedAt: now, digest: rec.Digest[:]}
		case r.state == receive.Held:
			r.crashes++
		}
		r.state, r.token, r.due = receive.Held, token[:], now+lease.Microseconds()
		r.fence++
		r.run++
		f = r.answer(rec, now)
		f.Left, f.Claim = 0, r.claim(rec.Key, token)
		if !found {
			_, err = q.ExecContext(ctx, `
				INSERT INTO waybill_receive_event
					(key, source, account, id, place, id_digest, digest, id_signed, state, token, due, fence, run, received_at)
				VALUES (?, ?, ?, ?, ?, ?, ?, ?, 1, ?, ?, ?, ?, ?)`,
				append(append([]any{hash[:]}, columns.Key(&rec.Key)...), rec.Digest[:], rec.IDSigned, token[:], r.due, r.fence, r.run, now)...)
			return err
		}
		_, err = q.ExecContext(ctx, `
			UPDATE waybill_receive_event
			SET body = CASE WHEN state = 2 THEN NULL ELSE body END,
				state = 1, token = ?, due = ?, fence = ?, run = ?, crashes = ?, received_at = ?, digest = ?,
				expires_at = NULL, ended_at = NULL, reply_status = NULL, reply_type = NULL, reply_body = NULL
			WHERE key = ?`,
			r.token, r.due, r.fence, r.run, r.crashes, r.receivedAt, r.digest, hash[:])
		return err
	})
	return f, err
}

// granted answers for a row that is not to be changed: held by this very token, or by another's
// right.
func granted(r *row, rec *receive.Record, token receive.Token, now int64) receive.Found {
	f := r.answer(rec, now)
	if r.state == receive.Held && r.has(token) {
		f.Claim = r.claim(rec.Key, token)
	}
	return f
}

const liteSettle = `
	UPDATE waybill_receive_event
	SET state = ?3, crashes = 0, due = ?4 + ?5, expires_at = CASE WHEN ?3 = 2 THEN ?4 + ?6 END,
		ended_at = CASE WHEN ?3 >= 2 THEN ?4 END, reason = ?7, reply_status = ?8, reply_type = ?9, reply_body = ?10
	WHERE key = ?1 AND state = 1 AND token = ?2`

// settle is compare-and-set on held and token; false if that is not how it stands.
func liteSettled(ctx context.Context, q runner, c *receive.Claim, o receive.Outcome, now int64) (bool, error) {
	hash := c.Key.Hash()
	result, err := q.ExecContext(ctx, liteSettle, append([]any{hash[:], c.Token[:], int(o.State), now, o.After.Microseconds(), o.Retain.Microseconds(),
		columns.Text(o.Reason)}, columns.Reply(o.Reply)...)...)
	if err != nil {
		return false, err
	}
	n, err := result.RowsAffected()
	return n == 1, err
}

// Settle implements receive.ClaimStore and receive.InboxStore.
func (l lite) Settle(ctx context.Context, c *receive.Claim, o receive.Outcome) error {
	if o.Look {
		r, _, err := find(ctx, l.db, c.Key.Hash())
		switch {
		case err != nil:
			return err
		case r.has(c.Token) && r.state == o.State:
			return nil
		case r.has(c.Token) && r.state == receive.Held:
			return receive.ErrNotCommitted
		}
		return receive.ErrLeaseLost
	}
	return l.write(ctx, func(q runner, now int64) error {
		settled, err := liteSettled(ctx, q, c, o, now)
		if err != nil {
			return err
		}
		if !settled {
			r, _, err := find(ctx, q, c.Key.Hash())
			if err == nil && !(r.has(c.Token) && r.state == o.State) {
				err = receive.ErrLeaseLost
			}
			return err
		}
		if o.State != receive.Dead || o.Record == nil {
			return nil
		}
		hash := c.Key.Hash()
		_, err = q.ExecContext(ctx, `
			UPDATE waybill_receive_event
			SET topic = ?, header = ?, body = ?, of = ?, id_signed = ?, sent_at = ?
			WHERE key = ? AND body IS NULL`,
			append(recordArgs(o.Record), hash[:])...)
		return err
	})
}
