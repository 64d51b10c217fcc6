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

// Event returns one event.
func (s *Store) Event(ctx context.Context, tenant outbox.TenantRef, id outbox.EventID) (v outbox.EventView, err error) {
	err = s.read(ctx, func(r *session) error {
		if tenant, err = ownerOf(r, tenant, id); err != nil {
			return err
		}
		v, err = eventView(r, tenant, id, unrouted{})
		return err
	})
	return v, err
}

// EventsByID returns the events of all tenants that have an id.
func (s *Store) EventsByID(ctx context.Context, id outbox.EventID) (list []outbox.EventView, err error) {
	err = s.read(ctx, func(r *session) error {
		owners, err := ownersOf(r, id)
		if err != nil {
			return err
		}
		waiting := unrouted{}
		for _, tenant := range owners {
			v, err := eventView(r, tenant, id, waiting)
			if err != nil {
				return err
			}
			list = append(list, v)
		}
		return nil
	})
	return list, err
}

// ownersOf finds the tenants that have an event with this id; one, as a rule.
func ownersOf(r *session, id outbox.EventID) (owners []outbox.TenantRef, err error) {
	err = r.each(`
		SELECT shard, tenant
		FROM waybill_event
		WHERE id = ?
		ORDER BY tenant`,
		[]any{id[:]},
		func(scan scan) error {
			var owner outbox.TenantRef
			err := scan(&owner.Shard, &owner.ID)
			owners = append(owners, owner)
			return err
		})
	return owners, err
}

// ownerOf is the tenant itself, or where none is named the one that has an event with this id.
func ownerOf(r *session, tenant outbox.TenantRef, id outbox.EventID) (outbox.TenantRef, error) {
	if tenant.ID != 0 {
		return tenant, nil
	}
	owners, err := ownersOf(r, id)
	switch {
	case err != nil:
		return tenant, err
	case len(owners) > 1:
		return tenant, outbox.ErrAmbiguous
	case len(owners) == 1:
		return owners[0], nil
	}
	return tenant, nil
}

// Payload returns the event's bytes.
func (s *Store) Payload(ctx context.Context, tenant outbox.TenantRef, id outbox.EventID) (payload []byte, err error) {
	err = s.read(ctx, func(r *session) error {
		var gone bool
		tenant, err := ownerOf(r, tenant, id)
		if err != nil {
			return err
		}
		err = r.get(`
			SELECT v.payload, `+erased+`
			FROM waybill_event v
			WHERE v.id = ? AND (v.tenant = ? OR ? = 0)`,
			[]any{id[:], int64(tenant.ID), int64(tenant.ID)}, &payload, &gone)
		if gone {
			return outbox.ErrPayloadGone
		}
		if !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		// A delivery that is still listed shows that there was one.
		err = outbox.ErrNotFound
		for _, table := range []string{"waybill_delivery", "waybill_dead_letter", "waybill_attempt"} {
			low, high := outbox.DeliveryFloor(id.Time()), outbox.DeliveryCeil(id.Time())
			if end := r.each(`
				SELECT 1
				FROM `+table+`
				WHERE dlv >= ? AND dlv <= ? AND event = ? AND (tenant = ? OR ? = 0)
				LIMIT 1`,
				[]any{low[:], high[:], id[:], int64(tenant.ID), int64(tenant.ID)},
				func(scan) error { err = outbox.ErrPayloadGone; return nil }); end != nil {
				return end
			}
		}
		return err
	})
	return payload, err
}

// eventView gathers what people see of an event.
func eventView(r *session, tenant outbox.TenantRef, id outbox.EventID, waiting unrouted) (v outbox.EventView, err error) {
	var key sql.NullString
	err = r.get(`
		SELECT `+eventColumns+`, coalesce(v.erased_bytes, length(v.payload)), `+erased+`, t.key
		FROM waybill_event v
		LEFT JOIN waybill_tenant t ON t.id = v.tenant
		WHERE v.id = ? AND (v.tenant = ? OR ? = 0)`,
		[]any{id[:], int64(tenant.ID), int64(tenant.ID)},
		append(eventTo(&v.Event), &v.PayloadBytes, &v.PayloadErased, &key)...)
	if errors.Is(err, sql.ErrNoRows) {
		err = outbox.ErrNotFound
	}
	if err != nil {
		return v, err
	}
	v.TenantKey = key.String
	v.State, err = eventState(r, v.Tenant, id, waiting)
	return v, err
}

