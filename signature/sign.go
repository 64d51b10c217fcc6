package signature

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"slices"
	"strconv"
	"time"
)

// The three headers of Standard Webhooks. Header names have no case; these are how we send them.
const (
	HeaderID        = "webhook-id"
	HeaderTimestamp = "webhook-timestamp"
	HeaderSignature = "webhook-signature"
)

const version = "v1,"

var encodedLen = base64.StdEncoding.EncodedLen(sha256.Size)

// Signer signs messages with one or more secrets. It is safe for use by many goroutines at once.
type Signer struct {
	secrets []Secret
}

// NewSigner makes a signer from the live secrets: the newest first, then those that are being
// rotated out. A receiver that knows any of them can verify what it signs. There must be one.
func NewSigner(secrets ...Secret) (*Signer, error) {
	if len(secrets) == 0 {
		return nil, fmt.Errorf("%w: there is none", ErrSecret)
	}
	for _, s := range secrets {
		if s.key == nil {
			return nil, fmt.Errorf("%w: is empty", ErrSecret)
		}
	}
	return &Signer{secrets: slices.Clone(secrets)}, nil
}

// Sign returns the value of the webhook-signature header for a message: "v1,<base64>" for each
// secret, separated by spaces. The timestamp is signed, and to be sent, in whole Unix seconds.
func (s *Signer) Sign(id string, at time.Time, body []byte) string {
	var digits [20]byte
	timestamp := string(strconv.AppendInt(digits[:0], at.Unix(), 10))
	out := make([]byte, 0, len(s.secrets)*(len(version)+encodedLen+1))
	for i, secret := range s.secrets {
		if i > 0 {
			out = append(out, ' ')
		}
		out = append(out, version...)
		out = secret.key.appendSignature(out, id, timestamp, body)
	}
	return string(out)
}
