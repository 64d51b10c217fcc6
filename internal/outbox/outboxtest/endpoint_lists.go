package outboxtest

import (
	"fmt"
	"slices"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

var endpointLists = topic{"lists of endpoints", []promise{
	{"lists go by creation, both ways, page by page", listEndpoints},
	{"lists filter by tenant, state and event type", filterEndpoints},
}}

// listEndpoints walks a list to its end.
func (w *world) listEndpoints(q outbox.EndpointQuery, limit int, ascending bool) []outbox.EndpointID {
	w.Helper()
	id := func(e outbox.Endpoint) outbox.EndpointID { return e.ID }
	return each(walk(w, limit, q.After, func(from outbox.EndpointID) ([]outbox.Endpoint, outbox.EndpointID, error) {
		q.After = from
		page, err := w.store.Endpoints(w.ctx, q, outbox.Page{Limit: limit, Ascending: ascending})
		return page, last(page, id), err
	}), id)
}

func listEndpoints(w *world) {
	acme, globex := w.neighbours("acme")
	var want []outbox.EndpointID
	for range 7 {
		want = append(want, w.endpoint(acme, "*").ID)
		w.endpoint(globex, "*")
		w.now = w.now.Add(time.Millisecond) // an id orders by its millisecond
	}
	gone := w.endpoint(acme, "*")
	_, err := w.store.DeleteEndpoint(w.ctx, acme.TenantRef, outbox.EndpointRef{ID: gone.ID}, w.now, 1)
	w.must(err)
	q := outbox.EndpointQuery{Tenant: acme.TenantRef}
	for _, limit := range []int{1, 2, 3, 7, 250} {
		w.equal(fmt.Sprintf("oldest first by %d", limit), w.listEndpoints(q, limit, true), want)
	}
	slices.Reverse(want)
	for _, limit := range []int{1, 2, 3, 7, 250} {
		w.equal(fmt.Sprintf("newest first by %d", limit), w.listEndpoints(q, limit, false), want)
	}
	// A position whose row is gone still leads on.
	q.After = gone.ID
	w.equal("after a deleted one", w.listEndpoints(q, 2, false), want)
}

func filterEndpoints(w *world) {
	acme, globex := w.strangers("acme")
	names := map[outbox.EndpointID]string{}
	add := func(t outbox.Tenant, name string, state outbox.EndpointState, types ...string) {
		e := w.endpointWith(t, func(e *outbox.Endpoint) { e.State, e.EventTypes = state, types })
		names[e.ID] = name
	}
	add(acme, "all", outbox.EndpointActive, "*")
	add(acme, "payments", outbox.EndpointActive, "payment.*")
	add(acme, "one", outbox.EndpointPaused, "payment.succeeded", "invoice.paid")
	add(acme, "under", outbox.EndpointDraft, "a_b.c")
	add(globex, "theirs", outbox.EndpointPaused, "*")
	for _, c := range []struct {
		query outbox.EndpointQuery
		want  []string
	}{
		{outbox.EndpointQuery{}, []string{"all", "one", "payments", "theirs", "under"}},
		{outbox.EndpointQuery{Tenant: acme.TenantRef}, []string{"all", "one", "payments", "under"}},
		{outbox.EndpointQuery{Tenant: globex.TenantRef}, []string{"theirs"}},
		{outbox.EndpointQuery{State: outbox.EndpointPaused}, []string{"one", "theirs"}},
		{outbox.EndpointQuery{Tenant: acme.TenantRef, State: outbox.EndpointPaused}, []string{"one"}},
		{outbox.EndpointQuery{Tenant: acme.TenantRef, EventType: "payment.succeeded"}, []string{"all", "one", "payments"}},
		{outbox.EndpointQuery{Tenant: acme.TenantRef, EventType: "payment"}, []string{"all"}},
		{outbox.EndpointQuery{Tenant: acme.TenantRef, EventType: "payment.failed.late"}, []string{"all", "payments"}},
		{outbox.EndpointQuery{Tenant: acme.TenantRef, EventType: "a_b.c"}, []string{"all", "under"}},
		{outbox.EndpointQuery{Tenant: acme.TenantRef, EventType: "axb.c"}, []string{"all"}},
		{outbox.EndpointQuery{Tenant: acme.TenantRef, EventType: "invoice.paid", State: outbox.EndpointPaused}, []string{"one"}},
	} {
		for _, limit := range []int{1, 250} {
			var got []string
			for _, id := range w.listEndpoints(c.query, limit, true) {
				got = append(got, names[id])
			}
			slices.Sort(got)
			if !slices.Equal(got, c.want) {
				w.Errorf("%+v by %d: %v, want %v", c.query, limit, got, c.want)
			}
		}
	}
}
