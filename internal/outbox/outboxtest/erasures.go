package outboxtest

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

var erasures = topic{"erasures", []promise{
	{"metadata, types, ids and times say whose bytes go, and the books stay", erasureFilters},
	{"a step that is run again, and an owner that takes over, tell of every event and count it once", erasureResumes},
	{"what is published later, or is another tenant's, stays", erasureLeavesOthers},
	{"what is erased already, or was never there, is skipped", erasureSkips},
	{"counting writes nothing, and says when there is too much to look through", erasureCounts},
	{"stopped, it leaves the rest", erasureStopped},
	{"it takes many steps over more events than one step reads", erasureManySteps},
}}

// of publishes an event with metadata.
func (w *world) of(tenant outbox.Tenant, eventType string, metadata map[string]string) outbox.EventID {
	w.Helper()
	e := w.event(tenant, eventType, `{"name":"Ada"}`)
	e.Metadata = metadata
	w.publish(e)
	return e.ID
}

// kept are those of the events whose bytes are there.
func (w *world) kept(tenant outbox.Tenant, ids ...outbox.EventID) map[outbox.EventID]bool {
	w.Helper()
	kept := map[outbox.EventID]bool{}
	for _, id := range ids {
		payload, err := w.store.Payload(w.ctx, tenant.TenantRef, id)
		if errors.Is(err, outbox.ErrPayloadGone) {
			continue
		}
		w.must(err)
		w.equal("payload", string(payload), `{"name":"Ada"}`)
		kept[id] = true
	}
	return kept
}

func eventSet(ids ...outbox.EventID) map[outbox.EventID]bool {
	found := map[outbox.EventID]bool{}
	for _, id := range ids {
		found[id] = true
	}
	return found
}

// runErasure lets the owner do all of an erasure, and returns what it was told.
func (w *world) runErasure(job outbox.Job, limit int) (outbox.Job, map[outbox.EventID]bool) {
	w.Helper()
	told := map[outbox.EventID]bool{}
	for range 1000 {
		step := w.step(job, limit)
		maps.Copy(told, eventSet(step.Erased...))
		if job = step.Job; job.State.Ended() {
			w.equal("as people read it", w.readJob(job), job)
			return job, told
		}
	}
	w.Fatal("the erasure has no end")
	panic("unreachable")
}

func erasureFilters(w *world) {
	acme := w.tenant("acme")
	w.endpoint(acme, "*")
	person := map[string]string{"person": "p_1"}
	w.now = w.now.Add(time.Second)
	from := w.now.Truncate(time.Millisecond)
	w.now = from
	a := w.of(acme, "order.paid", map[string]string{"person": "p_1", "basket": "b"})
	b := w.of(acme, "order.sent", person)
	another := w.of(acme, "order.paid", map[string]string{"person": "p_10"})
	none := w.of(acme, "order.paid", nil)
	w.now = w.now.Add(time.Minute)
	late := w.of(acme, "order.paid", person)
	all := []outbox.EventID{a, b, another, none, late}
	planned := w.route()
	w.equal("planned", len(planned), 5)
	for _, step := range []struct {
		filter outbox.JobFilter
		gone   []outbox.EventID
	}{
		{outbox.JobFilter{Metadata: map[string]string{"person": "p_1", "basket": "c"}}, nil},
		{outbox.JobFilter{Metadata: person, EventTypes: []string{"order.sent"}, To: from}, nil},
		{outbox.JobFilter{Metadata: person, EventTypes: []string{"order.sent.*", "x"}}, nil},
		{outbox.JobFilter{Metadata: person, EventTypes: []string{"order.*"}, From: from, To: from.Add(time.Second)}, []outbox.EventID{a, b}},
		{outbox.JobFilter{Metadata: person}, []outbox.EventID{late}},
		{outbox.JobFilter{Events: []outbox.EventID{another, none}, Metadata: map[string]string{"person": "p_10"}}, []outbox.EventID{another}},
		{outbox.JobFilter{Events: []outbox.EventID{none}}, []outbox.EventID{none}},
	} {
		before := w.kept(acme, all...)
		job := w.newJob(acme, outbox.JobErasure, step.filter)
		w.equal("counted", w.count(job), len(step.gone))
		job = w.create(job)
		job, _ = w.runErasure(job, 1)
		w.equal("figures", tally(job), [5]int64{int64(len(step.gone)), int64(len(step.gone)), 0, 0, 0})
		w.equal("state", job.State, outbox.JobDone)
		for _, id := range step.gone {
			delete(before, id)
		}
		w.equal("left", w.kept(acme, all...), before)
	}
	for i := range planned {
		w.equal("what waits", w.view(planned[i]).State, outbox.StatePending)
	}
	w.equal("pending", w.verify().Pending, int64(5))
}

func erasureResumes(w *world) {
	acme := w.tenant("acme")
	var ids []outbox.EventID
	for i := range 7 {
		ids = append(ids, w.of(acme, "a", map[string]string{"person": fmt.Sprint("p_", i%2)}))
	}
	mine := eventSet(ids[0], ids[2], ids[4], ids[6])
	w.now = w.now.Add(time.Second)
	job := w.create(w.newJob(acme, outbox.JobErasure, outbox.JobFilter{Metadata: map[string]string{"person": "p_0"}}))
	told := map[outbox.EventID]bool{}
	for range 9 {
		first := w.step(job, 3)
		// Its answer was lost: what it erased is told by the next run of the same call.
		again := w.step(job, 3)
		w.equal("told again", slices.Equal(again.Erased, first.Erased), true)
		w.equal("counted once", tally(again.Job), tally(first.Job))
		w.equal("as far", again.Job.Cursor, first.Job.Cursor)
		maps.Copy(told, eventSet(again.Erased...))
		w.own()
		jobs, err := w.store.LoadJobs(w.ctx, w.scope)
		w.must(err)
		if len(jobs) == 0 {
			break
		}
		job = jobs[0]
	}
	w.equal("told", told, mine)
	done := w.readJob(job)
	w.equal("figures", tally(done), [5]int64{4, 4, 0, 0, 0})
	w.equal("state", done.State, outbox.JobDone)
	w.equal("left", w.kept(acme, ids...), eventSet(ids[1], ids[3], ids[5]))
	w.equal("after its end", len(w.step(done, 5).Erased), 0)
}

