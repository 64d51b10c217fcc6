package outboxtest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

var deliveryFilters = topic{"filtering deliveries", []promise{
	{"every filter alone and every pair of filters finds what it says", filterDeliveries},
}}

// fact is what the test knows of a delivery.
type fact struct {
	id       outbox.DeliveryID
	tenant   outbox.TenantID
	endpoint outbox.EndpointID
	event    outbox.EventID
	kind     string // of the event
	second   int
	state    outbox.DeliveryState
	reason   outbox.DeadReason
	fault    outbox.Kind
	status   int
}

// filter is one way to narrow a list: how it is asked for and what it means.
type filter struct {
	name  string
	ask   func(q *outbox.DeliveryQuery)
	means func(f fact) bool
}

func filterDeliveries(w *world) {
	acme, globex := w.neighbours("acme")
	endpoints := []outbox.Endpoint{w.endpoint(acme, "*"), w.endpoint(acme, "a", "a.b"), w.endpoint(globex, "*")}
	start := w.now.Truncate(time.Second)
	kinds := []string{"a", "a.b", "b"}
	for i := range 30 {
		w.now = start.Add(time.Duration(i/5) * time.Second)
		w.publishOne([]outbox.Tenant{acme, globex}[i%2], kinds[i%3], `{}`)
	}
	facts := w.fates(w.route(), start)
	filters := []filter{
		{"tenant", func(q *outbox.DeliveryQuery) { q.Tenant = acme.TenantRef }, func(f fact) bool { return f.tenant == acme.ID }},
		{"endpoint", func(q *outbox.DeliveryQuery) { q.Endpoint = endpoints[1].ID }, func(f fact) bool { return f.endpoint == endpoints[1].ID }},
		{"event", func(q *outbox.DeliveryQuery) { q.Event = facts[7].event }, func(f fact) bool { return f.event == facts[7].event }},
		{"type", func(q *outbox.DeliveryQuery) { q.EventTypes = []string{"a.b"} }, func(f fact) bool { return f.kind == "a.b" }},
		{"types", func(q *outbox.DeliveryQuery) { q.EventTypes = []string{"b", "a"} }, func(f fact) bool { return f.kind != "a.b" }},
		{"kind", func(q *outbox.DeliveryQuery) { q.Kind = outbox.KindTimeout }, func(f fact) bool { return f.fault == outbox.KindTimeout }},
		{"reason", func(q *outbox.DeliveryQuery) { q.Reason = outbox.DeadExhausted }, func(f fact) bool { return f.reason == outbox.DeadExhausted }},
		{"status", func(q *outbox.DeliveryQuery) { q.StatusCode = 503 }, func(f fact) bool { return f.status == 503 }},
		{"class of status", func(q *outbox.DeliveryQuery) { q.StatusCode, q.StatusClass = 5, true }, func(f fact) bool { return f.status/100 == 5 }},
		{"from", func(q *outbox.DeliveryQuery) { q.From = start.Add(2 * time.Second) }, func(f fact) bool { return f.second >= 2 }},
		{"to", func(q *outbox.DeliveryQuery) { q.To = start.Add(4 * time.Second) }, func(f fact) bool { return f.second < 4 }},
	}
	for _, states := range [][]outbox.DeliveryState{
		{outbox.StatePending}, {outbox.StateDelivered}, {outbox.StateDead}, {outbox.StateCancelled},
		{outbox.StateDead, outbox.StatePending}, {outbox.StateDelivered, outbox.StateCancelled},
	} {
		filters = append(filters, filter{fmt.Sprint("state ", states),
			func(q *outbox.DeliveryQuery) { q.States = states },
			func(f fact) bool { return slices.Contains(states, f.state) }})
	}
	check := func(limit int, ascending bool, chosen ...filter) {
		w.Helper()
		var q outbox.DeliveryQuery
		var name strings.Builder
		name.WriteString(fmt.Sprintf("by %d, ascending %v", limit, ascending))
		for _, f := range chosen {
			f.ask(&q)
			name.WriteString(", " + f.name)
		}
		var want []outbox.DeliveryID
		for _, fact := range facts {
			if !slices.ContainsFunc(chosen, func(f filter) bool { return !f.means(fact) }) {
				want = append(want, fact.id)
			}
		}
		want = sorted(want)
		if !ascending {
			slices.Reverse(want)
		}
		w.equal(name.String(), deliveryIDs(w.listDeliveries(q, limit, ascending)), want)
	}
	random := rand.New(rand.NewPCG(1, 2))
	check(250, false)
	for i, one := range filters {
		check(250, i%2 == 0, one)
		check(3, i%2 == 1, one)
		for _, two := range filters[i+1:] {
			if clash(one, two) {
				continue
			}
			check(1+random.IntN(20), random.IntN(2) == 0, one, two)
		}
	}
}

// clash reports whether two filters set the same field.
func clash(one, two filter) bool {
	var a, b outbox.DeliveryQuery
	one.ask(&a)
	two.ask(&b)
	return len(a.EventTypes) > 0 && len(b.EventTypes) > 0 || len(a.States) > 0 && len(b.States) > 0 || a.StatusCode > 0 && b.StatusCode > 0
}

// fates gives every delivery one of eight fates and returns what is then true of it.
func (w *world) fates(planned []outbox.Delivery, start time.Time) []fact {
	w.Helper()
	var facts []fact
	for i, d := range planned {
		f := fact{id: d.ID, tenant: d.Tenant, endpoint: d.Endpoint, event: d.Event, kind: d.EventType, second: int(d.Event.Time().Sub(start) / time.Second)}
		timeout := w.failed(d)
		timeout.Attempt.StatusCode, timeout.Attempt.Kind = 0, outbox.KindTimeout
		switch i % 8 {
		case 0:
			f.state = outbox.StatePending
		case 1:
			w.finish(w.failed(d))
			f.state, f.status, f.fault = outbox.StatePending, 503, outbox.KindHTTPStatus
		case 2:
			w.finish(timeout)
			f.state, f.fault = outbox.StatePending, outbox.KindTimeout
		case 3:
			w.finish(w.failed(d)) // the last try counts, not the first
			w.finish(w.delivered(w.stored(d)))
			f.state, f.status = outbox.StateDelivered, 200
		case 4:
			w.finish(w.refused(d))
			f.state, f.status, f.fault, f.reason = outbox.StateDead, 404, outbox.KindHTTPStatus, outbox.DeadPermanent
		case 5:
			timeout.RetryAt, timeout.Dead = time.Time{}, outbox.DeadExhausted
			w.finish(timeout)
			f.state, f.fault, f.reason = outbox.StateDead, outbox.KindTimeout, outbox.DeadExhausted
		case 6:
			w.finish(outbox.Result{Delivery: d, Dead: outbox.DeadCancelled, At: w.now})
			f.state, f.reason = outbox.StateCancelled, outbox.DeadCancelled
		case 7:
			w.finish(w.refused(d))
			w.replay(d)
			again := w.failed(w.stored(d))
			again.Attempt.StatusCode = 500
			w.finish(again)
			f.state, f.status, f.fault = outbox.StatePending, 500, outbox.KindHTTPStatus
		}
		facts = append(facts, f)
	}
	return facts
}
