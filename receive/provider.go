package receive

import (
	"time"

	"github.com/waybill-dev/waybill/signature"
)

// Provider is what is known about one sender of webhooks: data, so that it can be listed, linted,
// simulated and tested. Start from one of package providers, or write your own; each call there
// gives a fresh value.
type Provider struct {
	Name   string
	Scheme signature.Scheme

	// ID is where the event's id is, if the scheme itself does not verify one. A header is not
	// covered by the signature; a place in the body is. Zero with a scheme that gives none: events
	// have no id.
	ID    Lookup
	Topic Lookup
	// Identify finds what no Lookup leads to, in the event's bytes: an id that is put together of
	// several fields (Adyen), or JSON within a string of JSON (Wix). It counts where ID, or Topic,
	// finds nothing; empty texts are none. What it reads must be signed.
	Identify func(event []byte) (id, topic string)
	// IDPerTopic says that one id may come under several topics, and means another event each time
	// (Shopify).
	IDPerTopic bool
	// Split makes one verified body several events (SendGrid, Adyen), or takes one out of its
	// envelope (Wix). Their bytes are sub-slices of it, or what it encodes. ID and Topic are looked
	// up in each.
	Split func(body []byte) ([][]byte, error)
	// Fingerprint drops what changes from attempt to attempt before the body's digest is taken.
	// Default: nothing.
	Fingerprint func(body []byte) []byte

	// Timeout is how long one attempt may take; Guessed says the provider does not publish it.
	Timeout time.Duration
	Guessed bool
	// Retries are the waits between automatic attempts. Nil with a Horizon: unpublished, spread
	// over it. Nil without: this provider never tries again.
	Retries []time.Duration
	// Horizon is from the first attempt to the last automatic one; Manual how long people can
	// resend after that.
	Horizon, Manual time.Duration
	// Stops are the codes, besides success, after which it does not try again.
	Stops []CodeRange
	// HonoursRetryAfter: it waits at least that long.
	HonoursRetryAfter bool

	Codes      Codes
	MaxBody    int64 // largest body it sends; 0: not known
	Handshakes []Handshake
	Facts      []Fact // where all this is from
}

// Lookup is a place to read a short text from: a header, or a JSON pointer into the body ("/id").
type Lookup struct{ Header, Pointer string }

// CodeRange is From to To, both included.
type CodeRange struct{ From, To int }

// Codes are what to answer. Zero fields: 200, 503, 503, 401, 413.
type Codes struct {
	OK       int // done, or written down
	InFlight int // being handled right now; Retry-After is the rest of its lease
	Failed   int // the handler failed, or the store did
	Rejected int // does not verify
	TooLarge int
}

// Handshake is a request that is not an event: Slack's url_verification, Discord's PING, Meta's GET
// challenge. It is answered before anything is stored or claimed.
type Handshake struct {
	// Method it comes with. A POST is verified first; a GET or HEAD cannot be, and Answer must
	// compare token, which is Source.ChallengeToken and never empty then.
	Method string
	// Answer returns false for a request that is an event after all.
	Answer func(r signature.Request, token string) (Reply, bool)
}

// Fact is one source of what a Provider says.
type Fact struct{ Says, URL, Read string }
