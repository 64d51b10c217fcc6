package route

import (
	"bytes"
	"slices"
	"time"

	"github.com/waybill-dev/waybill/internal/filter"
	"github.com/waybill-dev/waybill/internal/outbox"
)

// MaxDeliveries is how many deliveries one routing transaction writes at most. An event that more
// endpoints want is planned over several transactions.
const MaxDeliveries = 500

// Subscriber is an endpoint that is routed to.
type Subscriber struct {
	*outbox.Endpoint
	// filter is nil where there is none, or where it cannot be used: the endpoint has a fault then,
	// and its deliveries fail where its owner sees it, instead of being left out in silence.
	filter *filter.Filter
}

// Subscribers are a tenant's endpoints that are routed to, in order of id.
type Subscribers []Subscriber

// NewSubscribers keeps the endpoints that events are planned for, in order.
func NewSubscribers(endpoints []*outbox.Endpoint) Subscribers {
	var routed Subscribers
	for _, e := range endpoints {
		if !e.State.Routes() {
			continue
		}
		s := Subscriber{Endpoint: e}
		if e.Filter != "" {
			s.filter, _ = filter.Compile([]byte(e.Filter))
		}
		routed = append(routed, s)
	}
	slices.SortFunc(routed, func(a, b Subscriber) int { return bytes.Compare(a.ID[:], b.ID[:]) })
	return routed
}

// Filter reports whether events of the type are looked into before they are planned.
func (s Subscribers) Filter(eventType string) bool {
	return slices.ContainsFunc(s, func(e Subscriber) bool { return e.filter != nil && e.Matches(eventType) })
}

// Numbers gives each endpoint's deliveries their gapless sequence.
type Numbers interface {
	// Next returns the endpoint's next number and counts on.
	Next(id outbox.EndpointID) int64
}

// Event plans a row of kind event: at most budget deliveries, for the endpoints after row.After
// that want it. Endpoints are those alive now, not when the event was accepted. A row whose event
// is gone is planned as wanted by nobody, which ends it. judged may be nil.
func Event(row outbox.OutboxRow, subscribers Subscribers, judged *Judged, numbers Numbers, budget int, now time.Time) outbox.Plan {
	plan := outbox.Plan{Row: row, Last: true, Matched: !row.After.IsZero()}
	if row.Source == nil {
		return plan
	}
	start := 0
	if !row.After.IsZero() {
		start, _ = slices.BinarySearchFunc(subscribers, row.After, func(e Subscriber, after outbox.EndpointID) int {
			if bytes.Compare(e.ID[:], after[:]) <= 0 {
				return -1
			}
			return 1
		})
	}
	for _, e := range subscribers[start:] {
		if !e.wants(&row, judged) {
			continue
		}
		if len(plan.Deliveries) == budget {
			plan.Last = false
			break
		}
		plan.Matched = true
		d := delivery(&row, e.Endpoint, now)
		d.Sequence = numbers.Next(e.ID)
		plan.Deliveries = append(plan.Deliveries, d)
	}
	return plan
}
