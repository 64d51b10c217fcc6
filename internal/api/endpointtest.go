package api

import (
	"crypto/sha256"
	"errors"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// testEvent is what a test asks for.
type testEvent struct {
	eventType string
	payload   []byte
}

const testType = "waybill.test"

// testPayload is sent where neither the request nor the catalogue has one.
const testPayload = `{"type":"waybill.test","data":{"note":"This is a test. Nothing happened."}}`

var testFields = []field[testEvent]{
	{
		name: "type", about: "Of the event; waybill.test by default. The endpoint need not want it.", schema: textSchema(outbox.MaxEventType),
		set: func(e *testEvent, v value) {
			if s, ok := v.text(outbox.MaxEventType); ok && !outbox.ValidEventType(s) {
				v.invalid("want an event type")
			} else if ok {
				e.eventType = s
			}
		},
		reset: func(e *testEvent) { e.eventType = testType },
	},
	{
		name: "payload", about: "Any JSON value; its bytes are delivered as they stand. By default the example of its type in the catalogue, or a sentence that says it is a test. It is held to the schema of its type.", schema: &huma.Schema{},
		// null is a payload like any other.
		set:   func(e *testEvent, v value) { e.payload = v.raw },
		reset: func(e *testEvent) { e.payload = []byte("null") },
	},
}

// tested is the answer to a test.
type tested struct {
	EventID    string    `json:"event_id"`
	DeliveryID string    `json:"delivery_id"`
	Warnings   []warning `json:"warnings,omitempty" doc:"Where the payload does not follow its type's schema"`
}

// testEndpoint sends the endpoint an event that nobody else gets. It is stored and sent like all
// others, at once and one time, from whichever node owns the shard.
func (a *API) testEndpoint(q *request) (*answer, error) {
	ref, err := endpointRef(q.PathValue("ep"))
	if err != nil {
		return nil, err
	}
	test := testEvent{eventType: testType}
	if len(q.body) > 0 {
		raw, err := q.object()
		if err != nil {
			return nil, err
		}
		if err := fillBody(q, raw, testFields, &test); err != nil {
			return nil, err
		}
	}
	if test.payload == nil {
		if test.payload, err = a.sample(q, test.eventType); err != nil {
			return nil, err
		}
	}
	if len(test.payload) > a.cfg.MaxPayload {
		return nil, fail(CodePayloadTooLarge, "the payload has %d bytes; %d are allowed", len(test.payload), a.cfg.MaxPayload)
	}
	e, err := q.store.Endpoint(q.Context(), q.tenant.TenantRef, ref)
	if err != nil {
		return nil, err
	}
	dispatch, err := q.store.Dispatch(q.Context())
	switch {
	case err != nil:
		return nil, err
	case q.tenant.State != outbox.TenantActive:
		return nil, fail(CodeEndpointInactive, "the tenant is %s", q.tenant.State)
	case dispatch.Paused:
		return nil, fail(CodeEndpointInactive, "sending is stopped on all nodes")
	}
	event := outbox.Event{
		ID: outbox.NewEventID(q.now), Tenant: q.tenant.TenantRef, Type: test.eventType, CreatedAt: q.now,
		Metadata: map[string]string{outbox.TestMark: e.ID.String()},
		Payload:  test.payload, SHA256: sha256.Sum256(test.payload),
	}
	// A receiver that is tried with what no real event looks like learns nothing from it.
	warnings, refused, err := a.follow(q, &outbox.NewEvent{Event: event}, nil)
	switch {
	case err != nil:
		return nil, err
	case len(refused) > 0:
		return nil, failItems(refused)
	}
	if err := q.store.InsertTest(q.Context(), event, e.ID); err != nil {
		return nil, err
	}
	a.cfg.Wake(q.tenant.Shard)
	return accepted(tested{EventID: event.ID.String(), DeliveryID: outbox.NewDeliveryID(event.ID, e.ID).String(), Warnings: warnings})
}

// sample is the payload of a test that brings none: the example of its type, where there is one.
func (a *API) sample(q *request, eventType string) ([]byte, error) {
	known, err := a.cfg.Store.EventType(q.Context(), eventType)
	switch {
	case errors.Is(err, outbox.ErrNotFound):
	case err != nil:
		return nil, err
	case known.Example != nil:
		return known.Example, nil
	}
	return []byte(testPayload), nil
}

func testRoutes() []*route {
	return []*route{{
		method: "POST", path: "/v1/tenants/{tenant}/endpoints/{ep}/test", name: "testEndpoint", tag: "Endpoints", scope: ScopeWrite,
		summary: "Send the endpoint a test event", about: "It goes to this endpoint alone, also while that is a draft, paused or disabled, or its breaker is open. It is tried once. A 2xx closes the breaker.",
		body: describe("TestInput", testFields), maxBody: outbox.HardMaxPayload + maxEnvelope, answers: map[int]any{202: tested{}}, refuses: []int{http.StatusConflict}, handle: (*API).testEndpoint,
	}}
}
