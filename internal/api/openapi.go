package api

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
)

// document is the OpenAPI description of the routes, made once.
type document struct {
	json []byte
	page []byte
	csp  string
}

// newDocument describes the routes. The schemas of answers come from the Go types that are
// marshalled, those of requests from the tables they are read through.
func newDocument(routes []*route, version string) (*document, error) {
	registry := huma.NewMapRegistry(schemaPrefix, schemaName)
	registry.RegisterTypeAlias(reflect.TypeFor[stamp](), reflect.TypeFor[time.Time]())
	api := &huma.OpenAPI{
		OpenAPI: "3.1.0",
		Info: &huma.Info{
			Title:   "Waybill",
			Version: version,
			Description: "Delivers webhooks that arrive.\n\n" +
				"Within /v1 there are only additions: enums grow, and clients ignore fields they do not know. " +
				"Every answer has the header Waybill-Request-Id. Times are RFC 3339, UTC, with milliseconds. " +
				"Prefer: handling=lenient makes the server ignore fields and parameters it does not know.",
			License: &huma.License{Name: "Apache-2.0", Identifier: "Apache-2.0"},
		},
		Servers: []*huma.Server{{URL: "/"}},
		Components: &huma.Components{
			Headers: answerHeaders,
			Schemas: registry,
			SecuritySchemes: map[string]*huma.SecurityScheme{
				"key": {Type: "http", Scheme: "bearer"},
			},
		},
	}
	for _, r := range routes {
		api.AddOperation(r.operation(registry))
	}
	relax(registry)
	d := &document{}
	var err error
	if d.page, d.csp, err = renderPage(api, registry); err != nil {
		return nil, fmt.Errorf("docs page: %w", err)
	}
	if err := name(api); err != nil {
		return nil, fmt.Errorf("openapi: %w", err)
	}
	if d.json, err = json.Marshal(api); err != nil {
		return nil, fmt.Errorf("openapi: %w", err)
	}
	return d, nil
}

// schemaName names a Go type in the document: endpointView is Endpoint.
func schemaName(t reflect.Type, hint string) string {
	if item, isList := strings.CutPrefix(t.Name(), "list["); isList {
		item = item[strings.LastIndex(item, ".")+1:]
		return "ListOf" + capital(strings.TrimSuffix(strings.TrimSuffix(item, "]"), "View"))
	}
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if name := strings.TrimSuffix(t.Name(), "View"); name != "" {
		return capital(name)
	}
	return huma.DefaultSchemaNamer(t, hint)
}

