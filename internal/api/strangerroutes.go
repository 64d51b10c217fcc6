package api

import (
	"net/http"

	"github.com/waybill-dev/waybill/internal/thin"
)

// strangerRoutes are about what strangers' servers want to see and to get.
func strangerRoutes() []*route {
	const tenant, schemes, types = "/v1/tenants/{tenant}", "/v1/signature-schemes", "/v1/event-types"
	conflict, gone, forbidden := http.StatusConflict, http.StatusGone, http.StatusForbidden
	return []*route{
		{method: "PUT", path: schemes + "/{name}", name: "putSignatureScheme", tag: "Signature schemes", scope: ScopeAdmin, operator: true,
			summary: "Define a signature scheme", about: "For customers who verify the way an older system signed. The definition is replaced whole.",
			body: describe("SignatureSchemeInput", schemeFields), answers: map[int]any{200: signatureSchemeView{}, 201: signatureSchemeView{}}, handle: (*API).putScheme},
		{method: "GET", path: schemes + "/{name}", name: "getSignatureScheme", tag: "Signature schemes", scope: ScopeRead, operator: true,
			summary: "Read a signature scheme", answers: map[int]any{200: signatureSchemeView{}}, refuses: []int{404}, handle: (*API).getScheme},
		{method: "GET", path: schemes, name: "listSignatureSchemes", tag: "Signature schemes", scope: ScopeRead, operator: true,
			summary: "List signature schemes, presets among them", answers: map[int]any{200: list[signatureSchemeView]{}}, handle: (*API).listSchemes},
		{method: "DELETE", path: schemes + "/{name}", name: "deleteSignatureScheme", tag: "Signature schemes", scope: ScopeAdmin, operator: true,
			summary: "Forget a signature scheme", answers: map[int]any{204: nil}, refuses: []int{404, conflict}, handle: (*API).deleteScheme},

		{method: "PUT", path: types + "/{type}", name: "putEventType", tag: "Event types", scope: ScopeAdmin, operator: true,
			summary: "Describe an event type, or change its description", about: "Fields that are absent keep their value; null returns to the default.",
			body: describe("EventTypeInput", eventTypeFields), answers: map[int]any{200: eventTypeView{}, 201: eventTypeView{}}, handle: (*API).putEventType},
		{method: "GET", path: types + "/{type}", name: "getEventType", tag: "Event types", scope: ScopeRead,
			summary: "Read an event type", answers: map[int]any{200: eventTypeView{}}, refuses: []int{404}, handle: (*API).getEventType},
		{method: "GET", path: types, name: "listEventTypes", tag: "Event types", scope: ScopeRead,
			summary: "List the event types", answers: map[int]any{200: list[eventTypeView]{}}, handle: (*API).listEventTypes},
		{method: "DELETE", path: types + "/{type}", name: "deleteEventType", tag: "Event types", scope: ScopeAdmin, operator: true,
			summary: "Take an event type out of the catalogue", answers: map[int]any{204: nil}, refuses: []int{404}, handle: (*API).deleteEventType},

		{method: "POST", path: tenant + "/endpoints/{ep}/preview", name: "previewDelivery", tag: "Endpoints", scope: ScopeWrite,
			summary: "Show the request a delivery would make", about: "Signed and complete, as a first attempt would send it; nothing is sent or stored.",
			body: describe("PreviewInput", previewFields), maxBody: 2 << 20, answers: map[int]any{200: previewView{}}, refuses: []int{404, conflict, 413}, asks: true, handle: (*API).preview},
		{method: "POST", path: tenant + "/endpoints/check", name: "checkEndpoint", tag: "Endpoints", scope: ScopeWrite,
			summary: "Judge an endpoint without making it", about: "As a PUT under its uid would. Nothing is stored, and nothing sent.",
			query: []param{{name: "connect", about: "Also look its host up, connect, and make the TLS handshake.", words: yesOrNo}},
			body:  describe("EndpointUpsert", endpointPutFields), answers: map[int]any{200: checkedView{}}, refuses: []int{404}, asks: true, handle: (*API).checkEndpoint},
		{method: "DELETE", path: tenant + "/events/{evt}/payload", name: "erasePayload", tag: "Events", scope: ScopeWrite,
			summary: "Erase an event's bytes", about: "The event, its deliveries and their attempts stay, and the books with them. What is pending ends for want of its bytes; a replay is refused.",
			answers: map[int]any{204: nil}, refuses: []int{404}, handle: (*API).erasePayload},
		{method: "GET", path: thin.Path + "{evt}", name: "fetchPayload", tag: "Events",
			summary: "Fetch the payload of a thin delivery", about: "The address is in the delivery, signed, and needs no key.",
			query: []param{{name: "tenant"}, {name: "expires"}, {name: "signature"}}, answers: map[int]any{200: nil}, refuses: []int{404, gone, forbidden}, handle: (*API).fetchThin},
		{method: "GET", path: "/.well-known/waybill/{tenant}/keys", name: "publicKeys", tag: "Endpoints",
			summary: "The public keys that a tenant's deliveries are signed with", answers: map[int]any{200: publicKeysView{}}, refuses: []int{404}, handle: (*API).publicKeys},
	}
}
