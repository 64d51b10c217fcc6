package signature

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"fmt"
	"net/url"
	"strings"
	"time"
)

// SharedToken compares a header with a secret (GitLab, Brevo), or a parameter of the address (Azure
// Event Grid, which can be given nothing else; the logs of every proxy on the way then have it).
// Nothing of the request is signed: who has seen one request can send any other.
type SharedToken struct {
	Header string
	Query  string // the parameter's name; it counts if Header is empty
}

// Key is Scheme's.
func (SharedToken) Key(secret string) (Key, error) {
	return Key{raw: []byte(secret)}, verbatim(secret)
}

// Headers is Scheme's.
func (s SharedToken) Headers() []string {
	if s.Header == "" {
		return nil
	}
	return []string{s.Header}
}

// Verify is Scheme's.
func (s SharedToken) Verify(_ context.Context, r Request, keys []Key, _ time.Time) (Verified, error) {
	if s.Header == "" {
		return s.inAddress(&r, keys)
	}
	got, err := one(r.Header, s.Header)
	if err != nil {
		return Verified{}, err
	}
	return compareToken(keys, got, s.Header)
}

func (s SharedToken) inAddress(r *Request, keys []Key) (Verified, error) {
	u, err := url.Parse(r.URL)
	if err != nil {
		return Verified{}, refuse(Malformed, "the address cannot be read")
	}
	switch got := u.Query()[s.Query]; {
	case len(got) == 0 || got[0] == "":
		return Verified{}, refuse(Missing, "the address has no "+s.Query)
	case len(got) > 1:
		return Verified{}, refuse(Malformed, "the address has "+s.Query+" twice")
	default:
		return compareToken(keys, got[0], s.Query)
	}
}

// compareToken compares hashes, because a comparison of the texts would tell their length.
func compareToken(keys []Key, got, where string) (Verified, error) {
	sum := sha256.Sum256([]byte(got))
	key := -1
	for i, k := range keys {
		want := sha256.Sum256(k.raw)
		if subtle.ConstantTimeCompare(sum[:], want[:]) == 1 && len(k.raw) >= MinSecret && key < 0 {
			key = i
		}
	}
	if key < 0 {
		return Verified{}, refuse(Mismatch, where+" is not a secret of this source")
	}
	return Verified{Key: key}, nil
}

// Sign is SigningScheme's.
func (s SharedToken) Sign(r *Request, _ string, keys []Key, _ time.Time) error {
	if len(keys) == 0 || len(keys[0].raw) == 0 {
		return fmt.Errorf("%w: there is none", ErrSecret)
	}
	if s.Header != "" {
		r.Header.Set(s.Header, string(keys[0].raw))
		return nil
	}
	u, err := url.Parse(r.URL)
	if err != nil {
		return err
	}
	q := u.Query()
	q.Set(s.Query, string(keys[0].raw))
	u.RawQuery = q.Encode()
	r.URL = u.String()
	return nil
}

// NewKey is SigningScheme's.
func (s SharedToken) NewKey() (string, Key, error) { return randomHex(s, 16) }

// BasicAuth compares user:password (Postmark). Nothing of the request is signed.
type BasicAuth struct{}

// Key is Scheme's. The secret is "user:password"; the password may have a colon.
func (BasicAuth) Key(secret string) (Key, error) {
	if err := verbatim(secret); err != nil {
		return Key{}, err
	}
	if !strings.Contains(secret, ":") {
		return Key{}, fmt.Errorf("%w: is not user:password", ErrSecret)
	}
	return Key{raw: []byte(secret)}, nil
}

// Headers is Scheme's.
func (BasicAuth) Headers() []string { return []string{"Authorization"} }

// Verify is Scheme's.
func (BasicAuth) Verify(_ context.Context, r Request, keys []Key, _ time.Time) (Verified, error) {
	line, err := one(r.Header, "Authorization")
	if err != nil {
		return Verified{}, err
	}
	kind, text, _ := strings.Cut(line, " ")
	got, err := decodeBase64(strings.TrimSpace(text))
	if !strings.EqualFold(kind, "Basic") || err != nil {
		return Verified{}, refuse(Malformed, "Authorization is not Basic")
	}
	return compareToken(keys, string(got), "Authorization")
}

// Sign is SigningScheme's.
func (BasicAuth) Sign(r *Request, _ string, keys []Key, _ time.Time) error {
	if len(keys) == 0 || len(keys[0].raw) == 0 {
		return fmt.Errorf("%w: there is none", ErrSecret)
	}
	r.Header.Set("Authorization", "Basic "+base64.StdEncoding.EncodeToString(keys[0].raw))
	return nil
}

// NewKey is SigningScheme's.
func (s BasicAuth) NewKey() (string, Key, error) {
	secret, _, err := randomHex(SharedToken{}, 16)
	if err != nil {
		return "", Key{}, err
	}
	key, err := s.Key("waybill:" + secret)
	return "waybill:" + secret, key, err
}

// AnyOf is a source whose provider is changing how it signs, or how a secret is read: a request is
// good if one of the schemes says so. A secret must be readable by at least one of them.
type AnyOf []Scheme

// Key is Scheme's.
func (a AnyOf) Key(secret string) (Key, error) {
	var key Key
	var first error
	readable := false
	for _, s := range a {
		k, err := s.Key(secret)
		if err != nil && first == nil {
			first = err
		}
		readable = readable || err == nil
		key.each = append(key.each, k) // the zero Key verifies nothing
	}
	if readable {
		return key, nil
	}
	if first == nil {
		first = fmt.Errorf("%w: there is no scheme to read it by", ErrSecret)
	}
	return Key{}, first
}

// Headers is Scheme's.
func (a AnyOf) Headers() []string {
	var all []string
	for _, s := range a {
		all = append(all, s.Headers()...)
	}
	return all
}

// Verify is Scheme's. The reason is that of the scheme that came furthest: one that found its
// headers says more than one that missed them.
func (a AnyOf) Verify(ctx context.Context, r Request, keys []Key, now time.Time) (Verified, error) {
	var why error = refuse(Mismatch, "there is no scheme to verify with")
	for i, s := range a {
		each := make([]Key, len(keys))
		for j, k := range keys {
			if i < len(k.each) {
				each[j] = k.each[i]
			}
		}
		v, err := s.Verify(ctx, r, each, now)
		if err == nil {
			return v, nil
		}
		if reason, _ := Why(err); i == 0 || reason != Missing {
			why = err
		}
	}
	return Verified{}, why
}
