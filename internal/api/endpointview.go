package api

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"

	"github.com/waybill-dev/waybill/internal/attempt"
	"github.com/waybill-dev/waybill/internal/outbox"
)

// endpointView is an endpoint in an answer. It has no place for a secret's value.
type endpointView struct {
	ID             string               `json:"id"`
	Tenant         string               `json:"tenant"`
	UID            *string              `json:"uid"`
	URL            string               `json:"url" doc:"As it is dialled"`
	Description    string               `json:"description"`
	Metadata       map[string]string    `json:"metadata"`
	EventTypes     []string             `json:"event_types"`
	Headers        map[string]string    `json:"headers"`
	SecretHeaders  []string             `json:"secret_headers" doc:"Their names"`
	Certificate    *certificateView     `json:"client_certificate"`
	Filter         json.RawMessage      `json:"filter" doc:"As it was set; null: none"`
	Secrets        []secretView         `json:"secrets" doc:"Without their values, which are shown once"`
	Signing        signingView          `json:"signing"`
	MaxInFlight    *int                 `json:"max_in_flight" doc:"null: the tenant's"`
	RateLimit      *rateLimitView       `json:"rate_limit" doc:"At most count requests within any span of per_seconds; null: none"`
	TimeoutSeconds float64              `json:"timeout_seconds"`
	Ordering       outbox.Ordering      `json:"ordering"`
	OnDead         outbox.OnDead        `json:"on_dead"`
	PayloadMode    outbox.PayloadMode   `json:"payload_mode"`
	ThinTTLSeconds float64              `json:"thin_ttl_seconds"`
	State          outbox.EndpointState `json:"state"`
	StateReason    *stateReasonView     `json:"state_reason"`
	Retry          retryView            `json:"retry" doc:"As it is in effect: the endpoint's values, else the tenant's, else the instance's"`
	Fault          *string              `json:"fault" doc:"What makes the stored endpoint unusable"`
	CreatedAt      stamp                `json:"created_at"`
	UpdatedAt      stamp                `json:"updated_at"`
	Health         healthView           `json:"health"`
}

// createdEndpointView is the one answer that shows a secret.
type createdEndpointView struct {
	endpointView
	Secret string `json:"secret" doc:"The newest secret of the first scheme; it is not shown again"`
}

type secretView struct {
	Fingerprint string  `json:"fingerprint" doc:"8 hex digits that tell secrets apart and nothing else: without the instance's encryption key no guess can be held against them. They change with that key"`
	Scheme      string  `json:"scheme"`
	Value       *string `json:"value,omitempty" doc:"Only in the answer that creates the endpoint"`
	PublicKey   *string `json:"public_key,omitempty" doc:"Of a key pair"`
	CreatedAt   stamp   `json:"created_at"`
	ExpiresAt   *stamp  `json:"expires_at"`
}

type certificateView struct {
	Subject  string `json:"subject"`
	NotAfter stamp  `json:"not_after"`
}

type signingView struct {
	Schemes []string `json:"schemes"`
}

type stateReasonView struct {
	Code    string `json:"code" doc:"manual, gone, failing"`
	Message string `json:"message"`
	At      stamp  `json:"at"`
	By      string `json:"by"`
}

type rateLimitView struct {
	Count      int     `json:"count"`
	PerSeconds float64 `json:"per_seconds"`
}

// viewEndpoint shows an endpoint of the tenant.
func (a *API) viewEndpoint(e *outbox.Endpoint, t *outbox.Tenant, health healthView) endpointView {
	view := endpointView{
		ID:             e.ID.String(),
		Tenant:         t.Key,
		UID:            orNull(e.UID),
		URL:            e.URL,
		Description:    e.Description,
		Metadata:       orEmpty(e.Metadata),
		EventTypes:     e.EventTypes,
		Headers:        orEmpty(e.Headers),
		Secrets:        []secretView{},
		Signing:        signingView{Schemes: e.Schemes},
		SecretHeaders:  slices.Sorted(maps.Keys(e.Credentials.Headers)),
		MaxInFlight:    orNull(e.MaxInFlight),
		TimeoutSeconds: e.Timeout.Seconds(),
		Ordering:       e.Ordering,
		OnDead:         e.OnDead,
		PayloadMode:    e.PayloadMode,
		ThinTTLSeconds: cmp.Or(e.ThinTTL, outbox.DefaultThinTTL).Seconds(),
		State:          e.State,
		Retry:          viewRetry(e.Retry.Over(t.Retry).Over(a.cfg.Retry)),
		Fault:          orNull(e.Fault),
		CreatedAt:      stamp(e.CreatedAt),
		UpdatedAt:      stamp(e.UpdatedAt),
		Health:         health,
	}
	if r := e.RateLimit; r != nil {
		view.RateLimit = &rateLimitView{Count: r.Count, PerSeconds: r.Per.Seconds()}
	}
	for i := range e.Secrets {
		s := &e.Secrets[i]
		view.Secrets = append(view.Secrets, secretView{Fingerprint: a.fingerprint(s), Scheme: schemeOf(s), PublicKey: publicKeyOf(s), CreatedAt: stamp(s.CreatedAt), ExpiresAt: stampOf(s.ExpiresAt)})
	}
	if e.Filter != "" {
		view.Filter = json.RawMessage(e.Filter)
	}
	if view.SecretHeaders == nil {
		view.SecretHeaders = []string{}
	}
	if view.Signing.Schemes == nil {
		view.Signing.Schemes = []string{}
	}
	if cert, err := attempt.CertificateOf(e.Credentials.Certificate); err == nil {
		view.Certificate = &certificateView{Subject: cert.Subject.String(), NotAfter: stamp(cert.NotAfter)}
	}
	if r := e.StateReason; r != nil {
		view.StateReason = &stateReasonView{Code: r.Code, Message: r.Message, At: stamp(r.At), By: r.By}
	}
	return view
}

// fingerprint tells a secret from others. It is keyed: secrets that people brought along from
// elsewhere may be words, and a plain digest of one would tell a guess from a miss to whoever reads
// a list.
func (a *API) fingerprint(s *outbox.Secret) string {
	mac := hmac.New(sha256.New, a.cfg.FingerprintKey)
	mac.Write([]byte(s.Value))
	return hex.EncodeToString(mac.Sum(nil)[:4])
}
