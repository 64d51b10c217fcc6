package api

import (
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// deliveryView is a delivery in an answer.
type deliveryView struct {
	ID            string               `json:"id"`
	Tenant        string               `json:"tenant"`
	EventID       string               `json:"event_id"`
	EventType     string               `json:"event_type"`
	EndpointID    string               `json:"endpoint_id"`
	EndpointURL   string               `json:"endpoint_url"`
	State         outbox.DeliveryState `json:"state"`
	AttemptCount  int                  `json:"attempt_count"`
	Sequence      int64                `json:"sequence" doc:"Gapless per endpoint, from 1; waybill-sequence"`
	CreatedAt     stamp                `json:"created_at"`
	FinishedAt    *stamp               `json:"finished_at"`
	NextAttemptAt *stamp               `json:"next_attempt_at"`
	LastAttempt   *lastAttemptView     `json:"last_attempt"`
	Waiting       *waitingView         `json:"waiting" doc:"Why a pending delivery is not being sent"`
	Dead          *deadView            `json:"dead"`
}

type lastAttemptView struct {
	ID         string       `json:"id"`
	N          int          `json:"n"`
	At         stamp        `json:"at"`
	StatusCode *int         `json:"status_code"`
	Kind       *outbox.Kind `json:"kind" doc:"What went wrong; null where delivered"`
	Message    string       `json:"message"`
	DurationMS float64      `json:"duration_ms"`
}

type deadView struct {
	Reason  outbox.DeadReason `json:"reason"`
	Kind    *outbox.Kind      `json:"kind"`
	Message string            `json:"message"`
	At      stamp             `json:"at"`
}

func viewDelivery(d *outbox.DeliveryView, waiting *waitingView) deliveryView {
	view := deliveryView{
		ID:           d.ID.String(),
		Tenant:       d.TenantKey,
		EventID:      d.Event.String(),
		EventType:    d.EventType,
		EndpointID:   d.Endpoint.String(),
		EndpointURL:  d.EndpointURL,
		State:        d.State,
		AttemptCount: d.Attempt,
		Sequence:     d.Sequence,
		CreatedAt:    stamp(d.CreatedAt),
		FinishedAt:   stampOf(d.FinishedAt),
		Waiting:      waiting,
	}
	if d.State == outbox.StatePending && !d.Parked() {
		view.NextAttemptAt = stampOf(d.NextAt)
	}
	if l := d.Last; l != nil {
		view.LastAttempt = &lastAttemptView{
			ID: l.ID.String(), N: l.N, At: stamp(l.At), StatusCode: orNull(l.StatusCode),
			Kind: orNull(l.Kind), Message: l.Message, DurationMS: millis(l.Duration),
		}
	}
	if x := d.Dead; x != nil {
		view.Dead = &deadView{Reason: x.Reason, Kind: orNull(x.Kind), Message: x.Message, At: stamp(x.At)}
	}
	return view
}

// Words of the filters.
var (
	deliveryStates = []string{string(outbox.StatePending), string(outbox.StateDelivered), string(outbox.StateDead), string(outbox.StateCancelled)}
	deadReasons    = []string{string(outbox.DeadPermanent), string(outbox.DeadExhausted), string(outbox.DeadExpired), string(outbox.DeadPoison), string(outbox.DeadCancelled)}
	kinds          = words(
		outbox.KindRefused, outbox.KindReset, outbox.KindTimeout, outbox.KindDNSTemporary, outbox.KindDNSNotFound, outbox.KindTLSHandshake,
		outbox.KindTLSCertificate, outbox.KindTLSClientCertificate, outbox.KindProtocol, outbox.KindHTTPStatus, outbox.KindRedirect,
		outbox.KindEgressDenied, outbox.KindConfig, outbox.KindPayloadGone, outbox.KindPanic,
	)
)

func words(kinds ...outbox.Kind) []string {
	out := make([]string, len(kinds))
	for i, k := range kinds {
		out[i] = string(k)
	}
	return out
}

// pathDelivery reads {dlv}.
func (q *request) pathDelivery() (outbox.DeliveryID, error) {
	id, err := outbox.ParseDeliveryID(q.PathValue("dlv"))
	if err != nil {
		return id, outbox.ErrNotFound
	}
	return id, nil
}

// getDelivery serves the tenant's route and, with the zero tenant, the operator's.
func (a *API) getDelivery(q *request) (*answer, error) {
	id, err := q.pathDelivery()
	if err != nil {
		return nil, err
	}
	d, err := a.cfg.Store.Delivery(q.Context(), q.tenant.TenantRef, id)
	if err != nil {
		return nil, err
	}
	waiting, err := a.waiting(q.Context(), q.tenant.TenantRef, maxCounted, q.now, d)
	if err != nil {
		return nil, err
	}
	return ok(viewDelivery(&d, waiting(&d)))
}

func (a *API) listDeliveries(q *request) (*answer, error) {
	p := q.params()
	query := outbox.DeliveryQuery{Tenant: q.tenant.TenantRef, Event: id(p, "event_id", outbox.ParseEventID)}
	return a.deliveryList(q, p, query)
}

// listAllDeliveries is the operator's list over all tenants, or of ?tenant=.
func (a *API) listAllDeliveries(q *request) (*answer, error) {
	p := q.params()
	t, err := a.tenantParam(q, p)
	if err != nil {
		return nil, err
	}
	query := outbox.DeliveryQuery{Event: id(p, "event_id", outbox.ParseEventID)}
	if t != nil {
		query.Tenant = t.TenantRef
	}
	return a.deliveryList(q, p, query)
}

func (a *API) listEventDeliveries(q *request) (*answer, error) {
	event, err := q.pathEvent()
	if err != nil {
		return nil, err
	}
	// An unknown event is a mistake to be told; an event without deliveries is an empty list.
	if _, err := a.cfg.Store.Event(q.Context(), q.tenant.TenantRef, event); err != nil {
		return nil, err
	}
	return a.deliveryList(q, q.params(), outbox.DeliveryQuery{Tenant: q.tenant.TenantRef, Event: event})
}

func (a *API) deliveryList(q *request, p *params, query outbox.DeliveryQuery) (*answer, error) {
	query.Endpoint = id(p, "endpoint_id", outbox.ParseEndpointID)
	query.EventTypes = p.eventTypes()
	for _, s := range p.eachOf("state", deliveryStates...) {
		query.States = append(query.States, outbox.DeliveryState(s))
	}
	query.Kind = outbox.Kind(p.oneOf("kind", kinds...))
	query.Reason = outbox.DeadReason(p.oneOf("reason", deadReasons...))
	query.StatusCode, query.StatusClass = p.statusCode()
	query.From, query.To = p.span()
	beside := id(p, "after", outbox.ParseDeliveryID)
	page, after := p.page()
	if err := p.err(); err != nil {
		return nil, err
	}
	query.After = outbox.DeliveryID(after)
	if query.After.IsZero() {
		query.After = beside
	}
	rows, next, err := a.cfg.Store.Deliveries(q.Context(), query, page)
	if err != nil {
		return nil, err
	}
	waiting, err := a.waiting(q.Context(), query.Tenant, maxListed, q.now, rows...)
	if err != nil {
		return nil, err
	}
	list := list[deliveryView]{Data: []deliveryView{}}
	for i := range rows {
		list.Data = append(list.Data, viewDelivery(&rows[i], waiting(&rows[i])))
	}
	if !next.IsZero() {
		list.NextCursor = p.cursor(position(next))
	}
	return ok(list)
}

// replayed is the answer to a replay.
type replayed struct {
	Delivery deliveryView         `json:"delivery" doc:"As it is from now on"`
	Was      outbox.DeliveryState `json:"was" doc:"The state it had when the replay was asked for"`
}

func (a *API) replayDelivery(q *request) (*answer, error) {
	id, err := q.pathDelivery()
	if err != nil {
		return nil, err
	}
	if _, err := q.empty(); err != nil {
		return nil, err
	}
	tenant := q.tenant.TenantRef
	if tenant.ID == 0 { // the operator's route
		if tenant, err = a.cfg.Store.DeliveryTenant(q.Context(), id); err != nil {
			return nil, err
		}
		q.author.Entry.Tenant = tenant
	}
	// Read first: a failure after the replay was asked for would make the caller ask again. What
	// the shard's owner makes of it within moments is shown already.
	d, err := a.cfg.Store.Delivery(q.Context(), tenant, id)
	if err != nil {
		return nil, err
	}
	if d.State != outbox.StatePending || !d.Parked() {
		d.NextAt = q.now
	}
	d.State, d.FinishedAt, d.Dead = outbox.StatePending, time.Time{}, nil
	waiting, err := a.waiting(q.Context(), tenant, maxCounted, q.now, d)
	if err != nil {
		return nil, err
	}
	was, err := q.store.RequestReplay(q.Context(), tenant, id)
	if err != nil {
		return nil, err
	}
	a.cfg.Wake(tenant.Shard)
	return accepted(replayed{Delivery: viewDelivery(&d, waiting(&d)), Was: was})
}
