package sqlite

import (
	"context"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// Finish records results. Each is a fact: its attempt is kept even where the delivery it belongs
// to has ended otherwise meanwhile.
func (s *Store) Finish(ctx context.Context, results []outbox.Result) (finished outbox.Finished, err error) {
	if len(results) == 0 {
		return finished, nil
	}
	err = s.write(ctx, func(w *session) error {
		var books books
		var keys keySet
		var now time.Time
		for i := range results {
			if err := finishOne(w, &results[i], &books, &keys); err != nil {
				return err
			}
			if results[i].At.After(now) {
				now = results[i].At
			}
		}
		var err error
		if finished.Freed, err = keys.giveTurns(w, now); err != nil {
			return err
		}
		return books.write(w)
	})
	if err != nil {
		return outbox.Finished{}, err
	}
	return finished, nil
}

// finishOne records a result, and notes the key of a strict delivery that ended.
func finishOne(w *session, result *outbox.Result, books *books, keys *keySet) error {
	d := &result.Delivery
	tried := 0
	if result.Attempt != nil {
		tried = 1
	}
	ended := false
	switch {
	case result.Delivered:
		n, err := w.exec(`
			DELETE FROM waybill_delivery
			WHERE dlv = ? AND round = ? AND turn_at IS NULL`,
			d.ID[:], int64(d.Round))
		if err == nil && n == 0 {
			// It may be strict, and may have become so since it was fetched.
			n, err = w.exec(`
				DELETE FROM waybill_delivery
				WHERE dlv = ? AND round = ?`,
				d.ID[:], int64(d.Round))
			keys.add(keyOf(d))
		}
		if err != nil {
			return err
		}
		ended = n == 1
		books.on(d.Shard, result.At).delivered += n
	case result.Dead != "":
		letter := letter{reason: result.Dead, kind: result.DeadKind, message: result.DeadMessage, tried: tried, at: result.At}
		if a := result.Attempt; a != nil {
			letter.kind, letter.message, letter.status = a.Kind, a.Message, a.StatusCode
		}
		var strict bool
		var err error
		if ended, strict, err = bury(w, d, letter); err != nil {
			return err
		}
		if strict {
			keys.add(keyOf(d))
		}
		if ended {
			books.on(d.Shard, result.At).ended(result.Dead)
		}
	default:
		if _, err := w.exec(`
			UPDATE waybill_delivery
			SET attempt = attempt + ?, next_at = CASE next_at WHEN `+parkedAt+` THEN next_at ELSE ? END
			WHERE dlv = ? AND round = ? AND attempt = ?`,
			tried, micros(result.RetryAt), d.ID[:], int64(d.Round), int64(d.Attempt)); err != nil {
			return err
		}
	}
	if result.Suspect {
		if err := clearSuspect(w, &outbox.Suspect{Shard: d.Shard, Delivery: d.ID}); err != nil {
			return err
		}
	}
	if result.Attempt == nil {
		return nil
	}
	return insertAttempt(w, d, result.Attempt, ended, result.At)
}

// insertAttempt keeps an attempt, unless it is kept already.
func insertAttempt(w *session, d *outbox.Delivery, a *outbox.Attempt, final bool, finished time.Time) error {
	_, err := w.exec(`
		INSERT INTO waybill_attempt
			(id, shard, dlv, tenant, endpoint, event, event_type, sequence, round, n, trigger, outcome, final, finished_at,
			at, duration, dns, connect, tls, first_byte, url, kind, message, status_code,
			request_headers, request_bytes, response_headers, response_body, truncated, opened)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (id) DO NOTHING`,
		a.ID[:], int64(d.Shard), d.ID[:], int64(d.Tenant), d.Endpoint[:], d.Event[:], d.EventType, d.Sequence, int64(d.Round), int64(d.Attempt+1),
		string(a.Trigger), string(a.Outcome), final, micros(finished),
		micros(a.At), a.Duration.Microseconds(), a.Timing.DNS.Microseconds(), a.Timing.Connect.Microseconds(), a.Timing.TLS.Microseconds(),
		a.Timing.FirstByte.Microseconds(), a.URL, string(a.Kind), a.Message, int64(a.StatusCode),
		packHeaders(a.RequestHeaders), int64(a.RequestBytes), packHeaders(a.ResponseHeaders), a.ResponseBody, a.Truncated, a.Opened)
	return err
}

// letter says how a delivery ended undelivered.
type letter struct {
	reason  outbox.DeadReason
	kind    outbox.Kind
	message string
	status  int // of the last answer
	tried   int // 1 if an attempt ended it
	at      time.Time
}

// bury moves a delivery to the dead letters if it still is as d says. strict tells that its turn
// has to be given to the next of its key, which it may hold.
func bury(w *session, d *outbox.Delivery, l letter) (buried, strict bool, err error) {
	n, err := w.exec(`
		INSERT INTO waybill_dead_letter
			(dlv, shard, tenant, endpoint, event, event_type, sequence, ordering_key, round, attempt, round_start, lane, sendable_at, planned_at,
			state, reason, kind, message, status_code, at, holds)
		SELECT dlv, shard, tenant, endpoint, event, event_type, sequence, ordering_key, round, attempt + ?, round_start, min(lane, 1), sendable_at, planned_at,
			?, ?, ?, ?, ?, ?,
			turn_at IS NOT NULL AND ? <> 'cancelled' AND EXISTS (
				SELECT 1 FROM waybill_endpoint_order AS o WHERE o.endpoint = waybill_delivery.endpoint AND o.hold = 1)
		FROM waybill_delivery
		WHERE dlv = ? AND round = ? AND attempt = ?`,
		l.tried, string(l.reason.State()), string(l.reason), string(l.kind), l.message, l.status, micros(l.at),
		string(l.reason), d.ID[:], int64(d.Round), int64(d.Attempt))
	if err != nil || n == 0 {
		return false, false, err
	}
	n, err = w.exec("DELETE FROM waybill_delivery WHERE dlv = ? AND turn_at IS NULL", d.ID[:])
	if err != nil || n == 1 {
		return true, false, err
	}
	_, err = w.exec("DELETE FROM waybill_delivery WHERE dlv = ?", d.ID[:])
	return true, true, err
}
