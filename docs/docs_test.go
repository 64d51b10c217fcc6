// Package docs_test holds the pages to what the code and the schemas say.
package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The states are drawn once, typed once and enforced by both databases; this keeps the four alike.
func TestDocs_theStatesAreTheSameInThePageTheCodeAndTheSchemas(t *testing.T) {
	page := read(t, "delivery-states.md")
	drawing := section(t, page, "```", "```")
	code := constants(t, "../internal/outbox")
	schemas := map[string]string{
		"PostgreSQL": read(t, "../internal/postgres/migrations/00001_tables.sql"),
		"SQLite":     read(t, "../internal/sqlite/migrations/00001_first.sql"),
	}

	deliveryStates := code["DeliveryState"]
	same(t, "delivery states in the table", deliveryStates, firstColumn(section(t, page, "| state | where it is", "\n\n")))
	for _, word := range append(slices.Clone(deliveryStates), code["DeadReason"]...) {
		if !regexp.MustCompile(`\b` + word + `\b`).MatchString(drawing) {
			t.Errorf("the drawing does not show %q", word)
		}
	}
	same(t, "endpoint states in the table", code["EndpointState"], firstColumn(section(t, page, "| state | events that match", "\n\n")))

	for name, schema := range schemas {
		// Pending rows are in delivery and delivered ones in attempt: those two states are tables.
		ended := slices.DeleteFunc(slices.Clone(deliveryStates), func(s string) bool { return s == "pending" || s == "delivered" })
		same(t, name+": dead_letter.state", ended, allowed(t, schema, "dead_letter", "state"))
		same(t, name+": dead_letter.reason", code["DeadReason"], allowed(t, schema, "dead_letter", "reason"))
		same(t, name+": endpoint.state", code["EndpointState"], allowed(t, schema, "endpoint", "state"))
		same(t, name+": tenant.state", code["TenantState"], allowed(t, schema, "tenant", "state"))
		same(t, name+": tenant.egress", code["EgressClass"], allowed(t, schema, "tenant", "egress"))
		same(t, name+": attempt.trigger", code["Trigger"], allowed(t, schema, "attempt", "trigger"))
		same(t, name+": attempt.outcome", code["Outcome"], allowed(t, schema, "attempt", "outcome"))
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// section is the text from one mark to the next.
func section(t *testing.T, text, from, to string) string {
	t.Helper()
	_, rest, found := strings.Cut(text, from)
	if !found {
		t.Fatalf("nothing begins with %q", from)
	}
	inside, _, _ := strings.Cut(rest, to)
	return inside
}

var firstCell = regexp.MustCompile("(?m)^\\| `([a-z_]+)`")

// firstColumn returns the words in code type that begin a table's rows.
func firstColumn(table string) []string {
	var words []string
	for _, m := range firstCell.FindAllStringSubmatch(table, -1) {
		words = append(words, m[1])
	}
	return words
}

// allowed returns the values a column's CHECK lists.
func allowed(t *testing.T, schema, table, column string) []string {
	t.Helper()
	start := regexp.MustCompile(`CREATE TABLE waybill[._]` + table + ` \(`).FindString(schema)
	if start == "" {
		t.Fatalf("no table %s", table)
	}
	list := regexp.MustCompile(`\b` + column + ` IN \(([^)]*)\)`).FindStringSubmatch(section(t, schema, start, "\n)"))
	if list == nil {
		t.Fatalf("no CHECK on %s.%s", table, column)
	}
	var values []string
	for value := range strings.SplitSeq(list[1], ",") {
		values = append(values, strings.Trim(strings.TrimSpace(value), "'"))
	}
	return values
}

// constants returns the string constants of a package by the name of their type.
func constants(t *testing.T, dir string) map[string][]string {
	t.Helper()
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string][]string{}
	for _, f := range files {
		if !strings.HasSuffix(f.Name(), ".go") || strings.HasSuffix(f.Name(), "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), dir+"/"+f.Name(), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok || len(spec.Values) != 1 {
				return true
			}
			name, named := spec.Type.(*ast.Ident)
			value, literal := spec.Values[0].(*ast.BasicLit)
			if named && literal && value.Kind == token.STRING {
				text, err := strconv.Unquote(value.Value)
				if err != nil {
					t.Fatal(err)
				}
				found[name.Name] = append(found[name.Name], text)
			}
			return true
		})
	}
	return found
}

func same(t *testing.T, what string, want, got []string) {
	t.Helper()
	set := func(words []string) []string {
		unique := map[string]struct{}{}
		for _, w := range words {
			unique[w] = struct{}{}
		}
		return slices.Sorted(maps.Keys(unique))
	}
	if diff := cmp.Diff(set(want), set(got)); diff != "" || len(want) == 0 {
		t.Errorf("%s (-code +there):\n%s", what, diff)
	}
}

var (
	testName = regexp.MustCompile("`((?:Test|Fuzz|Benchmark)[A-Za-z0-9_]+)`")
	testFunc = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark)\w+)\(`)
)

// Every test a page names is there.
func TestDocs_theTestsOnThePagesExist(t *testing.T) {
	declared := map[string]bool{}
	err := filepath.WalkDir("..", func(path string, entry os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && (entry.Name() == "node_modules" || entry.Name() == ".git") {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(path, "_test.go") {
			return nil
		}
		for _, m := range testFunc.FindAllStringSubmatch(read(t, path), -1) {
			declared[m[1]] = true
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for page, least := range map[string]int{"faults.md": 100, "security.md": 70} {
		names := testName.FindAllStringSubmatch(read(t, page), -1)
		for _, name := range names {
			if !declared[name[1]] {
				t.Errorf("%s names %s, which does not exist", page, name[1])
			}
		}
		if len(names) < least {
			t.Errorf("%s names %d tests", page, len(names))
		}
	}
}
