package api

import (
	"errors"
	"fmt"
	"net/textproto"
	"slices"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/waybill-dev/waybill/internal/egress"
	"github.com/waybill-dev/waybill/internal/outbox"
	"github.com/waybill-dev/waybill/internal/signing"
)

const (
	maxDescription = 1000
	maxEventTypes  = 100
	maxSecrets     = 5
	maxHeaders     = 20
	maxHeaderValue = 4096
)

// endpointEdit is an endpoint on its way from a request into the store, with what its fields
// are judged by.
type endpointEdit struct {
	outbox.Endpoint
	exists  bool
	guard   Guard
	tenant  *outbox.Tenant
	now     time.Time
	by      string
	backlog string // what to do with what waits, "" or "deliver" or "discard"

	book         signing.Book
	urlBefore    string
	schemesGiven bool
	secretsGiven bool
	// secretsBefore are those that the given ones replace.
	secretsBefore []outbox.Secret
	// sentAgain are the secret headers that this request itself names.
	sentAgain          map[string]string
	secretHeadersGiven bool
	dropSecretHeaders  bool
}

// endpointFields is POST …/endpoints, PUT …/endpoints/{uid} and, with backlog, PATCH.
var endpointFields = slices.Concat([]field[endpointEdit]{
	{
		name: "url", about: "Where deliveries are posted. Path and query are kept byte for byte.", required: true,
		schema: &huma.Schema{Type: huma.TypeString, Format: "uri", MaxLength: new(outbox.MaxURL)},
		set:    setURL,
	},
	{
		name: "uid", about: "Your own name for the endpoint, unique in the tenant; it can stand for the id in every path.",
		schema: &huma.Schema{Type: huma.TypeString, Pattern: `^[A-Za-z0-9_.:-]{1,128}$`},
		set: func(e *endpointEdit, v value) {
			s, ok := v.text(128)
			if ok && !outbox.ValidUID(s) {
				v.invalid("want 1 to 128 characters of A-Z a-z 0-9 _ . : - that do not begin with ep_")
			} else if ok {
				e.UID = s
			}
		},
		reset: func(e *endpointEdit) { e.UID = "" },
	},
	{
		name: "description", about: "For people.", schema: textSchema(maxDescription),
		set:   func(e *endpointEdit, v value) { setText(&e.Description, v, maxDescription) },
		reset: func(e *endpointEdit) { e.Description = "" },
	},
	{
		name: "metadata", about: "An object of strings, kept for you.", schema: textMapSchema(outbox.MaxMetadataEntries),
		set:   func(e *endpointEdit, v value) { setTextMap(&e.Metadata, v) },
		reset: func(e *endpointEdit) { e.Metadata = nil },
	},
	{
		name: "event_types", about: "What the endpoint wants: exact types, prefix.* or *.",
		schema: &huma.Schema{Type: huma.TypeArray, Items: &huma.Schema{Type: huma.TypeString}, MinItems: new(1), MaxItems: new(maxEventTypes)},
		set:    setEventTypes,
		reset:  func(e *endpointEdit) { e.EventTypes = []string{"*"} },
	},
	{
		name: "headers", about: "Sent with every delivery, and shown to everyone who sees the endpoint.", schema: textMapSchema(maxHeaders),
		set:   setHeaders,
		reset: func(e *endpointEdit) { e.Headers = nil },
	},
	{
		name: "secrets", about: "Signing secrets, the newest first; one is made where none is given. They replace those before, but a scheme in use that the list does not name keeps its own. They are never shown again.",
		schema: &huma.Schema{Type: huma.TypeArray, MinItems: new(1), MaxItems: new(maxSecrets * outbox.MaxSchemes), Items: describe("SecretInput", secretFields)},
		set:    setSecrets,
	},
	{
		name: "signing", about: "How deliveries are signed.", schema: describe("SigningInput", signingFields),
		set:   func(e *endpointEdit, v value) { fill(v, signingFields, e) },
		reset: func(e *endpointEdit) { e.Schemes, e.schemesGiven = []string{outbox.SchemeStandard}, true },
	},
	{
		name: "max_in_flight", about: "Attempts at once; null: the tenant's.", schema: rangeSchema(huma.TypeInteger, 1, outbox.MaxMaxInFlight, nil),
		set:   func(e *endpointEdit, v value) { setInteger(&e.MaxInFlight, v, 1, outbox.MaxMaxInFlight) },
		reset: func(e *endpointEdit) { e.MaxInFlight = 0 },
	},
	{
		name: "rate_limit", about: "At most count requests within any span of per_seconds; null: none.", schema: describe("RateLimitInput", rateLimitFields),
		set:   setRateLimit,
		reset: func(e *endpointEdit) { e.RateLimit = nil },
	},
	{
		name: "timeout_seconds", about: "For a whole attempt: connection, request and answer.",
		schema: rangeSchema(huma.TypeNumber, outbox.MinTimeout.Seconds(), outbox.MaxTimeout.Seconds(), outbox.DefaultTimeout.Seconds()),
		set: func(e *endpointEdit, v value) {
			setSeconds(&e.Timeout, v, outbox.MinTimeout.Seconds(), outbox.MaxTimeout.Seconds())
		},
		reset: func(e *endpointEdit) { e.Timeout = outbox.DefaultTimeout },
	},
	{
		name: "ordering", about: "none: deliveries run side by side and carry waybill-sequence. strict: one at a time for each ordering_key (events without one share one), each after the one before it has been delivered or is dead.",
		schema: wordsSchema(string(outbox.OrderingNone), string(outbox.OrderingStrict)),
		set: func(e *endpointEdit, v value) {
			if s, ok := v.oneOf(string(outbox.OrderingNone), string(outbox.OrderingStrict)); ok {
				e.Ordering = outbox.Ordering(s)
			}
		},
		reset: func(e *endpointEdit) { e.Ordering = outbox.OrderingNone },
	},
	{
		name: "on_dead", about: "With ordering strict, what a dead delivery means to those behind it. skip: the next goes on, past a gap in waybill-sequence. hold: they wait until it is replayed, or the backlog discarded.",
		schema: wordsSchema(string(outbox.OnDeadSkip), string(outbox.OnDeadHold)),
		set: func(e *endpointEdit, v value) {
			if s, ok := v.oneOf(string(outbox.OnDeadSkip), string(outbox.OnDeadHold)); ok {
				e.OnDead = outbox.OnDead(s)
			}
		},
		reset: func(e *endpointEdit) { e.OnDead = outbox.OnDeadSkip },
	},
	{
		name: "state", about: "draft: not routed, can be tested. paused, disabled: events are planned and wait.",
		schema: wordsSchema("draft", "active", "paused", "disabled"),
		set:    setState,
		reset:  func(e *endpointEdit) { e.enter(outbox.EndpointActive) },
	},
	{
		name: "retry", about: "When a failed delivery is tried again, and for how long.", schema: describe("RetryInput", retryFields),
		set:   func(e *endpointEdit, v value) { setRetry(&e.Retry, v) },
		reset: func(e *endpointEdit) { e.Retry = outbox.RetryPolicy{} },
	},
}, wantFields)

