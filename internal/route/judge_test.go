package route

import (
	"testing"

	"github.com/waybill-dev/waybill/internal/outbox"
)

func filtered(text string, types ...string) *outbox.Endpoint {
	e := endpoint(outbox.EndpointActive, types...)
	e.Filter = text
	return e
}

func TestEvent_filtersDecideFromThePayload(t *testing.T) {
	large, small, all := filtered(`{"amount":{"$gt":100}}`, "*"), filtered(`{"amount":{"$lte":100}}`, "*"), endpoint(outbox.EndpointActive, "*")
	broken := filtered(`{"amount":{"$like":1}}`, "*")
	otherType := filtered(`{"amount":{"$gt":100}}`, "refund")
	subscribers := NewSubscribers([]*outbox.Endpoint{large, small, all, broken, otherType})
	for name, tc := range map[string]struct {
		payload string // "": erased
		want    []*outbox.Endpoint
	}{
		"a large amount": {`{"amount":101}`, []*outbox.Endpoint{large, all, broken}},
		"a small amount": {`{"amount":100.0}`, []*outbox.Endpoint{small, all, broken}},
		"no amount":      {`{}`, []*outbox.Endpoint{all, broken}},
		"erased":         {"", []*outbox.Endpoint{large, small, all, broken}},
	} {
		r := row(1, 3, "order.paid")
		r.Source.Payload, r.HasPayload = []byte(tc.payload), tc.payload != ""
		for how, judged := range map[string]*Judged{"judged before": Judge(r, subscribers), "judged as it is planned": nil} {
			plan := Event(r, subscribers, judged, counter{}, MaxDeliveries, now)
			got := map[outbox.EndpointID]bool{}
			for _, d := range plan.Deliveries {
				got[d.Endpoint] = true
			}
			if len(got) != len(tc.want) || plan.Matched != true {
				t.Errorf("%s, %s: %d planned, want %d", name, how, len(got), len(tc.want))
			}
			for _, e := range tc.want {
				if !got[e.ID] {
					t.Errorf("%s, %s: one is left out", name, how)
				}
			}
		}
	}
	r := row(1, 3, "order.paid")
	r.Source.Payload, r.HasPayload = []byte(`{}`), true
	if plan := Event(r, subscribers, Unasked, counter{}, MaxDeliveries, now); len(plan.Deliveries) != 4 {
		t.Errorf("unasked: %d planned", len(plan.Deliveries))
	}
	if Judge(r, NewSubscribers([]*outbox.Endpoint{all})) != nil || Judge(r, NewSubscribers([]*outbox.Endpoint{otherType})) != nil {
		t.Error("a payload is looked into for nobody")
	}
}