func erasureLeavesOthers(w *world) {
	for key, pair := range map[string]func(string) (outbox.Tenant, outbox.Tenant){"near": w.neighbours, "far": w.strangers} {
		acme, globex := pair(key)
		person := map[string]string{"person": "p_1"}
		gone, theirs := w.of(acme, "a", person), w.of(globex, "a", person)
		w.now = w.now.Add(time.Second)
		job := w.create(w.newJob(acme, outbox.JobErasure, outbox.JobFilter{Metadata: person}))
		w.now = w.now.Add(time.Second)
		later := w.of(acme, "a", person)
		_, told := w.runErasure(job, 10)
		w.equal("told", told, eventSet(gone))
		w.equal("left", w.kept(acme, gone, later), eventSet(later))
		empty, err := w.store.Event(w.ctx, acme.TenantRef, gone)
		w.must(err)
		full, err := w.store.Event(w.ctx, acme.TenantRef, later)
		w.must(err)
		w.equal("how many bytes it had", empty.PayloadBytes, full.PayloadBytes)
		byID := w.create(w.newJob(acme, outbox.JobErasure, outbox.JobFilter{Events: []outbox.EventID{theirs}}))
		done, told := w.runErasure(byID, 10)
		w.equal("told", len(told), 0)
		w.equal("figures", tally(done), [5]int64{0, 0, 0, 0, 0})
		w.equal("theirs", w.kept(globex, theirs), eventSet(theirs))
	}
}

func erasureSkips(w *world) {
	acme := w.tenant("acme")
	first, second := w.of(acme, "a", nil), w.of(acme, "a", nil)
	w.must(w.store.ErasePayload(w.ctx, acme.TenantRef, first))
	w.owned()
	w.forgotten()
	w.now = w.now.Add(time.Second)
	job := w.newJob(acme, outbox.JobErasure, outbox.JobFilter{Events: []outbox.EventID{first, second, outbox.NewEventID(w.now)}})
	job.Matched = 3
	job, err := w.store.CreateJob(w.ctx, job)
	w.must(err)
	done, _ := w.runErasure(w.takeJob(job), 10)
	w.equal("figures", tally(done), [5]int64{3, 3, 0, 0, 2})
	w.equal("left", len(w.kept(acme, first, second)), 0)
}

func erasureCounts(w *world) {
	acme := w.tenant("acme")
	var ids []outbox.EventID
	for i := range 5 {
		ids = append(ids, w.of(acme, "a", map[string]string{"n": fmt.Sprint(i % 2)}))
	}
	job := w.newJob(acme, outbox.JobErasure, outbox.JobFilter{Metadata: map[string]string{"n": "1"}})
	_, capped, err := w.store.CountJob(w.ctx, job, 4)
	w.must(err)
	w.equal("5 events where 4 may be read", capped, true)
	n, capped, err := w.store.CountJob(w.ctx, job, 5)
	w.must(err)
	w.equal("5 events where 5 may be read", fmt.Sprint(n, capped), "2 false")
	w.equal("left", len(w.kept(acme, ids...)), 5)
}

func erasureStopped(w *world) {
	acme := w.tenant("acme")
	var ids []outbox.EventID
	for range 5 {
		ids = append(ids, w.of(acme, "a", nil))
	}
	slices.SortFunc(ids, func(a, b outbox.EventID) int { return bytes.Compare(a[:], b[:]) })
	w.now = w.now.Add(time.Second)
	step := w.step(w.create(w.newJob(acme, outbox.JobErasure, outbox.JobFilter{Events: ids})), 2)
	stopping := w.stop(step.Job)
	w.equal("a step meanwhile", len(w.step(step.Job, 2).Erased), 0)
	job, taken := w.recall(stopping)
	w.equal("taken back", len(taken), 0)
	w.equal("state", job.State, outbox.JobCancelled)
	w.equal("figures", tally(job), [5]int64{5, 2, 0, 0, 0})
	w.equal("left", w.kept(acme, ids...), eventSet(ids[2:]...))
}

func erasureManySteps(w *world) {
	large(w)
	acme := w.tenant("acme")
	var mine []outbox.EventID
	for range 5 {
		var batch []outbox.NewEvent
		for i := range 1000 {
			e := w.event(acme, "a", `{"name":"Ada"}`)
			if i%250 == 0 {
				e.Metadata = map[string]string{"person": "p_1"}
				mine = append(mine, e.ID)
			}
			batch = append(batch, e)
		}
		w.publish(batch...)
		w.now = w.now.Add(time.Millisecond)
	}
	w.now = w.now.Add(time.Second)
	job, told := w.runErasure(w.create(w.newJob(acme, outbox.JobErasure, outbox.JobFilter{Metadata: map[string]string{"person": "p_1"}})), 500)
	w.equal("told", told, eventSet(mine...))
	w.equal("figures", tally(job), [5]int64{20, 20, 0, 0, 0})
	w.equal("left", len(w.kept(acme, mine...)), 0)
}
