package outboxtest

import (
	"bytes"
	"slices"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// walk reads a list page by page from a position on, to its end. read returns a page of at most
// limit rows and where the next one begins, zero after the last.
func walk[V any, C comparable](w *world, limit int, from C, read func(from C) ([]V, C, error)) []V {
	w.Helper()
	var all []V
	var end C
	for {
		page, next, err := read(from)
		w.must(err)
		if len(page) > limit {
			w.Fatalf("%d rows on a page of %d", len(page), limit)
		}
		all = append(all, page...)
		switch next {
		case end:
			return all
		case from:
			w.Fatal("the list stands still")
		}
		from = next
	}
}

// listDeliveries walks a list to its end.
func (w *world) listDeliveries(q outbox.DeliveryQuery, limit int, ascending bool) []outbox.DeliveryView {
	w.Helper()
	return walk(w, limit, q.After, func(from outbox.DeliveryID) ([]outbox.DeliveryView, outbox.DeliveryID, error) {
		q.After = from
		return w.store.Deliveries(w.ctx, q, outbox.Page{Limit: limit, Ascending: ascending})
	})
}

// listEvents walks a list to its end.
func (w *world) listEvents(q outbox.EventQuery, limit int, ascending bool) []outbox.EventView {
	w.Helper()
	return walk(w, limit, q.After, func(from outbox.EventID) ([]outbox.EventView, outbox.EventID, error) {
		q.After = from
		return w.store.Events(w.ctx, q, outbox.Page{Limit: limit, Ascending: ascending})
	})
}

// each takes one thing out of every row.
func each[V, T any](rows []V, of func(V) T) []T {
	var all []T
	for _, v := range rows {
		all = append(all, of(v))
	}
	return all
}

func deliveryIDs(views []outbox.DeliveryView) []outbox.DeliveryID {
	return each(views, func(v outbox.DeliveryView) outbox.DeliveryID { return v.ID })
}

func eventIDs(views []outbox.EventView) []outbox.EventID {
	return each(views, func(v outbox.EventView) outbox.EventID { return v.ID })
}

func sorted[I ~[16]byte](ids []I) []I {
	return slices.SortedFunc(slices.Values(ids), func(a, b I) int { return bytes.Compare(a[:], b[:]) })
}

// last is where a list that ends with an empty page goes on.
func last[V any, C comparable](page []V, of func(V) C) (next C) {
	if len(page) > 0 {
		next = of(page[len(page)-1])
	}
	return next
}
