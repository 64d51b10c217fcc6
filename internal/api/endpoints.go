package api

import (
	"errors"
	"net/http"

	"github.com/waybill-dev/waybill/internal/outbox"
	"github.com/waybill-dev/waybill/internal/signing"
)

// endpointRef reads {ep}: an id, or the caller's uid.
func endpointRef(s string) (outbox.EndpointRef, error) {
	if id, err := outbox.ParseEndpointID(s); err == nil {
		return outbox.EndpointRef{ID: id}, nil
	}
	if outbox.ValidUID(s) {
		return outbox.EndpointRef{UID: s}, nil
	}
	return outbox.EndpointRef{}, outbox.ErrNotFound
}

// edit prepares an endpoint for the fields of a request.
func (a *API) edit(q *request, e *outbox.Endpoint, exists bool, book signing.Book) *endpointEdit {
	edit := &endpointEdit{Endpoint: *e, exists: exists, book: book, urlBefore: e.URL, guard: a.cfg.Guard, tenant: &q.tenant, now: q.now, by: q.who.Name}
	if !exists {
		edit.EventTypes = []string{"*"}
		edit.Timeout = outbox.DefaultTimeout
		edit.State = outbox.EndpointActive
	}
	return edit
}

// fillEdit reads an endpoint's fields and judges them together.
func fillEdit(q *request, raw []byte, fields []field[endpointEdit], edit *endpointEdit) error {
	if err := fillBody(q, raw, fields, edit); err != nil {
		return err
	}
	return edit.settle()
}

// recordsEndpoint puts on record what becomes of an endpoint.
func (q *request) recordsEndpoint(before *outbox.Endpoint, edit *endpointEdit, exists bool) {
	q.records(made("endpoint", exists), before.ID.String(), outbox.EndpointChanges(before, &edit.Endpoint))
}

func (a *API) postEndpoint(q *request) (*answer, error) {
	raw, err := q.object()
	if err != nil {
		return nil, err
	}
	book, err := a.bookOf(q)
	if err != nil {
		return nil, err
	}
	e, _, err := q.store.PutEndpoint(q.Context(), q.tenant.TenantRef, outbox.EndpointRef{}, q.now, func(e *outbox.Endpoint, exists bool) error {
		if err := a.mayAddEndpoint(q, e.Siblings); err != nil {
			return err
		}
		edit := a.edit(q, e, exists, book)
		if err := fillEdit(q, raw, endpointFields, edit); err != nil {
			return err
		}
		q.recordsEndpoint(e, edit, exists)
		*e = edit.Endpoint
		return nil
	})
	if errors.Is(err, outbox.ErrConflict) {
		return nil, errUIDTaken()
	}
	if err != nil {
		return nil, err
	}
	return a.createdEndpoint(q, &e), nil
}

func (a *API) putEndpoint(q *request) (*answer, error) {
	ref, err := endpointRef(q.PathValue("ep"))
	if err != nil {
		return nil, failField("uid", CodeInvalidField, "want 1 to 128 characters of A-Z a-z 0-9 _ . : - that do not begin with ep_")
	}
	raw, err := q.object()
	if err != nil {
		return nil, err
	}
	book, err := a.bookOf(q)
	if err != nil {
		return nil, err
	}
	e, created, err := q.store.PutEndpoint(q.Context(), q.tenant.TenantRef, ref, q.now, func(e *outbox.Endpoint, exists bool) error {
		edit := a.edit(q, e, exists, book)
		if !exists {
			if ref.UID == "" {
				return outbox.ErrNotFound // an id is ours to give
			}
			if err := a.mayAddEndpoint(q, e.Siblings); err != nil {
				return err
			}
			edit.UID = ref.UID
			if err := fillEdit(q, raw, endpointFields, edit); err != nil {
				return err
			}
		} else if err := fillEdit(q, raw, endpointPutFields, edit); err != nil {
			return err
		}
		if ref.UID != "" && edit.UID != ref.UID {
			return failField("uid", CodeInvalidField, "differs from the uid in the address")
		}
		q.recordsEndpoint(e, edit, exists)
		*e = edit.Endpoint
		return nil
	})
	if errors.Is(err, outbox.ErrConflict) {
		return nil, errUIDTaken()
	}
	if err != nil {
		return nil, err
	}
	if created {
		return a.createdEndpoint(q, &e), nil
	}
	return a.showEndpoint(q, &e, &q.tenant)
}

