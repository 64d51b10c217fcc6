package postgres

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// Deliveries implements outbox.Reading. The three tables that hold deliveries are each read in
// order of dlv, up to a bound, and merged; the rows of the page are then read by their keys, in
// the same snapshot, so a delivery that ends meanwhile is neither missed nor shown twice.
func (s *Store) Deliveries(ctx context.Context, q outbox.DeliveryQuery, page outbox.Page) ([]outbox.DeliveryView, outbox.DeliveryID, error) {
	m := merge[outbox.DeliveryID]{page: page}
	var list []outbox.DeliveryView
	look := people
	look.snapshot = true
	err := s.transact(ctx, look,
		func(b *pgx.Batch) error {
			sources := deliverySources(q)
			for _, source := range sources {
				source.queue(b, q, page, outbox.MaxListScan/len(sources), &m)
			}
			return nil
		},
		func(b *pgx.Batch) error {
			var keys []deliveryKey
			for _, row := range m.cut() {
				keys = append(keys, deliveryKey{row.tenant.Shard, row.id})
			}
			queueViews(b, q.Tenant, keys, &list)
			return nil
		},
	)
	if err != nil {
		return nil, outbox.DeliveryID{}, err
	}
	return list, m.next, nil
}

// deliverySource is one of the three tables as a list reads it.
type deliverySource struct {
	table string
}

// deliverySources are the tables that can hold what the query asks for.
func deliverySources(q outbox.DeliveryQuery) []deliverySource {
	wants := func(state outbox.DeliveryState) bool {
		return len(q.States) == 0 || slices.Contains(q.States, state)
	}
	var sources []deliverySource
	if wants(outbox.StatePending) && q.Reason == "" {
		sources = append(sources, deliverySource{table: "delivery"})
	}
	if wants(outbox.StateDead) || wants(outbox.StateCancelled) {
		sources = append(sources, deliverySource{table: "dead_letter"})
	}
	if wants(outbox.StateDelivered) && q.Reason == "" && q.Kind == "" {
		sources = append(sources, deliverySource{table: "attempt"})
	}
	return sources
}

// lastAttempt finds the last attempt of a pending row r that was tried. It lies in no day before
// the event's, less what an id may be ahead of its time, and in none that is still to come: of all
// partitions only those are looked into, row by row.
const lastAttempt = `
	SELECT a.status_code, a.kind
	FROM waybill.attempt AS a
	WHERE a.shard = r.shard AND a.dlv = r.dlv AND r.attempt > 0
		AND a.id >= (lpad(to_hex(('x0000' || translate(left(r.dlv::text, 13), '-', ''))::bit(64)::bigint - 360000), 12, '0') || repeat('0', 20))::uuid
		AND a.id < (SELECT (lpad(to_hex(floor(extract(epoch FROM now()))::bigint * 1000 + 86400000), 12, '0') || repeat('0', 20))::uuid)
	ORDER BY a.round DESC, a.n DESC, a.id DESC
	LIMIT 1`

// conditions returns what the query asks of a row r that was read, adding its parameters to args.
func (d deliverySource) conditions(q outbox.DeliveryQuery, arg func(any) string) []string {
	var where []string
	add := func(condition string) { where = append(where, condition) }
	if !q.Event.IsZero() {
		add("r.event = " + arg(uuid(q.Event)))
	}
	if !q.Endpoint.IsZero() && d.table == "delivery" {
		add("r.endpoint = " + arg(uuid(q.Endpoint)))
	}
	if len(q.EventTypes) > 0 {
		add("r.event_type = ANY (" + arg(q.EventTypes) + ")")
	}
	status, kind := "r.status_code", "r.kind"
	switch d.table {
	case "attempt":
		add("r.outcome = 'delivered'")
		// A late success leaves a pending row or a dead letter in force.
		add("NOT EXISTS (SELECT FROM waybill.delivery AS d WHERE d.shard = r.shard AND d.dlv = r.dlv)")
		add("NOT EXISTS (SELECT FROM waybill.dead_letter AS l WHERE l.shard = r.shard AND l.dlv = r.dlv)")
	case "dead_letter":
		status = "r.last_status"
		if len(q.States) > 0 {
			var states []string
			for _, state := range q.States {
				states = append(states, string(state))
			}
			add("r.state = ANY (" + arg(states) + ")")
		}
		if q.Reason != "" {
			add("r.reason = " + arg(string(q.Reason)))
		}
	case "delivery":
		status, kind = "last.status_code", "last.kind"
	}
	if q.Kind != "" {
		add(kind + " = " + arg(string(q.Kind)))
	}
	switch {
	case q.StatusCode != 0 && q.StatusClass:
		add(status + " / 100 = " + arg(q.StatusCode))
	case q.StatusCode != 0:
		add(status + " = " + arg(q.StatusCode))
	}
	return where
}

