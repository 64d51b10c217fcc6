package signature

import (
	"context"
	"errors"
	"net/http"
	"time"
)

// Request is what arrived, before anything was parsed.
type Request struct {
	Method string
	// URL is the address as the provider knows it. Twilio and Square sign it; behind a proxy it is
	// not the URL the server sees. Empty where the scheme does not need it.
	URL    string
	Header http.Header
	Body   []byte
}

// Scheme is how one provider signs. Schemes are values, safe for concurrent use.
type Scheme interface {
	// Key makes a key from one secret, written as the provider's page shows it. Each scheme has its
	// own reading ("whsec_" is base64 for Standard Webhooks and verbatim for Stripe). An empty or
	// short secret, white space around it, bad base64: an error that says in words what is wrong,
	// never the secret. It wraps ErrSecret.
	Key(secret string) (Key, error)

	// Verify checks r against every key. It returns nil exactly if one of the signatures is right
	// for one of the keys and the timestamp, if the scheme has one, is within tolerance of now on
	// both sides. Every other error is an *Error, except that of a ctx that ended or a certificate
	// that could not be had (only PayPal waits for anything).
	Verify(ctx context.Context, r Request, keys []Key, now time.Time) (Verified, error)

	// Headers names the headers that carry signatures or secrets. A receiver keeps them out of what
	// it stores.
	Headers() []string
}

// SigningScheme is a Scheme that can also sign: all but PayPal. Tests use it.
type SigningScheme interface {
	Scheme
	// Sign sets the scheme's headers on r: one signature per key, the id and now where the scheme
	// carries them.
	Sign(r *Request, id string, keys []Key, now time.Time) error
	// NewKey makes a fresh secret that can sign, in a spelling that Key reads, and its key.
	NewKey() (secret string, key Key, err error)
}

// Verified is what the signature vouches for, and nothing else.
type Verified struct {
	// ID is the event's id if it is signed outside the body's own fields (Standard Webhooks' header,
	// Mailgun's token). Else empty: the id is in the body, or in a header anyone can change.
	ID string
	// At is the signed timestamp of this attempt; zero if the scheme has none.
	At time.Time
	// Key is the index of the key that fitted, so that a rotation can be seen to be over.
	Key int
}

// Reason names why a request does not verify. It is fit for a metric label.
type Reason string

const (
	Missing   Reason = "missing"   // no signature header
	Malformed Reason = "malformed" // a header that does not follow the scheme's grammar, or a strange id
	Mismatch  Reason = "mismatch"  // no signature fits any key
	TooOld    Reason = "too_old"   // right signature, timestamp before now-tolerance
	TooNew    Reason = "too_new"   // right signature, timestamp after now+tolerance
)

// Error is a request that does not verify. Detail is one sentence for a person; it holds no computed
// signature, no secret and nothing of the body.
type Error struct {
	Reason Reason
	Detail string
}

func (e *Error) Error() string { return "signature: " + e.Detail }

// Why returns the reason in err's chain.
func Why(err error) (Reason, bool) {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Reason, true
	}
	return "", false
}
