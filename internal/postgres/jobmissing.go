package postgres

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// MissingEvents implements outbox.Jobs. An event that is still in the outbox is about to be
// planned for whoever wants it today, and must not be numbered twice.
// What was erased, or was a test of one endpoint, nobody misses.
func (s *Store) MissingEvents(ctx context.Context, job outbox.Job, limit int) (outbox.MissingPage, error) {
	var page outbox.MissingPage
	low, high := job.Range()
	err := s.read(ctx, people, func(b *pgx.Batch) {
		page = outbox.MissingPage{Last: true, Cursor: low}
		b.Queue(`
			WITH waiting AS MATERIALIZED (
				SELECT o.event
				FROM waybill.outbox AS o
				WHERE o.shard = $1 AND o.tenant = $2 AND o.kind = 0
			),
			read AS MATERIALIZED (
				SELECT e.id, e.type, e.ordering_key, e.created_at,
					`+erased+` OR coalesce(e.metadata, '{}') ? '`+outbox.TestMark+`' AS passed
				FROM waybill.event AS e
				WHERE e.shard = $1 AND e.tenant = $2 AND e.id > $3 AND e.id < $4
				ORDER BY e.id
				LIMIT $6
			)
			SELECT e.id, e.type, e.ordering_key, e.created_at,
				NOT e.passed AND e.created_at <= $5 AND e.id NOT IN (SELECT event FROM waiting)
			FROM read AS e
			ORDER BY e.id`,
			int16(job.Tenant.Shard), int64(job.Tenant.ID), low, high, job.CreatedAt, limit,
		).Query(func(rows pgx.Rows) error {
			read := 0
			var e outbox.Event
			var eligible bool
			_, err := pgx.ForEachRow(rows, []any{intoID(&e.ID), &e.Type, intoText(&e.OrderingKey), &e.CreatedAt, &eligible}, func() error {
				if page.Cursor, read = e.ID, read+1; eligible {
					e.Tenant = job.Tenant
					page.Events = append(page.Events, e)
				}
				return nil
			})
			page.Last = read < limit
			return err
		})
	})
	return page, err
}

// PlanMissing implements outbox.JobWork.
func (s *Store) PlanMissing(ctx context.Context, lease outbox.Lease, job outbox.Job, page outbox.MissingPage, deliveries []outbox.Delivery, next map[outbox.EndpointID]int64, now time.Time) (outbox.JobStep, error) {
	w := &jobStep{lease: lease, now: now}
	plans := []outbox.Plan{{Row: outbox.OutboxRow{Shard: job.Tenant.Shard}, Deliveries: deliveries}}
	strict := strictOf(plans)
	moved := false
	err := s.transact(ctx, stepping,
		func(b *pgx.Batch) error { return w.queueTake(b, &job) },
		func(b *pgx.Batch) error {
			j, err := w.taken()
			if err != nil {
				return err
			}
			// An earlier run of this call may have been answered too late to be believed.
			if moved = j.Cursor != job.Cursor || j.Scanned || j.State != outbox.JobRunning; !moved && strict != nil {
				strict.queueLook(b)
			}
			return nil
		},
		func(b *pgx.Batch) error {
			if !moved {
				stored, _ := strict.decide()
				queuePlans(b, plans, stored, job.ID, now, true)
				queueMarks(b, plans, next)
				w.missing(page, deliveries, stored)
			}
			w.queueSave(b)
			return nil
		},
	)
	if err != nil {
		return outbox.JobStep{}, err
	}
	return w.step, nil
}

// missing enters a page of events into the job's figures.
func (s *jobStep) missing(page outbox.MissingPage, deliveries []outbox.Delivery, strict map[outbox.DeliveryID]*outbox.Delivery) {
	job := &s.step.Job
	job.Cursor, job.Scanned = page.Cursor, page.Last
	job.Pending += int64(len(deliveries))
	if job.Scanned {
		job.ScanEnded()
	}
	s.step.Due = slices.Clone(deliveries)
	for i, d := range s.step.Due {
		if decided := strict[d.ID]; decided != nil {
			s.step.Due[i] = *decided
		}
	}
	s.step.Due = slices.DeleteFunc(s.step.Due, func(d outbox.Delivery) bool { return d.Parked() })
}
