package sqlite

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"slices"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// Delivery returns one delivery.
func (s *Store) Delivery(ctx context.Context, tenant outbox.TenantRef, id outbox.DeliveryID) (v outbox.DeliveryView, err error) {
	err = s.read(ctx, func(r *session) error {
		v, err = deliveryView(r, id)
		if err == nil && tenant.ID != 0 && v.Tenant != tenant.ID {
			err = outbox.ErrNotFound
		}
		return err
	})
	if err != nil {
		return outbox.DeliveryView{}, err
	}
	return v, nil
}

// PendingOf counts an endpoint's pending deliveries.
func (s *Store) PendingOf(ctx context.Context, tenant outbox.TenantRef, id outbox.EndpointID, limit int) (n int, oldest time.Time, err error) {
	err = s.read(ctx, func(r *session) error {
		var owner outbox.TenantRef
		err := r.get("SELECT tenant, shard FROM waybill_endpoint WHERE id = ?", []any{id[:]}, &owner.ID, &owner.Shard)
		if errors.Is(err, sql.ErrNoRows) || err == nil && tenant.ID != 0 && owner.ID != tenant.ID {
			return nil
		}
		if err != nil {
			return err
		}
		n, oldest, err = pendingOf(r, owner.Shard, id, limit)
		return err
	})
	return n, oldest, err
}

// deliveryView gathers what people see of a delivery.
func deliveryView(r *session, id outbox.DeliveryID) (v outbox.DeliveryView, err error) {
	at, err := standingOf(r, id)
	if err != nil {
		return v, err
	}
	v.Delivery, v.State, v.CreatedAt = at.Delivery, at.state, id.Time()
	var accepted sql.NullInt64
	var key, tenantState, url, endpointState sql.NullString
	var tenantInFlight, endpointInFlight, rateCount, ratePer sql.NullInt64
	if err := r.get(`
		SELECT t.key, t.state, e.url, CASE WHEN e.deleted_at IS NULL THEN e.state END,
			t.max_in_flight, e.max_in_flight, e.rate_count, e.rate_per, v.created_at
		FROM (SELECT ? AS shard, ? AS tenant, ? AS endpoint, ? AS event) AS d
		LEFT JOIN waybill_event v ON v.shard = d.shard AND v.tenant = d.tenant AND v.id = d.event
		LEFT JOIN waybill_tenant t ON t.id = d.tenant
		LEFT JOIN waybill_endpoint e ON e.id = d.endpoint`,
		[]any{int64(at.Shard), int64(at.Tenant), at.Endpoint[:], at.Event[:]},
		&key, &tenantState, &url, &endpointState, &tenantInFlight, &endpointInFlight, &rateCount, &ratePer, &accepted); err != nil {
		return v, err
	}
	if accepted.Valid {
		v.CreatedAt = fromMicros(accepted.Int64)
	}
	v.Limits = outbox.DeliveryLimits{
		TenantInFlight:   int(tenantInFlight.Int64),
		EndpointInFlight: int(endpointInFlight.Int64),
		Rate:             rateLimit(rateCount, ratePer),
	}
	v.TenantKey, v.TenantState = key.String, outbox.TenantState(tenantState.String)
	v.EndpointURL, v.EndpointState = url.String, outbox.EndpointState(endpointState.String)
	if v.Last, err = lastAttempt(r, id); err != nil {
		return v, err
	}
	switch v.State {
	case outbox.StateDead, outbox.StateCancelled:
		v.Dead = &outbox.DeadInfo{}
		if err := r.get(`
			SELECT reason, kind, message, at
			FROM waybill_dead_letter
			WHERE dlv = ?`,
			[]any{id[:]}, &v.Dead.Reason, &v.Dead.Kind, &v.Dead.Message, timeTo{&v.Dead.At}); err != nil {
			return v, err
		}
		v.FinishedAt = v.Dead.At
	case outbox.StateDelivered:
		if err := r.get(`
			SELECT finished_at
			FROM waybill_attempt
			WHERE dlv = ? AND final = 1 AND outcome = 'delivered'
			ORDER BY n DESC, round DESC
			LIMIT 1`,
			[]any{id[:]}, timeTo{&v.FinishedAt}); err != nil {
			return v, err
		}
	}
	return v, nil
}

