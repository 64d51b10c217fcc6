package dispatch

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waybill-dev/waybill/internal/attempt"
	"github.com/waybill-dev/waybill/internal/outbox"
)

// job asks for a job.
func (r *rig) job(tenant outbox.TenantRef, jobType outbox.JobType, filter outbox.JobFilter, rate float64) outbox.Job {
	r.t.Helper()
	now := r.clock.Now()
	job, err := r.store.CreateJob(r.t.Context(), outbox.Job{
		ID: outbox.NewJobID(now), Type: jobType, Tenant: tenant, TenantKey: "acme", Filter: filter, Rate: rate,
		CreatedBy: "Ops", CreatedAt: now, State: outbox.JobRunning,
	})
	if err != nil {
		r.t.Fatal(err)
	}
	if r.node != nil {
		r.node.Wrote(tenant.Shard)
	}
	return job
}

func (r *rig) stopJob(job outbox.Job) {
	r.t.Helper()
	if _, err := r.store.RequestJobCancel(r.t.Context(), job.Tenant, []outbox.JobType{job.Type}, job.ID); err != nil {
		r.t.Fatal(err)
	}
	r.node.Wrote(job.Tenant.Shard)
}

func (r *rig) readJob(job outbox.Job) outbox.Job {
	r.t.Helper()
	stored, err := r.store.Job(r.t.Context(), job.Tenant, []outbox.JobType{job.Type}, job.ID)
	if err != nil {
		r.t.Fatal(err)
	}
	return stored
}

// jobEnds waits for a job to end in the state.
func (r *rig) jobEnds(job outbox.Job, state outbox.JobState) outbox.Job {
	r.t.Helper()
	var got outbox.Job
	r.eventually("the job "+string(state), func() bool {
		got = r.readJob(job)
		return got.State == state
	})
	return got
}

// dead makes n dead letters of the tenant's endpoint. Their server is well, as far as the node
// knows: a breaker that opens would hold the replays back.
func (r *rig) dead(tenant outbox.TenantRef, n int) []outbox.EventID {
	r.t.Helper()
	r.store.set(func(f *faulty) {
		f.finish = func(results []outbox.Result, _ func() (outbox.Finished, error)) (outbox.Finished, error) {
			for i := range results {
				attempt := *results[i].Attempt
				attempt.Outcome, attempt.Kind, attempt.StatusCode = outbox.OutcomePermanent, outbox.KindHTTPStatus, 404
				results[i].Attempt, results[i].Delivered, results[i].Dead = &attempt, false, outbox.DeadPermanent
			}
			return r.store.Store.Finish(context.Background(), results)
		}
	})
	events := r.publish(tenant, n, true)
	r.settled(tenant, map[outbox.DeliveryState]int{outbox.StateDead: n})
	r.store.set(func(f *faulty) { f.finish = nil })
	return events
}

// replays are the events sent by replays, in order.
func (s *scripted) replays() []outbox.EventID {
	var events []outbox.EventID
	for _, x := range s.all() {
		if x.Trigger == outbox.TriggerReplay {
			events = append(events, x.Event)
		}
	}
	return events
}

func TestJob_replaysDeadLetters(t *testing.T) {
	r := newRig(t)
	acme := r.tenant("acme", nil)
	r.endpoint(acme, "crm", nil)
	var mu sync.Mutex
	var told []Notice
	r.notify = func(n Notice) {
		mu.Lock()
		defer mu.Unlock()
		if n.Type == NoticeReplayed {
			told = append(told, n)
		}
	}
	r.run()
	events := r.dead(acme, 30)
	job := r.job(acme, outbox.JobReplay, outbox.JobFilter{State: outbox.ReplayDead}, 0)
	done := r.jobEnds(job, outbox.JobDone)
	if done.Done != 30 || done.Delivered != 30 {
		t.Errorf("%+v", done)
	}
	sent := r.sender.replays()
	if len(sent) != 30 || len(distinct(sent)) != 30 || len(distinct(append(sent, events...))) != 30 {
		t.Errorf("%d replays of %d events", len(sent), len(distinct(sent)))
	}
	r.settled(acme, map[outbox.DeliveryState]int{outbox.StateDelivered: 30})
	r.balanced()
	r.halt()
	if len(told) != 1 || told[0].Job.Delivered != 30 || told[0].Tenant.Key != "acme" {
		t.Errorf("told %+v", told)
	}
}

func distinct[T comparable](list []T) map[T]bool {
	set := map[T]bool{}
	for _, v := range list {
		set[v] = true
	}
	return set
}

