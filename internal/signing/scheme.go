package signing

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha1" // receivers of old verify it; nobody is told to choose it
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"maps"
	"net/textproto"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// Scheme describes how requests are signed.
type Scheme struct {
	Algorithm      string `json:"algorithm"`               // hmac-sha1, hmac-sha256, hmac-sha512
	SecretEncoding string `json:"secret_encoding"`         // how a secret's text becomes the key: utf8, hex, base64
	SecretPrefix   string `json:"secret_prefix,omitempty"` // of the text, not part of the key
	// SecretMin and SecretMax bound the key, in bytes; 0 means DefaultSecretMin and SecretLimit.
	SecretMin int `json:"secret_min,omitempty"`
	SecretMax int `json:"secret_max,omitempty"`
	// SignedContent is what is signed.
	SignedContent string `json:"signed_content"`
	Encoding      string `json:"encoding"` // of the signature: hex, base64, base64url
	// Headers are what is sent; {signature} stands in at least one.
	Headers map[string]string `json:"headers"`
	// Repeat is what is appended to a header for each further live secret, with its {signature}.
	// A header that has a list, such as "t={timestamp},v1={signature}", repeats its element by
	// itself.
	Repeat map[string]string `json:"repeat,omitempty"`
}

// Bounds of a scheme.
const (
	DefaultSecretMin = 1
	SecretLimit      = 512 // bytes of a key
	maxSecretPrefix  = 32
	maxTemplate      = 1024
	maxHeaders       = 10
)

// Error says which field of a scheme cannot be used, and why.
type Error struct {
	Field  string // "headers.X-Acme-Signature"
	Detail string
}

func (e *Error) Error() string { return e.Field + ": " + e.Detail }

// ErrSecret is wrapped by every error about a secret; none holds any part of it.
var ErrSecret = errors.New("signing secret")

// Parse reads a scheme as it is stored.
func Parse(definition []byte) (Scheme, error) {
	var s Scheme
	if err := json.Unmarshal(definition, &s); err != nil {
		return Scheme{}, &Error{"", "is not a signature scheme"}
	}
	_, err := s.compile()
	return s, err
}

// Validate says what is wrong with the scheme, as an *Error.
func (s Scheme) Validate() error {
	_, err := s.compile()
	return err
}

// compiled is a scheme ready to sign.
type compiled struct {
	hash    func() hash.Hash
	encode  func([]byte) string
	content template
	headers []header // in order of their names
	// lists is set where some header takes a signature of each live secret.
	lists bool
}

type header struct {
	name   string // as the scheme spells it
	value  template
	repeat template // nil: it has room for one
}

func (s Scheme) compile() (*compiled, error) {
	c := &compiled{}
	switch s.Algorithm {
	case "hmac-sha1":
		c.hash = sha1.New
	case "hmac-sha256":
		c.hash = sha256.New
	case "hmac-sha512":
		c.hash = sha512.New
	default:
		return nil, &Error{"algorithm", "want hmac-sha1, hmac-sha256 or hmac-sha512"}
	}
	switch s.Encoding {
	case "hex":
		c.encode = hex.EncodeToString
	case "base64":
		c.encode = base64.StdEncoding.EncodeToString
	case "base64url":
		c.encode = base64.RawURLEncoding.EncodeToString
	default:
		return nil, &Error{"encoding", "want hex, base64 or base64url"}
	}
	switch s.SecretEncoding {
	case "utf8", "hex", "base64":
	default:
		return nil, &Error{"secret_encoding", "want utf8, hex or base64"}
	}
	if len(s.SecretPrefix) > maxSecretPrefix || strings.ContainsFunc(s.SecretPrefix, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
		return nil, &Error{"secret_prefix", fmt.Sprintf("at most %d visible ASCII characters", maxSecretPrefix)}
	}
	least, most := s.bounds()
	if least < 1 || most > SecretLimit || least > most {
		return nil, &Error{"secret_min", fmt.Sprintf("a key has 1 to %d bytes, and secret_min is at most secret_max", SecretLimit)}
	}
	var err error
	if len(s.SignedContent) > maxTemplate {
		return nil, &Error{"signed_content", fmt.Sprintf("at most %d bytes", maxTemplate)}
	}
	if c.content, err = parse(s.SignedContent, bodyPart); err != nil {
		return nil, &Error{"signed_content", err.Error()}
	}
	if !c.content.has(bodyPart) {
		return nil, &Error{"signed_content", "has no {body}; a signature that does not cover it vouches for nothing"}
	}
	return c, s.compileHeaders(c)
}

