package signature

import (
	"context"
	"crypto"
	"crypto/hmac"
	"crypto/rand"
	_ "crypto/sha1" // some providers still do
	_ "crypto/sha256"
	_ "crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// HMAC is a keyed-hash scheme as data. Most providers are one of these.
//
//	signature.HMAC{Header: "X-Acme-Signature", Form: "sha256={hex}", Signed: "{body}"}
//
// Zero fields take the defaults named below; a value that cannot work is an error of Key.
type HMAC struct {
	// Signed is what is hashed: literal text and {id}, {timestamp}, {url}, {body}. Required; {body}
	// must be in it once.
	Signed string
	// Header carries the signatures. All lines of that name count. Required.
	Header string
	// Form is how Header is written: literal text with {hex} or {base64}, and {timestamp} if it
	// travels here. "t={timestamp},v1={hex}" is a list, separated by its comma: several v1 are
	// several signatures, and what the form does not name is passed over. Required.
	Form string
	// IDHeader and TimeHeader are where {id} and {timestamp} come from, if not from Form.
	IDHeader, TimeHeader string
	// Secret says how a secret is spelled. Default: verbatim.
	Secret SecretForm
	// Hash is crypto.SHA256 unless set.
	Hash crypto.Hash
	// Tolerance is how far the timestamp may be from now, either way. Default 5 minutes. Without
	// {timestamp}: unused.
	Tolerance time.Duration
	// Milliseconds says that the timestamp counts them, not seconds.
	Milliseconds bool
}

// SecretForm is how a provider spells its secrets.
type SecretForm struct {
	Encoding SecretEncoding
	Prefix   string // dropped if present; not with Verbatim
}

// SecretEncoding is what a secret's text is turned into bytes by.
type SecretEncoding int

// The ways to read a secret.
const (
	Verbatim SecretEncoding = iota // its own bytes, prefix included
	Base64                         // standard base64, padded or not
	Hex
)

// Limits on what a stranger can make us look at.
const (
	maxHeaderBytes = 8 << 10
	maxSignatures  = 16
	maxIDBytes     = 256
)

// Key is Scheme's.
func (s HMAC) Key(secret string) (Key, error) {
	p, err := s.compile()
	if err != nil {
		return Key{}, err
	}
	raw, err := s.Secret.decode(secret)
	if err != nil {
		return Key{}, err
	}
	return Key{raw: raw, macs: macPool(raw, p.hash), plan: p}, nil
}

func (f SecretForm) decode(secret string) ([]byte, error) {
	if f.Encoding == Verbatim {
		return []byte(secret), verbatim(secret)
	}
	if err := readable(secret); err != nil {
		return nil, err
	}
	text := strings.TrimPrefix(secret, f.Prefix)
	var raw []byte
	var err error
	switch f.Encoding {
	case Base64:
		raw, err = decodeBase64(text)
	case Hex:
		raw, err = hex.DecodeString(text)
	default:
		return nil, fmt.Errorf("%w: an unknown encoding is asked for", ErrSecret)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: is not %s", ErrSecret, [...]string{Base64: "base64", Hex: "hexadecimal"}[f.Encoding])
	}
	if len(raw) < MinSecret {
		return nil, fmt.Errorf("%w: holds %d bytes, want at least %d", ErrSecret, len(raw), MinSecret)
	}
	return raw, nil
}

// Headers is Scheme's.
func (s HMAC) Headers() []string { return []string{s.Header} }

// Verify is Scheme's.
func (s HMAC) Verify(_ context.Context, r Request, keys []Key, now time.Time) (Verified, error) {
	p := planOf(keys, s)
	if p == nil {
		return Verified{}, refuse(Mismatch, "there is no key to verify with")
	}
	in, err := p.read(&r)
	if err != nil {
		return Verified{}, err
	}
	key := -1
	var buf [64]byte
	var partBuf [8][]byte
	parts := p.parts(partBuf[:0], &r, in)
	// No early end: how long it takes says nothing about which signature fitted which key.
	for i, k := range keys {
		if k.macs == nil || k.plan == nil || k.plan.of != s {
			continue
		}
		want := k.mac(buf[:0], parts...)
		for _, got := range in.signatures[:in.n] {
			if hmac.Equal(got, want) && key < 0 {
				key = i
			}
		}
	}
	if key < 0 {
		return Verified{}, refuse(Mismatch, "no signature in "+s.Header+" was made with a key of this source over these bytes")
	}
	v := Verified{ID: in.id, Key: key}
	if p.timed {
		if v.At, err = within(in.at, now, p.tolerance, p.tolerance); err != nil {
			return Verified{}, err
		}
	}
	return v, nil
}

// Sign is SigningScheme's.
func (s HMAC) Sign(r *Request, id string, keys []Key, now time.Time) error {
	p := planOf(keys, s)
	if p == nil {
		return fmt.Errorf("%w: there is none of this scheme", ErrSecret)
	}
	in := &arrived{id: id, timestamp: strconv.FormatInt(now.Unix(), 10)}
	if s.Milliseconds {
		in.timestamp = strconv.FormatInt(now.UnixMilli(), 10)
	}
	if p.identified {
		if err := checkID(id, s.IDHeader); err != nil {
			return err
		}
		r.Header.Set(s.IDHeader, id)
	}
	if s.TimeHeader != "" {
		r.Header.Set(s.TimeHeader, in.timestamp)
	}
	parts := p.parts(nil, r, in)
	var signatures [][]byte
	for _, k := range keys {
		if k.macs != nil {
			signatures = append(signatures, k.mac(nil, parts...))
		}
	}
	r.Header.Set(s.Header, p.write(in.timestamp, signatures))
	return nil
}

// NewKey is SigningScheme's.
func (s HMAC) NewKey() (string, Key, error) {
	raw := make([]byte, 32)
	rand.Read(raw)
	secret := base64.StdEncoding.EncodeToString(raw)
	switch s.Secret.Encoding {
	case Hex:
		secret = s.Secret.Prefix + hex.EncodeToString(raw)
	case Base64:
		secret = s.Secret.Prefix + secret
	case Verbatim:
	}
	key, err := s.Key(secret)
	return secret, key, err
}

// planOf is how the first of keys that this scheme made reads a request.
func planOf(keys []Key, s HMAC) *plan {
	for _, k := range keys {
		if k.plan != nil && k.plan.of == s {
			return k.plan
		}
	}
	return nil
}
