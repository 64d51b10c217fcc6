package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/waybill-dev/waybill/internal/outbox"
)

const trafficColumns = `tenant, endpoint, at, published, unmatched, planned, delivered, failed, cancelled,
	succeeded, transient, permanent, answer, first, arrived`

// AddTraffic implements outbox.Figures.
func (s *Store) AddTraffic(ctx context.Context, rows []outbox.Traffic) error {
	if len(rows) == 0 {
		return nil
	}
	return s.transact(ctx, hot, func(b *pgx.Batch) error {
		queueTraffic(b, rows, outbox.TrafficFresh)
		return nil
	})
}

// queueTraffic appends rows. The shard is the tenant's; that of all tenants' figures is 0.
func queueTraffic(b *pgx.Batch, rows []outbox.Traffic, span outbox.TrafficSpan) {
	number := func(of func(*outbox.Traffic) int64) any { return column(rows, of) }
	packed := func(of func(*outbox.Traffic) outbox.Latencies) any {
		return column(rows, func(t *outbox.Traffic) []byte { return of(t).Pack() })
	}
	b.Queue(`
		INSERT INTO waybill.traffic (span, shard, `+trafficColumns+`)
		SELECT $16, coalesce(t.shard, 0), r.*
		FROM unnest(
			$1::bigint[], $2::uuid[], $3::timestamptz[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[], $8::bigint[],
			$9::bigint[], $10::bigint[], $11::bigint[], $12::bigint[], $13::bytea[], $14::bytea[], $15::bytea[]
		) AS r (`+trafficColumns+`)
		LEFT JOIN waybill.tenant AS t ON t.id = r.tenant`,
		number(func(t *outbox.Traffic) int64 { return int64(t.Tenant) }),
		column(rows, func(t *outbox.Traffic) [16]byte { return t.Endpoint }),
		column(rows, func(t *outbox.Traffic) time.Time { return t.At }),
		number(func(t *outbox.Traffic) int64 { return t.Published }),
		number(func(t *outbox.Traffic) int64 { return t.Unmatched }),
		number(func(t *outbox.Traffic) int64 { return t.Planned }),
		number(func(t *outbox.Traffic) int64 { return t.Delivered }),
		number(func(t *outbox.Traffic) int64 { return t.Failed }),
		number(func(t *outbox.Traffic) int64 { return t.Cancelled }),
		number(func(t *outbox.Traffic) int64 { return t.Succeeded }),
		number(func(t *outbox.Traffic) int64 { return t.Transient }),
		number(func(t *outbox.Traffic) int64 { return t.Permanent }),
		packed(func(t *outbox.Traffic) outbox.Latencies { return t.Answer }),
		packed(func(t *outbox.Traffic) outbox.Latencies { return t.First }),
		packed(func(t *outbox.Traffic) outbox.Latencies { return t.Arrived }),
		int16(span),
	)
}

// collectTraffic reads rows of trafficColumns.
func collectTraffic(into *[]outbox.Traffic) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		for rows.Next() {
			var t outbox.Traffic
			var answer, first, arrived []byte
			if err := rows.Scan(&t.Tenant, intoID(&t.Endpoint), &t.At, &t.Published, &t.Unmatched, &t.Planned, &t.Delivered, &t.Failed, &t.Cancelled,
				&t.Succeeded, &t.Transient, &t.Permanent, &answer, &first, &arrived); err != nil {
				return err
			}
			t.At = t.At.UTC()
			if err := errors.Join(t.Answer.Unpack(answer), t.First.Unpack(first), t.Arrived.Unpack(arrived)); err != nil {
				return err
			}
			*into = append(*into, t)
		}
		return rows.Err()
	}
}

