package postgres

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype/zeronull"

	"github.com/waybill-dev/waybill/internal/outbox"
)

func placeholder(n int) string { return "$" + strconv.Itoa(n) }

// What an event r can have: its deliveries all lie in its millisecond. Another tenant of the shard may
// have an event of the same id.
const (
	hasPending = `EXISTS (
		SELECT FROM waybill.delivery AS d
		WHERE d.shard = r.shard AND d.dlv BETWEEN r.low AND r.high AND d.event = r.id AND d.tenant = r.tenant
	)`
	isWaiting = `EXISTS (
		SELECT FROM waybill.outbox AS o
		WHERE o.shard = r.shard AND o.kind = 0 AND o.event = r.id AND o.tenant = r.tenant
	)`
	hasDead = `EXISTS (
		SELECT FROM waybill.dead_letter AS l
		WHERE l.shard = r.shard AND l.dlv BETWEEN r.low AND r.high AND l.event = r.id AND l.tenant = r.tenant AND l.state = 'dead'
	)`
	hasEnded = `EXISTS (
		SELECT FROM waybill.dead_letter AS l
		WHERE l.shard = r.shard AND l.dlv BETWEEN r.low AND r.high AND l.event = r.id AND l.tenant = r.tenant
	)`
	hasDelivered = `EXISTS (
		SELECT FROM waybill.attempt AS a
		WHERE a.shard = r.shard AND a.dlv BETWEEN r.low AND r.high AND a.event = r.id AND a.tenant = r.tenant AND a.final
	)`
)

// eventState sums up the deliveries of an event r.
const eventState = `
	CASE
		WHEN ` + hasPending + ` THEN 'pending'
		WHEN ` + isWaiting + ` THEN 'pending'
		WHEN ` + hasDead + ` THEN 'failed'
		WHEN ` + hasEnded + ` THEN 'cancelled'
		WHEN ` + hasDelivered + ` THEN 'delivered'
		ELSE 'unmatched'
	END`

// inState asks whether an event r is in a state, looking first at what most events do not have. It
// is one expression: the planner would make joins of what is only to be asked row by row.
func inState(state outbox.EventState, arg func(any) string) string {
	switch state {
	case outbox.EventUnrouted:
		return "CASE WHEN " + hasPending + " THEN true ELSE " + isWaiting + " END"
	case outbox.EventFailed:
		return "CASE WHEN " + hasDead + " THEN " + eventState + " END = " + arg(string(state))
	case outbox.EventCancelled:
		return "CASE WHEN " + hasEnded + " THEN " + eventState + " END = " + arg(string(state))
	}
	return eventState + " = " + arg(string(state))
}

// millisecond adds to an event e the range of its deliveries.
const millisecond = `
	(substr(e.id::text, 1, 13) || '-0000-0000-000000000000')::uuid AS low,
	(substr(e.id::text, 1, 13) || '-ffff-ffff-ffffffffffff')::uuid AS high`

type eventKey struct {
	tenant outbox.TenantRef
	id     outbox.EventID
}

// queueEventViews reads events by their keys into list, in that order.
func queueEventViews(b *pgx.Batch, keys []eventKey, list *[]outbox.EventView) {
	if len(keys) == 0 {
		return
	}
	var days idRange
	for _, k := range keys {
		days.add(k.id)
	}
	b.Queue(`
		SELECT r.id, r.shard, r.tenant, r.type, r.ordering_key, r.metadata, r.sha256, r.created_at, r.size, r.gone, t.key, `+eventState+`
		FROM (
			SELECT w.n, w.shard, w.tenant, w.id, e.type, e.ordering_key, e.metadata, e.sha256, e.created_at,
				coalesce(e.erased_bytes, octet_length(e.payload)) AS size, `+erased+` AS gone,
				`+strings.ReplaceAll(millisecond, "e.id", "w.id")+`
			FROM unnest($1::smallint[], $2::bigint[], $3::uuid[]) WITH ORDINALITY AS w (shard, tenant, id, n)
			CROSS JOIN LATERAL (`+eventOfW+`) AS e
			WHERE $4
		) AS r
		LEFT JOIN waybill.tenant AS t ON t.id = r.tenant
		ORDER BY r.n`,
		column(keys, func(k *eventKey) int16 { return int16(k.tenant.Shard) }),
		column(keys, func(k *eventKey) int64 { return int64(k.tenant.ID) }),
		column(keys, func(k *eventKey) zeronull.UUID { return uuid(k.id) }),
		true, uuid(days.low), uuid(days.high),
	).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			var v outbox.EventView
			var metadata, sum []byte
			err := rows.Scan(intoID(&v.ID), intoShard(&v.Tenant.Shard), &v.Tenant.ID, &v.Type, intoText(&v.OrderingKey), &metadata, &sum, &v.CreatedAt, &v.PayloadBytes, &v.PayloadErased, intoText(&v.TenantKey), &v.State)
			if err != nil {
				return err
			}
			copy(v.SHA256[:], sum)
			if metadata != nil {
				if err := json.Unmarshal(metadata, &v.Metadata); err != nil {
					return err
				}
			}
			*list = append(*list, v)
		}
		return rows.Err()
	})
}

