package outboxtest

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

var replayJobs = topic{"replay jobs", []promise{
	{"what died in a range is planned again, and the figures follow it to its end", jobReplaysRange},
	{"each state is what it says, and all is all that has ended", jobStates},
	{"endpoint, event types and chosen ids narrow it down", jobFilters},
	{"counting writes nothing, and says when there is too much to look through", jobCounts},
	{"a step that is run again, and an owner that takes over, plan nothing twice", jobResumes},
	{"what died or was delivered after it was made is left alone", jobLeavesLater},
	{"where endpoint or payload is gone it is skipped", jobSkips},
	{"what somebody else replayed meanwhile is skipped", jobSkipsVanished},
	{"those of a rate are due one after the other", jobSpacing},
	{"the same idempotency key is the same job, another filter a mismatch", jobKey},
	{"a job is found by its own tenant and type, and listed newest first", jobListed},
	{"it takes many steps over more rows than one step reads", jobManySteps},
	{"a strict endpoint's are planned in their order", jobStrict},
}}

var everyJobType = []outbox.JobType{outbox.JobReplay, outbox.JobCancellation, outbox.JobDeleteTenant}

// newJob is a job for the tenant that was asked for now.
func (w *world) newJob(tenant outbox.Tenant, jobType outbox.JobType, filter outbox.JobFilter) outbox.Job {
	return outbox.Job{
		ID: outbox.NewJobID(w.now), Type: jobType, Tenant: tenant.TenantRef, TenantKey: tenant.Key,
		Filter: filter, CreatedBy: "Ops", CreatedAt: w.now, State: outbox.JobRunning,
	}
}

// count counts what a job is about.
func (w *world) count(job outbox.Job) int {
	w.Helper()
	n, capped, err := w.store.CountJob(w.ctx, job, outbox.MaxJobRows)
	w.must(err)
	if capped {
		w.Fatal("too much to look through")
	}
	return n
}

// create counts, asks for a job and lets the owner take it.
func (w *world) create(job outbox.Job) outbox.Job {
	w.Helper()
	w.owned()
	job.Matched = int64(w.count(job))
	job, err := w.store.CreateJob(w.ctx, job)
	w.must(err)
	return w.takeJob(job)
}

// takeJob lets the owner execute the commands about the job.
func (w *world) takeJob(job outbox.Job) outbox.Job {
	w.Helper()
	for _, row := range w.ofKind(outbox.OutboxCommand) {
		if row.Command.Job != job.ID {
			continue
		}
		taken, err := w.store.TakeJob(w.ctx, w.lease, row)
		w.must(err)
		if taken == nil {
			w.Fatal("the job is gone")
		}
		job = *taken
	}
	return job
}

// step lets the owner do one piece of a job.
func (w *world) step(job outbox.Job, limit int) outbox.JobStep {
	w.Helper()
	step, err := w.store.StepJob(w.ctx, w.lease, job, limit, 0, w.now)
	w.must(err)
	if len(step.Due) > limit || len(step.Ended) > limit {
		w.Fatalf("%d due, %d ended, the limit was %d", len(step.Due), len(step.Ended), limit)
	}
	return step
}

// runJob lets the owner plan, or cancel, all that a job is about, a few at a time.
func (w *world) runJob(job outbox.Job) (outbox.Job, []outbox.DeliveryID) {
	w.Helper()
	var all []outbox.DeliveryID
	for range 1000 {
		step := w.step(job, 3)
		for _, d := range step.Due {
			w.equal("as it is stored", w.stored(d), d)
			all = append(all, d.ID)
		}
		all = append(all, step.Ended...)
		if job = step.Job; job.Scanned || job.State.Ended() {
			return job, all
		}
	}
	w.Fatal("the job has no end")
	panic("unreachable")
}

// replayed runs a new replay and returns it with what it planned.
func (w *world) replayed(tenant outbox.Tenant, filter outbox.JobFilter) (outbox.Job, []outbox.DeliveryID) {
	w.Helper()
	return w.runJob(w.create(w.newJob(tenant, outbox.JobReplay, filter)))
}

// tally is a job's: matched, done, delivered, failed, skipped.
func tally(j outbox.Job) [5]int64 {
	return [5]int64{j.Matched, j.Done, j.Delivered, j.Failed, j.Skipped}
}

