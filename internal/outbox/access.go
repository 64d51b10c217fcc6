package outbox

import (
	"context"
	"slices"
	"time"
)

type sessionKind struct{}

func (sessionKind) prefix() string { return "ps_" }

// SessionID names a session, and the link it was opened by. It is no secret.
type SessionID = ID[sessionKind]

// NewSessionID mints a session id for the given database time.
func NewSessionID(at time.Time) SessionID { return NewID[sessionKind](at) }

// ParseSessionID reads ps_….
func ParseSessionID(s string) (SessionID, error) { return ParseID[sessionKind](s) }

// Digest is the SHA-256 of a secret of 256 random bits: of a link's code, a session's token, a
// key. Such secrets need no salt, and nothing else of them is kept.
type Digest [32]byte

// Permission is one thing a session may do.
type Permission string

const (
	PermissionView    Permission = "view"    // see everything of the tenant's but secrets
	PermissionReplay  Permission = "replay"  // deliver again, cancel
	PermissionManage  Permission = "manage"  // make, change, test and delete endpoints
	PermissionSecrets Permission = "secrets" // rotate signing secrets and see the new one
	// PermissionAdmin is an operator's alone: tenants, keys, the stop switch.
	PermissionAdmin Permission = "admin"
)

// PortalPermissions are all that a customer's session can have.
var PortalPermissions = []Permission{PermissionView, PermissionReplay, PermissionManage, PermissionSecrets}

// Session is what somebody may do in the portal (of one tenant) or on the dashboard (of the
// operator), and for how long. It begins as a link with a one-time code.
type Session struct {
	ID        SessionID
	Tenant    TenantRef // zero: the operator's
	TenantKey string
	// Permissions always include PermissionView.
	Permissions []Permission
	User        SessionUser
	Path        string            // where to begin, within the tenant's portal: "" or "/…"
	ReturnURL   string            // where the customer came from; "" for nowhere
	Theme       map[string]string // tokens of the page's look

	CreatedBy string // whose key made the link
	// KeyPrefix is the beginning of that key, also where the key made it through another session.
	// The session ends with the key. "": the bootstrap key's, which ends with a configuration.
	KeyPrefix     string
	CreatedAt     time.Time
	LinkExpiresAt time.Time // the code is good until then
	ExpiresAt     time.Time // the session, whenever it was opened
	UsedAt        time.Time // when the code was exchanged; zero: not yet
	RevokedAt     time.Time // zero: it was not
}

// SessionUser is who the caller says is behind a session: for the record of who did what.
type SessionUser struct {
	ID    string `json:"id,omitempty"`
	Name  string `json:"name,omitempty"`
	Email string `json:"email,omitempty"`
}

// May reports whether the session includes the permission.
func (s *Session) May(p Permission) bool { return slices.Contains(s.Permissions, p) }

// ReadOnly reports whether the session may only look.
func (s *Session) ReadOnly() bool {
	return !slices.ContainsFunc(s.Permissions, func(p Permission) bool { return p != PermissionView })
}

// SessionState is how a session stands.
type SessionState string

const (
	SessionUnused  SessionState = "unused"  // its link was not used
	SessionOpen    SessionState = "open"    // somebody uses it
	SessionExpired SessionState = "expired" // it, or the link that nobody used, is too old
	SessionRevoked SessionState = "revoked"
)

// State tells how the session stands at now.
func (s *Session) State(now time.Time) SessionState {
	switch {
	case !s.RevokedAt.IsZero():
		return SessionRevoked
	case !now.Before(s.ExpiresAt), s.UsedAt.IsZero() && !now.Before(s.LinkExpiresAt):
		return SessionExpired
	case s.UsedAt.IsZero():
		return SessionUnused
	}
	return SessionOpen
}

// Sessions keeps links and the sessions they become. A deleted tenant's are gone with it.
type Sessions interface {
	// CreateSession stores a session with the digest of its link's code.
	CreateSession(ctx context.Context, s Session, code Digest) error
	// TakeSession exchanges a code, once, for the session, which from then on is known by the
	// token. taken is false where the code was used before with another token, is too old or was
	// revoked: the session says so. ErrNotFound: there is no such code.
	TakeSession(ctx context.Context, code, token Digest, now time.Time) (s Session, taken bool, err error)
	// SessionByCode only looks. ErrNotFound: there is no such code.
	SessionByCode(ctx context.Context, code Digest) (Session, error)
	// SessionByToken returns the session if it is open at now, else ErrNotFound.
	SessionByToken(ctx context.Context, token Digest, now time.Time) (Session, error)
	// Sessions lists those of a tenant, of the operator where that is zero, after the given one
	// (zero: from the start), by id.
	Sessions(ctx context.Context, tenant TenantRef, after SessionID, page Page) ([]Session, error)
	// RevokeSession ends one of the tenant's sessions, or its link, at once. It stays in the list.
	// ErrNotFound: the tenant has none of this id.
	RevokeSession(ctx context.Context, tenant TenantRef, id SessionID, now time.Time) error
	// RevokeSessions ends all of them and returns how many had not ended already.
	RevokeSessions(ctx context.Context, tenant TenantRef, now time.Time) (int, error)
}
