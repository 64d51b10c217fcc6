package postgres

import (
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// erasing is what a step of an erasure found.
type erasing struct {
	read bool             // the step looked at events
	rows []erasable       // wanted, in their order
	last outbox.EventID   // the last it looked at
	full bool             // there may be more behind it
	take []outbox.EventID // whose bytes go
	left bool             // there may be more in quarantine
}

// erasable is an event that an erasure is about.
type erasable struct {
	id   outbox.EventID
	kept bool // its bytes are still there
}

// eventsOfErasure reads the next events e of an erasure, at most limit, wherever they are kept. One
// that is just being moved to where it is kept longer can be read twice.
func eventsOfErasure(job *outbox.Job, limit int) *jobRows {
	r := &jobRows{}
	f := &job.Filter
	low, high := job.Range()
	where := []string{
		"e.shard = " + r.arg(int16(job.Tenant.Shard)), "e.tenant = " + r.arg(int64(job.Tenant.ID)),
		"e.id > " + r.arg(low), "e.id < " + r.arg(high),
	}
	if len(f.Events) > 0 {
		where = append(where, "e.id = ANY ("+r.arg(idColumn(f.Events))+"::uuid[])")
	}
	wanted := []string{"e.created_at <= " + r.arg(job.CreatedAt)}
	if len(f.Metadata) > 0 {
		wanted = append(wanted, "coalesce(e.metadata, '{}') @> "+r.arg(f.Metadata)+"::jsonb")
	}
	if condition := r.ofTypes("e.type", f.EventTypes); condition != "" {
		wanted = append(wanted, condition)
	}
	most := r.arg(limit)
	of := func(table string) string {
		return `(
			SELECT e.id, ` + strings.Join(wanted, " AND ") + ` AS wanted, NOT ` + erased + ` AS kept
			FROM ` + table + ` AS e
			WHERE ` + strings.Join(where, " AND ") + `
			ORDER BY e.id
			LIMIT ` + most + `
		)`
	}
	r.from = `FROM (
			` + of("waybill.event") + ` UNION ALL ` + of("waybill.event_kept") + `
			ORDER BY id
			LIMIT ` + most + `
		) AS e`
	return r
}

func queueCountErasable(b *pgx.Batch, job *outbox.Job, limit int, counted func(found, read int)) {
	r := eventsOfErasure(job, limit+1)
	b.Queue(`
		SELECT count(DISTINCT e.id) FILTER (WHERE e.wanted AND e.kept), count(*)
		`+r.from,
		r.args...,
	).QueryRow(func(row pgx.Row) error {
		var found, read int
		err := row.Scan(&found, &read)
		counted(found, read)
		return err
	})
}

// queueErasable reads the next events from where the caller's job stands.
func (s *jobStep) queueErasable(b *pgx.Batch, job *outbox.Job) {
	r := eventsOfErasure(job, jobScan)
	s.erasing.read = true
	b.Queue(`
		SELECT e.id, e.wanted, e.kept
		`+r.from,
		r.args...,
	).Query(func(rows pgx.Rows) error {
		x := &s.erasing
		var c erasable
		var wanted bool
		read := 0
		_, err := pgx.ForEachRow(rows, []any{intoID(&c.id), &wanted, &c.kept}, func() error {
			x.last, read = c.id, read+1
			if n := len(x.rows); wanted && n > 0 && x.rows[n-1].id == c.id {
				x.rows[n-1].kept = x.rows[n-1].kept || c.kept
			} else if wanted {
				x.rows = append(x.rows, c)
			}
			return nil
		})
		x.full = read >= jobScan
		return err
	})
}

// queueErase takes the bytes away, first where an event is stored and then where it may have been
// copied to meanwhile: the first waits for the copying, the second sees it done.
func (s *jobStep) queueErase(b *pgx.Batch) {
	x := &s.erasing
	if job := &s.step.Job; x.read && job.Filter.Whole() {
		low, high := job.Arrived()
		b.Queue(dropBodies("s.tenant = $1"), int64(job.Tenant.ID), low, high, s.limit).Exec(func(tag pgconn.CommandTag) error {
			x.left = tag.RowsAffected() >= int64(s.limit)
			return nil
		})
	}
	if len(x.rows) > s.limit {
		x.rows = x.rows[:s.limit]
		x.last, x.full = x.rows[s.limit-1].id, true
	}
	for _, c := range x.rows {
		s.step.Erased = append(s.step.Erased, c.id)
		if c.kept {
			x.take = append(x.take, c.id)
		}
	}
	if len(x.take) == 0 {
		return
	}
	of := &s.step.Job.Tenant
	for _, table := range []string{"waybill.event", "waybill.event_kept"} {
		b.Queue(`
			UPDATE `+table+`
			SET `+takeBytes+`
			WHERE shard = $1 AND tenant = $2 AND id = ANY ($3::uuid[])`,
			int16(of.Shard), int64(of.ID), idColumn(x.take))
	}
}

// erasedAll enters what was erased into the job's figures, and moves its cursor. Where an earlier
// run of the step was committed the job may be further already.
func (s *jobStep) erasedAll() {
	job, x := &s.step.Job, &s.erasing
	job.Done += int64(len(x.take))
	job.Matched = max(job.Matched, job.Done)
	if x.full || x.left {
		if compareIDs(x.last, outbox.EventID(job.Cursor)) > 0 {
			job.Cursor = x.last
		}
	} else if !job.Scanned {
		job.ScanEnded()
	}
}