// readJob reads a job as people do.
func (w *world) readJob(job outbox.Job) outbox.Job {
	w.Helper()
	stored, err := w.store.Job(w.ctx, job.Tenant, []outbox.JobType{job.Type}, job.ID)
	w.must(err)
	return stored
}

// settled lets the owner count what has ended, and returns the job.
func (w *world) settledJob(job outbox.Job) outbox.Job {
	w.Helper()
	step := w.step(job, 0)
	w.equal("as people read it", w.readJob(job), step.Job)
	return step.Job
}

// at publishes one event at the given time and returns its only delivery.
func (w *world) at(t time.Time, tenant outbox.Tenant, eventType string) outbox.Delivery {
	w.Helper()
	before := w.now
	w.now = t
	w.publishOne(tenant, eventType, `{}`)
	planned := w.route()
	w.now = before
	if len(planned) != 1 {
		w.Fatalf("%d deliveries, want 1", len(planned))
	}
	return planned[0]
}

func jobReplaysRange(w *world) {
	acme := w.tenant("acme")
	w.endpoint(acme, "*")
	from := w.now.Truncate(time.Millisecond).Add(-time.Minute)
	to := from.Add(10 * time.Second)
	early := w.at(from.Add(-time.Millisecond), acme, "a")
	first, last := w.at(from, acme, "a"), w.at(to.Add(-time.Millisecond), acme, "a")
	late := w.at(to, acme, "a")
	w.finish(w.refused(early), w.refused(first), w.refused(last), w.refused(late))
	w.now = w.now.Add(time.Second)

	job, planned := w.replayed(acme, outbox.JobFilter{From: from, To: to, State: outbox.ReplayDead})
	w.equal("planned", set(planned), ids([]outbox.Delivery{first, last}))
	w.equal("figures", tally(job), [5]int64{2, 0, 0, 0, 0})
	w.equal("state", job.State, outbox.JobRunning)

	again, other := w.stored(first), w.stored(last)
	w.equal("lane and round", []int{int(again.Lane), again.Round}, []int{int(outbox.LaneReplay), 1})
	w.finish(w.delivered(again))
	w.equal("one delivered", tally(w.settledJob(job)), [5]int64{2, 1, 1, 0, 0})
	w.finish(w.failed(other))
	w.equal("one tried again", tally(w.settledJob(job)), [5]int64{2, 1, 1, 0, 0})
	w.finish(w.refused(w.stored(last)))
	done := w.settledJob(job)
	w.equal("both ended", tally(done), [5]int64{2, 2, 1, 1, 0})
	w.equal("state", done.State, outbox.JobDone)
	w.equal("finished", done.FinishedAt, w.now)
	report := w.verify()
	w.equal("totals", []int64{report.Planned, report.Delivered, report.Dead, report.Replayed, report.Pending}, []int64{6, 1, 5, 2, 0})
}

// oneOfEach returns deliveries in each state, by it.
func (w *world) oneOfEach(tenant outbox.Tenant, e outbox.Endpoint, eventType string) map[outbox.DeliveryState]outbox.Delivery {
	w.Helper()
	cancelled := w.plannedMany(tenant, eventType, 1)[0]
	row := w.command(e, outbox.Command{Name: outbox.CommandCancelEndpoint, Reason: "No."})
	_, _, err := w.store.Cancel(w.ctx, w.lease, row, 10, w.now)
	w.must(err)
	rest := w.plannedMany(tenant, eventType, 3)
	w.finish(w.refused(rest[0]), w.delivered(rest[1]))
	return map[outbox.DeliveryState]outbox.Delivery{
		outbox.StateCancelled: cancelled, outbox.StateDead: rest[0], outbox.StateDelivered: rest[1], outbox.StatePending: rest[2],
	}
}

