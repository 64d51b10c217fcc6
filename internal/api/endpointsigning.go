package api

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/textproto"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/waybill-dev/waybill/internal/outbox"
	"github.com/waybill-dev/waybill/internal/signing"
)

// bookOf reads the signature schemes of the instance.
func (a *API) bookOf(q *request) (signing.Book, error) {
	stored, err := a.cfg.Store.SignatureSchemes(q.Context())
	if err != nil {
		return nil, err
	}
	return signing.NewBook(stored), nil
}

const schemesAbout = "standard (Standard Webhooks), ed25519 (its v1a, with a key pair), stripe, github, shopify, svix, convoy, outpost, or one the operator has defined"

var signingFields = []field[endpointEdit]{{
	name: "schemes", about: "By which schemes every delivery is signed, side by side: " + schemesAbout + ".",
	schema: &huma.Schema{Type: huma.TypeArray, Items: textSchema(64), MinItems: new(1), MaxItems: new(outbox.MaxSchemes)},
	set:    setSchemes,
	reset:  func(e *endpointEdit) { e.Schemes, e.schemesGiven = []string{outbox.SchemeStandard}, true },
}}

func setSchemes(e *endpointEdit, v value) {
	before := len(*v.items)
	var names []string
	ok := v.list(outbox.MaxSchemes, func(v value) {
		if name, ok := e.schemeName(v); ok && slices.Contains(names, name) {
			v.invalid("is given twice")
		} else if ok {
			names = append(names, name)
		}
	})
	switch {
	case !ok || len(*v.items) > before:
	case len(names) == 0:
		v.invalid(`want at least one, such as "standard"`)
	default:
		e.Schemes, e.schemesGiven = names, true
	}
}

// schemeName reads the name of a scheme that exists.
func (e *endpointEdit) schemeName(v value) (string, bool) {
	name, ok := v.text(64)
	if !ok {
		return "", false
	}
	if name == "v1a" {
		name = outbox.SchemeEd25519
	}
	if _, known := e.book[name]; known || signing.BuiltIn(name) {
		return name, true
	}
	known := slices.Sorted(maps.Keys(e.book))
	v.invalid("there is no such scheme; there are standard, ed25519, %s", strings.Join(known, ", "))
	return "", false
}

// givenSecret is one member of secrets.
type givenSecret struct {
	scheme, text string
	at           value // where the text stands
}

func secretFieldsOf(e *endpointEdit) []field[givenSecret] {
	return []field[givenSecret]{
		{
			name: "scheme", about: "Whose it is; standard by default.", schema: textSchema(64),
			set: func(s *givenSecret, v value) {
				if name, ok := e.schemeName(v); ok {
					s.scheme = name
				}
			},
			reset: func(s *givenSecret) { s.scheme = "" },
		},
		{
			name: "value", about: "For standard: whsec_ and base64 of 24 to 64 bytes, or that base64 alone. For ed25519: whsk_ and base64 of 32 or 64 bytes. For others as their scheme has it.", required: true,
			schema: &huma.Schema{Type: huma.TypeString, WriteOnly: true},
			set: func(s *givenSecret, v value) {
				if text, ok := v.text(2000); ok {
					s.text, s.at = text, v
				}
			},
		},
	}
}

// secretFields describes one member of secrets.
var secretFields = secretFieldsOf(&endpointEdit{})

// checkSecret returns a secret as it is stored; what is wrong with it has been said otherwise.
func checkSecret(book signing.Book, scheme, text string, v value) (outbox.Secret, bool) {
	if scheme == "" || scheme == outbox.SchemeStandard {
		scheme = outbox.SchemeStandard
		if strings.HasPrefix(text, "whsk_") {
			scheme = outbox.SchemeEd25519 // Standard Webhooks has both
		}
	}
	named := signing.Named{Name: scheme, Scheme: book[scheme]}
	if err := named.CheckSecret(text); err != nil {
		v.bad(CodeInvalidSecret, "%s", strings.TrimPrefix(err.Error(), signing.ErrSecret.Error()+": "))
		return outbox.Secret{}, false
	}
	if scheme == outbox.SchemeStandard {
		return outbox.Secret{Value: "whsec_" + strings.TrimPrefix(text, "whsec_")}, true
	}
	return outbox.Secret{Scheme: scheme, Value: text}, true
}

