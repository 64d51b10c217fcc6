package outboxtest

import (
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

var cancellationJobs = topic{"cancellation jobs", []promise{
	{"what is pending in a range ends as cancelled, with the reason", cancellationRange},
	{"endpoint, event types and events narrow it down", cancellationFilters},
	{"what is planned later stays", cancellationLater},
	{"stopped, it leaves the rest pending", cancellationStopped},
	{"a deletion of a tenant is one", cancellationOfTenant},
	{"one that ended is kept as long as everything else", cancellationRetention},
	{"a replay counts what a cancellation took from it as skipped", cancellationOfReplay},
}}

// cancelled runs a new cancellation and returns it with what it ended.
func (w *world) cancelledBy(tenant outbox.Tenant, filter outbox.JobFilter) (outbox.Job, []outbox.DeliveryID) {
	w.Helper()
	job := w.newJob(tenant, outbox.JobCancellation, filter)
	job.Reason = "The customer left."
	return w.runJob(w.create(job))
}

func cancellationRange(w *world) {
	acme := w.tenant("acme")
	w.endpoint(acme, "*")
	from := w.now.Truncate(time.Millisecond).Add(-time.Minute)
	to := from.Add(10 * time.Second)
	early, first := w.at(from.Add(-time.Millisecond), acme, "a"), w.at(from, acme, "a")
	last, late := w.at(to.Add(-time.Millisecond), acme, "a"), w.at(to, acme, "a")
	dead, tried := w.at(from, acme, "a"), w.at(from, acme, "a")
	w.finish(w.refused(dead), w.failed(tried))
	job, ended := w.cancelledBy(acme, outbox.JobFilter{From: from, To: to})
	w.equal("ended", set(ended), ids([]outbox.Delivery{first, last, tried}))
	w.equal("figures", tally(job), [5]int64{3, 3, 0, 0, 0})
	w.equal("state", job.State, outbox.JobDone)
	for _, d := range []outbox.Delivery{first, last, tried} {
		w.equal("why", w.view(d).Dead, &outbox.DeadInfo{Reason: outbox.DeadCancelled, Message: "The customer left.", At: w.now})
	}
	w.equal("early and late", []outbox.DeliveryState{w.view(early).State, w.view(late).State}, []outbox.DeliveryState{outbox.StatePending, outbox.StatePending})
	w.ended(dead, outbox.StateDead)
	report := w.verify()
	w.equal("totals", []int64{report.Cancelled, report.Dead, report.Pending}, []int64{3, 1, 2})
}

func cancellationFilters(w *world) {
	acme := w.tenant("acme")
	e, f := w.endpoint(acme, "*"), w.endpoint(acme, "*")
	a, b := w.plannedMany(acme, "a.x", 2), w.plannedMany(acme, "b", 2)
	of := func(endpoint outbox.Endpoint, lists ...[]outbox.Delivery) map[outbox.DeliveryID]bool {
		found := map[outbox.DeliveryID]bool{}
		for _, list := range lists {
			for _, d := range list {
				if d.Endpoint == endpoint.ID {
					found[d.ID] = true
				}
			}
		}
		return found
	}
	_, ended := w.cancelledBy(acme, outbox.JobFilter{Endpoint: e.ID, EventTypes: []string{"a.*"}})
	w.equal("endpoint and types", set(ended), of(e, a))
	_, ended = w.cancelledBy(acme, outbox.JobFilter{Events: []outbox.EventID{b[0].Event, outbox.NewEventID(w.now)}, Endpoint: f.ID})
	w.equal("an event of an endpoint", set(ended), of(f, b[:2]))
	_, ended = w.cancelledBy(acme, outbox.JobFilter{Events: []outbox.EventID{b[0].Event, b[2].Event}, EventTypes: []string{"x"}})
	w.equal("events of another type", len(ended), 0)
	job, ended := w.cancelledBy(acme, outbox.JobFilter{Events: []outbox.EventID{b[0].Event, b[2].Event}})
	w.equal("events", len(ended), 3)
	w.equal("figures", tally(job), [5]int64{3, 3, 0, 0, 0})
	_, ended = w.cancelledBy(acme, outbox.JobFilter{})
	w.equal("the rest", set(ended), of(f, a))
	w.verify()
}

func cancellationLater(w *world) {
	acme := w.tenant("acme")
	w.endpoint(acme, "*")
	w.plannedMany(acme, "a", 2)
	job := w.create(w.newJob(acme, outbox.JobCancellation, outbox.JobFilter{}))
	w.now = w.now.Add(time.Second)
	later := w.plannedMany(acme, "a", 2)
	_, ended := w.runJob(job)
	w.equal("ended", len(ended), 2)
	for _, d := range later {
		w.stored(d)
	}
}

func cancellationStopped(w *world) {
	acme := w.tenant("acme")
	w.endpoint(acme, "*")
	w.plannedMany(acme, "a", 5)
	step := w.step(w.create(w.newJob(acme, outbox.JobCancellation, outbox.JobFilter{})), 2)
	job, taken := w.recall(w.stop(step.Job))
	w.equal("taken back", len(taken), 0)
	w.equal("state", job.State, outbox.JobCancelled)
	w.equal("figures", tally(job), [5]int64{5, 2, 0, 0, 0})
	w.equal("pending", w.verify().Pending, int64(3))
}

func cancellationOfTenant(w *world) {
	acme := w.tenant("acme")
	w.endpoint(acme, "*")
	w.plannedMany(acme, "a", 5)
	job, err := w.store.DeleteTenant(w.ctx, "acme", "Ops", w.now)
	w.must(err)
	w.equal("who", job.CreatedBy, "Ops")
	w.equal("figures", tally(job), [5]int64{5, 0, 0, 0, 0})
	w.equal("jobs for the loop", len(func() []outbox.Job {
		jobs, err := w.store.LoadJobs(w.ctx, w.scope)
		w.must(err)
		return jobs
	}()), 0) // its command is what is done
	w.executeCommands()
	done := w.readJob(job)
	w.equal("figures", tally(done), [5]int64{5, 5, 0, 0, 0})
	w.equal("state", done.State, outbox.JobDone)
	w.equal("tenant", done.TenantKey, "acme")
}

func cancellationOfReplay(w *world) {
	acme := w.tenant("acme")
	w.endpoint(acme, "*")
	w.refusedMany(acme, "a", 3)
	replay, _ := w.replayed(acme, outbox.JobFilter{State: outbox.ReplayDead})
	w.cancelledBy(acme, outbox.JobFilter{})
	done := w.settledJob(replay)
	w.equal("figures", tally(done), [5]int64{3, 3, 0, 0, 3})
	w.equal("state", done.State, outbox.JobDone)
}

func cancellationRetention(w *world) {
	acme := w.tenant("acme")
	old, _ := w.cancelledBy(acme, outbox.JobFilter{})
	running := w.create(w.newJob(acme, outbox.JobReplay, outbox.JobFilter{State: outbox.ReplayDead}))
	w.now = w.now.Add(time.Hour)
	young, _ := w.cancelledBy(acme, outbox.JobFilter{})
	w.must(w.store.Maintain(w.ctx, outbox.Maintenance{
		Now: w.now.Add(24*time.Hour - 30*time.Minute), Retention: 24 * time.Hour, IdempotencyRetention: time.Hour, Shards: w.scope,
	}))
	jobs, err := w.store.Jobs(w.ctx, outbox.JobQuery{Types: everyJobType}, outbox.Page{Limit: 10})
	w.must(err)
	w.equal("left", []outbox.JobID{jobs[0].ID, jobs[1].ID}, []outbox.JobID{young.ID, running.ID})
	if len(jobs) != 2 {
		w.Errorf("%d jobs are left, %s among them", len(jobs), old.Name())
	}
}
