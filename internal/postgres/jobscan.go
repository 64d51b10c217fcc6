package postgres

import (
	"bytes"
	"context"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype/zeronull"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// jobTables are the tables that can hold deliveries a job is about.
func jobTables(job *outbox.Job) []string {
	switch job.Type {
	case outbox.JobErasure:
		return nil
	case outbox.JobCancellation, outbox.JobDeleteTenant:
		return []string{"delivery"}
	}
	var tables []string
	f := &job.Filter
	if f.State.Covers(outbox.StateDead) || f.State.Covers(outbox.StateCancelled) {
		tables = append(tables, "dead_letter")
	}
	if f.State.Covers(outbox.StateDelivered) {
		tables = append(tables, "attempt")
	}
	return tables
}

// jobRows selects, of one table, the next rows t that lie in the job's range, at most limit, in
// the order of their deliveries. What else the job asks of a row is said by wanted.
//
// Where the job is about one endpoint, that is what the index is entered with: the sum keeps the
// planner from entering it with the tenant, which may have a thousand times as much.
type jobRows struct {
	from   string // FROM and WHERE
	wanted string
	args   []any
}

func (r *jobRows) arg(v any) string {
	r.args = append(r.args, v)
	return placeholder(len(r.args))
}

// rowsOfJob takes the arguments that come before its own.
func rowsOfJob(table string, job *outbox.Job, limit int, args ...any) *jobRows {
	r := &jobRows{args: args}
	f := &job.Filter
	low, high := job.Range()
	where := []string{"t.shard = " + r.arg(int16(job.Tenant.Shard))}
	tenant := r.arg(int64(job.Tenant.ID))
	if f.Endpoint.IsZero() || table == "delivery" {
		where = append(where, "t.tenant = "+tenant)
	} else {
		where = append(where, "t.tenant + 0 = "+tenant, "t.endpoint = "+r.arg(uuid(f.Endpoint)))
	}
	where = append(where, "t.dlv > "+r.arg(low), "t.dlv < "+r.arg(high))
	if len(f.Deliveries) > 0 {
		where = append(where, "t.dlv = ANY ("+r.arg(idColumn(f.Deliveries))+"::uuid[])")
	}
	if table == "attempt" {
		where = append(where, "t.final", "t.id >= "+r.arg([16]byte(firstAttempt(outbox.DeliveryID(low)))))
	}
	r.from = `FROM waybill.` + table + ` AS t
		WHERE ` + strings.Join(where, " AND ") + `
		ORDER BY t.dlv
		LIMIT ` + r.arg(limit)
	r.want(table, job)
	return r
}

// want sets what the job asks of a row besides its place.
func (r *jobRows) want(table string, job *outbox.Job) {
	wanted := []string{"true"}
	if f := &job.Filter; table == "delivery" && !f.Endpoint.IsZero() {
		wanted = append(wanted, "t.endpoint = "+r.arg(uuid(f.Endpoint)))
	}
	if condition := r.ofTypes("t.event_type", job.Filter.EventTypes); condition != "" {
		wanted = append(wanted, condition)
	}
	created := r.arg(job.CreatedAt)
	switch table {
	case "delivery":
		wanted = append(wanted, "t.sendable_at <= "+created)
	case "dead_letter":
		wanted = append(wanted, "t.at <= "+created, "t.state = ANY ("+r.arg(deadStates(job))+")")
	case "attempt":
		wanted = append(wanted, "t.ended_at <= "+created)
	}
	r.wanted = strings.Join(wanted, " AND ")
}

// ofTypes is the condition that a column matches one of the patterns; "" where all do.
func (r *jobRows) ofTypes(column string, patterns []string) string {
	exact, prefixes := splitPatterns(patterns)
	if len(exact)+len(prefixes) == 0 {
		return ""
	}
	return `(` + column + ` = ANY (` + r.arg(exact) + `::text[]) OR EXISTS (
			SELECT
			FROM unnest(` + r.arg(prefixes) + `::text[]) AS p (prefix)
			WHERE starts_with(` + column + `, p.prefix) AND length(` + column + `) > length(p.prefix)
		))`
}

// splitPatterns takes event types apart into those that match exactly and the prefixes. Neither:
// every type matches.
func splitPatterns(patterns []string) (exact, prefixes []string) {
	exact, prefixes = []string{}, []string{} // a NULL array would make the condition NULL
	for _, pattern := range patterns {
		if pattern == "*" {
			return nil, nil
		}
		if prefix, ok := strings.CutSuffix(pattern, "*"); ok {
			prefixes = append(prefixes, prefix)
		} else {
			exact = append(exact, pattern)
		}
	}
	return exact, prefixes
}

// CountJob implements outbox.Jobs.
func (s *Store) CountJob(ctx context.Context, job outbox.Job, limit int) (matched int, capped bool, err error) {
	err = s.read(ctx, people, func(b *pgx.Batch) {
		matched, capped = 0, false
		for _, table := range jobTables(&job) {
			queueCount(b, table, &job, limit, func(found, read int) {
				matched += found
				capped = capped || read > limit
			})
		}
		if job.Type == outbox.JobErasure {
			queueCountErasable(b, &job, limit, func(found, read int) { matched, capped = found, read > limit })
		}
	})
	if capped {
		matched = 0
	}
	return matched, capped, err
}

// CountGone implements outbox.Jobs.
func (s *Store) CountGone(ctx context.Context, job outbox.Job, limit int) (gone int, err error) {
	var wanted []wantedReplay
	err = s.read(ctx, people, func(b *pgx.Batch) {
		wanted = nil
		for _, table := range jobTables(&job) {
			r := rowsOfJob(table, &job, limit)
			condition := "r.wanted"
			if table == "attempt" { // as they are counted
				r.wanted = "t.outcome = 'delivered' AND " + r.wanted
				condition += `
					AND NOT EXISTS (SELECT FROM waybill.delivery AS d WHERE d.shard = r.shard AND d.tenant = r.tenant AND d.dlv = r.dlv OFFSET 0)
					AND NOT EXISTS (SELECT FROM waybill.dead_letter AS l WHERE l.shard = r.shard AND l.tenant = r.tenant AND l.dlv = r.dlv OFFSET 0)`
			}
			b.Queue(`
				WITH read AS MATERIALIZED (
					SELECT t.shard, t.tenant, t.dlv, t.event, t.endpoint, `+r.wanted+` AS wanted
					`+r.from+`
				)
				SELECT DISTINCT r.dlv, r.event, r.endpoint
				FROM read AS r
				WHERE `+condition,
				r.args...,
			).Query(func(rows pgx.Rows) error {
				w := wantedReplay{shard: job.Tenant.Shard, tenant: job.Tenant.ID}
				_, err := pgx.ForEachRow(rows, []any{intoID(&w.dlv), intoID(&w.event), intoID(&w.endpoint)}, func() error {
					wanted = append(wanted, w)
					return nil
				})
				return err
			})
		}
	})
	if err != nil || len(wanted) == 0 {
		return 0, err
	}
	var days idRange
	for _, w := range wanted {
		days.add(w.event)
	}
	usable := map[outbox.DeliveryID]bool{}
	if err := s.read(ctx, people, func(b *pgx.Batch) {
		clear(usable)
		queueUsable(b, wanted, days, usable)
	}); err != nil {
		return 0, err
	}
	for _, w := range wanted {
		if !usable[w.dlv] {
			gone++
		}
	}
	return gone, nil
}

// queueCount counts what of one table the job is about, and how many rows had to be read for it,
// at most one more than the limit.
func queueCount(b *pgx.Batch, table string, job *outbox.Job, limit int, counted func(found, read int)) {
	r := rowsOfJob(table, job, limit+1)
	if len(job.Filter.Events) > 0 {
		r = rowsOfEvents(job, limit+1)
	}
	sql := `
		SELECT count(*) FILTER (WHERE wanted), count(*)
		FROM (
			SELECT ` + r.wanted + ` AS wanted
			` + r.from + `
		) AS read`
	if table == "attempt" {
		// Each once, and only those that are neither on their way again nor have died since. OFFSET 0
		// keeps the looks from becoming joins, which could walk what they are to look into.
		sql = `
			WITH read AS MATERIALIZED (
				SELECT t.shard, t.tenant, t.dlv, t.outcome = 'delivered' AND ` + r.wanted + ` AS wanted
				` + r.from + `
			)
			SELECT
				(
					SELECT count(DISTINCT r.dlv)
					FROM read AS r
					WHERE r.wanted
						AND NOT EXISTS (SELECT FROM waybill.delivery AS d WHERE d.shard = r.shard AND d.tenant = r.tenant AND d.dlv = r.dlv OFFSET 0)
						AND NOT EXISTS (SELECT FROM waybill.dead_letter AS l WHERE l.shard = r.shard AND l.tenant = r.tenant AND l.dlv = r.dlv OFFSET 0)
				),
				(SELECT count(*) FROM read)`
	}
	b.Queue(sql, r.args...).QueryRow(func(row pgx.Row) error {
		var found, read int
		err := row.Scan(&found, &read)
		counted(found, read)
		return err
	})
}

// deadStates are the states of dead letters that a replay is about; all where it is no job's.
func deadStates(job *outbox.Job) []string {
	var states []string
	for _, state := range []outbox.DeliveryState{outbox.StateDead, outbox.StateCancelled} {
		if job == nil || job.Filter.State.Covers(state) {
			states = append(states, string(state))
		}
	}
	return states
}

// rowsOfEvents selects the pending deliveries t of the events a cancellation names: each lies in
// the range of its event's millisecond.
func rowsOfEvents(job *outbox.Job, limit int, args ...any) *jobRows {
	r := &jobRows{args: args}
	events := job.Filter.Events
	low, high := job.Range()
	r.from = `FROM unnest(` +
		r.arg(idColumn(events)) + `::uuid[], ` +
		r.arg(column(events, func(id *outbox.EventID) zeronull.UUID { return uuid(outbox.DeliveryFloor(id.Time())) })) + `::uuid[], ` +
		r.arg(column(events, func(id *outbox.EventID) zeronull.UUID { return uuid(outbox.DeliveryCeil(id.Time())) })) + `::uuid[])
			AS w (event, low, high)
		JOIN waybill.delivery AS t ON t.shard = ` + r.arg(int16(job.Tenant.Shard)) + ` AND t.tenant = ` + r.arg(int64(job.Tenant.ID)) + `
			AND t.dlv BETWEEN w.low AND w.high AND t.event = w.event
		WHERE t.dlv > ` + r.arg(low) + ` AND t.dlv < ` + r.arg(high) + `
		ORDER BY t.dlv
		LIMIT ` + r.arg(limit)
	r.want("delivery", job)
	return r
}

// DeliveriesOf implements outbox.Jobs.
func (s *Store) DeliveriesOf(ctx context.Context, tenant outbox.TenantRef, ids []outbox.DeliveryID) (map[outbox.DeliveryID]bool, error) {
	known := map[outbox.DeliveryID]bool{}
	if len(ids) == 0 {
		return known, nil
	}
	oldest := slices.MinFunc(ids, func(a, b outbox.DeliveryID) int { return bytes.Compare(a[:], b[:]) })
	err := s.read(ctx, people, func(b *pgx.Batch) {
		b.Queue(`
			SELECT w.dlv
			FROM unnest($3::uuid[]) AS w (dlv)
			WHERE EXISTS (SELECT FROM waybill.delivery AS d WHERE d.shard = $1 AND d.tenant = $2 AND d.dlv = w.dlv)
				OR EXISTS (SELECT FROM waybill.dead_letter AS l WHERE l.shard = $1 AND l.tenant = $2 AND l.dlv = w.dlv)
				OR EXISTS (SELECT FROM waybill.attempt AS a WHERE a.shard = $1 AND a.tenant = $2 AND a.dlv = w.dlv AND a.id >= $4)`,
			int16(tenant.Shard), int64(tenant.ID),
			idColumn(ids), uuid(firstAttempt(oldest)),
		).Query(func(rows pgx.Rows) error {
			var id outbox.DeliveryID
			_, err := pgx.ForEachRow(rows, []any{intoID(&id)}, func() error {
				known[id] = true
				return nil
			})
			return err
		})
	})
	return known, err
}