// endpointPatchFields adds what only an existing endpoint can be told.
var endpointPatchFields = append(optional(endpointFields), field[endpointEdit]{
	name: "backlog", about: "With state active: what becomes of the deliveries that wait.", schema: wordsSchema("deliver", "discard"),
	set: func(e *endpointEdit, v value) {
		if s, ok := v.oneOf("deliver", "discard"); ok {
			e.backlog = s
		}
	},
	reset: func(*endpointEdit) {},
})

// endpointPutFields is PUT on an endpoint that exists: nothing is required, absent fields stay.
var endpointPutFields = optional(endpointFields)

// optional returns the fields with none required.
func optional[T any](fields []field[T]) []field[T] {
	out := slices.Clone(fields)
	for i := range out {
		out[i].required = false
	}
	return out
}

// rateLimitFields is the object rate_limit.
var rateLimitFields = []field[outbox.RateLimit]{
	{
		name: "count", about: "Requests.", required: true, schema: rangeSchema(huma.TypeInteger, 1, outbox.MaxRateCount, nil),
		set: func(r *outbox.RateLimit, v value) { setInteger(&r.Count, v, 1, outbox.MaxRateCount) },
	},
	{
		name: "per_seconds", about: "The span they are counted in; fractions are allowed.", required: true,
		schema: rangeSchema(huma.TypeNumber, outbox.MinRatePer.Seconds(), outbox.MaxRatePer.Seconds(), nil),
		set: func(r *outbox.RateLimit, v value) {
			setSeconds(&r.Per, v, outbox.MinRatePer.Seconds(), outbox.MaxRatePer.Seconds())
		},
	},
}

func setURL(e *endpointEdit, v value) {
	text, ok := v.text(8 << 10) // the guard has the real bound, and a sentence for it
	if !ok {
		return
	}
	url, err := e.guard.CheckURL(text, e.tenant.Egress == outbox.EgressInternal)
	if err != nil {
		code := CodeURLInvalid
		if refused, ok := errors.AsType[*egress.URLError](err); ok {
			code = Code(refused.Code)
		}
		v.bad(code, "%s", err)
		return
	}
	e.URL = url
}

func setEventTypes(e *endpointEdit, v value) {
	texts, ok := v.texts(maxEventTypes, outbox.MaxEventType+2)
	if !ok {
		return
	}
	if len(texts) == 0 {
		v.invalid("want at least one type; \"*\" is all")
		return
	}
	var types []string
	for i, s := range texts {
		if !outbox.ValidEventTypePattern(s) {
			v.at(fmt.Sprintf("%s[%d]", v.path, i), nil).invalid("want an event type, prefix.* or *")
			return
		}
		if !slices.Contains(types, s) {
			types = append(types, s)
		}
	}
	e.EventTypes = types
}

func setHeaders(e *endpointEdit, v value) {
	// Names are compared without case, as in HTTP: a PATCH of x-acme meets X-Acme.
	headers, ok := v.textMap(e.Headers, maxHeaders, maxHeaderValue, textproto.CanonicalMIMEHeaderKey)
	if !ok {
		return
	}
	checked, err := e.guard.CheckHeaders(headers)
	if err != nil {
		v.bad(CodeInvalidHeader, "%s", err)
		return
	}
	e.Headers = checked
}

// setRateLimit reads a limit. In a PATCH a part of it may be given where there is one already.
func setRateLimit(e *endpointEdit, v value) {
	before := len(*v.items)
	var limit outbox.RateLimit
	fields := rateLimitFields
	if v.merge && e.RateLimit != nil {
		limit, fields = *e.RateLimit, optional(rateLimitFields)
	}
	fill(v, fields, &limit)
	if len(*v.items) == before {
		e.RateLimit = &limit
	}
}

func setState(e *endpointEdit, v value) {
	s, ok := v.oneOf("draft", "active", "paused", "disabled")
	if ok {
		e.enter(outbox.EndpointState(s))
	}
}

// enter changes the state; entering the one it is in changes nothing, not even the reason.
func (e *endpointEdit) enter(s outbox.EndpointState) {
	if e.State == s {
		return
	}
	e.State, e.StateReason = s, nil
	if s == outbox.EndpointPaused || s == outbox.EndpointDisabled {
		e.StateReason = &outbox.StateReason{Code: "manual", Message: "It was set to " + string(s) + " by hand.", At: e.now, By: e.by}
	}
}