// eventState sums up an event's deliveries, which lie in the range of its millisecond.
func eventState(r *session, tenant outbox.TenantRef, id outbox.EventID, waiting unrouted) (outbox.EventState, error) {
	low, high := outbox.DeliveryFloor(id.Time()), outbox.DeliveryCeil(id.Time())
	var pending, dead, cancelled, delivered bool
	err := r.get(`
		SELECT
			EXISTS (SELECT 1 FROM waybill_delivery WHERE dlv >= ?1 AND dlv <= ?2 AND event = ?3 AND tenant = ?4),
			EXISTS (SELECT 1 FROM waybill_dead_letter WHERE dlv >= ?1 AND dlv <= ?2 AND event = ?3 AND tenant = ?4 AND state = 'dead'),
			EXISTS (SELECT 1 FROM waybill_dead_letter WHERE dlv >= ?1 AND dlv <= ?2 AND event = ?3 AND tenant = ?4 AND state = 'cancelled'),
			EXISTS (SELECT 1 FROM waybill_attempt WHERE dlv >= ?1 AND dlv <= ?2 AND event = ?3 AND tenant = ?4)`,
		[]any{low[:], high[:], id[:], int64(tenant.ID)}, &pending, &dead, &cancelled, &delivered)
	if err != nil {
		return "", err
	}
	if !pending {
		if pending, err = waiting.has(r, tenant, id, !dead && !cancelled && !delivered); err != nil {
			return "", err
		}
	}
	switch {
	case pending:
		return outbox.EventUnrouted, nil
	case dead:
		return outbox.EventFailed, nil
	case cancelled:
		return outbox.EventCancelled, nil
	case delivered:
		return outbox.EventDelivered, nil
	}
	return outbox.EventUnmatched, nil
}

// unrouted holds the events that wait in the outbox, of the shards that were looked at.
type unrouted map[outbox.Shard]map[unroutedEvent]bool

type unroutedEvent struct {
	tenant outbox.TenantID
	id     outbox.EventID
}

// has reports whether the event waits. The outbox has no index by event, which every publish
// would pay for; behind a backlog longer than a list may read, the answer is a guess.
func (u unrouted) has(r *session, tenant outbox.TenantRef, id outbox.EventID, guess bool) (bool, error) {
	shard := tenant.Shard
	if u[shard] == nil {
		u[shard] = map[unroutedEvent]bool{}
		if err := r.each(`
			SELECT tenant, event
			FROM waybill_outbox
			WHERE shard = ? AND kind = 0
			ORDER BY pos
			LIMIT ?`,
			[]any{int64(shard), outbox.MaxListScan},
			func(scan scan) error {
				var waiting unroutedEvent
				err := scan(&waiting.tenant, idTo{(*[16]byte)(&waiting.id)})
				u[shard][waiting] = true
				return err
			}); err != nil {
			return false, err
		}
	}
	return u[shard][unroutedEvent{tenant.ID, id}] || guess && len(u[shard]) == outbox.MaxListScan, nil
}

// Events lists events.
func (s *Store) Events(ctx context.Context, q outbox.EventQuery, page outbox.Page) ([]outbox.EventView, outbox.EventID, error) {
	l := eventList{q: q, page: page, waiting: unrouted{}}
	err := s.read(ctx, func(r *session) error {
		l.session = r
		if q.State != "" {
			return l.walkStanding()
		}
		return l.walkAll(ctx)
	})
	if err != nil {
		return nil, outbox.EventID{}, err
	}
	if !l.more {
		l.last = outbox.EventID{}
	}
	return l.rows, l.last, nil
}

// eventList is a list being read.
type eventList struct {
	session *session
	q       outbox.EventQuery
	page    outbox.Page
	rows    []outbox.EventView
	read    int            // rows looked at
	last    outbox.EventID // the last one visited
	more    bool           // there are others behind it
	waiting unrouted
}