func capital(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

// relax makes the schemas of answers say what holds for them: they are open to new fields, their
// arrays are never null, what is behind a pointer can be, and an embedded struct's members are
// the struct's own.
func relax(registry huma.Registry) {
	for name, s := range registry.Map() {
		s.AdditionalProperties = nil
		t := registry.TypeFromRef(schemaPrefix + name)
		for field := range t.Fields() {
			key, options, _ := strings.Cut(field.Tag.Get("json"), ",")
			property := s.Properties[key]
			if property == nil {
				continue
			}
			speak(property, field.Type)
			mayBeNull := field.Type.Kind() == reflect.Pointer && options != "omitempty"
			switch {
			case field.Type.Kind() == reflect.Slice:
				property.Nullable = false
			case mayBeNull && property.Ref == "":
				property.Nullable = true
			case mayBeNull:
				s.Properties[key] = &huma.Schema{
					Description: property.Description,
					AnyOf:       []*huma.Schema{{Ref: property.Ref}, {Type: "null"}},
				}
			}
		}
	}
	for name, s := range registry.Map() {
		t := registry.TypeFromRef(schemaPrefix + name)
		for field := range t.Fields() {
			if field.Anonymous {
				inner := registry.Schema(field.Type, false, "")
				maps.Copy(s.Properties, inner.Properties)
				for _, member := range inner.Required {
					if !slices.Contains(s.Required, member) { // JSON Schema has each once
						s.Required = append(s.Required, member)
					}
				}
			}
		}
	}
}

var pathParam = regexp.MustCompile(`\{([a-z]+)\}`)

var pathParams = map[string]string{
	"tenant": "Your key for the customer: A-Z a-z 0-9 _ . : - and at most 64 characters.",
	"ep":     "ep_…, or your own uid.",
	"evt":    "evt_…",
	"dlv":    "dlv_…",
	"att":    "att_…",
	"ps":     "ps_…",
	"key":    "key_…",
	"name":   "A scheme's name: a-z 0-9 _ . - and at most 64 characters.",
	"type":   "An event type.",

	"source": "A source's name.",
	"secret": "The id of a secret.",
	"in":     "in_…",
}

// operation describes one route.
func (r *route) operation(registry huma.Registry) *huma.Operation {
	op := &huma.Operation{
		OperationID: r.name,
		Method:      r.method,
		Path:        r.path,
		Summary:     r.summary,
		Description: r.about,
		Tags:        []string{r.tag},
		Responses:   map[string]*huma.Response{},
	}
	if r.scope != "" {
		op.Security = []map[string][]string{{"key": {}}}
		if r.scope != anyScope {
			op.Description = strings.TrimSpace(op.Description + "\n\nScope: " + string(r.scope) + ".")
		}
		if r.operator {
			op.Description += " Operator keys only."
		}
	}
	for _, match := range pathParam.FindAllStringSubmatch(r.path, -1) {
		op.Parameters = append(op.Parameters, &huma.Param{
			Name: match[1], In: "path", Required: true, Description: pathParams[match[1]], Schema: &huma.Schema{Type: huma.TypeString},
		})
	}
	for _, p := range r.query {
		op.Parameters = append(op.Parameters, p.describe())
	}
	if r.gateway && r.method == http.MethodPost {
		op.RequestBody = &huma.RequestBody{Description: "As the provider signs it.", Content: map[string]*huma.MediaType{"*/*": {Schema: &huma.Schema{}}}}
	} else if r.method == http.MethodPost {
		op.Parameters = append(op.Parameters, &huma.Param{
			Name: "Idempotency-Key", In: "header", Description: "1 to 255 bytes. The same key and request get the first answer again.",
			Schema: &huma.Schema{Type: huma.TypeString, MinLength: new(1), MaxLength: new(255)},
		})
	}
	if r.body != nil {
		op.RequestBody = &huma.RequestBody{
			Required: r.needsBody(),
			Content:  map[string]*huma.MediaType{"application/json": {Schema: r.body}},
		}
		if r.method == http.MethodPatch {
			op.RequestBody.Content["application/merge-patch+json"] = &huma.MediaType{Schema: r.body}
		}
	}
	for status, body := range r.answers {
		op.Responses[strconv.Itoa(status)] = r.describeAnswer(registry, status, body)
	}
	for _, status := range r.problems() {
		op.Responses[strconv.Itoa(status)] = &huma.Response{
			Description: describeStatus(status),
			Headers:     r.describeHeaders(status),
			Content: map[string]*huma.MediaType{
				"application/problem+json": {Schema: registry.Schema(reflect.TypeFor[Problem](), true, "")},
			},
		}
	}
	return op
}

// needsBody is false of a POST whose every field may be left out: then so may the object.
func (r *route) needsBody() bool {
	return r.body != nil && (len(r.body.Required) > 0 || r.method != http.MethodPost)
}

func (p param) describe() *huma.Param {
	s := &huma.Schema{Type: huma.TypeString}
	switch p.name {
	case "limit":
		s = rangeSchema(huma.TypeInteger, 1, maxLimit, defaultLimit)
	case "from", "to":
		s.Format = "date-time"
	}
	if slices.Equal(p.words, yesOrNo) {
		s.Type = huma.TypeBoolean
	} else {
		s.Enum = anyOf(p.words)
	}
	if p.many {
		s = &huma.Schema{Type: huma.TypeArray, Items: s}
	}
	return &huma.Param{Name: p.name, In: "query", Description: p.about, Schema: s, Explode: new(p.many)}
}

func (r *route) describeAnswer(registry huma.Registry, status int, body any) *huma.Response {
	answer := &huma.Response{Description: http.StatusText(status), Headers: r.describeHeaders(status)}
	if status == http.StatusNoContent || r.gateway {
		return answer
	}
	kind, schema := "application/json", &huma.Schema{}
	switch {
	case body != nil:
		schema = registry.Schema(reflect.TypeOf(body), true, "")
	case r.name == "metrics":
		kind, schema = "text/plain", &huma.Schema{Type: huma.TypeString}
	case r.name == "docs":
		kind, schema = "text/html", &huma.Schema{Type: huma.TypeString}
	case r.streams:
		kind, schema = "text/event-stream", &huma.Schema{Type: huma.TypeString}
	}
	answer.Content = map[string]*huma.MediaType{kind: {Schema: schema}}
	return answer
}

// problems are the statuses of the route's error answers, in order.
func (r *route) problems() []int {
	set := map[int]bool{}
	add := func(statuses ...int) {
		for _, status := range statuses {
			set[status] = true
		}
	}
	add(r.refuses...)
	if r.scope != "" {
		add(http.StatusUnauthorized, http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusServiceUnavailable)
		add(http.StatusBadRequest, http.StatusUnprocessableEntity) // the query: malformed, unknown names
	}
	if r.scope != "" && r.scope != anyScope {
		add(http.StatusForbidden)
	}
	if r.ofTenant {
		add(http.StatusNotFound)
	}
	if r.maxBody > 0 || r.publishes {
		add(http.StatusRequestTimeout, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType)
	}
	if r.idempotent {
		add(http.StatusConflict)
	}
	return slices.Sorted(maps.Keys(set))
}

// describeStatus lists the codes a status comes with.
func describeStatus(status int) string {
	var of []string
	for code, spec := range codes {
		if spec.status == status {
			of = append(of, string(code))
		}
	}
	slices.Sort(of)
	return http.StatusText(status) + ": " + strings.Join(of, ", ")
}

func (a *API) showDocument(*request) (*answer, error) {
	d, err := a.document()
	if err != nil {
		return nil, err
	}
	return &answer{status: http.StatusOK, raw: d.json}, nil
}

func (a *API) showPage(*request) (*answer, error) {
	d, err := a.document()
	if err != nil {
		return nil, err
	}
	return &answer{
		status:  http.StatusOK,
		raw:     d.page,
		kind:    "text/html; charset=utf-8",
		headers: http.Header{"Content-Security-Policy": {d.csp}},
	}, nil
}

// Document is the OpenAPI document of a server of this build: what /openapi.json answers.
func Document(version string) ([]byte, error) {
	d, err := newDocument(routes(), version)
	if err != nil {
		return nil, err
	}
	return d.json, nil
}
