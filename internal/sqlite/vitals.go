package sqlite

import (
	"context"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// Vitals implements outbox.Monitoring.
func (s *Store) Vitals(ctx context.Context, now time.Time) (outbox.Vitals, error) {
	v := outbox.Vitals{PartitionDaysAhead: outbox.MaxPartitionDays, OldestTransaction: s.writer.waiting()}
	err := s.read(ctx, func(r *session) error {
		if err := r.get(`
			SELECT coalesce(sum(planned - delivered - dead - cancelled), 0), coalesce(sum(dead + cancelled - revived - purged), 0)
			FROM waybill_ledger`, nil, &v.Pending, &v.DeadLetters); err != nil {
			return err
		}
		if err := r.get(`
			SELECT (page_count - freelist_count) * page_size
			FROM pragma_page_count(), pragma_freelist_count(), pragma_page_size()`, nil, &v.Bytes); err != nil {
			return err
		}
		if err := r.each(`
			SELECT * FROM (SELECT id FROM waybill_event ORDER BY id LIMIT 1)
			UNION ALL
			SELECT * FROM (SELECT id FROM waybill_attempt ORDER BY id LIMIT 1)`, nil, func(scan scan) error {
			var id outbox.EventID
			err := scan(idTo{(*[16]byte)(&id)})
			if day := id.Day(); v.OldestDay.IsZero() || day.Before(v.OldestDay) {
				v.OldestDay = day
			}
			return err
		}); err != nil {
			return err
		}
		var delivery outbox.DeliveryID
		if err := r.each(`
			SELECT dlv
			FROM waybill_delivery
			ORDER BY dlv
			LIMIT 1`, nil, func(scan scan) error {
			err := scan(idTo{(*[16]byte)(&delivery)})
			v.OldestPending = delivery.Time()
			return err
		}); err != nil {
			return err
		}
		return r.each(`
			SELECT event
			FROM (
				SELECT kind, event
				FROM waybill_outbox
				ORDER BY pos
				LIMIT 1000
			)
			WHERE kind = 0
			LIMIT 1`, nil, func(scan scan) error {
			var event outbox.EventID
			err := scan(idTo{(*[16]byte)(&event)})
			v.OldestUnrouted = event.Time()
			return err
		})
	})
	return v, err
}
