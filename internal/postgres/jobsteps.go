package postgres

import (
	"bytes"
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// jobScan is how many rows of a table one step looks at.
const jobScan = 2000

// jobStep follows one step of a job through its round trips.
type jobStep struct {
	lease outbox.Lease
	limit int
	now   time.Time

	fence   fence
	found   []outbox.Job // at most one
	step    outbox.JobStep
	rows    []candidate
	full    []outbox.DeliveryID // where a table's reading was stopped by its bound
	replays replays
	burial  burial
	erasing erasing
}

// candidate is a row that a job looks at.
type candidate struct {
	wantedReplay
	wanted bool
}

// stepping bounds a step of a job. planEach, because it looks at events and attempts of given days.
var stepping = limits{lock: hot.lock, statement: hot.statement, plan: planEach}

// queueTake takes the shard and the job, and adds up what has ended since.
func (s *jobStep) queueTake(b *pgx.Batch, job *outbox.Job) error {
	s.fence.queue(b, s.lease, map[outbox.Shard]bool{job.Tenant.Shard: true})
	b.Queue(`
		WITH told AS (
			DELETE FROM waybill.job_tally
			WHERE shard = $1 AND job = $2
			RETURNING delivered, failed, skipped
		),
		total AS (
			SELECT coalesce(sum(delivered), 0) AS delivered, coalesce(sum(failed), 0) AS failed, coalesce(sum(skipped), 0) AS skipped
			FROM told
		)
		UPDATE waybill.job AS j
		SET delivered = j.delivered + total.delivered,
			failed = j.failed + total.failed,
			skipped = j.skipped + total.skipped,
			done = j.done + total.delivered + total.failed + total.skipped,
			pending = j.pending - total.delivered - total.failed - total.skipped
		FROM total
		WHERE j.shard = $1 AND j.id = $2 AND j.tenant = $3
		RETURNING `+jobColumns,
		int16(job.Tenant.Shard), uuid(job.ID), int64(job.Tenant.ID),
	).Query(collectJobs(&s.found))
	return nil
}

// taken is the job once it was taken.
func (s *jobStep) taken() (*outbox.Job, error) {
	if err := s.fence.check(); err != nil {
		return nil, err
	}
	if len(s.found) == 0 {
		return nil, outbox.ErrNotFound
	}
	s.step.Job = s.found[0]
	return &s.step.Job, nil
}

// queueSave writes the job as it is now. It is the last that a step does.
func (s *jobStep) queueSave(b *pgx.Batch) {
	j := &s.step.Job
	j.Settle(s.now)
	b.Queue(`
		UPDATE waybill.job AS j
		SET state = $3, finished_at = $4, cursor = $5, scanned = $6,
			matched = $7, done = $8, skipped = $9, pending = $10
		WHERE j.shard = $1 AND j.id = $2`,
		int16(j.Tenant.Shard), uuid(j.ID), string(j.State), at(j.FinishedAt), uuid(j.Cursor), j.Scanned,
		j.Matched, j.Done, j.Skipped, j.Pending)
}

// StepJob implements outbox.JobWork.
func (s *Store) StepJob(ctx context.Context, lease outbox.Lease, job outbox.Job, limit int, spacing time.Duration, now time.Time) (outbox.JobStep, error) {
	w := &jobStep{lease: lease, limit: limit, now: now, replays: replays{spacing: spacing}}
	var replays, cancels bool
	err := s.transact(ctx, stepping,
		func(b *pgx.Batch) error { return w.queueTake(b, &job) },
		func(b *pgx.Batch) error {
			j, err := w.taken()
			switch {
			case err != nil:
				return err
			case j.Type == outbox.JobErasure:
				if limit > 0 && !job.Scanned && (j.State == outbox.JobRunning || j.State == outbox.JobDone) {
					w.queueErasable(b, &job)
				}
			case limit == 0 || j.State != outbox.JobRunning || j.Scanned || j.Filter.State == outbox.ReplayMissing:
			case j.Type == outbox.JobReplay:
				replays = true
				w.queueScan(b, j)
			case j.Type == outbox.JobCancellation:
				cancels = true
				w.queueBury(b, j)
			}
			return nil
		},
		func(b *pgx.Batch) error {
			if replays {
				w.choose()
				w.replays.queueLook(b, now)
			}
			w.queueErase(b)
			return nil
		},
		func(b *pgx.Batch) error {
			switch {
			case cancels:
				w.buried()
				queueTurns(b, w.burial.keys, now, &w.step.Freed)
			case replays:
				w.replays.queueWrite(b, now)
				w.planned()
			case w.erasing.read:
				w.erasedAll()
			}
			w.queueSave(b)
			return nil
		},
	)
	if err != nil {
		return outbox.JobStep{}, err
	}
	w.step.Due = slices.DeleteFunc(w.replays.due, func(d outbox.Delivery) bool { return d.Parked() })
	return w.step, nil
}

// queueScan reads the next rows of each table that the replay is about.
func (s *jobStep) queueScan(b *pgx.Batch, job *outbox.Job) {
	for _, table := range jobTables(job) {
		r := rowsOfJob(table, job, jobScan)
		b.Queue(`
			SELECT t.dlv, t.event, t.endpoint, `+r.wanted+`
			`+r.from,
			r.args...,
		).Query(func(rows pgx.Rows) error {
			c := candidate{wantedReplay: wantedReplay{shard: job.Tenant.Shard, tenant: job.Tenant.ID}}
			read := 0
			_, err := pgx.ForEachRow(rows, []any{intoID(&c.dlv), intoID(&c.event), intoID(&c.endpoint), &c.wanted}, func() error {
				s.rows = append(s.rows, c)
				read++
				return nil
			})
			if read >= jobScan {
				s.full = append(s.full, c.dlv)
			}
			return err
		})
	}
}

// choose takes the deliveries of this step from what was read, and moves the cursor behind them.
// A table whose reading was stopped by its bound says how far it came; beyond the nearest such
// point another table may hold what comes first.
func (s *jobStep) choose() {
	job := &s.step.Job
	stop := outbox.DeliveryID(job.Cursor)
	if len(s.full) > 0 {
		stop = slices.MinFunc(s.full, compareIDs)
		s.rows = slices.DeleteFunc(s.rows, func(c candidate) bool { return compareIDs(c.dlv, stop) > 0 })
	}
	s.rows = slices.DeleteFunc(s.rows, func(c candidate) bool { return !c.wanted })
	slices.SortFunc(s.rows, func(a, b candidate) int { return compareIDs(a.dlv, b.dlv) })
	s.rows = slices.CompactFunc(s.rows, func(a, b candidate) bool { return a.dlv == b.dlv })
	ended := len(s.full) == 0
	if len(s.rows) > s.limit {
		s.rows = s.rows[:s.limit]
		stop, ended = s.rows[s.limit-1].dlv, false
	}
	job.Cursor = stop
	s.replays.job = job
	for _, c := range s.rows {
		s.replays.wanted = append(s.replays.wanted, c.wantedReplay)
	}
	s.step.Job.Scanned = ended
}

// planned enters what was chosen into the job's figures.
func (s *jobStep) planned() {
	job := &s.step.Job
	job.Pending += s.replays.planned
	job.Skipped += s.replays.skipped
	job.Done += s.replays.skipped
	if job.Scanned {
		job.ScanEnded()
	}
}

func compareIDs[I ~[16]byte](a, b I) int { return bytes.Compare(a[:], b[:]) }

// queueBury ends the next pending deliveries that a cancellation is about. It waits for those that
// somebody is finishing just now: passed over, one that is to be tried again would be left.
func (s *jobStep) queueBury(b *pgx.Batch, job *outbox.Job) {
	ending := []any{s.now, string(outbox.DeadCancelled), storable(job.Reason)}
	var r *jobRows
	if len(job.Filter.Events) > 0 {
		r = rowsOfEvents(job, jobScan, ending...)
	} else {
		r = rowsOfJob("delivery", job, jobScan, ending...)
	}
	sql := `
		WITH seen AS MATERIALIZED (
			SELECT t.shard, t.tenant, t.dlv, ` + r.wanted + ` AS wanted
			` + r.from + `
		),
		doomed AS (
			SELECT d.shard, d.tenant, d.dlv
			FROM seen AS w
			JOIN waybill.delivery AS d ON ` + ofWantedD + `
			WHERE w.wanted
			ORDER BY d.dlv
			LIMIT ` + r.arg(s.limit) + `
			FOR UPDATE OF d
		),` + bury + `
		FROM ended
		UNION ALL
		SELECT (array_agg(dlv ORDER BY dlv DESC))[1], NULL, NULL, NULL, shard
		FROM seen
		GROUP BY shard
		HAVING count(*) >= ` + r.arg(jobScan)
	b.Queue(sql, r.args...).Query(func(rows pgx.Rows) error {
		return s.burial.collectBounded(rows, func(_ outbox.Shard, last outbox.DeliveryID) { s.full = append(s.full, last) })
	})
}

// buried enters what was ended into the job's figures, and moves its cursor.
func (s *jobStep) buried() {
	job := &s.step.Job
	s.step.Ended = s.burial.ids
	job.Done += int64(len(s.burial.ids))
	switch {
	case len(s.burial.ids) >= s.limit:
		job.Cursor = slices.MaxFunc(s.burial.ids, compareIDs)
	case len(s.full) > 0:
		job.Cursor = s.full[0]
	default:
		job.ScanEnded()
	}
}

// FailJob implements outbox.JobWork.
func (s *Store) FailJob(ctx context.Context, lease outbox.Lease, job outbox.Job, now time.Time) (outbox.JobStep, error) {
	w := &jobStep{lease: lease, now: now}
	err := s.transact(ctx, stepping,
		func(b *pgx.Batch) error { return w.queueTake(b, &job) },
		func(b *pgx.Batch) error {
			j, err := w.taken()
			if err != nil {
				return err
			}
			j.Fail(now)
			w.queueSave(b)
			return nil
		},
	)
	if err != nil {
		return outbox.JobStep{}, err
	}
	return w.step, nil
}

// RecallJob implements outbox.JobWork.
func (s *Store) RecallJob(ctx context.Context, lease outbox.Lease, job outbox.Job, except []outbox.DeliveryID, limit int, now time.Time) (outbox.JobStep, error) {
	w := &jobStep{lease: lease, limit: limit, now: now}
	err := s.transact(ctx, stepping,
		func(b *pgx.Batch) error { return w.queueTake(b, &job) },
		func(b *pgx.Batch) error {
			j, err := w.taken()
			if err == nil && j.State == outbox.JobStopping {
				w.queueRecall(b, j, except)
			}
			return err
		},
		func(b *pgx.Batch) error {
			w.step.Ended = w.burial.ids
			w.step.Job.Pending -= int64(len(w.burial.ids))
			queueTurns(b, w.burial.keys, now, &w.step.Freed)
			w.queueSave(b)
			return nil
		},
	)
	if err != nil {
		return outbox.JobStep{}, err
	}
	return w.step, nil
}

// queueRecall puts deliveries of a replay back to what they were: a dead letter into its row, with
// the rounds and attempts it has had; what was delivered to its last attempt, which is still
// there; what never was before becomes a cancelled one, since its number is given.
func (s *jobStep) queueRecall(b *pgx.Batch, job *outbox.Job, except []outbox.DeliveryID) {
	b.Queue(`
		WITH ended AS (
			DELETE FROM waybill.delivery AS d
			USING (
				SELECT d.shard, d.dlv, d.tenant
				FROM waybill.delivery AS d
				WHERE d.shard = $2 AND d.job = $3 AND d.tenant = $4 AND d.dlv <> ALL ($5::uuid[])
				LIMIT $6
				FOR UPDATE
			) AS w
			WHERE `+ofWantedD+`
			RETURNING d.*
		),
		restored AS (
			INSERT INTO waybill.dead_letter
			SELECT (jsonb_populate_record(NULL::waybill.dead_letter, was || jsonb_build_object('round', round, 'attempt', attempt))).*
			FROM ended
			WHERE was ->> 'state' <> 'delivered'
		),
		kept AS (
			INSERT INTO waybill.dead_letter
				(shard, dlv, tenant, endpoint, event, event_type, sequence, ordering_key, round,
				attempt, state, reason, message, sendable_at, at)
			SELECT shard, dlv, tenant, endpoint, event, event_type, sequence, ordering_key, round,
				attempt, 'cancelled', 'cancelled', $7, sendable_at, $1
			FROM ended
			WHERE was IS NULL
		),
		counted AS (
			INSERT INTO waybill.ledger (shard, at, delivered, dead, cancelled)
			SELECT shard, $1,
				count(*) FILTER (WHERE was ->> 'state' = 'delivered'),
				count(*) FILTER (WHERE was ->> 'state' = 'dead'),
				count(*) FILTER (WHERE coalesce(was ->> 'state', 'cancelled') = 'cancelled')
			FROM ended
			GROUP BY shard
		)
		SELECT dlv, endpoint, coalesce(ordering_key, ''), turn_at IS NOT NULL, shard
		FROM ended`,
		s.now, int16(job.Tenant.Shard), uuid(job.ID), int64(job.Tenant.ID), idColumn(except), s.limit, outbox.ReasonReplayStopped,
	).Query(s.burial.collect)
}