// Event implements outbox.Reading.
func (s *Store) Event(ctx context.Context, tenant outbox.TenantRef, id outbox.EventID) (outbox.EventView, error) {
	list, err := s.eventsOf(ctx, tenant, id)
	if err == nil && len(list) > 1 {
		return outbox.EventView{}, outbox.ErrAmbiguous
	}
	return only(list, err)
}

// EventsByID implements outbox.Reading.
func (s *Store) EventsByID(ctx context.Context, id outbox.EventID) ([]outbox.EventView, error) {
	return s.eventsOf(ctx, outbox.TenantRef{}, id)
}

// eventsOf finds the events that have an id, one of a tenant. Where only the id is known, every
// tenant is asked.
func (s *Store) eventsOf(ctx context.Context, tenant outbox.TenantRef, id outbox.EventID) ([]outbox.EventView, error) {
	var list []outbox.EventView
	keys := []eventKey{{tenant, id}}
	look := people
	look.snapshot = true
	err := s.transact(ctx, look,
		func(b *pgx.Batch) error {
			if tenant.ID == 0 {
				keys = nil
				queueTenantsOf(b, id, &keys)
			}
			return nil
		},
		func(b *pgx.Batch) error {
			list = nil
			queueEventViews(b, keys, &list)
			return nil
		},
	)
	// While a day is being retired an event can stand in both places.
	list = slices.CompactFunc(list, func(a, b outbox.EventView) bool { return a.Tenant == b.Tenant })
	return list, err
}

// queueTenantsOf finds the tenants that have an event with this id; one, as a rule.
func queueTenantsOf(b *pgx.Batch, id outbox.EventID, keys *[]eventKey) {
	b.Queue(`
		SELECT t.shard, t.id
		FROM waybill.tenant AS t
		WHERE EXISTS (
				SELECT FROM waybill.event AS e
				WHERE e.shard = t.shard AND e.tenant = t.id AND e.id = $1
			) OR EXISTS (
				SELECT FROM waybill.event_kept AS k
				WHERE k.shard = t.shard AND k.tenant = t.id AND k.id = $1
			)
		ORDER BY t.id`,
		uuid(id),
	).Query(func(rows pgx.Rows) error {
		var ref outbox.TenantRef
		_, err := pgx.ForEachRow(rows, []any{intoShard(&ref.Shard), &ref.ID}, func() error {
			*keys = append(*keys, eventKey{ref, id})
			return nil
		})
		return err
	})
}

// Payload implements outbox.Reading.
func (s *Store) Payload(ctx context.Context, tenant outbox.TenantRef, id outbox.EventID) ([]byte, error) {
	v, err := s.Event(ctx, tenant, id)
	if err != nil {
		return nil, err
	}
	if v.PayloadErased {
		return nil, outbox.ErrPayloadGone
	}
	var payload []byte
	err = s.read(ctx, people, func(b *pgx.Batch) {
		payload = nil
		b.Queue(`
			SELECT e.payload
			FROM (SELECT $1::smallint AS shard, $2::bigint AS tenant, $3::uuid AS id, $4::text) AS w
			CROSS JOIN LATERAL (`+eventOfW+`) AS e`,
			int16(v.Tenant.Shard), int64(v.Tenant.ID), uuid(id), "", uuid(id), uuid(id),
		).Query(func(rows pgx.Rows) error {
			_, err := pgx.ForEachRow(rows, []any{&payload}, func() error { return nil })
			return err
		})
	})
	if err == nil && payload == nil {
		err = outbox.ErrPayloadGone
	}
	return payload, err
}

