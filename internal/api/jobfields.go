package api

import (
	"slices"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// jobRequest is what a POST for a replay, a cancellation or an erasure asks for.
type jobRequest struct {
	filter outbox.JobFilter
	reason string
	rate   float64
	dry    bool
}

var replayWords = []string{"dead", "delivered", "cancelled", "missing", "all"}

// jobFields are what both have.
var jobFields = []field[jobRequest]{
	{
		name: "from", about: "RFC 3339; events at or after it.", schema: &huma.Schema{Type: huma.TypeString, Format: "date-time"},
		set:   func(r *jobRequest, v value) { setTime(&r.filter.From, v) },
		reset: func(r *jobRequest) { r.filter.From = time.Time{} },
	},
	{
		name: "to", about: "RFC 3339; events before it.", schema: &huma.Schema{Type: huma.TypeString, Format: "date-time"},
		set:   func(r *jobRequest, v value) { setTime(&r.filter.To, v) },
		reset: func(r *jobRequest) { r.filter.To = time.Time{} },
	},
	{
		name: "endpoint_id", about: "ep_…; null: all of the tenant's.", schema: &huma.Schema{Type: huma.TypeString},
		set:   func(r *jobRequest, v value) { setID(&r.filter.Endpoint, v, outbox.ParseEndpointID) },
		reset: func(r *jobRequest) { r.filter.Endpoint = outbox.EndpointID{} },
	},
	{
		name: "event_types", about: `As of an endpoint: exact, "prefix.*" or "*"; null: all.`,
		schema: &huma.Schema{Type: huma.TypeArray, Items: &huma.Schema{Type: huma.TypeString}, MaxItems: new(maxEventTypes)},
		set: func(r *jobRequest, v value) {
			r.filter.EventTypes = nil
			v.list(maxEventTypes, func(v value) {
				s, ok := v.text(outbox.MaxEventType + 2)
				if ok && !outbox.ValidEventTypePattern(s) {
					v.invalid("want an event type, a prefix such as order.*, or *")
				} else if ok {
					r.filter.EventTypes = append(r.filter.EventTypes, s)
				}
			})
		},
		reset: func(r *jobRequest) { r.filter.EventTypes = nil },
	},
	{
		name: "dry_run", about: "Count, and do nothing.", schema: &huma.Schema{Type: huma.TypeBoolean},
		set:   func(r *jobRequest, v value) { setBool(&r.dry, v) },
		reset: func(r *jobRequest) { r.dry = false },
	},
}

var replayFields = append(jobFields[:len(jobFields):len(jobFields)],
	field[jobRequest]{
		name: "state", about: "Which deliveries; dead by default. missing: events that an endpoint wants as it is today and never got. all: every delivery that has ended.",
		schema: wordsSchema("dead", "delivered", "cancelled", "missing", "all"),
		set: func(r *jobRequest, v value) {
			if word, ok := v.oneOf(replayWords...); ok {
				r.filter.State = outbox.ReplayOf(word)
			}
		},
		reset: func(r *jobRequest) { r.filter.State = outbox.ReplayDead },
	},
	field[jobRequest]{
		name: "delivery_ids", about: "Only these, up to 1,000; from and to may then be left out.",
		schema: &huma.Schema{Type: huma.TypeArray, Items: &huma.Schema{Type: huma.TypeString}, MinItems: new(1), MaxItems: new(outbox.MaxJobIDs)},
		set:    func(r *jobRequest, v value) { setIDs(&r.filter.Deliveries, v, outbox.ParseDeliveryID) },
		reset:  func(r *jobRequest) { r.filter.Deliveries = nil },
	},
	field[jobRequest]{
		name: "rate_per_second", about: "How many deliveries may start a second; null: as many as the endpoints' limits let through.",
		schema: rangeSchema(huma.TypeNumber, outbox.MinJobRate, outbox.MaxJobRate, nil),
		set: func(r *jobRequest, v value) {
			if n, ok := v.number(outbox.MinJobRate, outbox.MaxJobRate); ok {
				r.rate = n
			}
		},
		reset: func(r *jobRequest) { r.rate = 0 },
	},
)

var cancellationFields = append(jobFields[:len(jobFields):len(jobFields)],
	field[jobRequest]{
		name: "event_ids", about: "Only deliveries of these, up to 1,000; from and to may then be left out.",
		schema: &huma.Schema{Type: huma.TypeArray, Items: &huma.Schema{Type: huma.TypeString}, MinItems: new(1), MaxItems: new(outbox.MaxJobIDs)},
		set:    func(r *jobRequest, v value) { setIDs(&r.filter.Events, v, outbox.ParseEventID) },
		reset:  func(r *jobRequest) { r.filter.Events = nil },
	},
	field[jobRequest]{
		name: "reason", about: "Shown with every delivery it ends.", required: true, schema: textSchema(maxReason),
		set: func(r *jobRequest, v value) {
			if setText(&r.reason, v, maxReason); r.reason == "" && string(v.raw) == `""` {
				v.invalid("must not be empty")
			}
		},
	},
)

// erasureFields have no endpoint: an event is everybody's who got it.
var erasureFields = append(slices.DeleteFunc(slices.Clone(jobFields), func(f field[jobRequest]) bool { return f.name == "endpoint_id" }),
	field[jobRequest]{
		name: "event_ids", about: "Only these, up to 1,000. This or metadata is required, or both from and to.",
		schema: &huma.Schema{Type: huma.TypeArray, Items: &huma.Schema{Type: huma.TypeString}, MinItems: new(1), MaxItems: new(outbox.MaxJobIDs)},
		set:    func(r *jobRequest, v value) { setIDs(&r.filter.Events, v, outbox.ParseEventID) },
		reset:  func(r *jobRequest) { r.filter.Events = nil },
	},
	field[jobRequest]{
		name: "metadata", about: "Only events whose metadata has all of these entries, exactly. This or event_ids is required, or both from and to.",
		schema: textMapSchema(outbox.MaxMetadataEntries),
		set:    func(r *jobRequest, v value) { setTextMap(&r.filter.Metadata, v) },
		reset:  func(r *jobRequest) { r.filter.Metadata = nil },
	},
	field[jobRequest]{
		name: "reason", about: "For people.", schema: textSchema(maxReason),
		set:   func(r *jobRequest, v value) { setText(&r.reason, v, maxReason) },
		reset: func(r *jobRequest) { r.reason = "" },
	},
)

func setTime(into *time.Time, v value) {
	s, ok := v.text(64)
	if !ok {
		return
	}
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil || t.Year() < 1970 {
		v.invalid("want a time such as 2026-11-30T12:00:00Z")
		return
	}
	*into = t.UTC()
}

func setBool(into *bool, v value) {
	switch string(v.raw) {
	case "true", "false":
		*into = string(v.raw) == "true"
	default:
		v.invalid("want true or false")
	}
}

// setID reads a typed id.
func setID[ID any](into *ID, v value, parse func(string) (ID, error)) {
	s, ok := v.text(64)
	if !ok {
		return
	}
	parsed, err := parse(s)
	if err != nil {
		v.invalid("is not an id of the right kind")
		return
	}
	*into = parsed
}

// setIDs reads a list of typed ids, each kept once.
func setIDs[ID comparable](into *[]ID, v value, parse func(string) (ID, error)) {
	*into = nil
	seen := map[ID]bool{}
	ok := v.list(outbox.MaxJobIDs, func(v value) {
		var id, none ID
		if setID(&id, v, parse); id != none && !seen[id] {
			seen[id] = true
			*into = append(*into, id)
		}
	})
	if ok && len(*into) == 0 {
		v.invalid("want at least one id; leave it out for no limit")
	}
}
