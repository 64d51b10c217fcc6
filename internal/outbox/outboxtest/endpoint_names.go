package outboxtest

import (
	"errors"

	"github.com/waybill-dev/waybill/internal/outbox"
)

var endpointNames = topic{"names of endpoints", []promise{
	{"an endpoint is put and found by uid and by id", endpointByName},
	{"a uid is unique among the tenant's living endpoints", uidIsUnique},
	{"an unknown or foreign endpoint is not found", foreignEndpoint},
}}

func endpointByName(w *world) {
	acme := w.tenant("acme")
	made := 0
	put := func(ref outbox.EndpointRef, description string, wantNew bool) outbox.Endpoint {
		w.Helper()
		e, created, err := w.store.PutEndpoint(w.ctx, acme.TenantRef, ref, w.now, func(e *outbox.Endpoint, exists bool) error {
			if exists == wantNew {
				w.Errorf("exists is %v", exists)
			}
			if !exists {
				w.equal("a new endpoint before the edit", *e, outbox.Endpoint{ID: e.ID, Tenant: acme.TenantRef, Siblings: made})
				made++
				e.URL, e.EventTypes, e.State, e.Timeout = "https://a.example/", []string{"*"}, outbox.EndpointActive, outbox.DefaultTimeout
			}
			e.UID, e.Description = ref.UID, description
			return nil
		})
		w.must(err)
		if created != wantNew {
			w.Errorf("created is %v", created)
		}
		return e
	}
	main := put(outbox.EndpointRef{UID: "main"}, "one", true)
	same := put(outbox.EndpointRef{UID: "main"}, "two", false)
	if same.ID != main.ID || same.Description != "two" {
		w.Errorf("put again: %+v", same)
	}
	other := put(outbox.EndpointRef{UID: "Main"}, "another name", true)
	if other.ID == main.ID {
		w.Error("uids are compared without case")
	}
	byID := put(outbox.EndpointRef{ID: main.ID}, "renamed to nothing", false)
	if byID.ID != main.ID || byID.UID != "" {
		w.Errorf("put by id: %+v", byID)
	}
	if n := put(outbox.EndpointRef{}, "nameless", true); n.ID == main.ID {
		w.Error("a nameless put met an endpoint without a uid")
	}
	for _, ref := range []outbox.EndpointRef{{ID: other.ID}, {UID: "Main"}} {
		got, err := w.store.Endpoint(w.ctx, acme.TenantRef, ref)
		w.must(err)
		w.equal("found", got, other)
	}
	w.equal("living endpoints", w.countEndpoints(acme.TenantRef), 3)
}

func uidIsUnique(w *world) {
	acme, globex := w.neighbours("acme")
	uid := func(e *outbox.Endpoint) { e.UID = "main" }
	first := w.endpointWith(acme, uid)
	w.endpointWith(globex, uid) // another tenant may
	nameless := w.endpoint(acme, "*")
	w.endpoint(acme, "*") // two without a name may, too

	_, _, err := w.store.PutEndpoint(w.ctx, acme.TenantRef, outbox.EndpointRef{}, w.now, func(e *outbox.Endpoint, _ bool) error {
		e.URL, e.EventTypes, e.State, e.Timeout, e.UID = "https://a.example/", []string{"*"}, outbox.EndpointActive, outbox.DefaultTimeout, "main"
		return nil
	})
	if !errors.Is(err, outbox.ErrConflict) {
		w.Errorf("a second one: %v, want a conflict", err)
	}
	_, err = w.store.EditEndpoint(w.ctx, acme.TenantRef, outbox.EndpointRef{ID: nameless.ID}, w.now, func(e *outbox.Endpoint) ([]outbox.Command, error) {
		e.UID = "main"
		return []outbox.Command{{Name: outbox.CommandCancelEndpoint}}, nil
	})
	if !errors.Is(err, outbox.ErrConflict) {
		w.Errorf("renaming to it: %v, want a conflict", err)
	}
	w.waiting(0)
	got, err := w.store.Endpoint(w.ctx, acme.TenantRef, outbox.EndpointRef{ID: nameless.ID})
	w.must(err)
	w.equal("after a refused rename", got, nameless)

	_, err = w.store.DeleteEndpoint(w.ctx, acme.TenantRef, outbox.EndpointRef{UID: "main"}, w.now, 10)
	w.must(err)
	second := w.endpointWith(acme, uid)
	got, err = w.store.Endpoint(w.ctx, acme.TenantRef, outbox.EndpointRef{UID: "main"})
	w.must(err)
	if second.ID == first.ID || got.ID != second.ID {
		w.Errorf("the name leads to %s, want the new %s", got.ID, second.ID)
	}
}

func foreignEndpoint(w *world) {
	acme, globex := w.neighbours("acme")
	mine := w.endpointWith(acme, func(e *outbox.Endpoint) { e.UID = "mine" })
	refs := map[string]outbox.EndpointRef{
		"foreign id":  {ID: mine.ID},
		"foreign uid": {UID: "mine"},
		"unknown id":  {ID: outbox.NewEndpointID(w.now)},
		"unknown uid": {UID: "Mine"},
	}
	for what, ref := range refs {
		_, readErr := w.store.Endpoint(w.ctx, globex.TenantRef, ref)
		_, editErr := w.store.EditEndpoint(w.ctx, globex.TenantRef, ref, w.now, func(*outbox.Endpoint) ([]outbox.Command, error) {
			w.Errorf("%s: edit was called", what)
			return nil, nil
		})
		_, deleteErr := w.store.DeleteEndpoint(w.ctx, globex.TenantRef, ref, w.now, 10)
		for how, err := range map[string]error{"read": readErr, "edit": editErr, "delete": deleteErr} {
			if !errors.Is(err, outbox.ErrNotFound) {
				w.Errorf("%s of a %s: %v, want not found", how, what, err)
			}
		}
	}
	for _, what := range []string{"foreign id", "unknown id"} {
		_, _, err := w.store.PutEndpoint(w.ctx, globex.TenantRef, refs[what], w.now, func(*outbox.Endpoint, bool) error {
			w.Errorf("%s: edit was called", what)
			return nil
		})
		if !errors.Is(err, outbox.ErrNotFound) {
			w.Errorf("put of a %s: %v, want not found", what, err)
		}
	}
	for _, ref := range []outbox.EndpointRef{{ID: mine.ID}, {UID: "mine"}} {
		got, err := w.store.Endpoint(w.ctx, acme.TenantRef, ref)
		w.must(err)
		w.equal("the owner's endpoint", got, mine)
	}
	got, err := w.store.Endpoint(w.ctx, outbox.TenantRef{}, outbox.EndpointRef{ID: mine.ID})
	w.must(err)
	w.equal("the operator's look", got, mine)
}