func (d deliverySource) queue(b *pgx.Batch, q outbox.DeliveryQuery, page outbox.Page, scan int, m *merge[outbox.DeliveryID]) {
	var args []any
	arg := func(v any) string {
		args = append(args, v)
		return placeholder(len(args))
	}
	// The key range, and what an index finds.
	keys := []string{"t.shard = s.shard"}
	low, high := deliveryBounds(q)
	if page.Ascending && !q.After.IsZero() && bytes.Compare(q.After[:], low[:]) >= 0 {
		keys = append(keys, "t.dlv > "+arg(uuid(q.After)))
	} else if !low.IsZero() {
		keys = append(keys, "t.dlv >= "+arg(uuid(low)))
	}
	if !page.Ascending && !q.After.IsZero() && (high.IsZero() || bytes.Compare(q.After[:], high[:]) < 0) {
		high = q.After
	}
	if !high.IsZero() {
		keys = append(keys, "t.dlv < "+arg(uuid(high)))
	}
	if d.table == "attempt" {
		keys = append(keys, "t.final")
		if !low.IsZero() {
			keys = append(keys, "t.id >= "+arg(uuid(firstAttempt(low))))
		}
	}
	if q.Tenant.ID != 0 {
		keys = append(keys, "t.tenant = "+arg(int64(q.Tenant.ID)))
	}
	if !q.Endpoint.IsZero() && d.table != "delivery" {
		keys = append(keys, "t.endpoint = "+arg(uuid(q.Endpoint)))
	}
	conditions := d.conditions(q, arg)
	each := scan // rows of a shard at most
	if len(conditions) == 0 {
		each = page.Limit + 1
	}
	last := ""
	if d.table == "delivery" && (q.Kind != "" || q.StatusCode != 0) {
		scan /= 4 // the attempt is read too, which costs more than the row
		last = " LEFT JOIN LATERAL (" + lastAttempt + ") AS last ON true"
	}
	order := direction(page)
	shards, limit, rows, most := arg(shardColumn(shardsOf(q.Tenant))), arg(page.Limit+1), arg(scan), arg(min(each, scan))
	b.Queue(`
		WITH scope AS MATERIALIZED (
			SELECT s.shard
			FROM unnest(`+shards+`::smallint[]) AS s (shard)
			CROSS JOIN LATERAL (
				SELECT
				FROM waybill.`+d.table+` AS t
				WHERE `+strings.Join(keys, " AND ")+`
				ORDER BY t.dlv `+order+` -- else, of a long range, all is collected first
				LIMIT 1
			) AS any_row
		),
		share AS MATERIALIZED (
			SELECT least(greatest(`+rows+`::int / greatest(count(*), 1), 1), `+most+`) AS rows
			FROM scope
		),
		r AS MATERIALIZED (
			SELECT t.*
			FROM scope AS s
			CROSS JOIN LATERAL (
				SELECT t.*
				FROM (
					SELECT t.*
					FROM waybill.`+d.table+` AS t
					WHERE `+strings.Join(keys, " AND ")+`
					ORDER BY t.dlv `+order+`
					LIMIT `+most+` -- which the planner knows, as it does not know the share
				) AS t
				LIMIT (SELECT rows FROM share)
			) AS t
		)
		SELECT found.shard, 0, found.dlv, false
		FROM (
			SELECT r.shard, r.dlv
			FROM (SELECT * FROM r ORDER BY r.dlv `+order+` OFFSET 0) AS r`+last+` -- in order first: the conditions end with the page
			WHERE `+all(conditions)+`
			ORDER BY r.dlv `+order+`
			LIMIT `+limit+`
		) AS found
		UNION ALL
		SELECT shard, 0, (array_agg(dlv ORDER BY dlv `+opposite(page)+`))[1], true
		FROM r
		GROUP BY shard
		HAVING count(*) >= (SELECT rows FROM share)`,
		args...,
	).Query(m.collect)
}

