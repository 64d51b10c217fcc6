package api

import (
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/waybill-dev/waybill/internal/outbox"
	"github.com/waybill-dev/waybill/internal/signing"
)

// probed is the answer to a probe.
type probed struct {
	EndpointID string `json:"endpoint_id"`
	Pending    int    `json:"pending" doc:"Deliveries that wait; with none there is nothing to try"`
	Capped     bool   `json:"pending_capped,omitempty" doc:"There are more than counted"`
}

// probeEndpoint asks the owner of the endpoint's shard, whichever node that is, to try the oldest
// waiting delivery now.
func (a *API) probeEndpoint(q *request) (*answer, error) {
	ref, err := endpointRef(q.PathValue("ep"))
	if err != nil {
		return nil, err
	}
	if _, err := q.empty(); err != nil {
		return nil, err
	}
	// Read first: a failure after the probe was asked for would make the caller ask again.
	e, err := a.cfg.Store.Endpoint(q.Context(), q.tenant.TenantRef, ref)
	if err != nil {
		return nil, err
	}
	dispatch, err := a.cfg.Store.Dispatch(q.Context())
	if err != nil {
		return nil, err
	}
	n, _, err := a.cfg.Store.PendingOf(q.Context(), q.tenant.TenantRef, e.ID, maxCounted+1)
	if err != nil {
		return nil, err
	}
	if _, err := q.store.EditEndpoint(q.Context(), q.tenant.TenantRef, ref, q.now, func(e *outbox.Endpoint) ([]outbox.Command, error) {
		switch {
		case e.State != outbox.EndpointActive:
			return nil, fail(CodeEndpointInactive, "the endpoint is %s", e.State)
		case q.tenant.State != outbox.TenantActive:
			return nil, fail(CodeEndpointInactive, "the tenant is %s", q.tenant.State)
		case dispatch.Paused:
			return nil, fail(CodeEndpointInactive, "sending is stopped on all nodes")
		}
		return []outbox.Command{{Name: outbox.CommandProbe}}, nil
	}); err != nil {
		return nil, err
	}
	a.cfg.Wake(q.tenant.Shard)
	return accepted(probed{EndpointID: e.ID.String(), Pending: min(n, maxCounted), Capped: n > maxCounted})
}

// rotation is what a rotation asks for.
type rotation struct {
	overlap time.Duration
	scheme  string // "": the endpoint's first
	secret  string
	at      value // where the secret stands
}

const (
	standardOverlap = 24 * time.Hour
	maxOverlap      = 30 * 24 * time.Hour
)

var rotationFields = []field[rotation]{
	{
		name: "overlap_seconds", about: "How long the secrets before it go on signing beside it; 0: they end at once.",
		schema: rangeSchema(huma.TypeNumber, 0, maxOverlap.Seconds(), standardOverlap.Seconds()),
		set:    func(r *rotation, v value) { setSeconds(&r.overlap, v, 0, maxOverlap.Seconds()) },
		reset:  func(r *rotation) { r.overlap = standardOverlap },
	},
	{
		name: "scheme", about: "Whose secret; null: that of the endpoint's first scheme.", schema: textSchema(64),
		set:   func(r *rotation, v value) { setText(&r.scheme, v, 64) },
		reset: func(r *rotation) { r.scheme = "" },
	},
	{
		name: "secret", about: "As its scheme has it; for standard whsec_ and base64 of 24 to 64 bytes, or that base64 alone. null: one is made.",
		schema: &huma.Schema{Type: huma.TypeString, WriteOnly: true},
		set: func(r *rotation, v value) {
			if s, ok := v.text(2000); ok {
				r.secret, r.at = s, v
			}
		},
		reset: func(r *rotation) { r.secret = "" },
	},
}

// rotated is the answer to a rotation, and the only one that shows the new secret.
type rotated struct {
	Scheme            string  `json:"scheme"`
	Secret            string  `json:"secret" doc:"It is not shown again"`
	PublicKey         *string `json:"public_key,omitempty" doc:"Of a key pair"`
	PreviousExpiresAt *stamp  `json:"previous_expires_at" doc:"When the last of the secrets before it ends; null where there was none"`
}