func (a *API) patchEndpoint(q *request) (*answer, error) {
	ref, err := endpointRef(q.PathValue("ep"))
	if err != nil {
		return nil, err
	}
	raw, err := q.object()
	if err != nil {
		return nil, err
	}
	book, err := a.bookOf(q)
	if err != nil {
		return nil, err
	}
	discarded := false
	e, err := q.store.EditEndpoint(q.Context(), q.tenant.TenantRef, ref, q.now, func(e *outbox.Endpoint) ([]outbox.Command, error) {
		edit := a.edit(q, e, true, book)
		if err := fillEdit(q, raw, endpointPatchFields, edit); err != nil {
			return nil, err
		}
		if edit.backlog != "" && edit.State != outbox.EndpointActive {
			return nil, failField("backlog", CodeInvalidField, "goes with state active")
		}
		var commands []outbox.Command
		if discarded = edit.backlog == "discard"; discarded {
			// What the configuration says holds at once; the command clears the rows after it.
			edit.DiscardedAt = q.now
			commands = []outbox.Command{{
				Name:   outbox.CommandCancelEndpoint,
				Reason: "The backlog was discarded when the endpoint was set to active.",
				Before: q.now,
			}}
		}
		q.recordsEndpoint(e, edit, true)
		*e = edit.Endpoint
		return commands, nil
	})
	if errors.Is(err, outbox.ErrConflict) {
		return nil, errUIDTaken()
	}
	if err != nil {
		return nil, err
	}
	if discarded {
		a.cfg.Wake(q.tenant.Shard)
	}
	return a.showEndpoint(q, &e, &q.tenant)
}

func (a *API) getEndpoint(q *request) (*answer, error) {
	ref, err := endpointRef(q.PathValue("ep"))
	if err != nil {
		return nil, err
	}
	e, err := a.cfg.Store.Endpoint(q.Context(), q.tenant.TenantRef, ref)
	if err != nil {
		return nil, err
	}
	return a.showEndpoint(q, &e, &q.tenant)
}

// lookUpEndpoint is the operator's look at any tenant's endpoint, by id.
func (a *API) lookUpEndpoint(q *request) (*answer, error) {
	id, err := outbox.ParseEndpointID(q.PathValue("ep"))
	if err != nil {
		return nil, outbox.ErrNotFound
	}
	e, err := a.cfg.Store.Endpoint(q.Context(), outbox.TenantRef{}, outbox.EndpointRef{ID: id})
	if err != nil {
		return nil, err
	}
	t, err := a.tenants.getByID(q.Context(), e.Tenant.ID)
	if err != nil {
		return nil, err
	}
	return a.showEndpoint(q, &e, &t)
}

// deletedEndpoint is the answer to an endpoint's deletion.
type deletedEndpoint struct {
	Cancelling int  `json:"cancelling" doc:"Pending deliveries that end as cancelled"`
	Capped     bool `json:"capped,omitempty" doc:"There are more than counted"`
}

func (a *API) deleteEndpoint(q *request) (*answer, error) {
	ref, err := endpointRef(q.PathValue("ep"))
	if err != nil {
		return nil, err
	}
	n, err := q.store.DeleteEndpoint(q.Context(), q.tenant.TenantRef, ref, q.now, maxCounted+1)
	if err != nil {
		return nil, err
	}
	a.cfg.Wake(q.tenant.Shard)
	return accepted(deletedEndpoint{Cancelling: min(n, maxCounted), Capped: n > maxCounted})
}

