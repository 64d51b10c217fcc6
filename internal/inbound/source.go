package inbound

import (
	"context"
	"crypto"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
	"github.com/waybill-dev/waybill/receive"
	"github.com/waybill-dev/waybill/receive/providers"
	"github.com/waybill-dev/waybill/signature"
)

// Custom is the provider of a source whose check is written down in its settings.
const Custom = "custom"

// FieldError is a setting that cannot be used.
type FieldError struct {
	Path   string // of the API's field
	Detail string
}

func (e *FieldError) Error() string { return e.Path + ": " + e.Detail }

// Providers lists the names a source may have as its provider.
func Providers() []string {
	names := []string{Custom}
	for p := range providers.All() {
		names = append(names, p.Name)
	}
	return names
}

// provider is who sends to a source, with what the source knows better. client fetches PayPal's
// certificates. The error is a *FieldError.
func provider(src *outbox.Source, client *http.Client) (receive.Provider, error) {
	check := outbox.SourceCheck{}
	if src.Settings.Verify != nil {
		check = *src.Settings.Verify
	}
	p := receive.Provider{Name: Custom}
	if src.Provider == Custom {
		scheme, err := customScheme(&check)
		if err != nil {
			return p, err
		}
		p.Scheme = scheme
	} else {
		known, ok := providers.Named(src.Provider)
		if !ok {
			return p, &FieldError{"provider", "there is no such provider; want one of " + strings.Join(Providers(), ", ")}
		}
		if check.Signed != "" || check.Header != "" || check.Form != "" || check.Algorithm != "" || check.IDHeader != "" || check.TimeHeader != "" {
			return p, &FieldError{"verify", "how " + src.Provider + " signs is known; use the provider custom to say it yourself"}
		}
		if known.Name == "paypal" {
			known = providers.PayPal(client)
		}
		p = known
	}
	if err := readings(&p, &check); err != nil {
		return p, err
	}
	if place := src.Settings.ID; place != nil && (place.Header != "" || place.Pointer != "") {
		p.ID = receive.Lookup{Header: place.Header, Pointer: place.Pointer}
	}
	answers := src.Settings.Responses
	for _, code := range []struct {
		from int
		to   *int
	}{
		{answers.OK, &p.Codes.OK}, {answers.InFlight, &p.Codes.InFlight}, {answers.Failed, &p.Codes.Failed},
		{answers.Rejected, &p.Codes.Rejected}, {answers.TooLarge, &p.Codes.TooLarge},
	} {
		if code.from != 0 {
			*code.to = code.from
		}
	}
	return p, nil
}

func customScheme(check *outbox.SourceCheck) (signature.Scheme, error) {
	for path, value := range map[string]string{"verify.signed": check.Signed, "verify.header": check.Header, "verify.form": check.Form} {
		if value == "" {
			return nil, &FieldError{path, "is required for the provider custom"}
		}
	}
	hashes := map[string]crypto.Hash{"": crypto.SHA256, "sha1": crypto.SHA1, "sha256": crypto.SHA256, "sha512": crypto.SHA512}
	hash, ok := hashes[check.Algorithm]
	if !ok {
		return nil, &FieldError{"verify.algorithm", "want sha1, sha256 or sha512"}
	}
	return signature.HMAC{
		Signed: check.Signed, Header: check.Header, Form: check.Form, Hash: hash,
		IDHeader: check.IDHeader, TimeHeader: check.TimeHeader, Milliseconds: check.Milliseconds,
	}, nil
}

