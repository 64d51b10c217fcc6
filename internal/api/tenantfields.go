package api

import (
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// Bounds that are ours alone.
const (
	maxName        = 256
	maxMetadata    = 1000 // bytes of one value
	maxWeight      = 1000
	minWeight      = 0.01
	maxEndpointCap = 1_000_000
)

// Schemas that several fields share.
var (
	textSchema    = func(max int) *huma.Schema { return &huma.Schema{Type: huma.TypeString, MaxLength: &max} }
	wordsSchema   = func(words ...any) *huma.Schema { return &huma.Schema{Type: huma.TypeString, Enum: words} }
	textMapSchema = func(max int) *huma.Schema {
		return &huma.Schema{Type: huma.TypeObject, MaxProperties: &max, AdditionalProperties: &huma.Schema{Type: huma.TypeString}}
	}
	rangeSchema = func(kind string, min, max float64, standard any) *huma.Schema {
		s := &huma.Schema{Type: kind, Minimum: &min, Maximum: &max, Default: standard}
		if kind == huma.TypeNumber {
			s.Format = "double"
		}
		return s
	}
)

// tenantFields is PUT and PATCH /v1/tenants/{tenant}.
var tenantFields = []field[outbox.Tenant]{
	{
		name: "name", about: "For people.", schema: textSchema(maxName),
		set:   func(t *outbox.Tenant, v value) { setText(&t.Name, v, maxName) },
		reset: func(t *outbox.Tenant) { t.Name = "" },
	},
	{
		name: "weight", about: "Share of worker time when there is not enough for all.",
		schema: rangeSchema(huma.TypeNumber, minWeight, maxWeight, outbox.DefaultWeight),
		set: func(t *outbox.Tenant, v value) {
			if n, ok := v.number(minWeight, maxWeight); ok {
				t.Weight = n
			}
		},
		reset: func(t *outbox.Tenant) { t.Weight = outbox.DefaultWeight },
	},
	{
		name: "max_in_flight", about: "Attempts at once over all endpoints of the tenant; a hard cap.",
		schema: rangeSchema(huma.TypeInteger, 1, outbox.MaxMaxInFlight, outbox.DefaultMaxInFlight),
		set:    func(t *outbox.Tenant, v value) { setInteger(&t.MaxInFlight, v, 1, outbox.MaxMaxInFlight) },
		reset:  func(t *outbox.Tenant) { t.MaxInFlight = outbox.DefaultMaxInFlight },
	},
	{
		name: "max_endpoints", about: "How many endpoints the tenant may make itself; null: the instance's limit. Operator keys are not bound.",
		schema: rangeSchema(huma.TypeInteger, 0, maxEndpointCap, nil),
		set: func(t *outbox.Tenant, v value) {
			if n, ok := v.integer(0, maxEndpointCap); ok {
				t.MaxEndpoints = &n
			}
		},
		reset: func(t *outbox.Tenant) { t.MaxEndpoints = nil },
	},
	{
		name: "state", about: "A paused tenant's events are accepted and planned, and wait.",
		schema: wordsSchema("active", "paused"),
		set: func(t *outbox.Tenant, v value) {
			if s, ok := v.oneOf("active", "paused"); ok {
				t.State = outbox.TenantState(s)
			}
		},
		reset: func(t *outbox.Tenant) { t.State = outbox.TenantActive },
	},
	{
		name: "egress", about: "internal: endpoints may also lie in WAYBILL_EGRESS_ALLOW_INTERNAL.",
		schema: wordsSchema("public", "internal"),
		set: func(t *outbox.Tenant, v value) {
			if s, ok := v.oneOf("public", "internal"); ok {
				t.Egress = outbox.EgressClass(s)
			}
		},
		reset: func(t *outbox.Tenant) { t.Egress = outbox.EgressPublic },
	},
	{
		name: "retry", about: "Defaults of the tenant's endpoints.", schema: describe("RetryInput", retryFields),
		set:   func(t *outbox.Tenant, v value) { setRetry(&t.Retry, v) },
		reset: func(t *outbox.Tenant) { t.Retry = outbox.RetryPolicy{} },
	},
	{
		name: "metadata", about: "An object of strings, kept for you.", schema: textMapSchema(outbox.MaxMetadataEntries),
		set:   func(t *outbox.Tenant, v value) { setTextMap(&t.Metadata, v) },
		reset: func(t *outbox.Tenant) { t.Metadata = nil },
	},
}

// retryFields is the object retry of tenants and endpoints.
var retryFields = []field[outbox.RetryPolicy]{
	{
		name: "initial_seconds", about: "The first step of the back-off.", schema: rangeSchema(huma.TypeNumber, 0.05, maxRetryStep, 2),
		set:   func(p *outbox.RetryPolicy, v value) { setSeconds(&p.Initial, v, 0.05, maxRetryStep) },
		reset: func(p *outbox.RetryPolicy) { p.Initial = 0 },
	},
	{
		name: "max_seconds", about: "The largest step.", schema: rangeSchema(huma.TypeNumber, 0.05, maxRetryStep, 3600),
		set:   func(p *outbox.RetryPolicy, v value) { setSeconds(&p.Max, v, 0.05, maxRetryStep) },
		reset: func(p *outbox.RetryPolicy) { p.Max = 0 },
	},
	{
		name: "window_seconds", about: "How long a delivery is tried before it is dead.", schema: rangeSchema(huma.TypeNumber, 0.05, maxRetryWindow, 28800),
		set:   func(p *outbox.RetryPolicy, v value) { setSeconds(&p.Window, v, 0.05, maxRetryWindow) },
		reset: func(p *outbox.RetryPolicy) { p.Window = 0 },
	},
	{
		name: "max_attempts", about: "Attempts of one round; null: the window alone decides.", schema: rangeSchema(huma.TypeInteger, 1, 100_000, nil),
		set:   func(p *outbox.RetryPolicy, v value) { setInteger(&p.MaxAttempts, v, 1, 100_000) },
		reset: func(p *outbox.RetryPolicy) { p.MaxAttempts = 0 },
	},
	{
		name: "retry_statuses", about: "Permanent answers to be retried all the same: 404, 4xx.",
		schema: &huma.Schema{Type: huma.TypeArray, Items: &huma.Schema{Type: huma.TypeString, Pattern: `^[3-5](xx|[0-9][0-9])$`}, MaxItems: new(50)},
		set: func(p *outbox.RetryPolicy, v value) {
			if texts, ok := v.texts(50, 3); ok {
				p.RetryStatuses = texts
			}
		},
		reset: func(p *outbox.RetryPolicy) { p.RetryStatuses = nil },
	},
}

const (
	maxRetryStep   = 7 * 24 * 3600
	maxRetryWindow = 30 * 24 * 3600
)

// setRetry reads a retry object. Outside a PATCH it replaces the whole policy.
func setRetry(policy *outbox.RetryPolicy, v value) {
	next := outbox.RetryPolicy{}
	if v.merge {
		next = *policy
	}
	before := len(*v.items)
	fill(v, retryFields, &next)
	if len(*v.items) > before {
		return
	}
	if err := next.Validate(); err != nil {
		name, rule, named := strings.Cut(err.Error(), ": ")
		if !named {
			name, rule = "", err.Error()
		}
		v.at(join(v.path, name), nil).invalid("%s", rule)
		return
	}
	*policy = next
}

func setText(into *string, v value, max int) {
	if s, ok := v.text(max); ok {
		*into = s
	}
}

func setInteger(into *int, v value, min, max int) {
	if n, ok := v.integer(min, max); ok {
		*into = n
	}
}

func setSeconds(into *time.Duration, v value, min, max float64) {
	if n, ok := v.number(min, max); ok {
		*into = time.Duration(n * float64(time.Second)).Round(time.Microsecond)
	}
}

func setTextMap(into *map[string]string, v value) {
	if texts, ok := v.textMap(*into, outbox.MaxMetadataEntries, maxMetadata); ok {
		*into = texts
	}
}
