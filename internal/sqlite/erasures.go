package sqlite

import (
	"context"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// erasable is an event that an erasure is about.
type erasable struct {
	id   outbox.EventID
	kept bool // its bytes are still there
}

// found is what a look for events to erase came upon.
type found struct {
	rows []erasable // wanted, in their order
	read int
	last outbox.EventID // the last it looked at
}

func (f *found) kept() (n int) {
	for _, c := range f.rows {
		if c.kept {
			n++
		}
	}
	return n
}

// erasables reads the next events of an erasure, at most limit.
func erasables(ctx context.Context, r *session, job *outbox.Job, limit int) (f found, err error) {
	low, high := job.Range()
	filter := filter{}.
		and("v.shard = ?", int64(job.Tenant.Shard)).
		and("v.tenant = ?", int64(job.Tenant.ID)).
		and("v.id > ?", low[:]).
		and("v.id < ?", high[:])
	if len(job.Filter.Events) > 0 {
		filter = filter.and("v.id IN (SELECT unhex(value) FROM json_each(?))", hexList(job.Filter.Events))
	}
	where, args := filter.sql()
	err = r.eachOnce(ctx, `
		SELECT `+eventColumns+`, `+erased+`
		FROM waybill_event v
		WHERE `+where+`
		ORDER BY v.id
		LIMIT ?`,
		append(args, limit),
		func(scan scan) error {
			var e outbox.Event
			var gone bool
			if err := scan(append(eventTo(&e), &gone)...); err != nil {
				return err
			}
			f.last = e.ID
			f.read++
			if !e.CreatedAt.After(job.CreatedAt) && job.Filter.WantsType(e.Type) && hasAll(e.Metadata, job.Filter.Metadata) {
				f.rows = append(f.rows, erasable{e.ID, !gone})
			}
			return nil
		})
	return f, err
}

func hasAll(metadata, wanted map[string]string) bool {
	for name, value := range wanted {
		if has, there := metadata[name]; !there || has != value {
			return false
		}
	}
	return true
}

// erase takes the bytes of the next events, and of what waits in quarantine, away, from where the caller's job stands. Where an
// earlier run of the step was committed the stored job may be further already.
func (j *jobStep) erase(asked *outbox.Job) error {
	job := &j.step.Job
	look := *job
	look.Cursor = asked.Cursor
	found, err := erasables(j.ctx, j.w, &look, jobScan)
	if err != nil {
		return err
	}
	full := found.read >= jobScan
	if len(found.rows) > j.limit {
		found.rows = found.rows[:j.limit]
		found.last, full = found.rows[j.limit-1].id, true
	}
	for _, c := range found.rows {
		j.step.Erased = append(j.step.Erased, c.id)
		if !c.kept {
			continue
		}
		if _, err := j.w.exec(`
			UPDATE waybill_event
			SET `+takeBytes+`
			WHERE shard = ? AND tenant = ? AND id = ?`,
			int64(job.Tenant.Shard), int64(job.Tenant.ID), c.id[:]); err != nil {
			return err
		}
		job.Done++
	}
	job.Matched = max(job.Matched, job.Done)
	if job.Filter.Whole() {
		low, high := job.Arrived()
		n, err := dropBodies(j.w, "s.tenant = ?", int64(job.Tenant.ID), low, high, j.limit)
		if err != nil {
			return err
		}
		full = full || n >= int64(j.limit)
	}
	if full {
		if compareIDs(found.last, outbox.EventID(job.Cursor)) > 0 {
			job.Cursor = found.last
		}
	} else if !job.Scanned {
		job.ScanEnded()
	}
	return nil
}