// readings applies the tolerance and the ways to read a secret.
func readings(p *receive.Provider, check *outbox.SourceCheck) error {
	hmac, keyed := p.Scheme.(signature.HMAC)
	if check.Tolerance > 0 {
		switch s := p.Scheme.(type) {
		case signature.HMAC:
			hmac.Tolerance = check.Tolerance
			p.Scheme = hmac
		case signature.StandardWebhooks:
			s.Tolerance = check.Tolerance
			p.Scheme = s
		case signature.MailgunToken:
			s.Tolerance = check.Tolerance
			p.Scheme = s
		case signature.Ed25519:
			s.Tolerance = check.Tolerance
			p.Scheme = s
		case signature.ECDSA:
			s.Tolerance = check.Tolerance
			p.Scheme = s
		default:
			return &FieldError{"verify.tolerance_seconds", p.Name + " signs no time"}
		}
	}
	if len(check.SecretEncodings) == 0 && check.SecretPrefix == "" {
		return nil
	}
	if !keyed {
		return &FieldError{"verify.secret_encodings", "how a secret of " + p.Name + " is read cannot be chosen"}
	}
	known := map[string]signature.SecretEncoding{"utf8": signature.Verbatim, "base64": signature.Base64, "hex": signature.Hex}
	var any signature.AnyOf
	for _, name := range check.SecretEncodings {
		encoding, ok := known[name]
		if !ok {
			return &FieldError{"verify.secret_encodings", "want utf8, base64 or hex"}
		}
		form := signature.SecretForm{Encoding: encoding}
		if encoding != signature.Verbatim {
			form.Prefix = check.SecretPrefix
		}
		one := hmac
		one.Secret = form
		any = append(any, one)
	}
	switch len(any) {
	case 0:
		hmac.Secret = signature.SecretForm{Encoding: signature.Base64, Prefix: check.SecretPrefix}
		p.Scheme = hmac
	case 1:
		p.Scheme = any[0]
	default:
		p.Scheme = any
	}
	return nil
}

// maxBody is the largest body of a source: an event's payload is never larger.
func maxBody(src *outbox.Source, p *receive.Provider) int64 {
	if src.Settings.MaxBody > 0 {
		return min(src.Settings.MaxBody, outbox.HardMaxPayload)
	}
	if p.MaxBody > 0 {
		return min(p.MaxBody, outbox.HardMaxPayload)
	}
	return outbox.HardMaxPayload
}

// receiving is the source as package receive knows it.
func receiving(src *outbox.Source, client *http.Client) (receive.Source, error) {
	p, err := provider(src, client)
	if err != nil {
		return receive.Source{}, err
	}
	out := receive.Source{Name: src.Name, Provider: p, MaxBody: maxBody(src, &p)}
	if v := src.Settings.Verify; v != nil {
		out.PublicURL, out.ChallengeToken = v.PublicURL, v.ChallengeToken
	}
	if id := src.Settings.ID; id != nil {
		out.BodyIsID = id.BodyWithin
	}
	for _, s := range src.Secrets {
		out.Secrets = append(out.Secrets, receive.Secret{Value: s.Value, Until: s.ExpiresAt})
	}
	return out, nil
}

// KeepFor is how long a source should keep its requests: for as long as its provider, or people
// there, can send one again. The error is a *FieldError.
func KeepFor(src *outbox.Source) (time.Duration, error) {
	p, err := provider(src, nil)
	if err != nil {
		return 0, err
	}
	horizon := p.Horizon
	for _, wait := range p.Retries {
		if p.Horizon == 0 {
			horizon += wait + p.Timeout
		}
	}
	return max(outbox.DefaultKeep, horizon+p.Manual+time.Hour), nil
}

