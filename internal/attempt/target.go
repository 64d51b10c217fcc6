package attempt

import (
	"errors"
	"fmt"
	"maps"
	"net/textproto"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/waybill-dev/waybill/internal/egress"
	"github.com/waybill-dev/waybill/internal/outbox"
	"github.com/waybill-dev/waybill/internal/signing"
)

// Endpoint is the configuration of an endpoint as far as sending needs it.
type Endpoint struct {
	ID       outbox.EndpointID // its connections are used for no other's attempts
	URL      string
	Headers  map[string]string
	Metadata map[string]string // for schemes that sign or send some of it
	// Credentials are sent, or shown in the handshake, and recorded nowhere.
	Credentials   outbox.Credentials
	Schemes       []signing.Named    // how it is signed; nil means Standard Webhooks
	UnknownScheme string             // set: it signs with one that is not defined
	Secrets       []outbox.Secret    // newest first; those that are live when an attempt begins sign it
	Timeout       time.Duration      // of one attempt, everything included; 0 means outbox.DefaultTimeout
	Internal      bool               // the tenant may reach the ranges opened to internal ones
	Retry         outbox.RetryPolicy // resolved; its RetryStatuses are read here
	Fault         string             // set: the stored row cannot be used, every attempt fails as such
}

// Of is a stored endpoint as far as sending needs it; retry is resolved.
func Of(e *outbox.Endpoint, t *outbox.Tenant, retry outbox.RetryPolicy, book signing.Book) Endpoint {
	schemes, unknown := book.Named(e.Schemes)
	return Endpoint{
		ID:            e.ID,
		URL:           e.URL,
		Headers:       e.Headers,
		Metadata:      e.Metadata,
		Credentials:   e.Credentials,
		Schemes:       schemes,
		UnknownScheme: unknown,
		Secrets:       e.Secrets,
		Timeout:       e.Timeout,
		Internal:      t.Egress == outbox.EgressInternal,
		Retry:         retry,
		Fault:         e.Fault,
	}
}

// Target is an endpoint made ready to be sent to. It does not change, apart from noticing that a
// secret ran out; make a new one when the configuration changed.
type Target struct {
	url      *url.URL
	shown    string // the URL for the attempt's record
	host     string // without port, for sentences
	port     string
	timeout  time.Duration
	peer     egress.Peer
	retry    outbox.RetryPolicy
	header   map[string][]string // sent as they are
	recorded []outbox.Header     // the same, with secret values replaced
	metadata map[string]string
	plan     *signing.Plan
	signed   []string // the headers that the schemes write, in canonical spelling
	live     atomic.Pointer[liveSigner]
	unusable *verdict // set: every attempt ends in it
}

// liveSigner signs with the secrets that are live until a certain moment.
type liveSigner struct {
	signer *signing.Signer
	until  time.Time // zero: for ever
}

