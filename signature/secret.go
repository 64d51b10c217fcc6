package signature

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"hash"
	"log/slog"
	"strings"
	"sync"
)

// Bounds of a secret's key, in bytes (Standard Webhooks 1.0, "Signature scheme").
const (
	MinKey = 24
	MaxKey = 64
)

// What keys begin with.
const (
	secretPrefix  = "whsec_"
	privatePrefix = "whsk_"
	publicPrefix  = "whpk_"
)

// ErrSecret is wrapped by every error about a secret that cannot be used. Such errors say what
// is wrong and never hold any part of the secret.
var ErrSecret = errors.New("signing secret")

// Secret is a key that signs and verifies. Printing one in any form shows "[secret]". The zero
// Secret is not usable; ParseSecret makes them.
type Secret struct {
	key *key
}

// key keeps prepared MACs: setting one up hashes two blocks and allocates, which at thousands of
// signatures a second is most of the cost of a small body.
type key struct {
	macs sync.Pool // *mac
}

type mac struct {
	hash.Hash
	scratch []byte
}

// ParseSecret reads a secret: "whsec_" and the standard base64, with padding, of 24 to 64 bytes;
// or that base64 alone. Anything else is refused rather than guessed at, because a secret that
// was misread signs perfectly and verifies nowhere.
func ParseSecret(text string) (Secret, error) {
	if strings.HasPrefix(text, privatePrefix) || strings.HasPrefix(text, publicPrefix) {
		return Secret{}, fmt.Errorf("%w: is an Ed25519 key; a shared secret begins with \"whsec_\"", ErrSecret)
	}
	raw, err := decodeSecret(text)
	if err != nil {
		return Secret{}, err
	}
	return Secret{key: newKey(raw)}, nil
}

func decodeSecret(text string) ([]byte, error) {
	encoded := strings.TrimPrefix(text, secretPrefix)
	switch {
	case text == "":
		return nil, fmt.Errorf("%w: is empty", ErrSecret)
	case strings.TrimSpace(text) != text:
		return nil, fmt.Errorf("%w: has white space around it; copy it without", ErrSecret)
	case strings.ContainsAny(text, " \t\r\n\v\f"):
		return nil, fmt.Errorf("%w: has white space in it", ErrSecret)
	case strings.HasPrefix(text, "v1,"):
		return nil, fmt.Errorf("%w: begins with \"v1,\", which marks a signature; leave it out", ErrSecret)
	case encoded == "":
		return nil, fmt.Errorf("%w: has nothing after \"whsec_\"", ErrSecret)
	case strings.ContainsAny(encoded, "-_"):
		return nil, fmt.Errorf("%w: is not in the standard base64 alphabet (it has - or _ where + and / belong)", ErrSecret)
	case len(encoded)%4 != 0:
		return nil, fmt.Errorf("%w: is not complete base64; its length is no multiple of four (is a trailing = missing?)", ErrSecret)
	}
	raw, err := base64.StdEncoding.Strict().DecodeString(encoded)
	if err != nil {
		return nil, fmt.Errorf("%w: is not base64", ErrSecret) // the decoder's error tells positions only, but nothing is owed to it
	}
	if len(raw) < MinKey || len(raw) > MaxKey {
		return nil, fmt.Errorf("%w: holds %d bytes, want %d to %d", ErrSecret, len(raw), MinKey, MaxKey)
	}
	return raw, nil
}

// GenerateSecret makes a random secret, "whsec_…".
//
// It holds 33 bytes: more than the hash's 32, and a multiple of three, so the text ends without
// the = that a double click does not select.
func GenerateSecret() string {
	var raw [33]byte
	rand.Read(raw[:]) // crypto/rand.Read never fails; it ends the process instead
	return secretPrefix + base64.StdEncoding.EncodeToString(raw[:])
}

func newKey(raw []byte) *key {
	k := &key{}
	k.macs.New = func() any { return &mac{Hash: hmac.New(sha256.New, raw)} }
	return k
}

// appendSignature appends the base64 of the HMAC over "id.timestamp.body".
func (k *key) appendSignature(dst []byte, id, timestamp string, body []byte) []byte {
	m := k.macs.Get().(*mac)
	m.Reset()
	m.scratch = append(m.scratch[:0], id...)
	m.scratch = append(m.scratch, '.')
	m.scratch = append(m.scratch, timestamp...)
	m.scratch = append(m.scratch, '.')
	m.Write(m.scratch)
	m.Write(body)
	m.scratch = m.Sum(m.scratch[:0])
	dst = base64.StdEncoding.AppendEncode(dst, m.scratch)
	k.macs.Put(m)
	return dst
}

// String hides the secret.
func (Secret) String() string { return "[secret]" }

// GoString hides the secret.
func (Secret) GoString() string { return "[secret]" }

// Format hides the secret from every verb.
func (Secret) Format(f fmt.State, _ rune) { fmt.Fprint(f, "[secret]") }

// LogValue hides the secret.
func (Secret) LogValue() slog.Value { return slog.StringValue("[secret]") }

// MarshalText hides the secret.
func (Secret) MarshalText() ([]byte, error) { return []byte("[secret]"), nil }
