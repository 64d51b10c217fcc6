package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"iter"
	"time"

	"github.com/waybill-dev/waybill/receive"
	"github.com/waybill-dev/waybill/receive/internal/columns"
)

// Put implements receive.InboxStore.
func (l lite) Put(ctx context.Context, records []receive.Record) ([]receive.Found, error) {
	found := make([]receive.Found, len(records))
	err := l.write(ctx, func(q runner, now int64) error {
		for i := range records {
			var err error
			if found[i], err = litePut(ctx, q, &records[i], now); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}

func litePut(ctx context.Context, q runner, rec *receive.Record, now int64) (receive.Found, error) {
	hash := rec.Key.Hash()
	r, found, err := find(ctx, q, hash)
	if err != nil {
		return receive.Found{}, err
	}
	args := append([]any{hash[:]}, recordArgs(rec)...)
	args = append(args, rec.Digest[:], now)
	switch {
	case !found:
		_, err = q.ExecContext(ctx, `
			INSERT INTO waybill_receive_event
				(key, topic, header, body, of, id_signed, sent_at, digest, received_at, due, source, account, id, place, id_digest, state)
			VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?9, ?10, ?11, ?12, ?13, ?14, 0)`,
			append(args, columns.Key(&rec.Key)...)...)
	case r.forgotten(now), r.state < receive.Done && !r.kept:
		// Forgotten, or only claimed so far: then whoever has it keeps it, and the record is there
		// for the next.
		_, err = q.ExecContext(ctx, `
			UPDATE waybill_receive_event
			SET topic = ?2, header = ?3, body = ?4, of = ?5, id_signed = ?6, sent_at = ?7,
				digest = CASE WHEN state = 2 THEN ?8 ELSE digest END, received_at = ?9,
				due = CASE WHEN state = 1 THEN due ELSE ?9 END, state = CASE WHEN state = 2 THEN 0 ELSE state END,
				crashes = 0, expires_at = NULL, ended_at = NULL
			WHERE key = ?1`, args...)
	default:
		f := r.answer(rec, now)
		if f.OtherBody {
			_, err = q.ExecContext(ctx, `
				INSERT INTO waybill_receive_other_body (key, digest, header, body, received_at)
				VALUES (?, ?, ?, ?, ?)
				ON CONFLICT (key, digest) DO NOTHING`,
				hash[:], rec.Digest[:], args[2], args[3], now)
		}
		return f, err
	}
	return receive.Found{State: receive.Free, New: true}, err
}

// Take implements receive.InboxStore.
func (l lite) Take(ctx context.Context, source string, n int, lease time.Duration) ([]receive.Taken, error) {
	var due bool // most looks find nothing, and need no lock for that
	if err := l.db.QueryRowContext(ctx, `
		SELECT EXISTS (
			SELECT 1
			FROM waybill_receive_event
			WHERE source = ? AND state < 2 AND body IS NOT NULL AND due <= ?
		)`, source, time.Now().UnixMicro()).Scan(&due); err != nil || !due {
		return nil, err
	}
	var list []receive.Taken
	err := l.write(ctx, func(q runner, now int64) error {
		list = nil
		rows, err := q.QueryContext(ctx, `
			SELECT state, fence, run, crashes, `+recordColumns+`
			FROM waybill_receive_event
			WHERE source = ? AND state < 2 AND body IS NOT NULL AND due <= ?
			ORDER BY due
			LIMIT ?`, source, now, n)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var state receive.State
			var r recordRow
			c := &receive.Claim{Token: receive.NewToken(), Granted: true}
			if err := rows.Scan(append([]any{&state, &c.Fence, &c.Run, &c.Crashes}, r.dest()...)...); err != nil {
				return err
			}
			rec, err := r.record(source)
			if err != nil {
				return err
			}
			if state == receive.Held {
				c.Crashes++
			}
			c.Key, c.Fence, c.Run = rec.Key, c.Fence+1, c.Run+1
			list = append(list, receive.Taken{Record: rec, Claim: c})
		}
		if err := errors.Join(rows.Err(), rows.Close()); err != nil {
			return err
		}
		for _, t := range list {
			hash := t.Claim.Key.Hash()
			if _, err := q.ExecContext(ctx, `
				UPDATE waybill_receive_event
				SET state = 1, token = ?, due = ?, fence = ?, run = ?, crashes = ?
				WHERE key = ?`,
				t.Claim.Token[:], now+lease.Microseconds(), t.Claim.Fence, t.Claim.Run, t.Claim.Crashes, hash[:]); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return list, nil
}

// Extend implements receive.InboxStore.
func (l lite) Extend(ctx context.Context, c *receive.Claim, lease time.Duration) error {
	hash := c.Key.Hash()
	return l.write(ctx, func(q runner, now int64) error {
		return changed(q.ExecContext(ctx, `
			UPDATE waybill_receive_event
			SET due = max(due, ?)
			WHERE key = ? AND state = 1 AND token = ?`,
			now+lease.Microseconds(), hash[:], c.Token[:]))(receive.ErrLeaseLost)
	})
}

// changed turns a statement that changed nothing into an error.
func changed(result sql.Result, err error) func(otherwise error) error {
	return func(otherwise error) error {
		if err != nil {
			return err
		}
		if n, err := result.RowsAffected(); err != nil || n > 0 {
			return err
		}
		return otherwise
	}
}

// Bury implements receive.DeadLetterStore.
func (l lite) Bury(ctx context.Context, rec *receive.Record, reason string) error {
	hash := rec.Key.Hash()
	args := append([]any{hash[:]}, recordArgs(rec)...)
	args = append(args, rec.Digest[:])
	return l.write(ctx, func(q runner, now int64) error {
		_, err := q.ExecContext(ctx, `
			INSERT INTO waybill_receive_event AS e
				(key, topic, header, body, of, id_signed, sent_at, digest, received_at, due, ended_at, reason,
				source, account, id, place, id_digest, state)
			VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?9, ?9, ?10, ?11, ?12, ?13, ?14, ?15, 3)
			ON CONFLICT (key) DO UPDATE
			SET state = 3, topic = excluded.topic, header = excluded.header, body = excluded.body, of = excluded.of,
				id_signed = excluded.id_signed, sent_at = excluded.sent_at, ended_at = excluded.ended_at, reason = excluded.reason
			WHERE e.state < 2`,
			append(append(args, now, columns.Printable(reason)), columns.Key(&rec.Key)...)...)
		return err
	})
}

// Letters implements receive.DeadLetterStore.
func (l lite) Letters(ctx context.Context, source string) iter.Seq2[receive.DeadLetter, error] {
	const page = 100
	return func(yield func(receive.DeadLetter, error) bool) {
		at, key := int64(-1<<62), []byte{}
		for {
			letters, err := l.letters(ctx, source, &at, &key, page)
			if err != nil {
				yield(receive.DeadLetter{}, err)
				return
			}
			for _, letter := range letters {
				if !yield(letter, nil) {
					return
				}
			}
			if len(letters) < page {
				return
			}
		}
	}
}

// letters reads a page after a position, which it moves on.
func (l lite) letters(ctx context.Context, source string, at *int64, key *[]byte, page int) ([]receive.DeadLetter, error) {
	rows, err := l.db.QueryContext(ctx, `
		SELECT key, ended_at, coalesce(reason, ''), run, `+recordColumns+`
		FROM waybill_receive_event
		WHERE source = ? AND state = 3 AND (ended_at, key) > (?, ?)
		ORDER BY ended_at, key
		LIMIT ?`, source, *at, *key, page)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var letters []receive.DeadLetter
	for rows.Next() {
		var letter receive.DeadLetter
		var r recordRow
		if err := rows.Scan(append([]any{key, at, &letter.Reason, &letter.Runs}, r.dest()...)...); err != nil {
			return nil, err
		}
		letter.At = fromMicros(*at)
		if letter.Record, err = r.record(source); err != nil {
			return nil, err
		}
		letters = append(letters, letter)
	}
	return letters, errors.Join(rows.Err(), rows.Close())
}

// Revive implements receive.DeadLetterStore.
func (l lite) Revive(ctx context.Context, key receive.Key) error {
	hash := key.Hash()
	return l.write(ctx, func(q runner, now int64) error {
		return changed(q.ExecContext(ctx, `
			UPDATE waybill_receive_event
			SET state = 0, token = NULL, crashes = 0, due = ?, expires_at = NULL, ended_at = NULL
			WHERE key = ? AND state >= 2`, now, hash[:]))(receive.ErrNotFound)
	})
}

// Prune implements receive.Pruner.
func (l lite) Prune(ctx context.Context) (int, error) {
	var n int64
	err := l.write(ctx, func(q runner, now int64) error {
		const over = `
			SELECT key
			FROM waybill_receive_event
			WHERE state = 2 AND expires_at <= ?
			ORDER BY expires_at, key
			LIMIT 1000`
		if _, err := q.ExecContext(ctx, `
			DELETE FROM waybill_receive_other_body
			WHERE key IN (`+over+`)`, now); err != nil {
			return err
		}
		result, err := q.ExecContext(ctx, `
			DELETE FROM waybill_receive_event
			WHERE key IN (`+over+`)`, now)
		if err != nil {
			return err
		}
		if n, err = result.RowsAffected(); err != nil {
			return err
		}
		result, err = q.ExecContext(ctx, `
			DELETE FROM waybill_receive_event
			WHERE key IN (
				SELECT key
				FROM waybill_receive_event
				WHERE state < 2 AND body IS NULL AND due <= ?
				ORDER BY due
				LIMIT 1000)`, now-receive.ClaimMemory.Microseconds())
		if err != nil {
			return err
		}
		claims, err := result.RowsAffected()
		n += claims
		return err
	})
	return int(n), err
}

// recordArgs are topic, header, body, of, id_signed, sent_at.
func recordArgs(r *receive.Record) []any {
	var sentAt any
	if !r.SentAt.IsZero() {
		sentAt = r.SentAt.UnixMicro()
	}
	return append(columns.Record(r), sentAt)
}

const recordColumns = columns.Stored + `, sent_at, received_at`

// recordRow reads recordColumns.
type recordRow struct {
	columns.Row
	sentAt     sql.NullInt64
	receivedAt int64
}

func (r *recordRow) dest() []any { return append(r.Dest(), &r.sentAt, &r.receivedAt) }

func (r *recordRow) record(source string) (receive.Record, error) {
	out, err := r.Record(source)
	out.ReceivedAt = fromMicros(r.receivedAt)
	if r.sentAt.Valid {
		out.SentAt = fromMicros(r.sentAt.Int64)
	}
	return out, err
}

func micros(n int64) time.Duration { return time.Duration(n) * time.Microsecond }

func fromMicros(us int64) time.Time { return time.UnixMicro(us).UTC() }