func (s Scheme) compileHeaders(c *compiled) error {
	if len(s.Headers) > maxHeaders {
		return &Error{"headers", fmt.Sprintf("at most %d", maxHeaders)}
	}
	signed := false
	seen := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(s.Headers)) {
		text := s.Headers[name]
		field := "headers." + name
		canonical := textproto.CanonicalMIMEHeaderKey(name)
		switch {
		case !httpguts.ValidHeaderFieldName(name):
			return &Error{field, "is not a header name"}
		case !httpguts.ValidHeaderFieldValue(text) || strings.TrimSpace(text) == "":
			return &Error{field, "is not a header's value"}
		case len(text) > maxTemplate:
			return &Error{field, fmt.Sprintf("at most %d bytes", maxTemplate)}
		case seen[canonical]:
			return &Error{field, "is given twice, in different spellings"}
		}
		seen[canonical] = true
		h := header{name: name}
		var err error
		if h.value, err = parse(text, signaturePart); err != nil {
			return &Error{field, err.Error()}
		}
		more, given := s.Repeat[name]
		if !given {
			more = repeated(text)
		}
		if more != "" {
			if h.repeat, err = parse(more, signaturePart); err != nil || !h.repeat.has(signaturePart) || !h.value.has(signaturePart) || !httpguts.ValidHeaderFieldValue(more) {
				return &Error{"repeat." + name, "want what is appended for a further signature, with {signature}"}
			}
			c.lists = true
		}
		signed = signed || h.value.has(signaturePart)
		c.headers = append(c.headers, h)
	}
	for name := range s.Repeat {
		if _, ok := s.Headers[name]; !ok {
			return &Error{"repeat." + name, "there is no such header in the scheme"}
		}
	}
	if !signed {
		return &Error{"headers", "none holds {signature}"}
	}
	return nil
}

// repeated is the element of a list that holds the signature, with what separates it: of
// "t={timestamp},v1={signature}" it is ",v1={signature}". "" where the text is no such list.
func repeated(text string) string {
	if strings.Count(text, "{"+signaturePart+"}") != 1 {
		return ""
	}
	for _, separator := range []string{", ", ",", "; ", ";"} {
		elements := strings.Split(text, separator)
		if len(elements) < 2 {
			continue
		}
		for _, e := range elements {
			name, value, pair := strings.Cut(e, "=")
			if pair && value == "{"+signaturePart+"}" && name != "" && !strings.Contains(name, "{") {
				return separator + e
			}
		}
		return ""
	}
	return ""
}

func (s Scheme) bounds() (least, most int) {
	least, most = s.SecretMin, s.SecretMax
	if least == 0 {
		least = DefaultSecretMin
	}
	if most == 0 {
		most = SecretLimit
	}
	return least, most
}

// Key reads a secret of the scheme. The error wraps ErrSecret.
func (s Scheme) Key(secret string) ([]byte, error) {
	text, ok := strings.CutPrefix(secret, s.SecretPrefix)
	switch {
	case secret == "":
		return nil, fmt.Errorf("%w: is empty", ErrSecret)
	case strings.TrimSpace(secret) != secret:
		return nil, fmt.Errorf("%w: has white space around it; copy it without", ErrSecret)
	case !ok:
		return nil, fmt.Errorf("%w: does not begin with %q", ErrSecret, s.SecretPrefix)
	}
	key := []byte(text)
	var err error
	switch s.SecretEncoding {
	case "hex":
		if key, err = hex.DecodeString(text); err != nil {
			return nil, fmt.Errorf("%w: is not hexadecimal", ErrSecret)
		}
	case "base64":
		if key, err = base64.StdEncoding.Strict().DecodeString(text); err != nil {
			return nil, fmt.Errorf("%w: is not base64", ErrSecret)
		}
	}
	if least, most := s.bounds(); len(key) < least || len(key) > most {
		return nil, fmt.Errorf("%w: its key has %d bytes, want %d to %d", ErrSecret, len(key), least, most)
	}
	return key, nil
}

// GenerateSecret makes a random secret of the scheme.
func (s Scheme) GenerateSecret() string {
	least, most := s.bounds()
	raw := make([]byte, min(max(least, 32), most))
	rand.Read(raw)
	switch s.SecretEncoding {
	case "hex":
		return s.SecretPrefix + hex.EncodeToString(raw)
	case "base64":
		return s.SecretPrefix + base64.StdEncoding.EncodeToString(raw)
	}
	// Text: as long as its random letters need to be for 32 bytes of them, within the bounds.
	text := rand.Text() + rand.Text()
	for len(text) < least {
		text += rand.Text()
	}
	return s.SecretPrefix + text[:min(len(text), most)]
}

// sign returns the encoded signature of a message.
func (c *compiled) sign(key []byte, m *Message) string {
	mac := hmac.New(c.hash, key)
	for _, p := range c.content {
		switch p.name {
		case "":
			mac.Write([]byte(p.literal))
		case bodyPart:
			mac.Write(m.Body)
		default:
			mac.Write([]byte(m.value(p.name)))
		}
	}
	return c.encode(mac.Sum(nil))
}
