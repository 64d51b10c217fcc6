package postgres

import (
	"context"
	"encoding/json"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype/zeronull"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// jobColumns are the columns of a job j, in the order intoJob reads.
const jobColumns = `
	j.shard, j.id, j.tenant, j.type, j.filter, j.reason, j.rate, j.key, j.created_by, j.created_at,
	j.state, j.finished_at, j.cursor, j.scanned,
	j.matched, j.done, j.delivered, j.failed, j.skipped, j.pending,
	j.tenant_key`

// scanJob reads jobColumns.
func scanJob(row pgx.Row) (outbox.Job, error) {
	var j outbox.Job
	var filter []byte
	err := row.Scan(intoShard(&j.Tenant.Shard), intoID(&j.ID), &j.Tenant.ID, &j.Type, &filter, &j.Reason, &j.Rate, intoText(&j.Key), &j.CreatedBy, &j.CreatedAt,
		&j.State, intoTime(&j.FinishedAt), intoID(&j.Cursor), &j.Scanned,
		&j.Matched, &j.Done, &j.Delivered, &j.Failed, &j.Skipped, &j.Pending, &j.TenantKey)
	if err == nil {
		err = json.Unmarshal(filter, &j.Filter)
	}
	return j, err
}

func collectJobs(list *[]outbox.Job) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		for rows.Next() {
			j, err := scanJob(rows)
			if err != nil {
				return err
			}
			*list = append(*list, j)
		}
		return rows.Err()
	}
}

// storedFilter is a job's filter as it is stored.
func storedFilter(f *outbox.JobFilter) []byte {
	text, err := json.Marshal(f)
	if err != nil {
		panic("times, ids and strings do not fail: " + err.Error())
	}
	return text
}

// CreateJob implements outbox.Jobs. The row and the command that tells the owner of it are
// written together: a job that nobody runs, or a command without a job, would be seen by no one.
func (s *Store) CreateJob(ctx context.Context, job outbox.Job) (outbox.Job, error) {
	stored := job
	err := s.edit(ctx, func(tx pgx.Tx) error {
		tag, err := insertJob(ctx, tx, &job)
		if err != nil {
			return err
		}
		if tag > 0 {
			return insertCommand(ctx, tx, job.Tenant, outbox.EndpointID{}, outbox.Command{Name: outbox.CommandRunJob, Job: job.ID})
		}
		stored, err = scanJob(tx.QueryRow(ctx, `
			SELECT `+jobColumns+`
			FROM waybill.job AS j
			WHERE j.shard = $1 AND j.tenant = $2 AND (j.id = $3 OR j.key = $4)`,
			int16(job.Tenant.Shard), int64(job.Tenant.ID), uuid(job.ID), zeronull.Text(job.Key)))
		if err == nil && (stored.Type != job.Type || stored.Reason != job.Reason || string(storedFilter(&stored.Filter)) != string(storedFilter(&job.Filter))) {
			return outbox.ErrIdempotencyMismatch
		}
		return err
	})
	return stored, err
}

// insertJob stores a job unless it, or one with its key, exists, and returns how many rows that
// were.
func insertJob(ctx context.Context, tx pgx.Tx, job *outbox.Job) (int64, error) {
	tag, err := tx.Exec(ctx, `
		INSERT INTO waybill.job
			(shard, id, tenant, tenant_key, type, filter, reason, rate, key, created_by, created_at, state, finished_at, matched)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)
		ON CONFLICT DO NOTHING`,
		int16(job.Tenant.Shard), uuid(job.ID), int64(job.Tenant.ID), job.TenantKey, string(job.Type), storedFilter(&job.Filter),
		storable(job.Reason), job.Rate, zeronull.Text(job.Key), storable(job.CreatedBy), job.CreatedAt,
		string(job.State), at(job.FinishedAt), job.Matched)
	return tag.RowsAffected(), err
}

func typeNames(types []outbox.JobType) []string {
	names := make([]string, len(types))
	for i, t := range types {
		names[i] = string(t)
	}
	return names
}

