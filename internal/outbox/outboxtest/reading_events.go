package outboxtest

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

var events = topic{"reading events", []promise{
	{"lists go by id, both ways, page by page, through ties", listEventsByID},
	{"a walk meets every event once while others are published", walkDuringPublishing},
	{"lists filter by tenant, type and time", filterEvents},
	{"an event's state sums up its deliveries", eventStates},
	{"an event that is planned in part is pending, however that part fared", partlyPlanned},
	{"lists filter by state", filterEventStates},
	{"a position that is no event leads on", eventCursorGone},
	{"a foreign or unknown event is not found", foreignEvent},
	{"events of several tenants under one id hide and touch nothing of each other", namesakes},
}}

func listEventsByID(w *world) {
	acme, globex := w.neighbours("acme")
	var want []outbox.EventID
	var batch []outbox.NewEvent
	for i := range 25 { // five in each millisecond
		e := w.event(acme, "a.b", `{}`)
		e.ID = outbox.NewEventID(w.now.Add(time.Duration(i/5) * time.Millisecond))
		batch = append(batch, e, w.event(globex, "a.b", `{}`))
		want = append(want, e.ID)
	}
	w.publish(batch...)
	want = sorted(want)
	q := outbox.EventQuery{Tenant: acme.TenantRef}
	for _, limit := range []int{1, 4, 5, 25, 250} {
		w.equal(fmt.Sprintf("oldest first by %d", limit), eventIDs(w.listEvents(q, limit, true)), want)
	}
	slices.Reverse(want)
	for _, limit := range []int{1, 4, 5, 25, 250} {
		w.equal(fmt.Sprintf("newest first by %d", limit), eventIDs(w.listEvents(q, limit, false)), want)
	}
	w.equal("the operator's list", len(w.listEvents(outbox.EventQuery{}, 7, false)), 50)
	view := w.listEvents(q, 1, true)[0]
	one, err := w.store.Event(w.ctx, acme.TenantRef, view.ID)
	w.must(err)
	w.equal("in the list and alone", view, one)
}

func walkDuringPublishing(w *world) {
	acme := w.tenant("acme")
	want := map[outbox.EventID]int{}
	for range 20 {
		want[w.publishOne(acme, "a.b", `{}`).ID] = 1
	}
	got := map[outbox.EventID]int{}
	q := outbox.EventQuery{Tenant: acme.TenantRef}
	for {
		page, after, err := w.store.Events(w.ctx, q, outbox.Page{Limit: 3})
		w.must(err)
		for _, v := range page {
			got[v.ID]++
		}
		if after.IsZero() {
			break
		}
		q.After = after
		w.now = w.now.Add(time.Second)
		w.publishOne(acme, "a.b", `{}`)
	}
	w.equal("events met", got, want)
}

func filterEvents(w *world) {
	acme, globex := w.strangers("acme")
	start := w.now.Truncate(time.Second)
	type row struct {
		tenant outbox.Tenant
		kind   string
		second int
	}
	rows := map[outbox.EventID]row{}
	for i := range 24 {
		r := row{[]outbox.Tenant{acme, globex}[i%2], []string{"a", "a.b", "b"}[i%3], i / 4}
		w.now = start.Add(time.Duration(r.second) * time.Second)
		rows[w.publishOne(r.tenant, r.kind, `{}`).ID] = r
	}
	at := func(second int) time.Time { return start.Add(time.Duration(second) * time.Second) }
	for _, tenant := range []outbox.TenantRef{{}, acme.TenantRef} {
		for _, types := range [][]string{nil, {"a"}, {"a.b", "b"}, {"none"}} {
			for _, span := range [][2]int{{-1, -1}, {2, -1}, {-1, 2}, {1, 3}, {3, 3}} {
				q := outbox.EventQuery{Tenant: tenant, EventTypes: types}
				if span[0] >= 0 {
					q.From = at(span[0])
				}
				if span[1] >= 0 {
					q.To = at(span[1])
				}
				var want []outbox.EventID
				for id, r := range rows {
					if (tenant.ID == 0 || r.tenant.ID == tenant.ID) && (types == nil || slices.Contains(types, r.kind)) &&
						(span[0] < 0 || r.second >= span[0]) && (span[1] < 0 || r.second < span[1]) {
						want = append(want, id)
					}
				}
				for _, limit := range []int{2, 250} {
					w.equal(fmt.Sprintf("%+v by %d", q, limit), eventIDs(w.listEvents(q, limit, true)), sorted(want))
				}
			}
		}
	}
}