func setSecrets(e *endpointEdit, v value) {
	before := len(*v.items)
	var secrets []outbox.Secret
	fields := secretFieldsOf(e)
	v.list(maxSecrets*outbox.MaxSchemes, func(v value) {
		seen := len(*v.items)
		var given givenSecret
		fill(value{raw: v.raw, path: v.path, lenient: v.lenient, items: v.items}, fields, &given)
		if len(*v.items) > seen {
			return
		}
		secret, ok := checkSecret(e.book, given.scheme, given.text, given.at)
		if !ok {
			return
		}
		secret.CreatedAt = e.now
		// One that is kept keeps its age.
		i := slices.IndexFunc(e.Secrets, func(s outbox.Secret) bool {
			return s.Scheme == secret.Scheme && s.Value == secret.Value && s.Live(e.now)
		})
		if i >= 0 {
			secret = e.Secrets[i]
		}
		secrets = append(secrets, secret)
	})
	switch {
	case len(*v.items) > before:
	case len(secrets) == 0:
		v.invalid("want at least one secret")
	default:
		e.secretsBefore = e.Secrets
		e.Secrets, e.secretsGiven = secrets, true
	}
}

// settleSigning makes sure that each scheme in use has a secret. Of a new endpoint one is made
// where none is given, and shown once; of one that exists only key pairs are, whose public half is
// all anybody needs.
func (e *endpointEdit) settleSigning(bad func(path string, code Code, format string, args ...any)) {
	if len(e.Schemes) == 0 || !e.exists && !e.schemesGiven {
		e.Schemes = nil
		for _, s := range e.Secrets {
			if name := schemeOf(&s); !slices.Contains(e.Schemes, name) {
				e.Schemes = append(e.Schemes, name)
			}
		}
		if len(e.Schemes) == 0 {
			e.Schemes = []string{outbox.SchemeStandard}
		}
	}
	for i, name := range e.Schemes {
		live := 0
		for _, s := range e.Secrets {
			if schemeOf(&s) == name && s.Live(e.now) {
				live++
			}
		}
		if live == 0 {
			// One that the request does not speak of keeps what it has. So a request that made an
			// endpoint, and a secret with it, can be sent again.
			for _, s := range e.secretsBefore {
				if schemeOf(&s) == name && s.Live(e.now) {
					e.Secrets = append(e.Secrets, s)
					live++
				}
			}
		}
		path := fmt.Sprintf("signing.schemes[%d]", i)
		switch {
		case live > maxSecrets:
			bad("secrets", CodeSecretLimit, "at most %d live secrets of one scheme", maxSecrets)
		case live > 0:
		case e.exists && name != outbox.SchemeEd25519 && (e.schemesGiven || e.secretsGiven):
			bad(path, CodeInvalidField, "there is no live secret of %s; send it in secrets, or make one first with secret/rotate and scheme", name)
		case !e.exists || name == outbox.SchemeEd25519 && e.schemesGiven:
			secret := outbox.Secret{Scheme: name, Value: signing.Named{Name: name, Scheme: e.book[name]}.GenerateSecret(), CreatedAt: e.now}
			if name == outbox.SchemeStandard {
				secret.Scheme = ""
			}
			e.Secrets = append(e.Secrets, secret)
		}
	}
	taken := map[string]string{}
	for name := range e.Headers {
		taken[textproto.CanonicalMIMEHeaderKey(name)] = "headers"
	}
	for name := range e.Credentials.Headers {
		if taken[name] != "" {
			bad("secret_headers."+name, CodeInvalidHeader, "is among headers too")
		}
		taken[name] = "secret_headers"
	}
	for i, name := range e.Schemes {
		for header := range e.book[name].Headers {
			key := textproto.CanonicalMIMEHeaderKey(header)
			if where := taken[key]; where != "" {
				bad(fmt.Sprintf("signing.schemes[%d]", i), CodeInvalidHeader, "sets %s, which %s sets too", header, where)
			}
			taken[key] = "the scheme " + name
		}
	}
}

// schemeOf is the name of a secret's scheme.
func schemeOf(s *outbox.Secret) string {
	if s.Scheme == "" {
		return outbox.SchemeStandard
	}
	return s.Scheme
}

// publicKeyOf is the public half of a key pair, nil of any other secret.
func publicKeyOf(s *outbox.Secret) *string {
	if s.Scheme != outbox.SchemeEd25519 {
		return nil
	}
	key, err := signing.ParsePrivateKey(s.Value)
	if err != nil {
		return nil
	}
	return new(key.Public().String())
}

// compact writes JSON without the white space that somebody laid it out with.
func compact(v any) json.RawMessage {
	text, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("api: %T as JSON: %v", v, err))
	}
	return text
}