// deliveryBounds is the range of ids [low, high) the query allows; zero is no bound.
func deliveryBounds(q outbox.DeliveryQuery) (low, high outbox.DeliveryID) {
	if !q.From.IsZero() {
		low = outbox.DeliveryFloor(q.From)
	}
	if !q.To.IsZero() {
		high = outbox.DeliveryFloor(q.To)
	}
	if !q.Event.IsZero() {
		first := outbox.DeliveryFloor(q.Event.Time())
		beyond := outbox.DeliveryFloor(q.Event.Time().Add(time.Millisecond))
		if bytes.Compare(first[:], low[:]) > 0 {
			low = first
		}
		if high.IsZero() || bytes.Compare(beyond[:], high[:]) < 0 {
			high = beyond
		}
	}
	return low, high
}

// merge puts together what several readers found in the order of their keys. A reader that was
// stopped by its bound says how far it came, and nothing beyond the nearest such point is shown:
// the others may have seen rows there that it has not.
type merge[I ~[16]byte] struct {
	page  outbox.Page
	rows  []mergeRow[I]
	stops []I
	next  I // where the next page goes on; zero: there is none
}

type mergeRow[I ~[16]byte] struct {
	tenant outbox.TenantRef // of a delivery, the shard alone
	id     I
}

// collect reads rows of (shard, tenant, id, is a stop).
func (m *merge[I]) collect(rows pgx.Rows) error {
	var row mergeRow[I]
	var stop bool
	_, err := pgx.ForEachRow(rows, []any{intoShard(&row.tenant.Shard), &row.tenant.ID, intoID(&row.id), &stop}, func() error {
		if stop {
			m.stops = append(m.stops, row.id)
		} else {
			m.rows = append(m.rows, row)
		}
		return nil
	})
	return err
}

// before orders ids as the page does.
func (m *merge[I]) before(a, b I) int {
	c := bytes.Compare(a[:], b[:])
	if m.page.Ascending {
		return c
	}
	return -c
}

// cut returns the rows of the page and sets next.
func (m *merge[I]) cut() []mergeRow[I] {
	slices.SortFunc(m.rows, func(a, b mergeRow[I]) int {
		return cmp.Or(m.before(a.id, b.id), cmp.Compare(a.tenant.ID, b.tenant.ID))
	})
	m.rows = slices.CompactFunc(m.rows, func(a, b mergeRow[I]) bool { return a == b })
	if len(m.stops) > 0 {
		m.next = slices.MinFunc(m.stops, m.before)
		m.rows = slices.DeleteFunc(m.rows, func(r mergeRow[I]) bool { return m.before(r.id, m.next) > 0 })
	}
	// Where a page ends is told by an id, which several tenants' events may have: they stay together.
	// Such a page may show all that was found, which is still not all there is.
	if len(m.rows) > m.page.Limit {
		end := m.page.Limit
		for end < len(m.rows) && m.rows[end].id == m.rows[end-1].id {
			end++
		}
		m.rows = m.rows[:end]
		m.next = m.rows[end-1].id
	}
	return m.rows
}

// past is the condition that a row comes after the one a cursor names, in the page's order.
func past(page outbox.Page, column, cursor string) string {
	if page.Ascending {
		return column + " > " + cursor
	}
	return column + " < " + cursor
}

func direction(page outbox.Page) string {
	if page.Ascending {
		return "ASC"
	}
	return "DESC"
}

func opposite(page outbox.Page) string {
	return direction(outbox.Page{Ascending: !page.Ascending})
}

func all(conditions []string) string {
	if len(conditions) == 0 {
		return "true"
	}
	return strings.Join(conditions, " AND ")
}