// TrafficOf implements outbox.Figures.
func (s *Store) TrafficOf(ctx context.Context, q outbox.TrafficQuery) ([]outbox.Traffic, error) {
	var found []outbox.Traffic
	err := s.read(ctx, people, func(b *pgx.Batch) {
		found = nil
		b.Queue(`
			SELECT `+trafficColumns+`
			FROM waybill.traffic
			WHERE shard = $1 AND tenant = $2 AND endpoint = $3 AND at >= $4 AND at < $5
			ORDER BY at
			LIMIT $6`,
			int16(q.Tenant.Shard), int64(q.Tenant.ID), [16]byte(q.Endpoint), q.From, q.To, outbox.MaxTrafficRows,
		).Query(collectTraffic(&found))
	})
	return found, err
}

// FailingEndpoints implements outbox.Figures. Only rows with failures are read, the newest of
// them if there are very many.
func (s *Store) FailingEndpoints(ctx context.Context, since time.Time, limit int) ([]outbox.Traffic, error) {
	var found []outbox.Traffic
	err := s.read(ctx, people, func(b *pgx.Batch) {
		found = nil
		b.Queue(`
			SELECT tenant, endpoint, min(at), sum(delivered)::bigint, sum(failed)::bigint, sum(succeeded)::bigint, sum(transient)::bigint, sum(permanent)::bigint
			FROM (
				SELECT *
				FROM waybill.traffic
				WHERE at >= $1 AND endpoint <> '00000000-0000-0000-0000-000000000000' AND transient + permanent > 0
				ORDER BY at DESC
				LIMIT $3
			) AS failing
			GROUP BY tenant, endpoint
			ORDER BY sum(transient + permanent) DESC, endpoint
			LIMIT $2`,
			since, limit, outbox.MaxListScan,
		).Query(func(rows pgx.Rows) error {
			for rows.Next() {
				var t outbox.Traffic
				if err := rows.Scan(&t.Tenant, intoID(&t.Endpoint), &t.At, &t.Delivered, &t.Failed, &t.Succeeded, &t.Transient, &t.Permanent); err != nil {
					return err
				}
				found = append(found, t)
			}
			return rows.Err()
		})
	})
	return found, err
}

// foldTraffic adds up what is old enough to be looked at in coarser steps, and forgets what is
// older than everything else that is kept. Rows are added up here and not by the database, which
// cannot read their histograms.
func (s *Store) foldTraffic(ctx context.Context, now, cutoff time.Time) error {
	failed := []error{s.inBatches(ctx, "forget traffic", `
		WITH gone AS (
			DELETE FROM waybill.traffic
			WHERE ctid = ANY (ARRAY(
				SELECT ctid
				FROM waybill.traffic
				WHERE span = 2 AND at < $1
				LIMIT $2
			))
			RETURNING 1
		)
		SELECT count(*)
		FROM gone`, cutoff, pruneBatch)}
	for _, step := range []struct {
		from, to outbox.TrafficSpan
		before   time.Time
		unit     time.Duration
	}{
		{outbox.TrafficFresh, outbox.TrafficMinute, now.Add(-outbox.TrafficFreshFor), time.Minute},
		{outbox.TrafficMinute, outbox.TrafficHour, now.Add(-outbox.TrafficMinuteFor).Truncate(time.Hour), time.Hour},
	} {
		for range pruneBatches {
			var rows []outbox.Traffic
			err := s.transact(ctx, hot,
				func(b *pgx.Batch) error {
					b.Queue(`
						DELETE FROM waybill.traffic
						WHERE ctid = ANY (ARRAY(
							SELECT ctid
							FROM waybill.traffic
							WHERE span = $1 AND at < $2
							ORDER BY at
							LIMIT $3
							FOR UPDATE SKIP LOCKED
						))
						RETURNING `+trafficColumns,
						int16(step.from), step.before, outbox.TrafficFoldBatch,
					).Query(collectTraffic(&rows))
					return nil
				},
				func(b *pgx.Batch) error {
					queueTraffic(b, outbox.FoldTraffic(rows, step.unit), step.to)
					return nil
				})
			if err != nil {
				failed = append(failed, fmt.Errorf("fold traffic: %w", err))
				break
			}
			if len(rows) < outbox.TrafficFoldBatch {
				break
			}
		}
	}
	return errors.Join(failed...)
}
