package outboxtest

import (
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

var concurrentEdits = topic{"concurrent edits", []promise{
	{"edits of one tenant lose nothing", concurrentTenantEdits},
	{"edits of one endpoint lose nothing", concurrentEndpointEdits},
	{"of many puts of one key one creates", concurrentPutTenant},
	{"of many puts of one uid one creates", concurrentPutEndpoint},
	{"a number that edits hold a tenant to is never passed", concurrentLimit},
}}

const (
	editors         = 4
	editsOfOne      = 10
	editorsPatience = 30 * time.Second
)

// again repeats a configuration write that the database put off.
func again(write func() error) error {
	for deadline := time.Now().Add(editorsPatience); ; {
		err := write()
		if fault := outbox.FaultOf(err); err == nil || fault != outbox.FaultRetry && fault != outbox.FaultLocked || time.Now().After(deadline) {
			return err
		}
	}
}

// crowd runs work in editors goroutines, each with its number.
func (w *world) crowd(work func(editor int) error) {
	w.Helper()
	var group sync.WaitGroup
	errs := make([]error, editors)
	for i := range editors {
		group.Go(func() { errs[i] = work(i) })
	}
	group.Wait()
	w.must(errors.Join(errs...))
}

// count adds one to a number kept as text, which no database adds up by itself.
func count(metadata map[string]string) map[string]string {
	n, _ := strconv.Atoi(metadata["n"])
	return map[string]string{"n": strconv.Itoa(n + 1)}
}

func concurrentTenantEdits(w *world) {
	w.tenant("acme")
	w.crowd(func(editor int) error {
		for range editsOfOne {
			if err := again(func() error {
				edit := func(t *outbox.Tenant) error { t.Metadata = count(t.Metadata); return nil }
				if editor%2 == 0 {
					_, err := w.store.EditTenant(w.ctx, "acme", w.now, edit)
					return err
				}
				_, _, err := w.store.PutTenant(w.ctx, "acme", w.now, func(t *outbox.Tenant, _ bool) error { return edit(t) })
				return err
			}); err != nil {
				return err
			}
		}
		return nil
	})
	got, err := w.store.Tenant(w.ctx, "acme")
	w.must(err)
	w.equal("edits", got.Metadata["n"], strconv.Itoa(editors*editsOfOne))
}

func concurrentEndpointEdits(w *world) {
	acme := w.tenant("acme")
	e := w.endpointWith(acme, func(e *outbox.Endpoint) { e.UID = "main" })
	w.crowd(func(editor int) error {
		for range editsOfOne {
			if err := again(func() error {
				edit := func(e *outbox.Endpoint) ([]outbox.Command, error) {
					e.Metadata = count(e.Metadata)
					return []outbox.Command{{Name: outbox.CommandCancelEndpoint, Reason: e.Metadata["n"]}}, nil
				}
				if editor%2 == 0 {
					_, err := w.store.EditEndpoint(w.ctx, acme.TenantRef, outbox.EndpointRef{ID: e.ID}, w.now, edit)
					return err
				}
				_, err := w.store.EditEndpoint(w.ctx, acme.TenantRef, outbox.EndpointRef{UID: "main"}, w.now, edit)
				return err
			}); err != nil {
				return err
			}
		}
		return nil
	})
	got, err := w.store.Endpoint(w.ctx, acme.TenantRef, outbox.EndpointRef{ID: e.ID})
	w.must(err)
	w.equal("edits", got.Metadata["n"], strconv.Itoa(editors*editsOfOne))
	for i, row := range w.outbox() {
		w.equal("reason of the command", row.Command.Reason, strconv.Itoa(i+1))
	}
	w.waiting(editors * editsOfOne)
}

func concurrentPutTenant(w *world) {
	var created [editors][]string
	w.crowd(func(editor int) error {
		for i := range editsOfOne {
			key := fmt.Sprintf("t%d", i)
			if err := again(func() error {
				_, isNew, err := w.store.PutTenant(w.ctx, key, w.now, func(*outbox.Tenant, bool) error { return nil })
				if isNew && err == nil {
					created[editor] = append(created[editor], key)
				}
				return err
			}); err != nil {
				return err
			}
		}
		return nil
	})
	total := 0
	for _, keys := range created {
		total += len(keys)
	}
	w.equal("tenants created", total, editsOfOne)
	w.equal("tenants listed", len(w.listTenants(outbox.TenantQuery{}, 250, true)), editsOfOne)
}

func concurrentPutEndpoint(w *world) {
	acme := w.tenant("acme")
	var created [editors]int
	w.crowd(func(editor int) error {
		for i := range editsOfOne {
			uid := fmt.Sprintf("u%d", i)
			if err := again(func() error {
				_, isNew, err := w.store.PutEndpoint(w.ctx, acme.TenantRef, outbox.EndpointRef{UID: uid}, w.now, func(e *outbox.Endpoint, _ bool) error {
					e.UID, e.URL, e.EventTypes, e.State, e.Timeout = uid, "https://a.example/", []string{"*"}, outbox.EndpointActive, outbox.DefaultTimeout
					return nil
				})
				if isNew && err == nil {
					created[editor]++
				}
				return err
			}); err != nil {
				return err
			}
		}
		return nil
	})
	total := 0
	for _, n := range created {
		total += n
	}
	w.equal("endpoints created", total, editsOfOne)
	w.equal("endpoints counted", w.countEndpoints(acme.TenantRef), editsOfOne)
}

// concurrentLimit has many make endpoints at once, each refusing where the tenant has enough.
func concurrentLimit(w *world) {
	acme, other := w.tenant("acme"), w.tenant("other")
	const most = 3
	enough := errors.New("the tenant has enough")
	add := func(tenant outbox.TenantRef, uid string) (bool, error) {
		_, created, err := w.store.PutEndpoint(w.ctx, tenant, outbox.EndpointRef{UID: uid}, w.now, func(e *outbox.Endpoint, exists bool) error {
			if exists {
				return fmt.Errorf("%s exists", uid)
			}
			if e.Siblings >= most {
				return enough
			}
			e.UID, e.URL, e.EventTypes, e.State, e.Timeout = uid, "https://a.example/", []string{"*"}, outbox.EndpointActive, outbox.DefaultTimeout
			return nil
		})
		return created, err
	}
	for i := range 5 { // which do not count for acme
		if _, err := add(other.TenantRef, fmt.Sprintf("o%d", i)); i < most {
			w.must(err)
		}
	}
	var created [editors]int
	w.crowd(func(editor int) error {
		for i := range editsOfOne {
			if err := again(func() error {
				isNew, err := add(acme.TenantRef, fmt.Sprintf("u%d-%d", editor, i))
				if isNew && err == nil {
					created[editor]++
				}
				if errors.Is(err, enough) {
					return nil
				}
				return err
			}); err != nil {
				return err
			}
		}
		return nil
	})
	total := 0
	for _, n := range created {
		total += n
	}
	w.equal("endpoints created", total, most)
	w.equal("endpoints counted", w.countEndpoints(acme.TenantRef), most)
	rows, err := w.store.Endpoints(w.ctx, outbox.EndpointQuery{Tenant: acme.TenantRef}, outbox.Page{Limit: 10})
	w.must(err)
	for _, e := range rows {
		w.equal("siblings of a stored one", e.Siblings, 0)
	}
}
