package outboxtest

import (
	"fmt"
	"sync"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// workers plays an owner's senders: it takes what is due, and holds against every take that
// nothing else of the key is under way and that numbers come in order.
type workers struct {
	mu    sync.Mutex
	under map[string]outbox.DeliveryID
	last  map[string]int64
	done  int
}

// take claims a due delivery, and says whether it may be tried now.
func (x *workers) take(d outbox.Delivery) (bool, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if other, busy := x.under[d.OrderingKey]; busy {
		if other != d.ID {
			// It may have been read before the other was due, and ended since: then it was seen.
			if d.Sequence <= x.last[d.OrderingKey] {
				return false, nil
			}
			return false, fmt.Errorf("key %q: number %d is due while another is under way", d.OrderingKey, d.Sequence)
		}
		return false, nil
	}
	if d.Sequence <= x.last[d.OrderingKey] {
		return false, nil // read before it ended
	}
	if d.Sequence > x.last[d.OrderingKey] && d.Attempt == 0 && x.skipped(d) {
		return false, fmt.Errorf("key %q: number %d comes after %d", d.OrderingKey, d.Sequence, x.last[d.OrderingKey])
	}
	x.under[d.OrderingKey] = d.ID
	return true, nil
}

// skipped reports whether a number of the key was passed over: keys take turns in the numbering.
func (x *workers) skipped(d outbox.Delivery) bool {
	last := x.last[d.OrderingKey]
	return last != 0 && d.Sequence != last+crowdKeys
}

// crowdKeys is how many keys the events go round.
const crowdKeys = 3

func orderCrowd(w *world) {
	acme := w.tenant("acme")
	e := w.strict(acme, outbox.OnDeadSkip)
	w.config()
	const events = 120
	x := &workers{under: map[string]outbox.DeliveryID{}, last: map[string]int64{}}
	owner := func() error {
		for i := range events / crowdKeys {
			var batch []outbox.NewEvent
			for key := range crowdKeys {
				event := w.event(acme, "a.b", `{}`)
				event.OrderingKey = fmt.Sprintf("key-%d", key)
				batch = append(batch, event)
			}
			if _, err := w.persist(batch); err != nil {
				return err
			}
			if i%2 == 0 {
				continue // two batches at once
			}
			if err := w.routeStrictly(acme, e); err != nil {
				return err
			}
		}
		return w.routeStrictly(acme, e)
	}
	worker := func() error {
		for deadline := time.Now().Add(time.Minute); ; {
			got, err := w.store.FetchDue(w.ctx, []outbox.FetchRequest{{Shard: acme.Shard, Endpoint: e.ID, Limit: 100}}, w.now, 1<<20)
			if err != nil {
				return err
			}
			for _, due := range got[0].Rows {
				mine, err := x.take(due.Delivery)
				if err != nil {
					return err
				}
				if !mine {
					continue
				}
				result := w.delivered(due.Delivery)
				if due.Attempt == 0 && due.Sequence%7 == 0 {
					result = w.failed(due.Delivery)
					result.RetryAt = w.now
				}
				// It is no longer under way before the store knows the end: the next may be due
				// as soon as that is committed.
				x.mu.Lock()
				if result.Final() {
					x.last[due.OrderingKey] = due.Sequence
					x.done++
				}
				delete(x.under, due.OrderingKey)
				x.mu.Unlock()
				if err := again(func() error { _, err := w.store.Finish(w.ctx, []outbox.Result{result}); return err }); err != nil {
					return err
				}
			}
			x.mu.Lock()
			done := x.done
			x.mu.Unlock()
			if done == events {
				return nil
			}
			if time.Now().After(deadline) {
				return fmt.Errorf("%d of %d ended within a minute", done, events)
			}
		}
	}
	w.together(owner, worker, worker, worker, worker)
	w.equal("pending", len(w.due(e)), 0)
	report := w.verify()
	w.equal("delivered", report.Delivered, int64(events))
}

// routeStrictly routes what waits for the endpoint.
func (w *world) routeStrictly(tenant outbox.Tenant, e outbox.Endpoint) error {
	for {
		done, err := w.routeSome(w.lease, tenant, e)
		if err != nil || done {
			return err
		}
	}
}
