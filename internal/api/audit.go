package api

import (
	"net/http"
	"strings"
	"unicode"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// auditRoutes are the record of who changed what.
func auditRoutes() []*route {
	params := queryOf(listParams, []param{
		{name: "from", about: "RFC 3339; changes at or after it."},
		{name: "to", about: "RFC 3339; changes before it."},
		{name: "action", about: "For example endpoint.create."},
		{name: "actor_id", about: "The beginning of a key, or a session."},
		{name: "object_id", about: "What was changed."},
	})
	return []*route{
		{method: "GET", path: "/v1/audit", name: "listAudit", tag: "Audit", scope: ScopeAdmin, operator: true,
			summary: "List who changed what", query: queryOf(params, []param{tenantParam}),
			answers: map[int]any{200: list[auditView]{}}, refuses: []int{404}, handle: (*API).listAudit},
		{method: "GET", path: "/v1/tenants/{tenant}/audit", name: "listTenantAudit", tag: "Audit", scope: ScopeRead,
			summary: "List who changed what of a tenant's", about: "Keys of the tenant do not see which operator it was, nor from where.", query: params,
			answers: map[int]any{200: list[auditView]{}}, handle: (*API).listAudit},
	}
}

// auditView is one change in a list.
type auditView struct {
	ID        string         `json:"id"`
	At        stamp          `json:"at"`
	Tenant    *string        `json:"tenant" doc:"null: the instance's own"`
	Actor     actorView      `json:"actor"`
	Action    string         `json:"action"`
	ObjectID  *string        `json:"object_id"`
	Changes   outbox.Changes `json:"changes" doc:"Fields before and after. Of secrets both are null: only that they changed is kept"`
	RequestID *string        `json:"request_id"`
	Address   *string        `json:"address" doc:"Where the request came from"`
}

type actorView struct {
	Kind outbox.ActorKind `json:"kind"`
	Name string           `json:"name"`
	ID   *string          `json:"id" doc:"The beginning of the key, or the session"`
}

func viewAudit(who *Holder, e *outbox.AuditEntry) auditView {
	view := auditView{
		ID: e.ID.String(), At: stamp(e.ID.Time()), Tenant: orNull(e.TenantKey), Action: e.Action, ObjectID: orNull(e.Object), Changes: e.Changes,
		Actor: actorView{Kind: e.Actor.Kind, Name: e.Actor.Name, ID: orNull(e.Actor.ID)}, RequestID: orNull(e.RequestID), Address: orNull(e.Address),
	}
	// Who of the operator's people did it, and from which network, is not the customer's business.
	if !who.Operator() && e.Actor.Kind != outbox.ActorPortal {
		view.Actor = actorView{Kind: e.Actor.Kind}
		view.Address, view.RequestID = nil, nil
	}
	return view
}

func (a *API) listAudit(q *request) (*answer, error) {
	p := q.params()
	query := outbox.AuditQuery{Tenant: q.tenant.TenantRef, Action: p.text("action", 100), Actor: p.text("actor_id", 100), Object: p.text("object_id", maxName)}
	query.From, query.To = p.span()
	tenant := ""
	if q.route.operator {
		tenant = p.text("tenant", 64)
	}
	page, after := p.page()
	if err := p.err(); err != nil {
		return nil, err
	}
	if tenant != "" {
		t, err := a.findTenant(q, tenant, false)
		if err != nil {
			return nil, err
		}
		query.Tenant = t.TenantRef
	}
	query.After = outbox.AuditID(after)
	rows, err := q.store.AuditEntries(q.Context(), query, oneMore(page))
	return listed(p, page, rows, err, func(e *outbox.AuditEntry) (position, auditView) { return position(e.ID), viewAudit(&q.who, e) })
}

// recorded reports whether what a route changes is put on record. Events are not: they are a
// record themselves.
func (r *route) recorded() bool {
	return r.scope != "" && r.method != http.MethodGet && !r.publishes && !r.asks
}

// action is what a route does, for the record: createPortalSession is portal_session.create.
func (r *route) action() string {
	at := strings.IndexFunc(r.name, unicode.IsUpper)
	if at < 0 {
		return r.name
	}
	var noun strings.Builder
	for i, c := range r.name[at:] {
		if unicode.IsUpper(c) && i > 0 {
			noun.WriteByte('_')
		}
		noun.WriteRune(unicode.ToLower(c))
	}
	verb := r.name[:at]
	if verb == "patch" {
		verb = "update"
	}
	return noun.String() + "." + verb
}

// begin gives the request the store its handler works through: where it changes something, one
// that puts it on record.
func (a *API) begin(q *request) {
	q.store = a.cfg.Store
	if !q.route.recorded() {
		return
	}
	q.author = a.author(q, q.route.action())
	q.author.Entry.Object = q.pathObject()
	q.store = a.cfg.Store.By(q.author)
}

// author is whoever sent the request, about to do something.
func (a *API) author(q *request, action string) *outbox.Author {
	by := &outbox.Author{Entry: outbox.AuditEntry{
		ID: outbox.NewAuditID(q.now), Actor: q.who.actor(), Action: action, RequestID: q.id, Address: a.addressOf(q.Request),
		Tenant: q.tenant.TenantRef, TenantKey: q.tenant.Key,
	}}
	if by.Entry.TenantKey == "" {
		by.Entry.TenantKey = q.PathValue("tenant")
	}
	return by
}

// actor is the holder, for the record.
func (h *Holder) actor() outbox.Actor {
	if h.Actor != (outbox.Actor{}) {
		return h.Actor
	}
	return outbox.Actor{Kind: outbox.ActorKey, Name: h.Name, ID: h.Prefix}
}

// pathObject is what the path names last below its tenant: "" where the request makes something.
func (q *request) pathObject() string {
	names := pathParam.FindAllStringSubmatch(q.route.path, -1)
	if len(names) == 0 {
		return ""
	}
	return q.PathValue(names[len(names)-1][1])
}

// records sets what the entry of this request says beyond what its route does: the action, for
// example endpoint.create, what was changed, and how.
func (q *request) records(action, object string, changes outbox.Changes) {
	q.author.Entry.Action, q.author.Entry.Object, q.author.Entry.Changes = action, object, changes
}

// addressOf is where a request came from.
func (a *API) addressOf(r *http.Request) string {
	return a.callers.of(r.RemoteAddr, r.Header["X-Forwarded-For"])
}

// made is the action of a request that makes something, or changes what is there.
func made(noun string, exists bool) string {
	if exists {
		return noun + ".update"
	}
	return noun + ".create"
}
