package api

import (
	"context"
	"net/http"
	"slices"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// Links makes one-time links to the portal and the dashboard; internal/session.
type Links interface {
	// Offer stores the session, giving it its ID and CreatedAt, and returns its link.
	// The author's entry is put on record with it.
	Offer(ctx context.Context, s outbox.Session, by *outbox.Author) (made outbox.Session, link string, err error)
}

// sessionRoutes are the links to the portal and the dashboard, and what became of them.
func sessionRoutes() []*route {
	const portal, operators = "/v1/tenants/{tenant}/portal-sessions", "/v1/operator-sessions"
	return []*route{
		{method: "POST", path: portal, name: "createPortalSession", tag: "Sessions", scope: ScopeWrite, makesTenants: true,
			summary: "Make a link that lets a customer into the portal", about: "The link is in this answer only, and lets one browser in, once. A key cannot give what it may not do itself.",
			body: describe("PortalSessionInput", portalSessionFields), answers: map[int]any{201: createdSession{}}, handle: (*API).postPortalSession},
		{method: "GET", path: portal, name: "listPortalSessions", tag: "Sessions", scope: ScopeRead,
			summary: "List a tenant's links and sessions", query: listParams,
			answers: map[int]any{200: list[sessionView]{}}, handle: (*API).listSessions},
		{method: "DELETE", path: portal, name: "revokePortalSessions", tag: "Sessions", scope: ScopeWrite,
			summary: "End all of a tenant's sessions", about: "At once, and the links that nobody has used too.",
			answers: map[int]any{204: nil}, handle: (*API).deleteSessions},
		{method: "DELETE", path: portal + "/{ps}", name: "revokePortalSession", tag: "Sessions", scope: ScopeWrite,
			summary: "End a session, or take back its link", answers: map[int]any{204: nil}, handle: (*API).deleteSession},

		{method: "POST", path: operators, name: "createOperatorSession", tag: "Sessions", scope: ScopeRead, operator: true,
			summary: "Make a link that lets an operator into the dashboard", about: "The session may do what the key may. Its link lets one browser in, once.",
			body: describe("OperatorSessionInput", operatorSessionFields), answers: map[int]any{201: createdSession{}}, handle: (*API).postOperatorSession},
		{method: "GET", path: operators, name: "listOperatorSessions", tag: "Sessions", scope: ScopeRead, operator: true,
			summary: "List operators' links and sessions", query: listParams,
			answers: map[int]any{200: list[sessionView]{}}, handle: (*API).listSessions},
		{method: "DELETE", path: operators, name: "revokeOperatorSessions", tag: "Sessions", scope: ScopeAdmin, operator: true,
			summary: "End all operators' sessions", answers: map[int]any{204: nil}, handle: (*API).deleteSessions},
		{method: "DELETE", path: operators + "/{ps}", name: "revokeOperatorSession", tag: "Sessions", scope: ScopeAdmin, operator: true,
			summary: "End an operator's session, or take back its link", answers: map[int]any{204: nil}, refuses: []int{404}, handle: (*API).deleteSession},
	}
}

// createdSession is the answer to a new link, and the only one that shows it.
type createdSession struct {
	ID            string `json:"id"`
	URL           string `json:"url" doc:"It is not shown again. It works once"`
	ExpiresAt     stamp  `json:"expires_at" doc:"The session ends then, whenever it was opened"`
	LinkExpiresAt stamp  `json:"link_expires_at" doc:"The link must be opened before"`
}

// sessionView is a session in a list.
type sessionView struct {
	ID            string              `json:"id"`
	State         outbox.SessionState `json:"state"`
	Permissions   []outbox.Permission `json:"permissions"`
	ReadOnly      bool                `json:"read_only"`
	User          *userView           `json:"user"`
	Path          *string             `json:"path"`
	ReturnURL     *string             `json:"return_url"`
	Theme         map[string]string   `json:"theme"`
	CreatedBy     string              `json:"created_by" doc:"The name of the key"`
	CreatedAt     stamp               `json:"created_at"`
	LinkExpiresAt stamp               `json:"link_expires_at"`
	ExpiresAt     stamp               `json:"expires_at"`
	UsedAt        *stamp              `json:"used_at"`
	RevokedAt     *stamp              `json:"revoked_at"`
}

// userView is who is behind a session.
type userView struct {
	ID    string  `json:"id"`
	Name  *string `json:"name"`
	Email *string `json:"email"`
}

func viewSession(q *request, s *outbox.Session) sessionView {
	view := sessionView{
		ID: s.ID.String(), State: s.State(q.now), Permissions: s.Permissions, ReadOnly: s.ReadOnly(),
		Path: orNull(s.Path), ReturnURL: orNull(s.ReturnURL), Theme: orEmpty(s.Theme),
		CreatedBy: s.CreatedBy, CreatedAt: stamp(s.CreatedAt), LinkExpiresAt: stamp(s.LinkExpiresAt), ExpiresAt: stamp(s.ExpiresAt),
		UsedAt: stampOf(s.UsedAt), RevokedAt: stampOf(s.RevokedAt),
	}
	if s.User != (outbox.SessionUser{}) {
		view.User = &userView{ID: s.User.ID, Name: orNull(s.User.Name), Email: orNull(s.User.Email)}
	}
	return view
}

func (a *API) postPortalSession(q *request) (*answer, error) {
	asked := newSession()
	if err := q.fillSession(portalSessionFields, &asked); err != nil {
		return nil, err
	}
	asked.Tenant, asked.TenantKey = q.tenant.TenantRef, q.tenant.Key
	asked.Permissions = asked.allowed()
	// The route wants write; whoever looks needs read besides.
	if !q.who.May(ScopeRead) {
		return nil, fail(CodeForbidden, "the key lacks the scope read, and a session lets people look")
	}
	return a.offer(q, asked)
}

func (a *API) postOperatorSession(q *request) (*answer, error) {
	asked := newSession()
	asked.life = operatorLife
	if err := q.fillSession(operatorSessionFields, &asked); err != nil {
		return nil, err
	}
	asked.Permissions = []outbox.Permission{outbox.PermissionView}
	if q.who.May(ScopeWrite) {
		asked.Permissions = slices.Clone(outbox.PortalPermissions)
	}
	if q.who.May(ScopeAdmin) {
		asked.Permissions = append(asked.Permissions, outbox.PermissionAdmin)
	}
	if asked.readOnly {
		asked.Permissions = asked.Permissions[:1]
	}
	return a.offer(q, asked)
}

func (a *API) offer(q *request, asked askedSession) (*answer, error) {
	// A session is never more than the key it was made with: it ends with it, and not later.
	asked.CreatedBy, asked.KeyPrefix = q.who.Name, q.who.Prefix
	if !q.who.ExpiresAt.IsZero() {
		asked.life = min(asked.life, q.who.ExpiresAt.Sub(q.now))
	}
	asked.ExpiresAt = q.now.Add(asked.life)
	asked.LinkExpiresAt = q.now.Add(min(asked.linkLife, asked.life))
	s, link, err := a.cfg.Links.Offer(q.Context(), asked.Session, q.author)
	if err != nil {
		return nil, err
	}
	return &answer{status: http.StatusCreated, body: createdSession{
		ID: s.ID.String(), URL: link, ExpiresAt: stamp(s.ExpiresAt), LinkExpiresAt: stamp(s.LinkExpiresAt),
	}}, nil
}

// listSessions lists a tenant's, or the operators' where the route is not below a tenant.
func (a *API) listSessions(q *request) (*answer, error) {
	p := q.params()
	page, after := p.page()
	if err := p.err(); err != nil {
		return nil, err
	}
	rows, err := a.cfg.Store.Sessions(q.Context(), q.tenant.TenantRef, outbox.SessionID(after), oneMore(page))
	return listed(p, page, rows, err, func(s *outbox.Session) (position, sessionView) { return position(s.ID), viewSession(q, s) })
}

func (a *API) deleteSession(q *request) (*answer, error) {
	id, err := outbox.ParseSessionID(q.PathValue("ps"))
	if err != nil {
		return nil, outbox.ErrNotFound
	}
	if err := q.store.RevokeSession(q.Context(), q.tenant.TenantRef, id, q.now); err != nil {
		return nil, err
	}
	return noContent()
}

func (a *API) deleteSessions(q *request) (*answer, error) {
	if _, err := q.store.RevokeSessions(q.Context(), q.tenant.TenantRef, q.now); err != nil {
		return nil, err
	}
	return noContent()
}
