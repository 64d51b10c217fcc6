package api

import (
	"encoding/json"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/waybill-dev/waybill/internal/catalogue"
	"github.com/waybill-dev/waybill/internal/outbox"
)

const maxTypeDescription = 10_000

// eventTypeFields is PUT /v1/event-types/{type}.
var eventTypeFields = []field[outbox.EventType]{
	{
		name: "description", about: "For people, customers among them.", schema: textSchema(maxTypeDescription),
		set:   func(t *outbox.EventType, v value) { setText(&t.Description, v, maxTypeDescription) },
		reset: func(t *outbox.EventType) { t.Description = "" },
	},
	{
		name: "schema", about: "A JSON Schema (draft 2020-12 unless it says otherwise) that payloads follow. References to other documents are not followed.",
		schema: &huma.Schema{},
		set: func(t *outbox.EventType, v value) {
			if _, err := catalogue.Compile(v.raw); err != nil {
				v.bad(CodeInvalidSchema, "%s", strings.TrimPrefix(err.Error(), catalogue.ErrSchema.Error()+": "))
				return
			}
			t.Schema = v.raw
		},
		reset: func(t *outbox.EventType) { t.Schema = nil },
	},
	{
		name: "example", about: "A payload.", schema: &huma.Schema{},
		set:   func(t *outbox.EventType, v value) { t.Example = v.raw },
		reset: func(t *outbox.EventType) { t.Example = nil },
	},
	{
		name: "on_invalid", about: "What becomes of an event published through the API whose payload does not follow the schema. warn: it is accepted, and the answer has warnings. refuse: it is not; a webhook that arrived at a source is kept in quarantine. What is published in SQL is not checked.",
		schema: wordsSchema(string(outbox.OnInvalidWarn), string(outbox.OnInvalidRefuse)),
		set: func(t *outbox.EventType, v value) {
			if s, ok := v.oneOf(string(outbox.OnInvalidWarn), string(outbox.OnInvalidRefuse)); ok {
				t.OnInvalid = outbox.OnInvalid(s)
			}
		},
		reset: func(t *outbox.EventType) { t.OnInvalid = outbox.OnInvalidWarn },
	},
	{
		name: "archived", about: "It is no longer published; it is kept for its history, and nothing refuses it.", schema: &huma.Schema{Type: huma.TypeBoolean},
		set: func(t *outbox.EventType, v value) {
			if b, ok := v.boolean(); ok {
				t.Archived = b
			}
		},
		reset: func(t *outbox.EventType) { t.Archived = false },
	},
}

// eventTypeView is an event type in an answer.
type eventTypeView struct {
	Type        string           `json:"type"`
	Description string           `json:"description"`
	Schema      json.RawMessage  `json:"schema" doc:"A JSON Schema, or null"`
	Example     json.RawMessage  `json:"example" doc:"A payload, or null"`
	OnInvalid   outbox.OnInvalid `json:"on_invalid"`
	Archived    bool             `json:"archived"`
	CreatedAt   stamp            `json:"created_at"`
	UpdatedAt   stamp            `json:"updated_at"`
}

func viewEventType(t *outbox.EventType) eventTypeView {
	return eventTypeView{
		Type:        t.Name,
		Description: t.Description,
		Schema:      t.Schema,
		Example:     t.Example,
		OnInvalid:   t.OnInvalid,
		Archived:    t.Archived,
		CreatedAt:   stamp(t.CreatedAt),
		UpdatedAt:   stamp(t.UpdatedAt),
	}
}

func (a *API) putEventType(q *request) (*answer, error) {
	name := q.PathValue("type")
	if !outbox.ValidEventType(name) {
		return nil, failField("type", CodeInvalidField, "want an event type: words of letters, digits, _ and -, joined by dots, at most %d bytes", outbox.MaxEventType)
	}
	raw, err := q.object()
	if err != nil {
		return nil, err
	}
	t, created, err := q.store.PutEventType(q.Context(), name, q.now, func(t *outbox.EventType, _ bool) error {
		return fillBody(q, raw, eventTypeFields, t)
	})
	if err != nil {
		return nil, err
	}
	if created {
		return &answer{status: http.StatusCreated, body: viewEventType(&t), location: "/v1/event-types/" + name}, nil
	}
	return ok(viewEventType(&t))
}

func (a *API) getEventType(q *request) (*answer, error) {
	t, err := a.cfg.Store.EventType(q.Context(), q.PathValue("type"))
	if err != nil {
		return nil, err
	}
	return ok(viewEventType(&t))
}

// listEventTypes answers with the whole catalogue: people choose from it.
func (a *API) listEventTypes(q *request) (*answer, error) {
	list := list[eventTypeView]{Data: []eventTypeView{}}
	after := ""
	for {
		page, err := a.cfg.Store.EventTypes(q.Context(), after, outbox.Page{Limit: 250, Ascending: true})
		if err != nil {
			return nil, err
		}
		for i := range page {
			list.Data = append(list.Data, viewEventType(&page[i]))
		}
		if len(page) == 0 {
			return ok(list)
		}
		after = page[len(page)-1].Name
	}
}

func (a *API) deleteEventType(q *request) (*answer, error) {
	if err := q.store.DeleteEventType(q.Context(), q.PathValue("type")); err != nil {
		return nil, err
	}
	return noContent()
}

// warning is where an accepted payload does not follow its type's schema.
type warning struct {
	Path   string `json:"path"`
	Detail string `json:"detail"`
}

// follow holds an event to the catalogue. index is its place in a batch, nil for a single one.
func (a *API) follow(q *request, e *outbox.NewEvent, index *int) ([]warning, []Item, error) {
	verdict, err := a.catalogue.Check(q.Context(), e.Type, e.Payload, q.now)
	if err != nil {
		return nil, nil, err
	}
	var warnings []warning
	var items []Item
	for _, p := range verdict.Problems {
		if verdict.Refused {
			items = append(items, Item{Index: index, Path: p.Path, Code: CodePayloadSchema, Detail: p.Detail})
		} else {
			warnings = append(warnings, warning{p.Path, p.Detail})
		}
	}
	return warnings, items, nil
}