// rotateSecret gives the endpoint a new secret. Until the overlap ends every delivery is signed
// with the new and the old ones, so that the receiver can change over whenever it suits.
func (a *API) rotateSecret(q *request) (*answer, error) {
	ref, err := endpointRef(q.PathValue("ep"))
	if err != nil {
		return nil, err
	}
	asked := rotation{overlap: standardOverlap}
	if len(q.body) > 0 {
		raw, err := q.object()
		if err != nil {
			return nil, err
		}
		if err := fillBody(q, raw, rotationFields, &asked); err != nil {
			return nil, err
		}
	}
	book, err := a.bookOf(q)
	if err != nil {
		return nil, err
	}
	var previous time.Time
	var next outbox.Secret
	if _, err := q.store.EditEndpoint(q.Context(), q.tenant.TenantRef, ref, q.now, func(e *outbox.Endpoint) ([]outbox.Command, error) {
		before := *e
		var err error
		if next, err = asked.of(e, book); err != nil {
			return nil, err
		}
		e.Secrets, previous, err = rotateSecrets(e.Secrets, next, asked.overlap, q.now)
		q.records("endpoint.rotate_secret", e.ID.String(), outbox.EndpointChanges(&before, e))
		return nil, err
	}); err != nil {
		return nil, err
	}
	return ok(rotated{Scheme: schemeOf(&next), Secret: next.Value, PublicKey: publicKeyOf(&next), PreviousExpiresAt: stampOf(previous)})
}

// of is the secret that an endpoint gets.
func (r *rotation) of(e *outbox.Endpoint, book signing.Book) (outbox.Secret, error) {
	scheme := r.scheme
	switch {
	case scheme == "v1a":
		scheme = outbox.SchemeEd25519
	case scheme == "" && len(e.Schemes) > 0:
		scheme = e.Schemes[0]
	case scheme == "":
		scheme = outbox.SchemeStandard
	}
	named := signing.Named{Name: scheme, Scheme: book[scheme]}
	if _, known := book[scheme]; !known && !signing.BuiltIn(scheme) {
		return outbox.Secret{}, failField("scheme", CodeInvalidField, "there is no such scheme")
	}
	text := r.secret
	if text == "" {
		text = named.GenerateSecret()
	}
	var items []Item
	secret, ok := checkSecret(book, scheme, text, value{path: "secret", items: &items})
	if !ok {
		return outbox.Secret{}, failItems(items)
	}
	if r.scheme != "" && schemeOf(&secret) != scheme {
		return outbox.Secret{}, failField("secret", CodeInvalidSecret, "is a secret of the scheme %s", schemeOf(&secret))
	}
	return secret, nil
}

// rotateSecrets puts a secret before the others, of which those of its scheme end after the
// overlap unless they do so earlier anyway, and tells when the last of them ends (zero: there is
// none). Rotating to the newest one again changes nothing, so a repeated request does no harm.
func rotateSecrets(old []outbox.Secret, secret outbox.Secret, overlap time.Duration, now time.Time) ([]outbox.Secret, time.Time, error) {
	secret.CreatedAt = now
	next := []outbox.Secret{secret}
	end := now.Add(overlap)
	var previous time.Time
	same := 1
	var first time.Time // of the same scheme to end
	for _, s := range old {
		switch {
		case !s.Live(now):
			continue
		case s.Scheme != secret.Scheme:
			next = append(next, s)
			continue
		case s.Value == secret.Value:
			next[0].CreatedAt = s.CreatedAt
			continue
		case s.ExpiresAt.IsZero() || s.ExpiresAt.After(end):
			s.ExpiresAt = end
		}
		if s.ExpiresAt.After(previous) {
			previous = s.ExpiresAt
		}
		if s.Live(now) {
			next = append(next, s)
			same++
			if first.IsZero() || s.ExpiresAt.Before(first) {
				first = s.ExpiresAt
			}
		}
	}
	if same > maxSecrets {
		return nil, previous, fail(CodeSecretLimit, "the endpoint has %d live secrets; the first of them ends at %s", maxSecrets, first.UTC().Format(stampLayout))
	}
	return next, previous, nil
}
