package api

import "net/http"

// Code names a fault for programs. The list only grows.
type Code string

const (
	CodeBadRequest       Code = "bad_request"
	CodeCursorInvalid    Code = "cursor_invalid"
	CodeUnauthorized     Code = "unauthorized"
	CodeInvalidSignature Code = "invalid_signature"
	CodeForbidden        Code = "forbidden"
	CodeNotFound         Code = "not_found"
	CodeUnknownTenant    Code = "unknown_tenant"
	CodeMethodNotAllowed Code = "method_not_allowed"
	CodeTimeout          Code = "timeout"

	CodeAmbiguousID        Code = "ambiguous_id"
	CodeIDConflict         Code = "id_conflict"
	CodeIdempotencyRunning Code = "idempotency_running"
	CodeUIDTaken           Code = "uid_taken"
	CodeEndpointDeleted    Code = "endpoint_deleted"
	CodeEndpointInactive   Code = "endpoint_inactive"
	CodePayloadGone        Code = "payload_gone"
	CodeForeignEnvironment Code = "foreign_environment"
	CodeNotQuarantined     Code = "not_quarantined"
	CodePayloadTooLarge    Code = "payload_too_large"
	CodeUnsupportedMedia   Code = "unsupported_media_type"

	CodeInvalidRequest        Code = "invalid_request"
	CodeInvalidJSON           Code = "invalid_json"
	CodeInvalidPayload        Code = "invalid_payload"
	CodeUnknownField          Code = "unknown_field"
	CodeDuplicateField        Code = "duplicate_field"
	CodeMissingField          Code = "missing_field"
	CodeInvalidField          Code = "invalid_field"
	CodeInvalidTenant         Code = "invalid_tenant"
	CodeReservedTenant        Code = "reserved_tenant"
	CodeURLInvalid            Code = "url_invalid"
	CodeURLScheme             Code = "url_scheme"
	CodeURLUserinfo           Code = "url_userinfo"
	CodeURLPort               Code = "url_port"
	CodeURLNotAllowed         Code = "url_not_allowed"
	CodeInvalidHeader         Code = "invalid_header"
	CodeInvalidSecret         Code = "invalid_secret"
	CodeIDTime                Code = "id_time"
	CodeIdempotencyMismatch   Code = "idempotency_mismatch"
	CodeBatchTooLarge         Code = "batch_too_large"
	CodeEndpointLimit         Code = "endpoint_limit"
	CodeJobTooLarge           Code = "job_too_large"
	CodeSecretLimit           Code = "secret_limit"
	CodeSecretHeadersRequired Code = "secret_headers_required"
	CodeSchemeInUse           Code = "scheme_in_use"
	CodeInvalidScheme         Code = "invalid_scheme"
	CodeInvalidSchema         Code = "invalid_schema"
	CodePayloadSchema         Code = "payload_schema"
	CodeLinkInvalid           Code = "link_invalid"
	CodeLinkExpired           Code = "link_expired"
	CodeRefused               Code = "refused"

	CodeTooManyRequests Code = "too_many_requests"

	CodeInternal    Code = "internal"
	CodeUnavailable Code = "unavailable"
)

// spec is what a code means.
type spec struct {
	status     int
	title      string
	about      string // what happened and what to do
	retryAfter int    // seconds
}

