package api

import (
	"errors"
	"net/http"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// eventView is an event in an answer. Its payload has an address of its own, where the bytes
// are what was published.
type eventView struct {
	ID           string            `json:"id"`
	Tenant       string            `json:"tenant"`
	Type         string            `json:"type"`
	OrderingKey  *string           `json:"ordering_key"`
	Metadata     map[string]string `json:"metadata"`
	PayloadBytes int               `json:"payload_bytes" doc:"As they were published, also when they have been erased since"`
	PayloadState string            `json:"payload_state" enum:"kept,erased"`
	State        outbox.EventState `json:"state"`
	CreatedAt    stamp             `json:"created_at"`
}

func viewEvent(e *outbox.EventView) eventView {
	state := "kept"
	if e.PayloadErased {
		state = "erased"
	}
	return eventView{
		PayloadState: state,
		ID:           e.ID.String(),
		Tenant:       e.TenantKey,
		Type:         e.Type,
		OrderingKey:  orNull(e.OrderingKey),
		Metadata:     orEmpty(e.Metadata),
		PayloadBytes: e.PayloadBytes,
		State:        e.State,
		CreatedAt:    stamp(e.CreatedAt),
	}
}

// pathEvent reads {evt}. What is no event id names no event.
func (q *request) pathEvent() (outbox.EventID, error) {
	id, err := outbox.ParseEventID(q.PathValue("evt"))
	if err != nil {
		return id, outbox.ErrNotFound
	}
	return id, nil
}

func (a *API) getEvent(q *request) (*answer, error) {
	id, err := q.pathEvent()
	if err != nil {
		return nil, err
	}
	p := q.params()
	explained := p.oneOf("explain", yesOrNo...) == "true"
	tenant := q.tenant.TenantRef
	if q.route.operator {
		t, err := a.tenantParam(q, p)
		if err != nil {
			return nil, err
		}
		if t != nil {
			tenant = t.TenantRef
		}
	}
	if err := p.err(); err != nil {
		return nil, err
	}
	e, err := a.cfg.Store.Event(q.Context(), tenant, id)
	if errors.Is(err, outbox.ErrAmbiguous) {
		return nil, a.whoseEvent(q, id)
	}
	if err != nil {
		return nil, err
	}
	view := explainedEventView{eventView: viewEvent(&e)}
	if explained {
		if view.NotMatched, err = a.explain(q.Context(), &e); err != nil {
			return nil, err
		}
	}
	return ok(view)
}

// whoseEvent refuses to choose between the events that several tenants have under one id, and names
// the tenants.
func (a *API) whoseEvent(q *request, id outbox.EventID) error {
	list, err := a.cfg.Store.EventsByID(q.Context(), id)
	if err != nil {
		return err
	}
	var items []Item
	for i := range list {
		items = append(items, Item{Path: "tenant", Code: CodeAmbiguousID, Detail: list[i].TenantKey})
	}
	p := fail(CodeAmbiguousID, "%d tenants have an event with this id; name the tenant whose you mean", len(list))
	p.Errors = items
	return p
}

func (a *API) getPayload(q *request) (*answer, error) {
	id, err := q.pathEvent()
	if err != nil {
		return nil, err
	}
	payload, err := a.cfg.Store.Payload(q.Context(), q.tenant.TenantRef, id)
	if errors.Is(err, outbox.ErrPayloadGone) {
		p := problemOf(err)
		p.Status = http.StatusGone
		return nil, p
	}
	if err != nil {
		return nil, err
	}
	return &answer{status: http.StatusOK, raw: payload}, nil
}

func (a *API) listEvents(q *request) (*answer, error) {
	p := q.params()
	tenant := q.tenant.TenantRef
	if q.route.operator {
		t, err := a.tenantParam(q, p)
		if err != nil {
			return nil, err
		}
		if t != nil {
			tenant = t.TenantRef
		}
	}
	query := outbox.EventQuery{
		Tenant:     tenant,
		EventTypes: p.eventTypes(),
		State:      outbox.EventState(p.oneOf("state", string(outbox.EventUnrouted), string(outbox.EventFailed), string(outbox.EventCancelled))),
	}
	query.From, query.To = p.span()
	page, after := p.page()
	if err := p.err(); err != nil {
		return nil, err
	}
	query.After = outbox.EventID(after)
	rows, next, err := a.cfg.Store.Events(q.Context(), query, page)
	if err != nil {
		return nil, err
	}
	list := list[eventView]{Data: []eventView{}}
	for i := range rows {
		list.Data = append(list.Data, viewEvent(&rows[i]))
	}
	if !next.IsZero() {
		list.NextCursor = p.cursor(position(next))
	}
	return ok(list)
}