func jobStates(w *world) {
	for of, want := range map[outbox.ReplayOf][]outbox.DeliveryState{
		outbox.ReplayDead:      {outbox.StateDead},
		outbox.ReplayDelivered: {outbox.StateDelivered},
		outbox.ReplayCancelled: {outbox.StateCancelled},
		outbox.ReplayAll:       {outbox.StateDead, outbox.StateDelivered, outbox.StateCancelled},
	} {
		tenant := w.tenant(string(of))
		each := w.oneOfEach(tenant, w.endpoint(tenant, "*"), "a")
		w.now = w.now.Add(time.Second)
		expected := map[outbox.DeliveryID]bool{}
		for _, state := range want {
			expected[each[state].ID] = true
		}
		before := w.view(each[outbox.StatePending])
		job, planned := w.replayed(tenant, outbox.JobFilter{State: of})
		w.equal("planned of "+string(of), set(planned), expected)
		w.equal("figures of "+string(of), tally(job), [5]int64{int64(len(want)), 0, 0, 0, 0})
		w.equal("the pending one", w.view(each[outbox.StatePending]), before)
	}
	w.verify()
}

func jobFilters(w *world) {
	acme := w.tenant("acme")
	e, f := w.endpoint(acme, "*"), w.endpoint(acme, "*")
	var all []outbox.Delivery
	for _, eventType := range []string{"pay", "pay.ok", "pay.no", "payment", "b"} {
		all = append(all, w.plannedMany(acme, eventType, 1)...)
	}
	for _, d := range all {
		w.finish(w.refused(d))
	}
	w.now = w.now.Add(time.Second)
	pick := func(wanted func(d outbox.Delivery) bool) map[outbox.DeliveryID]bool {
		picked := map[outbox.DeliveryID]bool{}
		for _, d := range all {
			if wanted(d) {
				picked[d.ID] = true
			}
		}
		return picked
	}
	chosen := []outbox.DeliveryID{all[0].ID, all[7].ID}
	for what, c := range map[string]struct {
		filter outbox.JobFilter
		want   map[outbox.DeliveryID]bool
	}{
		"endpoint":          {outbox.JobFilter{Endpoint: e.ID}, pick(func(d outbox.Delivery) bool { return d.Endpoint == e.ID })},
		"the other":         {outbox.JobFilter{Endpoint: f.ID, EventTypes: []string{"b"}}, pick(func(d outbox.Delivery) bool { return d.Endpoint == f.ID && d.EventType == "b" })},
		"exact types":       {outbox.JobFilter{EventTypes: []string{"pay", "b"}}, pick(func(d outbox.Delivery) bool { return d.EventType == "pay" || d.EventType == "b" })},
		"a prefix":          {outbox.JobFilter{EventTypes: []string{"pay.*"}}, pick(func(d outbox.Delivery) bool { return d.EventType == "pay.ok" || d.EventType == "pay.no" })},
		"every type":        {outbox.JobFilter{EventTypes: []string{"x", "*"}}, ids(all)},
		"no such type":      {outbox.JobFilter{EventTypes: []string{"x"}}, nil},
		"chosen ones":       {outbox.JobFilter{Deliveries: chosen}, set(chosen)},
		"chosen, one fits":  {outbox.JobFilter{Deliveries: chosen, EventTypes: []string{"pay"}}, set(chosen[:1])},
		"an unknown chosen": {outbox.JobFilter{Deliveries: []outbox.DeliveryID{outbox.NewDeliveryID(all[0].Event, outbox.NewEndpointID(w.now))}}, nil},
	} {
		c.filter.State = outbox.ReplayDead
		w.equal("counted by "+what, w.count(w.newJob(acme, outbox.JobReplay, c.filter)), len(c.want))
		_, planned := w.replayed(acme, c.filter)
		w.equal("planned by "+what, set(planned), c.want)
		for _, id := range planned { // they die again, for the next
			for _, d := range all {
				if d.ID == id {
					w.finish(w.refused(w.stored(d)))
				}
			}
		}
		w.now = w.now.Add(time.Second)
	}
	w.verify()
}

