package signature

import (
	"crypto/hmac"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Why a message was not verified. All of them mean: do not act on it.
var (
	// ErrMalformed: a header is missing, sent twice with two values, or not in its form.
	ErrMalformed = errors.New("malformed webhook headers")
	// ErrTimestamp: the signature may be right, but it was made too long ago, or in the future.
	ErrTimestamp = errors.New("webhook timestamp outside the tolerance")
	// ErrSignature: no secret made any of the signatures.
	ErrSignature = errors.New("no webhook signature matches")
)

// DefaultTolerance is how far a message's time may lie from now, either way.
const DefaultTolerance = 5 * time.Minute

// Verifier checks that a message was signed with one of its secrets, a short time ago. It is
// safe for use by many goroutines at once.
type Verifier struct {
	// Secrets are tried all; during a rotation there are two. Without any, nothing verifies.
	Secrets []Secret
	// Tolerance is how far the message's time may lie from now, in the past and in the future.
	// 0 means DefaultTolerance.
	Tolerance time.Duration
}

// Message is what a signature vouches for, apart from the body.
type Message struct {
	ID string    // the same for every attempt to deliver the message
	At time.Time // when this attempt was signed; whole seconds, UTC
}

// Verify checks the headers and the body, byte for byte as they came, against the current time.
// The error is one of ErrMalformed, ErrTimestamp and ErrSignature, wrapped with what was wrong;
// it holds nothing the sender chose.
//
// Header names match in any case. A webhook-signature that came as several lines, or was joined
// by a proxy, is read as one list; any v1 signature in it may match. Two different ids or
// timestamps are malformed, for the reader behind may pick the other one.
func (v *Verifier) Verify(header http.Header, body []byte) (Message, error) {
	return v.VerifyAt(time.Now(), header, body)
}

// VerifyAt is Verify against a given time.
func (v *Verifier) VerifyAt(now time.Time, header http.Header, body []byte) (Message, error) {
	id, err := single(header, HeaderID)
	if err != nil {
		return Message{}, err
	}
	timestamp, err := single(header, HeaderTimestamp)
	if err != nil {
		return Message{}, err
	}
	seconds, err := parseTimestamp(timestamp)
	if err != nil {
		return Message{}, err
	}
	signatures := values(header, HeaderSignature)
	if len(signatures) == 0 {
		return Message{}, fmt.Errorf("%w: no %s", ErrMalformed, HeaderSignature)
	}

	tolerance := v.Tolerance
	if tolerance == 0 {
		tolerance = DefaultTolerance
	}
	// Whole seconds on both sides: the signed time has no more, and a difference of int64
	// seconds this small cannot overflow.
	age := now.Unix() - seconds
	if limit := int64(tolerance / time.Second); age > limit || age < -limit {
		return Message{}, ErrTimestamp
	}
	if !v.anyMatches(id, timestamp, body, signatures) {
		return Message{}, ErrSignature
	}
	return Message{ID: id, At: time.Unix(seconds, 0).UTC()}, nil
}

// anyMatches compares every secret's signature with every one that was sent, and does not stop
// at the first match: how long it takes says nothing about which matched.
func (v *Verifier) anyMatches(id, timestamp string, body []byte, lines []string) bool {
	matched := false
	var buf [64]byte
	for _, secret := range v.Secrets {
		if secret.key == nil {
			continue // a zero Secret must never verify anything
		}
		want := secret.key.appendSignature(buf[:0], id, timestamp, body)
		for _, line := range lines {
			for token := range strings.FieldsSeq(line) {
				// A proxy joins repeated header lines with ", ".
				got, ok := strings.CutPrefix(strings.TrimSuffix(token, ","), version)
				// The text is compared, not the decoded bytes: base64 has several spellings of
				// one value, and senders use the canonical one.
				if ok && hmac.Equal([]byte(got), want) {
					matched = true
				}
			}
		}
	}
	return matched
}

// values returns all values of a header, whatever the case of its name in the map: not every
// server canonicalises (HTTP/2 gateways and function platforms hand over lower case).
func values(header http.Header, name string) []string {
	var all []string
	for key, lines := range header {
		switch {
		case !strings.EqualFold(key, name):
		case all == nil:
			all = lines[:len(lines):len(lines)] // the header's own; a second spelling copies it
		default:
			all = append(all, lines...)
		}
	}
	return all
}

func single(header http.Header, name string) (string, error) {
	lines := values(header, name)
	if len(lines) == 0 || lines[0] == "" {
		return "", fmt.Errorf("%w: no %s", ErrMalformed, name)
	}
	for _, line := range lines[1:] {
		if line != lines[0] {
			return "", fmt.Errorf("%w: two values of %s", ErrMalformed, name)
		}
	}
	return lines[0], nil
}

var errTimestamp = fmt.Errorf("%w: %s is not a decimal number of seconds", ErrMalformed, HeaderTimestamp)

// maxTimestampDigits keeps a timestamp far from where arithmetic on it could overflow.
const maxTimestampDigits = 15

// parseTimestamp accepts what a sender writes: decimal digits, no sign, space, point, exponent
// or leading zero. A lenient parser that turns "abc" into something for which every comparison
// is false has let such messages through elsewhere.
func parseTimestamp(s string) (int64, error) {
	if len(s) > maxTimestampDigits || len(s) > 1 && s[0] == '0' {
		return 0, errTimestamp
	}
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return 0, errTimestamp
		}
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return 0, errTimestamp
	}
	return n, nil
}
