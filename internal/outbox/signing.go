package outbox

import (
	"context"
	"regexp"
	"slices"
	"time"
)

// The schemes that are built in and cannot be defined again: Standard Webhooks, with shared
// secrets (v1) and with key pairs (v1a).
const (
	SchemeStandard = "standard"
	SchemeEd25519  = "ed25519"
)

// MaxSchemes is how many schemes sign one request.
const MaxSchemes = 5

// SignatureScheme is an operator's own way of signing, for customers who verify the old way.
type SignatureScheme struct {
	Name       string
	Definition []byte // JSON as internal/signing reads it
	CreatedAt  time.Time
	UpdatedAt  time.Time
}

// Signing keeps the operator's signature schemes. They are configuration of every shard: a change
// bumps the revision of all.
type Signing interface {
	// PutSignatureScheme stores a scheme under its name and returns it with its times, and
	// whether it is new.
	PutSignatureScheme(ctx context.Context, s SignatureScheme, now time.Time) (SignatureScheme, bool, error)
	// SignatureScheme finds one by name (ErrNotFound).
	SignatureScheme(ctx context.Context, name string) (SignatureScheme, error)
	// SignatureSchemes lists all, by name.
	SignatureSchemes(ctx context.Context) ([]SignatureScheme, error)
	// DeleteSignatureScheme forgets one (ErrNotFound). ErrConflict: a living endpoint signs with
	// it.
	DeleteSignatureScheme(ctx context.Context, name string) error
}

var schemeName = regexp.MustCompile(`^[a-z0-9][a-z0-9_.-]{0,63}$`)

// ValidSchemeName reports whether s may name a signature scheme.
func ValidSchemeName(s string) bool { return schemeName.MatchString(s) }

// SignsWith reports whether the endpoint's deliveries are signed by the scheme.
func (e *Endpoint) SignsWith(scheme string) bool {
	if slices.Contains(e.Schemes, scheme) {
		return true
	}
	return len(e.Schemes) == 0 && scheme == SchemeStandard
}
