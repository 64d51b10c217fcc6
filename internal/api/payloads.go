package api

import (
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/waybill-dev/waybill/internal/attempt"
	"github.com/waybill-dev/waybill/internal/outbox"
	"github.com/waybill-dev/waybill/internal/signing"
)

// erasePayload takes an event's bytes away and leaves the books.
func (a *API) erasePayload(q *request) (*answer, error) {
	id, err := q.pathEvent()
	if err != nil {
		return nil, err
	}
	if err := q.store.ErasePayload(q.Context(), q.tenant.TenantRef, id); err != nil {
		return nil, err
	}
	a.cfg.Wake(q.tenant.Shard)
	return noContent()
}

// fetchThin answers the address that a thin delivery carried. Every answer about one that was
// made here says as little as another tenant's key would hear.
func (a *API) fetchThin(q *request) (*answer, error) {
	id, err := q.pathEvent()
	if err != nil {
		return nil, err
	}
	if a.cfg.Thin == nil {
		return nil, outbox.ErrNotFound
	}
	tenant, until, made := a.cfg.Thin.Verify(id, q.URL.Query())
	if !made {
		return nil, fail(CodeLinkInvalid, "the address was not made here, or was changed")
	}
	if !q.now.Before(until) {
		return nil, fail(CodeLinkExpired, "the address answered until %s", until.UTC().Format(stampLayout))
	}
	gone := func() error {
		p := problemOf(outbox.ErrPayloadGone)
		p.Status = http.StatusGone
		return p
	}
	t, err := a.tenants.getByID(q.Context(), tenant)
	if errors.Is(err, outbox.ErrNotFound) {
		return nil, gone()
	}
	if err != nil {
		return nil, err
	}
	payload, err := a.cfg.Store.Payload(q.Context(), t.TenantRef, id)
	if errors.Is(err, outbox.ErrPayloadGone) || errors.Is(err, outbox.ErrNotFound) {
		return nil, gone()
	}
	if err != nil {
		return nil, err
	}
	return &answer{status: http.StatusOK, raw: payload, headers: http.Header{"Cache-Control": {"private, no-store"}}}, nil
}

// previewRequest is what a preview is asked for.
type previewRequest struct {
	eventType string
	payload   []byte
	metadata  map[string]string
}

var previewFields = []field[previewRequest]{
	{
		name: "type", about: "The event's.", required: true, schema: textSchema(outbox.MaxEventType),
		set: func(p *previewRequest, v value) {
			s, ok := v.text(outbox.MaxEventType)
			if ok && !outbox.ValidEventType(s) {
				v.invalid("want an event type")
			} else if ok {
				p.eventType = s
			}
		},
	},
	{
		name: "payload", about: "Any JSON value; its bytes as they stand.", required: true, schema: &huma.Schema{},
		set:   func(p *previewRequest, v value) { p.payload = v.raw },
		reset: func(p *previewRequest) { p.payload = []byte("null") },
	},
	{
		name: "metadata", about: "The event's, for schemes that sign or send some of it.", schema: textMapSchema(outbox.MaxMetadataEntries),
		set:   func(p *previewRequest, v value) { p.metadata = eventMetadata(v) },
		reset: func(p *previewRequest) { p.metadata = nil },
	},
}

// previewView is the request that a delivery would make.
type previewView struct {
	Method  string            `json:"method"`
	URL     string            `json:"url"`
	Headers map[string]string `json:"headers" doc:"Names in lower case; the values of secret headers are replaced"`
	Body    string            `json:"body_base64"`
}

// Previewer builds requests without sending them; internal/attempt's Sender.
type Previewer interface {
	Preview(p *Previewed) (attempt.Preview, error)
}

// Previewed is what a request is built of.
type Previewed struct {
	Endpoint *outbox.Endpoint
	Tenant   *outbox.Tenant
	Book     signing.Book
	Event    *outbox.Event
	N        int       // which attempt it would be
	Sequence int64     // the delivery's number at its endpoint
	At       time.Time // now
}

// preview builds and signs a request exactly as a first attempt would, and does not send it.
func (a *API) preview(q *request) (*answer, error) {
	ref, err := endpointRef(q.PathValue("ep"))
	if err != nil {
		return nil, err
	}
	raw, err := q.object()
	if err != nil {
		return nil, err
	}
	if a.cfg.Previewer == nil {
		return nil, outbox.ErrNotFound
	}
	var asked previewRequest
	if err := fillBody(q, raw, previewFields, &asked); err != nil {
		return nil, err
	}
	if len(asked.payload) > a.cfg.MaxPayload {
		return nil, fail(CodePayloadTooLarge, "the payload has %d bytes, at most %d are taken", len(asked.payload), a.cfg.MaxPayload)
	}
	e, err := a.cfg.Store.Endpoint(q.Context(), q.tenant.TenantRef, ref)
	if err != nil {
		return nil, err
	}
	book, err := a.bookOf(q)
	if err != nil {
		return nil, err
	}
	event := outbox.Event{
		ID:        outbox.NewEventID(q.now),
		Tenant:    q.tenant.TenantRef,
		Type:      asked.eventType,
		Payload:   asked.payload,
		SHA256:    sha256.Sum256(asked.payload),
		Metadata:  asked.metadata,
		CreatedAt: q.now,
	}
	return a.previewOf(&Previewed{Endpoint: &e, Tenant: &q.tenant, Book: book, Event: &event, N: 1, Sequence: 1, At: q.now})
}

