package portal

import (
	"errors"
	"net/http"
	"slices"

	"github.com/waybill-dev/waybill/internal/api"
	"github.com/waybill-dev/waybill/internal/client"
	"github.com/waybill-dev/waybill/internal/outbox"
	"github.com/waybill-dev/waybill/internal/session"
)

// Sessions lets customers in by one-time links and recognises them by a cookie; *session.Manager.
type Sessions interface {
	Peek(r *http.Request, code string) (outbox.Session, session.Outcome, error)
	Exchange(w http.ResponseWriter, r *http.Request, code string) (session.Principal, session.Outcome, error)
	FromRequest(r *http.Request, tenant string) (session.Principal, error)
	End(w http.ResponseWriter, r *http.Request, tenant string) error
	Home(p *session.Principal) string
}

// customer is the face of one tenant's pages, below /portal/{tenant}/.
type customer struct {
	base     *Base
	sessions Sessions
}

// Sections of the customer's pages.
const (
	sectionDeliveries = "Deliveries"
	sectionEvents     = "Events"
	sectionEndpoints  = "Endpoints"
	sectionRecover    = "Recover"
)

var errSignedOut = &Trouble{Status: http.StatusUnauthorized, Alone: true, Title: "You are not signed in here",
	Text: "The session has ended, or was opened in another browser. A new link brings you back; get it where you got the last one."}

// serveCustomers registers the customer portal.
func (b *Base) serveCustomers(sessions Sessions) {
	c := &customer{base: b, sessions: sessions}
	b.Get(session.LinkPath+"{code}", stranger{}, c.showLink)
	b.Post(session.LinkPath+"{code}", stranger{}, c.useLink)

	const home = "/portal/{tenant}"
	b.Get(home+"/{$}", c, func(v *Visit) error { return v.Redirect(v.at("deliveries"), "") })
	b.Get(home+"/preferences", c, b.ShowPreferences)
	b.Post(home+"/preferences", c, b.SetPreferences)
	b.Post(home+"/sign-out", c, c.signOut)

	b.Get(home+"/deliveries", c, c.deliveries)
	b.Post(home+"/replay", c, c.may(outbox.PermissionReplay, "replay deliveries", c.replay))
	b.Get(home+"/deliveries/{dlv}", c, c.delivery)
	b.Get(home+"/deliveries/{dlv}/curl", c, c.may(outbox.PermissionReplay, "sign requests", c.curl))
	b.Get(home+"/events", c, c.events)
	b.Get(home+"/events/{evt}", c, c.event)
	b.Get(home+"/events/{evt}/payload", c, c.payload)

	manage := func(act func(*Visit) error) func(*Visit) error {
		return c.may(outbox.PermissionManage, "change endpoints", act)
	}
	b.Get(home+"/endpoints", c, c.endpoints)
	b.Get(home+"/endpoints/new", c, manage(c.newEndpoint))
	b.Post(home+"/endpoints", c, manage(c.addEndpoint))
	b.Get(home+"/endpoints/{ep}", c, c.endpoint)
	b.Get(home+"/endpoints/{ep}/edit", c, manage(c.editEndpoint))
	b.Post(home+"/endpoints/{ep}/edit", c, manage(c.changeEndpoint))
	b.Post(home+"/endpoints/{ep}/pause", c, manage(c.pause))
	b.Post(home+"/endpoints/{ep}/resume", c, manage(c.resume))
	b.Post(home+"/endpoints/{ep}/probe", c, manage(c.probe))
	b.Post(home+"/endpoints/{ep}/test", c, manage(c.test))
	b.Get(home+"/endpoints/{ep}/remove", c, manage(c.askRemove))
	b.Post(home+"/endpoints/{ep}/remove", c, manage(c.remove))
	b.Post(home+"/endpoints/{ep}/rotate", c, c.may(outbox.PermissionSecrets, "rotate secrets", c.rotate))

	b.Get(home+"/recover", c, c.recover)
	b.Post(home+"/recover", c, c.may(outbox.PermissionReplay, "replay deliveries", c.startReplay))
	b.Get(home+"/recover/{rpl}", c, c.job)
	b.Post(home+"/recover/{rpl}/cancel", c, c.may(outbox.PermissionReplay, "cancel a replay", c.cancelJob))
}