// statefulEvents makes an event in every state and returns them by what happened.
func (w *world) statefulEvents(tenant outbox.Tenant) map[string]outbox.NewEvent {
	w.Helper()
	w.endpoint(tenant, "one", "two")
	w.endpoint(tenant, "two")
	made := map[string]outbox.NewEvent{}
	results := map[outbox.EventID][]func(outbox.Delivery) outbox.Result{}
	for what, sorts := range map[string][]func(outbox.Delivery) outbox.Result{
		"delivered":             {w.delivered},
		"both delivered":        {w.delivered, w.delivered},
		"dead":                  {w.refused},
		"one dead, one not":     {w.delivered, w.refused},
		"one dead, one pending": {w.refused, w.failed},
		"not tried yet":         {},
		"to be retried":         {w.failed},
	} {
		e := w.publishOne(tenant, map[bool]string{true: "two", false: "one"}[len(sorts) == 2], `{}`)
		made[what], results[e.ID] = e, sorts
	}
	kept, doomed := w.endpoint(tenant, "both"), w.endpoint(tenant, "both", "doomed")
	made["cancelled"] = w.publishOne(tenant, "doomed", `{}`)
	made["one delivered, one cancelled"] = w.publishOne(tenant, "both", `{}`)
	made["nobody wants it"] = w.publishOne(tenant, "three", `{}`)
	seen := map[outbox.EventID]int{}
	for _, d := range w.route() {
		if sorts := results[d.Event]; seen[d.Event] < len(sorts) {
			w.finish(sorts[seen[d.Event]](d))
			seen[d.Event]++
		}
		if d.Endpoint == kept.ID {
			w.finish(w.delivered(d))
		}
	}
	_, err := w.store.DeleteEndpoint(w.ctx, tenant.TenantRef, outbox.EndpointRef{ID: doomed.ID}, w.now, 1)
	w.must(err)
	w.executeCommands()
	made["not routed"] = w.publishOne(tenant, "one", `{}`)
	return made
}

var stateOf = map[string]outbox.EventState{
	"delivered":             outbox.EventDelivered,
	"both delivered":        outbox.EventDelivered,
	"dead":                  outbox.EventFailed,
	"one dead, one not":     outbox.EventFailed,
	"one dead, one pending": outbox.EventUnrouted,
	"not tried yet":         outbox.EventUnrouted,
	"to be retried":         outbox.EventUnrouted,
	"nobody wants it":       outbox.EventUnmatched,
	"not routed":            outbox.EventUnrouted,

	"cancelled":                    outbox.EventCancelled,
	"one delivered, one cancelled": outbox.EventCancelled,
}

func eventStates(w *world) {
	acme := w.tenant("acme")
	made := w.statefulEvents(acme)
	listed := map[outbox.EventID]outbox.EventState{}
	for _, v := range w.listEvents(outbox.EventQuery{Tenant: acme.TenantRef}, 4, false) {
		listed[v.ID] = v.State
	}
	for what, e := range made {
		view, err := w.store.Event(w.ctx, acme.TenantRef, e.ID)
		w.must(err)
		if view.State != stateOf[what] || listed[e.ID] != stateOf[what] {
			w.Errorf("%s: alone %q, in the list %q, want %q", what, view.State, listed[e.ID], stateOf[what])
		}
	}
}