// Check judges a source before it is stored. What cannot work is a *FieldError; what works and may
// lose or repeat events is told.
func Check(src *outbox.Source) ([]receive.Problem, error) {
	rs, err := receiving(src, nil)
	if err != nil {
		return nil, err
	}
	// A scheme that cannot work says so when it is to read a secret, any secret.
	if _, err := rs.Provider.Scheme.Key("0123456789abcdef0123456789abcdef"); err != nil && !errors.Is(err, signature.ErrSecret) {
		return nil, &FieldError{"verify", strings.TrimPrefix(err.Error(), "signature: ")}
	}
	for i, s := range rs.Secrets {
		if _, err := rs.Provider.Scheme.Key(s.Value); err != nil {
			return nil, secretError(i, err)
		}
	}
	// Never started: it only knows the rules.
	lint := receive.InboxConfig{Source: rs, Store: nothing{}, Handler: receive.FromHTTP(http.NotFoundHandler()), Retain: src.Keep}
	var told []receive.Problem
	for _, p := range lint.Lint() {
		switch p.Rule {
		case receive.NeedsURL:
			return nil, &FieldError{"verify.public_url", p.Detail + ": " + p.Remedy}
		case receive.Incomplete:
			return nil, &FieldError{"verify", p.Detail + ": " + p.Remedy}
		case receive.NoRetries:
			p.Remedy = "nothing here; resend what is missing from the provider's page"
		case receive.NoID:
			p.Remedy = "set id to the place where the sender puts one, or id.body_within_seconds"
		case receive.ShortMemory:
			p.Remedy = "raise keep_seconds, or leave it out"
		case receive.BodyLimit:
			p.Remedy = "raise max_body; the largest is 1 MiB"
		case receive.Secretless:
			p.Detail = "there is no secret, so every request is refused"
			p.Remedy = "add the signing secret that the provider's page shows"
		}
		told = append(told, p)
	}
	return told, nil
}

// Effect is what a source comes to.
type Effect struct {
	Codes   receive.Codes
	MaxBody int64
	Forward []string // headers that go on with an event
}

// Describe is Check for a source that is stored, and what its settings come to.
func Describe(src *outbox.Source) (Effect, []receive.Problem, error) {
	problems, err := Check(src)
	if err != nil {
		return Effect{}, nil, err
	}
	rs, err := receiving(src, nil)
	if err != nil {
		return Effect{}, nil, err
	}
	// An intake without secrets is not made; the codes do not depend on them.
	rs.Secrets, rs.SecretsFunc = nil, func(context.Context) ([]receive.Secret, error) { return nil, nil }
	intake, err := receive.NewIntake(rs)
	if err != nil {
		return Effect{}, nil, err
	}
	return Effect{intake.Codes(), rs.MaxBody, forwarded(src, &rs.Provider)}, problems, nil
}

// secretError says what is wrong with a secret, and never the secret.
func secretError(i int, err error) error {
	detail := "cannot be used"
	if errors.Is(err, signature.ErrSecret) {
		detail = strings.TrimPrefix(err.Error(), signature.ErrSecret.Error()+": ")
	}
	return &SecretError{i, detail}
}

// SecretError is a secret that cannot be used.
type SecretError struct {
	Index  int
	Detail string
}

func (e *SecretError) Error() string { return e.Detail }

// nothing is an InboxStore that is never asked.
type nothing struct{ receive.InboxStore }

// eventType is the type of a source's event with a topic of the provider's.
func eventType(src *outbox.Source, topic string) string {
	if topic == "" {
		topic = src.Name
	}
	template := src.Settings.EventType
	if template == "" {
		template = "{topic}"
	}
	return Typed(strings.ReplaceAll(template, "{topic}", topic))
}

// Typed turns a provider's word into an event's type: what separates words becomes a dot, what no
// type may hold an underscore.
func Typed(word string) string {
	var b strings.Builder
	for _, r := range word {
		switch {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', r == '_', r == '-':
			b.WriteRune(r)
		case r == '.', r == '/', r == ':', r == ' ':
			b.WriteByte('.')
		default:
			b.WriteByte('_')
		}
	}
	parts := slices.DeleteFunc(strings.Split(b.String(), "."), func(part string) bool { return part == "" })
	typ := strings.Join(parts, ".")
	if len(typ) > outbox.MaxEventType {
		typ = strings.TrimRight(typ[:outbox.MaxEventType], ".")
	}
	if typ == "" {
		return "webhook"
	}
	return typ
}
