package postgres

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype/zeronull"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// Finish implements outbox.Dispatching, in one round trip. Rows are met in the order of their
// keys, so that two nodes finishing the same deliveries cannot each wait for the other.
//
// Results of strict deliveries give turns, which takes the locks of their shards first. A delivery
// that became strict since it was fetched is not known for one: its end undoes the transaction,
// and everything is written again as if it were strict.
func (s *Store) Finish(ctx context.Context, results []outbox.Result) (outbox.Finished, error) {
	if len(results) == 0 {
		return outbox.Finished{}, nil
	}
	var freed []outbox.Delivery
	err := plainly(func(passOver bool) (err error) {
		freed, err = s.finish(ctx, results, false, passOver)
		if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok && pgErr.Code == becameStrict {
			freed, err = s.finish(ctx, results, true, passOver)
		}
		return err
	})
	if err != nil {
		return outbox.Finished{}, err
	}
	return outbox.Finished{Freed: freed}, nil
}

// becameStrict is what waybill.became_strict raises.
const becameStrict = "WB001"

// finish writes results; all says that every delivery may be strict, passOver that attempts may be
// there already.
func (s *Store) finish(ctx context.Context, results []outbox.Result, all, passOver bool) (freed []outbox.Delivery, err error) {
	var tried, again []*outbox.Result
	var delivered, dead [2][]*outbox.Result // those side by side, the strict ones
	var keys keySet
	var now time.Time
	for i := range results {
		r := &results[i]
		if r.Attempt != nil {
			tried = append(tried, r)
		}
		part := 0
		if r.Final() && (all || r.Delivery.Strict()) {
			part = 1
			keys.add(keyOf(&r.Delivery))
			if r.At.After(now) {
				now = r.At
			}
		}
		switch {
		case r.Delivered:
			delivered[part] = append(delivered[part], r)
		case r.Dead != "":
			dead[part] = append(dead[part], r)
		default:
			again = append(again, r)
		}
	}
	for _, part := range [][]*outbox.Result{tried, delivered[0], delivered[1], again, dead[0], dead[1]} {
		slices.SortStableFunc(part, func(a, b *outbox.Result) int {
			return cmp.Or(
				cmp.Compare(a.Delivery.Shard, b.Delivery.Shard),
				bytes.Compare(a.Delivery.ID[:], b.Delivery.ID[:]))
		})
	}
	err = s.transact(ctx, hot, func(b *pgx.Batch) error {
		if len(keys) > 0 {
			queueLock(b, keys)
		}
		if len(tried) > 0 {
			queueAttempts(b, tried, passOver)
		}
		for part := range delivered {
			if len(delivered[part]) > 0 {
				queueDelivered(b, delivered[part], part == 1)
			}
		}
		if len(again) > 0 {
			queueAgain(b, again)
		}
		for part := range dead {
			if len(dead[part]) > 0 {
				queueDead(b, dead[part], part == 1)
			}
		}
		queueTurns(b, keys, now, &freed)
		queueSurvived(b, results)
		return nil
	})
	return freed, err
}

// ofResult finds the delivery d of a result r through an index, whatever the statistics say. A
// plain equality on the shard would let the planner walk the whole index in order, for a merge it
// then does not make, as soon as it believes the table to be empty; the tenant makes either of
// the indexes that begin with the shard as good as the other.
const ofResult = `d.shard = ANY (ARRAY[r.shard]) AND d.tenant = r.tenant AND d.dlv = r.dlv`

// Columns of results.
func tenantOf(r **outbox.Result) int64           { return int64((*r).Delivery.Tenant) }
func shardOf(r **outbox.Result) int16            { return int16((*r).Delivery.Shard) }
func deliveryOf(r **outbox.Result) zeronull.UUID { return uuid((*r).Delivery.ID) }
func roundOf(r **outbox.Result) int32            { return int32((*r).Delivery.Round) }
func attemptOf(r **outbox.Result) int32          { return int32((*r).Delivery.Attempt) }