func partlyPlanned(w *world) {
	acme := w.fanned(2)
	chunk := w.chunks(1)[0]
	w.routePlans([]outbox.Plan{chunk}, numbersAfter(chunk))
	w.finish(w.refused(chunk.Deliveries[0]))
	view, err := w.store.Event(w.ctx, acme.TenantRef, chunk.Row.Event)
	w.must(err)
	w.equal("state", view.State, outbox.EventUnrouted)
}

func filterEventStates(w *world) {
	acme, globex := w.neighbours("acme")
	made := w.statefulEvents(acme)
	w.statefulEvents(globex)
	for _, state := range []outbox.EventState{outbox.EventUnrouted, outbox.EventFailed, outbox.EventCancelled} {
		var want []outbox.EventID
		for what, e := range made {
			if stateOf[what] == state {
				want = append(want, e.ID)
			}
		}
		for _, limit := range []int{1, 2, 250} {
			got := eventIDs(w.listEvents(outbox.EventQuery{Tenant: acme.TenantRef, State: state}, limit, true))
			w.equal(fmt.Sprintf("%s by %d", state, limit), got, sorted(want))
		}
		w.equal("the operator's", len(w.listEvents(outbox.EventQuery{State: state}, 250, false)), 2*len(want))
		w.equal("with a type", len(w.listEvents(outbox.EventQuery{Tenant: acme.TenantRef, State: state, EventTypes: []string{"three"}}, 250, false)), 0)
	}
}

func eventCursorGone(w *world) {
	acme := w.tenant("acme")
	var all []outbox.EventID
	for range 4 {
		all = append(all, w.publishOne(acme, "a.b", `{}`).ID)
		w.now = w.now.Add(time.Second)
	}
	q := outbox.EventQuery{Tenant: acme.TenantRef, After: outbox.EventFloor(all[2].Time())}
	w.equal("older ones", eventIDs(w.listEvents(q, 1, false)), []outbox.EventID{all[1], all[0]})
	w.equal("newer ones", eventIDs(w.listEvents(q, 1, true)), []outbox.EventID{all[2], all[3]})
}

func foreignEvent(w *world) {
	acme, globex := w.neighbours("acme")
	e := w.publishOne(acme, "a.b", `{}`)
	for what, c := range map[string]struct {
		tenant outbox.TenantRef
		id     outbox.EventID
	}{
		"foreign": {globex.TenantRef, e.ID},
		"unknown": {acme.TenantRef, outbox.NewEventID(w.now)},
		"ancient": {acme.TenantRef, outbox.NewEventID(time.Unix(0, 0))},
		"future":  {acme.TenantRef, outbox.NewEventID(w.now.AddDate(1000, 0, 0))},
		"zero":    {acme.TenantRef, outbox.EventID{}},
	} {
		if _, err := w.store.Event(w.ctx, c.tenant, c.id); !errors.Is(err, outbox.ErrNotFound) {
			w.Errorf("%s event: %v, want not found", what, err)
		}
		if _, err := w.store.Payload(w.ctx, c.tenant, c.id); !errors.Is(err, outbox.ErrNotFound) && !errors.Is(err, outbox.ErrPayloadGone) {
			w.Errorf("%s payload: %v", what, err)
		}
	}
	// The answer must not tell a foreign id from an unknown one.
	_, foreign := w.store.Payload(w.ctx, globex.TenantRef, e.ID)
	_, unknown := w.store.Payload(w.ctx, globex.TenantRef, outbox.NewEventID(w.now))
	if !errors.Is(foreign, outbox.ErrNotFound) || !errors.Is(unknown, outbox.ErrNotFound) {
		w.Errorf("payloads: foreign %v, unknown %v, want not found both", foreign, unknown)
	}
	view, err := w.store.Event(w.ctx, outbox.TenantRef{}, e.ID)
	w.must(err)
	w.equal("the operator's look", view.TenantKey, "acme")
	payload, err := w.store.Payload(w.ctx, outbox.TenantRef{}, e.ID)
	w.must(err)
	w.equal("the operator's look", string(payload), `{}`)
}