// Events implements outbox.Reading, by the primary key (shard, tenant, id).
func (s *Store) Events(ctx context.Context, q outbox.EventQuery, page outbox.Page) ([]outbox.EventView, outbox.EventID, error) {
	m := merge[outbox.EventID]{page: page}
	var list []outbox.EventView
	look := people
	look.snapshot = true
	err := s.transact(ctx, look,
		func(b *pgx.Batch) error {
			queueEvents(b, q, page, &m)
			return nil
		},
		func(b *pgx.Batch) error {
			var keys []eventKey
			for _, row := range m.cut() {
				keys = append(keys, eventKey{row.tenant, row.id})
			}
			queueEventViews(b, keys, &list)
			return nil
		},
	)
	if err != nil {
		return nil, outbox.EventID{}, err
	}
	return list, m.next, nil
}

func queueEvents(b *pgx.Batch, q outbox.EventQuery, page outbox.Page, m *merge[outbox.EventID]) {
	var args []any
	arg := func(v any) string {
		args = append(args, v)
		return placeholder(len(args))
	}
	keys := []string{"e.shard = s.shard", "e.tenant = s.tenant"}
	var low, high outbox.EventID
	if !q.From.IsZero() {
		low = outbox.EventFloor(q.From)
	}
	if !q.To.IsZero() {
		high = outbox.EventFloor(q.To)
	}
	if page.Ascending && !q.After.IsZero() && bytes.Compare(q.After[:], low[:]) >= 0 {
		keys = append(keys, "e.id > "+arg(uuid(q.After)))
	} else if !low.IsZero() {
		keys = append(keys, "e.id >= "+arg(uuid(low)))
	}
	if !page.Ascending && !q.After.IsZero() && (high.IsZero() || bytes.Compare(q.After[:], high[:]) < 0) {
		high = q.After
	}
	if !high.IsZero() {
		keys = append(keys, "e.id < "+arg(uuid(high)))
	}
	var conditions []string
	if len(q.EventTypes) > 0 {
		conditions = append(conditions, "r.type = ANY ("+arg(q.EventTypes)+")")
	}
	if q.State != "" {
		conditions = append(conditions, inState(q.State, arg))
	}
	each, moment := outbox.MaxListScan, "" // rows of a tenant at most
	if len(conditions) == 0 {
		each = page.Limit + 1
	}
	if q.State != "" {
		moment = ", " + millisecond // which costs more than reading the row
	}
	order := direction(page)
	tenant, limit, rows := arg(int64(q.Tenant.ID)), arg(page.Limit+1), arg(outbox.MaxListScan)
	most := arg(each)
	b.Queue(`
		WITH scope AS MATERIALIZED (
			SELECT s.shard, s.tenant
			FROM (
				SELECT shard, id AS tenant
				FROM waybill.tenant
				WHERE `+tenant+`::bigint = 0 OR id = `+tenant+`
			) AS s
			CROSS JOIN LATERAL (
				SELECT
				FROM waybill.event AS e
				WHERE `+all(keys)+`
				ORDER BY e.id `+order+`
				LIMIT 1
			) AS any_row
		),
		share AS MATERIALIZED (
			SELECT least(greatest(`+rows+`::int / greatest(count(*), 1), 1), `+most+`) AS rows
			FROM scope
		),
		r AS MATERIALIZED (
			SELECT e.*
			FROM scope AS s
			CROSS JOIN LATERAL (
				SELECT e.*
				FROM (
					SELECT e.shard, e.tenant, e.id, e.type`+moment+`
					FROM waybill.event AS e
					WHERE `+all(keys)+`
					ORDER BY e.id `+order+`
					LIMIT `+most+` -- which the planner knows, as it does not know the share
				) AS e
				LIMIT (SELECT rows FROM share)
			) AS e
		)
		SELECT found.shard, found.tenant, found.id, false
		FROM (
			SELECT r.shard, r.tenant, r.id
			FROM (SELECT * FROM r ORDER BY r.id `+order+` OFFSET 0) AS r -- in order first: the conditions end with the page
			WHERE `+all(conditions)+`
			ORDER BY r.id `+order+`
			FETCH FIRST (`+limit+`) ROWS WITH TIES -- a page never ends between two tenants' events of one id
		) AS found
		UNION ALL
		SELECT shard, tenant, (array_agg(id ORDER BY id `+opposite(page)+`))[1], true
		FROM r
		GROUP BY shard, tenant
		HAVING count(*) >= (SELECT rows FROM share)`,
		args...,
	).Query(m.collect)
}
