package api

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// Scope is what a key may do.
type Scope = outbox.Scope

// The scopes, under the names the routes use.
const (
	ScopeAdmin   = outbox.ScopeAdmin
	ScopeRead    = outbox.ScopeRead
	ScopeWrite   = outbox.ScopeWrite
	ScopePublish = outbox.ScopePublish
	ScopeListen  = outbox.ScopeListen
)

// Holder is whom a key belongs to.
type Holder struct {
	Name   string // for people and for the record of who did what
	Tenant string // the one tenant the key is for; "" for an operator's key
	Scopes []Scope

	Actor     outbox.Actor // for the record of who did what; zero: the key
	Prefix    string       // the beginning of the stored key, or of that which made the session
	ExpiresAt time.Time    // zero: never
}

// holderOf is whom a stored key belongs to.
func holderOf(k *outbox.Key) Holder {
	return Holder{Name: k.Name, Tenant: k.TenantKey, Scopes: k.Scopes, Prefix: k.Prefix, ExpiresAt: k.ExpiresAt}
}

// Operator reports whether the holder may act for every tenant.
func (h Holder) Operator() bool { return h.Tenant == "" }

// May reports whether the holder has the scope.
func (h Holder) May(s Scope) bool {
	if s == anyScope {
		return true
	}
	return slices.Contains(h.Scopes, s) || slices.Contains(h.Scopes, ScopeAdmin)
}

// Keys knows the stored keys; internal/access.
type Keys interface {
	// Find returns the key, or false if it is unknown, expired or deleted. The error is the
	// store's.
	Find(ctx context.Context, key string) (outbox.Key, bool, error)
	// Forget makes what was deleted unknown at once.
	Forget()
}

// holders are the bootstrap key and the stored ones.
type holders struct {
	bootstrap *[sha256.Size]byte
	keys      Keys
}

var bootstrapHolder = Holder{Name: "bootstrap", Scopes: []Scope{ScopeAdmin}}

func newHolders(bootstrapKey string, keys Keys) *holders {
	h := &holders{keys: keys}
	if bootstrapKey != "" {
		h.bootstrap = new(sha256.Sum256([]byte(bootstrapKey)))
	}
	return h
}

// of returns who sent the request.
func (h *holders) of(r *http.Request) (Holder, error) {
	scheme, key, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	key = strings.TrimSpace(key)
	if !strings.EqualFold(scheme, "Bearer") || key == "" {
		return Holder{}, fail(CodeUnauthorized, "send the header Authorization: Bearer <key>")
	}
	// Digests have one length, so comparing them tells nothing about the key's.
	digest := sha256.Sum256([]byte(key))
	if h.bootstrap != nil && subtle.ConstantTimeCompare(digest[:], h.bootstrap[:]) == 1 {
		return bootstrapHolder, nil
	}
	if h.keys != nil {
		found, ok, err := h.keys.Find(r.Context(), key)
		if err != nil || ok {
			return holderOf(&found), err
		}
	}
	return Holder{}, fail(CodeUnauthorized, "the key is not valid")
}
