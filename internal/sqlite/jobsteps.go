package sqlite

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// jobScan is how many rows of a table one step looks at.
const jobScan = 2000

// jobStep is one step of a job inside its transaction.
type jobStep struct {
	ctx   context.Context
	w     *session
	limit int
	now   time.Time
	step  *outbox.JobStep
	books books
	keys  keySet
}

// inStep runs one step of a job: with the shard held, and the job read and written back.
func (s *Store) inStep(ctx context.Context, lease outbox.Lease, job *outbox.Job, limit int, now time.Time, do func(j *jobStep) error) (step outbox.JobStep, err error) {
	err = s.write(ctx, func(w *session) error {
		step = outbox.JobStep{}
		if err := fence(w, lease, []outbox.Shard{job.Tenant.Shard}); err != nil {
			return err
		}
		var err error
		if step.Job, err = readJob(w, job.Tenant.ID, job.ID); err != nil {
			return err
		}
		j := &jobStep{ctx: ctx, w: w, limit: limit, now: now, step: &step}
		if err := do(j); err != nil {
			return err
		}
		freed, err := j.keys.giveTurns(w, now)
		if err != nil {
			return err
		}
		if step.Job.Type == outbox.JobReplay && step.Job.State == outbox.JobRunning {
			step.Due = append(step.Due, freed...)
		} else {
			step.Freed = freed
		}
		if err := j.books.write(w); err != nil {
			return err
		}
		return saveJob(w, &step.Job, now)
	})
	if err != nil {
		return outbox.JobStep{}, err
	}
	return step, nil
}

// StepJob does the next piece of a job.
func (s *Store) StepJob(ctx context.Context, lease outbox.Lease, asked outbox.Job, limit int, spacing time.Duration, now time.Time) (outbox.JobStep, error) {
	return s.inStep(ctx, lease, &asked, limit, now, func(j *jobStep) error {
		switch job := &j.step.Job; {
		case job.Type == outbox.JobErasure:
			if limit == 0 || asked.Scanned || job.State != outbox.JobRunning && job.State != outbox.JobDone {
				return nil
			}
			return j.erase(&asked)
		case limit == 0 || job.State != outbox.JobRunning || job.Scanned || job.Filter.State == outbox.ReplayMissing:
			return nil
		case job.Type == outbox.JobReplay:
			return j.replay(spacing)
		case job.Type == outbox.JobCancellation:
			return j.cancel()
		}
		return nil
	})
}