func jobCounts(w *world) {
	acme, globex := w.neighbours("acme")
	e := w.endpoint(acme, "*")
	w.endpoint(globex, "*")
	w.own()
	for range 3 {
		w.oneOfEach(acme, e, "a")
	}
	for _, d := range w.plannedMany(globex, "a", 4) {
		w.finish(w.refused(d))
	}
	w.now = w.now.Add(time.Second)
	before := w.verify()
	for of, want := range map[outbox.ReplayOf]int{
		// The cancelling of the second and third round took the pending ones of those before.
		outbox.ReplayDead: 3, outbox.ReplayDelivered: 3, outbox.ReplayCancelled: 5, outbox.ReplayAll: 11,
	} {
		w.equal(string(of), w.count(w.newJob(acme, outbox.JobReplay, outbox.JobFilter{State: of})), want)
	}
	w.equal("pending", w.count(w.newJob(acme, outbox.JobCancellation, outbox.JobFilter{})), 1)
	_, capped, err := w.store.CountJob(w.ctx, w.newJob(acme, outbox.JobReplay, outbox.JobFilter{State: outbox.ReplayDead}), 7)
	w.must(err)
	w.equal("8 rows where 7 may be read", capped, true)
	n, capped, err := w.store.CountJob(w.ctx, w.newJob(acme, outbox.JobReplay, outbox.JobFilter{State: outbox.ReplayDead}), 8)
	w.must(err)
	w.equal("8 rows where 8 may be read", fmt.Sprint(n, capped), "3 false")
	after := w.verify()
	after.At = before.At
	w.equal("the books", after, before)
	w.waiting(0)
	jobs, err := w.store.Jobs(w.ctx, outbox.JobQuery{Types: everyJobType}, outbox.Page{Limit: 10})
	w.must(err)
	w.equal("jobs", len(jobs), 0)
}

func jobResumes(w *world) {
	acme := w.tenant("acme")
	w.endpoint(acme, "*")
	w.refusedMany(acme, "a", 9)
	job := w.create(w.newJob(acme, outbox.JobReplay, outbox.JobFilter{State: outbox.ReplayDead}))
	planned := map[outbox.DeliveryID]int{}
	for range 9 {
		// The commit's answer is lost, and with it what is due; the owner dies, and the next begins
		// with what is stored.
		step := w.step(job, 2)
		for _, d := range step.Due {
			planned[d.ID]++
			w.finish(w.refused(w.stored(d))) // it dies again, and must not be met again
		}
		w.own()
		jobs, err := w.store.LoadJobs(w.ctx, w.scope)
		w.must(err)
		if len(jobs) == 0 {
			break
		}
		w.equal("jobs", len(jobs), 1)
		job = jobs[0]
	}
	w.equal("planned", len(planned), 9)
	for id, n := range planned {
		w.equal(id.String(), n, 1)
	}
	done := w.readJob(job)
	w.equal("figures", tally(done), [5]int64{9, 9, 0, 9, 0})
	w.equal("state", done.State, outbox.JobDone)
	again := w.step(done, 5)
	w.equal("after its end", len(again.Due), 0)
	w.equal("replayed", w.verify().Replayed, int64(9))
}

func jobLeavesLater(w *world) {
	acme := w.tenant("acme")
	w.endpoint(acme, "*")
	all := w.plannedMany(acme, "a", 4)
	w.finish(w.refused(all[0]), w.delivered(all[1]))
	w.now = w.now.Add(time.Second)
	job := w.newJob(acme, outbox.JobReplay, outbox.JobFilter{State: outbox.ReplayAll})
	w.now = w.now.Add(time.Second)
	w.finish(w.refused(all[2]), w.delivered(all[3]))
	job, planned := w.runJob(w.create(job))
	w.equal("planned", set(planned), ids(all[:2]))
	w.equal("matched", job.Matched, int64(2))
}

func jobSkips(w *world) {
	door := w.backdoor()
	acme, globex := w.strangers("acme")
	w.endpoint(acme, "a")
	gone := w.endpoint(acme, "b")
	w.endpoint(globex, "*")
	kept := w.plannedMany(acme, "a", 1)[0]
	orphans, lost := w.plannedMany(acme, "b", 2), w.plannedMany(globex, "a", 2)
	w.finish(w.refused(kept), w.refused(orphans[0]), w.delivered(orphans[1]), w.refused(lost[0]), w.delivered(lost[1]))
	_, err := w.store.DeleteEndpoint(w.ctx, acme.TenantRef, outbox.EndpointRef{ID: gone.ID}, w.now, 1)
	w.must(err)
	w.executeCommands()
	w.must(door.Exec(w.ctx, fmt.Sprintf(`DELETE FROM {event} WHERE shard = %d`, globex.Shard)))
	w.now = w.now.Add(time.Second)

	job, planned := w.replayed(acme, outbox.JobFilter{State: outbox.ReplayAll})
	w.equal("planned", set(planned), ids([]outbox.Delivery{kept}))
	w.equal("figures", tally(job), [5]int64{3, 2, 0, 0, 2})
	w.finish(w.delivered(w.stored(kept)))
	w.equal("at the end", tally(w.settledJob(job)), [5]int64{3, 3, 1, 0, 2})

	job, planned = w.replayed(globex, outbox.JobFilter{State: outbox.ReplayAll})
	w.equal("planned without payloads", len(planned), 0)
	w.equal("figures without payloads", tally(job), [5]int64{2, 2, 0, 0, 2})
	w.equal("state without payloads", job.State, outbox.JobDone)
	w.ended(lost[0], outbox.StateDead)
	w.ended(lost[1], outbox.StateDelivered)
}

