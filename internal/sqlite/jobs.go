package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// jobColumns are the columns of a job j, in the order jobTo takes them.
const jobColumns = `
	j.shard, j.id, j.tenant, j.type, j.filter, j.reason, j.rate, coalesce(j.key, ''), j.created_by, j.created_at,
	j.state, j.finished_at, j.cursor, j.scanned,
	j.matched, j.done, j.delivered, j.failed, j.skipped, j.pending,
	j.tenant_key`

// jobTo lists where the columns go.
func jobTo(j *outbox.Job) []any {
	return []any{
		&j.Tenant.Shard, idTo{(*[16]byte)(&j.ID)}, &j.Tenant.ID, &j.Type, jsonTo{&j.Filter}, &j.Reason, &j.Rate, &j.Key, &j.CreatedBy, timeTo{&j.CreatedAt},
		&j.State, timeTo{&j.FinishedAt}, idTo{&j.Cursor}, &j.Scanned,
		&j.Matched, &j.Done, &j.Delivered, &j.Failed, &j.Skipped, &j.Pending, &j.TenantKey,
	}
}

// readJob finds a job of the tenant, or of any where that is zero.
func readJob(r *session, tenant outbox.TenantID, id outbox.JobID) (outbox.Job, error) {
	var j outbox.Job
	err := r.get(`
		SELECT `+jobColumns+`
		FROM waybill_job AS j
		WHERE j.id = ?1 AND (?2 = 0 OR j.tenant = ?2)`,
		[]any{id[:], int64(tenant)}, jobTo(&j)...)
	if errors.Is(err, sql.ErrNoRows) {
		err = outbox.ErrNotFound
	}
	return j, err
}

// insertJob stores a job unless it, or one with its key, exists.
func insertJob(w *session, j *outbox.Job) (int64, error) {
	return w.exec(`
		INSERT INTO waybill_job
			(id, shard, tenant, tenant_key, type, filter, reason, rate, key, created_by, created_at, state, finished_at, matched)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT DO NOTHING`,
		j.ID[:], int64(j.Tenant.Shard), int64(j.Tenant.ID), j.TenantKey, string(j.Type), toJSON(j.Filter), j.Reason, j.Rate, textOrNull(j.Key),
		j.CreatedBy, micros(j.CreatedAt), string(j.State), microsOrNull(j.FinishedAt), j.Matched)
}

// CreateJob stores a job and asks the owner to run it.
func (s *Store) CreateJob(ctx context.Context, job outbox.Job) (outbox.Job, error) {
	stored := job
	err := s.write(ctx, func(w *session) error {
		n, err := insertJob(w, &job)
		if err != nil {
			return err
		}
		if n == 1 {
			stored = job
			_, err := insertOutbox(w, jobCommand(&job, outbox.CommandRunJob))
			return err
		}
		stored = outbox.Job{}
		err = w.get(`
			SELECT `+jobColumns+`
			FROM waybill_job AS j
			WHERE j.tenant = ? AND (j.id = ? OR j.key = ?)`,
			[]any{int64(job.Tenant.ID), job.ID[:], textOrNull(job.Key)}, jobTo(&stored)...)
		if err == nil && (stored.Type != job.Type || stored.Reason != job.Reason || toJSON(stored.Filter) != toJSON(job.Filter)) {
			return outbox.ErrIdempotencyMismatch
		}
		return err
	})
	if err != nil {
		return outbox.Job{}, err
	}
	return stored, nil
}

func jobCommand(j *outbox.Job, name outbox.CommandName) outbox.OutboxRow {
	return outbox.OutboxRow{
		Shard:   j.Tenant.Shard,
		Kind:    outbox.OutboxCommand,
		Tenant:  j.Tenant.ID,
		Command: outbox.Command{Name: name, Job: j.ID},
	}
}

func ofTypes(j *outbox.Job, types []outbox.JobType) error {
	for _, t := range types {
		if j.Type == t {
			return nil
		}
	}
	return outbox.ErrNotFound
}