// attemptsAfter counts the attempt of the result, if it had one.
func attemptsAfter(r **outbox.Result) int32 {
	if (*r).Attempt == nil {
		return attemptOf(r)
	}
	return attemptOf(r) + 1
}

func queueAttempts(b *pgx.Batch, results []*outbox.Result, passOver bool) {
	b.Queue(`
		INSERT INTO waybill.attempt
			(shard, dlv, n, id, tenant, endpoint, event, event_type, sequence, ordering_key, round,
			trigger, outcome, final, at, ended_at, duration, dns, connect, tls, first_byte,
			url, kind, message, status_code, request_bytes,
			request_headers, response_headers, response_body, truncated, opened)
		SELECT shard, dlv, n, id, tenant, endpoint, event, event_type, sequence, ordering_key, round,
			trigger, outcome, final, at, ended_at, duration, dns, connect, tls, first_byte,
			url, kind, message, status_code, request_bytes,
			request_headers, response_headers, response_body, truncated, opened
		FROM unnest($1::smallint[], $2::uuid[], $3::int[], $4::uuid[], $5::bigint[], $6::uuid[], $7::uuid[],
			$8::text[], $9::bigint[], $10::text[], $11::int[],
			$12::text[], $13::text[], $14::boolean[], $15::timestamptz[], $16::bigint[], $17::bigint[], $18::bigint[],
			$19::bigint[], $20::bigint[],
			$21::text[], $22::text[], $23::text[], $24::smallint[], $25::int[],
			$26::text[], $27::text[], $28::bytea[], $29::boolean[], $30::timestamptz[], $31::boolean[])
			AS new (shard, dlv, n, id, tenant, endpoint, event, event_type, sequence, ordering_key, round,
			trigger, outcome, final, at, duration, dns, connect, tls, first_byte,
			url, kind, message, status_code, request_bytes,
			request_headers, response_headers, response_body, truncated, ended_at, opened)
		`+passing(passOver, ""),
		column(results, shardOf),
		column(results, deliveryOf),
		column(results, attemptsAfter),
		column(results, func(r **outbox.Result) zeronull.UUID { return uuid((*r).Attempt.ID) }),
		column(results, func(r **outbox.Result) int64 { return int64((*r).Delivery.Tenant) }),
		column(results, func(r **outbox.Result) zeronull.UUID { return uuid((*r).Delivery.Endpoint) }),
		column(results, func(r **outbox.Result) zeronull.UUID { return uuid((*r).Delivery.Event) }),
		column(results, func(r **outbox.Result) string { return (*r).Delivery.EventType }),
		column(results, func(r **outbox.Result) int64 { return (*r).Delivery.Sequence }),
		column(results, func(r **outbox.Result) zeronull.Text { return zeronull.Text((*r).Delivery.OrderingKey) }),
		column(results, roundOf),
		column(results, func(r **outbox.Result) string { return string((*r).Attempt.Trigger) }),
		column(results, func(r **outbox.Result) string { return string((*r).Attempt.Outcome) }),
		column(results, func(r **outbox.Result) bool { return (*r).Final() }),
		column(results, func(r **outbox.Result) time.Time { return (*r).Attempt.At }),
		column(results, func(r **outbox.Result) int64 { return int64((*r).Attempt.Duration) }),
		column(results, func(r **outbox.Result) zeronull.Int8 { return zeronull.Int8((*r).Attempt.Timing.DNS) }),
		column(results, func(r **outbox.Result) zeronull.Int8 { return zeronull.Int8((*r).Attempt.Timing.Connect) }),
		column(results, func(r **outbox.Result) zeronull.Int8 { return zeronull.Int8((*r).Attempt.Timing.TLS) }),
		column(results, func(r **outbox.Result) zeronull.Int8 { return zeronull.Int8((*r).Attempt.Timing.FirstByte) }),
		column(results, func(r **outbox.Result) string { return storable((*r).Attempt.URL) }),
		column(results, func(r **outbox.Result) zeronull.Text { return zeronull.Text((*r).Attempt.Kind) }),
		column(results, func(r **outbox.Result) zeronull.Text { return zeronull.Text(storable((*r).Attempt.Message)) }),
		column(results, func(r **outbox.Result) zeronull.Int2 { return zeronull.Int2((*r).Attempt.StatusCode) }),
		column(results, func(r **outbox.Result) int32 { return int32((*r).Attempt.RequestBytes) }),
		column(results, func(r **outbox.Result) zeronull.Text { return headerText((*r).Attempt.RequestHeaders) }),
		column(results, func(r **outbox.Result) zeronull.Text { return headerText((*r).Attempt.ResponseHeaders) }),
		column(results, func(r **outbox.Result) []byte { return (*r).Attempt.ResponseBody }),
		column(results, func(r **outbox.Result) bool { return (*r).Attempt.Truncated }),
		column(results, func(r **outbox.Result) zeronull.Timestamptz {
			if !(*r).Final() {
				return zeronull.Timestamptz{}
			}
			return at((*r).At)
		}),
		column(results, func(r **outbox.Result) bool { return (*r).Attempt.Opened }))
}