func jobSkipsVanished(w *world) {
	acme := w.tenant("acme")
	w.endpoint(acme, "*")
	all := w.refusedMany(acme, "a", 3)
	job := w.create(w.newJob(acme, outbox.JobReplay, outbox.JobFilter{State: outbox.ReplayDead}))
	w.replay(all[1])
	job, planned := w.runJob(job)
	w.equal("planned", set(planned), ids([]outbox.Delivery{all[0], all[2]}))
	w.equal("figures", tally(job), [5]int64{3, 1, 0, 0, 1})
	w.equal("rounds of the other", w.stored(all[1]).Round, 1)
	// It is nobody's but its own: its end is not counted.
	w.finish(w.delivered(w.stored(all[1])))
	w.equal("after its end", tally(w.settledJob(job)), [5]int64{3, 1, 0, 0, 1})
}

func jobSpacing(w *world) {
	acme := w.tenant("acme")
	w.endpoint(acme, "*")
	w.refusedMany(acme, "a", 3)
	job := w.create(w.newJob(acme, outbox.JobReplay, outbox.JobFilter{State: outbox.ReplayDead}))
	step, err := w.store.StepJob(w.ctx, w.lease, job, 10, 50*time.Millisecond, w.now)
	w.must(err)
	var at []time.Duration
	for _, d := range step.Due {
		at = append(at, w.stored(d).NextAt.Sub(w.now))
	}
	slices.Sort(at)
	w.equal("due after", at, []time.Duration{0, 50 * time.Millisecond, 100 * time.Millisecond})
}

func jobKey(w *world) {
	acme, globex := w.neighbours("acme")
	first := w.newJob(acme, outbox.JobReplay, outbox.JobFilter{State: outbox.ReplayDead})
	first.Key = "k"
	stored, err := w.store.CreateJob(w.ctx, first)
	w.must(err)
	w.now = w.now.Add(time.Minute)
	second := w.newJob(acme, outbox.JobReplay, outbox.JobFilter{State: outbox.ReplayDead})
	second.Key = "k"
	again, err := w.store.CreateJob(w.ctx, second)
	w.must(err)
	w.equal("the same job", again.ID, stored.ID)
	_, err = w.store.CreateJob(w.ctx, first) // its commit was not answered
	w.must(err)
	second.Filter.State = outbox.ReplayAll
	if _, err := w.store.CreateJob(w.ctx, second); !errors.Is(err, outbox.ErrIdempotencyMismatch) {
		w.Errorf("another filter: %v", err)
	}
	theirs := w.newJob(globex, outbox.JobReplay, outbox.JobFilter{State: outbox.ReplayAll})
	theirs.Key = "k"
	_, err = w.store.CreateJob(w.ctx, theirs)
	w.must(err)
	w.equal("commands", len(w.ofKind(outbox.OutboxCommand)), 2)
}

