package outboxtest

import (
	"errors"
	"time"

	"pgregory.net/rapid"

	"github.com/waybill-dev/waybill/internal/outbox"
)

var jobIsolation = topic{"jobs and tenants", []promise{
	{"no job touches another tenant's row", jobsCrossNothing},
	{"a node that lost the shard does nothing for a job", jobFenced},
}}

// jobsCrossNothing runs random jobs of one tenant beside another's rows of every sort, in the same
// shard.
func jobsCrossNothing(w *world) {
	victim, attacker := w.neighbours("acme")
	w.own()
	w.furnish(victim)
	w.furnish(attacker)
	w.route()
	views := w.listDeliveries(outbox.DeliveryQuery{Tenant: victim.TenantRef}, 250, false)
	target, err := w.store.Endpoint(w.ctx, victim.TenantRef, outbox.EndpointRef{UID: "main"})
	w.must(err)
	var foreign []outbox.DeliveryID
	var events []outbox.EventID
	for _, v := range views {
		foreign, events = append(foreign, v.ID), append(events, v.Event)
	}
	known, err := w.store.DeliveriesOf(w.ctx, attacker.TenantRef, foreign)
	w.must(err)
	w.equal("the other's, asked for as one's own", len(known), 0)
	before := w.possessions(victim.Key)
	w.property(2*time.Second, func(t *rapid.T) {
		w := w.within(t)
		w.now = w.now.Add(time.Duration(rapid.IntRange(1, 1000).Draw(t, "later")) * time.Millisecond)
		filter := outbox.JobFilter{State: rapid.SampledFrom([]outbox.ReplayOf{
			outbox.ReplayDead, outbox.ReplayDelivered, outbox.ReplayCancelled, outbox.ReplayAll,
		}).Draw(t, "state")}
		if rapid.Bool().Draw(t, "by endpoint") {
			filter.Endpoint = target.ID
		}
		if rapid.Bool().Draw(t, "by time") {
			filter.From, filter.To = w.now.Add(-24*time.Hour), w.now.Add(time.Hour)
		}
		jobType := outbox.JobReplay
		if rapid.Bool().Draw(t, "cancel") {
			jobType, filter.State = outbox.JobCancellation, ""
			if rapid.Bool().Draw(t, "by event") {
				filter.Events = events
			}
		} else if rapid.Bool().Draw(t, "by id") {
			filter.Deliveries = foreign
		}
		job, touched := w.runJob(w.create(w.newJob(attacker, jobType, filter)))
		for _, id := range touched {
			if _, err := w.store.Delivery(w.ctx, attacker.TenantRef, id); err != nil {
				t.Fatalf("%s touched %s: %v", job.Name(), id, err)
			}
		}
		if filter.Deliveries != nil || filter.Endpoint == target.ID {
			w.equal("touched of the other's", len(touched), 0)
		}
		if rapid.Bool().Draw(t, "stop") {
			w.recall(w.stop(job))
		}
		w.equal("what the other has", w.possessions(victim.Key), before)
	})
	w.verify()
}

func jobFenced(w *world) {
	acme := w.tenant("acme")
	w.endpoint(acme, "*")
	w.refusedMany(acme, "a", 3)
	job := w.create(w.newJob(acme, outbox.JobReplay, outbox.JobFilter{State: outbox.ReplayDead}))
	_, err := w.store.RequestJobCancel(w.ctx, acme.TenantRef, everyJobType, job.ID)
	w.must(err)
	row := w.ofKind(outbox.OutboxCommand)[0]
	old := w.lease
	w.own()
	_, takeErr := w.store.TakeJob(w.ctx, old, row)
	_, stepErr := w.store.StepJob(w.ctx, old, job, 10, 0, w.now)
	_, recallErr := w.store.RecallJob(w.ctx, old, job, nil, 10, w.now)
	_, planErr := w.store.PlanMissing(w.ctx, old, job, outbox.MissingPage{Last: true}, nil, nil, w.now)
	for what, err := range map[string]error{"take": takeErr, "step": stepErr, "recall": recallErr, "plan": planErr} {
		if !errors.Is(err, outbox.ErrFenced) {
			w.Errorf("%s: %v", what, err)
		}
	}
	w.waiting(1)
	w.equal("the job", w.readJob(job), job)
}
