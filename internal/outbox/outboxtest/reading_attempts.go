package outboxtest

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

var attempts = topic{"reading attempts", []promise{
	{"tries are listed by number, both ways, page by page", listAttempts},
	{"a foreign or unknown try is not found", foreignAttempt},
}}

// attempts reads all tries of a delivery.
func (w *world) attempts(d outbox.Delivery) []outbox.AttemptView {
	w.Helper()
	all, err := w.store.Attempts(w.ctx, outbox.TenantRef{ID: d.Tenant, Shard: d.Shard}, d.ID, 0, outbox.Page{Limit: 250, Ascending: true})
	w.must(err)
	return all
}

func listAttempts(w *world) {
	acme := w.tenant("acme")
	e := w.endpoint(acme, "*")
	d, other := w.planned(e, "a.b"), w.planned(e, "a.b")
	w.finish(w.failed(other))
	const tries = 7
	var want []int
	for n := range tries {
		w.now = w.now.Add(time.Hour)
		w.finish(w.failed(w.stored(d)))
		want = append(want, n+1)
	}
	list := func(limit int, ascending bool) []int {
		w.Helper()
		number := func(a outbox.AttemptView) int { return a.N }
		all := walk(w, limit, 0, func(from int) ([]outbox.AttemptView, int, error) {
			page, err := w.store.Attempts(w.ctx, acme.TenantRef, d.ID, from, outbox.Page{Limit: limit, Ascending: ascending})
			return page, last(page, number), err
		})
		for _, a := range all {
			w.equal("delivery", a.Delivery, d.ID)
		}
		return each(all, number)
	}
	for _, limit := range []int{1, 3, 7, 250} {
		w.equal(fmt.Sprintf("oldest first by %d", limit), list(limit, true), want)
	}
	slices.Reverse(want)
	for _, limit := range []int{1, 3, 7, 250} {
		w.equal(fmt.Sprintf("newest first by %d", limit), list(limit, false), want)
	}
}

func foreignAttempt(w *world) {
	acme, globex := w.neighbours("acme")
	d := w.planned(w.endpoint(acme, "*"), "a.b")
	r := w.failed(d)
	w.finish(r)
	for what, c := range map[string]struct {
		tenant outbox.TenantRef
		id     outbox.AttemptID
	}{
		"foreign": {globex.TenantRef, r.Attempt.ID},
		"unknown": {acme.TenantRef, outbox.NewAttemptID(w.now)},
		"zero":    {acme.TenantRef, outbox.AttemptID{}},
	} {
		if _, err := w.store.Attempt(w.ctx, c.tenant, c.id); !errors.Is(err, outbox.ErrNotFound) {
			w.Errorf("%s try: %v, want not found", what, err)
		}
	}
	unknown := outbox.NewDeliveryID(d.Event, outbox.NewEndpointID(w.now))
	for what, c := range map[string]struct {
		tenant outbox.TenantRef
		id     outbox.DeliveryID
	}{"foreign": {globex.TenantRef, d.ID}, "unknown": {acme.TenantRef, unknown}} {
		if all, err := w.store.Attempts(w.ctx, c.tenant, c.id, 0, outbox.Page{Limit: 10}); len(all) != 0 || err != nil && !errors.Is(err, outbox.ErrNotFound) {
			w.Errorf("tries of a delivery that is %s: %v, %v", what, all, err)
		}
	}
}
