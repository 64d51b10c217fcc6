package outboxtest

import (
	"fmt"
	"slices"

	"github.com/google/go-cmp/cmp"

	"github.com/waybill-dev/waybill/internal/outbox"
)

var tenantLists = topic{"lists of tenants", []promise{
	{"lists go by creation, both ways, page by page", listTenants},
	{"lists filter by state and by text", filterTenants},
}}

// keys names tenants for comparison.
func keys(tenants []outbox.Tenant) []string {
	return each(tenants, func(t outbox.Tenant) string { return t.Key })
}

func (w *world) listTenants(q outbox.TenantQuery, limit int, ascending bool) []string {
	w.Helper()
	return keys(walk(w, limit, q.After, func(from outbox.TenantID) ([]outbox.Tenant, outbox.TenantID, error) {
		q.After = from
		page, err := w.store.Tenants(w.ctx, q, outbox.Page{Limit: limit, Ascending: ascending})
		return page, last(page, func(t outbox.Tenant) outbox.TenantID { return t.ID }), err
	}))
}

func listTenants(w *world) {
	var want []string
	for i := range 7 {
		key := fmt.Sprintf("t%d", (i*5)%7) // not in order of the key
		w.tenant(key)
		want = append(want, key)
	}
	w.tenant("deleted")
	_, err := w.store.DeleteTenant(w.ctx, "deleted", "Ops", w.now)
	w.must(err)
	for _, limit := range []int{1, 2, 3, 7, 250} {
		w.equal(fmt.Sprintf("oldest first by %d", limit), w.listTenants(outbox.TenantQuery{}, limit, true), want)
	}
	slices.Reverse(want)
	for _, limit := range []int{1, 2, 3, 7, 250} {
		w.equal(fmt.Sprintf("newest first by %d", limit), w.listTenants(outbox.TenantQuery{}, limit, false), want)
	}
}

func filterTenants(w *world) {
	for key, name := range map[string]string{"acme": "Acme Inc", "a_b": "100% Ltd", "globex": "The ACME of Springfield", "umbrella": ""} {
		_, _, err := w.store.PutTenant(w.ctx, key, w.now, func(t *outbox.Tenant, _ bool) error {
			t.Name = name
			if key == "globex" {
				t.State = outbox.TenantPaused
			}
			return nil
		})
		w.must(err)
	}
	for _, c := range []struct {
		query outbox.TenantQuery
		want  []string
	}{
		{outbox.TenantQuery{Search: "acme"}, []string{"acme", "globex"}},
		{outbox.TenantQuery{Search: "ACME"}, []string{"acme", "globex"}},
		{outbox.TenantQuery{Search: "acme", State: outbox.TenantPaused}, []string{"globex"}},
		{outbox.TenantQuery{State: outbox.TenantActive}, []string{"a_b", "acme", "umbrella"}},
		// Nothing in it is a pattern.
		{outbox.TenantQuery{Search: "%"}, []string{"a_b"}},
		{outbox.TenantQuery{Search: "_"}, []string{"a_b"}},
		{outbox.TenantQuery{Search: `\`}, nil},
		{outbox.TenantQuery{Search: "'"}, nil},
		// What is no text is in no name.
		{outbox.TenantQuery{Search: "\xff"}, nil},
		{outbox.TenantQuery{Search: "\x00"}, nil},
	} {
		got := w.listTenants(c.query, 250, true)
		slices.Sort(got)
		if diff := cmp.Diff(c.want, got); diff != "" {
			w.Errorf("%+v (- want, + got):\n%s", c.query, diff)
		}
	}
}