// visit takes the next event of the list's order; errStop when the page is full.
func (l *eventList) visit(tenant outbox.TenantRef, id outbox.EventID) error {
	// At least one is visited, or a list could stand still. Where a page ends is told by an id, which
	// several tenants' events may have: they stay together.
	full := len(l.rows) >= l.page.Limit || l.read >= outbox.MaxListScan && !l.last.IsZero()
	if full && id != l.last {
		l.more = true
		return errStop
	}
	l.read++
	l.last = id
	v, err := eventView(l.session, tenant, id, l.waiting)
	switch {
	case errors.Is(err, outbox.ErrNotFound): // only its deliveries are still kept
		return nil
	case err != nil:
		return err
	}
	if (l.q.State == "" || v.State == l.q.State) && (len(l.q.EventTypes) == 0 || slices.Contains(l.q.EventTypes, v.Type)) {
		l.rows = append(l.rows, v)
	}
	return nil
}

// behind reports whether an event lies in the part of the list that is asked for.
func (l *eventList) behind(id outbox.EventID) bool {
	after := l.q.After.IsZero() || l.ordered(l.q.After, id) < 0
	from := l.q.From.IsZero() || !id.Time().Before(l.q.From.Truncate(time.Millisecond))
	to := l.q.To.IsZero() || id.Time().Before(l.q.To.Truncate(time.Millisecond))
	return after && from && to
}

// ordered compares two events in the order of the list.
func (l *eventList) ordered(a, b outbox.EventID) int {
	if l.page.Ascending {
		return bytes.Compare(a[:], b[:])
	}
	return bytes.Compare(b[:], a[:])
}

// walkAll visits events as they are stored. The filter by type is part of the statement only to
// spare the look at what each came to; the rows it passes over count as read.
func (l *eventList) walkAll(ctx context.Context) error {
	f := filter{}.
		andIf(l.q.Tenant.ID != 0, "shard = ? AND tenant = ?", int64(l.q.Tenant.Shard), int64(l.q.Tenant.ID)).
		andIf(!l.q.After.IsZero() && l.page.Ascending, "id > ?", l.q.After[:]).
		andIf(!l.q.After.IsZero() && !l.page.Ascending, "id < ?", l.q.After[:])
	if !l.q.From.IsZero() {
		low := outbox.EventFloor(l.q.From)
		f = f.and("id >= ?", low[:])
	}
	if !l.q.To.IsZero() {
		high := outbox.EventFloor(l.q.To)
		f = f.and("id < ?", high[:])
	}
	where, args := f.sql()
	return l.session.eachOnce(ctx, `
		SELECT id, shard, tenant, type
		FROM waybill_event
		WHERE `+where+`
		ORDER BY id `+direction(l.page),
		args,
		func(scan scan) error {
			var id outbox.EventID
			var tenant outbox.TenantRef
			var eventType string
			if err := scan(idTo{(*[16]byte)(&id)}, &tenant.Shard, &tenant.ID, &eventType); err != nil {
				return err
			}
			if len(l.q.EventTypes) > 0 && !slices.Contains(l.q.EventTypes, eventType) && l.read < outbox.MaxListScan {
				l.read++
				l.last = id
				return nil
			}
			return l.visit(tenant, id)
		})
}

// walkStanding visits the events that have a delivery in the wanted state, found by these rows
// rather than among all events. It leaps from one millisecond to the next: how many deliveries an
// event has makes no difference.
func (l *eventList) walkStanding() error {
	waiting, err := l.unrouted()
	if err != nil {
		return err
	}
	for at := l.start(); ; {
		next, found, err := l.leap(at)
		if err != nil {
			return err
		}
		if len(waiting) > 0 && (!found || l.ordered(outbox.EventFloor(waiting[0].Time()), outbox.EventFloor(next)) < 0) {
			next, found = waiting[0].Time(), true
		}
		switch {
		case !found:
			return nil
		case l.read >= outbox.MaxListScan:
			l.more = true
			return nil
		}
		l.read++
		if err := l.walkMoment(next); err != nil {
			if err == errStop { //nolint:errorlint // our own, never wrapped
				return nil
			}
			return err
		}
		for len(waiting) > 0 && waiting[0].Time().Equal(next) {
			waiting = waiting[1:]
		}
		// A page may end here without an event to name: the end of the millisecond does as well.
		at, l.last = l.past(next)
	}
}

// start is the bound from which the deliveries of the events asked for are looked for: the first
// millisecond, or going back the one after it. Events of the cursor's own millisecond may follow.
func (l *eventList) start() outbox.DeliveryID {
	switch {
	case !l.q.After.IsZero() && l.page.Ascending:
		return outbox.DeliveryFloor(l.q.After.Time())
	case !l.q.After.IsZero():
		return outbox.DeliveryFloor(l.q.After.Time().Add(time.Millisecond))
	case l.page.Ascending && !l.q.From.IsZero():
		return outbox.DeliveryFloor(l.q.From)
	case l.page.Ascending:
		return outbox.DeliveryID{}
	case !l.q.To.IsZero():
		return outbox.DeliveryFloor(l.q.To)
	}
	return outbox.DeliveryID(bytes.Repeat([]byte{0xff}, 16))
}

