package api

import (
	"errors"
	"net/http"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// tenantView is a tenant in an answer.
type tenantView struct {
	Tenant       string             `json:"tenant" doc:"Your key for the customer"`
	Name         string             `json:"name"`
	Weight       float64            `json:"weight"`
	MaxInFlight  int                `json:"max_in_flight"`
	MaxEndpoints *int               `json:"max_endpoints"`
	State        outbox.TenantState `json:"state"`
	Egress       outbox.EgressClass `json:"egress"`
	Retry        retryView          `json:"retry" doc:"As it is in effect: the tenant's values, else the instance's"`
	Metadata     map[string]string  `json:"metadata"`
	CreatedAt    stamp              `json:"created_at"`
	UpdatedAt    stamp              `json:"updated_at"`
}

// retryView is a retry policy in effect.
type retryView struct {
	InitialSeconds float64  `json:"initial_seconds"`
	MaxSeconds     float64  `json:"max_seconds"`
	WindowSeconds  float64  `json:"window_seconds"`
	MaxAttempts    *int     `json:"max_attempts"`
	RetryStatuses  []string `json:"retry_statuses"`
}

func (a *API) viewTenant(t *outbox.Tenant) tenantView {
	return tenantView{
		Tenant:       t.Key,
		Name:         t.Name,
		Weight:       t.Weight,
		MaxInFlight:  t.MaxInFlight,
		MaxEndpoints: t.MaxEndpoints,
		State:        t.State,
		Egress:       t.Egress,
		Retry:        viewRetry(t.Retry.Over(a.cfg.Retry)),
		Metadata:     orEmpty(t.Metadata),
		CreatedAt:    stamp(t.CreatedAt),
		UpdatedAt:    stamp(t.UpdatedAt),
	}
}

func viewRetry(p outbox.RetryPolicy) retryView {
	statuses := p.RetryStatuses
	if statuses == nil {
		statuses = []string{}
	}
	return retryView{
		InitialSeconds: p.Initial.Seconds(),
		MaxSeconds:     p.Max.Seconds(),
		WindowSeconds:  p.Window.Seconds(),
		MaxAttempts:    orNull(p.MaxAttempts),
		RetryStatuses:  statuses,
	}
}

func orEmpty(m map[string]string) map[string]string {
	if m == nil {
		return map[string]string{}
	}
	return m
}

// errUnknownTenant answers an unknown tenant and, to a key that is bound to one, every other.
func errUnknownTenant() error { return fail(CodeUnknownTenant, "there is no tenant with this key") }

// tenantOf finds the tenant of the request's path, and makes it where that is wanted.
func (a *API) tenantOf(q *request) (outbox.Tenant, error) {
	return a.findTenant(q, q.PathValue("tenant"), q.route.makesTenants)
}

// findTenant finds a tenant the request's key may act for.
func (a *API) findTenant(q *request, key string, make bool) (outbox.Tenant, error) {
	if !q.who.Operator() && q.who.Tenant != key || !outbox.ValidTenantKey(key) {
		return outbox.Tenant{}, errUnknownTenant()
	}
	t, err := a.tenants.get(q.Context(), key)
	if !errors.Is(err, outbox.ErrNotFound) {
		return t, err
	}
	if !make || !a.cfg.CreateUnknownTenants || !q.who.Operator() {
		return outbox.Tenant{}, errUnknownTenant()
	}
	by := a.author(q, "tenant.create")
	by.Entry.Tenant, by.Entry.TenantKey, by.Entry.Object = outbox.TenantRef{}, key, key
	t, _, err = a.cfg.Store.By(by).PutTenant(q.Context(), key, q.now, func(*outbox.Tenant, bool) error { return nil })
	return t, err
}

func (a *API) putTenant(q *request) (*answer, error) {
	key := q.PathValue("tenant")
	if !outbox.ValidTenantKey(key) {
		return nil, failField("tenant", CodeInvalidTenant, "a tenant key is 1 to 64 characters of A-Z a-z 0-9 _ . : -")
	}
	raw, err := q.object()
	if err != nil {
		return nil, err
	}
	t, created, err := q.store.PutTenant(q.Context(), key, q.now, func(t *outbox.Tenant, exists bool) error {
		return q.editTenant(raw, t, exists)
	})
	a.tenants.forget(key)
	if err != nil {
		return nil, err
	}
	ans := &answer{status: http.StatusOK, body: a.viewTenant(&t)}
	if created {
		ans.status = http.StatusCreated
	}
	return ans, nil
}

// editTenant reads the request into a tenant.
func (q *request) editTenant(raw []byte, t *outbox.Tenant, exists bool) error {
	before := *t
	if err := fillBody(q, raw, tenantFields, t); err != nil {
		return err
	}
	q.records(made("tenant", exists), t.Key, outbox.TenantChanges(&before, t))
	return nil
}

func (a *API) patchTenant(q *request) (*answer, error) {
	key := q.PathValue("tenant")
	raw, err := q.object()
	if err != nil {
		return nil, err
	}
	t, err := q.store.EditTenant(q.Context(), key, q.now, func(t *outbox.Tenant) error {
		return q.editTenant(raw, t, true)
	})
	a.tenants.forget(key)
	if errors.Is(err, outbox.ErrNotFound) {
		return nil, errUnknownTenant()
	}
	if err != nil {
		return nil, err
	}
	return ok(a.viewTenant(&t))
}

func (a *API) getTenant(q *request) (*answer, error) {
	key := q.PathValue("tenant")
	if !q.who.Operator() && q.who.Tenant != key {
		return nil, errUnknownTenant()
	}
	t, err := a.cfg.Store.Tenant(q.Context(), key)
	if errors.Is(err, outbox.ErrNotFound) {
		return nil, errUnknownTenant()
	}
	if err != nil {
		return nil, err
	}
	return ok(a.viewTenant(&t))
}

// maxCounted is how many rows are counted for an answer.
const maxCounted = 10_000

func (a *API) deleteTenant(q *request) (*answer, error) {
	key := q.PathValue("tenant")
	job, err := q.store.DeleteTenant(q.Context(), key, q.who.Name, q.now)
	a.tenants.forget(key)
	if errors.Is(err, outbox.ErrNotFound) {
		return nil, errUnknownTenant()
	}
	if err != nil {
		return nil, err
	}
	a.cfg.Wake(job.Tenant.Shard)
	return accepted(viewJob(&job, true, q.now))
}

func (a *API) listTenants(q *request) (*answer, error) {
	p := q.params()
	query := outbox.TenantQuery{
		Search: p.text("q", maxName),
		State:  outbox.TenantState(p.oneOf("state", "active", "paused")),
	}
	page, after := p.page()
	if err := p.err(); err != nil {
		return nil, err
	}
	query.After = outbox.TenantID(after.number())
	rows, err := a.cfg.Store.Tenants(q.Context(), query, page)
	if err != nil {
		return nil, err
	}
	list := list[tenantView]{Data: []tenantView{}}
	for i := range rows {
		list.Data = append(list.Data, a.viewTenant(&rows[i]))
	}
	if len(rows) == page.Limit {
		// A full page may be the last one; only a look past it tells.
		query.After = rows[len(rows)-1].ID
		more, err := a.cfg.Store.Tenants(q.Context(), query, outbox.Page{Limit: 1, Ascending: page.Ascending})
		if err != nil {
			return nil, err
		}
		if len(more) > 0 {
			list.NextCursor = p.cursor(numberPosition(int64(query.After)))
		}
	}
	return ok(list)
}
