package api

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/waybill-dev/waybill/internal/outbox"
)

const schemaPrefix = "#/components/schemas/"

// vocabulary are the words that an answer's type can take, by the name they have in the document;
// nil: words that stand in several places and have no type.
// Lists only grow; programs made from the document must let a word pass that they do not know.
var vocabulary = []struct {
	of    reflect.Type
	name  string
	words []string
}{
	{reflect.TypeFor[Code](), "ErrorCode", codeWords()},
	{reflect.TypeFor[Scope](), "Scope", wordsOf(outbox.ScopeAdmin, outbox.ScopeRead, outbox.ScopeWrite, outbox.ScopePublish, outbox.ScopeListen)},
	{reflect.TypeFor[outbox.TenantState](), "TenantState", wordsOf(outbox.TenantActive, outbox.TenantPaused)},
	{reflect.TypeFor[outbox.EgressClass](), "Egress", wordsOf(outbox.EgressPublic, outbox.EgressInternal)},
	{reflect.TypeFor[outbox.EndpointState](), "EndpointState", wordsOf(outbox.EndpointDraft, outbox.EndpointActive, outbox.EndpointPaused, outbox.EndpointDisabled)},
	{reflect.TypeFor[outbox.Ordering](), "Ordering", wordsOf(outbox.OrderingNone, outbox.OrderingStrict)},
	{reflect.TypeFor[outbox.OnDead](), "OnDead", wordsOf(outbox.OnDeadSkip, outbox.OnDeadHold)},
	{reflect.TypeFor[outbox.PayloadMode](), "PayloadMode", wordsOf(outbox.PayloadFull, outbox.PayloadThin)},
	{reflect.TypeFor[outbox.OnInvalid](), "OnInvalid", wordsOf(outbox.OnInvalidWarn, outbox.OnInvalidRefuse)},
	{reflect.TypeFor[outbox.BreakerState](), "BreakerState", wordsOf(outbox.BreakerClosed, outbox.BreakerOpen, outbox.BreakerProbing)},
	{reflect.TypeFor[outbox.EventState](), "EventState", wordsOf(outbox.EventUnrouted, outbox.EventFailed, outbox.EventCancelled, outbox.EventDelivered, outbox.EventUnmatched)},
	{reflect.TypeFor[outbox.DeliveryState](), "DeliveryState", deliveryStates},
	{reflect.TypeFor[outbox.DeadReason](), "DeadReason", deadReasons},
	{reflect.TypeFor[outbox.Kind](), "FailureKind", kinds},
	{reflect.TypeFor[outbox.Trigger](), "Trigger", wordsOf(outbox.TriggerSchedule, outbox.TriggerReplay, outbox.TriggerProbe, outbox.TriggerTest)},
	{reflect.TypeFor[outbox.Outcome](), "Outcome", wordsOf(outbox.OutcomeDelivered, outbox.OutcomeTransient, outbox.OutcomePermanent)},
	{reflect.TypeFor[waitReason](), "WaitReason", wordsOf(waitDispatch, waitPaused, waitDisabled, waitBreaker, waitOrder, waitRetry, waitRate, waitTenant, waitEndpoint, waitBacklog)},
	{reflect.TypeFor[missReason](), "MissReason", wordsOf(missEventType, missFilter, missDraft, missCreatedAfter, missDeleted, missChangedSince)},
	{reflect.TypeFor[outbox.ActorKind](), "ActorKind", wordsOf(outbox.ActorKey, outbox.ActorPortal, outbox.ActorOperator, outbox.ActorCLI, outbox.ActorSystem)},
	{reflect.TypeFor[outbox.SessionState](), "SessionState", wordsOf(outbox.SessionUnused, outbox.SessionOpen, outbox.SessionExpired, outbox.SessionRevoked)},
	{reflect.TypeFor[outbox.Permission](), "Permission", wordsOf(outbox.PermissionView, outbox.PermissionReplay, outbox.PermissionManage, outbox.PermissionSecrets, outbox.PermissionAdmin)},
	{reflect.TypeFor[outbox.SourceState](), "SourceState", wordsOf(outbox.SourceActive, outbox.SourcePaused)},
	{reflect.TypeFor[outbox.InboundOutcome](), "InboundOutcome", wordsOf(outbox.InboundAccepted, outbox.InboundDuplicate, outbox.InboundRejected, outbox.InboundQuarantined)},
	{nil, "Order", []string{"desc", "asc"}},
	{nil, "EventFilterState", []string{"pending", "failed", "cancelled"}},
	{nil, "PayloadState", []string{"kept", "erased"}},
	{nil, "ReplayState", replayWords},
	{nil, "ThemeMode", []string{"light", "dark", "auto"}},
}

func wordsOf[T ~string](values ...T) []string {
	out := make([]string, len(values))
	for i, v := range values {
		out[i] = string(v)
	}
	return out
}

func codeWords() []string { return wordsOf(slices.Sorted(maps.Keys(codes))...) }

// speak puts the words of its type into an answer's property.
func speak(property *huma.Schema, t reflect.Type) {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		if t.Kind() == reflect.Slice && property.Items != nil {
			property = property.Items
		}
		t = t.Elem()
	}
	for _, v := range vocabulary {
		if v.of == t {
			property.Title, property.Enum = v.name, anyOf(v.words)
		}
	}
}

