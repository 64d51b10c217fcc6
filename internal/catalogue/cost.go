package catalogue

import (
	"encoding/json"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// maxSteps is how many times a subschema may be applied to a value while one payload is judged:
// twice what half a million numbers in an array need, and a tenth of a second at the most.
const maxSteps = 1_000_000

// affordable reports whether judging doc takes at most maxSteps. Judging itself does not say: a schema
// that comes to the same place of a payload by two ways does everything below it twice, so that twenty
// levels of a tree take a million times as long as one. Here each subschema meets each value once.
func affordable(s *jsonschema.Schema, doc any) bool {
	e := estimate{known: map[meeting]int{}}
	return e.of(s, read(doc)) <= maxSteps
}

// value is a place in a payload.
type value struct {
	kind  string // as JSON Schema names it; "number" for integers too
	props map[string]*value
	items []*value
}

func read(doc any) *value {
	switch doc := doc.(type) {
	case map[string]any:
		v := &value{kind: "object", props: make(map[string]*value, len(doc))}
		for name, part := range doc {
			v.props[name] = read(part)
		}
		return v
	case []any:
		v := &value{kind: "array", items: make([]*value, len(doc))}
		for i, part := range doc {
			v.items[i] = read(part)
		}
		return v
	case string:
		return &value{kind: "string"}
	case bool:
		return &value{kind: "boolean"}
	case json.Number:
		return &value{kind: "number"}
	}
	return &value{kind: "null"}
}

// meeting is a subschema and a value it is applied to.
type meeting struct {
	schema *jsonschema.Schema
	value  *value
}

type estimate struct{ known map[meeting]int }

// of is how many steps judging v by s takes at the most, or more than maxSteps.
func (e *estimate) of(s *jsonschema.Schema, v *value) int {
	steps, here := 1, inPlace(s)
	if s.Enum != nil {
		steps += len(s.Enum.Values)
	}
	if len(here)+len(v.props)+len(v.items) == 0 {
		return steps
	}
	m := meeting{s, v}
	if steps, ok := e.known[m]; ok {
		return steps
	}
	e.known[m] = 1
	if len(e.known) > maxSteps {
		return maxSteps + 1
	}
	add := func(part *jsonschema.Schema, of *value) {
		if part != nil && steps <= maxSteps {
			steps += e.of(part, of)
		}
	}
	if takes(s, v.kind) {
		for _, part := range here {
			add(part, v)
		}
		e.properties(s, v, add)
		e.items(s, v, add)
	}
	e.known[m] = steps
	return steps
}

// takes reports whether the schema looks further into a value of the kind.
func takes(s *jsonschema.Schema, kind string) bool {
	if s.Types == nil || s.Types.IsEmpty() {
		return true
	}
	for _, name := range s.Types.ToStrings() {
		if name == kind || name == "integer" && kind == "number" {
			return true
		}
	}
	return false
}

func (e *estimate) properties(s *jsonschema.Schema, v *value, add func(*jsonschema.Schema, *value)) {
	name := &value{kind: "string"} // all names are alike
	for property, part := range v.props {
		add(s.PropertyNames, name)
		own, evaluated := s.Properties[property]
		add(own, part)
		for pattern, rest := range s.PatternProperties {
			if pattern.MatchString(property) {
				evaluated = true
				add(rest, part)
			}
		}
		if additional, is := s.AdditionalProperties.(*jsonschema.Schema); is && !evaluated {
			add(additional, part)
		}
		add(s.UnevaluatedProperties, part)
	}
}

func (e *estimate) items(s *jsonschema.Schema, v *value, add func(*jsonschema.Schema, *value)) {
	for i, part := range v.items {
		switch items := s.Items.(type) {
		case *jsonschema.Schema:
			add(items, part)
		case []*jsonschema.Schema:
			if i < len(items) {
				add(items[i], part)
			} else if additional, is := s.AdditionalItems.(*jsonschema.Schema); is {
				add(additional, part)
			}
		}
		if i < len(s.PrefixItems) {
			add(s.PrefixItems[i], part)
		} else {
			add(s.Items2020, part)
		}
		add(s.Contains, part)
		add(s.UnevaluatedItems, part)
	}
}
