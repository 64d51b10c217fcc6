package portal

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// What of the domain the pages may name: a clock, sessions and what they permit. Nothing that
// holds rows is among them: data comes through the API, as the person who looks.
var namedOfOutbox = []string{"Clock", "Session", "Permission", "PermissionAdmin", "PermissionManage", "PermissionReplay", "PermissionSecrets"}

func sources(t *testing.T) map[string]*ast.File {
	t.Helper()
	names, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]*ast.File{}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files[name] = file
	}
	if len(files) < 20 {
		t.Fatalf("%d files: the rule guards a package that moved", len(files))
	}
	return files
}

func TestPages_readNothingButThroughTheAPI(t *testing.T) {
	for name, file := range sources(t) {
		for _, spec := range file.Imports {
			path := strings.Trim(spec.Path.Value, `"`)
			if _, own, _ := strings.Cut(path, "waybill/internal/"); own != "" && !slices.Contains([]string{"api", "client", "inbound", "outbox", "session"}, own) {
				t.Errorf("%s imports %s: the pages are a client of the API", name, path)
			}
		}
		ast.Inspect(file, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			switch x, _ := sel.X.(*ast.Ident); {
			case x == nil:
			case x.Name == "outbox" && !slices.Contains(namedOfOutbox, sel.Sel.Name):
				t.Errorf("%s names outbox.%s: the pages hold no rows, and no way to them", name, sel.Sel.Name)
			case x.Name == "inbound" && sel.Sel.Name != "Providers" && sel.Sel.Name != "Custom":
				t.Errorf("%s names inbound.%s", name, sel.Sel.Name)
			}
			return true
		})
	}
}

// A customer's page can ask for nothing outside its tenant: the only path it makes begins with the
// tenant its session is for. The API's own filter stands behind it.
func TestPages_ofCustomersAskWithinTheirTenantAlone(t *testing.T) {
	handlers, made := 0, 0
	for name, file := range sources(t) {
		for _, decl := range file.Decls {
			fn, ok := decl.(*ast.FuncDecl)
			if !ok || fn.Body == nil {
				continue
			}
			whose := receiver(fn)
			if whose == "customer" {
				handlers++
			}
			ast.Inspect(fn.Body, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok {
					return true
				}
				sel, ok := call.Fun.(*ast.SelectorExpr)
				if !ok {
					return true
				}
				x, _ := sel.X.(*ast.Ident)
				switch {
				case x != nil && x.Name == "client" && sel.Sel.Name == "Path" && whose != "operator":
					made++
					if fn.Name.Name == "firstEvent" {
						made-- // a command for an operator to copy, which asks for nothing
					} else if fn.Name.Name != "tenantPath" {
						t.Errorf("%s: %s makes a path of its own; a customer's page asks through tenantPath", name, fn.Name.Name)
					}
				case sel.Sel.Name == "admin" && whose != "operator":
					t.Errorf("%s: %s acts with an administrator's rights", name, fn.Name.Name)
				}
				return true
			})
		}
	}
	if handlers < 25 || made != 1 {
		t.Errorf("%d handlers of customers and %d places that make their paths: the rule guards what moved", handlers, made)
	}
}

// receiver is the name of a method's type.
func receiver(fn *ast.FuncDecl) string {
	if fn.Recv == nil || len(fn.Recv.List) == 0 {
		return ""
	}
	of := fn.Recv.List[0].Type
	if star, ok := of.(*ast.StarExpr); ok {
		of = star.X
	}
	if id, ok := of.(*ast.Ident); ok {
		return id.Name
	}
	return ""
}

// What strangers are shown is a template; that none of them is marked as safe by hand is a rule too.
func TestPages_trustNoTextByHand(t *testing.T) {
	files, err := fs.Glob(templateFiles, "templates/*.html")
	if err != nil || len(files) < 20 {
		t.Fatalf("%d templates (%v)", len(files), err)
	}
	for name, file := range sources(t) {
		if name == "text.go" || name == "times.go" || name == "render.go" || name == "chart.go" || name == "overview.go" {
			continue // they write markup of their own: marks around escaped text, times, icons, the paths of pictures
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if sel, ok := n.(*ast.SelectorExpr); ok {
				if x, _ := sel.X.(*ast.Ident); x != nil && x.Name == "template" && slices.Contains([]string{"HTML", "HTMLAttr", "JS", "CSS", "URL", "Srcset"}, sel.Sel.Name) {
					t.Errorf("%s marks text as template.%s", name, sel.Sel.Name)
				}
			}
			return true
		})
	}
}