// Prepare reads an endpoint's configuration once, for many attempts. It always returns a target:
// what is wrong with the configuration becomes the outcome of each attempt, so that it is
// recorded where its owner looks.
func (s *Sender) Prepare(e Endpoint) *Target {
	t := &Target{shown: e.URL, timeout: e.Timeout, peer: egress.Peer{Endpoint: e.ID, Internal: e.Internal}, retry: e.Retry}
	if t.timeout <= 0 {
		t.timeout = outbox.DefaultTimeout
	}
	t.timeout = min(t.timeout, outbox.MaxTimeout)
	if e.Fault != "" {
		t.refuse(configBroken)
		return t
	}
	u, err := s.guard.ParseURL(e.URL, e.Internal)
	if err != nil {
		t.refuseURL(e.URL, err)
		return t
	}
	t.url, t.shown, t.host, t.port = u, u.String(), u.Hostname(), u.Port()
	if t.port == "" {
		t.port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	schemes := e.Schemes
	if len(schemes) == 0 {
		schemes = []signing.Named{{Name: outbox.SchemeStandard}}
	}
	for _, name := range signing.HeaderNames(schemes) {
		t.signed = append(t.signed, textproto.CanonicalMIMEHeaderKey(name))
	}
	headers, err := CheckHeaders(e.Headers, s.prefix)
	if err != nil {
		t.refuse(configHeader)
		return t
	}
	secret, err := CheckHeaders(e.Credentials.Headers, s.prefix)
	if err != nil {
		t.refuse(configHeader)
		return t
	}
	t.setHeaders(headers, secret, s.userAgent)
	if e.Credentials.Certificate != "" {
		if t.peer.Certificate, err = ClientCertificate(e.Credentials.Certificate, e.Credentials.Key); err != nil {
			t.refuse(configCertificate)
			return t
		}
	}
	t.metadata = e.Metadata
	if e.UnknownScheme != "" {
		t.refuse(configScheme)
		return t
	}
	if t.plan, err = signing.NewPlan(schemes, e.Secrets); err != nil {
		t.refuse(configSecret)
	}
	return t
}

// refuseURL tells a URL the policy forbids from one that is none. Only the former is shown: the
// others may hold a password.
func (t *Target) refuseURL(raw string, err error) {
	t.shown = ""
	u, parseErr := url.Parse(raw)
	problem, _ := errors.AsType[*egress.URLError](err)
	switch {
	case parseErr != nil:
		t.refuse(configURL)
	case problem.Code == egress.URLNotAllowed || problem.Code == egress.URLPort:
		t.shown, t.host = raw, u.Hostname()
		t.refuse(egressDenied)
	case problem.Code == egress.URLScheme && u.Scheme == "http":
		t.host = u.Hostname() // http was allowed when this was stored
		t.refuse(egressDenied)
	default:
		t.refuse(configURL)
	}
}

func (t *Target) refuse(c cause) { t.unusable = new(t.verdict(c)) }

// setHeaders lays out what is the same in every request. Content-Length and Host are written by
// net/http; User-Agent is spelled as net/http looks for it, or it would send its own as well. A
// header that a scheme writes is left out: the scheme may have been given it after the endpoint was
// made, and of two lines a receiver might read the one that is no signature.
func (t *Target) setHeaders(custom, secret map[string]string, userAgent string) {
	t.header = map[string][]string{
		"content-type": {"application/json"},
		"User-Agent":   {userAgent},
	}
	t.recorded = []outbox.Header{
		{Name: "content-type", Value: "application/json"},
		{Name: "user-agent", Value: userAgent},
	}
	for _, name := range slices.Sorted(maps.Keys(custom)) {
		if slices.Contains(t.signed, name) {
			continue
		}
		t.header[name] = []string{custom[name]}
		shown := custom[name]
		if SecretHeader(name) {
			shown = "[secret]"
		}
		t.recorded = append(t.recorded, outbox.Header{Name: strings.ToLower(name), Value: shown})
	}
	for _, name := range slices.Sorted(maps.Keys(secret)) {
		if slices.Contains(t.signed, name) {
			continue
		}
		t.header[name] = []string{secret[name]}
		t.recorded = append(t.recorded, outbox.Header{Name: strings.ToLower(name), Value: "[secret]"})
	}
}

// signer returns what signs an attempt at the given time, or the verdict on a target that cannot
// be used.
func (t *Target) signer(at time.Time) (*signing.Signer, *verdict) {
	if t.unusable != nil {
		return nil, t.unusable
	}
	if live := t.live.Load(); live != nil && (live.until.IsZero() || at.Before(live.until)) {
		return live.signer, nil
	}
	signer, until, err := t.plan.Signer(at)
	if err != nil {
		return nil, new(t.verdict(configSecret))
	}
	t.live.Store(&liveSigner{signer, until})
	return signer, nil
}

// String names the target without its secrets.
func (t *Target) String() string { return fmt.Sprintf("target %s", t.host) }