// Two processes die in the middle of it. Nothing is left out and, since the cursor moves with what
// is planned, nothing is planned twice.
func TestJob_survivesItsOwner(t *testing.T) {
	r := newRig(t)
	acme := r.tenant("acme", nil)
	r.endpoint(acme, "crm", nil)
	r.run()
	r.dead(acme, 1300)
	// Nothing is sent, so what is planned stays to be counted.
	r.edit(acme, "crm", func(e *outbox.Endpoint) { e.State = outbox.EndpointPaused })
	r.halt()
	asked := false
	for range 2 {
		r.store.set(func(f *faulty) { f.steps, f.frozen = 1, false })
		r.run()
		if !asked {
			r.job(acme, outbox.JobReplay, outbox.JobFilter{State: outbox.ReplayDead}, 0)
			asked = true
		}
		r.eventually("a step, and no more", func() bool {
			r.store.mu.Lock()
			defer r.store.mu.Unlock()
			return r.store.frozen
		})
		r.halt()
	}
	r.store.set(func(f *faulty) { f.frozen = false })
	r.run()
	r.edit(acme, "crm", func(e *outbox.Endpoint) { e.State = outbox.EndpointActive })
	jobs, err := r.store.Jobs(t.Context(), outbox.JobQuery{Types: []outbox.JobType{outbox.JobReplay}}, outbox.Page{Limit: 10})
	if err != nil || len(jobs) != 1 {
		t.Fatal(jobs, err)
	}
	done := r.jobEnds(jobs[0], outbox.JobDone)
	if done.Delivered != 1300 || done.Skipped != 0 {
		t.Errorf("%+v", done)
	}
	if sent := r.sender.replays(); len(sent) != 1300 || len(distinct(sent)) != 1300 {
		t.Errorf("%d replays of %d events", len(sent), len(distinct(sent)))
	}
	r.balanced()
}

func TestJob_keepsItsRate(t *testing.T) {
	r := newRig(t)
	acme := r.tenant("acme", nil)
	r.endpoint(acme, "crm", nil)
	r.run()
	r.dead(acme, 50)
	began := time.Now()
	job := r.job(acme, outbox.JobReplay, outbox.JobFilter{State: outbox.ReplayDead}, 20)
	r.jobEnds(job, outbox.JobDone)
	// 50 at 20 a second: the last begins 2.45 s after the first.
	if took := time.Since(began); took < 2400*time.Millisecond {
		t.Errorf("took %v", took)
	}
}

// A job that is stopped starts nothing more, and takes back what waits.
func TestJob_stops(t *testing.T) {
	r := newRig(t)
	acme := r.tenant("acme", nil)
	r.endpoint(acme, "crm", nil)
	r.run()
	r.dead(acme, 600)
	release := make(chan struct{})
	r.sender.script(func(context.Context, sent) attempt.Outcome {
		<-release
		return delivered()
	})
	job := r.job(acme, outbox.JobReplay, outbox.JobFilter{State: outbox.ReplayDead}, 0)
	r.eventually("replays under way", func() bool { return len(r.sender.replays()) > 0 })
	began := time.Now()
	r.stopJob(job)
	r.eventually("the rest dead again", func() bool {
		return r.states(acme)[outbox.StateDead] >= 600-outbox.DefaultMaxInFlight
	})
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("took %v", took)
	}
	flying := len(r.sender.replays())
	close(release)
	done := r.jobEnds(job, outbox.JobCancelled)
	if int(done.Delivered) != flying || done.Done != done.Delivered {
		t.Errorf("%d were under way: %+v", flying, done)
	}
	if sent := len(r.sender.replays()); sent != flying {
		t.Errorf("%d started after it was stopped", sent-flying)
	}
	r.settled(acme, map[outbox.DeliveryState]int{outbox.StateDelivered: flying, outbox.StateDead: 600 - flying})
	r.balanced()
	// Its end lets other replays start.
	again := r.job(acme, outbox.JobReplay, outbox.JobFilter{State: outbox.ReplayDead}, 0)
	r.jobEnds(again, outbox.JobDone)
}

