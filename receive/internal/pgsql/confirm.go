package pgsql

import (
	"context"

	"github.com/waybill-dev/waybill/receive"
	"github.com/waybill-dev/waybill/receive/internal/columns"
)

// Confirm marks d as done inside the caller's transaction, or says ErrLeaseLost.
func Confirm(ctx context.Context, tx Querier, d *receive.Delivery) error {
	c := d.Claim()
	c.InTx() // before the statement is sent: it may have been applied when its answer is lost
	var done bool
	found, err := one(ctx, tx, settleSQL, settleArgs(c, d.Done()), &done)
	if err == nil && !found && !c.Granted {
		return confirmDegraded(ctx, tx, d)
	}
	if err == nil && !found {
		err = receive.ErrLeaseLost
	}
	return err
}

// confirmDegraded is for a run whose claim was never answered: it takes the event if nobody has it.
// The advisory lock tells claims of the same key, which would wait for this row until the caller's
// transaction ends, that it is being written.
func confirmDegraded(ctx context.Context, tx Querier, d *receive.Delivery) error {
	c, o, r := d.Claim(), d.Done(), d.Record()
	if err := each(ctx, tx, `SELECT pg_advisory_xact_lock($1::bigint)`, []any{lockOf(c.Key.Hash())},
		func(func(...any) error) error { return nil }); err != nil {
		return err
	}
	hash := c.Key.Hash()
	args := append([]any{hash[:], c.Token[:], o.Retain.Microseconds()}, columns.Reply(o.Reply)...)
	args = append(append(args, columns.Key(&c.Key)...), r.Digest[:], r.IDSigned)
	var done bool
	found, err := one(ctx, tx, `
		INSERT INTO waybill_receive.event AS e
			(key, token, expires_at, reply_status, reply_type, reply_body, source, account, id, place, id_digest, digest, id_signed,
			state, due, fence, run, received_at, ended_at)
		VALUES ($1::bytea, $2::bytea, clock_timestamp() + $3::bigint * interval '1 microsecond',
			$4::integer, $5::text, $6::bytea, $7::text, $8::bytea, $9::bytea, $10::integer, $11::bytea, $12::bytea, $13::boolean,
			2, clock_timestamp(), 1, 1, clock_timestamp(), clock_timestamp())
		ON CONFLICT (key) DO UPDATE
		SET state = 2, token = excluded.token, expires_at = excluded.expires_at, ended_at = excluded.ended_at,
			reply_status = excluded.reply_status, reply_type = excluded.reply_type, reply_body = excluded.reply_body,
			fence = e.fence + 1, run = e.run + 1, crashes = 0
		WHERE e.state = 0 OR e.state = 1 AND e.due <= clock_timestamp() OR e.state = 2 AND e.expires_at <= clock_timestamp()
		RETURNING true`, args, &done)
	if err == nil && !found {
		err = receive.ErrLeaseLost
	}
	return err
}

// Newer remembers v as the newest version of object, in the caller's transaction, and reports
// whether it was. One that is older is counted.
func Newer(ctx context.Context, tx Querier, object string, v receive.Version) (bool, error) {
	var newer bool
	found, err := one(ctx, tx, `
		INSERT INTO waybill_receive.version AS seen (object, at, tie)
		VALUES ($1::text, $2::bigint, $3::text)
		ON CONFLICT (object) DO UPDATE
		SET at = excluded.at, tie = excluded.tie
		WHERE (seen.at, seen.tie) < (excluded.at, excluded.tie)
		RETURNING true`,
		[]any{object, v.At, v.Tie}, &newer)
	if err != nil || found {
		return found, err
	}
	return false, each(ctx, tx, `
		UPDATE waybill_receive.version
		SET stale = stale + 1
		WHERE object = $1::text AND (at, tie) > ($2::bigint, $3::text)`,
		[]any{object, v.At, v.Tie}, nil)
}

// Stale counts the events that came after a newer one of the same object.
func Stale(ctx context.Context, q Querier, object string) (n int64, err error) {
	_, err = one(ctx, q, `
		SELECT stale
		FROM waybill_receive.version
		WHERE object = $1::text`, []any{object}, &n)
	return n, err
}
