package postgres

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype/zeronull"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// FetchDue implements outbox.Dispatching: one statement for the rows of all requests, one for
// the payloads of those that are due. Only after the first is known which days the second needs.
func (s *Store) FetchDue(ctx context.Context, requests []outbox.FetchRequest, now time.Time, maxBytes int64) ([]outbox.Fetched, error) {
	fetched := make([]outbox.Fetched, len(requests))
	var due []dueRow
	look := hot
	look.snapshot = true
	err := s.transact(ctx, look,
		func(b *pgx.Batch) error {
			queueFetch(b, requests, fetched)
			return nil
		},
		func(b *pgx.Batch) error {
			for r := range fetched {
				for i := range fetched[r].Rows {
					if d := &fetched[r].Rows[i]; !d.NextAt.After(now) {
						d.Gone = true // until its bytes are found
						due = append(due, dueRow{d, i == 0})
					}
				}
			}
			queuePayloads(b, due, maxBytes)
			return nil
		},
	)
	if err != nil {
		return nil, err
	}
	for r := range fetched {
		for i := range fetched[r].Rows {
			d := &fetched[r].Rows[i]
			if !d.NextAt.After(now) && !d.Gone && d.Payload == nil {
				fetched[r].Rows, fetched[r].Cut = fetched[r].Rows[:i], true
				break
			}
		}
	}
	return fetched, nil
}

func queueFetch(b *pgx.Batch, requests []outbox.FetchRequest, fetched []outbox.Fetched) {
	b.Queue(`
		SELECT r.n, `+deliveryColumns+`
		FROM unnest($1::smallint[], $2::uuid[], $3::smallint[], $4::timestamptz[], $5::uuid[], $6::int[])
			WITH ORDINALITY AS r (shard, endpoint, lane, next_at, dlv, rows, n)
		CROSS JOIN LATERAL (
			SELECT *
			FROM waybill.delivery AS d
			WHERE d.shard = r.shard AND d.endpoint = r.endpoint AND d.lane = r.lane
				AND (d.next_at, d.dlv) > (r.next_at, r.dlv) AND d.next_at < `+parkedAt+`
			ORDER BY d.next_at, d.dlv
			LIMIT r.rows
		) AS d
		ORDER BY r.n, d.next_at, d.dlv`,
		column(requests, func(r *outbox.FetchRequest) int16 { return int16(r.Shard) }),
		column(requests, func(r *outbox.FetchRequest) zeronull.UUID { return uuid(r.Endpoint) }),
		column(requests, func(r *outbox.FetchRequest) int16 { return int16(r.Lane) }),
		column(requests, func(r *outbox.FetchRequest) time.Time { return r.AfterNextAt }), // the zero time is long ago
		column(requests, func(r *outbox.FetchRequest) [16]byte { return r.AfterID }),      // not NULL where zero
		column(requests, func(r *outbox.FetchRequest) int32 { return int32(r.Limit) }),
	).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			var n int
			var d outbox.Due
			if err := rows.Scan(append([]any{&n}, intoDelivery(&d.Delivery)...)...); err != nil {
				return err
			}
			fetched[n-1].Rows = append(fetched[n-1].Rows, d)
		}
		return rows.Err()
	})
}

// dueRow is a row that wants its payload; the first of a request gets it whatever its size.
type dueRow struct {
	*outbox.Due
	first bool
}

func queuePayloads(b *pgx.Batch, due []dueRow, maxBytes int64) {
	if len(due) == 0 {
		return
	}
	var r idRange
	for _, d := range due {
		r.add(d.Event)
	}
	b.Queue(`SELECT set_config('plan_cache_mode', $1, true)`, string(planEach))
	b.Queue(`
		SELECT n, created_at, metadata, sha256, CASE WHEN first OR total <= $4 THEN payload END
		FROM (
			SELECT w.n, w.first, e.created_at, e.metadata, e.sha256, e.payload,
				sum(octet_length(e.payload)) FILTER (WHERE w.first) OVER ()
					+ coalesce(sum(octet_length(e.payload)) FILTER (WHERE NOT w.first) OVER (ORDER BY w.n), 0) AS total
			FROM unnest($1::smallint[], $2::bigint[], $3::uuid[], $7::boolean[])
				WITH ORDINALITY AS w (shard, tenant, id, first, n)
			CROSS JOIN LATERAL (`+eventOfW+`) AS e
		) AS found`,
		column(due, func(d *dueRow) int16 { return int16(d.Shard) }),
		column(due, func(d *dueRow) int64 { return int64(d.Tenant) }),
		column(due, func(d *dueRow) zeronull.UUID { return uuid(d.Event) }),
		maxBytes, uuid(r.low), uuid(r.high),
		column(due, func(d *dueRow) bool { return d.first }),
	).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			var n int
			var createdAt time.Time
			var metadata, sum, payload []byte
			if err := rows.Scan(&n, &createdAt, &metadata, &sum, &payload); err != nil {
				return err
			}
			d := due[n-1]
			if metadata != nil {
				if err := json.Unmarshal(metadata, &d.EventMetadata); err != nil {
					return err
				}
			}
			d.Gone, d.EventCreatedAt, d.Payload = false, createdAt, payload
			if payload != nil && len(sum) == sha256.Size && outbox.Erased(len(payload), [sha256.Size]byte(sum)) {
				d.Gone, d.Payload = true, nil
			}
		}
		return rows.Err()
	})
}