func (a *API) previewOf(asked *Previewed) (*answer, error) {
	p, err := a.cfg.Previewer.Preview(asked)
	if err != nil {
		return nil, fail(CodeEndpointInactive, "%s", err)
	}
	return ok(previewView{p.Method, p.URL, headerMap(p.Headers), base64.StdEncoding.EncodeToString(p.Body)})
}

// previewOfDelivery builds the request that the delivery's next attempt would make, with a
// signature of now, and does not send it.
func (a *API) previewOfDelivery(q *request) (*answer, error) {
	id, err := q.pathDelivery()
	if err != nil {
		return nil, err
	}
	if _, err := q.empty(); err != nil {
		return nil, err
	}
	if a.cfg.Previewer == nil {
		return nil, outbox.ErrNotFound
	}
	tenant := q.tenant.TenantRef
	d, err := q.store.Delivery(q.Context(), tenant, id)
	if err != nil {
		return nil, err
	}
	e, err := q.store.Endpoint(q.Context(), tenant, outbox.EndpointRef{ID: d.Endpoint})
	if errors.Is(err, outbox.ErrNotFound) {
		return nil, outbox.ErrEndpointGone
	}
	if err != nil {
		return nil, err
	}
	view, err := q.store.Event(q.Context(), tenant, d.Event)
	if err != nil {
		return nil, err
	}
	event := view.Event
	if event.Payload, err = q.store.Payload(q.Context(), tenant, d.Event); err != nil {
		return nil, err
	}
	book, err := a.bookOf(q)
	if err != nil {
		return nil, err
	}
	return a.previewOf(&Previewed{Endpoint: &e, Tenant: &q.tenant, Book: book, Event: &event, N: d.Attempt + 1, Sequence: d.Sequence, At: q.now})
}

// publicKeysView is the document of a tenant's public keys.
type publicKeysView struct {
	Keys []publicKeyView `json:"keys"`
}

// publicKeyView is a public key as a JSON Web Key (RFC 8037), and as Standard Webhooks writes it.
type publicKeyView struct {
	Type      string `json:"kty"`
	Curve     string `json:"crv"`
	X         string `json:"x"`
	Use       string `json:"use"`
	ID        string `json:"kid" doc:"The first bytes of the key's SHA-256"`
	PublicKey string `json:"public_key" doc:"whpk_…"`
	CreatedAt stamp  `json:"created_at"`
	ExpiresAt *stamp `json:"expires_at" doc:"When it stops signing; null: it goes on"`
}

// publicKeys lists the keys that the tenant's deliveries may be signed with.
func (a *API) publicKeys(q *request) (*answer, error) {
	t, err := a.findTenant(q, q.PathValue("tenant"), false)
	if err != nil {
		return nil, err
	}
	doc := publicKeysView{Keys: []publicKeyView{}}
	query := outbox.EndpointQuery{Tenant: t.TenantRef}
	seen := map[string]bool{}
	for {
		page, err := a.cfg.Store.Endpoints(q.Context(), query, outbox.Page{Limit: 250, Ascending: true})
		if err != nil {
			return nil, err
		}
		for i := range page {
			for _, s := range page[i].Secrets {
				if s.Scheme != outbox.SchemeEd25519 || !s.Live(q.now) || !page[i].SignsWith(outbox.SchemeEd25519) {
					continue
				}
				pair, err := signing.ParsePrivateKey(s.Value)
				if err != nil || seen[pair.Public().String()] {
					continue
				}
				key := pair.Public()
				seen[key.String()] = true
				sum := sha256.Sum256(key.Bytes())
				doc.Keys = append(doc.Keys, publicKeyView{
					Type: "OKP", Curve: "Ed25519", X: base64.RawURLEncoding.EncodeToString(key.Bytes()), Use: "sig",
					ID:        base64.RawURLEncoding.EncodeToString(sum[:9]),
					PublicKey: key.String(), CreatedAt: stamp(s.CreatedAt), ExpiresAt: stampOf(s.ExpiresAt),
				})
			}
		}
		if len(page) < 250 {
			return &answer{status: http.StatusOK, body: doc, headers: http.Header{"Cache-Control": {"public, max-age=60"}}}, nil
		}
		query.After = page[len(page)-1].ID
	}
}
