package route

import (
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// Missing returns the deliveries that a replay of what is missing asks for, of the event in the
// row: one for each endpoint that wants it as it is today, by its filter too. Which of them exist
// is the store's to say; the others still have to be numbered. judged may be nil.
//
// Such a delivery counts as a first replay, of an event that was never sent in its time.
func Missing(row outbox.OutboxRow, subscribers Subscribers, judged *Judged, asked *outbox.JobFilter, now time.Time) []outbox.Delivery {
	if row.Source == nil || !asked.WantsType(row.Source.Type) {
		return nil
	}
	var wanted []outbox.Delivery
	for _, e := range subscribers {
		if !asked.Endpoint.IsZero() && e.ID != asked.Endpoint || !e.wants(&row, judged) {
			continue
		}
		d := delivery(&row, e.Endpoint, now)
		d.Lane, d.Round = outbox.LaneReplay, 1
		wanted = append(wanted, d)
	}
	return wanted
}

// wants reports whether the endpoint wants the event in the row.
func (s *Subscriber) wants(row *outbox.OutboxRow, judged *Judged) bool {
	return s.Matches(row.Source.Type) && (s.filter == nil || judged.wanted(s.filter, row))
}

// delivery is the delivery of a row's event to an endpoint, planned now, without its number.
func delivery(row *outbox.OutboxRow, e *outbox.Endpoint, now time.Time) outbox.Delivery {
	var turnAt time.Time
	if e.Ordering == outbox.OrderingStrict {
		turnAt = now // or later: the transaction that writes it knows what is before it
	}
	return outbox.Delivery{
		Shard:       row.Shard,
		ID:          outbox.NewDeliveryID(row.Event, e.ID),
		Tenant:      row.Tenant,
		Endpoint:    e.ID,
		Event:       row.Event,
		EventType:   row.Source.Type,
		OrderingKey: row.Source.OrderingKey,
		Lane:        outbox.LaneLive,
		NextAt:      now,
		SendableAt:  now,
		TurnAt:      turnAt,
	}
}

// Test plans a row of kind event that is for one endpoint alone. Where that is deleted meanwhile,
// its delivery is cancelled when it is met.
func Test(row outbox.OutboxRow, numbers Numbers, now time.Time) outbox.Plan {
	plan := outbox.Plan{Row: row, Last: true}
	if row.Source == nil {
		return plan
	}
	d := delivery(&row, &outbox.Endpoint{ID: row.Endpoint}, now)
	d.Lane, d.OrderingKey = outbox.LaneTest, ""
	d.Sequence = numbers.Next(row.Endpoint)
	plan.Matched, plan.Deliveries = true, []outbox.Delivery{d}
	return plan
}
