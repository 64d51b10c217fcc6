// Package session lets people in: one-time links become sessions, and sessions are recognised by
// a cookie. A customer's session is for the portal of one tenant, an operator's for the dashboard.
//
// A link holds a code that works once. Reading its page does not use it up, since mail scanners
// and link previews read pages; submitting the form on that page does. The code and the cookie's
// token are 256 random bits each, and only their digests are stored.
package session

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// Where links lead, below the base. The code follows.
const (
	LinkPath   = "/portal/open/"
	SignInPath = "/sign-in/"
)

// ErrNone says that a request comes without a session that is good.
var ErrNone = errors.New("no session")

// Store is what sessions need of the database.
type Store interface {
	CreateSession(ctx context.Context, s outbox.Session, code outbox.Digest) error
	TakeSession(ctx context.Context, code, token outbox.Digest, now time.Time) (outbox.Session, bool, error)
	SessionByCode(ctx context.Context, code outbox.Digest) (outbox.Session, error)
	SessionByToken(ctx context.Context, token outbox.Digest, now time.Time) (outbox.Session, error)
	// By puts on record who opens and ends sessions.
	By(author *outbox.Author) outbox.Store
}

// Config says what sessions stand on. Store, Portal and Dashboard are required.
type Config struct {
	Store Store
	Clock *outbox.Clock // database time; nil: the wall clock
	// Portal and Dashboard return the address that people reach the portal and the dashboard at,
	// without a slash at its end. They are asked each time: a listener learns its port late.
	Portal    func() *url.URL
	Dashboard func() *url.URL
	// FrameAncestors are the sites that may show the portal in a frame.
	FrameAncestors []string
}

// Manager makes links, turns them into sessions and recognises who comes with one. It is safe for
// concurrent use.
type Manager struct {
	cfg Config
}

// New makes a Manager.
func New(cfg Config) *Manager {
	if cfg.Clock == nil {
		cfg.Clock = &outbox.Clock{}
	}
	return &Manager{cfg: cfg}
}

// Principal is who sent a request.
type Principal struct {
	outbox.Session
	// Operator: the session is for the dashboard and all tenants; else it is for Tenant alone.
	Operator bool
}

// Actor is the person, for the record of who did what.
func (p *Principal) Actor() outbox.Actor {
	a := outbox.Actor{Kind: outbox.ActorPortal, Name: cmp.Or(p.User.Name, p.User.Email, p.User.ID, p.ID.String()), ID: p.ID.String()}
	if p.Operator {
		a.Kind = outbox.ActorOperator
	}
	return a
}

// Outcome is what became of a link that somebody opened.
type Outcome int

const (
	// Opened: the browser has the session now, or had it already.
	Opened Outcome = iota
	// Used: another browser has it.
	Used
	// Expired: the link, or its session, is too old.
	Expired
	// Revoked: somebody took it back.
	Revoked
	// Unknown: there is no such link.
	Unknown
)

// Offer completes a session that begins as a link, stores it, and returns the link. The caller
// has set the tenant with its key (neither for an operator's), the permissions, both ends and
// whatever else it wants kept; Offer sets ID and CreatedAt, and completes the author's entry, which
// goes on record with it.
func (m *Manager) Offer(ctx context.Context, s outbox.Session, by *outbox.Author) (made outbox.Session, link string, err error) {
	s.CreatedAt = m.cfg.Clock.Now()
	s.ID = outbox.NewSessionID(s.CreatedAt)
	code := secret()
	by.Entry.Object = s.ID.String()
	by.Entry.Changes = outbox.Changes{"permissions": {To: s.Permissions}, "user": {To: s.User}, "expires_at": {To: s.ExpiresAt.Truncate(time.Millisecond)}}
	if err := m.cfg.Store.By(by).CreateSession(ctx, s, digest(code)); err != nil {
		return outbox.Session{}, "", err
	}
	if isOperator(&s) {
		return s, m.cfg.Dashboard().String() + SignInPath + code, nil
	}
	return s, m.cfg.Portal().String() + LinkPath + code, nil
}

// Peek tells how a link stands without using it, for the page with the form. The outcome is
// Opened where submitting the form will let this browser in.
func (m *Manager) Peek(r *http.Request, code string) (outbox.Session, Outcome, error) {
	if !wellFormed(code) {
		return outbox.Session{}, Unknown, nil
	}
	s, err := m.cfg.Store.SessionByCode(r.Context(), digest(code))
	if errors.Is(err, outbox.ErrNotFound) {
		return outbox.Session{}, Unknown, nil
	}
	if err != nil {
		return outbox.Session{}, Unknown, err
	}
	outcome, err := m.judge(r, &s)
	return s, outcome, err
}