// lastAttempt sums up the latest attempt of a delivery; nil if there is none.
func lastAttempt(r *session, id outbox.DeliveryID) (*outbox.AttemptSummary, error) {
	var a outbox.AttemptSummary
	err := r.get(`
		SELECT id, n, at, duration, status_code, kind, message
		FROM waybill_attempt
		WHERE dlv = ?
		ORDER BY n DESC, round DESC, id DESC
		LIMIT 1`,
		[]any{id[:]},
		idTo{(*[16]byte)(&a.ID)}, &a.N, timeTo{&a.At}, lengthTo{&a.Duration}, &a.StatusCode, &a.Kind, &a.Message)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	return &a, err
}

// Deliveries merges the pending, the dead and the delivered by id. Only what an index can bound
// is asked of the database; the rest is judged here, row by row, so that the number of rows read
// stays known.
func (s *Store) Deliveries(ctx context.Context, q outbox.DeliveryQuery, page outbox.Page) (list []outbox.DeliveryView, next outbox.DeliveryID, err error) {
	err = s.read(ctx, func(r *session) (err error) {
		tenant, err := listTenant(r, q)
		if err != nil {
			return err
		}
		sources, err := openSources(ctx, r, q, tenant, page)
		defer func() { err = errors.Join(err, closeSources(sources)) }()
		if err != nil {
			return err
		}
		list, next, err = merge(r, sources, q, page)
		return err
	})
	if err != nil {
		return nil, outbox.DeliveryID{}, err
	}
	return list, next, nil
}

// listTenant is the tenant to read by: for an operator's look at one endpoint, that endpoint's.
func listTenant(r *session, q outbox.DeliveryQuery) (outbox.TenantID, error) {
	if q.Tenant.ID != 0 || q.Endpoint.IsZero() {
		return q.Tenant.ID, nil
	}
	var tenant outbox.TenantID
	err := r.get("SELECT tenant FROM waybill_endpoint WHERE id = ?", []any{q.Endpoint[:]}, &tenant)
	if errors.Is(err, sql.ErrNoRows) {
		err = nil
	}
	return tenant, err
}

// source is one table in the order of the list, at its current row.
type source struct {
	rows *sql.Rows
	row  candidate
	more bool
}

// candidate is what a table tells of a delivery at little cost.
type candidate struct {
	id        outbox.DeliveryID
	endpoint  outbox.EndpointID
	event     outbox.EventID
	eventType string
	deadKind  outbox.Kind // of a dead letter
}

func (s *source) advance() error {
	if s.more = s.rows.Next(); !s.more {
		return s.rows.Err()
	}
	s.row = candidate{}
	return s.rows.Scan(idTo{(*[16]byte)(&s.row.id)}, idTo{(*[16]byte)(&s.row.endpoint)}, idTo{(*[16]byte)(&s.row.event)}, &s.row.eventType, &s.row.deadKind)
}