// storable takes out of a text what a text column refuses. A receiver's bytes may have come into
// it, and a fact must not be refused because of them.
func storable(s string) string {
	if strings.IndexByte(s, 0) < 0 && utf8.ValidString(s) {
		return s
	}
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}

// queueDelivered ends deliveries of the same round, whatever their attempt number says: the
// receiver has it.
func queueDelivered(b *pgx.Batch, results []*outbox.Result, strict bool) {
	b.Queue(`
		WITH ended AS (
			DELETE FROM waybill.delivery AS d
			USING unnest($2::smallint[], $3::uuid[], $4::int[], $6::bigint[]) AS r (shard, dlv, round, tenant)
			WHERE `+ofResult+` AND d.round = r.round
			RETURNING d.shard, d.turn_at, d.job
		),
		told AS (
			INSERT INTO waybill.job_tally (shard, job, delivered)
			SELECT shard, job, count(*)
			FROM ended
			WHERE job IS NOT NULL
			GROUP BY shard, job
		)
		INSERT INTO waybill.ledger (shard, at, delivered)
		SELECT shard, $1, count(*)
		FROM ended
		GROUP BY shard
		HAVING CASE WHEN count(turn_at) > 0 AND NOT $5 THEN waybill.became_strict() ELSE true END`,
		results[0].At,
		column(results, shardOf), column(results, deliveryOf), column(results, roundOf), strict, column(results, tenantOf))
}

// queueAgain schedules the next try, unless another result has come first. One that was parked
// while it was under way, as its endpoint became strict, stays parked.
func queueAgain(b *pgx.Batch, results []*outbox.Result) {
	b.Queue(`
		UPDATE waybill.delivery AS d
		SET attempt = r.after, next_at = CASE WHEN d.next_at = `+parkedAt+` THEN d.next_at ELSE r.next_at END
		FROM unnest($1::smallint[], $2::uuid[], $3::int[], $4::int[], $5::int[], $6::timestamptz[], $7::bigint[])
			AS r (shard, dlv, round, attempt, after, next_at, tenant)
		WHERE `+ofResult+` AND d.round = r.round AND d.attempt = r.attempt`,
		column(results, shardOf), column(results, deliveryOf), column(results, roundOf), column(results, attemptOf),
		column(results, attemptsAfter),
		column(results, func(r **outbox.Result) time.Time { return (*r).RetryAt }),
		column(results, tenantOf))
}

