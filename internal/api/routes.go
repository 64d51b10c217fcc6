package api

import (
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// route is one address and method. The table below is what is served, documented and tested.
type route struct {
	method, path string
	name         string // operationId
	tag          string
	summary      string
	about        string

	scope    Scope // "": no key is needed
	operator bool  // for operator keys only
	// makesTenants: an unknown tenant is made here, where the instance is configured so.
	makesTenants bool

	body    *huma.Schema // of the request; nil: none is taken
	maxBody int64        // bytes; publish routes: see limit
	query   []param
	answers map[int]any // by status: a value of the answer's type, or nil for bytes
	refuses []int       // statuses of problems beyond those every such route has

	handle func(*API, *request) (*answer, error)

	gateway    bool // served by Config.Inbound; the table describes it
	asks       bool // changes nothing, though it is a POST
	ofTenant   bool // below /v1/tenants/{tenant}
	streams    bool // the answer goes on for as long as the reader stays
	idempotent bool // the first answer is kept under Idempotency-Key
	publishes  bool // the payload limit applies, and malformed JSON is an invalid payload
	calls      *callMetrics
}

// param is a query parameter.
type param struct {
	name, about string
	many        bool
	words       []string
}

// yesOrNo is what a parameter takes that the document calls a boolean.
var yesOrNo = []string{"true", "false"}

// maxControlBody is the largest request that is not publishing.
const maxControlBody = 256 << 10

// limit is how many bytes a request may have.
func (r *route) limit(maxPayload int) int64 {
	if r.publishes && r.maxBody < outbox.MaxBatchBytes {
		return int64(maxPayload) + maxEnvelope
	}
	return r.maxBody
}

var (
	listParams = []param{
		{name: "limit", about: "Rows of a page, 1 to 250; 50 by default."},
		{name: "order", about: "Newest first by default.", words: []string{"desc", "asc"}},
		{name: "cursor", about: "next_cursor of the page before."},
	}
	spanParams = []param{
		{name: "from", about: "RFC 3339; the event's time is at or after it."},
		{name: "to", about: "RFC 3339; the event's time is before it."},
	}
	typeParam      = param{name: "event_type", about: "An event type; repeat it for several.", many: true}
	tenantParam    = param{name: "tenant", about: "One tenant's only."}
	deliveryParams = queryOf(listParams, spanParams, []param{
		typeParam,
		{name: "endpoint_id", about: "ep_…"},
		{name: "state", about: "Repeat it for several.", many: true, words: deliveryStates},
		{name: "kind", about: "Of the last failure.", words: kinds},
		{name: "reason", about: "Why it ended undelivered.", words: deadReasons},
		{name: "status_code", about: "Of the last attempt: 404, or a class such as 5xx."},
		{name: "after", about: "dlv_…: begin with what comes after this delivery in the order of the list, whether or not it is in the list itself."},
	})
	eventParam    = param{name: "event_id", about: "evt_…"}
	endpointQuery = []param{
		{name: "state", words: []string{"draft", "active", "paused", "disabled"}},
		{name: "event_type", about: "Endpoints that want this type."},
	}
)

func queryOf(parts ...[]param) []param {
	var out []param
	for _, part := range parts {
		out = append(out, part...)
	}
	return out
}

// routes is the table. What a path or method implies is filled in at the end.
func routes() []*route {
	const tenant = "/v1/tenants/{tenant}"
	conflict, gone := http.StatusConflict, http.StatusGone
	table := []*route{
		{method: "PUT", path: tenant, name: "putTenant", tag: "Tenants", scope: ScopeAdmin, operator: true,
			summary: "Create a tenant, or change one", about: "Fields that are absent keep their value; null returns to the default.",
			body: describe("TenantInput", tenantFields), answers: map[int]any{200: tenantView{}, 201: tenantView{}}, handle: (*API).putTenant},
		{method: "PATCH", path: tenant, name: "patchTenant", tag: "Tenants", scope: ScopeAdmin, operator: true,
			summary: "Change a tenant", about: "RFC 7396: objects are merged, null returns to the default.",
			body: mergeable(describe("TenantInput", tenantFields)), answers: map[int]any{200: tenantView{}}, refuses: []int{404}, handle: (*API).patchTenant},
		{method: "GET", path: tenant, name: "getTenant", tag: "Tenants", scope: ScopeRead,
			summary: "Read a tenant", answers: map[int]any{200: tenantView{}}, refuses: []int{404}, handle: (*API).getTenant},
		{method: "DELETE", path: tenant, name: "deleteTenant", tag: "Tenants", scope: ScopeAdmin, operator: true,
			summary: "Delete a tenant and its endpoints", about: "Pending deliveries end as cancelled; the job that does it is found under /v1/cancellations. The key is free at once; a tenant made under it again never sees what the old one had.",
			answers: map[int]any{202: jobView{}}, refuses: []int{404}, handle: (*API).deleteTenant},
		{method: "GET", path: "/v1/tenants", name: "listTenants", tag: "Tenants", scope: ScopeRead, operator: true,
			summary: "List tenants", query: queryOf(listParams, []param{
				{name: "q", about: "A part of the key or the name."}, {name: "state", words: []string{"active", "paused"}}}),
			answers: map[int]any{200: list[tenantView]{}}, handle: (*API).listTenants},

		{method: "POST", path: tenant + "/endpoints", name: "createEndpoint", tag: "Endpoints", scope: ScopeWrite, makesTenants: true,
			summary: "Create an endpoint", about: "The signing secret is in this answer only.",
			body: describe("EndpointInput", endpointFields), answers: map[int]any{201: createdEndpointView{}}, handle: (*API).postEndpoint},
		{method: "PUT", path: tenant + "/endpoints/{ep}", name: "putEndpoint", tag: "Endpoints", scope: ScopeWrite, makesTenants: true,
			summary: "Create an endpoint under your own uid, or change it", about: "Fields that are absent keep their value; null returns to the default.",
			body: describe("EndpointUpsert", endpointPutFields), answers: map[int]any{200: endpointView{}, 201: createdEndpointView{}}, refuses: []int{conflict}, handle: (*API).putEndpoint},
		{method: "GET", path: tenant + "/endpoints", name: "listEndpoints", tag: "Endpoints", scope: ScopeRead,
			summary: "List a tenant's endpoints", query: queryOf(listParams, endpointQuery),
			answers: map[int]any{200: list[endpointView]{}}, handle: (*API).listEndpoints},
		{method: "GET", path: tenant + "/endpoints/{ep}", name: "getEndpoint", tag: "Endpoints", scope: ScopeRead,
			summary: "Read an endpoint", answers: map[int]any{200: endpointView{}}, handle: (*API).getEndpoint},
		{method: "PATCH", path: tenant + "/endpoints/{ep}", name: "patchEndpoint", tag: "Endpoints", scope: ScopeWrite,
			summary: "Change an endpoint", about: "RFC 7396: objects are merged, null returns to the default.",
			body: mergeable(describe("EndpointInput", endpointPatchFields)), answers: map[int]any{200: endpointView{}}, refuses: []int{conflict}, handle: (*API).patchEndpoint},
		{method: "DELETE", path: tenant + "/endpoints/{ep}", name: "deleteEndpoint", tag: "Endpoints", scope: ScopeWrite,
			summary: "Delete an endpoint", about: "Its pending deliveries keep a row and end as cancelled.",
			answers: map[int]any{202: deletedEndpoint{}}, handle: (*API).deleteEndpoint},

		{method: "POST", path: tenant + "/endpoints/{ep}/probe", name: "probeEndpoint", tag: "Endpoints", scope: ScopeWrite,
			summary: "Try the oldest waiting delivery now", about: "Whether its next attempt is due or not, and although the endpoint's breaker is open. If it succeeds the breaker closes.",
			body: emptySchema(), answers: map[int]any{202: probed{}}, handle: (*API).probeEndpoint},
		{method: "POST", path: tenant + "/endpoints/{ep}/secret/rotate", name: "rotateSecret", tag: "Endpoints", scope: ScopeWrite,
			summary: "Give an endpoint a new signing secret", about: "Until the overlap ends deliveries are signed with the new secret and those before it. The new secret is in this answer only.",
			body: describe("RotationInput", rotationFields), answers: map[int]any{200: rotated{}}, handle: (*API).rotateSecret},

		{method: "POST", path: tenant + "/events", name: "publishEvent", tag: "Events", scope: ScopePublish, makesTenants: true, publishes: true,
			summary: "Publish an event", about: "It is durable once this answers. The payload's bytes are delivered as they stand in the request. The header Idempotency-Key and the field idempotency_key are one key, bound to type and payload.",
			body: eventSchema(false), answers: map[int]any{202: acceptedEvent{}}, refuses: []int{conflict}, handle: (*API).postEvent},
		{method: "POST", path: tenant + "/events/batch", name: "publishBatch", tag: "Events", scope: ScopePublish, makesTenants: true, publishes: true, maxBody: outbox.MaxBatchBytes,
			summary: "Publish up to 1,000 events, all or none", about: "The header Idempotency-Key covers the batch; the field of an event covers that event.",
			body: batchSchema(false), answers: map[int]any{202: acceptedBatch{}}, refuses: []int{conflict}, handle: (*API).postBatch},
		{method: "POST", path: "/v1/events/batch", name: "publishAcrossTenants", tag: "Events", scope: ScopePublish, operator: true, publishes: true, maxBody: outbox.MaxBatchBytes,
			summary: "Publish up to 1,000 events of several tenants, all or none",
			body:    batchSchema(true), answers: map[int]any{202: acceptedBatch{}}, refuses: []int{404, conflict}, handle: (*API).postCrossBatch},
		{method: "GET", path: tenant + "/events", name: "listEvents", tag: "Events", scope: ScopeRead,
			summary: "List a tenant's events", query: queryOf(listParams, spanParams, []param{typeParam, {name: "state", words: []string{"pending", "failed", "cancelled"}}}),
			answers: map[int]any{200: list[eventView]{}}, handle: (*API).listEvents},
		{method: "GET", path: tenant + "/events/{evt}", name: "getEvent", tag: "Events", scope: ScopeRead,
			summary: "Read an event", query: explainParams, answers: map[int]any{200: explainedEventView{}}, handle: (*API).getEvent},
		{method: "GET", path: tenant + "/events/{evt}/payload", name: "getPayload", tag: "Events", scope: ScopeRead,
			summary: "Read the bytes that were published", answers: map[int]any{200: nil}, refuses: []int{gone}, handle: (*API).getPayload},
		{method: "GET", path: tenant + "/events/{evt}/deliveries", name: "listEventDeliveries", tag: "Deliveries", scope: ScopeRead,
			summary: "List the deliveries of an event", query: deliveryParams,
			answers: map[int]any{200: list[deliveryView]{}}, handle: (*API).listEventDeliveries},

		{method: "GET", path: tenant + "/deliveries", name: "listDeliveries", tag: "Deliveries", scope: ScopeRead,
			summary: "List a tenant's deliveries", query: append(deliveryParams[:len(deliveryParams):len(deliveryParams)], eventParam),
			answers: map[int]any{200: list[deliveryView]{}}, handle: (*API).listDeliveries},
		{method: "GET", path: tenant + "/deliveries/{dlv}", name: "getDelivery", tag: "Deliveries", scope: ScopeRead,
			summary: "Read a delivery", answers: map[int]any{200: deliveryView{}}, handle: (*API).getDelivery},
		{method: "GET", path: tenant + "/deliveries/{dlv}/attempts", name: "listAttempts", tag: "Deliveries", scope: ScopeRead,
			summary: "List the attempts of a delivery, with the receiver's answers", query: listParams,
			answers: map[int]any{200: list[attemptView]{}}, handle: (*API).listAttempts},
		{method: "POST", path: tenant + "/deliveries/{dlv}/replay", name: "replayDelivery", tag: "Deliveries", scope: ScopeWrite,
			summary: "Deliver again", about: "A dead, delivered or cancelled delivery is planned again; a pending one is sent now.",
			body: emptySchema(), answers: map[int]any{202: replayed{}}, refuses: []int{conflict}, handle: (*API).replayDelivery},
		{method: "POST", path: tenant + "/deliveries/{dlv}/preview", name: "previewOfDelivery", tag: "Deliveries", scope: ScopeWrite,
			summary: "The request that the next attempt would make", about: "Signed now, by the secrets of now, and not sent. Values of secret headers are replaced.",
			body: emptySchema(), answers: map[int]any{200: previewView{}}, refuses: []int{conflict}, asks: true, handle: (*API).previewOfDelivery},

		{method: "GET", path: "/v1/endpoints", name: "listAllEndpoints", tag: "Operator", scope: ScopeRead, operator: true,
			summary: "List all tenants' endpoints", query: queryOf(listParams, endpointQuery, []param{tenantParam}),
			answers: map[int]any{200: list[endpointView]{}}, refuses: []int{404}, handle: (*API).listAllEndpoints},
		{method: "GET", path: "/v1/endpoints/{ep}", name: "lookUpEndpoint", tag: "Operator", scope: ScopeRead, operator: true,
			summary: "Find an endpoint by id", answers: map[int]any{200: endpointView{}}, refuses: []int{404}, handle: (*API).lookUpEndpoint},
		{method: "GET", path: "/v1/events/{evt}", name: "lookUpEvent", tag: "Operator", scope: ScopeRead, operator: true,
			summary: "Find an event by id", query: queryOf(explainParams, []param{tenantParam}), answers: map[int]any{200: explainedEventView{}}, refuses: []int{404, conflict}, handle: (*API).getEvent},
		{method: "GET", path: "/v1/deliveries", name: "listAllDeliveries", tag: "Operator", scope: ScopeRead, operator: true,
			summary: "List all tenants' deliveries", query: append(deliveryParams[:len(deliveryParams):len(deliveryParams)], eventParam, tenantParam),
			answers: map[int]any{200: list[deliveryView]{}}, refuses: []int{404}, handle: (*API).listAllDeliveries},
		{method: "GET", path: "/v1/deliveries/{dlv}", name: "lookUpDelivery", tag: "Operator", scope: ScopeRead, operator: true,
			summary: "Find a delivery by id", answers: map[int]any{200: deliveryView{}}, refuses: []int{404}, handle: (*API).getDelivery},
		{method: "GET", path: "/v1/deliveries/{dlv}/attempts", name: "lookUpAttempts", tag: "Operator", scope: ScopeRead, operator: true,
			summary: "List the attempts of any tenant's delivery", query: listParams,
			answers: map[int]any{200: list[attemptView]{}}, refuses: []int{404}, handle: (*API).listAttempts},
		{method: "POST", path: "/v1/deliveries/{dlv}/replay", name: "replayAnyDelivery", tag: "Operator", scope: ScopeWrite, operator: true,
			summary: "Deliver again, whichever tenant's it is", body: emptySchema(),
			answers: map[int]any{202: replayed{}}, refuses: []int{404, conflict}, handle: (*API).replayDelivery},
		{method: "GET", path: "/v1/attempts/{att}", name: "lookUpAttempt", tag: "Operator", scope: ScopeRead, operator: true,
			summary: "Find an attempt by id", answers: map[int]any{200: attemptView{}}, refuses: []int{404}, handle: (*API).getAttempt},
		{method: "GET", path: "/v1/dispatch", name: "getDispatch", tag: "Operator", scope: ScopeRead, operator: true,
			summary: "Whether anything is sent", answers: map[int]any{200: dispatchView{}}, handle: (*API).getDispatch},
		{method: "PUT", path: "/v1/dispatch", name: "putDispatch", tag: "Operator", scope: ScopeAdmin, operator: true,
			summary: "Stop sending on all nodes, or start again", about: "All nodes follow within 5 s. What is under way ends; publishing stays open, and everything waits.",
			body: describe("DispatchInput", dispatchFields), answers: map[int]any{200: dispatchView{}}, refuses: []int{conflict}, handle: (*API).putDispatch},
		{method: "GET", path: "/v1/whoami", name: "whoAmI", tag: "Server", scope: anyScope,
			summary: "What the key is and may do", answers: map[int]any{200: whoAmI{}}, handle: (*API).whoAmI},
		{method: "GET", path: "/v1/version", name: "getVersion", tag: "Server", scope: anyScope,
			summary: "Which build answers", answers: map[int]any{200: versionView{}}, handle: (*API).getVersion},

		{method: "GET", path: "/healthz", name: "healthz", tag: "Server", summary: "Whether the process runs",
			answers: map[int]any{200: healthzView{}}, handle: (*API).healthz},
		{method: "GET", path: "/readyz", name: "readyz", tag: "Server", summary: "Whether the server can do its work",
			answers: map[int]any{200: readyzView{}, 503: readyzView{}}, handle: (*API).readyz},
		{method: "GET", path: "/metrics", name: "metrics", tag: "Server", summary: "Prometheus metrics",
			answers: map[int]any{200: nil}, handle: (*API).showMetrics},
		{method: "GET", path: "/openapi.json", name: "openapi", tag: "Server", summary: "This document",
			answers: map[int]any{200: nil}, handle: (*API).showDocument},
		{method: "GET", path: "/docs", name: "docs", tag: "Server", summary: "This document, to read",
			answers: map[int]any{200: nil}, handle: (*API).showPage},
	}
	table = append(table, sessionRoutes()...)
	table = append(table, keyRoutes()...)
	table = append(table, pruneRoutes()...)
	table = append(table, countRoutes()...)
	table = append(table, lookingRoutes()...)
	table = append(table, auditRoutes()...)
	table = append(table, sourceRoutes()...)
	table = append(table, arrivalRoutes()...)
	table = append(table, strangerRoutes()...)
	table = append(table, jobRoutes()...)
	table = append(table, testRoutes()...)
	for _, r := range table {
		r.ofTenant = strings.HasPrefix(r.path, tenant+"/")
		r.idempotent = r.method == http.MethodPost && r.name != "publishEvent" && !r.gateway
		if r.body != nil && r.maxBody == 0 {
			r.maxBody = maxControlBody
		}
	}
	return table
}

// acceptedBatch is the answer to a batch.
type acceptedBatch struct {
	Data []acceptedEvent `json:"data" doc:"In the order of the request"`
}

func emptySchema() *huma.Schema { return describe("EmptyInput", []field[struct{}]{}) }

// empty checks that a request says nothing: no body, or an object without fields.
func (q *request) empty() ([]byte, error) {
	if len(q.body) == 0 {
		return nil, nil
	}
	raw, err := q.object()
	if err != nil {
		return nil, err
	}
	return raw, fillBody(q, raw, []field[struct{}]{}, &struct{}{})
}

// eventSchema describes what intake reads.
func eventSchema(cross bool) *huma.Schema {
	s := &huma.Schema{
		Title: "EventInput",
		Type:  huma.TypeObject,
		Properties: map[string]*huma.Schema{
			"type":            {Type: huma.TypeString, Pattern: `^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$`, MaxLength: new(outbox.MaxEventType)},
			"payload":         {Description: "Any JSON value; its bytes are delivered as they stand, white space included."},
			"id":              {Type: huma.TypeString, Nullable: true, Description: "Your own choice, evt_ and a UUIDv7 in Crockford's base32, of the last 24 hours."},
			"ordering_key":    {Type: huma.TypeString, Nullable: true, MaxLength: new(outbox.MaxOrderingKey)},
			"idempotency_key": {Type: huma.TypeString, Nullable: true, MinLength: new(1), MaxLength: new(outbox.MaxIdempotencyKey)},
			"metadata":        textMapSchema(outbox.MaxMetadataEntries),
		},
		Required:             []string{"type", "payload"},
		AdditionalProperties: false,
	}
	if cross {
		s.Title = "TenantEventInput"
		s.Properties["tenant"] = &huma.Schema{Type: huma.TypeString}
		s.Required = append(s.Required, "tenant")
	}
	return s
}

func batchSchema(cross bool) *huma.Schema {
	title := "BatchInput"
	if cross {
		title = "TenantsBatchInput"
	}
	return &huma.Schema{
		Title: title,
		Type:  huma.TypeObject,
		Properties: map[string]*huma.Schema{
			"events": {Type: huma.TypeArray, Items: eventSchema(cross), MinItems: new(1), MaxItems: new(outbox.MaxBatchEvents)},
		},
		Required:             []string{"events"},
		AdditionalProperties: false,
	}
}
