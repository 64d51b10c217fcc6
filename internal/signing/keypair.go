package signing

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"
)

const (
	privatePrefix     = "whsk_"
	publicPrefix      = "whpk_"
	asymmetricVersion = "v1a,"
)

// PrivateKey signs as Standard Webhooks' v1a says: Ed25519 over the same text that v1 covers.
// Printing one in any form shows "[secret]".
type PrivateKey struct {
	key ed25519.PrivateKey
}

// ParsePrivateKey reads a private key: "whsk_" and the standard base64 of the 32 bytes of the
// seed, or of the 64 bytes of seed and public key.
func ParsePrivateKey(text string) (PrivateKey, error) {
	raw, err := keyBytes(text, privatePrefix)
	if err != nil {
		return PrivateKey{}, err
	}
	switch len(raw) {
	case ed25519.SeedSize:
		return PrivateKey{ed25519.NewKeyFromSeed(raw)}, nil
	case ed25519.PrivateKeySize:
		key := ed25519.NewKeyFromSeed(raw[:ed25519.SeedSize])
		if !key.Equal(ed25519.PrivateKey(raw)) {
			return PrivateKey{}, fmt.Errorf("%w: its public half does not belong to its seed", ErrSecret)
		}
		return PrivateKey{key}, nil
	}
	return PrivateKey{}, fmt.Errorf("%w: holds %d bytes, want 32 or 64", ErrSecret, len(raw))
}

// GeneratePrivateKey makes a random private key, "whsk_…".
func GeneratePrivateKey() string {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		panic(fmt.Sprintf("signing: crypto/rand does not fail: %v", err))
	}
	return privatePrefix + base64.StdEncoding.EncodeToString(key)
}

// Public returns the key that verifies what k signs.
func (k PrivateKey) Public() PublicKey {
	return PublicKey{k.key.Public().(ed25519.PublicKey)}
}

// Sign returns one element of the webhook-signature header, "v1a,<base64>".
func (k PrivateKey) Sign(id string, at time.Time, body []byte) string {
	return asymmetricVersion + base64.StdEncoding.EncodeToString(ed25519.Sign(k.key, signedText(id, strconv.FormatInt(at.Unix(), 10), body)))
}

// signedText is what a signature covers: "id.timestamp.body".
func signedText(id, timestamp string, body []byte) []byte {
	text := make([]byte, 0, len(id)+len(timestamp)+len(body)+2)
	text = append(text, id...)
	text = append(text, '.')
	text = append(text, timestamp...)
	text = append(text, '.')
	return append(text, body...)
}

// String hides the key.
func (PrivateKey) String() string { return "[secret]" }

// GoString hides the key.
func (PrivateKey) GoString() string { return "[secret]" }

// Format hides the key from every verb.
func (PrivateKey) Format(f fmt.State, _ rune) { fmt.Fprint(f, "[secret]") }

// LogValue hides the key.
func (PrivateKey) LogValue() slog.Value { return slog.StringValue("[secret]") }

// MarshalText hides the key.
func (PrivateKey) MarshalText() ([]byte, error) { return []byte("[secret]"), nil }

// PublicKey verifies what its private key signs. It is no secret.
type PublicKey struct {
	key ed25519.PublicKey
}

// String returns "whpk_" and the standard base64 of the 32 bytes.
func (k PublicKey) String() string { return publicPrefix + base64.StdEncoding.EncodeToString(k.key) }

// Bytes returns the 32 bytes of the key.
func (k PublicKey) Bytes() []byte { return []byte(k.key) }

// keyBytes decodes a key behind its prefix.
func keyBytes(text, prefix string) ([]byte, error) {
	encoded, ok := strings.CutPrefix(text, prefix)
	switch {
	case strings.TrimSpace(text) != text:
		return nil, fmt.Errorf("%w: has white space around it; copy it without", ErrSecret)
	case !ok:
		return nil, fmt.Errorf("%w: does not begin with %q", ErrSecret, prefix)
	}
	raw, err := base64.StdEncoding.Strict().DecodeString(encoded)
	if err != nil {
		return nil, fmt.Errorf("%w: is not base64", ErrSecret)
	}
	return raw, nil
}
