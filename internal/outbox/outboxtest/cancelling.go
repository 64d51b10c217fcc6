package outboxtest

import (
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

var cancelling = topic{"cancelling", []promise{
	{"a command ends the endpoint's pending deliveries, a few at a time", cancelEndpoint},
	{"a command ends the tenant's pending deliveries and no neighbour's", cancelTenant},
	{"a command with a time ends only what was planned by then", cancelBefore},
	{"replays are cancelled too", cancelReplays},
	{"what goes with its endpoint or tenant says so, tried or not", cancelSaysWhy},
	{"a command run again does nothing", cancelRunAgain},
	{"a command with nothing to do is done", cancelNothing},
}}

var expiring = topic{"expiring", []promise{
	{"what was planned before the time ends, a few at a time", expireOld},
	{"only the lease's shards expire", expireOwnShards},
	{"age counts from planning or replay, not from the event", expireCountsFromPlanning},
}}

// command writes a command for the endpoint and returns its outbox row.
func (w *world) command(e outbox.Endpoint, c outbox.Command) outbox.OutboxRow {
	w.Helper()
	_, err := w.store.EditEndpoint(w.ctx, e.Tenant, outbox.EndpointRef{ID: e.ID}, w.now, func(*outbox.Endpoint) ([]outbox.Command, error) {
		return []outbox.Command{c}, nil
	})
	w.must(err)
	rows := w.ofKind(outbox.OutboxCommand)
	return rows[len(rows)-1]
}

// plannedMany publishes count events of the type and returns their deliveries.
func (w *world) plannedMany(tenant outbox.Tenant, eventType string, count int) []outbox.Delivery {
	w.Helper()
	var batch []outbox.NewEvent
	for range count {
		batch = append(batch, w.event(tenant, eventType, `{"n":1}`))
	}
	w.publish(batch...)
	return w.route()
}

// refusedMany is plannedMany with deliveries that are dead since a second ago.
func (w *world) refusedMany(tenant outbox.Tenant, eventType string, count int) []outbox.Delivery {
	w.Helper()
	planned := w.plannedMany(tenant, eventType, count)
	for _, d := range planned {
		w.finish(w.refused(d))
	}
	w.now = w.now.Add(time.Second)
	return planned
}

func ids(deliveries []outbox.Delivery) map[outbox.DeliveryID]bool {
	set := map[outbox.DeliveryID]bool{}
	for _, d := range deliveries {
		set[d.ID] = true
	}
	return set
}

func set(list []outbox.DeliveryID) map[outbox.DeliveryID]bool {
	set := map[outbox.DeliveryID]bool{}
	for _, id := range list {
		set[id] = true
	}
	return set
}

func cancelEndpoint(w *world) {
	acme := w.tenant("acme")
	e, other := w.endpoint(acme, "a"), w.endpoint(acme, "b")
	doomed := w.plannedMany(acme, "a", 10)
	spared := w.plannedMany(acme, "b", 2)
	tried := w.failed(doomed[4])
	w.finish(tried)
	w.now = w.now.Add(time.Second)
	row := w.command(e, outbox.Command{Name: outbox.CommandCancelEndpoint, Reason: "The endpoint was deleted."})

	var all []outbox.DeliveryID
	for done := false; !done; {
		ended, isDone, err := w.store.Cancel(w.ctx, w.lease, row, 4, w.now)
		w.must(err)
		if len(ended.Deliveries) > 4 || len(ended.Deliveries) == 0 && !isDone {
			w.Fatalf("%d ended, done %v", len(ended.Deliveries), isDone)
		}
		all = append(all, ended.Deliveries...)
		done = isDone
		if left := len(w.outbox()); done != (left == 0) {
			w.Errorf("done is %v and %d rows are left", done, left)
		}
		w.verify()
	}
	w.equal("ended", set(all), ids(doomed))
	w.equal("named once each", len(all), len(doomed))
	for _, d := range doomed {
		view := w.ended(d, outbox.StateCancelled)
		if view.Dead.Reason != outbox.DeadCancelled || view.Dead.Message != "The endpoint was deleted." || !view.Dead.At.Equal(w.now) || !view.FinishedAt.Equal(w.now) {
			w.Errorf("why: %+v", view.Dead)
		}
	}
	w.equal("last try of the one that was tried", w.view(doomed[4]).Last, summary(tried, 1))
	w.equal("the other endpoint's", len(w.pending(other, outbox.LaneLive)), len(spared))
	report := w.verify()
	w.equal("totals", []int64{report.Cancelled, report.Pending, report.Dead}, []int64{10, 2, 0})
}

func cancelTenant(w *world) {
	acme, globex := w.neighbours("acme")
	w.endpoint(acme, "*")
	w.endpoint(acme, "*")
	theirs := w.endpoint(globex, "*")
	doomed := w.plannedMany(acme, "a", 4)
	w.plannedMany(globex, "a", 3)
	_, err := w.store.DeleteTenant(w.ctx, "acme", "Ops", w.now)
	w.must(err)
	w.equal("ended", set(w.executeCommands()), ids(doomed))
	w.equal("the neighbour's", len(w.pending(theirs, outbox.LaneLive)), 3)
	for _, d := range doomed {
		view, err := w.store.Delivery(w.ctx, outbox.TenantRef{}, d.ID)
		w.must(err)
		w.equal("state", view.State, outbox.StateCancelled)
	}
	w.waiting(0)
	report := w.verify()
	w.equal("totals", []int64{report.Cancelled, report.Pending}, []int64{8, 3})
}

func cancelBefore(w *world) {
	acme := w.tenant("acme")
	e := w.endpoint(acme, "*")
	early := w.plannedMany(acme, "a", 3)
	w.now = w.now.Add(time.Minute)
	exact := w.plannedMany(acme, "a", 3)
	limit := w.now
	w.now = w.now.Add(time.Microsecond)
	late := w.plannedMany(acme, "a", 3)
	w.command(e, outbox.Command{Name: outbox.CommandCancelEndpoint, Before: limit})
	w.equal("ended", set(w.executeCommands()), ids(append(early, exact...)))
	for _, d := range late {
		w.equal("state", w.view(d).State, outbox.StatePending)
	}
	w.verify()
}

func cancelReplays(w *world) {
	e := w.endpoint(w.tenant("acme"), "*")
	d := w.planned(e, "a.b")
	w.finish(w.delivered(d))
	w.replay(d)
	w.command(e, outbox.Command{Name: outbox.CommandCancelEndpoint})
	w.equal("ended", w.executeCommands(), []outbox.DeliveryID{d.ID})
	view := w.ended(d, outbox.StateCancelled)
	w.equal("round", view.Round, 1)
	w.verify()
	// And back again.
	w.replay(d)
	w.equal("round", w.stored(d).Round, 2)
	w.verify()
}

func cancelSaysWhy(w *world) {
	for what, c := range map[string]struct {
		doom func(tenant outbox.Tenant, e outbox.Endpoint) error
		want string
	}{
		"endpoint": {func(tenant outbox.Tenant, e outbox.Endpoint) error {
			_, err := w.store.DeleteEndpoint(w.ctx, tenant.TenantRef, outbox.EndpointRef{ID: e.ID}, w.now, 1)
			return err
		}, outbox.ReasonEndpointDeleted},
		"tenant": {func(tenant outbox.Tenant, _ outbox.Endpoint) error {
			_, err := w.store.DeleteTenant(w.ctx, tenant.Key, "Ops", w.now)
			return err
		}, outbox.ReasonTenantDeleted},
	} {
		tenant := w.tenant(what)
		e := w.endpoint(tenant, "*")
		doomed := w.plannedMany(tenant, "a", 2)
		w.finish(w.failed(doomed[0]))
		w.must(c.doom(tenant, e))
		w.executeCommands()
		for _, d := range doomed {
			view, err := w.store.Delivery(w.ctx, outbox.TenantRef{}, d.ID)
			w.must(err)
			w.equal("why, with its "+what, view.Dead, &outbox.DeadInfo{Reason: outbox.DeadCancelled, Message: c.want, At: w.now})
		}
	}
}

func cancelRunAgain(w *world) {
	acme := w.tenant("acme")
	e := w.endpoint(acme, "*")
	w.plannedMany(acme, "a", 3)
	row := w.command(e, outbox.Command{Name: outbox.CommandCancelEndpoint})
	w.executeCommands()
	fresh := w.plannedMany(acme, "a", 2)
	// The commit was answered late: the command is gone and must not reach what came after it.
	ended, done, err := w.store.Cancel(w.ctx, w.lease, row, 10, w.now)
	w.must(err)
	if len(ended.Deliveries) != 0 || !done {
		w.Errorf("ended %v, done %v", ended, done)
	}
	w.equal("pending", len(w.pending(e, outbox.LaneLive)), len(fresh))
	w.verify()
}

func cancelNothing(w *world) {
	w.own()
	e := w.endpoint(w.tenant("acme"), "*")
	row := w.command(e, outbox.Command{Name: outbox.CommandCancelEndpoint})
	ended, done, err := w.store.Cancel(w.ctx, w.lease, row, 10, w.now)
	w.must(err)
	if len(ended.Deliveries) != 0 || !done {
		w.Errorf("ended %v, done %v", ended, done)
	}
	w.waiting(0)
}

func expireOld(w *world) {
	acme := w.tenant("acme")
	e := w.endpoint(acme, "*")
	old := w.plannedMany(acme, "a", 7)
	tried := w.failed(old[2])
	tried.RetryAt = w.now.Add(24 * time.Hour) // waiting for a try makes nobody younger
	w.finish(tried)
	w.now = w.now.Add(time.Hour)
	limit := w.now
	exact := w.plannedMany(acme, "a", 2)
	w.now = w.now.Add(time.Hour)
	var all []outbox.DeliveryID
	for {
		ended, err := w.store.Expire(w.ctx, w.lease, limit, 3, w.now)
		w.must(err)
		if len(ended.Deliveries) > 3 {
			w.Fatalf("%d ended, the limit was 3", len(ended.Deliveries))
		}
		if len(ended.Deliveries) == 0 {
			break
		}
		all = append(all, ended.Deliveries...)
		for i := range ended.Deliveries {
			w.equal("whose it was", ended.Endpoints[i], e.ID)
		}
		w.verify()
	}
	w.equal("ended", set(all), ids(old))
	w.equal("named once each", len(all), len(old))
	for _, d := range old {
		view := w.ended(d, outbox.StateDead)
		if view.Dead.Reason != outbox.DeadExpired || view.Dead.Message != outbox.ReasonExpired || !view.Dead.At.Equal(w.now) {
			w.Errorf("why: %+v", view.Dead)
		}
	}
	w.equal("last try of the one that was tried", w.view(old[2]).Last, summary(tried, 1))
	w.equal("pending", len(w.pending(e, outbox.LaneLive)), len(exact))
	report := w.verify()
	w.equal("totals", []int64{report.Dead, report.Pending}, []int64{7, 2})
}

func expireOwnShards(w *world) {
	acme, globex := w.strangers("acme")
	w.endpoint(acme, "*")
	theirs := w.endpoint(globex, "*")
	mine := w.plannedMany(acme, "a", 2)
	w.plannedMany(globex, "a", 2)
	part := outbox.Lease{Node: w.lease.Node, Epochs: map[outbox.Shard]int64{acme.Shard: w.lease.Epochs[acme.Shard]}}
	ended, err := w.store.Expire(w.ctx, part, w.now.Add(time.Hour), 100, w.now)
	w.must(err)
	w.equal("ended", set(ended.Deliveries), ids(mine))
	w.equal("the other shard's", len(w.pending(theirs, outbox.LaneLive)), 2)
	w.verify()
}

func expireCountsFromPlanning(w *world) {
	acme := w.tenant("acme")
	w.endpoint(acme, "*")
	// The event's id is of yesterday; it was planned now.
	event := w.event(acme, "a", `{}`)
	event.ID, event.Chosen = outbox.NewEventID(w.now.Add(-23*time.Hour)), true
	w.publish(event)
	w.route()
	// Died long ago, replayed now.
	replayed := w.plannedMany(acme, "a", 1)[0]
	w.finish(w.refused(replayed))
	w.now = w.now.Add(time.Minute)
	w.replay(replayed)
	ended, err := w.store.Expire(w.ctx, w.lease, w.now.Add(-time.Minute), 100, w.now)
	w.must(err)
	w.equal("ended", ended.Deliveries, []outbox.DeliveryID{})
	ended, err = w.store.Expire(w.ctx, w.lease, w.now, 100, w.now)
	w.must(err)
	w.equal("ended", len(ended.Deliveries), 1)
	ended, err = w.store.Expire(w.ctx, w.lease, w.now.Add(time.Microsecond), 100, w.now)
	w.must(err)
	w.equal("ended", ended.Deliveries, []outbox.DeliveryID{replayed.ID})
	w.verify()
}
