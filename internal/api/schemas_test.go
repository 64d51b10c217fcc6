package api

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// constantsOf reads, from the source, the values of the string constants that are declared with a
// type.
func constantsOf(t *testing.T, dir string) map[string][]string {
	t.Helper()
	found := map[string][]string{}
	paths, err := filepath.Glob(filepath.Join(dir, "*.go"))
	must(t, err)
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		must(t, err)
		for _, declaration := range file.Decls {
			group, is := declaration.(*ast.GenDecl)
			if !is || group.Tok != token.CONST {
				continue
			}
			for _, spec := range group.Specs {
				constant := spec.(*ast.ValueSpec)
				of, isNamed := constant.Type.(*ast.Ident)
				if !isNamed {
					continue
				}
				for _, v := range constant.Values {
					if text, is := v.(*ast.BasicLit); is && text.Kind == token.STRING {
						word, err := strconv.Unquote(text.Value)
						must(t, err)
						found[of.Name] = append(found[of.Name], word)
					}
				}
			}
		}
	}
	return found
}

// A word that a type can have and the document does not know would break programs made from it.
func TestVocabulary_hasEveryWordOfItsTypes(t *testing.T) {
	sources := map[string]map[string][]string{
		"github.com/waybill-dev/waybill/internal/outbox": constantsOf(t, "../outbox"),
		"github.com/waybill-dev/waybill/internal/api":    constantsOf(t, "."),
	}
	for _, v := range vocabulary {
		if v.of == nil {
			continue
		}
		declared := slices.DeleteFunc(sources[v.of.PkgPath()][v.of.Name()], func(word string) bool { return word == "" || word == string(anyScope) })
		if got, want := slices.Sorted(slices.Values(v.words)), slices.Sorted(slices.Values(declared)); !slices.Equal(got, want) {
			t.Errorf("%s: the document has %v, the source of %s declares %v", v.name, got, v.of, want)
		}
	}
}

func TestDocument_isTheSameEveryTime(t *testing.T) {
	first, err := Document("v1.2.3")
	must(t, err)
	for range 5 {
		again, err := Document("v1.2.3")
		must(t, err)
		if string(again) != string(first) {
			t.Fatal("two documents of one build differ")
		}
	}
}

// Whatever a program has to name stands under a name: no object with members and no list of words
// is written in place.
func TestDocument_namesItsObjectsAndWords(t *testing.T) {
	text, err := Document("v1.2.3")
	must(t, err)
	var doc map[string]any
	must(t, json.Unmarshal(text, &doc))
	schemas := object(doc, "components", "schemas")
	named := map[string]bool{}
	for _, s := range schemas {
		named[identity(s)] = true
	}
	walkJSON(doc, func(m map[string]any) {
		if _, isObject := m["properties"].(map[string]any); (isObject || m["enum"] != nil) && m["type"] != nil && !named[identity(m)] {
			t.Errorf("written in place: %.200s", identity(m))
		}
	})
	for _, name := range []string{"EndpointInput", "EndpointPatch", "EventInput", "TenantPatch", "Problem", "ErrorCode", "DeliveryState", "EndpointState", "TenantState"} {
		if schemas[name] == nil {
			t.Errorf("there is no schema %s among %v", name, slices.Sorted(maps.Keys(schemas)))
		}
	}
	// RFC 7396: in a PATCH null removes a name, and nothing is required, at no depth.
	patch := object(schemas, "TenantPatch")
	if got := identity(object(patch, "properties", "metadata", "additionalProperties")["type"]); patch["required"] != nil || got != `["string","null"]` {
		t.Errorf("TenantPatch requires %v, a value of metadata is %s", patch["required"], got)
	}
	if required := object(schemas, "RateLimitPatch")["required"]; required != nil {
		t.Errorf("RateLimitPatch requires %v", required)
	}
}

func identity(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(text)
}

func TestOpenAPI_theCommandPrintsWhatTheServerAnswers(t *testing.T) {
	f := newFixture(t)
	served := f.call("GET", "/openapi.json", nil, "Authorization", "-").want(200)
	printed, err := Document("v1.2.3")
	must(t, err)
	if string(served.body) != string(printed) {
		t.Error("they differ")
	}
}
