package outboxtest

import (
	"bytes"
	"fmt"
	"slices"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// own makes a new node the owner of every shard, whoever had them.
func (w *world) own() {
	w.Helper()
	w.lease = w.takeAll(w.join())
}

// join registers a new node.
func (w *world) join() outbox.NodeID {
	w.Helper()
	node := outbox.NewNodeID(w.now)
	w.must(w.store.Join(w.ctx, node, w.now))
	return node
}

// takeAll makes node the owner of every shard.
func (w *world) takeAll(node outbox.NodeID) outbox.Lease {
	w.Helper()
	lease, _, err := w.store.Take(w.ctx, node, w.beat(node).Shards)
	w.must(err)
	if len(lease.Epochs) != outbox.Shards {
		w.Fatalf("took %d shards, want all %d", len(lease.Epochs), outbox.Shards)
	}
	return lease
}

func (w *world) beat(node outbox.NodeID) outbox.Beat {
	w.Helper()
	beat, err := w.store.Beat(w.ctx, node, false)
	w.must(err)
	return beat
}

// owned makes sure somebody owns the shards.
func (w *world) owned() {
	w.Helper()
	if w.lease.Epochs == nil {
		w.own()
	}
}

// config loads the configuration of the shards and notes that it was loaded.
func (w *world) config() outbox.ShardConfig {
	w.Helper()
	w.owned()
	config, err := w.store.LoadConfig(w.ctx, w.scope)
	w.must(err)
	w.lease.Revisions = config.Revisions
	return config
}

// source fills in the events of outbox rows.
func (w *world) source(rows []outbox.OutboxRow) []outbox.OutboxRow {
	w.Helper()
	w.must(w.store.ReadEvents(w.ctx, rows, 64<<20))
	return rows
}

// plan plans the rows of kind event: one delivery for each endpoint that matches, numbered from
// what the store says is next. It is the owner's work done the plainest way.
func (w *world) plan(rows []outbox.OutboxRow) ([]outbox.Plan, map[outbox.EndpointID]int64) {
	w.Helper()
	config := w.config()
	slices.SortFunc(config.Endpoints, func(a, b outbox.Endpoint) int { return bytes.Compare(a.ID[:], b.ID[:]) })
	ask := map[outbox.EndpointID]outbox.Shard{}
	for _, e := range config.Endpoints {
		ask[e.ID] = e.Tenant.Shard
	}
	next, err := w.store.NextSequences(w.ctx, ask)
	w.must(err)
	changed := map[outbox.EndpointID]int64{}
	var plans []outbox.Plan
	for _, row := range rows {
		if row.Kind != outbox.OutboxEvent {
			continue
		}
		plan := outbox.Plan{Row: row, Last: true}
		for _, e := range config.Endpoints {
			if row.Source == nil || e.Tenant.ID != row.Tenant || !e.State.Routes() || !e.Matches(row.Source.Type) ||
				bytes.Compare(e.ID[:], row.After[:]) <= 0 {
				continue
			}
			plan.Deliveries = append(plan.Deliveries, w.delivery(row, e, next[e.ID]))
			next[e.ID]++
			changed[e.ID] = next[e.ID]
		}
		plan.Matched = len(plan.Deliveries) > 0 || !row.After.IsZero()
		plans = append(plans, plan)
	}
	return plans, changed
}

// delivery is the delivery of a row's event to the endpoint, planned now.
func (w *world) delivery(row outbox.OutboxRow, e outbox.Endpoint, sequence int64) outbox.Delivery {
	var turnAt time.Time
	if e.Ordering == outbox.OrderingStrict {
		turnAt = w.now
	}
	return outbox.Delivery{
		Shard:       row.Shard,
		ID:          outbox.NewDeliveryID(row.Event, e.ID),
		Tenant:      row.Tenant,
		Endpoint:    e.ID,
		Event:       row.Event,
		EventType:   row.Source.Type,
		Sequence:    sequence,
		OrderingKey: row.Source.OrderingKey,
		NextAt:      w.now,
		SendableAt:  w.now,
		TurnAt:      turnAt,
	}
}

// route plans everything in the outbox that is an event and returns the deliveries, in order of
// acceptance and endpoint.
func (w *world) route() []outbox.Delivery {
	w.Helper()
	plans, next := w.plan(w.source(w.outbox()))
	w.routePlans(plans, next)
	var all []outbox.Delivery
	for _, p := range plans {
		all = append(all, p.Deliveries...)
	}
	return all
}

// routePlans writes plans that nothing stands against.
func (w *world) routePlans(plans []outbox.Plan, next map[outbox.EndpointID]int64) {
	w.Helper()
	routed, err := w.store.Route(w.ctx, w.lease, plans, next, w.now)
	w.must(err)
	w.equal("routed", routed, outbox.Routed{Parked: routed.Parked}) // strict order has its own tests
}

// planned publishes an event of the type to an endpoint that wants it and returns its delivery.
func (w *world) planned(e outbox.Endpoint, eventType string) outbox.Delivery {
	w.Helper()
	event := w.event(outbox.Tenant{TenantRef: e.Tenant}, eventType, `{"n":1}`)
	w.publish(event)
	id := outbox.NewDeliveryID(event.ID, e.ID)
	for _, d := range w.route() {
		if d.ID == id {
			return d
		}
	}
	w.Fatalf("%s was not planned for %s", event.ID, e.ID)
	panic("unreachable")
}

// attempt is a try of the delivery that met the given status.
func (w *world) attempt(status int) *outbox.Attempt {
	a := &outbox.Attempt{
		ID:              outbox.NewAttemptID(w.now),
		Trigger:         outbox.TriggerSchedule,
		At:              w.now,
		Duration:        12345 * time.Microsecond,
		Timing:          outbox.Timing{DNS: time.Millisecond, Connect: 2 * time.Millisecond, TLS: 3 * time.Millisecond, FirstByte: 4 * time.Millisecond},
		URL:             "https://hooks.example.com/in",
		StatusCode:      status,
		RequestHeaders:  []outbox.Header{{Name: "webhook-id", Value: "evt_1"}},
		RequestBytes:    7,
		ResponseHeaders: []outbox.Header{{Name: "content-type", Value: "text/plain"}},
		ResponseBody:    []byte("answer"),
	}
	switch {
	case status/100 == 2:
		a.Outcome = outbox.OutcomeDelivered
	case status/100 == 5:
		a.Outcome, a.Kind = outbox.OutcomeTransient, outbox.KindHTTPStatus
	default:
		a.Outcome, a.Kind = outbox.OutcomePermanent, outbox.KindHTTPStatus
	}
	if a.Kind != "" {
		a.Message = fmt.Sprintf("Your server answered %d.", status)
	}
	return a
}

// delivered is the result of a try that was answered 200.
func (w *world) delivered(d outbox.Delivery) outbox.Result {
	return outbox.Result{Delivery: d, Attempt: w.attempt(200), Delivered: true, At: w.now}
}

// failed is the result of a try that was answered 503 and is to be repeated in a minute.
func (w *world) failed(d outbox.Delivery) outbox.Result {
	return outbox.Result{Delivery: d, Attempt: w.attempt(503), RetryAt: w.now.Add(time.Minute), At: w.now}
}

// refused is the result of a try that was answered 404 and buried the delivery.
func (w *world) refused(d outbox.Delivery) outbox.Result {
	return outbox.Result{Delivery: d, Attempt: w.attempt(404), Dead: outbox.DeadPermanent, At: w.now}
}

func (w *world) finish(results ...outbox.Result) {
	w.Helper()
	_, err := w.store.Finish(w.ctx, results)
	w.must(err)
}

// pending reads the endpoint's pending deliveries of a lane, in the order they are sent.
func (w *world) pending(e outbox.Endpoint, lane outbox.Lane) []outbox.Due {
	w.Helper()
	got, err := w.store.FetchDue(w.ctx, []outbox.FetchRequest{{Shard: e.Tenant.Shard, Endpoint: e.ID, Lane: lane, Limit: 10_000}}, w.now, 1<<30)
	w.must(err)
	if len(got) != 1 {
		w.Fatalf("%d answers for one request", len(got))
	}
	return got[0].Rows
}

// stored reads a delivery that is pending as it is stored, in whichever lane.
func (w *world) stored(d outbox.Delivery) outbox.Delivery {
	w.Helper()
	e := outbox.Endpoint{ID: d.Endpoint, Tenant: outbox.TenantRef{ID: d.Tenant, Shard: d.Shard}}
	for _, lane := range []outbox.Lane{outbox.LaneLive, outbox.LaneReplay} {
		for _, due := range w.pending(e, lane) {
			if due.ID == d.ID {
				return due.Delivery
			}
		}
	}
	w.Fatalf("delivery %s is not pending", d.ID)
	panic("unreachable")
}

// view reads a delivery as its tenant sees it.
func (w *world) view(d outbox.Delivery) outbox.DeliveryView {
	w.Helper()
	v, err := w.store.Delivery(w.ctx, outbox.TenantRef{ID: d.Tenant, Shard: d.Shard}, d.ID)
	w.must(err)
	return v
}

// replay asks for a delivery again and lets the owner execute it. It returns what is due.
func (w *world) replay(d outbox.Delivery) []outbox.Delivery {
	w.Helper()
	_, err := w.store.RequestReplay(w.ctx, outbox.TenantRef{ID: d.Tenant, Shard: d.Shard}, d.ID)
	w.must(err)
	return w.executeReplays()
}

// executeReplays lets the owner execute every replay that was asked for.
func (w *world) executeReplays() []outbox.Delivery {
	w.Helper()
	rows := w.ofKind(outbox.OutboxReplay)
	due, err := w.store.Replay(w.ctx, w.lease, w.source(rows), w.now)
	w.must(err)
	return due
}

// executeCommands lets the owner execute every command, a few deliveries at a time.
func (w *world) executeCommands() []outbox.DeliveryID {
	w.Helper()
	w.owned()
	var all []outbox.DeliveryID
	for _, row := range w.ofKind(outbox.OutboxCommand) {
		for done := false; !done; {
			var ended outbox.Ended
			var err error
			ended, done, err = w.store.Cancel(w.ctx, w.lease, row, 3, w.now)
			w.must(err)
			if len(ended.Deliveries) > 3 {
				w.Fatalf("%d deliveries ended, the limit was 3", len(ended.Deliveries))
			}
			if len(ended.Deliveries) == 0 && !done {
				w.Fatal("nothing ended, yet it is not done")
			}
			all = append(all, ended.Deliveries...)
		}
	}
	return all
}

// ofKind returns the outbox rows of a kind.
func (w *world) ofKind(kind outbox.OutboxKind) []outbox.OutboxRow {
	w.Helper()
	return slices.DeleteFunc(w.outbox(), func(r outbox.OutboxRow) bool { return r.Kind != kind })
}
