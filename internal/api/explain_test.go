package api

import (
	"testing"
	"time"

	"github.com/waybill-dev/waybill/internal/filter"
	"github.com/waybill-dev/waybill/internal/outbox"
)

func TestMissed_tellsOfTheFilterAsLongAsThePayloadIsKept(t *testing.T) {
	now := time.Now()
	event := &outbox.EventView{Event: outbox.Event{Type: "order.paid", CreatedAt: now}}
	endpoint := func(text string, types ...string) *outbox.Endpoint {
		return &outbox.Endpoint{State: outbox.EndpointActive, EventTypes: types, Filter: text, CreatedAt: now.Add(-time.Hour)}
	}
	document := filter.Parse([]byte(`{"amount":5}`))
	for what, row := range map[string]struct {
		endpoint *outbox.Endpoint
		document *filter.Document
		want     missReason
	}{
		"does not pass":             {endpoint(`{"amount":{"$gt":5}}`, "*"), document, missFilter},
		"passes now":                {endpoint(`{"amount":5}`, "*"), document, missChangedSince},
		"another type":              {endpoint(`{"amount":{"$gt":5}}`, "refund"), document, missEventType},
		"the bytes are not kept":    {endpoint(`{"amount":{"$gt":5}}`, "*"), nil, missChangedSince},
		"a filter of other version": {endpoint(`{"amount":{"$like":5}}`, "*"), document, missChangedSince},
	} {
		if got := missed(row.endpoint, event, row.document); got != row.want {
			t.Errorf("%s: %s, want %s", what, got, row.want)
		}
	}
}
