package sqlite

import (
	"context"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// FetchDue returns the next pending rows of endpoints. Lengths are known without reading the
// payloads, so none is read that does not fit.
func (s *Store) FetchDue(ctx context.Context, requests []outbox.FetchRequest, now time.Time, maxBytes int64) ([]outbox.Fetched, error) {
	answers := make([]outbox.Fetched, len(requests))
	err := s.read(ctx, func(r *session) error {
		left := maxBytes
		sizes := make([][]int64, len(requests))
		for i := range requests {
			var err error
			if answers[i].Rows, sizes[i], err = fetchRows(r, &requests[i], now); err != nil {
				return err
			}
			if len(sizes[i]) > 0 {
				left -= sizes[i][0] // everybody's first row comes, so nobody starves
			}
		}
		for i := range answers {
			if err := fetchPayloads(r, &answers[i], sizes[i], now, &left); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return answers, nil
}

// erased tells what is left of an event v whose bytes were erased (outbox.Erased).
const erased = `(length(v.payload) = 0 AND v.sha256 <> X'e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855')`

// fetchRows reads the rows of a request, and how many bytes of payload each will bring.
func fetchRows(r *session, q *outbox.FetchRequest, now time.Time) (rows []outbox.Due, sizes []int64, err error) {
	after := int64(-1 << 62)
	if !q.AfterNextAt.IsZero() {
		after = micros(q.AfterNextAt)
	}
	err = r.each(`
		SELECT d.dlv, d.shard, d.tenant, d.endpoint, d.event, d.event_type, d.sequence, d.ordering_key,
			d.round, d.attempt, d.round_start, d.lane, d.next_at, d.sendable_at, d.turn_at,
			v.id IS NULL OR `+erased+`, v.created_at, v.metadata, CASE WHEN d.next_at <= ? THEN coalesce(length(v.payload), 0) ELSE 0 END
		FROM waybill_delivery d
		LEFT JOIN waybill_event v ON v.shard = d.shard AND v.tenant = d.tenant AND v.id = d.event
		WHERE d.shard = ? AND d.endpoint = ? AND d.lane = ? AND (d.next_at, d.dlv) > (?, ?) AND d.next_at < `+parkedAt+`
		ORDER BY d.next_at, d.dlv
		LIMIT ?`,
		[]any{micros(now), int64(q.Shard), q.Endpoint[:], int64(q.Lane), after, q.AfterID[:], q.Limit},
		func(scan scan) error {
			var due outbox.Due
			var size int64
			err := scan(append(deliveryTo(&due.Delivery), &due.Gone, timeTo{&due.EventCreatedAt}, jsonTo{&due.EventMetadata}, &size)...)
			rows = append(rows, due)
			sizes = append(sizes, size)
			return err
		})
	return rows, sizes, err
}

// fetchPayloads reads the payloads of the rows that are due, and cuts the answer off at the first
// that does not fit in what is left.
func fetchPayloads(r *session, answer *outbox.Fetched, sizes []int64, now time.Time, left *int64) error {
	for i := range answer.Rows {
		if i > 0 {
			if sizes[i] > max(*left, 0) {
				answer.Rows, answer.Cut = answer.Rows[:i], true
				return nil
			}
			*left -= sizes[i]
		}
		due := &answer.Rows[i]
		if due.Gone || due.NextAt.After(now) {
			continue
		}
		if err := r.get(`
			SELECT payload
			FROM waybill_event
			WHERE shard = ? AND tenant = ? AND id = ?`,
			[]any{int64(due.Shard), int64(due.Tenant), due.Event[:]}, &due.Payload); err != nil {
			return err
		}
	}
	return nil
}
