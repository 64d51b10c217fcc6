package outboxtest

import (
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

var missingJobs = topic{"replays of what is missing", []promise{
	{"events are found that were planned by the time the job was made", missingEvents},
	{"they are planned once, numbered on, in the lane of replays", missingPlanned},
	{"a page that was planned is not planned again", missingResumes},
	{"a stopped one leaves cancelled deliveries behind, since their numbers are given", missingStopped},
}}

// missing is what the owner does for one page of events: everything that e wants and has not got.
func (w *world) missing(job outbox.Job, e outbox.Endpoint, limit int) (outbox.MissingPage, []outbox.Delivery, map[outbox.EndpointID]int64) {
	w.Helper()
	page, err := w.store.MissingEvents(w.ctx, job, limit)
	w.must(err)
	next := w.next(e)
	var wanted []outbox.Delivery
	var asked []outbox.DeliveryID
	for _, event := range page.Events {
		row := outbox.OutboxRow{Shard: job.Tenant.Shard, Tenant: job.Tenant.ID, Event: event.ID, Source: &event}
		d := w.delivery(row, e, 0)
		d.Lane, d.Round = outbox.LaneReplay, 1
		wanted, asked = append(wanted, d), append(asked, d.ID)
	}
	known, err := w.store.DeliveriesOf(w.ctx, job.Tenant, asked)
	w.must(err)
	var deliveries []outbox.Delivery
	for _, d := range wanted {
		if !known[d.ID] {
			d.Sequence = next
			next++
			deliveries = append(deliveries, d)
		}
	}
	return page, deliveries, map[outbox.EndpointID]int64{e.ID: next}
}

func (w *world) planMissing(job outbox.Job, e outbox.Endpoint, limit int) outbox.JobStep {
	w.Helper()
	page, deliveries, next := w.missing(job, e, limit)
	step, err := w.store.PlanMissing(w.ctx, w.lease, job, page, deliveries, next, w.now)
	w.must(err)
	return step
}

// missingJob makes events in every state, an endpoint that has missed them, and a job about them.
func (w *world) missingJob() (outbox.Job, outbox.Endpoint, []outbox.NewEvent) {
	w.Helper()
	acme, globex := w.neighbours("acme")
	first := w.endpoint(acme, "*")
	var events []outbox.NewEvent
	for range 5 {
		e := w.event(acme, "a", `{"n":1}`)
		e.OrderingKey = "k"
		w.publish(e)
		w.publishOne(globex, "a", `{}`)
		events = append(events, e)
		w.now = w.now.Add(time.Millisecond)
	}
	w.finish(w.delivered(w.route()[0]))
	e := w.endpoint(acme, "*")
	w.equal("number of the first", w.next(first), int64(6))
	w.now = w.now.Add(time.Second)
	job := w.newJob(acme, outbox.JobReplay, outbox.JobFilter{State: outbox.ReplayMissing, From: events[1].ID.Time(), To: events[4].ID.Time()})
	job.Matched = 3
	job, err := w.store.CreateJob(w.ctx, job)
	w.must(err)
	return w.takeJob(job), e, events
}

func missingEvents(w *world) {
	job, _, events := w.missingJob()
	acme, err := w.store.Tenant(w.ctx, "acme")
	w.must(err)
	job.Filter.To = time.Time{}
	w.publishOne(acme, "a", `{}`)     // after the job was made
	early := w.event(acme, "a", `{}`) // before it, and not routed yet
	early.ID = outbox.NewEventID(events[2].ID.Time())
	early.CreatedAt = events[2].CreatedAt
	w.publish(early)
	var found []outbox.EventID
	for steps := 0; ; steps++ {
		page, err := w.store.MissingEvents(w.ctx, job, 2)
		w.must(err)
		for _, e := range page.Events {
			found = append(found, e.ID)
			w.equal("tenant", e.Tenant, acme.TenantRef)
			w.equal("type and key", []string{e.Type, e.OrderingKey}, []string{"a", "k"})
		}
		job.Cursor = page.Cursor
		if page.Last {
			break
		}
		if steps > 10 {
			w.Fatal("there is no end")
		}
	}
	w.equal("found", found, []outbox.EventID{events[1].ID, events[2].ID, events[3].ID, events[4].ID})
}

func missingPlanned(w *world) {
	job, e, events := w.missingJob()
	var due []outbox.Delivery
	for !job.Scanned {
		step := w.planMissing(job, e, 2)
		due, job = append(due, step.Due...), step.Job
	}
	w.equal("planned", len(due), 3)
	for i, d := range due {
		w.equal("its event", d.Event, events[i+1].ID)
		w.equal("its number", d.Sequence, int64(i+1))
		w.equal("as it is stored", w.stored(d), d)
		w.equal("lane", d.Lane, outbox.LaneReplay)
		w.finish(w.delivered(d))
	}
	done := w.settledJob(job)
	w.equal("figures", tally(done), [5]int64{3, 3, 3, 0, 0})
	w.equal("state", done.State, outbox.JobDone)
	w.equal("next number", w.next(e), int64(4))
	w.verify()
	// The same again finds nothing.
	again := w.newJob(outbox.Tenant{TenantRef: job.Tenant}, outbox.JobReplay, job.Filter)
	again, err := w.store.CreateJob(w.ctx, again)
	w.must(err)
	step := w.planMissing(w.takeJob(again), e, 10)
	w.equal("planned again", len(step.Due), 0)
	w.equal("state", step.Job.State, outbox.JobDone)
}

func missingResumes(w *world) {
	job, e, _ := w.missingJob()
	page, deliveries, next := w.missing(job, e, 2)
	step, err := w.store.PlanMissing(w.ctx, w.lease, job, page, deliveries, next, w.now)
	w.must(err)
	w.equal("planned", len(step.Due), 2)
	w.finish(w.delivered(step.Due[0]))
	again, err := w.store.PlanMissing(w.ctx, w.lease, job, page, deliveries, next, w.now)
	w.must(err)
	w.equal("planned again", len(again.Due), 0)
	w.equal("figures", tally(again.Job), [5]int64{3, 1, 1, 0, 0})
	w.ended(step.Due[0], outbox.StateDelivered)
	step = w.planMissing(again.Job, e, 2)
	w.equal("the rest", len(step.Due), 1)
	w.verify()
}

func missingStopped(w *world) {
	job, e, _ := w.missingJob()
	step := w.planMissing(job, e, 10)
	w.finish(w.delivered(step.Due[1]))
	job, taken := w.recall(w.stop(step.Job))
	w.equal("taken back", len(taken), 2)
	w.equal("state", job.State, outbox.JobCancelled)
	view := w.view(step.Due[0])
	w.equal("state of one", view.State, outbox.StateCancelled)
	w.equal("why", view.Dead.Message, outbox.ReasonReplayStopped)
	w.verify()
}
