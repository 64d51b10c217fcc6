// Package access knows the keys of the API: how one looks, and whose a given one is.
package access

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"hash/crc32"
	"strings"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// A key is "wbk_", 20 random bytes and the CRC-32 of what stands before it, the latter two in
// lower-case base32. By the beginning scanners find keys that were published by mistake, and by
// the check a mistyped key is told without asking the database.
const (
	keyPrefix   = "wbk_"
	randomBytes = 20
	checkBytes  = 4
	shownChars  = len(keyPrefix) + 8 // 40 of the 160 bits; people tell keys apart by them
)

var letters = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// NewKey makes a key, and the beginning of it that may be shown.
func NewKey() (key, shown string) {
	random := make([]byte, randomBytes)
	rand.Read(random)
	key = keyPrefix + letters.EncodeToString(random)
	key += check(key)
	return key, key[:shownChars]
}

// Shaped reports whether a text can be a key of ours.
func Shaped(key string) bool {
	body := len(keyPrefix) + letters.EncodedLen(randomBytes)
	return strings.HasPrefix(key, keyPrefix) && len(key) == body+letters.EncodedLen(checkBytes) && key[body:] == check(key[:body])
}

func check(s string) string {
	return letters.EncodeToString(binary.BigEndian.AppendUint32(nil, crc32.ChecksumIEEE([]byte(s))))
}

// DigestOf is what is stored of a key.
func DigestOf(key string) outbox.Digest { return sha256.Sum256([]byte(key)) }