// scan reads the candidates of this step, in order, and moves the cursor behind them. A table
// whose reading was stopped by its bound says how far it came; beyond the nearest such point
// another table may hold what comes first.
func (j *jobStep) scan() ([]jobRow, error) {
	job := &j.step.Job
	var rows []jobRow
	var stops []outbox.DeliveryID
	for _, table := range jobTables(job) {
		var last outbox.DeliveryID
		read, err := jobRows(j.ctx, j.w, table, job, jobScan, func(c jobRow) error {
			if last = c.dlv; c.wanted {
				rows = append(rows, c)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		if read >= jobScan {
			stops = append(stops, last)
		}
	}
	stop := outbox.DeliveryID(job.Cursor)
	job.Scanned = len(stops) == 0
	if !job.Scanned {
		stop = slices.MinFunc(stops, compareIDs)
		rows = slices.DeleteFunc(rows, func(c jobRow) bool { return compareIDs(c.dlv, stop) > 0 })
	}
	slices.SortStableFunc(rows, func(a, b jobRow) int { return compareIDs(a.dlv, b.dlv) })
	rows = slices.CompactFunc(rows, func(a, b jobRow) bool { return a.dlv == b.dlv })
	if len(rows) > j.limit {
		rows = rows[:j.limit]
		stop, job.Scanned = rows[j.limit-1].dlv, false
	}
	job.Cursor = stop
	return rows, nil
}

func compareIDs[I ~[16]byte](a, b I) int { return bytes.Compare(a[:], b[:]) }

// replay plans the next deliveries again.
func (j *jobStep) replay(spacing time.Duration) error {
	job := &j.step.Job
	rows, err := j.scan()
	if err != nil {
		return err
	}
	nextAt := j.now
	for _, c := range rows {
		planned, skipped, err := j.replayOne(c, nextAt)
		switch {
		case err != nil:
			return err
		case planned:
			job.Pending++
			nextAt = nextAt.Add(spacing)
		case skipped:
			job.Skipped++
			job.Done++
		}
	}
	if job.Scanned {
		job.ScanEnded()
	}
	return nil
}

// replayOne plans one delivery again, if it stands as the job asks.
func (j *jobStep) replayOne(c jobRow, nextAt time.Time) (planned, skipped bool, err error) {
	job := &j.step.Job
	at, err := standingOf(j.w, c.dlv)
	if errors.Is(err, outbox.ErrNotFound) {
		return false, false, nil
	}
	if err != nil || at.Tenant != job.Tenant.ID || !job.Filter.State.Covers(at.state) {
		return false, false, err
	}
	was := formerly{State: at.state}
	if at.state != outbox.StateDelivered {
		if was, err = readFormerly(j.w, c.dlv); err != nil || was.At > micros(job.CreatedAt) {
			return false, false, err
		}
	}
	d, again, parked, err := planAgain(j.w, &at, &j.books, &j.keys, replayBy{job: job.ID, was: toJSON(was), nextAt: nextAt}, j.now)
	if errors.Is(err, outbox.ErrEndpointGone) || errors.Is(err, outbox.ErrPayloadGone) {
		return false, true, nil
	}
	if err != nil {
		return false, false, err
	}
	if again && !parked {
		j.step.Due = append(j.step.Due, d)
	}
	return again, false, nil
}

// formerly is what a delivery was before a job planned it again: its dead letter, but for what the
// delivery itself says.
type formerly struct {
	State      outbox.DeliveryState `json:"state"`
	Reason     outbox.DeadReason    `json:"reason,omitempty"`
	Kind       outbox.Kind          `json:"kind,omitempty"`
	Message    string               `json:"message,omitempty"`
	StatusCode int                  `json:"status_code,omitempty"`
	At         int64                `json:"at,omitempty"`
	Sendable   int64                `json:"sendable,omitempty"`
	Holds      bool                 `json:"holds,omitempty"`
}

func readFormerly(r *session, id outbox.DeliveryID) (was formerly, err error) {
	err = r.get(`
		SELECT state, reason, kind, message, status_code, at, sendable_at, holds
		FROM waybill_dead_letter
		WHERE dlv = ?`,
		[]any{id[:]}, &was.State, &was.Reason, &was.Kind, &was.Message, &was.StatusCode, &was.At, &was.Sendable, &was.Holds)
	return was, err
}

// cancel ends the next pending deliveries.
func (j *jobStep) cancel() error {
	job := &j.step.Job
	rows, err := j.scan()
	if err != nil {
		return err
	}
	for _, c := range rows {
		at, err := standingOf(j.w, c.dlv)
		if err != nil {
			return err
		}
		if at.state != outbox.StatePending || at.Tenant != job.Tenant.ID {
			continue
		}
		buried, strict, err := bury(j.w, &at.Delivery, letter{reason: outbox.DeadCancelled, message: job.Reason, at: j.now})
		if err != nil {
			return err
		}
		if strict {
			j.keys.add(keyOf(&at.Delivery))
		}
		if buried {
			j.books.on(at.Shard, j.now).ended(outbox.DeadCancelled)
			j.step.Ended = append(j.step.Ended, c.dlv)
			job.Done++
		}
	}
	if job.Scanned {
		job.ScanEnded()
	}
	return nil
}

// FailJob ends a job that cannot go on.
func (s *Store) FailJob(ctx context.Context, lease outbox.Lease, job outbox.Job, now time.Time) (outbox.JobStep, error) {
	return s.inStep(ctx, lease, &job, 0, now, func(j *jobStep) error {
		j.step.Job.Fail(now)
		return nil
	})
}

// RecallJob takes back what a replay planned.
func (s *Store) RecallJob(ctx context.Context, lease outbox.Lease, job outbox.Job, except []outbox.DeliveryID, limit int, now time.Time) (outbox.JobStep, error) {
	return s.inStep(ctx, lease, &job, limit, now, func(j *jobStep) error {
		if j.step.Job.State != outbox.JobStopping {
			return nil
		}
		return j.recall(except)
	})
}

// recall puts deliveries back to what they were: a dead letter into its row, with the rounds and
// attempts it has had; what was delivered to its last attempt, which is still there; what never
// was before becomes a cancelled one, since its number is given.
func (j *jobStep) recall(except []outbox.DeliveryID) error {
	job := &j.step.Job
	type planned struct {
		outbox.Delivery
		plannedAt int64
		was       formerly
	}
	var rows []planned
	if err := j.w.each(`
		SELECT `+deliveryColumns+`, planned_at, was
		FROM waybill_delivery
		WHERE job = ? AND tenant = ? AND dlv NOT IN (SELECT unhex(value) FROM json_each(?))
		LIMIT ?`,
		[]any{job.ID[:], int64(job.Tenant.ID), hexList(except), j.limit},
		func(scan scan) error {
			var p planned
			err := scan(append(deliveryTo(&p.Delivery), &p.plannedAt, jsonTo{&p.was})...)
			rows = append(rows, p)
			return err
		}); err != nil {
		return err
	}
	for i := range rows {
		d, was := &rows[i].Delivery, rows[i].was
		if was.State == "" {
			was = formerly{
				State: outbox.StateCancelled, Reason: outbox.DeadCancelled, Message: outbox.ReasonReplayStopped,
				At: micros(j.now), Sendable: micros(d.SendableAt),
			}
		}
		// It has not ended: the job is not to count it.
		if _, err := j.w.exec("UPDATE waybill_delivery SET job = NULL WHERE dlv = ?", d.ID[:]); err != nil {
			return err
		}
		if _, err := j.w.exec("DELETE FROM waybill_delivery WHERE dlv = ?", d.ID[:]); err != nil {
			return err
		}
		if !d.TurnAt.IsZero() {
			j.keys.add(keyOf(d))
		}
		j.step.Ended = append(j.step.Ended, d.ID)
		job.Pending--
		count := j.books.on(d.Shard, j.now)
		if was.State == outbox.StateDelivered {
			count.delivered++
			continue
		}
		count.ended(was.Reason)
		if _, err := j.w.exec(`
			INSERT INTO waybill_dead_letter
				(dlv, shard, tenant, endpoint, event, event_type, sequence, ordering_key, round, attempt, round_start, lane, sendable_at, planned_at,
				state, reason, kind, message, status_code, at, holds)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
			d.ID[:], int64(d.Shard), int64(d.Tenant), d.Endpoint[:], d.Event[:], d.EventType, d.Sequence, d.OrderingKey,
			int64(d.Round), int64(d.Attempt), int64(d.RoundStart), int64(d.Lane), was.Sendable, rows[i].plannedAt,
			string(was.State), string(was.Reason), string(was.Kind), was.Message, int64(was.StatusCode), was.At, was.Holds); err != nil {
			return err
		}
	}
	return nil
}

// MissingEvents returns the next events that a replay of what is missing looks through. One that
// is still in the outbox is about to be planned for whoever wants it today, and must not be
// numbered twice. What was erased, or was a test of one endpoint, nobody misses.
func (s *Store) MissingEvents(ctx context.Context, job outbox.Job, limit int) (page outbox.MissingPage, err error) {
	low, high := job.Range()
	err = s.read(ctx, func(r *session) error {
		page = outbox.MissingPage{Cursor: low}
		waiting := map[outbox.EventID]bool{}
		if err := r.each(`
			SELECT event
			FROM waybill_outbox
			WHERE shard = ? AND tenant = ? AND kind = 0`,
			[]any{int64(job.Tenant.Shard), int64(job.Tenant.ID)},
			func(scan scan) error {
				var id outbox.EventID
				err := scan(idTo{(*[16]byte)(&id)})
				waiting[id] = true
				return err
			}); err != nil {
			return err
		}
		read := 0
		err := r.each(`
			SELECT `+eventColumns+`, `+erased+`
			FROM waybill_event v
			WHERE v.shard = ? AND v.tenant = ? AND v.id > ? AND v.id < ?
			ORDER BY v.id
			LIMIT ?`,
			[]any{int64(job.Tenant.Shard), int64(job.Tenant.ID), low[:], high[:], limit},
			func(scan scan) error {
				var e outbox.Event
				var gone bool
				if err := scan(append(eventTo(&e), &gone)...); err != nil {
					return err
				}
				_, test := e.Metadata[outbox.TestMark]
				if page.Cursor, read = e.ID, read+1; !gone && !test && !waiting[e.ID] && !e.CreatedAt.After(job.CreatedAt) {
					page.Events = append(page.Events, e)
				}
				return nil
			})
		page.Last = read < limit
		return err
	})
	return page, err
}

// PlanMissing plans deliveries found missing.
func (s *Store) PlanMissing(ctx context.Context, lease outbox.Lease, job outbox.Job, page outbox.MissingPage, deliveries []outbox.Delivery, next map[outbox.EndpointID]int64, now time.Time) (outbox.JobStep, error) {
	return s.inStep(ctx, lease, &job, 0, now, func(j *jobStep) error {
		stored := &j.step.Job
		if stored.Cursor != job.Cursor || stored.Scanned || stored.State != outbox.JobRunning {
			return nil // an earlier run of this call was answered too late to be believed
		}
		plans := []outbox.Plan{{Row: outbox.OutboxRow{Shard: job.Tenant.Shard}, Deliveries: deliveries}}
		strict, err := decidePlans(j.w, plans)
		if err != nil {
			return err
		}
		for i := range deliveries {
			d := strict.of(&deliveries[i])
			n, err := insertDelivery(j.w, d, now)
			if err != nil {
				return err
			}
			if n == 0 {
				continue
			}
			if _, err := j.w.exec("UPDATE waybill_delivery SET job = ? WHERE dlv = ?", job.ID[:], d.ID[:]); err != nil {
				return err
			}
			j.books.on(d.Shard, now).planned++
			stored.Pending++
			if !d.Parked() {
				j.step.Due = append(j.step.Due, *d)
			}
		}
		if err := writeMarks(j.w, plans, next); err != nil {
			return err
		}
		stored.Cursor, stored.Scanned = page.Cursor, page.Last
		if stored.Scanned {
			stored.ScanEnded()
		}
		return nil
	})
}