// past is the bound behind a millisecond, and the last position within it.
func (l *eventList) past(moment time.Time) (bound outbox.DeliveryID, last outbox.EventID) {
	if l.page.Ascending {
		return outbox.DeliveryFloor(moment.Add(time.Millisecond)), outbox.EventID(outbox.DeliveryCeil(moment))
	}
	return outbox.DeliveryFloor(moment), outbox.EventFloor(moment)
}

// leap finds the millisecond of the next delivery behind a bound.
func (l *eventList) leap(at outbox.DeliveryID) (next time.Time, found bool, err error) {
	table := "waybill_delivery"
	if l.q.State != outbox.EventUnrouted {
		table = "waybill_dead_letter"
	}
	f := filter{}.andIf(l.q.Tenant.ID != 0, "tenant = ?", int64(l.q.Tenant.ID))
	if l.page.Ascending {
		f = f.and("dlv >= ?", at[:])
	} else {
		f = f.and("dlv < ?", at[:])
	}
	where, args := f.sql()
	var id outbox.DeliveryID
	err = l.session.get(`
		SELECT dlv
		FROM `+table+`
		WHERE `+where+`
		ORDER BY dlv `+direction(l.page)+`
		LIMIT 1`,
		args, idTo{(*[16]byte)(&id)})
	if errors.Is(err, sql.ErrNoRows) {
		return next, false, nil
	}
	next = id.Time()
	if l.page.Ascending {
		found = l.q.To.IsZero() || next.Before(l.q.To.Truncate(time.Millisecond))
	} else {
		found = l.q.From.IsZero() || !next.Before(l.q.From.Truncate(time.Millisecond))
	}
	return next, found, err
}

// walkMoment visits the events of a millisecond.
func (l *eventList) walkMoment(moment time.Time) error {
	low, high := outbox.EventFloor(moment), outbox.EventID(outbox.DeliveryCeil(moment))
	where, args := filter{}.
		andIf(l.q.Tenant.ID != 0, "shard = ? AND tenant = ?", int64(l.q.Tenant.Shard), int64(l.q.Tenant.ID)).
		and("id >= ? AND id <= ?", low[:], high[:]).
		sql()
	type row struct {
		tenant outbox.TenantRef
		id     outbox.EventID
	}
	var found []row
	if err := l.session.each(`
		SELECT id, shard, tenant
		FROM waybill_event
		WHERE `+where+`
		ORDER BY id `+direction(l.page),
		args,
		func(scan scan) error {
			var one row
			err := scan(idTo{(*[16]byte)(&one.id)}, &one.tenant.Shard, &one.tenant.ID)
			found = append(found, one)
			return err
		}); err != nil {
		return err
	}
	for _, one := range found {
		if !l.behind(one.id) {
			continue
		}
		if err := l.visit(one.tenant, one.id); err != nil {
			return err
		}
	}
	return nil
}

// unrouted returns, in the order of the list, the events that are asked for and not routed yet;
// none where failed ones are.
func (l *eventList) unrouted() (ids []outbox.EventID, err error) {
	if l.q.State != outbox.EventUnrouted {
		return nil, nil
	}
	query, args := `
		SELECT event
		FROM waybill_outbox
		WHERE kind = 0
		ORDER BY pos
		LIMIT ?`, []any{outbox.MaxListScan}
	if l.q.Tenant.ID != 0 {
		query, args = `
		SELECT event
		FROM (SELECT event, tenant FROM waybill_outbox WHERE shard = ? AND kind = 0 ORDER BY pos LIMIT ?)
		WHERE tenant = ?`, []any{int64(l.q.Tenant.Shard), outbox.MaxListScan, int64(l.q.Tenant.ID)}
	}
	err = l.session.each(query, args,
		func(scan scan) error {
			var id outbox.EventID
			err := scan(idTo{(*[16]byte)(&id)})
			if l.behind(id) {
				ids = append(ids, id)
			}
			return err
		})
	slices.SortFunc(ids, l.ordered)
	return slices.Compact(ids), err
}