// Exchange uses the link's code up and gives the browser the session by a cookie. A code that was
// used sends on the browser that holds its session: a double click, a reload, a frame that is
// mounted again. The principal is only good where the outcome is Opened; the session's look and
// return address are there for every outcome but Unknown.
func (m *Manager) Exchange(w http.ResponseWriter, r *http.Request, code string) (Principal, Outcome, error) {
	if !wellFormed(code) {
		return Principal{}, Unknown, nil
	}
	now, token := m.cfg.Clock.Now(), secret()
	found, err := m.cfg.Store.SessionByCode(r.Context(), digest(code))
	if errors.Is(err, outbox.ErrNotFound) {
		return Principal{}, Unknown, nil
	}
	if err != nil {
		return Principal{}, Unknown, err
	}
	p := principal(found)
	// Looked at first, so that the record holds those who came in and not those who did not.
	if found.State(now) != outbox.SessionUnused {
		outcome, err := m.judge(r, &found)
		return p, outcome, err
	}
	store := m.cfg.Store.By(m.author(&p, "session.open", now))
	s, taken, err := store.TakeSession(r.Context(), digest(code), digest(token), now)
	if outbox.FaultOf(err) == outbox.FaultUnknown {
		s, taken, err = store.TakeSession(r.Context(), digest(code), digest(token), now)
	}
	switch {
	case errors.Is(err, outbox.ErrNotFound): // its tenant was deleted in this moment
		return Principal{}, Unknown, nil
	case err != nil:
		return Principal{}, Unknown, err
	}
	p = principal(s)
	if taken {
		http.SetCookie(w, m.cookie(r, &s, token, s.ExpiresAt.Sub(now)))
		return p, Opened, nil
	}
	outcome, err := m.judge(r, &s)
	return p, outcome, err
}

// judge tells what a link is good for in this browser.
func (m *Manager) judge(r *http.Request, s *outbox.Session) (Outcome, error) {
	switch s.State(m.cfg.Clock.Now()) {
	case outbox.SessionRevoked:
		return Revoked, nil
	case outbox.SessionExpired:
		return Expired, nil
	case outbox.SessionUnused:
		return Opened, nil
	}
	held, err := m.FromRequest(r, s.TenantKey)
	switch {
	case errors.Is(err, ErrNone):
		return Used, nil
	case err != nil:
		return Used, err
	case held.ID != s.ID:
		return Used, nil
	}
	return Opened, nil
}

// FromRequest returns who sent a request for the portal of a tenant, or, where tenant is "", for
// the dashboard. ErrNone: nobody we know; other errors are the store's. It asks the database each
// time, so that a session that was revoked ends at once.
func (m *Manager) FromRequest(r *http.Request, tenant string) (Principal, error) {
	cookie, err := r.Cookie(m.cookieName(tenant))
	if err != nil || !wellFormed(cookie.Value) {
		return Principal{}, ErrNone
	}
	s, err := m.cfg.Store.SessionByToken(r.Context(), digest(cookie.Value), m.cfg.Clock.Now())
	// The cookie's name tells the browser whose it is; this tells us.
	if errors.Is(err, outbox.ErrNotFound) || err == nil && s.TenantKey != tenant {
		return Principal{}, ErrNone
	}
	if err != nil {
		return Principal{}, err
	}
	return principal(s), nil
}

// End signs the browser out of a tenant's portal, or of the dashboard where tenant is "".
func (m *Manager) End(w http.ResponseWriter, r *http.Request, tenant string) error {
	p, err := m.FromRequest(r, tenant)
	if err == nil {
		now := m.cfg.Clock.Now()
		err = m.cfg.Store.By(m.author(&p, "session.end", now)).RevokeSession(r.Context(), p.Tenant, p.ID, now)
	}
	if err != nil && !errors.Is(err, ErrNone) {
		return err
	}
	s := outbox.Session{TenantKey: tenant}
	http.SetCookie(w, m.cookie(r, &s, "", -1))
	return nil
}

// Home is where a session begins, with the path of the base.
func (m *Manager) Home(p *Principal) string {
	if p.Operator {
		return m.cfg.Dashboard().Path + "/" + strings.TrimPrefix(p.Path, "/")
	}
	return m.cfg.Portal().Path + "/portal/" + url.PathEscape(p.TenantKey) + "/" + strings.TrimPrefix(p.Path, "/")
}

func principal(s outbox.Session) Principal {
	return Principal{Session: s, Operator: isOperator(&s)}
}

func isOperator(s *outbox.Session) bool { return s.TenantKey == "" }

const secretBytes = 32

// secret makes a code or token.
func secret() string {
	random := make([]byte, secretBytes)
	rand.Read(random)
	return base64.RawURLEncoding.EncodeToString(random)
}

// wellFormed spares the database what cannot be one of ours.
func wellFormed(s string) bool {
	raw, err := base64.RawURLEncoding.Strict().DecodeString(s)
	return err == nil && len(raw) == secretBytes
}

func digest(s string) outbox.Digest { return sha256.Sum256([]byte(s)) }

// author is somebody about to come in or to go.
func (m *Manager) author(p *Principal, action string, now time.Time) *outbox.Author {
	return &outbox.Author{Entry: outbox.AuditEntry{
		ID: outbox.NewAuditID(now), Tenant: p.Tenant, TenantKey: p.TenantKey, Actor: p.Actor(), Action: action, Object: p.ID.String(),
	}}
}