// Job implements outbox.Jobs.
func (s *Store) Job(ctx context.Context, tenant outbox.TenantRef, types []outbox.JobType, id outbox.JobID) (outbox.Job, error) {
	var found []outbox.Job
	err := s.read(ctx, people, func(b *pgx.Batch) {
		found = nil
		b.Queue(`
			SELECT `+jobColumns+`
			FROM unnest($1::smallint[]) AS s (shard)
			JOIN waybill.job AS j ON j.shard = s.shard AND j.id = $2
			WHERE j.type = ANY ($3) AND ($4 = 0 OR j.tenant = $4)`,
			shardColumn(shardsOf(tenant)), uuid(id), typeNames(types), int64(tenant.ID),
		).Query(collectJobs(&found))
	})
	return only(found, err)
}

// Jobs implements outbox.Jobs.
func (s *Store) Jobs(ctx context.Context, q outbox.JobQuery, page outbox.Page) ([]outbox.Job, error) {
	var list []outbox.Job
	tenant := "j.tenant = $4"
	if q.Tenant.ID == 0 {
		tenant = "$4 = 0"
	}
	err := s.read(ctx, people, func(b *pgx.Batch) {
		list = nil
		b.Queue(`
			SELECT `+jobColumns+`
			FROM unnest($1::smallint[]) AS s (shard)
			CROSS JOIN LATERAL (
				SELECT j.*
				FROM waybill.job AS j
				WHERE j.shard = s.shard AND `+tenant+` AND j.type = ANY ($2) AND ($3::uuid IS NULL OR `+past(page, "j.id", "$3")+`)
				ORDER BY j.id `+direction(page)+`
				LIMIT $5
			) AS j
			ORDER BY j.id `+direction(page)+`
			LIMIT $5`,
			shardColumn(shardsOf(q.Tenant)), typeNames(q.Types), uuid(q.After), int64(q.Tenant.ID), page.Limit,
		).Query(collectJobs(&list))
	})
	return list, err
}

// RequestJobCancel implements outbox.Jobs.
func (s *Store) RequestJobCancel(ctx context.Context, tenant outbox.TenantRef, types []outbox.JobType, id outbox.JobID) (outbox.Job, error) {
	job, err := s.Job(ctx, tenant, types, id)
	if err != nil || job.State.Ended() {
		return job, err
	}
	err = s.edit(ctx, func(tx pgx.Tx) error {
		return insertCommand(ctx, tx, job.Tenant, outbox.EndpointID{}, outbox.Command{Name: outbox.CommandCancelJob, Job: id})
	})
	return job, err
}

// LoadJobs implements outbox.JobWork.
func (s *Store) LoadJobs(ctx context.Context, shards []outbox.Shard) ([]outbox.Job, error) {
	var list []outbox.Job
	err := s.read(ctx, people, func(b *pgx.Batch) {
		list = nil
		b.Queue(`
			SELECT `+jobColumns+`
			FROM waybill.job AS j
			WHERE j.shard = ANY ($1) AND j.state IN ('running', 'stopping') AND j.type = ANY ($2)
			ORDER BY j.id`,
			shardColumn(shards), typeNames(outbox.LoopJobs),
		).Query(collectJobs(&list))
	})
	return list, err
}

// TakeJob implements outbox.JobWork.
func (s *Store) TakeJob(ctx context.Context, lease outbox.Lease, row outbox.OutboxRow) (*outbox.Job, error) {
	var f fence
	var found []outbox.Job
	err := s.transact(ctx, hot,
		func(b *pgx.Batch) error {
			f.queue(b, lease, map[outbox.Shard]bool{row.Shard: true})
			return nil
		},
		func(b *pgx.Batch) error {
			if err := f.check(); err != nil {
				return err
			}
			b.Queue(`
				DELETE FROM waybill.outbox
				WHERE shard = $1 AND pos = $2`,
				int16(row.Shard), row.Pos)
			// A cancellation has nothing to take back: it stops where it is.
			b.Queue(`
				UPDATE waybill.job AS j
				SET state = 'stopping'
				WHERE j.shard = $1 AND j.id = $2 AND j.tenant = $3 AND j.state = 'running' AND $4`,
				int16(row.Shard), uuid(row.Command.Job), int64(row.Tenant), row.Command.Name == outbox.CommandCancelJob)
			b.Queue(`
				SELECT `+jobColumns+`
				FROM waybill.job AS j
				WHERE j.shard = $1 AND j.id = $2 AND j.tenant = $3`,
				int16(row.Shard), uuid(row.Command.Job), int64(row.Tenant),
			).Query(collectJobs(&found))
			return nil
		},
	)
	if err != nil || len(found) == 0 {
		return nil, err
	}
	return &found[0], nil
}
