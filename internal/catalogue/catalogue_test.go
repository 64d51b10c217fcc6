package catalogue_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/internal/catalogue"
	"github.com/waybill-dev/waybill/internal/outbox"
)

// shelf is a store of one event type.
type shelf struct {
	schema   string
	revision int64
	away     error
}

func (s *shelf) CatalogueRevision(context.Context) (int64, error) { return s.revision, s.away }

func (s *shelf) EventTypes(_ context.Context, after string, _ outbox.Page) ([]outbox.EventType, error) {
	if after != "" || s.schema == "" {
		return nil, s.away
	}
	return []outbox.EventType{{Name: "a.b", Schema: []byte(s.schema), OnInvalid: outbox.OnInvalidRefuse}}, s.away
}

func TestChecker_whatWasReadLastHoldsWhileTheDatabaseIsAway(t *testing.T) {
	away := errors.New("away")
	s := &shelf{schema: `{"type":"integer"}`, revision: 1, away: away}
	c := catalogue.New(s)
	now := time.Now()
	check := func() (bool, error) {
		now = now.Add(2 * time.Second)
		v, err := c.Check(t.Context(), "a.b", []byte(`"x"`), now)
		return v.Refused, err
	}
	if _, err := check(); !errors.Is(err, away) {
		t.Errorf("before anything was read: %v", err)
	}
	s.away = nil
	if refused, err := check(); err != nil || !refused {
		t.Errorf("refused %t, %v", refused, err)
	}
	s.away = away
	if refused, err := check(); err != nil || !refused {
		t.Errorf("while it is away: refused %t, %v", refused, err)
	}
	s.away, s.schema, s.revision = nil, "", 2
	if refused, err := check(); err != nil || refused {
		t.Errorf("after the schema went: refused %t, %v", refused, err)
	}
}

func TestSchema_tellsAFewProblemsByTheirPlace(t *testing.T) {
	s, err := catalogue.Compile([]byte(`{"properties":{"items":{"items":{"type":"integer"}}}}`))
	if err != nil {
		t.Fatal(err)
	}
	problems := s.Check([]byte(`{"items":[1,"a","b","c","d","e","f","g"]}`))
	if len(problems) != 5 || !strings.HasPrefix(problems[0].Path, "payload.items.") {
		t.Errorf("%+v", problems)
	}
	if problems := s.Check([]byte(`{"items":[1e400, 9007199254740993, 1.0]}`)); problems != nil {
		t.Errorf("whole numbers of any size: %+v", problems)
	}
}

// "Schemas MUST NOT be [written so that] a validator is trapped in an infinite loop" (JSON Schema
// 2020-12 Core, section 9.4.1); one that goes deeper with every reference is no such loop.
func TestCompile_refusesWhatRefersBackToItselfAndJudgesNothing(t *testing.T) {
	for schema, at := range map[string]string{
		`{"$ref":"#"}`: "#",
		`{"$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}},"properties":{"x":{"$ref":"#/$defs/a"}}}`: "#/$defs/",
		`{"allOf":[{"type":"object"},{"$ref":"#"}]}`:                                                            "#",
		`{"anyOf":[{"type":"string"},{"$ref":"#"}]}`:                                                            "#",
		`{"oneOf":[{"not":{"$ref":"#"}}]}`:                                                                      "#",
		`{"if":{"type":"object"},"then":{"$ref":"#"}}`:                                                          "#",
		`{"dependentSchemas":{"x":{"$ref":"#"}}}`:                                                               "#",
		`{"$dynamicAnchor":"n","$dynamicRef":"#n"}`:                                                             "#",
		`{"items":{"additionalProperties":{"allOf":[{"$ref":"#/items/additionalProperties"}]}}}`:                "#/items/additionalProperties",
		`{"$schema":"http://json-schema.org/draft-07/schema#","dependencies":{"x":{"$ref":"#"}}}`:               "#",
		`{"$schema":"https://json-schema.org/draft/2019-09/schema","$recursiveRef":"#"}`:                        "#",
	} {
		_, err := catalogue.Compile([]byte(schema))
		if !errors.Is(err, catalogue.ErrSchema) || !strings.Contains(err.Error(), at) {
			t.Errorf("%s: %v, want it refused at %s", schema, err, at)
		}
	}
	for schema, payloads := range map[string][2]string{ // one that follows it, one that does not
		`{"type":"object","properties":{"next":{"$ref":"#"}}}`:                                      {`{"next":{"next":{}}}`, `{"next":{"next":1}}`},
		`{"$defs":{"tree":{"type":"array","items":{"$ref":"#/$defs/tree"}}},"$ref":"#/$defs/tree"}`: {`[[],[[]]]`, `[[1]]`},
		`{"allOf":[{"$ref":"#/$defs/a"},{"$ref":"#/$defs/a"}],"$defs":{"a":{"type":"integer"}}}`:    {`1`, `"x"`},
		`{"$dynamicAnchor":"n","type":"object","additionalProperties":{"$dynamicRef":"#n"}}`:        {`{"a":{"b":{}}}`, `{"a":{"b":2}}`},
		`{"$schema":"http://json-schema.org/draft-07/schema#","definitions":{"a":{"$ref":"#/definitions/b","allOf":[{"$ref":"#/definitions/a"}]},"b":{"type":"null"}},"properties":{"a":{"$ref":"#/definitions/a"}}}`: {`{"a":null}`, `{"a":1}`},
	} {
		s, err := catalogue.Compile([]byte(schema))
		if err != nil {
			t.Errorf("%s: %v", schema, err)
			continue
		}
		if problems := s.Check([]byte(payloads[0])); problems != nil {
			t.Errorf("%s refuses %s: %+v", schema, payloads[0], problems)
		}
		if problems := s.Check([]byte(payloads[1])); problems == nil {
			t.Errorf("%s takes %s", schema, payloads[1])
		}
	}
}

