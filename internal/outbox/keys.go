package outbox

import (
	"context"
	"time"
)

type keyKind struct{}

func (keyKind) prefix() string { return "key_" }

// KeyID names a key. It is no secret.
type KeyID = ID[keyKind]

// NewKeyID mints a key id for the given database time.
func NewKeyID(at time.Time) KeyID { return NewID[keyKind](at) }

// ParseKeyID reads key_….
func ParseKeyID(s string) (KeyID, error) { return ParseID[keyKind](s) }

// Scope is what a key may do.
type Scope string

const (
	ScopeAdmin   Scope = "admin" // everything
	ScopeRead    Scope = "read"
	ScopeWrite   Scope = "write" // endpoints, replays
	ScopePublish Scope = "publish"
	ScopeListen  Scope = "listen"
)

// Key is a key of the API. The key itself is shown once, to whoever makes it, and only its digest
// is kept.
type Key struct {
	ID         KeyID
	Name       string // for people
	Prefix     string // the beginning of the key, by which people tell keys apart
	Tenant     TenantRef
	TenantKey  string // "": an operator's key
	Scopes     []Scope
	CreatedBy  string
	CreatedAt  time.Time
	ExpiresAt  time.Time // zero: never
	LastUsedAt time.Time // zero: never; to within a few minutes
}

// KeyQuery filters keys. A zero tenant lists everybody's.
type KeyQuery struct {
	Tenant TenantRef
	After  KeyID
}

// Keys keeps the keys of the API. A deleted tenant's are gone with it.
type Keys interface {
	// CreateKey stores a key with its digest.
	CreateKey(ctx context.Context, k Key, digest Digest) error
	// KeyByDigest returns the key unless it is unknown or, at now, expired: ErrNotFound.
	KeyByDigest(ctx context.Context, digest Digest, now time.Time) (Key, error)
	// Keys lists keys, expired ones too, by id.
	Keys(ctx context.Context, q KeyQuery, page Page) ([]Key, error)
	// DeleteKey makes the key unknown and revokes the sessions that were made with it (KeyPrefix).
	// ErrNotFound: it is already.
	DeleteKey(ctx context.Context, id KeyID, now time.Time) error
	// TouchKey notes that the key was used.
	TouchKey(ctx context.Context, id KeyID, now time.Time) error
	// HasOperatorKey reports whether, at now, there is a key with which an operator could do
	// everything.
	HasOperatorKey(ctx context.Context, now time.Time) (bool, error)
}