var codes = map[Code]spec{
	CodeBadRequest:       {http.StatusBadRequest, "Bad request", "The request cannot be read.", 0},
	CodeCursorInvalid:    {http.StatusBadRequest, "Invalid cursor", "The cursor is damaged, or from another list, other filters or another order. Start the list again without one.", 0},
	CodeUnauthorized:     {http.StatusUnauthorized, "No valid key", "Send the header Authorization: Bearer <key> with a key that is known and not revoked.", 0},
	CodeInvalidSignature: {http.StatusUnauthorized, "Does not verify", "A webhook sent to a source is not signed with one of its secrets, or too long ago. GET /v1/sources/{source}/requests?outcome=rejected says why.", 0},
	CodeForbidden:        {http.StatusForbidden, "Not allowed", "The key is valid but lacks the scope this route needs.", 0},
	CodeNotFound:         {http.StatusNotFound, "Not found", "There is no such object, or it belongs to another tenant.", 0},
	CodeUnknownTenant:    {http.StatusNotFound, "Unknown tenant", "There is no tenant with this key. Create it first with PUT /v1/tenants/{tenant}.", 0},
	CodeMethodNotAllowed: {http.StatusMethodNotAllowed, "Method not allowed", "The header Allow lists the methods of this address.", 0},
	CodeTimeout:          {http.StatusRequestTimeout, "Request took too long", "The body did not arrive in time. Nothing was stored.", 0},

	CodeAmbiguousID:        {http.StatusConflict, "Several have this id", "Events of several tenants have this id, which their publishers chose. errors lists the tenants; say with ?tenant= whose is meant.", 0},
	CodeIDConflict:         {http.StatusConflict, "Event id exists", "An event with this id is stored with another type or other bytes. Nothing was stored.", 0},
	CodeIdempotencyRunning: {http.StatusConflict, "Still running", "A request with the same idempotency key or event id has not ended. Send it again after Retry-After.", 1},
	CodeUIDTaken:           {http.StatusConflict, "uid is taken", "Another endpoint of the tenant has this uid. Use PUT …/endpoints/{uid} to change that one.", 0},
	CodeEndpointDeleted:    {http.StatusConflict, "Endpoint is deleted", "The delivery cannot be replayed: its endpoint is deleted.", 0},
	CodeEndpointInactive:   {http.StatusConflict, "Nothing is sent to the endpoint", "The endpoint is not active, its tenant is paused, or sending is stopped on all nodes. Resume it first.", 0},
	CodeNotQuarantined:     {http.StatusConflict, "Not in quarantine", "Only a quarantined request can be released, and one that was kept before releases were possible cannot.", 0},
	CodePayloadGone:        {http.StatusConflict, "Payload is gone", "The event's bytes are no longer kept.", 0},
	CodePayloadTooLarge:    {http.StatusRequestEntityTooLarge, "Too large", "A payload is larger than WAYBILL_MAX_PAYLOAD, or the request larger than the route takes (a batch: 8 MiB). Nothing was stored.", 0},
	CodeUnsupportedMedia:   {http.StatusUnsupportedMediaType, "Unsupported media type", "Send application/json, not compressed.", 0},

	CodeInvalidRequest:        {http.StatusUnprocessableEntity, "Invalid request", "Several things are wrong; errors lists each.", 0},
	CodeInvalidJSON:           {http.StatusUnprocessableEntity, "Not JSON", "The body is not a well-formed JSON object in UTF-8.", 0},
	CodeInvalidPayload:        {http.StatusUnprocessableEntity, "Invalid payload", "A payload is any JSON value in UTF-8, at most 1,000 levels deep. Nothing was stored.", 0},
	CodeUnknownField:          {http.StatusUnprocessableEntity, "Unknown field", "There is no such field, value or query parameter here; a typing mistake would otherwise pass in silence. Prefer: handling=lenient ignores unknown names.", 0},
	CodeDuplicateField:        {http.StatusUnprocessableEntity, "Field is given twice", "A name occurs twice in one object, so its value is ambiguous.", 0},
	CodeMissingField:          {http.StatusUnprocessableEntity, "Field is missing", "A required field is absent.", 0},
	CodeInvalidField:          {http.StatusUnprocessableEntity, "Invalid value", "A field's value is of the wrong type or out of its bounds.", 0},
	CodeInvalidTenant:         {http.StatusUnprocessableEntity, "Invalid tenant key", "A tenant key is 1 to 64 characters of A-Z a-z 0-9 _ . : -", 0},
	CodeReservedTenant:        {http.StatusUnprocessableEntity, "Tenant is reserved", "The tenant waybill receives operational events; nobody else publishes to it.", 0},
	CodeURLInvalid:            {http.StatusUnprocessableEntity, "Invalid URL", "The endpoint's URL is not one that can be called.", 0},
	CodeURLScheme:             {http.StatusUnprocessableEntity, "Scheme not allowed", "The endpoint's URL has a scheme that is not allowed here.", 0},
	CodeURLUserinfo:           {http.StatusUnprocessableEntity, "Credentials in the URL", "The endpoint's URL holds a user name or password.", 0},
	CodeURLPort:               {http.StatusUnprocessableEntity, "Port not allowed", "The endpoint's URL has a port that is not open to webhooks.", 0},
	CodeURLNotAllowed:         {http.StatusUnprocessableEntity, "Address not allowed", "The endpoint's URL leads where deliveries may not go.", 0},
	CodeInvalidHeader:         {http.StatusUnprocessableEntity, "Invalid header", "A custom header is malformed, or one that Waybill sets itself.", 0},
	CodeInvalidSecret:         {http.StatusUnprocessableEntity, "Invalid secret", "A secret is not written as its scheme has it; for Standard Webhooks it is whsec_ and base64 of 24 to 64 bytes.", 0},
	CodeIDTime:                {http.StatusUnprocessableEntity, "Event id out of time", "The time in a chosen event id must lie between 24 hours ago and 5 minutes ahead.", 0},
	CodeIdempotencyMismatch:   {http.StatusUnprocessableEntity, "Idempotency key was used", "The idempotency key belongs to another request. Nothing was done.", 0},
	CodeBatchTooLarge:         {http.StatusUnprocessableEntity, "Batch too large", "A batch holds 1 to 1,000 events.", 0},
	CodeEndpointLimit:         {http.StatusUnprocessableEntity, "Endpoint limit reached", "The tenant has as many endpoints as it may have.", 0},
	CodeJobTooLarge:           {http.StatusUnprocessableEntity, "Too much for one job", "A replay or cancellation would have to look through more than 1,000,000 deliveries, or 200,000 missing ones. Narrow from and to, or name an endpoint. A dry run of an erasure is held to as many events. Nothing was stored.", 0},
	CodeSecretLimit:           {http.StatusUnprocessableEntity, "Too many secrets", "The endpoint has as many live secrets as it may have. Wait until one expires, or rotate with overlap_seconds 0, which ends all others at once.", 0},
	CodeSecretHeadersRequired: {http.StatusUnprocessableEntity, "Secret headers are needed again", "The URL has another origin, and secret headers follow the origin they were given for. Send them again in the same request, or drop_secret_headers: true.", 0},
	CodeSchemeInUse:           {http.StatusConflict, "Signature scheme is in use", "An endpoint signs with it. Take it out of the endpoint's signing first.", 0},
	CodeInvalidScheme:         {http.StatusUnprocessableEntity, "Invalid signature scheme", "The definition cannot be used; path names the part of it.", 0},
	CodeInvalidSchema:         {http.StatusUnprocessableEntity, "Invalid JSON Schema", "The event type's schema is not a JSON Schema that can be used. References to other documents are not followed.", 0},
	CodePayloadSchema:         {http.StatusUnprocessableEntity, "Payload does not follow its schema", "The event type has a schema, and refuses what does not follow it. Nothing was stored.", 0},
	CodeLinkInvalid:           {http.StatusForbidden, "Not a valid link", "The address was not made here, or was changed.", 0},
	CodeLinkExpired:           {http.StatusForbidden, "Link is over", "The address answered until the time in it. Replay the delivery for a new one.", 0},
	CodeRefused:               {http.StatusUnprocessableEntity, "Refused by the database", "The database cannot store this content. Nothing was stored.", 0},
	CodeForeignEnvironment:    {http.StatusConflict, "Another environment's database", "The database belongs to another environment than the server. If it is a copy to go on with, run waybill adopt.", 0},

	CodeTooManyRequests: {http.StatusTooManyRequests, "Too many requests", "The key sends more requests than WAYBILL_RATE_LIMIT, or the address tried too many wrong keys. Wait for the seconds in Retry-After.", 1},
	CodeInternal:        {http.StatusInternalServerError, "Internal error", "A defect of the server. The log has it under request_id.", 0},
	CodeUnavailable:     {http.StatusServiceUnavailable, "Not available", "The server is overloaded or its database away. Send the request again after Retry-After, with the same Idempotency-Key.", 1},
}