// Open recognises the customer. A session of one tenant is nobody for the pages of another.
func (c *customer) Open(v *Visit) (Visitor, error) {
	tenant := v.PathValue("tenant")
	p, err := c.sessions.FromRequest(v.Request, tenant)
	switch {
	case errors.Is(err, session.ErrNone):
		return c.openOperator(v, tenant)
	case err != nil:
		return Visitor{}, storeAway(err)
	}
	at := func(parts ...string) string { return c.base.Path(append([]string{"portal", tenant}, parts...)...) }
	note := "Signed in for " + tenant
	if p.User.Name != "" {
		note = p.User.Name + ", signed in for " + tenant
	}
	if p.ReadOnly() {
		note += ", to look only,"
	}
	frame := Frame{
		Small: "webhooks",
		Home:  at("deliveries"),
		Nav: []Link{
			{at("deliveries"), sectionDeliveries},
			{at("events"), sectionEvents},
			{at("endpoints"), sectionEndpoints},
			{at("recover"), sectionRecover},
		},
		Note: note, Until: p.ExpiresAt, SignOut: at("sign-out"), Prefs: at("preferences"),
		Framed: framed(v.Request), Accent: p.Theme["accent"], Mode: p.Theme["mode"],
	}
	if p.ReturnURL != "" {
		frame.Back = &Link{p.ReturnURL, "Back to " + v.base.cfg.Look.Name}
	}
	return Visitor{
		Who:    api.Holder{Name: p.Actor().Name + " (portal)", Tenant: tenant, Scopes: []api.Scope{api.ScopeRead}, Actor: p.Actor(), Prefix: p.KeyPrefix, ExpiresAt: p.ExpiresAt},
		Tenant: tenant,
		May:    func(act string) bool { return slices.Contains(p.Permissions, outbox.Permission(act)) },
		Frame:  frame,
	}, nil
}

// openOperator lets an operator see a tenant's pages, as an operator.
func (c *customer) openOperator(v *Visit, tenant string) (Visitor, error) {
	p, err := c.sessions.FromRequest(v.Request, "")
	switch {
	case errors.Is(err, session.ErrNone):
		return Visitor{}, errSignedOut
	case err != nil:
		return Visitor{}, storeAway(err)
	}
	o := &operator{base: c.base, sessions: c.sessions}
	return o.within(&p, tenant), nil
}

// framed reports whether a browser shows the page in a frame.
func framed(r *http.Request) bool {
	dest := r.Header.Get("Sec-Fetch-Dest")
	return dest == "iframe" || dest == "frame"
}

// may lets an act pass that the session has the permission for.
func (c *customer) may(needs outbox.Permission, act string, do func(*Visit) error) func(*Visit) error {
	return func(v *Visit) error {
		if !v.May(string(needs)) {
			return NotPermitted(act)
		}
		return do(v)
	}
}

func (c *customer) signOut(v *Visit) error {
	back := v.Frame.Back
	if err := c.sessions.End(v.w, v.Request, v.Tenant); err != nil {
		return storeAway(err)
	}
	return &Trouble{Status: http.StatusOK, Alone: true, Next: back, Title: "You are signed out",
		Text: "The session has ended in this browser and cannot be used again. Deliveries go on without you."}
}

// storeAway makes of an error of the store the page that says so.
func storeAway(err error) error {
	return &away{cause: err}
}

// away keeps what happened for the log.
type away struct{ cause error }

func (a *away) Error() string { return "store: " + a.cause.Error() }

func (a *away) Unwrap() []error {
	return []error{&client.Error{Status: http.StatusServiceUnavailable}, a.cause}
}

// at is the address of one of the tenant's pages.
func (v *Visit) at(parts ...string) string {
	return v.Path(append([]string{"portal", v.Tenant}, parts...)...)
}

// tenantPath is the path of the tenant's part of the API.
func (v *Visit) tenantPath(parts ...string) string {
	return client.Path(append([]string{"v1", "tenants", v.Tenant}, parts...)...)
}

// write calls the API with what acts need.
func (v *Visit) write() *client.Client { return v.As(api.ScopeRead, api.ScopeWrite) }