// A schema that meets the same part of a payload by two ways judges what is below it twice: a few
// hundred bytes would keep a processor busy for minutes. It is counted first, each meeting once.
func TestSchema_doesNotJudgeForEver(t *testing.T) {
	node := func(kind string) string {
		return `{"properties":{"kind":{"const":"` + kind + `"},"args":{"type":"array","items":{"$ref":"#"}}},"required":["kind"]}`
	}
	tree := `{"type":"object","oneOf":[` + node("and") + `,` + node("or") + `]}`
	nested := func(depth int) string {
		return strings.Repeat(`{"kind":"or","args":[`, depth) + `{"kind":"or"}` + strings.Repeat(`]}`, depth)
	}
	chain := `{"$defs":{`
	for i := range 40 {
		next := `{"$ref":"#/$defs/d` + strconv.Itoa(i+1) + `"}`
		chain += `"d` + strconv.Itoa(i) + `":{"allOf":[` + next + `,` + next + `]},`
	}
	chain += `"d40":{"type":"array"}},"$ref":"#/$defs/d0"}`
	wide := "[" + strings.Repeat("1,", 400_000) + "1]"
	for name, tc := range map[string]struct {
		schema, payload string
		problem         string // the beginning of the only one; "" for none
	}{
		"a tree of a few levels":            {tree, nested(5), ""},
		"a tree of many":                    {tree, nested(300), "takes too long"},
		"the same subschema by 2^40 ways":   {chain, `[1]`, "takes too long"},
		"half a million numbers":            {`{"items":{"type":"integer"}}`, wide, ""},
		"many choices for many numbers":     {`{"items":{"enum":[` + strings.Repeat("1,", 100) + `2]}}`, wide, "takes too long"},
		"of another type, nobody looks on":  {`{"allOf":[{"type":"string","allOf":[{"$ref":"#/$defs/d"}]},{}],"$defs":{"d":{}}}`, `{}`, "got object, want string"},
		"a list, all of a kind, of objects": {`{"items":{"properties":{"a":{"type":"integer"}}}}`, `[{"a":1},{"a":2}]`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := catalogue.Compile([]byte(tc.schema))
			if err != nil {
				t.Fatal(err)
			}
			problems := s.Check([]byte(tc.payload))
			if tc.problem == "" && len(problems) > 0 || tc.problem != "" && (len(problems) != 1 || !strings.HasPrefix(problems[0].Detail, tc.problem)) {
				t.Errorf("%+v, want %q", problems, tc.problem)
			}
		})
	}
}
