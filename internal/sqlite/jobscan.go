package sqlite

import (
	"context"
	"encoding/hex"
	"errors"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// jobTables are the tables that can hold deliveries a job is about.
func jobTables(j *outbox.Job) []string {
	switch j.Type {
	case outbox.JobErasure:
		return nil
	case outbox.JobCancellation, outbox.JobDeleteTenant:
		return []string{"waybill_delivery"}
	}
	var tables []string
	if of := j.Filter.State; of.Covers(outbox.StateDead) || of.Covers(outbox.StateCancelled) {
		tables = append(tables, "waybill_dead_letter")
	}
	if j.Filter.State.Covers(outbox.StateDelivered) {
		tables = append(tables, "waybill_attempt")
	}
	return tables
}

// jobRow is a row that a job looks at.
type jobRow struct {
	dlv      outbox.DeliveryID
	event    outbox.EventID
	endpoint outbox.EndpointID
	wanted   bool // by what its row tells
}

// jobRows reads the next rows of a table that lie in the job's range, at most limit, in the order
// of their deliveries.
func jobRows(ctx context.Context, r *session, table string, j *outbox.Job, limit int, each func(c jobRow) error) (read int, err error) {
	f := &j.Filter
	low, high := j.Range()
	where := filter{}.
		and("t.tenant = ?", int64(j.Tenant.ID)).
		and("t.dlv > ?", low[:]).
		and("t.dlv < ?", high[:]).
		andIf(table == "waybill_attempt", "t.final = 1 AND t.outcome = 'delivered'")
	if len(f.Deliveries) > 0 {
		where = where.and("t.dlv IN (SELECT unhex(value) FROM json_each(?))", hexList(f.Deliveries))
	}
	if len(f.Events) > 0 {
		// The plus keeps the search from starting with the events, which have no index.
		where = where.and("+t.event IN (SELECT unhex(value) FROM json_each(?))", hexList(f.Events))
	}
	wanted := filter{}.
		andIf(!f.Endpoint.IsZero(), "t.endpoint = ?", f.Endpoint[:]).
		andIf(table == "waybill_delivery", "t.sendable_at <= ?", micros(j.CreatedAt)).
		andIf(table == "waybill_dead_letter", "t.at <= ?", micros(j.CreatedAt)).
		andIf(table == "waybill_attempt", "t.finished_at <= ?", micros(j.CreatedAt))
	if table == "waybill_dead_letter" && f.State != outbox.ReplayAll {
		wanted = wanted.and("t.state = ?", string(f.State))
	}
	conditions, args := wanted.sql()
	in, inArgs := where.sql()
	err = r.eachOnce(ctx, `
		SELECT t.dlv, t.event, t.endpoint, t.event_type, `+conditions+`
		FROM `+table+` AS t
		WHERE `+in+`
		ORDER BY t.dlv
		LIMIT ?`,
		append(append(args, inArgs...), limit),
		func(scan scan) error {
			var c jobRow
			var eventType string
			if err := scan(idTo{(*[16]byte)(&c.dlv)}, idTo{(*[16]byte)(&c.event)}, idTo{(*[16]byte)(&c.endpoint)}, &eventType, &c.wanted); err != nil {
				return err
			}
			read++
			c.wanted = c.wanted && f.WantsType(eventType)
			return each(c)
		})
	return read, err
}

// hexList is a list of ids as json_each takes it, each to be taken out of its hex form.
func hexList[I ~[16]byte](ids []I) string {
	texts := make([]string, len(ids))
	for i, id := range ids {
		texts[i] = hex.EncodeToString(id[:])
	}
	return toJSON(texts)
}

// CountJob counts what a job is about.
func (s *Store) CountJob(ctx context.Context, job outbox.Job, limit int) (matched int, capped bool, err error) {
	err = s.read(ctx, func(r *session) error {
		matched, capped = 0, false
		for _, table := range jobTables(&job) {
			var last outbox.DeliveryID
			read, err := jobRows(ctx, r, table, &job, limit+1, func(c jobRow) error {
				if !c.wanted || c.dlv == last {
					return nil
				}
				last = c.dlv
				if table == "waybill_attempt" {
					if ended, err := deliveredNow(r, c.dlv); err != nil || !ended {
						return err
					}
				}
				matched++
				return nil
			})
			if err != nil {
				return err
			}
			capped = capped || read > limit
		}
		if job.Type == outbox.JobErasure {
			x, err := erasables(ctx, r, &job, limit+1)
			if err != nil {
				return err
			}
			matched, capped = x.kept(), x.read > limit
		}
		if capped {
			matched = 0
		}
		return nil
	})
	return matched, capped, err
}

// CountGone counts what a replay would skip.
func (s *Store) CountGone(ctx context.Context, job outbox.Job, limit int) (gone int, err error) {
	err = s.read(ctx, func(r *session) error {
		gone = 0
		for _, table := range jobTables(&job) {
			var found []jobRow
			if _, err := jobRows(ctx, r, table, &job, limit, func(c jobRow) error {
				if c.wanted && (len(found) == 0 || found[len(found)-1].dlv != c.dlv) {
					found = append(found, c)
				}
				return nil
			}); err != nil {
				return err
			}
			for _, c := range found {
				if table == "waybill_attempt" {
					if ended, err := deliveredNow(r, c.dlv); err != nil {
						return err
					} else if !ended {
						continue
					}
				}
				_, err := replayable(r, &outbox.Delivery{Shard: job.Tenant.Shard, Tenant: job.Tenant.ID, Event: c.event, Endpoint: c.endpoint})
				switch {
				case errors.Is(err, outbox.ErrEndpointGone), errors.Is(err, outbox.ErrPayloadGone):
					gone++
				case err != nil:
					return err
				}
			}
		}
		return nil
	})
	return gone, err
}

// deliveredNow reports whether a delivery with attempts that ended rounds counts as delivered: it
// is not on its way again, nor has it died since.
func deliveredNow(r *session, id outbox.DeliveryID) (yes bool, err error) {
	err = r.get(`
		SELECT EXISTS (SELECT 1 FROM waybill_attempt WHERE dlv = ?1 AND final = 1 AND outcome = 'delivered')
			AND NOT EXISTS (SELECT 1 FROM waybill_delivery WHERE dlv = ?1)
			AND NOT EXISTS (SELECT 1 FROM waybill_dead_letter WHERE dlv = ?1)`,
		[]any{id[:]}, &yes)
	return yes, err
}

// DeliveriesOf returns those of the deliveries that are the tenant's.
func (s *Store) DeliveriesOf(ctx context.Context, tenant outbox.TenantRef, ids []outbox.DeliveryID) (map[outbox.DeliveryID]bool, error) {
	known := map[outbox.DeliveryID]bool{}
	err := s.read(ctx, func(r *session) error {
		for _, id := range ids {
			var found bool
			if err := r.get(`
				SELECT EXISTS (SELECT 1 FROM waybill_delivery WHERE dlv = ?1 AND tenant = ?2)
					OR EXISTS (SELECT 1 FROM waybill_dead_letter WHERE dlv = ?1 AND tenant = ?2)
					OR EXISTS (SELECT 1 FROM waybill_attempt WHERE dlv = ?1 AND tenant = ?2)`,
				[]any{id[:], int64(tenant.ID)}, &found); err != nil {
				return err
			}
			if found {
				known[id] = true
			}
		}
		return nil
	})
	return known, err
}
