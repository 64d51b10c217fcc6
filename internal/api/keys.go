package api

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/waybill-dev/waybill/internal/access"
	"github.com/waybill-dev/waybill/internal/outbox"
)

// keyRoutes are the keys of the API itself.
func keyRoutes() []*route {
	return []*route{
		{method: "POST", path: "/v1/keys", name: "createKey", tag: "Keys", scope: ScopeAdmin, operator: true,
			summary: "Make a key", about: "The key is in this answer only. One with a tenant is for that tenant alone.",
			body: describe("KeyInput", keyFields), answers: map[int]any{201: createdKeyView{}}, refuses: []int{404}, handle: (*API).postKey},
		{method: "GET", path: "/v1/keys", name: "listKeys", tag: "Keys", scope: ScopeAdmin, operator: true,
			summary: "List keys", query: queryOf(listParams, []param{tenantParam}),
			answers: map[int]any{200: list[keyView]{}}, refuses: []int{404}, handle: (*API).listKeys},
		{method: "DELETE", path: "/v1/keys/{key}", name: "deleteKey", tag: "Keys", scope: ScopeAdmin, operator: true,
			summary: "Delete a key", about: "It is refused at once, by other servers within a second.",
			answers: map[int]any{204: nil}, refuses: []int{404}, handle: (*API).deleteKey},
	}
}

// keyView is a key in a list.
type keyView struct {
	ID         string  `json:"id"`
	Name       string  `json:"name"`
	Prefix     string  `json:"prefix" doc:"The beginning of the key, by which people tell keys apart"`
	Tenant     *string `json:"tenant" doc:"The one tenant it is for; null for an operator's key"`
	Scopes     []Scope `json:"scopes"`
	CreatedBy  string  `json:"created_by" doc:"The name of the key that made it"`
	CreatedAt  stamp   `json:"created_at"`
	ExpiresAt  *stamp  `json:"expires_at" doc:"null: never"`
	LastUsedAt *stamp  `json:"last_used_at" doc:"To within five minutes; null: never"`
	Expired    bool    `json:"expired"`
}

// createdKeyView is the answer to a new key, and the only one that shows it.
type createdKeyView struct {
	keyView
	Key string `json:"key" doc:"It is not shown again"`
}

func viewKey(q *request, k *outbox.Key) keyView {
	return keyView{
		ID: k.ID.String(), Name: k.Name, Prefix: k.Prefix, Tenant: orNull(k.TenantKey), Scopes: k.Scopes,
		CreatedBy: k.CreatedBy, CreatedAt: stamp(k.CreatedAt), ExpiresAt: stampOf(k.ExpiresAt), LastUsedAt: stampOf(k.LastUsedAt),
		Expired: !k.ExpiresAt.IsZero() && !q.now.Before(k.ExpiresAt),
	}
}

// keyFields is POST /v1/keys.
var keyFields = []field[outbox.Key]{
	{
		name: "name", about: "For people, and for the record of who did what.", required: true, schema: &huma.Schema{Type: huma.TypeString, MinLength: new(1), MaxLength: new(maxName)},
		set: func(k *outbox.Key, v value) {
			if setText(&k.Name, v, maxName); string(v.raw) == `""` {
				v.invalid("must not be empty")
			}
		},
	},
	{
		name: "scopes", about: "admin: everything. read; write: endpoints and replays; publish; listen.", required: true,
		schema: &huma.Schema{Type: huma.TypeArray, Items: wordsSchema("admin", "read", "write", "publish", "listen"), MinItems: new(1), MaxItems: new(10)},
		set: func(k *outbox.Key, v value) {
			ok := v.list(10, func(v value) {
				word, ok := v.oneOf("admin", "read", "write", "publish", "listen")
				if ok && !slices.Contains(k.Scopes, Scope(word)) {
					k.Scopes = append(k.Scopes, Scope(word))
				}
			})
			if ok && strings.Trim(string(v.raw), "[] \t\r\n") == "" {
				v.invalid("want one scope at least")
			}
		},
	},
	{
		name: "tenant", about: "The one tenant it is for; without it, it is an operator's key.", schema: textSchema(64),
		set:   func(k *outbox.Key, v value) { setText(&k.TenantKey, v, 64) },
		reset: func(k *outbox.Key) { k.TenantKey = "" },
	},
	{
		name: "expires_at", about: "RFC 3339; null: never.", schema: &huma.Schema{Type: huma.TypeString, Format: "date-time"},
		set: func(k *outbox.Key, v value) {
			if t, ok := v.moment(); ok {
				k.ExpiresAt = t
			}
		},
		reset: func(k *outbox.Key) { k.ExpiresAt = time.Time{} },
	},
}

func (a *API) postKey(q *request) (*answer, error) {
	raw, err := q.object()
	if err != nil {
		return nil, err
	}
	k := outbox.Key{ID: outbox.NewKeyID(q.now), CreatedBy: q.who.Name, CreatedAt: q.now}
	if err := fillBody(q, raw, keyFields, &k); err != nil {
		return nil, err
	}
	if !k.ExpiresAt.IsZero() && !k.ExpiresAt.After(q.now) {
		return nil, failField("expires_at", CodeInvalidField, "lies in the past")
	}
	if k.TenantKey != "" {
		t, err := a.findTenant(q, k.TenantKey, false)
		if err != nil {
			return nil, err
		}
		k.Tenant = t.TenantRef
	}
	secret, shown := access.NewKey()
	k.Prefix = shown
	q.author.Entry.Tenant, q.author.Entry.TenantKey = k.Tenant, k.TenantKey
	q.records("key.create", k.ID.String(), outbox.Changes{"name": {To: k.Name}, "prefix": {To: k.Prefix}, "scopes": {To: k.Scopes}, "expires_at": {To: stampOf(k.ExpiresAt)}})
	if err := q.store.CreateKey(q.Context(), k, access.DigestOf(secret)); err != nil {
		return nil, err
	}
	return &answer{status: http.StatusCreated, body: createdKeyView{keyView: viewKey(q, &k), Key: secret}}, nil
}

func (a *API) listKeys(q *request) (*answer, error) {
	p := q.params()
	tenant := p.text("tenant", 64)
	page, after := p.page()
	if err := p.err(); err != nil {
		return nil, err
	}
	query := outbox.KeyQuery{After: outbox.KeyID(after)}
	if tenant != "" {
		t, err := a.findTenant(q, tenant, false)
		if err != nil {
			return nil, err
		}
		query.Tenant = t.TenantRef
	}
	rows, err := a.cfg.Store.Keys(q.Context(), query, oneMore(page))
	return listed(p, page, rows, err, func(k *outbox.Key) (position, keyView) { return position(k.ID), viewKey(q, k) })
}

func (a *API) deleteKey(q *request) (*answer, error) {
	id, err := outbox.ParseKeyID(q.PathValue("key"))
	if err != nil {
		return nil, outbox.ErrNotFound
	}
	if err := q.store.DeleteKey(q.Context(), id, q.now); err != nil {
		return nil, err
	}
	if a.cfg.Keys != nil {
		a.cfg.Keys.Forget()
	}
	return noContent()
}
