package outboxtest

import (
	"errors"
	"sync"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

var lateResults = topic{"late results", []promise{
	{"a late 200 of the same round wins, whatever its number", lateDeliveredWins},
	{"a late failure changes nothing but is kept", lateFailureIsKept},
	{"a late 200 of an earlier round does not end the new one", lateDeliveredOfEarlierRound},
	{"a late 200 of an earlier round does not stand for the one that ended since", lateDeliveredAfterTheNextRound},
	{"a late failure of an earlier round does not end the new one", lateFailureOfEarlierRound},
	{"a result of a delivery that ended is kept", resultAfterTheEnd},
	{"two owners finishing the same delivery keep the books", twoOwners},
	{"results written at once in every order do not deadlock", finishRace},
}}

func lateDeliveredWins(w *world) {
	e := w.endpoint(w.tenant("acme"), "*")
	d := w.planned(e, "a.b")
	late := w.delivered(d) // answered 200, but its owner lost the shard
	w.own()
	for range 2 {
		w.now = w.now.Add(time.Minute)
		w.finish(w.failed(w.stored(d)))
	}
	late.At = w.now
	w.finish(late)
	w.ended(d, outbox.StateDelivered)
	w.equal("tries kept", len(w.attempts(d)), 3)
	report := w.verify()
	w.equal("totals", []int64{report.Planned, report.Delivered, report.Pending}, []int64{1, 1, 0})
}

func lateFailureIsKept(w *world) {
	e := w.endpoint(w.tenant("acme"), "*")
	d := w.planned(e, "a.b")
	lateRetry, lateDead := w.failed(d), w.refused(d)
	w.now = w.now.Add(time.Minute)
	w.finish(w.failed(d))
	before := w.stored(d)
	w.finish(lateRetry)
	w.equal("after a late failure", w.stored(d), before)
	w.finish(lateDead)
	w.equal("after a late end", w.stored(d), before)
	w.equal("state", w.view(d).State, outbox.StatePending)
	w.equal("tries kept", len(w.attempts(d)), 3)
	w.verify()
}

// revived is a delivery that died and is being replayed, and a result of its first round.
func (w *world) revived(late func(outbox.Delivery) outbox.Result) (outbox.Delivery, outbox.Result) {
	w.Helper()
	e := w.endpoint(w.tenant("acme"), "*")
	d := w.planned(e, "a.b")
	result := late(d)
	w.now = w.now.Add(time.Minute)
	w.finish(outbox.Result{Delivery: d, Dead: outbox.DeadExpired, At: w.now}) // no try is counted
	w.replay(d)
	again := w.stored(d)
	w.equal("round", again.Round, 1)
	w.equal("tries", again.Attempt, 0)
	return again, result
}

func lateDeliveredOfEarlierRound(w *world) {
	again, late := w.revived(w.delivered)
	w.finish(late)
	w.equal("the new round", w.stored(again), again)
	w.equal("tries kept", len(w.attempts(again)), 1)
	w.verify()
	w.finish(w.delivered(again))
	w.ended(again, outbox.StateDelivered)
	w.verify()
}

func lateDeliveredAfterTheNextRound(w *world) {
	again, late := w.revived(w.delivered)
	w.finish(w.delivered(again))
	w.now = w.now.Add(time.Minute)
	late.Attempt.ID = outbox.NewAttemptID(w.now) // ids say nothing about rounds
	w.finish(late)
	// Both rounds have ended, with the same number of tries.
	w.equal("the round that is shown", w.view(again).Round, again.Round)
	w.replay(again)
	w.equal("the round of the next replay", w.stored(again).Round, again.Round+1)
	w.verify()
}

func lateFailureOfEarlierRound(w *world) {
	again, late := w.revived(w.refused)
	w.finish(late)
	w.equal("the new round", w.stored(again).Round, again.Round)
	w.equal("state", w.view(again).State, outbox.StatePending)
	w.equal("tries kept", len(w.attempts(again)), 1)
	w.verify()
}

func resultAfterTheEnd(w *world) {
	e := w.endpoint(w.tenant("acme"), "*")
	for _, end := range []func(outbox.Delivery) outbox.Result{w.delivered, w.refused} {
		for _, late := range []func(outbox.Delivery) outbox.Result{w.delivered, w.failed, w.refused} {
			d := w.planned(e, "a.b")
			w.finish(end(d))
			w.now = w.now.Add(time.Second)
			w.finish(late(d))
			w.equal("tries kept", len(w.attempts(d)), 2)
			listed := 0
			for _, v := range w.listDeliveries(outbox.DeliveryQuery{Tenant: e.Tenant}, 250, false) {
				if v.ID == d.ID {
					listed++
				}
			}
			w.equal("listed", listed, 1)
			w.verify()
		}
	}
}

func twoOwners(w *world) {
	e := w.endpoint(w.tenant("acme"), "*")
	var batch []outbox.NewEvent
	const count = 50
	for range count {
		batch = append(batch, w.event(outbox.Tenant{TenantRef: e.Tenant}, "a.b", `{}`))
	}
	w.publish(batch...)
	planned := w.route()
	sorts := []func(outbox.Delivery) outbox.Result{w.delivered, w.refused, w.failed}
	// The old owner and the new one both send everything, and meet different fates.
	w.race(func(owner int) []outbox.Result {
		var results []outbox.Result
		for i, d := range planned {
			results = append(results, sorts[(i+owner)%len(sorts)](d))
		}
		return results
	}, 2)
	report := w.verify()
	w.equal("planned", report.Planned, int64(count))
	w.equal("ended or pending", report.Delivered+report.Dead+report.Pending, int64(count))
	for i, d := range planned {
		w.equal("tries kept", len(w.attempts(d)), 2)
		// Pairs are (delivered, dead), (dead, failed), (failed, delivered).
		switch state := w.view(d).State; {
		case i%3 == 2 && state != outbox.StateDelivered:
			w.Errorf("delivery %d is %s although one owner delivered it and the other only failed", i, state)
		case i%3 == 0 && state == outbox.StatePending:
			w.Errorf("delivery %d is pending although both owners ended it", i)
		}
	}
}

// race lets writers finish their results at once, each in pieces.
func (w *world) race(results func(writer int) []outbox.Result, writers int) {
	w.Helper()
	errs := make([]error, writers)
	var group sync.WaitGroup
	for i := range writers {
		all := results(i)
		group.Go(func() {
			for len(all) > 0 && errs[i] == nil {
				n := min(7, len(all))
				errs[i] = again(func() error { _, err := w.store.Finish(w.ctx, all[:n]); return err })
				all = all[n:]
			}
		})
	}
	group.Wait()
	w.must(errors.Join(errs...))
}

func finishRace(w *world) {
	acme, globex := w.strangers("acme")
	w.endpoint(acme, "*")
	w.endpoint(globex, "*")
	for range 20 {
		w.publishOne(acme, "a.b", `{}`)
		w.publishOne(globex, "a.b", `{}`)
	}
	planned := w.route()
	w.race(func(writer int) []outbox.Result {
		var all []outbox.Result
		for i := range planned {
			d := planned[i]
			if writer%2 == 1 {
				d = planned[len(planned)-1-i]
			}
			all = append(all, w.delivered(d))
		}
		return all
	}, 4)
	report := w.verify()
	w.equal("totals", []int64{report.Delivered, report.Pending}, []int64{int64(len(planned)), 0})
	w.equal("tries kept", len(w.attempts(planned[0])), 4)
}
