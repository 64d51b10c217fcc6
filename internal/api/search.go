package api

import (
	"encoding/hex"
	"errors"
	"strings"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// foundView is one thing that a search found.
type foundView struct {
	Type   string `json:"type" enum:"tenant,endpoint,event,delivery,attempt,replay,cancellation,erasure,source,key,session"`
	ID     string `json:"id" doc:"Of a tenant its key, of a source its name"`
	Tenant string `json:"tenant"`
	Title  string `json:"title" doc:"What people know it by: a name, a URL, an event type"`
	By     string `json:"by" enum:"id,key,name,endpoint,idempotency_key,metadata" doc:"What matched"`
}

// searchView is what a search found, the surest first.
type searchView struct {
	Data []foundView `json:"data" doc:"At most 50"`
	More bool        `json:"more" doc:"There may be others"`
}

// maxFound is how many of each kind a search shows.
const maxFound = 20

// search finds things by whatever somebody has at hand.
func (a *API) search(q *request) (*answer, error) {
	p := q.params()
	text := strings.TrimSpace(p.text("q", outbox.MaxURL))
	t, err := a.tenantParam(q, p)
	if err != nil {
		return nil, err
	}
	if err := p.err(); err != nil {
		return nil, err
	}
	s := searching{a: a, q: q, text: text}
	if t != nil {
		s.tenant = *t
	}
	looks := []func() error{s.ids, s.jobs, s.sources, s.holders, s.tenants, s.endpoints, s.keys, s.metadata}
	if text == "" {
		looks = []func() error{s.tenants} // the newest: somewhere to begin
	}
	for _, look := range looks {
		if err := look(); err != nil && !errors.Is(err, outbox.ErrNotFound) {
			return nil, err
		}
	}
	return ok(searchView{Data: s.found(), More: s.more})
}

// searching is one search on its way.
type searching struct {
	a      *API
	q      *request
	text   string
	tenant outbox.Tenant // zero: all
	rows   []foundView
	more   bool
}

func (s *searching) found() []foundView {
	seen := map[[3]string]bool{}
	rows := []foundView{}
	for _, row := range s.rows {
		if key := [3]string{row.Type, row.ID, row.Tenant}; !seen[key] {
			seen[key] = true
			rows = append(rows, row)
		}
	}
	if len(rows) > 50 {
		rows, s.more = rows[:50], true
	}
	return rows
}

func (s *searching) add(row foundView) { s.rows = append(s.rows, row) }

// ids looks for what is named by a typed id, or by the UUID behind one, as it stands in the
// database and in logs.
func (s *searching) ids() error {
	store, ctx, tenant := s.a.cfg.Store, s.q.Context(), s.tenant.TenantRef
	text := strings.ToLower(s.text)
	bare, isUUID := parseUUID(text)
	event, eventErr := outbox.ParseEventID(text)
	if isUUID {
		event, eventErr = outbox.EventID(bare), nil
	}
	if eventErr == nil {
		// Tenants may choose the same id: none of them hides the other.
		list, err := store.EventsByID(ctx, event)
		if err != nil {
			return err
		}
		for i := range list {
			if e := &list[i]; tenant.ID == 0 || e.Tenant.ID == tenant.ID {
				s.add(foundView{Type: "event", ID: e.ID.String(), Tenant: e.TenantKey, Title: e.Type, By: "id"})
			}
		}
	}
	endpoint, endpointErr := outbox.ParseEndpointID(text)
	if isUUID {
		endpoint, endpointErr = outbox.EndpointID(bare), nil
	}
	if endpointErr == nil {
		e, err := store.Endpoint(ctx, tenant, outbox.EndpointRef{ID: endpoint})
		if err == nil {
			err = s.addEndpoint(&e, "id")
		}
		if err != nil && !errors.Is(err, outbox.ErrNotFound) {
			return err
		}
	}
	delivery, deliveryErr := outbox.ParseDeliveryID(text)
	if isUUID {
		delivery, deliveryErr = outbox.DeliveryID(bare), nil
	}
	if deliveryErr == nil {
		d, err := store.Delivery(ctx, tenant, delivery)
		if err == nil {
			s.add(foundView{Type: "delivery", ID: d.ID.String(), Tenant: d.TenantKey, Title: d.EventType + " to " + d.EndpointURL, By: "id"})
		} else if !errors.Is(err, outbox.ErrNotFound) {
			return err
		}
	}
	attempt, attemptErr := outbox.ParseAttemptID(text)
	if isUUID {
		attempt, attemptErr = outbox.AttemptID(bare), nil
	}
	if attemptErr == nil {
		at, err := store.Attempt(ctx, tenant, attempt)
		if err != nil {
			return err
		}
		s.add(foundView{Type: "attempt", ID: at.ID.String(), Tenant: at.TenantKey, Title: at.EventType + " to " + at.URL, By: "id"})
		s.add(foundView{Type: "delivery", ID: at.Delivery.String(), Tenant: at.TenantKey, Title: at.EventType + " to " + at.URL, By: "id"})
	}
	return nil
}

// parseUUID reads a UUID as PostgreSQL writes it.
func parseUUID(text string) (id [16]byte, ok bool) {
	plain := strings.ReplaceAll(text, "-", "")
	if len(plain) != 32 || strings.Count(text, "-") != 4 {
		return id, false
	}
	_, err := hex.Decode(id[:], []byte(plain))
	return id, err == nil
}

func (s *searching) tenants() error {
	if s.tenant.ID != 0 {
		return nil
	}
	store, ctx := s.a.cfg.Store, s.q.Context()
	t, err := store.Tenant(ctx, s.text)
	if err == nil {
		s.add(foundView{Type: "tenant", ID: t.Key, Tenant: t.Key, Title: t.Name, By: "key"})
	} else if !errors.Is(err, outbox.ErrNotFound) {
		return err
	}
	rows, err := store.Tenants(ctx, outbox.TenantQuery{Search: s.text}, outbox.Page{Limit: maxFound})
	for i := range rows {
		s.add(foundView{Type: "tenant", ID: rows[i].Key, Tenant: rows[i].Key, Title: rows[i].Name, By: "name"})
	}
	s.more = s.more || len(rows) == maxFound
	return err
}

// endpoints looks for endpoints by uid, host, path, description and metadata.
func (s *searching) endpoints() error {
	rows, err := s.a.cfg.Store.FindEndpoints(s.q.Context(), s.tenant.TenantRef, s.text, maxFound)
	if err != nil {
		return err
	}
	s.more = s.more || len(rows) == maxFound
	for i := range rows {
		if err := s.addEndpoint(&rows[i], "endpoint"); err != nil {
			return err
		}
	}
	return nil
}

func (s *searching) addEndpoint(e *outbox.Endpoint, by string) error {
	owner, err := s.a.tenants.getByID(s.q.Context(), e.Tenant.ID)
	if err != nil {
		return err
	}
	s.add(foundView{Type: "endpoint", ID: e.ID.String(), Tenant: owner.Key, Title: e.URL, By: by})
	return nil
}

// keys looks for the event that an idempotency key of the tenant stands for.
func (s *searching) keys() error {
	if s.tenant.ID == 0 || len(s.text) > outbox.MaxIdempotencyKey {
		return nil
	}
	id, err := s.a.cfg.Store.EventOfKey(s.q.Context(), s.tenant.TenantRef, s.text)
	if err != nil {
		return err
	}
	return s.addEvent(id, "idempotency_key")
}

func (s *searching) addEvent(id outbox.EventID, by string) error {
	e, err := s.a.cfg.Store.Event(s.q.Context(), s.tenant.TenantRef, id)
	if err != nil {
		return err
	}
	s.add(foundView{Type: "event", ID: e.ID.String(), Tenant: e.TenantKey, Title: e.Type, By: by})
	return nil
}

// metadata looks for the tenant's newest events with this value.
func (s *searching) metadata() error {
	if s.tenant.ID == 0 {
		return nil
	}
	ids, err := s.a.cfg.Store.EventsWithMetadata(s.q.Context(), s.tenant.TenantRef, s.text, maxFound)
	if err != nil {
		return err
	}
	s.more = s.more || len(ids) == maxFound
	for _, id := range ids {
		if err := s.addEvent(id, "metadata"); err != nil && !errors.Is(err, outbox.ErrNotFound) {
			return err
		}
	}
	return nil
}
