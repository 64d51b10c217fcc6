package house

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/waybill-dev/waybill"

// pkg is what the rules need of `go list -json`.
type pkg struct {
	ImportPath string
	Name       string
	Dir        string
	Doc        string
	Standard   bool
	GoFiles    []string
	Imports    []string
	Deps       []string
}

// own reports whether the package is one of this module's.
func own(path string) bool { return path == module || strings.HasPrefix(path, module+"/") }

// public reports whether other modules may import the package.
func public(path string) bool {
	if !own(path) {
		return false
	}
	for _, part := range []string{"/internal/", "/cmd/", "/tests/", "/examples/"} {
		if strings.Contains(path+"/", part) {
			return false
		}
	}
	return true
}

// adapters are public packages whose one purpose is another library.
var adapters = map[string]string{
	module + "/pgxtx":               "github.com/jackc/",
	module + "/receive/pgstore":     "github.com/jackc/",
	module + "/receive/redisstore":  "github.com/redis/",
	module + "/receive/prommetrics": "github.com/prometheus/",
}

// packages lists the module's packages and everything they import, by import path.
func packages(t *testing.T) map[string]pkg {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", "-json=ImportPath,Name,Dir,Doc,Standard,GoFiles,Imports,Deps", module+"/...")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, stderr.String())
	}
	all := map[string]pkg{}
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all[p.ImportPath] = p
	}
}

func TestHouse_publicPackagesImportOnlyTheStandardLibrary(t *testing.T) {
	all := packages(t)
	for path, p := range all {
		if !public(path) {
			continue
		}
		// What an adapter's own library imports is not ours to judge, so only its imports count.
		reach := p.Deps
		if adapters[path] != "" {
			reach = p.Imports
		}
		for _, dep := range reach {
			adapted := adapters[path] != "" && strings.HasPrefix(dep, adapters[path])
			if !all[dep].Standard && !own(dep) && !adapted {
				t.Errorf("%s depends on %s: whoever imports it would inherit that", path, dep)
			}
		}
	}
}

func TestHouse_theDomainKnowsNoDatabase(t *testing.T) {
	all := packages(t)
	for _, path := range []string{module + "/internal/outbox", module + "/signature", module + "/internal/attempt"} {
		p, exists := all[path]
		if !exists {
			t.Errorf("%s is not there: the rule guards a package that moved", path)
		}
		for _, dep := range p.Deps {
			for _, database := range []string{"database/sql", "github.com/jackc/", "modernc.org/sqlite", "github.com/pressly/", module + "/internal/postgres", module + "/internal/sqlite"} {
				if strings.HasPrefix(dep, database) {
					t.Errorf("%s depends on %s", path, dep)
				}
			}
		}
	}
}

func TestHouse_everyPackageSaysWhatItIs(t *testing.T) {
	for path, p := range packages(t) {
		if own(path) && len(p.GoFiles) > 0 && p.Doc == "" {
			t.Errorf("%s has no package comment", path)
		}
	}
}

// dialers are the packages that may build a client, with the reason. Every other address goes
// through internal/egress, which judges it.
var dialers = map[string]string{
	module + "/internal/egress": "it is the guard",
	module + "/internal/client": "dials the server its user names on the command line, from that user's machine",
	module + "/internal/listen": "forwards to the address its user names on the command line, from that user's machine",
	module + "/internal/bench":  "dials its own sink and its own server",
}

func TestHouse_strangersAddressesAreDialledByEgressAlone(t *testing.T) {
	for path, p := range packages(t) {
		if !own(path) || dialers[path] != "" || strings.Contains(path, "/tests/") || strings.Contains(path, "/examples/") {
			continue
		}
		for _, name := range p.GoFiles {
			for _, found := range clients(t, filepath.Join(p.Dir, name)) {
				t.Errorf("%s: an address someone configured is dialled by internal/egress alone", found)
			}
		}
	}
}

// clients finds the places in a file that use a ready-made HTTP client or build one.
func clients(t *testing.T, file string) []string {
	t.Helper()
	fset := token.NewFileSet()
	tree, err := parser.ParseFile(fset, file, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	local := ""
	for _, spec := range tree.Imports {
		if spec.Path.Value == `"net/http"` {
			local = "http"
			if spec.Name != nil {
				local = spec.Name.Name
			}
		}
	}
	if local == "" {
		return nil
	}
	var found []string
	forbidden := []string{"DefaultClient", "DefaultTransport", "Get", "Head", "Post", "PostForm", "Transport", "Client"}
	ast.Inspect(tree, func(n ast.Node) bool {
		if lit, ok := n.(*ast.StarExpr); ok && isSelector(lit.X, local, "Client", "Transport") {
			return false // naming the type of a client that was handed in is no dialling
		}
		if sel, ok := n.(*ast.SelectorExpr); ok && isSelector(sel, local, forbidden...) {
			found = append(found, fmt.Sprintf("%s: %s.%s", fset.Position(sel.Pos()), local, sel.Sel.Name))
		}
		return true
	})
	return found
}

func isSelector(e ast.Expr, pkg string, names ...string) bool {
	sel, ok := e.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	x, ok := sel.X.(*ast.Ident)
	return ok && x.Name == pkg && slices.Contains(names, sel.Sel.Name)
}