func jobListed(w *world) {
	acme, globex := w.neighbours("acme")
	var made []outbox.Job
	for i := range 6 {
		w.now = w.now.Add(time.Second)
		tenant, jobType := acme, outbox.JobReplay
		if i == 2 {
			tenant = globex
		}
		if i == 3 {
			jobType = outbox.JobCancellation
		}
		job := w.newJob(tenant, jobType, outbox.JobFilter{
			From: w.now.Add(-time.Hour), To: w.now, EventTypes: []string{"a.*"}, State: outbox.ReplayDead, Endpoint: outbox.NewEndpointID(w.now),
		})
		job.Rate, job.Reason, job.Key = 12.5, "Because.", fmt.Sprint("k", i)
		job, err := w.store.CreateJob(w.ctx, job)
		w.must(err)
		made = append(made, job)
	}
	for _, job := range made {
		w.equal("as it was made", w.readJob(job), job)
		other := globex
		if job.Tenant == globex.TenantRef {
			other = acme
		}
		for what, c := range map[string]struct {
			tenant outbox.TenantRef
			types  []outbox.JobType
		}{
			"another tenant": {other.TenantRef, everyJobType},
			"another type":   {job.Tenant, []outbox.JobType{outbox.JobDeleteTenant}},
		} {
			if _, err := w.store.Job(w.ctx, c.tenant, c.types, job.ID); !errors.Is(err, outbox.ErrNotFound) {
				w.Errorf("%s: %v", what, err)
			}
			if _, err := w.store.RequestJobCancel(w.ctx, c.tenant, c.types, job.ID); !errors.Is(err, outbox.ErrNotFound) {
				w.Errorf("cancelling, %s: %v", what, err)
			}
		}
		_, err := w.store.Job(w.ctx, outbox.TenantRef{}, everyJobType, job.ID)
		w.must(err)
	}
	list := func(q outbox.JobQuery, page outbox.Page) []outbox.Job {
		w.Helper()
		jobs, err := w.store.Jobs(w.ctx, q, page)
		w.must(err)
		return jobs
	}
	replays := []outbox.JobType{outbox.JobReplay}
	w.equal("acme's replays", list(outbox.JobQuery{Tenant: acme.TenantRef, Types: replays}, outbox.Page{Limit: 2}), []outbox.Job{made[5], made[4]})
	w.equal("the next", list(outbox.JobQuery{Tenant: acme.TenantRef, Types: replays, After: made[4].ID}, outbox.Page{Limit: 2}), []outbox.Job{made[1], made[0]})
	w.equal("oldest first", list(outbox.JobQuery{Types: everyJobType}, outbox.Page{Limit: 3, Ascending: true}), made[:3])
	w.equal("and on", list(outbox.JobQuery{Types: everyJobType, After: made[2].ID}, outbox.Page{Limit: 9, Ascending: true}), made[3:])
}

func jobManySteps(w *world) {
	large(w)
	acme := w.tenant("acme")
	w.endpoint(acme, "*")
	var want []outbox.Delivery
	for range 5 {
		var batch []outbox.NewEvent
		for i := range 1000 {
			eventType := "common"
			if i%100 == 0 {
				eventType = "rare"
			}
			batch = append(batch, w.event(acme, eventType, `{}`))
		}
		w.publish(batch...)
		var results []outbox.Result
		for i, d := range w.route() {
			if i%2 == 0 {
				results = append(results, w.refused(d))
			} else {
				results = append(results, w.delivered(d))
			}
			if d.EventType == "rare" {
				want = append(want, d)
			}
		}
		w.finish(results...)
		w.now = w.now.Add(time.Millisecond)
	}
	w.now = w.now.Add(time.Second)
	job, planned := w.replayed(acme, outbox.JobFilter{State: outbox.ReplayAll, EventTypes: []string{"rare"}})
	w.equal("planned", set(planned), ids(want))
	w.equal("figures", tally(job), [5]int64{50, 0, 0, 0, 0})
	w.verify()
}

func jobStrict(w *world) {
	acme := w.tenant("acme")
	e := w.strict(acme, outbox.OnDeadSkip)
	all, _ := w.plannedKeys(acme, "k", "k", "k")
	for _, d := range all {
		w.finish(w.refused(w.stored(d)))
	}
	w.now = w.now.Add(time.Second)
	job := w.create(w.newJob(acme, outbox.JobReplay, outbox.JobFilter{State: outbox.ReplayDead}))
	step := w.step(job, 10)
	w.equal("due", len(step.Due), 1)
	w.equal("its number", step.Due[0].Sequence, int64(1))
	for number := int64(1); number <= 3; number++ {
		w.dueNumbers("whose turn it is", e, number)
		w.finish(w.delivered(w.due(e)[0]))
	}
	w.equal("figures", tally(w.settledJob(job)), [5]int64{3, 3, 3, 0, 0})
	w.verify()
}