// queueDead turns deliveries into dead letters, unless another result has come first.
func queueDead(b *pgx.Batch, results []*outbox.Result, strict bool) {
	last := func(of func(*outbox.Attempt) zeronull.Text) func(**outbox.Result) zeronull.Text {
		return func(r **outbox.Result) zeronull.Text {
			if (*r).Attempt == nil {
				return ""
			}
			return of((*r).Attempt)
		}
	}
	b.Queue(`
		WITH ended AS (
			DELETE FROM waybill.delivery AS d
			USING unnest($2::smallint[], $3::uuid[], $4::int[], $5::int[], $6::int[], $7::text[], $8::text[], $9::text[],
				$10::timestamptz[], $11::uuid[], $12::timestamptz[], $13::bigint[], $14::smallint[], $15::text[], $16::text[],
				$18::bigint[])
				AS r (shard, dlv, round, attempt, after, reason, kind, message,
				at, last_id, last_at, last_duration, last_status, last_kind, last_message, tenant)
			WHERE `+ofResult+` AND d.round = r.round AND d.attempt = r.attempt
			RETURNING d.shard, d.dlv, d.tenant, d.endpoint, d.event, d.event_type, d.sequence, d.ordering_key, d.round,
				d.turn_at, d.job, r.after, r.reason, r.kind, r.message, d.sendable_at,
				r.at, r.last_id, r.last_at, r.last_duration, r.last_status, r.last_kind, r.last_message
		),
		kept AS (
			INSERT INTO waybill.dead_letter
				(shard, dlv, tenant, endpoint, event, event_type, sequence, ordering_key, round,
				attempt, state, reason, kind, message, sendable_at,
				at, last_id, last_at, last_duration, last_status, last_kind, last_message, holds)
			SELECT shard, dlv, tenant, endpoint, event, event_type, sequence, ordering_key, round,
				after, CASE reason WHEN 'cancelled' THEN 'cancelled' ELSE 'dead' END, reason, kind, message, sendable_at,
				at, last_id, last_at, last_duration, last_status, last_kind, last_message,
				reason <> 'cancelled' AND `+holding+`
			FROM ended AS d
		),
		told AS (
			INSERT INTO waybill.job_tally (shard, job, failed, skipped)
			SELECT shard, job, count(*) FILTER (WHERE reason <> 'cancelled'), count(*) FILTER (WHERE reason = 'cancelled')
			FROM ended
			WHERE job IS NOT NULL
			GROUP BY shard, job
		)
		INSERT INTO waybill.ledger (shard, at, dead, cancelled)
		SELECT shard, $1, count(*) FILTER (WHERE reason <> 'cancelled'), count(*) FILTER (WHERE reason = 'cancelled')
		FROM ended
		GROUP BY shard
		HAVING CASE WHEN count(turn_at) > 0 AND NOT $17 THEN waybill.became_strict() ELSE true END`,
		results[0].At,
		column(results, shardOf), column(results, deliveryOf), column(results, roundOf), column(results, attemptOf),
		column(results, attemptsAfter),
		column(results, func(r **outbox.Result) string { return string((*r).Dead) }),
		column(results, func(r **outbox.Result) zeronull.Text {
			if (*r).DeadKind == "" && (*r).Attempt != nil {
				return zeronull.Text((*r).Attempt.Kind)
			}
			return zeronull.Text((*r).DeadKind)
		}),
		column(results, func(r **outbox.Result) zeronull.Text {
			if (*r).DeadMessage == "" && (*r).Attempt != nil {
				return zeronull.Text(storable((*r).Attempt.Message))
			}
			return zeronull.Text(storable((*r).DeadMessage))
		}),
		column(results, func(r **outbox.Result) time.Time { return (*r).At }),
		column(results, func(r **outbox.Result) zeronull.UUID {
			if (*r).Attempt == nil {
				return zeronull.UUID{}
			}
			return uuid((*r).Attempt.ID)
		}),
		column(results, func(r **outbox.Result) zeronull.Timestamptz {
			if (*r).Attempt == nil {
				return zeronull.Timestamptz{}
			}
			return at((*r).Attempt.At)
		}),
		column(results, func(r **outbox.Result) zeronull.Int8 {
			if (*r).Attempt == nil {
				return 0
			}
			return zeronull.Int8((*r).Attempt.Duration)
		}),
		column(results, func(r **outbox.Result) zeronull.Int2 {
			if (*r).Attempt == nil {
				return 0
			}
			return zeronull.Int2((*r).Attempt.StatusCode)
		}),
		column(results, last(func(a *outbox.Attempt) zeronull.Text { return zeronull.Text(a.Kind) })),
		column(results, last(func(a *outbox.Attempt) zeronull.Text { return zeronull.Text(storable(a.Message)) })),
		strict, column(results, tenantOf))
}
