// Package keyring seals secrets at rest with AES-256-GCM.
//
// A sealed value names the key that sealed it, so keys can be rotated, and is bound to where it
// is stored (a tenant and an endpoint), so a value copied into another row does not open there.
package keyring

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
)

// KeySize is the length of a key in bytes.
const KeySize = 32

// ErrSealed says that a value could not be opened: unknown key, other place, or damage. It says
// no more, and never holds any of the value.
var ErrSealed = errors.New("sealed value does not open")

const (
	version = 1
	idSize  = 4
	header  = 1 + idSize
)

// Keyring seals with its first key and opens with any.
type Keyring struct {
	keys []sealer
}

type sealer struct {
	id   [idSize]byte
	aead cipher.AEAD
	root [sha256.Size]byte // what keys for other purposes are derived from
}

// New makes a keyring from 32-byte keys: the current one, then older ones that only open.
func New(current []byte, old ...[]byte) (*Keyring, error) {
	k := &Keyring{}
	for _, key := range append([][]byte{current}, old...) {
		if len(key) != KeySize {
			return nil, fmt.Errorf("encryption key: %d bytes, want %d", len(key), KeySize)
		}
		block, err := aes.NewCipher(key)
		if err != nil {
			return nil, fmt.Errorf("encryption key: %w", err)
		}
		aead, err := cipher.NewGCMWithRandomNonce(block)
		if err != nil {
			return nil, fmt.Errorf("encryption key: %w", err)
		}
		sum := sha256.Sum256(append([]byte("waybill key id\x00"), key...))
		k.keys = append(k.keys, sealer{id: [idSize]byte(sum[:idSize]), aead: aead, root: mac(key, "waybill derived keys")})
	}
	return k, nil
}

// ParseKey reads a key from base64 (standard alphabet, with or without padding).
func ParseKey(s string) ([]byte, error) {
	key, err := base64.RawStdEncoding.DecodeString(string(bytes.TrimRight([]byte(s), "=")))
	if err != nil || len(key) != KeySize {
		return nil, fmt.Errorf("want base64 of %d bytes", KeySize) // never the key itself
	}
	return key, nil
}

// NewKey makes a random key.
func NewKey() []byte {
	key := make([]byte, KeySize)
	rand.Read(key)
	return key
}

// Derive returns a key for another purpose from each key: the current one's, then those of older
// ones. Nothing about the keys can be learned from them.
func (k *Keyring) Derive(purpose string) [][]byte {
	var derived [][]byte
	for i := range k.keys {
		key := mac(k.keys[i].root[:], purpose)
		derived = append(derived, key[:])
	}
	return derived
}

func mac(key []byte, text string) [sha256.Size]byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(text))
	return [sha256.Size]byte(h.Sum(nil))
}

// Seal encrypts plain for one place.
func (k *Keyring) Seal(plain []byte, place string) []byte {
	s := k.keys[0]
	out := append(make([]byte, 0, header+len(plain)+s.aead.Overhead()), version)
	out = append(out, s.id[:]...)
	return s.aead.Seal(out, nil, plain, []byte(place))
}

// Open decrypts what Seal made for the same place.
func (k *Keyring) Open(sealed []byte, place string) ([]byte, error) {
	if len(sealed) < header || sealed[0] != version {
		return nil, ErrSealed
	}
	for _, s := range k.keys {
		if bytes.Equal(sealed[1:header], s.id[:]) {
			plain, err := s.aead.Open(nil, nil, sealed[header:], []byte(place))
			if err != nil {
				return nil, ErrSealed
			}
			return plain, nil
		}
	}
	return nil, ErrSealed
}

// Renew seals with the current key what an earlier one sealed for the same place, and reports
// whether that was needed.
func (k *Keyring) Renew(sealed []byte, place string) (renewed []byte, changed bool, err error) {
	if k.keys[0].sealed(sealed) {
		return sealed, false, nil
	}
	plain, err := k.Open(sealed, place)
	if err != nil {
		return nil, false, err
	}
	return k.Seal(plain, place), true, nil
}
