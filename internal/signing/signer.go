package signing

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
	"github.com/waybill-dev/waybill/signature"
)

// Named is a scheme under the name that endpoints use for it. It is plain data, fit to be sent to
// another process.
type Named struct {
	Name   string
	Scheme Scheme // of the built-in names: unused
}

// BuiltIn reports whether a name is one of the two that are code.
func BuiltIn(name string) bool { return name == outbox.SchemeStandard || name == outbox.SchemeEd25519 }

// Book is the schemes of an instance: its operator's, before the presets.
type Book map[string]Scheme

// NewBook reads the operator's schemes. One that cannot be read is left out: its endpoints say so.
func NewBook(stored []outbox.SignatureScheme) Book {
	book := Presets()
	for _, s := range stored {
		if scheme, err := Parse(s.Definition); err == nil {
			book[s.Name] = scheme
		} else {
			delete(book, s.Name)
		}
	}
	return book
}

// Named looks up the schemes an endpoint signs with. Unknown names are left out, and make it
// unusable if they are all it has.
func (b Book) Named(names []string) (list []Named, unknown string) {
	for _, name := range names {
		scheme, ok := b[name]
		if !ok && !BuiltIn(name) {
			unknown = name
			continue
		}
		list = append(list, Named{name, scheme})
	}
	return list, unknown
}

// CheckSecret says what is wrong with a secret of the named scheme; the error holds none of it.
func (n Named) CheckSecret(secret string) error {
	var err error
	switch n.Name {
	case outbox.SchemeStandard:
		_, err = signature.ParseSecret(secret)
	case outbox.SchemeEd25519:
		_, err = ParsePrivateKey(secret)
	default:
		_, err = n.Scheme.Key(secret)
	}
	return err
}

// GenerateSecret makes a secret of the named scheme.
func (n Named) GenerateSecret() string {
	switch n.Name {
	case outbox.SchemeStandard:
		return signature.GenerateSecret()
	case outbox.SchemeEd25519:
		return GeneratePrivateKey()
	}
	return n.Scheme.GenerateSecret()
}

// Signer signs the requests to one endpoint with the secrets that are live. It does not change
// and is safe for concurrent use.
type Signer struct {
	standard *signature.Signer // nil: no secret of it
	pairs    []PrivateKey
	schemes  []bound
}

// bound is a scheme with its keys, the newest first.
type bound struct {
	scheme *compiled
	keys   [][]byte
}

// Plan is what an endpoint signs with, read once.
type Plan struct {
	schemes []plannedScheme
}

type plannedScheme struct {
	name   string
	scheme *compiled
	keys   []plannedKey
}

type plannedKey struct {
	standard signature.Secret
	pair     PrivateKey
	raw      []byte
	expires  time.Time // zero: never
}

// NewPlan reads schemes and secrets, newest first. Secrets of schemes that are not in use are
// passed over. The error says what cannot be used, without any of the secret.
func NewPlan(schemes []Named, secrets []outbox.Secret) (*Plan, error) {
	plan := &Plan{}
	for _, s := range schemes {
		planned := plannedScheme{name: s.Name}
		if !BuiltIn(s.Name) {
			var err error
			if planned.scheme, err = s.Scheme.compile(); err != nil {
				return nil, err
			}
		}
		for _, secret := range secrets {
			if schemeOf(secret) != s.Name {
				continue
			}
			key := plannedKey{expires: secret.ExpiresAt}
			var err error
			switch s.Name {
			case outbox.SchemeStandard:
				key.standard, err = signature.ParseSecret(secret.Value)
			case outbox.SchemeEd25519:
				key.pair, err = ParsePrivateKey(secret.Value)
			default:
				key.raw, err = s.Scheme.Key(secret.Value)
			}
			if err != nil {
				return nil, err
			}
			planned.keys = append(planned.keys, key)
		}
		plan.schemes = append(plan.schemes, planned)
	}
	return plan, nil
}

func schemeOf(s outbox.Secret) string {
	if s.Scheme == "" {
		return outbox.SchemeStandard
	}
	return s.Scheme
}

// Signer returns what signs at the given time, and until when it may be used (zero: for ever).
// ErrSecret: a scheme has no live secret.
func (p *Plan) Signer(at time.Time) (s *Signer, until time.Time, err error) {
	s = &Signer{}
	var standard []signature.Secret
	for _, scheme := range p.schemes {
		b := bound{scheme: scheme.scheme}
		live := 0
		for _, key := range scheme.keys {
			if !key.expires.IsZero() {
				if !at.Before(key.expires) {
					continue
				}
				if until.IsZero() || key.expires.Before(until) {
					until = key.expires
				}
			}
			live++
			switch scheme.name {
			case outbox.SchemeStandard:
				standard = append(standard, key.standard)
			case outbox.SchemeEd25519:
				s.pairs = append(s.pairs, key.pair)
			default:
				b.keys = append(b.keys, key.raw)
			}
		}
		if live == 0 {
			return nil, until, fmt.Errorf("%w: the scheme %s has none", ErrSecret, scheme.name)
		}
		if len(b.keys) > 0 {
			s.schemes = append(s.schemes, b)
		}
	}
	if len(standard) > 0 {
		if s.standard, err = signature.NewSigner(standard...); err != nil {
			return nil, until, err
		}
	}
	if s.standard == nil && len(s.pairs) == 0 && len(s.schemes) == 0 {
		return nil, until, fmt.Errorf("%w: there is none", ErrSecret)
	}
	return s, until, nil
}

// Standard returns the value of webhook-signature, "" where no key signs it.
func (s *Signer) Standard(m *Message) string {
	if len(s.pairs) == 0 {
		if s.standard == nil {
			return ""
		}
		return s.standard.Sign(m.ID, m.At, m.Body)
	}
	var all []string
	if s.standard != nil {
		all = append(all, s.standard.Sign(m.ID, m.At, m.Body))
	}
	for _, pair := range s.pairs {
		all = append(all, pair.Sign(m.ID, m.At, m.Body))
	}
	return strings.Join(all, " ")
}

// Plain reports whether Standard is all there is to be sent.
func (s *Signer) Plain() bool { return len(s.schemes) == 0 }

// Headers appends the headers of the other schemes.
func (s *Signer) Headers(to []outbox.Header, m *Message) []outbox.Header {
	for _, b := range s.schemes {
		to = b.headers(to, m)
	}
	return to
}

func (b *bound) headers(to []outbox.Header, m *Message) []outbox.Header {
	signatures := make([]string, len(b.keys))
	for i, key := range b.keys {
		signatures[i] = b.scheme.sign(key, m)
	}
	// Of a scheme without room the oldest live secret signs, until it ends.
	first, rest := signatures[len(signatures)-1], []string(nil)
	if b.scheme.lists {
		first, rest = signatures[0], signatures[1:]
	}
	for _, h := range b.scheme.headers {
		var value strings.Builder
		value.WriteString(h.value.header(m, first))
		if h.repeat != nil {
			for _, signature := range rest {
				value.WriteString(h.repeat.append(m, signature))
			}
		}
		to = append(to, outbox.Header{Name: h.name, Value: value.String()})
	}
	return to
}

// HeaderNames lists the headers that the schemes set, canonical spelling left to the caller.
func HeaderNames(schemes []Named) (names []string) {
	for _, s := range schemes {
		for name := range s.Scheme.Headers {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