func TestJob_plansWhatIsMissing(t *testing.T) {
	r := newRig(t)
	acme := r.tenant("acme", nil)
	r.endpoint(acme, "first", nil)
	r.run()
	old := r.publish(acme, 12, true)
	r.settled(acme, map[outbox.DeliveryState]int{outbox.StateDelivered: 12})
	late := r.endpoint(acme, "late", nil)
	r.endpoint(acme, "deaf", func(e *outbox.Endpoint) { e.EventTypes = []string{"other"} })
	// Of the payloads, numbered from 0, six pass.
	r.endpoint(acme, "choosy", func(e *outbox.Endpoint) { e.Filter = `{"n":{"$gte":6}}` })
	// Live ones go on meanwhile, numbered with the others.
	job := r.job(acme, outbox.JobReplay, outbox.JobFilter{State: outbox.ReplayMissing}, 0)
	r.publish(acme, 5, true)
	done := r.jobEnds(job, outbox.JobDone)
	if done.Matched != 12+6 || done.Delivered != 12+6 {
		t.Errorf("%+v", done)
	}
	r.settled(acme, map[outbox.DeliveryState]int{outbox.StateDelivered: 12 + 12 + 6 + 10})
	sent := r.sender.replays()
	if slices.ContainsFunc(old, func(id outbox.EventID) bool { return !slices.Contains(sent, id) }) || len(sent) != 12+6 {
		t.Errorf("%d replays", len(sent))
	}
	seen := map[int64]bool{}
	for _, x := range r.sender.all() {
		if x.url == "https://late.example/hook" {
			seen[x.Sequence] = true
		}
	}
	for n := int64(1); n <= 17; n++ {
		if !seen[n] {
			t.Errorf("endpoint %s never got number %d", late, n)
		}
	}
	r.balanced()
}

func TestJob_cancelsWhatWaits(t *testing.T) {
	r := newRig(t)
	acme := r.tenant("acme", nil)
	r.endpoint(acme, "crm", nil)
	r.run()
	r.sender.script(func(context.Context, sent) attempt.Outcome {
		o := failed(503)
		o.RetryAfter = time.Hour
		return o
	})
	r.publish(acme, 40, true)
	r.eventually("all tried once or waiting", func() bool { return r.states(acme)[outbox.StatePending] == 40 })
	job := r.job(acme, outbox.JobCancellation, outbox.JobFilter{}, 0)
	done := r.jobEnds(job, outbox.JobDone)
	if done.Done != 40 {
		t.Errorf("%+v", done)
	}
	r.settled(acme, map[outbox.DeliveryState]int{outbox.StateCancelled: 40})
	r.balanced()
}

// A server that asks for a pause is left alone, and it alone.
func TestNode_retryAfterSlowsThatEndpointOnly(t *testing.T) {
	r := newRig(t)
	acme := r.tenant("acme", nil)
	r.endpoint(acme, "limited", nil)
	r.endpoint(acme, "other", nil)
	r.run()
	r.sender.script(func(_ context.Context, s sent) attempt.Outcome {
		if s.url != "https://limited.example/hook" {
			return delivered()
		}
		o := failed(429)
		o.RetryAfter = time.Hour
		return o
	})
	r.publish(acme, 100, true)
	r.settled(acme, map[outbox.DeliveryState]int{outbox.StateDelivered: 100, outbox.StatePending: 100})
	r.publish(acme, 20, true)
	r.settled(acme, map[outbox.DeliveryState]int{outbox.StateDelivered: 120, outbox.StatePending: 120})
	limited := 0
	for _, x := range r.sender.all() {
		if x.url == "https://limited.example/hook" {
			limited++
		}
	}
	// Those that were under way when it asked first, and nothing since.
	if limited > outbox.DefaultMaxInFlight {
		t.Errorf("%d requests to the one that asked for a pause", limited)
	}
}

// A job whose next step the database refuses, however often, does not stay "running" for ever; one
// that only meets an outage does.
func TestJob_thatCannotGoOnFails(t *testing.T) {
	for name, c := range map[string]struct {
		fault outbox.Fault
		ends  outbox.JobState
	}{
		"refused":         {outbox.FaultRefused, outbox.JobFailed},
		"broken":          {outbox.FaultBroken, outbox.JobFailed},
		"no database":     {outbox.FaultRetry, outbox.JobDone},
		"a commit is cut": {outbox.FaultUnknown, outbox.JobDone},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t)
			var told []outbox.JobState
			r.notify = func(n Notice) {
				r.sender.mu.Lock()
				defer r.sender.mu.Unlock()
				if n.Type == NoticeReplayed {
					told = append(told, n.Job.State)
				}
			}
			acme := r.tenant("acme", nil)
			r.endpoint(acme, "crm", nil)
			r.run()
			r.dead(acme, 3)
			r.store.set(func(f *faulty) { f.refuse = &outbox.WriteError{Fault: c.fault, Err: errors.New("no")} })
			job := r.job(acme, outbox.JobReplay, outbox.JobFilter{State: outbox.ReplayDead}, 0)
			time.Sleep(2 * time.Minute)
			r.store.set(func(f *faulty) { f.refuse = nil })
			r.jobEnds(job, c.ends)
			r.halt()
			if !slices.Equal(told, []outbox.JobState{c.ends}) {
				t.Errorf("%s: told %v, want %s", name, told, c.ends)
			}
			r.balanced()
		})
	}
}
