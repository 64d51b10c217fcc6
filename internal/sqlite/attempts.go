package sqlite

import (
	"context"
	"database/sql"
	"errors"

	"github.com/waybill-dev/waybill/internal/outbox"
)

const attemptColumns = `a.id, a.shard, a.tenant, t.key, a.dlv, a.endpoint, a.event, a.event_type, a.sequence, a.round, a.n, a.trigger, a.outcome,
	a.at, a.duration, a.dns, a.connect, a.tls, a.first_byte, a.url, a.kind, a.message, a.status_code,
	a.request_headers, a.request_bytes, a.response_headers, a.response_body, a.truncated, a.opened`

func scanAttempt(scan scan) (outbox.AttemptView, error) {
	var v outbox.AttemptView
	var key sql.NullString
	err := scan(idTo{(*[16]byte)(&v.ID)}, &v.Tenant.Shard, &v.Tenant.ID, &key, idTo{(*[16]byte)(&v.Delivery)}, idTo{(*[16]byte)(&v.Endpoint)},
		idTo{(*[16]byte)(&v.Event)}, &v.EventType, &v.Sequence, &v.Round, &v.N, &v.Trigger, &v.Outcome,
		timeTo{&v.At}, lengthTo{&v.Duration}, lengthTo{&v.Timing.DNS}, lengthTo{&v.Timing.Connect}, lengthTo{&v.Timing.TLS}, lengthTo{&v.Timing.FirstByte},
		&v.URL, &v.Kind, &v.Message, &v.StatusCode,
		headersTo{&v.RequestHeaders}, &v.RequestBytes, headersTo{&v.ResponseHeaders}, &v.ResponseBody, &v.Truncated, &v.Opened)
	v.TenantKey = key.String
	return v, err
}

// Attempts lists the attempts of a delivery.
func (s *Store) Attempts(ctx context.Context, tenant outbox.TenantRef, id outbox.DeliveryID, after int, page outbox.Page) (list []outbox.AttemptView, err error) {
	where, args := filter{}.
		and("a.dlv = ?", id[:]).
		andIf(tenant.ID != 0, "a.tenant = ?", int64(tenant.ID)).
		andIf(after != 0 && page.Ascending, "a.n > ?", after).
		andIf(after != 0 && !page.Ascending, "a.n < ?", after).
		sql()
	err = s.read(ctx, func(r *session) error {
		return r.eachOnce(ctx, `
			SELECT `+attemptColumns+`
			FROM waybill_attempt a
			LEFT JOIN waybill_tenant t ON t.id = a.tenant
			WHERE `+where+`
			ORDER BY a.n `+direction(page)+`, a.id `+direction(page)+`
			LIMIT ?`,
			append(args, page.Limit),
			func(scan scan) error {
				v, err := scanAttempt(scan)
				list = append(list, v)
				return err
			})
	})
	if err != nil {
		return nil, err
	}
	return list, nil
}

// Attempt returns one attempt.
func (s *Store) Attempt(ctx context.Context, tenant outbox.TenantRef, id outbox.AttemptID) (v outbox.AttemptView, err error) {
	err = s.read(ctx, func(r *session) error {
		found := outbox.ErrNotFound
		err := r.each(`
			SELECT `+attemptColumns+`
			FROM waybill_attempt a
			LEFT JOIN waybill_tenant t ON t.id = a.tenant
			WHERE a.id = ? AND (a.tenant = ? OR ? = 0)`,
			[]any{id[:], int64(tenant.ID), int64(tenant.ID)},
			func(scan scan) error {
				v, found = scanAttempt(scan)
				return errStop
			})
		if err != nil {
			return err
		}
		return found
	})
	return v, err
}

// deliveryTenant finds whose a delivery is, even one of which only attempts are left.
func deliveryTenant(r *session, id outbox.DeliveryID) (outbox.TenantRef, error) {
	at, err := standingOf(r, id)
	if !errors.Is(err, outbox.ErrNotFound) {
		return outbox.TenantRef{ID: at.Tenant, Shard: at.Shard}, err
	}
	var ref outbox.TenantRef
	err = r.get(`
		SELECT tenant, shard
		FROM waybill_attempt
		WHERE dlv = ?
		LIMIT 1`,
		[]any{id[:]}, &ref.ID, &ref.Shard)
	if errors.Is(err, sql.ErrNoRows) {
		return outbox.TenantRef{}, outbox.ErrNotFound
	}
	return ref, err
}

// DeliveryTenant finds whose a delivery is.
func (s *Store) DeliveryTenant(ctx context.Context, id outbox.DeliveryID) (ref outbox.TenantRef, err error) {
	err = s.read(ctx, func(r *session) error {
		ref, err = deliveryTenant(r, id)
		return err
	})
	return ref, err
}
