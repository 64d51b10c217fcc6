package contract

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// document is the OpenAPI document of the server, and what judges answers by it.
type document struct {
	operations []*operation
	root       map[string]any
	compiler   *jsonschema.Compiler
	compiled   map[string]*jsonschema.Schema
}

// operation is one method of one path.
type operation struct {
	id, method, path string
	parameters       []map[string]any
	body             map[string]any // its schema; nil: none is taken
	responses        map[string]any
}

func at(v any, path ...string) map[string]any {
	m, _ := v.(map[string]any)
	for _, step := range path {
		m, _ = m[step].(map[string]any)
	}
	return m
}

// readDocument prepares the document for judging. OpenAPI 3.1 schemas are JSON Schemas as they
// stand. Answers are open to fields of later versions; here none may be there that is not
// described.
func readDocument(t *testing.T, text []byte) *document {
	t.Helper()
	parsed, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	must(t, err)
	d := &document{root: parsed.(map[string]any), compiler: jsonschema.NewCompiler(), compiled: map[string]*jsonschema.Schema{}}
	for _, s := range at(d.root, "components", "schemas") {
		if schema := at(s); schema["properties"] != nil && schema["additionalProperties"] == nil {
			schema["additionalProperties"] = false
		}
	}
	d.compiler.DefaultDraft(jsonschema.Draft2020)
	d.compiler.AssertFormat()
	must(t, d.compiler.AddResource("openapi.json", d.root))
	paths := at(d.root, "paths")
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		for _, method := range slices.Sorted(maps.Keys(at(paths, path))) {
			op := at(paths, path, method)
			o := &operation{id: op["operationId"].(string), method: strings.ToUpper(method), path: path, responses: at(op, "responses")}
			list, _ := op["parameters"].([]any)
			for _, p := range list {
				o.parameters = append(o.parameters, at(p))
			}
			o.body = at(op, "requestBody", "content", "application/json", "schema")
			d.operations = append(d.operations, o)
		}
	}
	return d
}

// resolve follows a schema's or an answer's reference.
func (d *document) resolve(m map[string]any) map[string]any {
	ref, is := m["$ref"].(string)
	if !is {
		return m
	}
	return at(d.root, strings.Split(strings.TrimPrefix(ref, "#/"), "/")...)
}

// judge says what is wrong with an answer: its status is not declared, or its kind, or its body
// does not follow the schema.
func (d *document) judge(o *operation, status int, kind string, body []byte) error {
	declared := at(o.responses, fmt.Sprint(status))
	if declared == nil {
		return fmt.Errorf("the status is not declared; those are %v", slices.Sorted(maps.Keys(o.responses)))
	}
	pointer := "#/paths/" + escape(o.path) + "/" + strings.ToLower(o.method) + "/responses/" + fmt.Sprint(status)
	if ref, is := declared["$ref"].(string); is {
		pointer, declared = ref, d.resolve(declared)
	}
	content := at(declared, "content")
	kind, _, _ = strings.Cut(kind, ";")
	if content == nil {
		if len(body) > 0 || kind != "" {
			return fmt.Errorf("there is a body of %q, and none is declared", kind)
		}
		return nil
	}
	if content[kind] == nil {
		return fmt.Errorf("the kind %q is not declared; those are %v", kind, slices.Sorted(maps.Keys(content)))
	}
	if !strings.HasSuffix(kind, "json") {
		return nil
	}
	pointer += "/content/" + escape(kind) + "/schema"
	schema := d.compiled[pointer]
	if schema == nil {
		var err error
		if schema, err = d.compiler.Compile("openapi.json" + pointer); err != nil {
			return err
		}
		d.compiled[pointer] = schema
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
	if err != nil {
		return err
	}
	return schema.Validate(value)
}

func escape(token string) string {
	token = strings.NewReplacer("~", "~0", "/", "~1").Replace(token)
	return strings.NewReplacer("{", "%7B", "}", "%7D").Replace(token)
}

// Every schema of the document compiles, so every reference leads somewhere and no keyword has a
// value that JSON Schema does not allow there.
func TestDocument_isMadeOfJSONSchemas(t *testing.T) {
	text, err := apiDocument()
	must(t, err)
	d := readDocument(t, text)
	if len(d.operations) < 90 {
		t.Fatalf("only %d operations", len(d.operations))
	}
	for name := range at(d.root, "components", "schemas") {
		if _, err := d.compiler.Compile("openapi.json#/components/schemas/" + name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, o := range d.operations {
		for status := range o.responses {
			if at(o.responses, status)["$ref"] == nil && at(o.responses, status)["description"] == nil {
				t.Errorf("%s: the answer %s says nothing", o.id, status)
			}
		}
		if o.body != nil && d.resolve(o.body)["type"] != "object" {
			t.Errorf("%s: the request is no object: %v", o.id, o.body)
		}
	}
	// The examples of the drafts' own rule: an enumeration that says null must allow it.
	if err := json.Unmarshal(text, new(map[string]any)); err != nil {
		t.Error(err)
	}
}