// Job finds a job.
func (s *Store) Job(ctx context.Context, tenant outbox.TenantRef, types []outbox.JobType, id outbox.JobID) (j outbox.Job, err error) {
	err = s.read(ctx, func(r *session) error {
		if j, err = readJob(r, tenant.ID, id); err != nil {
			return err
		}
		return ofTypes(&j, types)
	})
	if err != nil {
		return outbox.Job{}, err
	}
	return j, nil
}

// Jobs lists jobs.
func (s *Store) Jobs(ctx context.Context, q outbox.JobQuery, page outbox.Page) (list []outbox.Job, err error) {
	where, args := filter{}.
		and("j.type IN (SELECT value FROM json_each(?))", toJSON(q.Types)).
		andIf(q.Tenant.ID != 0, "j.tenant = ?", int64(q.Tenant.ID)).
		andIf(!q.After.IsZero() && page.Ascending, "j.id > ?", q.After[:]).
		andIf(!q.After.IsZero() && !page.Ascending, "j.id < ?", q.After[:]).
		sql()
	err = s.read(ctx, func(r *session) error {
		return r.eachOnce(ctx, `
			SELECT `+jobColumns+`
			FROM waybill_job AS j
			WHERE `+where+`
			ORDER BY j.id `+direction(page)+`
			LIMIT ?`,
			append(args, page.Limit), collectJob(&list))
	})
	return list, err
}

func collectJob(list *[]outbox.Job) func(scan scan) error {
	return func(scan scan) error {
		var j outbox.Job
		err := scan(jobTo(&j)...)
		*list = append(*list, j)
		return err
	}
}

// RequestJobCancel asks the owner to stop a job.
func (s *Store) RequestJobCancel(ctx context.Context, tenant outbox.TenantRef, types []outbox.JobType, id outbox.JobID) (j outbox.Job, err error) {
	err = s.write(ctx, func(w *session) error {
		if j, err = readJob(w, tenant.ID, id); err != nil {
			return err
		}
		if err := ofTypes(&j, types); err != nil || j.State.Ended() {
			return err
		}
		_, err := insertOutbox(w, jobCommand(&j, outbox.CommandCancelJob))
		return err
	})
	if err != nil {
		return outbox.Job{}, err
	}
	return j, nil
}

// LoadJobs returns the jobs that have not ended.
func (s *Store) LoadJobs(ctx context.Context, shards []outbox.Shard) (list []outbox.Job, err error) {
	err = s.read(ctx, func(r *session) error {
		return r.each(`
			SELECT `+jobColumns+`
			FROM waybill_job AS j
			WHERE j.shard IN (SELECT value FROM json_each(?)) AND j.state IN ('running', 'stopping')
				AND j.type IN (SELECT value FROM json_each(?))
			ORDER BY j.id`,
			[]any{shardList(shards), toJSON(outbox.LoopJobs)}, collectJob(&list))
	})
	return list, err
}

// TakeJob executes a command about a job.
func (s *Store) TakeJob(ctx context.Context, lease outbox.Lease, row outbox.OutboxRow) (found *outbox.Job, err error) {
	err = s.write(ctx, func(w *session) error {
		found = nil
		if err := fence(w, lease, []outbox.Shard{row.Shard}); err != nil {
			return err
		}
		if _, err := takeOutbox(w, row); err != nil {
			return err
		}
		if row.Command.Name == outbox.CommandCancelJob {
			if _, err := w.exec(`
				UPDATE waybill_job
				SET state = 'stopping'
				WHERE id = ? AND tenant = ? AND state = 'running'`,
				row.Command.Job[:], int64(row.Tenant)); err != nil {
				return err
			}
		}
		j, err := readJob(w, row.Tenant, row.Command.Job)
		if errors.Is(err, outbox.ErrNotFound) {
			return nil
		}
		found = &j
		return err
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}

// saveJob writes a job as it is now.
func saveJob(w *session, j *outbox.Job, now time.Time) error {
	j.Settle(now)
	_, err := w.exec(`
		UPDATE waybill_job
		SET state = ?, finished_at = ?, cursor = ?, scanned = ?,
			matched = ?, done = ?, skipped = ?, pending = ?
		WHERE id = ?`,
		string(j.State), microsOrNull(j.FinishedAt), idOrNull(j.Cursor), j.Scanned,
		j.Matched, j.Done, j.Skipped, j.Pending, j.ID[:])
	return err
}