// mergeable is an object's schema in a PATCH (RFC 7396): nothing is required, in it or in the
// objects that are merged with what there is, and null removes a name from an object of any names.
func mergeable(s *huma.Schema) *huma.Schema {
	out := *s
	out.Required = nil
	if values, is := s.AdditionalProperties.(*huma.Schema); is {
		removable := *values
		removable.Nullable = true
		out.AdditionalProperties = &removable
	}
	out.Properties = map[string]*huma.Schema{}
	changed := len(s.Required) > 0
	for name, p := range s.Properties {
		if p.Type == huma.TypeObject {
			out.Properties[name] = mergeable(p)
			changed = true
			continue
		}
		unchanged := *p
		unchanged.Default = nil // what is absent stays as it is
		out.Properties[name] = &unchanged
		changed = changed || p.Default != nil
	}
	if stem, is := strings.CutSuffix(s.Title, "Input"); is && changed {
		out.Title = stem + "Patch"
	}
	return &out
}

// components moves the objects and the lists of words that stand in the routes' requests and
// answers to components, each under a name of its own: programs made from the document then have
// one type for each, that they can name, and people read the page, where all is in its place.
type components struct {
	registry huma.Registry
	err      error
}

func name(api *huma.OpenAPI) error {
	c := &components{registry: api.Components.Schemas}
	for _, known := range slices.Sorted(maps.Keys(c.registry.Map())) {
		s := c.registry.Map()[known]
		for property, p := range s.Properties {
			s.Properties[property] = c.lift(p, known, property)
		}
	}
	api.Components.Responses = map[string]*huma.Response{}
	for _, path := range slices.Sorted(maps.Keys(api.Paths)) {
		item := api.Paths[path]
		for _, op := range []*huma.Operation{item.Get, item.Put, item.Post, item.Patch, item.Delete} {
			if op == nil {
				continue
			}
			for _, p := range op.Parameters {
				about := p.Schema.Description
				p.Schema = c.lift(p.Schema, capital(op.OperationID), p.Name)
				p.Schema.Description = about // the parameter has it
			}
			if op.RequestBody != nil {
				for _, media := range op.RequestBody.Content {
					media.Schema = c.lift(media.Schema, "", "")
				}
			}
			for status, r := range op.Responses {
				if r.Content["application/problem+json"] != nil {
					api.Components.Responses["Problem"+status] = r
					op.Responses[status] = &huma.Response{Ref: "#/components/responses/Problem" + status}
				}
			}
		}
	}
	return c.err
}

// lift returns what stands in the place of s, which is a property of parent.
func (c *components) lift(s *huma.Schema, parent, property string) *huma.Schema {
	out := *s
	within := parent
	if s.Title != "" && s.Type == huma.TypeObject {
		within = s.Title
	}
	if s.Properties != nil {
		out.Properties = map[string]*huma.Schema{}
		for _, key := range slices.Sorted(maps.Keys(s.Properties)) {
			out.Properties[key] = c.lift(s.Properties[key], within, key)
		}
	}
	if s.Items != nil {
		out.Items = c.lift(s.Items, within, property)
	}
	if len(s.AnyOf) > 0 {
		out.AnyOf = nil
		for _, one := range s.AnyOf {
			out.AnyOf = append(out.AnyOf, c.lift(one, within, property))
		}
	}
	title := s.Title
	if title == "" && len(s.Enum) > 0 {
		title = nameOfWords(s.Enum, parent, property)
	}
	if title == "" {
		return &out
	}
	about, nullable := out.Description, out.Nullable
	out.Title, out.Description, out.Nullable = "", "", false
	c.register(title, &out)
	ref := &huma.Schema{Ref: schemaPrefix + title, Description: about}
	if nullable {
		return &huma.Schema{Description: about, AnyOf: []*huma.Schema{{Ref: ref.Ref}, {Type: "null"}}}
	}
	return ref
}

func (c *components) register(title string, s *huma.Schema) {
	known := c.registry.Map()[title]
	if known != nil {
		a, errA := json.Marshal(known)
		b, errB := json.Marshal(s)
		if errA != nil || errB != nil || !bytes.Equal(a, b) {
			c.err = fmt.Errorf("two schemas are named %s: %s and %s", title, a, b)
		}
		return
	}
	c.registry.Map()[title] = s
}

// nameOfWords is the name of a list of words: that of the answers' type which has the same, else
// one made of where it stands.
func nameOfWords(list []any, parent, property string) string {
	for _, suffix := range []string{"Input", "Patch", "Upsert"} {
		parent = strings.TrimSuffix(parent, suffix)
	}
	var here strings.Builder
	here.WriteString(parent)
	for part := range strings.SplitSeq(property, "_") {
		here.WriteString(capital(part))
	}
	var same []string
	for _, v := range vocabulary {
		if len(v.words) == len(list) && !slices.ContainsFunc(list, func(word any) bool { return !slices.Contains(v.words, fmt.Sprint(word)) }) {
			same = append(same, v.name)
		}
	}
	if len(same) > 1 { // tenants and sources are active or paused: SourceInput's state is a SourceState
		same = slices.DeleteFunc(same, func(name string) bool { return !strings.Contains(here.String(), strings.TrimSuffix(name, "State")) })
	}
	if len(same) == 1 {
		return same[0]
	}
	return here.String()
}
