package pgsql

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/waybill-dev/waybill/receive"
	"github.com/waybill-dev/waybill/receive/internal/columns"
)

// Put implements receive.InboxStore. A single record is one statement, which commits by itself;
// several are one transaction, in the order of their keys, so that two of them never wait for each
// other in a circle.
func (s Events) Put(ctx context.Context, records []receive.Record) ([]receive.Found, error) {
	if len(records) == 1 {
		f, err := put(ctx, s.DB, &records[0])
		return []receive.Found{f}, err
	}
	type place struct {
		n    int
		hash [32]byte
	}
	order := make([]place, len(records))
	for i := range records {
		order[i] = place{i, records[i].Key.Hash()}
	}
	slices.SortFunc(order, func(a, b place) int { return cmp.Or(bytes.Compare(a.hash[:], b.hash[:]), cmp.Compare(a.n, b.n)) })
	found := make([]receive.Found, len(records))
	err := s.DB.Tx(ctx, func(q Querier) (err error) {
		for _, p := range order {
			if found[p.n], err = put(ctx, q, &records[p.n]); err != nil {
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

// put stores one record, or finds what is stored. It waits for nobody but a Put of the same key at
// the same moment, whose commit it has to see.
func put(ctx context.Context, q Querier, r *receive.Record) (receive.Found, error) {
	args := append(hashOf(r), recordArgs(r)...)
	args = append(append(args, r.Digest[:]), columns.Key(&r.Key)...)
	for {
		var made bool
		found, err := one(ctx, q, `
			INSERT INTO waybill_receive.event
				(key, topic, header, body, of, id_signed, sent_at, digest, source, account, id, place, id_digest, state, due, received_at)
			VALUES ($1::bytea, $2::text, $3::text, $4::bytea, $5::integer, $6::boolean, $7::timestamptz, $8::bytea,
				$9::text, $10::bytea, $11::bytea, $12::integer, $13::bytea, 0, clock_timestamp(), clock_timestamp())
			ON CONFLICT (key) DO NOTHING
			RETURNING true`, args, &made)
		if err != nil {
			return receive.Found{}, err
		}
		if found {
			return receive.Found{State: receive.Free, New: true}, nil
		}
		f, stale, found, err := stored(ctx, q, r)
		if err != nil {
			return receive.Found{}, err
		}
		if !found {
			continue // pruned since
		}
		if !stale {
			if f.OtherBody {
				err = keepOther(ctx, q, r)
			}
			return f, err
		}
		// Forgotten, or only claimed so far. Whoever gets there first writes the record in.
		found, err = one(ctx, q, `
			UPDATE waybill_receive.event
			SET topic = $2::text, header = $3::text, body = $4::bytea, of = $5::integer, id_signed = $6::boolean, sent_at = $7::timestamptz,
				digest = CASE WHEN state = 2 THEN $8::bytea ELSE digest END,
				state = CASE WHEN state = 2 THEN 0 ELSE state END,
				crashes = 0, due = CASE WHEN state = 1 THEN due ELSE clock_timestamp() END,
				received_at = clock_timestamp(), expires_at = NULL, ended_at = NULL
			WHERE key = $1::bytea AND (state = 2 AND expires_at <= clock_timestamp() OR state < 2 AND body IS NULL)
			RETURNING true`, args[:8], &made)
		if err != nil {
			return receive.Found{}, err
		}
		if found {
			return receive.Found{State: receive.Free, New: true}, nil
		}
	}
}

// stored reads what is committed under r's key. stale: it is forgotten, or has no record yet.
func stored(ctx context.Context, q Querier, r *receive.Record) (f receive.Found, stale, found bool, err error) {
	var state int
	var left, since int64
	var other, mute bool
	var reply columns.Answer
	found, err = one(ctx, q, `
		SELECT state, (extract(epoch FROM due - clock_timestamp()) * 1000000)::bigint,
			(extract(epoch FROM clock_timestamp() - received_at) * 1000000)::bigint,
			digest <> $2::bytea,
			state = 2 AND expires_at <= clock_timestamp() OR state < 2 AND body IS NULL,
			reply_status, reply_type, reply_body
		FROM waybill_receive.event
		WHERE key = $1::bytea`,
		append(hashOf(r), r.Digest[:]), append([]any{&state, &left, &since, &other, &mute}, reply.Dest()...)...)
	f = receive.Found{State: receive.State(state), Since: micros(since), OtherBody: other}
	if f.State == receive.Held {
		f.Left = max(micros(left), 0)
	}
	if f.State == receive.Done {
		f.Reply = reply.Reply()
	}
	return f, mute, found, err
}

// keepOther keeps another body that came under the key of an event.
func keepOther(ctx context.Context, q Querier, r *receive.Record) error {
	args := recordArgs(r)
	return each(ctx, q, `
		INSERT INTO waybill_receive.other_body (key, digest, header, body)
		VALUES ($1::bytea, $2::bytea, $3::text, $4::bytea)
		ON CONFLICT (key, digest) DO NOTHING`,
		append(hashOf(r), r.Digest[:], args[1], args[2]), nil)
}

// Take implements receive.InboxStore. The statement counts the run and makes the tokens.
func (s Events) Take(ctx context.Context, source string, n int, lease time.Duration) ([]receive.Taken, error) {
	type taken struct {
		receive.Taken
		due time.Time
	}
	var list []taken
	err := each(ctx, s.DB, `
		WITH next AS MATERIALIZED (
			SELECT key, due AS was_due
			FROM waybill_receive.event
			WHERE source = $1::text AND state < 2 AND body IS NOT NULL AND due <= (SELECT clock_timestamp())
			ORDER BY due
			LIMIT $2::integer
			FOR UPDATE SKIP LOCKED
		)
		UPDATE waybill_receive.event AS e
		SET state = 1, token = uuid_send(gen_random_uuid()), due = clock_timestamp() + $3::bigint * interval '1 microsecond',
			fence = fence + 1, run = run + 1, crashes = CASE state WHEN 1 THEN crashes + 1 ELSE crashes END
		FROM next
		WHERE e.key = next.key
		RETURNING next.was_due, e.token, e.fence, e.run, e.crashes, `+recordColumns,
		[]any{source, n, lease.Microseconds()}, func(scan func(...any) error) error {
			var t taken
			var token []byte
			var r recordRow
			c := &receive.Claim{Granted: true}
			if err := scan(append([]any{&t.due, &token, &c.Fence, &c.Run, &c.Crashes}, r.dest()...)...); err != nil {
				return err
			}
			var err error
			t.Record, err = r.record(source)
			copy(c.Token[:], token)
			c.Key = t.Record.Key
			t.Claim = c
			list = append(list, t)
			return err
		})
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(list, func(a, b taken) int { return a.due.Compare(b.due) })
	out := make([]receive.Taken, len(list))
	for i := range list {
		out[i] = list[i].Taken
	}
	return out, nil
}

// Bury implements receive.DeadLetterStore.
func (s Events) Bury(ctx context.Context, r *receive.Record, reason string) error {
	args := append(hashOf(r), recordArgs(r)...)
	args = append(append(args, r.Digest[:]), columns.Key(&r.Key)...)
	return each(ctx, s.DB, `
		INSERT INTO waybill_receive.event AS e
			(key, topic, header, body, of, id_signed, sent_at, digest, source, account, id, place, id_digest,
			state, due, received_at, ended_at, reason)
		VALUES ($1::bytea, $2::text, $3::text, $4::bytea, $5::integer, $6::boolean, $7::timestamptz, $8::bytea,
			$9::text, $10::bytea, $11::bytea, $12::integer, $13::bytea,
			3, clock_timestamp(), clock_timestamp(), clock_timestamp(), $14::text)
		ON CONFLICT (key) DO UPDATE
		SET state = 3, topic = excluded.topic, header = excluded.header, body = excluded.body, of = excluded.of,
			id_signed = excluded.id_signed, sent_at = excluded.sent_at, ended_at = excluded.ended_at, reason = excluded.reason
		WHERE e.state < 2`,
		append(args, columns.Printable(reason)), nil)
}
