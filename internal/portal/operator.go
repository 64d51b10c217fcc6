package portal

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"

	"github.com/waybill-dev/waybill/internal/api"
	"github.com/waybill-dev/waybill/internal/client"
	"github.com/waybill-dev/waybill/internal/outbox"
	"github.com/waybill-dev/waybill/internal/session"
)

// Who finds whom an API key belongs to, false if it is none; *api.API's method of that name.
type Who func(ctx context.Context, key string) (api.Holder, bool, error)

// operator is the face of the dashboard.
type operator struct {
	base     *Base
	sessions Sessions
}

// Sections of the dashboard.
const (
	sectionOverview = "Overview"
	sectionTenants  = "Tenants"
	sectionReplays  = "Replays"
	sectionAudit    = "Audit"
)

// ForOperators reports whether a path is one of the dashboard's pages.
func ForOperators(path string) bool {
	first, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	return slices.Contains([]string{"", "sign-in", "sign-out", "preferences", "deliveries", "endpoints", "events", "tenants", "search", "sources", "replays", "cancellations", "erasures", "audit", "replay", "dispatch"}, first)
}

// serveOperators registers the dashboard.
func (b *Base) serveOperators(sessions Sessions) {
	o := &operator{base: b, sessions: sessions}
	b.Get("/sign-in", stranger{}, o.showSignIn)
	b.Post("/sign-in", stranger{}, o.signIn)
	b.Get(session.SignInPath+"{code}", stranger{}, o.showLink)
	b.Post(session.SignInPath+"{code}", stranger{}, o.useLink)
	b.Post("/sign-out", o, o.signOut)

	b.Get("/{$}", o, o.overview)
	b.Get("/deliveries", o, o.deliveries)
	b.Post("/replay", o, o.may(outbox.PermissionReplay, "replay deliveries", o.replay))
	b.Get("/endpoints", o, o.endpoints)
	b.Get("/events", o, o.events)
	b.Get("/search", o, o.search)
	b.Get("/tenants", o, o.tenants)
	b.Get("/tenants/new", o, o.may(outbox.PermissionAdmin, "add tenants", o.newTenant))
	b.Post("/tenants", o, o.may(outbox.PermissionAdmin, "add tenants", o.putTenant))
	b.Get("/tenants/{tenant}", o, o.tenant)
	b.Post("/tenants/{tenant}", o, o.may(outbox.PermissionAdmin, "change tenants", o.putTenant))
	b.Post("/dispatch", o, o.may(outbox.PermissionAdmin, "stop and start sending", o.setDispatch))
	b.Get("/audit", o, o.audit)
	o.serveSources()
	o.serveJobs()
}

// errSignIn sends on to the page where one signs in.
var errSignIn = errors.New("nobody is signed in")

// Open recognises the operator.
func (o *operator) Open(v *Visit) (Visitor, error) {
	p, err := o.sessions.FromRequest(v.Request, "")
	switch {
	case errors.Is(err, session.ErrNone):
		return Visitor{}, errSignIn
	case err != nil:
		return Visitor{}, storeAway(err)
	}
	return o.visitor(&p), nil
}

// visitor is what an operator's session may do and see.
func (o *operator) visitor(p *session.Principal) Visitor {
	at := o.base.Path
	name := cmp.Or(p.User.Name, p.User.Email, p.User.ID, p.CreatedBy)
	note := "Signed in as " + name
	if p.ReadOnly() {
		note += ", to look only,"
	}
	return Visitor{
		Who: api.Holder{Name: name + " (dashboard)", Scopes: []api.Scope{api.ScopeRead}, Actor: p.Actor(), Prefix: p.KeyPrefix, ExpiresAt: p.ExpiresAt},
		May: func(act string) bool {
			return slices.Contains(p.Permissions, outbox.Permission(act)) || slices.Contains(p.Permissions, outbox.PermissionAdmin)
		},
		Frame: Frame{
			Small: "operator",
			Home:  at(""),
			Nav: []Link{
				{at(""), sectionOverview},
				{at("deliveries"), sectionDeliveries},
				{at("tenants"), sectionTenants},
				{at("endpoints"), sectionEndpoints},
				{at("sources"), sectionSources},
				{at("replays"), sectionReplays},
				{at("audit"), sectionAudit},
			},
			Search: at("search"), Note: note, Until: p.ExpiresAt, SignOut: at("sign-out"), Prefs: at("preferences"),
		},
	}
}

