package sqlite

import (
	"context"
	"errors"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

const trafficColumns = `tenant, endpoint, at, published, unmatched, planned, delivered, failed, cancelled,
	succeeded, transient, permanent, answer, first, arrived`

// AddTraffic implements outbox.Figures.
func (s *Store) AddTraffic(ctx context.Context, rows []outbox.Traffic) error {
	return s.write(ctx, func(w *session) error { return insertTraffic(w, rows, outbox.TrafficFresh) })
}

func insertTraffic(w *session, rows []outbox.Traffic, span outbox.TrafficSpan) error {
	for i := range rows {
		t := &rows[i]
		if _, err := w.exec(`
			INSERT INTO waybill_traffic (span, `+trafficColumns+`)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
			int64(span), int64(t.Tenant), t.Endpoint[:], micros(t.At), t.Published, t.Unmatched, t.Planned, t.Delivered, t.Failed, t.Cancelled,
			t.Succeeded, t.Transient, t.Permanent, t.Answer.Pack(), t.First.Pack(), t.Arrived.Pack()); err != nil {
			return err
		}
	}
	return nil
}

func scanTraffic(scan scan) (outbox.Traffic, error) {
	var t outbox.Traffic
	var answer, first, arrived []byte
	err := scan(&t.Tenant, idTo{(*[16]byte)(&t.Endpoint)}, timeTo{&t.At}, &t.Published, &t.Unmatched, &t.Planned, &t.Delivered, &t.Failed, &t.Cancelled,
		&t.Succeeded, &t.Transient, &t.Permanent, &answer, &first, &arrived)
	return t, errors.Join(err, t.Answer.Unpack(answer), t.First.Unpack(first), t.Arrived.Unpack(arrived))
}

// TrafficOf implements outbox.Figures.
func (s *Store) TrafficOf(ctx context.Context, q outbox.TrafficQuery) (found []outbox.Traffic, err error) {
	err = s.read(ctx, func(r *session) error {
		return r.each(`
			SELECT `+trafficColumns+`
			FROM waybill_traffic
			WHERE tenant = ? AND endpoint = ? AND at >= ? AND at < ?
			ORDER BY at
			LIMIT ?`,
			[]any{int64(q.Tenant.ID), q.Endpoint[:], micros(q.From), micros(q.To), outbox.MaxTrafficRows},
			func(scan scan) error {
				t, err := scanTraffic(scan)
				found = append(found, t)
				return err
			})
	})
	return found, err
}

// FailingEndpoints implements outbox.Figures. Only rows with failures are read, the newest of
// them if there are very many.
func (s *Store) FailingEndpoints(ctx context.Context, since time.Time, limit int) (found []outbox.Traffic, err error) {
	err = s.read(ctx, func(r *session) error {
		return r.each(`
			SELECT tenant, endpoint, min(at), sum(delivered), sum(failed), sum(succeeded), sum(transient), sum(permanent)
			FROM (
				SELECT *
				FROM waybill_traffic
				WHERE at >= ? AND endpoint <> x'00000000000000000000000000000000' AND transient + permanent > 0
				ORDER BY at DESC
				LIMIT ?
			)
			GROUP BY tenant, endpoint
			ORDER BY sum(transient + permanent) DESC, endpoint
			LIMIT ?`,
			[]any{micros(since), outbox.MaxListScan, limit},
			func(scan scan) error {
				var t outbox.Traffic
				err := scan(&t.Tenant, idTo{(*[16]byte)(&t.Endpoint)}, timeTo{&t.At}, &t.Delivered, &t.Failed, &t.Succeeded, &t.Transient, &t.Permanent)
				found = append(found, t)
				return err
			})
	})
	return found, err
}

// foldTraffic adds up what is old enough to be looked at in coarser steps, and forgets what is
// older than everything else that is kept.
func (s *Store) foldTraffic(ctx context.Context, now, cutoff time.Time) error {
	if err := s.prune(ctx, `
		DELETE FROM waybill_traffic
		WHERE id IN (
			SELECT id FROM waybill_traffic
			WHERE span = 2 AND at < ?
			LIMIT ?)`, micros(cutoff)); err != nil {
		return err
	}
	for _, step := range []struct {
		from, to outbox.TrafficSpan
		before   time.Time
		unit     time.Duration
	}{
		{outbox.TrafficFresh, outbox.TrafficMinute, now.Add(-outbox.TrafficFreshFor), time.Minute},
		{outbox.TrafficMinute, outbox.TrafficHour, now.Add(-outbox.TrafficMinuteFor).Truncate(time.Hour), time.Hour},
	} {
		for {
			var ids []int64
			if err := s.write(ctx, func(w *session) error {
				ids = nil
				var rows []outbox.Traffic
				if err := w.each(`
					SELECT id, `+trafficColumns+`
					FROM waybill_traffic
					WHERE span = ? AND at < ?
					ORDER BY at
					LIMIT ?`,
					[]any{int64(step.from), micros(step.before), maxPruned},
					func(scan scan) error {
						var id int64
						t, err := scanTraffic(func(dest ...any) error { return scan(append([]any{&id}, dest...)...) })
						ids, rows = append(ids, id), append(rows, t)
						return err
					}); err != nil {
					return err
				}
				for _, id := range ids {
					if _, err := w.exec("DELETE FROM waybill_traffic WHERE id = ?", id); err != nil {
						return err
					}
				}
				return insertTraffic(w, outbox.FoldTraffic(rows, step.unit), step.to)
			}); err != nil {
				return err
			}
			if len(ids) < maxPruned {
				break
			}
		}
	}
	return nil
}
