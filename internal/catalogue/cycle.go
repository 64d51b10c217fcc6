package catalogue

import (
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// endless finds a subschema that is applied to a value because it is being applied to that same
// value, and tells where it stands, such as "#/$defs/node". JSON Schema forbids such a loop
// (2020-12, section 9.4.1) but calls the document valid; held to one, every payload that comes to it
// is refused. A schema that refers to itself for a part of the value, as a tree does, has an end.
func endless(root *jsonschema.Schema) (at string, found bool) {
	const (
		beingApplied = 1
		cleared      = 2
	)
	state := map[*jsonschema.Schema]int{}
	var apply func(s *jsonschema.Schema) bool
	apply = func(s *jsonschema.Schema) bool {
		switch state[s] {
		case beingApplied:
			at = s.Location[strings.IndexByte(s.Location, '#'):]
			return true
		case cleared:
			return false
		}
		state[s] = beingApplied
		if slices.ContainsFunc(inPlace(s), apply) {
			return true
		}
		state[s] = cleared
		return false
	}
	seen := map[*jsonschema.Schema]bool{}
	var walk func(s *jsonschema.Schema) bool
	walk = func(s *jsonschema.Schema) bool {
		if seen[s] {
			return false
		}
		seen[s] = true
		return apply(s) || slices.ContainsFunc(inPlace(s), walk) || slices.ContainsFunc(deeper(s), walk)
	}
	return at, walk(root)
}

// inPlace are the subschemas that are applied to the value that s is applied to.
func inPlace(s *jsonschema.Schema) []*jsonschema.Schema {
	var list []*jsonschema.Schema
	add := func(all ...*jsonschema.Schema) {
		for _, one := range all {
			if one != nil {
				list = append(list, one)
			}
		}
	}
	add(s.Ref)
	if s.Ref != nil && s.DraftVersion < 2019 {
		return list // beside $ref nothing counts
	}
	add(s.RecursiveRef)
	if s.DynamicRef != nil {
		add(s.DynamicRef.Ref)
	}
	add(s.Not, s.If, s.Then, s.Else)
	add(s.AllOf...)
	add(s.AnyOf...)
	add(s.OneOf...)
	for _, one := range s.DependentSchemas {
		add(one)
	}
	for _, one := range s.Dependencies {
		if schema, is := one.(*jsonschema.Schema); is {
			add(schema)
		}
	}
	return list
}

// deeper are the subschemas that are applied to parts of the value, or to what it encodes.
func deeper(s *jsonschema.Schema) []*jsonschema.Schema {
	var list []*jsonschema.Schema
	add := func(all ...*jsonschema.Schema) {
		for _, one := range all {
			if one != nil {
				list = append(list, one)
			}
		}
	}
	add(s.PropertyNames, s.UnevaluatedProperties, s.Contains, s.Items2020, s.UnevaluatedItems, s.ContentSchema)
	add(s.PrefixItems...)
	for _, one := range s.Properties {
		add(one)
	}
	for _, one := range s.PatternProperties {
		add(one)
	}
	for _, one := range []any{s.AdditionalProperties, s.AdditionalItems, s.Items} {
		switch part := one.(type) {
		case *jsonschema.Schema:
			add(part)
		case []*jsonschema.Schema:
			add(part...)
		}
	}
	return list
}
