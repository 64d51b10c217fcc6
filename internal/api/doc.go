// Package api is the HTTP API: what customers' back ends and operators talk to.
//
// One table of routes (routes.go) is the source of everything: the mux, the scopes, the OpenAPI
// document, the pages of /docs and the tests that walk over every route. A request passes
//
//	serve.go      request id, key, scope, tenant, limits, time; errors become problem documents
//	idempotent.go the first answer again, for POST requests that are not publishing
//	a handler     tenants.go, endpoints.go, publish.go, deliveries.go, …
//
// Objects in requests are read through tables of fields (fields.go), which give PUT, PATCH
// (RFC 7396) and POST their meaning, report everything that is wrong at once and describe
// themselves in the document.
//
// Publishing is the hot path. The body is walked over once by internal/rawjson, the payload's
// bytes are cut out as they stand, nothing is decoded by reflection and nothing printed again.
package api