// openSources opens the tables that can hold a wanted state.
func openSources(ctx context.Context, r *session, q outbox.DeliveryQuery, tenant outbox.TenantID, page outbox.Page) ([]*source, error) {
	bounds := filter{}.andIf(tenant != 0, "tenant = ?", int64(tenant))
	if low := q.From; !low.IsZero() {
		id := outbox.DeliveryFloor(low)
		bounds = bounds.and("dlv >= ?", id[:])
	}
	if high := q.To; !high.IsZero() {
		id := outbox.DeliveryFloor(high)
		bounds = bounds.and("dlv < ?", id[:])
	}
	if !q.Event.IsZero() {
		low, high := outbox.DeliveryFloor(q.Event.Time()), outbox.DeliveryCeil(q.Event.Time())
		bounds = bounds.and("dlv >= ? AND dlv <= ?", low[:], high[:])
	}
	bounds = bounds.
		andIf(!q.After.IsZero() && page.Ascending, "dlv > ?", q.After[:]).
		andIf(!q.After.IsZero() && !page.Ascending, "dlv < ?", q.After[:])
	wanted := func(states ...outbox.DeliveryState) bool {
		return len(q.States) == 0 || slices.ContainsFunc(states, func(s outbox.DeliveryState) bool { return slices.Contains(q.States, s) })
	}
	var tables []struct {
		from, deadKind string
		bounds         filter
	}
	add := func(from, deadKind string, f filter) {
		tables = append(tables, struct {
			from, deadKind string
			bounds         filter
		}{from, deadKind, f})
	}
	if wanted(outbox.StatePending) && q.Reason == "" {
		add("waybill_delivery", "''", bounds)
	}
	if wanted(outbox.StateDead, outbox.StateCancelled) {
		add("waybill_dead_letter", "kind", bounds.andIf(q.Reason != "", "reason = ?", string(q.Reason)))
	}
	if wanted(outbox.StateDelivered) && q.Reason == "" {
		add("waybill_attempt", "''", bounds.and("final = 1 AND outcome = 'delivered'"))
	}
	var sources []*source
	for _, table := range tables {
		where, args := table.bounds.sql()
		rows, err := r.conn.QueryContext(ctx, `
			SELECT dlv, endpoint, event, event_type, `+table.deadKind+`
			FROM `+table.from+`
			WHERE `+where+`
			ORDER BY dlv `+direction(page),
			args...)
		if err != nil {
			return sources, err
		}
		src := &source{rows: rows}
		sources = append(sources, src)
		if err := src.advance(); err != nil {
			return sources, err
		}
	}
	return sources, nil
}

func closeSources(sources []*source) (err error) {
	for _, src := range sources {
		err = errors.Join(err, src.rows.Close())
	}
	return err
}

// merge walks the sources in the order of the list.
func merge(r *session, sources []*source, q outbox.DeliveryQuery, page outbox.Page) (list []outbox.DeliveryView, last outbox.DeliveryID, err error) {
	for read := 0; ; {
		src := first(sources, page)
		switch {
		case src == nil:
			return list, outbox.DeliveryID{}, nil
		case len(list) == page.Limit || read >= outbox.MaxListScan:
			return list, last, nil
		}
		row := src.row
		last = row.id
		for _, other := range sources { // a delivery may have rows in several, and several attempts
			for other.more && other.row.id == row.id {
				read++
				if err := other.advance(); err != nil {
					return nil, last, err
				}
			}
		}
		if !q.Endpoint.IsZero() && row.endpoint != q.Endpoint ||
			!q.Event.IsZero() && row.event != q.Event ||
			len(q.EventTypes) > 0 && !slices.Contains(q.EventTypes, row.eventType) {
			continue
		}
		if q.Kind != "" || q.StatusCode != 0 {
			try, err := lastAttempt(r, row.id)
			if err != nil {
				return nil, last, err
			}
			if !answered(try, row.deadKind, q) {
				continue
			}
		}
		v, err := deliveryView(r, row.id)
		if err != nil {
			return nil, last, err
		}
		// A delivery has rows of states it no longer is in: delivered once, replayed since.
		if len(q.States) == 0 || slices.Contains(q.States, v.State) {
			list = append(list, v)
		}
	}
}

// answered reports whether the last attempt, or the end without one, is what the query asks for.
func answered(try *outbox.AttemptSummary, deadKind outbox.Kind, q outbox.DeliveryQuery) bool {
	if try == nil {
		try = &outbox.AttemptSummary{}
	}
	status := try.StatusCode
	if q.StatusClass {
		status /= 100
	}
	return (q.StatusCode == 0 || status == q.StatusCode) && (q.Kind == "" || try.Kind == q.Kind || deadKind == q.Kind)
}

// first returns the source whose current row comes first in the list; nil if all are at their end.
func first(sources []*source, page outbox.Page) *source {
	var best *source
	for _, src := range sources {
		if !src.more {
			continue
		}
		if best == nil || (bytes.Compare(src.row.id[:], best.row.id[:]) < 0) == page.Ascending {
			best = src
		}
	}
	return best
}
