package signature

import (
	"crypto"
	"crypto/hmac"
	"fmt"
	"hash"
	"log/slog"
	"slices"
	"strings"
	"sync"
)

// MinSecret is the shortest secret, in bytes, that a scheme takes verbatim. Providers give out 20
// and more; shorter ones, above all the empty one, let strangers in.
const MinSecret = 16

// Key is a parsed secret of one scheme. Printing one in any form shows "[key]". The zero Key, and a
// key of another scheme, verify nothing.
type Key struct {
	raw     []byte
	macs    *sync.Pool // of *keyedHash, for HMAC schemes
	private crypto.Signer
	public  crypto.PublicKey
	plan    *plan // of the HMAC scheme that made the key
	each    []Key // of AnyOf
}

// keyedHash is a prepared MAC and room for its sum: setting one up hashes two blocks and allocates.
type keyedHash struct {
	hash.Hash
	sum []byte
}

func macPool(raw []byte, h crypto.Hash) *sync.Pool {
	raw = slices.Clone(raw)
	return &sync.Pool{New: func() any {
		return &keyedHash{Hash: hmac.New(h.New, raw), sum: make([]byte, 0, h.Size())}
	}}
}

// mac appends the MAC over parts to dst.
func (k Key) mac(dst []byte, parts ...[]byte) []byte {
	m := k.macs.Get().(*keyedHash)
	m.Reset()
	for _, p := range parts {
		m.Write(p)
	}
	m.sum = m.Sum(m.sum[:0])
	dst = append(dst, m.sum...)
	k.macs.Put(m)
	return dst
}

// verbatim checks a secret that is used as it is written.
func verbatim(secret string) error {
	if err := readable(secret); err != nil {
		return err
	}
	if len(secret) < MinSecret {
		return fmt.Errorf("%w: has %d bytes, want at least %d", ErrSecret, len(secret), MinSecret)
	}
	return nil
}

// readable refuses what nobody meant to write.
func readable(secret string) error {
	switch {
	case secret == "":
		return fmt.Errorf("%w: is empty", ErrSecret)
	case strings.TrimSpace(secret) != secret:
		return fmt.Errorf("%w: has white space around it; copy it without", ErrSecret)
	}
	return nil
}

// String hides the key.
func (Key) String() string { return "[key]" }

// GoString hides the key.
func (Key) GoString() string { return "[key]" }

// Format hides the key from every verb.
func (Key) Format(f fmt.State, _ rune) { fmt.Fprint(f, "[key]") }

// LogValue hides the key.
func (Key) LogValue() slog.Value { return slog.StringValue("[key]") }

// MarshalText hides the key.
func (Key) MarshalText() ([]byte, error) { return []byte("[key]"), nil }