// within is the operator in a tenant's own pages, which are then the operator's too.
func (o *operator) within(p *session.Principal, tenant string) Visitor {
	v := o.visitor(p)
	at := func(parts ...string) string { return o.base.Path(append([]string{"portal", tenant}, parts...)...) }
	v.Tenant = tenant
	v.Frame.Small = tenant
	v.Frame.Nav = []Link{
		{o.base.Path(""), sectionOverview},
		{o.base.Path("tenants", tenant), "Tenant"},
		{at("deliveries"), sectionDeliveries},
		{at("events"), sectionEvents},
		{at("endpoints"), sectionEndpoints},
		{at("recover"), sectionRecover},
	}
	return v
}

// may lets an act pass that the session has the permission for.
func (o *operator) may(needs outbox.Permission, act string, do func(*Visit) error) func(*Visit) error {
	return func(v *Visit) error {
		if !v.May(string(needs)) {
			return NotPermitted(act)
		}
		return do(v)
	}
}

// signInPage is the page where operators sign in.
type signInPage struct {
	Back, Fault string
	Code        bool // it is the page of a link
	ByKey       bool
	Session     outbox.Session
}

func (o *operator) showSignIn(v *Visit) error {
	return v.Show(Page{Name: "sign-in", Title: "Operator sign-in", Data: signInPage{Back: o.back(v), ByKey: o.base.cfg.Who != nil}})
}

// signIn exchanges an operator's key for a session: the key itself is kept nowhere.
func (o *operator) signIn(v *Visit) error {
	key := strings.TrimSpace(v.PostFormValue("key"))
	refuse := func(fault string) error {
		return v.Show(Page{Name: "sign-in", Title: "Operator sign-in", Status: http.StatusUnprocessableEntity, Data: signInPage{Back: o.back(v), Fault: fault, ByKey: o.base.cfg.Who != nil}})
	}
	if o.base.cfg.Who == nil || key == "" {
		return refuse("Type the key, or use a link.")
	}
	who, known, err := o.base.cfg.Who(v.Context(), key)
	switch {
	case err != nil:
		return storeAway(err)
	case !known:
		return refuse("This key is not known here. It may have been deleted or have expired, or belong to another environment.")
	case !who.Operator() || !who.May(api.ScopeRead):
		return refuse("This key is not an operator's key that may look: it is for one tenant, or lacks the scope read.")
	}
	c, err := client.New(client.Config{URL: "http://waybill.invalid", Transport: o.base.cfg.API.As(who)})
	if err != nil {
		return err
	}
	made, err := Tell[struct {
		URL string `json:"url"`
	}](v.Context(), c, http.MethodPost, client.Path("v1", "operator-sessions"), []byte(`{}`), "")
	if err != nil {
		return err
	}
	link, err := url.Parse(made.URL)
	if err != nil {
		return err
	}
	if _, outcome, err := o.sessions.Exchange(v.w, v.Request, path.Base(link.Path)); err != nil || outcome != session.Opened {
		return errors.Join(err, errors.New("a session made a moment ago cannot be opened"))
	}
	return v.Redirect(o.back(v), "")
}

// back is where somebody wanted to go before they signed in; the overview by default.
func (o *operator) back(v *Visit) string {
	if v.FormValue("back") == "" {
		return v.Path("")
	}
	return v.back()
}

// showLink is the page of a sign-in link. Looking at it uses nothing up.
func (o *operator) showLink(v *Visit) error {
	s, outcome, err := o.sessions.Peek(v.Request, v.PathValue("code"))
	if err != nil {
		return storeAway(err)
	}
	if outcome != session.Opened {
		return linkTrouble(outcome, &s)
	}
	return v.Show(Page{Name: "sign-in", Title: "Operator sign-in", Data: signInPage{Code: true, Session: s}})
}

func (o *operator) useLink(v *Visit) error {
	p, outcome, err := o.sessions.Exchange(v.w, v.Request, v.PathValue("code"))
	if err != nil {
		return storeAway(err)
	}
	if outcome != session.Opened {
		return linkTrouble(outcome, &p.Session)
	}
	return v.Redirect(o.sessions.Home(&p), "")
}

func (o *operator) signOut(v *Visit) error {
	if err := o.sessions.End(v.w, v.Request, ""); err != nil {
		return storeAway(err)
	}
	return v.Redirect(v.Path("sign-in"), "")
}
