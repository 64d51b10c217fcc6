package outboxtest

import (
	"errors"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

var replayJobsStopped = topic{"replay jobs that are stopped", []promise{
	{"what was planned and not sent is what it was before", jobStopped},
	{"attempts under way are left to end", jobStoppedExcept},
	{"what comes behind a stopped one of a strict endpoint gets its turn", jobStoppedStrict},
	{"one that has ended is not stopped", jobStoppedLate},
	{"one that cannot go on has failed, and what it planned goes on", jobFails},
}}

// stop asks for the end of a job and lets the owner take the command.
func (w *world) stop(job outbox.Job) outbox.Job {
	w.Helper()
	_, err := w.store.RequestJobCancel(w.ctx, job.Tenant, []outbox.JobType{job.Type}, job.ID)
	w.must(err)
	return w.takeJob(job)
}

// recall lets the owner take back all that a job planned, but for some, a few at a time.
func (w *world) recall(job outbox.Job, except ...outbox.DeliveryID) (outbox.Job, []outbox.DeliveryID) {
	w.Helper()
	var all []outbox.DeliveryID
	for {
		step, err := w.store.RecallJob(w.ctx, w.lease, job, except, 2, w.now)
		w.must(err)
		all = append(all, step.Ended...)
		if job = step.Job; len(step.Ended) == 0 {
			return job, all
		}
	}
}

func jobStopped(w *world) {
	acme := w.tenant("acme")
	e := w.endpoint(acme, "*")
	var each []map[outbox.DeliveryState]outbox.Delivery
	for range 2 {
		each = append(each, w.oneOfEach(acme, e, "a"))
	}
	retried := w.plannedMany(acme, "a", 1)[0]
	w.finish(w.refused(retried))
	w.now = w.now.Add(time.Second)
	before := map[outbox.DeliveryID]outbox.DeliveryView{}
	for _, m := range each {
		for state, d := range m {
			if state != outbox.StatePending {
				before[d.ID] = w.view(d)
			}
		}
	}
	job, planned := w.replayed(acme, outbox.JobFilter{State: outbox.ReplayAll})
	w.equal("planned", len(planned), int(job.Matched))
	w.now = w.now.Add(time.Second)
	w.finish(w.delivered(w.stored(each[0][outbox.StateDead]))) // it has got through
	w.finish(w.failed(w.stored(retried)))                      // it was tried, and waits again
	w.now = w.now.Add(time.Second)
	job = w.stop(job)
	w.equal("state", job.State, outbox.JobStopping)
	w.equal("no more is planned", len(w.step(job, 10).Due), 0)
	job, taken := w.recall(job)
	w.equal("taken back", len(taken), len(planned)-1)
	w.equal("state", job.State, outbox.JobCancelled)
	w.equal("finished", job.FinishedAt, w.now)
	w.equal("figures", tally(job), [5]int64{job.Matched, 1, 1, 0, 0})
	for id, old := range before {
		if id == each[0][outbox.StateDead].ID {
			continue
		}
		d := old.Delivery
		now := w.view(d)
		w.equal("state again", now.State, old.State)
		w.equal("why again", now.Dead, old.Dead)
		w.equal("last try again", now.Last, old.Last)
		w.equal("finished again", now.FinishedAt, old.FinishedAt)
	}
	w.ended(each[0][outbox.StateDead], outbox.StateDelivered)
	again := w.view(retried)
	w.equal("the one that was tried", again.State, outbox.StateDead)
	w.equal("its tries", again.Last.N, 2)
	w.verify()
	// What came back can be replayed like anything else.
	_, planned = w.replayed(acme, outbox.JobFilter{State: outbox.ReplayAll})
	w.equal("planned again", len(planned), int(job.Matched))
	for _, d := range w.pending(e, outbox.LaneReplay) {
		w.finish(w.delivered(d.Delivery))
	}
	w.verify()
}

func jobStoppedExcept(w *world) {
	acme := w.tenant("acme")
	w.endpoint(acme, "*")
	all := w.refusedMany(acme, "a", 3)
	job, _ := w.replayed(acme, outbox.JobFilter{State: outbox.ReplayDead})
	flying := w.stored(all[1])
	job, taken := w.recall(w.stop(job), flying.ID)
	w.equal("taken back", set(taken), ids([]outbox.Delivery{all[0], all[2]}))
	w.equal("state", job.State, outbox.JobStopping)
	w.finish(w.delivered(flying))
	job, _ = w.recall(job)
	w.equal("state", job.State, outbox.JobCancelled)
	w.equal("figures", tally(job), [5]int64{3, 1, 1, 0, 0})
	w.ended(all[1], outbox.StateDelivered)
	w.verify()
}

func jobStoppedStrict(w *world) {
	acme := w.tenant("acme")
	e := w.strict(acme, outbox.OnDeadHold)
	all, _ := w.plannedKeys(acme, "k", "k")
	w.finish(w.refused(all[0]))
	w.now = w.now.Add(time.Second)
	w.dueNumbers("held", e)
	job, _ := w.replayed(acme, outbox.JobFilter{State: outbox.ReplayDead})
	w.dueNumbers("replayed", e, 1)
	w.recall(w.stop(job))
	w.dueNumbers("it holds its key again", e)
	job, _ = w.replayed(acme, outbox.JobFilter{State: outbox.ReplayDead})
	w.finish(w.delivered(w.due(e)[0]))
	w.dueNumbers("the next", e, 2)
	w.equal("state", w.settledJob(job).State, outbox.JobDone)
}

func jobStoppedLate(w *world) {
	acme := w.tenant("acme")
	job, _ := w.replayed(acme, outbox.JobFilter{State: outbox.ReplayDead})
	w.equal("state of one about nothing", job.State, outbox.JobDone)
	_, err := w.store.RequestJobCancel(w.ctx, job.Tenant, everyJobType, job.ID)
	w.must(err)
	w.waiting(0)
	w.equal("state", w.readJob(job), job)
}

func jobFails(w *world) {
	acme := w.tenant("acme")
	w.endpoint(acme, "*")
	for _, d := range w.plannedMany(acme, "a", 4) {
		w.finish(w.refused(d))
	}
	w.now = w.now.Add(time.Second)
	job := w.create(w.newJob(acme, outbox.JobReplay, outbox.JobFilter{State: outbox.ReplayDead}))
	due := w.step(job, 3).Due
	w.equal("planned", len(due), 3)
	w.finish(w.delivered(due[0]))
	w.now = w.now.Add(time.Second)
	fail := func() outbox.Job {
		step, err := w.store.FailJob(w.ctx, w.lease, job, w.now)
		w.must(err)
		w.equal("as it is stored", w.readJob(job), step.Job)
		return step.Job
	}
	failed := fail()
	w.equal("state", failed.State, outbox.JobFailed)
	w.equal("finished", failed.FinishedAt, w.now)
	w.equal("figures", tally(failed), [5]int64{4, 1, 1, 0, 0})
	w.now = w.now.Add(time.Second)
	w.equal("failing twice", fail(), failed)
	w.equal("it does nothing more", len(w.step(failed, 10).Due), 0)
	w.finish(w.delivered(w.stored(due[1])), w.refused(w.stored(due[2])))
	w.ended(due[1], outbox.StateDelivered)
	w.ended(due[2], outbox.StateDead)
	w.verify()
	loaded, err := w.store.LoadJobs(w.ctx, w.scope)
	w.must(err)
	w.equal("jobs to go on with", len(loaded), 0)
	old := w.lease
	w.own()
	if _, err := w.store.FailJob(w.ctx, old, job, w.now); !errors.Is(err, outbox.ErrFenced) {
		w.Errorf("by a former owner: %v", err)
	}
}
