package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/waybill-dev/waybill/receive"
	"github.com/waybill-dev/waybill/receive/internal/columns"
)

// begin starts a handler's transaction with the write lock in hand, by writing what is there
// already: database/sql cannot say BEGIN IMMEDIATE.
func (l lite) begin(ctx context.Context, c *receive.Claim) (tx *sql.Tx, err error) {
	err = patiently(ctx, func() error {
		if tx, err = l.db.BeginTx(ctx, nil); err != nil {
			return err
		}
		hash := c.Key.Hash()
		err := changed(tx.ExecContext(ctx, `
			UPDATE waybill_receive_event
			SET due = due
			WHERE key = ? AND state = 1 AND token = ?`, hash[:], c.Token[:]))(receive.ErrLeaseLost)
		if !c.Granted && errors.Is(err, receive.ErrLeaseLost) {
			err = nil // nobody said that it has the event
		}
		if err != nil {
			err = errors.Join(err, tx.Rollback())
		}
		return err
	})
	return tx, err
}

func (l lite) confirm(ctx context.Context, tx *sql.Tx, d *receive.Delivery) error {
	c, o := d.Claim(), d.Done()
	c.InTx() // before the statement is sent: it may have been applied when its answer is lost
	now := time.Now().UnixMicro()
	settled, err := liteSettled(ctx, tx, c, o, now)
	if err != nil || settled {
		return err
	}
	if c.Granted {
		return receive.ErrLeaseLost
	}
	// A run whose claim was never answered takes the event if nobody has it.
	hash, rec := c.Key.Hash(), d.Record()
	args := append([]any{hash[:], c.Token[:], now, now + o.Retain.Microseconds()}, columns.Reply(o.Reply)...)
	args = append(append(args, columns.Key(&c.Key)...), rec.Digest[:], rec.IDSigned)
	return changed(tx.ExecContext(ctx, `
		INSERT INTO waybill_receive_event AS e
			(key, token, due, received_at, ended_at, expires_at, reply_status, reply_type, reply_body,
			source, account, id, place, id_digest, digest, id_signed, state, fence, run)
		VALUES (?1, ?2, ?3, ?3, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, 2, 1, 1)
		ON CONFLICT (key) DO UPDATE
		SET state = 2, token = excluded.token, expires_at = excluded.expires_at, ended_at = excluded.ended_at,
			reply_status = excluded.reply_status, reply_type = excluded.reply_type, reply_body = excluded.reply_body,
			fence = e.fence + 1, run = e.run + 1, crashes = 0
		WHERE e.state = 0 OR e.state = 1 AND e.due <= ?3 OR e.state = 2 AND e.expires_at <= ?3`, args...))(receive.ErrLeaseLost)
}

func (l lite) newer(ctx context.Context, tx *sql.Tx, object string, v receive.Version) (bool, error) {
	err := changed(tx.ExecContext(ctx, `
		INSERT INTO waybill_receive_version AS seen (object, at, tie)
		VALUES (?, ?, ?)
		ON CONFLICT (object) DO UPDATE
		SET at = excluded.at, tie = excluded.tie
		WHERE (seen.at, seen.tie) < (excluded.at, excluded.tie)`,
		object, v.At, []byte(v.Tie)))(receive.ErrNotFound)
	if !errors.Is(err, receive.ErrNotFound) {
		return err == nil, err
	}
	_, err = tx.ExecContext(ctx, `
		UPDATE waybill_receive_version
		SET stale = stale + 1
		WHERE object = ? AND (at, tie) > (?, ?)`, object, v.At, []byte(v.Tie))
	return false, err
}

func (l lite) stale(ctx context.Context, object string) (n int64, err error) {
	err = l.db.QueryRowContext(ctx, `
		SELECT stale
		FROM waybill_receive_version
		WHERE object = ?`, object).Scan(&n)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, nil
	}
	return n, err
}
