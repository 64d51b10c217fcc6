package api

import (
	"encoding/json"
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// document reads /openapi.json as a client does.
func (f *fixture) document() map[string]any {
	f.t.Helper()
	return f.call("GET", "/openapi.json", nil, "Authorization", "-").want(http.StatusOK).json()
}

func object(v any, path ...string) map[string]any {
	m, _ := v.(map[string]any)
	for _, step := range path {
		m, _ = m[step].(map[string]any)
	}
	return m
}

func TestOpenAPI_describesEveryRouteAndNoOther(t *testing.T) {
	f := newFixture(t)
	doc := f.document()
	if doc["openapi"] != "3.1.0" || object(doc, "info")["version"] != "v1.2.3" {
		t.Errorf("openapi %v, info %v", doc["openapi"], doc["info"])
	}
	described := map[string]bool{}
	for path, item := range object(doc, "paths") {
		for method, op := range object(item) {
			pattern := strings.ToUpper(method) + " " + path
			described[pattern] = true
			r := seen.all[pattern]
			if r == nil {
				t.Errorf("%s is described and not served", pattern)
				continue
			}
			var statuses []string
			for _, status := range r.statuses() {
				statuses = append(statuses, strconv.Itoa(status))
			}
			if got := slices.Sorted(maps.Keys(object(op, "responses"))); !slices.Equal(got, statuses) {
				t.Errorf("%s: statuses %v, want %v", pattern, got, statuses)
			}
		}
	}
	for pattern := range seen.all {
		if !described[pattern] {
			t.Errorf("%s is served and not described", pattern)
		}
	}
}

// The rules of OpenAPI 3.1 that a document built by a program can break.
func TestOpenAPI_isWellFormed(t *testing.T) {
	f := newFixture(t)
	doc := f.document()
	ids := map[string]bool{}
	for path, item := range object(doc, "paths") {
		for method, v := range object(item) {
			op := object(v)
			where := method + " " + path
			id, _ := op["operationId"].(string)
			if id == "" || ids[id] {
				t.Errorf("%s: operationId %q is empty or used twice", where, id)
			}
			ids[id] = true
			inPath := map[string]bool{}
			for _, p := range asList(op["parameters"]) {
				param := object(p)
				if object(param, "schema") == nil || param["name"] == "" {
					t.Errorf("%s: parameter %v", where, param)
				}
				if param["in"] == "path" {
					inPath[param["name"].(string)] = param["required"] == true
				}
			}
			for _, m := range regexp.MustCompile(`\{([a-z]+)\}`).FindAllStringSubmatch(path, -1) {
				if !inPath[m[1]] {
					t.Errorf("%s: the parameter %s is not described as required", where, m[1])
				}
			}
			for status, r := range object(op, "responses") {
				if ref, is := object(r)["$ref"].(string); is {
					r = object(doc, "components", "responses", strings.TrimPrefix(ref, "#/components/responses/"))
				}
				if d, _ := object(r)["description"].(string); d == "" {
					t.Errorf("%s: answer %s has no description", where, status)
				}
			}
			for _, requirement := range asList(op["security"]) {
				for name := range object(requirement) {
					if object(doc, "components", "securitySchemes", name) == nil {
						t.Errorf("%s: no security scheme %s", where, name)
					}
				}
			}
		}
	}
	walkJSON(doc, func(m map[string]any) {
		ref, is := m["$ref"].(string)
		if is && object(doc, strings.Split(strings.TrimPrefix(ref, "#/"), "/")...) == nil {
			t.Errorf("%s leads nowhere", ref)
		}
		if kind, has := m["type"]; has && (m["properties"] != nil || m["items"] != nil) {
			for _, one := range append(asList(kind), kind) {
				if s, is := one.(string); is && !slices.Contains([]string{"object", "array", "string", "number", "integer", "boolean", "null"}, s) {
					t.Errorf("type %q is none of JSON Schema's", s)
				}
			}
		}
	})
}

func asList(v any) []any {
	l, _ := v.([]any)
	return l
}

func walkJSON(v any, visit func(map[string]any)) {
	switch v := v.(type) {
	case map[string]any:
		visit(v)
		for _, child := range v {
			walkJSON(child, visit)
		}
	case []any:
		for _, child := range v {
			walkJSON(child, visit)
		}
	}
}

// What is answered has the members that the document promises, all of them and no others.
func TestOpenAPI_answersHaveTheDescribedMembers(t *testing.T) {
	s := newScene(t)
	doc := s.document()
	for _, r := range keyed() {
		a := s.call(r.method, s.address(r, "acme"), r.sample())
		schema := object(doc, "paths", r.path, strings.ToLower(r.method), "responses", strconv.Itoa(a.status), "content", "application/json", "schema")
		if schema["$ref"] == nil {
			continue
		}
		var answer any
		if err := json.Unmarshal(a.body, &answer); err != nil {
			t.Fatal(err)
		}
		matches(t, r.name, doc, schema, answer)
	}
}

// matches compares an answer with its schema, as far as names and null go.
func matches(t *testing.T, where string, doc, schema map[string]any, answer any) {
	t.Helper()
	if ref, is := schema["$ref"].(string); is {
		schema = object(doc, "components", "schemas", strings.TrimPrefix(ref, "#/components/schemas/"))
	}
	if some := asList(schema["anyOf"]); some != nil {
		if answer == nil {
			return
		}
		schema = object(some[0])
		matches(t, where, doc, schema, answer)
		return
	}
	if answer == nil {
		if kinds := asList(schema["type"]); schema["type"] != nil && !slices.Contains(kinds, any("null")) { // without a type it may be anything
			t.Errorf("%s is null, the document says %v", where, schema["type"])
		}
		return
	}
	switch answer := answer.(type) {
	case map[string]any:
		properties := object(schema, "properties")
		if properties == nil {
			return // a map
		}
		for name, v := range answer {
			if properties[name] == nil {
				t.Errorf("%s.%s is not described", where, name)
				continue
			}
			matches(t, where+"."+name, doc, object(properties[name]), v)
		}
		for _, name := range asList(schema["required"]) {
			if _, has := answer[name.(string)]; !has {
				t.Errorf("%s.%s is missing", where, name)
			}
		}
	case []any:
		for _, v := range answer {
			matches(t, where+"[]", doc, object(schema, "items"), v)
		}
	}
}

func TestDocs_thePageStandsAlone(t *testing.T) {
	f := newFixture(t)
	a := f.call("GET", "/docs", nil, "Authorization", "-").want(http.StatusOK)
	page := string(a.body)
	for _, foreign := range []string{"<script", "http://", "https://", "@import", "url("} {
		if strings.Contains(page, foreign) {
			t.Errorf("the page contains %q", foreign)
		}
	}
	if policy := a.header.Get("Content-Security-Policy"); !strings.Contains(policy, "default-src 'none'") {
		t.Errorf("policy %q", policy)
	}
	for _, r := range routes() {
		if !strings.Contains(page, `id="`+r.name+`"`) {
			t.Errorf("%s is not on the page", r.name)
		}
	}
	for code := range codes {
		if !strings.Contains(page, `id="`+string(code)+`"`) {
			t.Errorf("problem type /docs#%s leads nowhere", code)
		}
	}
	for _, link := range regexp.MustCompile(`href="#([^"]+)"`).FindAllStringSubmatch(page, -1) {
		if !strings.Contains(page, `id="`+link[1]+`"`) {
			t.Errorf("link #%s leads nowhere", link[1])
		}
	}
}

// docs/errors.md is the frozen list that people read in the repository.
func TestCodes_theListInTheDocsIsComplete(t *testing.T) {
	text, err := os.ReadFile("../../docs/errors.md")
	must(t, err)
	var want []string
	for code, spec := range codes {
		want = append(want, "| `"+string(code)+"` | "+strconv.Itoa(spec.status)+" | "+spec.about+" |")
	}
	slices.Sort(want)
	var got []string
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "| `") {
			got = append(got, strings.TrimSpace(line))
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("docs/errors.md differs from the code; its rows should be:\n%s", strings.Join(want, "\n"))
	}
}

func TestMetrics_knowNoTenant(t *testing.T) {
	f := newFixture(t)
	f.tenant("a-tenant-with-a-name")
	f.publish("a-tenant-with-a-name", "a.b", "1")
	page := string(f.call("GET", "/metrics", nil, "Authorization", "-").want(http.StatusOK).body)
	if strings.Contains(page, "a-tenant-with-a-name") {
		t.Error("a metric names a tenant")
	}
	if !strings.Contains(page, `waybill_http_requests_total{method="POST",route="/v1/tenants/{tenant}/events",status="202"} 1`) {
		t.Errorf("the publishing is not counted:\n%s", page)
	}
}