func (a *API) listEndpoints(q *request) (*answer, error) {
	return a.endpointList(q, q.params(), &q.tenant)
}

// listAllEndpoints is the operator's list over all tenants, or of ?tenant=.
func (a *API) listAllEndpoints(q *request) (*answer, error) {
	p := q.params()
	t, err := a.tenantParam(q, p)
	if err != nil {
		return nil, err
	}
	return a.endpointList(q, p, t)
}

// tenantParam reads ?tenant=; nil means all of them.
func (a *API) tenantParam(q *request, p *params) (*outbox.Tenant, error) {
	key := p.text("tenant", 64)
	if key == "" {
		return nil, nil
	}
	t, err := a.findTenant(q, key, false)
	return &t, err
}

func (a *API) endpointList(q *request, p *params, t *outbox.Tenant) (*answer, error) {
	query := outbox.EndpointQuery{
		State:     outbox.EndpointState(p.oneOf("state", "draft", "active", "paused", "disabled")),
		EventType: p.text("event_type", outbox.MaxEventType),
	}
	if query.EventType != "" && !outbox.ValidEventType(query.EventType) {
		p.bad("event_type", "want an event type")
	}
	if t != nil {
		query.Tenant = t.TenantRef
	}
	page, after := p.page()
	if err := p.err(); err != nil {
		return nil, err
	}
	query.After = outbox.EndpointID(after)
	rows, err := a.cfg.Store.Endpoints(q.Context(), query, page)
	if err != nil {
		return nil, err
	}
	at := make([]outbox.EndpointRow, len(rows))
	for i := range rows {
		at[i] = rowOf(&rows[i])
	}
	health, err := a.healthOf(q.Context(), query.Tenant, maxListed, at...)
	if err != nil {
		return nil, err
	}
	list := list[endpointView]{Data: []endpointView{}}
	for i := range rows {
		owner := t
		if owner == nil {
			found, err := a.tenants.getByID(q.Context(), rows[i].Tenant.ID)
			if errors.Is(err, outbox.ErrNotFound) {
				continue // deleted a moment ago, with its endpoints
			}
			if err != nil {
				return nil, err
			}
			owner = &found
		}
		list.Data = append(list.Data, a.viewEndpoint(&rows[i], owner, health(&rows[i], owner)))
	}
	if len(rows) == page.Limit {
		query.After = rows[len(rows)-1].ID
		more, err := a.cfg.Store.Endpoints(q.Context(), query, outbox.Page{Limit: 1, Ascending: page.Ascending})
		if err != nil {
			return nil, err
		}
		if len(more) > 0 {
			list.NextCursor = p.cursor(position(query.After))
		}
	}
	return ok(list)
}

func errUIDTaken() error {
	return failField("uid", CodeUIDTaken, "another endpoint of the tenant has this uid")
}

// mayAddEndpoint holds keys other than an operator's to the tenant's limit. It is asked while
// nobody else can add one.
func (a *API) mayAddEndpoint(q *request, n int) error {
	if q.who.Operator() {
		return nil
	}
	limit := a.cfg.MaxEndpointsPerTenant
	if q.tenant.MaxEndpoints != nil {
		limit = *q.tenant.MaxEndpoints
	}
	if n >= limit {
		return fail(CodeEndpointLimit, "the tenant has %d endpoints and may have %d", n, limit)
	}
	return nil
}

func (a *API) createdEndpoint(q *request, e *outbox.Endpoint) *answer {
	view := createdEndpointView{endpointView: a.viewEndpoint(e, &q.tenant, newHealth(e, &q.tenant))}
	for i := range e.Secrets {
		value := e.Secrets[i].Value
		if view.Secret == "" && schemeOf(&e.Secrets[i]) == e.Schemes[0] {
			view.Secret = value
		}
		view.Secrets[i].Value = &value
	}
	return &answer{
		status:   http.StatusCreated,
		body:     view,
		location: "/v1/tenants/" + q.tenant.Key + "/endpoints/" + e.ID.String(),
	}
}
