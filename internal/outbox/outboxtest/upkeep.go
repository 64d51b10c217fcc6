package outboxtest

import (
	"errors"
	"sync"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

var upkeep = topic{"upkeep", []promise{
	{"an empty database is balanced", emptyIsBalanced},
	{"it answers a ping", pings},
	{"upkeep changes nothing that is kept", upkeepKeeps},
	{"many nodes may do it at once", upkeepAtOnce},
	{"idempotency keys are free after their time", keysAreFreed},
	{"stored answers are forgotten after their time", answersAreForgotten},
	{"it goes on beside publishing and sending", upkeepBesideWork},
}}

const (
	days     = 24 * time.Hour
	kept     = 30 * days
	keysKept = 24 * time.Hour
	patience = 5 // calls within which upkeep that waits its turn must come to it
)

// maintenance is what the node does every so often.
func (w *world) maintenance() outbox.Maintenance {
	return outbox.Maintenance{Now: w.now, Retention: kept, IdempotencyRetention: keysKept, Shards: everyShard()}
}

func (w *world) maintain() {
	w.Helper()
	w.must(w.store.Maintain(w.ctx, w.maintenance()))
}

func emptyIsBalanced(w *world) {
	report := w.verify()
	w.equal("planned", report.Planned, int64(0))
	if len(report.Checks) == 0 {
		w.Error("nothing was checked")
	}
	if age := time.Since(report.At); age < -time.Second || age > time.Minute {
		w.Errorf("the proof is of %v", report.At)
	}
}

func pings(w *world) { w.must(w.store.Ping(w.ctx)) }

func upkeepKeeps(w *world) {
	acme := w.tenant("acme")
	w.endpoint(acme, "*")
	w.furnish(acme)
	before, books := w.possessions("acme"), w.verify()
	for _, hours := range []int{0, 0, 1, 23, 48, 72} {
		w.now = w.now.Add(time.Duration(hours) * time.Hour)
		w.maintain()
		w.equal("what the tenant has", w.possessions("acme"), before)
		after := w.verify()
		books.At, after.At = w.now, w.now
		w.equal("the books", after, books)
	}
}

func upkeepAtOnce(w *world) {
	acme := w.tenant("acme")
	w.endpoint(acme, "*")
	w.furnish(acme)
	before := w.verify()
	errs := make([]error, 4)
	var group sync.WaitGroup
	for i := range errs {
		group.Go(func() { errs[i] = w.store.Maintain(w.ctx, w.maintenance()) })
	}
	group.Wait()
	w.must(errors.Join(errs...))
	after := w.verify()
	before.At, after.At = w.now, w.now
	w.equal("the books", after, before)
}

func keysAreFreed(w *world) {
	acme := w.tenant("acme")
	first := w.keyed(acme, "k", `{"n":1}`)
	w.publish(first)
	w.now = w.now.Add(keysKept - time.Hour)
	w.maintain()
	w.conflicts("within the time", []outbox.NewEvent{w.keyed(acme, "k", `{"n":2}`)}, 0, outbox.ErrIdempotencyMismatch)
	w.now = w.now.Add(2 * time.Hour)
	w.maintain()
	if got := w.publish(w.keyed(acme, "k", `{"n":2}`))[0]; got.Duplicate {
		w.Error("after the time the key still leads to the first event")
	}
	// A chosen id is remembered for as long as the event is.
	again := w.event(acme, "a.b", `{"n":1}`)
	again.ID, again.Chosen = first.ID, true
	w.equal("the id", w.publish(again)[0].Duplicate, true)
	w.verify()
}

func answersAreForgotten(w *world) {
	acme := w.tenant("acme").TenantRef
	w.begin(acme, "k", oneRequest, outbox.IdempotencyNew, "")
	w.must(w.store.EndIdempotent(w.ctx, acme, "k", []byte("answer")))
	w.now = w.now.Add(keysKept - time.Hour)
	w.maintain()
	w.begin(acme, "k", oneRequest, outbox.IdempotencyDone, "answer")
	w.now = w.now.Add(2 * time.Hour)
	w.maintain()
	w.begin(acme, "k", otherRequest, outbox.IdempotencyNew, "")
}

func upkeepBesideWork(w *world) {
	acme := w.tenant("acme")
	w.endpoint(acme, "*")
	stop := make(chan struct{})
	var upkeepErr error
	var group sync.WaitGroup
	group.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			if err := w.store.Maintain(w.ctx, w.maintenance()); err != nil {
				upkeepErr = err
				return
			}
		}
	})
	for range 20 {
		planned := w.plannedMany(acme, "a.b", 5)
		w.finish(w.delivered(planned[0]), w.failed(planned[1]), w.refused(planned[2]))
		w.replay(planned[0])
		w.verify()
	}
	close(stop)
	group.Wait()
	w.must(upkeepErr)
	report := w.verify()
	w.equal("totals", []int64{report.Planned, report.Delivered, report.Dead, report.Replayed, report.Pending}, []int64{120, 20, 20, 20, 80})
}
