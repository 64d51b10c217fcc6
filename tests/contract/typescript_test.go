package contract

import (
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/waybill-dev/waybill/tests/node"
	"github.com/waybill-dev/waybill/tests/program"
)

const typescriptClient = "../../clients/typescript"

// manifest is a package.json, as far as it matters.
type manifest struct {
	Dependencies    map[string]string `json:"dependencies"`
	DevDependencies map[string]string `json:"devDependencies"`
}

func readManifest(t *testing.T, path string) manifest {
	t.Helper()
	text, err := os.ReadFile(path)
	must(t, err)
	var m manifest
	must(t, json.Unmarshal(text, &m))
	return m
}

// runNode runs a program of an npm package, or any other.
func runNode(t *testing.T, dir string, env []string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "node", args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("node %v: %v\n%s", args, err, out)
	}
	return string(out)
}

// What the tests install is what the client asks for: else they would prove another one.
func TestTypeScriptClient_isTestedWithItsOwnVersions(t *testing.T) {
	client, tests := readManifest(t, typescriptClient+"/package.json"), readManifest(t, "../node/package.json")
	for _, wanted := range []map[string]string{client.Dependencies, client.DevDependencies} {
		for name, version := range wanted {
			if tests.Dependencies[name] != version {
				t.Errorf("the client wants %s %s, the tests install %q", name, version, tests.Dependencies[name])
			}
		}
	}
}

func TestTypeScriptClient_isWhatTheGeneratorWrites(t *testing.T) {
	modules := node.Modules(t)
	dir := t.TempDir()
	runNode(t, dir, nil, filepath.Join(modules, "openapi-typescript", "bin", "cli.js"), absolute(t, "../../clients/openapi.json"), "--default-non-nullable=false", "--output", filepath.Join(dir, "again.ts"))
	again, err := os.ReadFile(filepath.Join(dir, "again.ts"))
	must(t, err)
	kept, err := os.ReadFile(typescriptClient + "/src/api.gen.ts")
	must(t, err)
	if _, below, _ := strings.Cut(string(kept), "\n\n"); below != string(again) {
		t.Error(`api.gen.ts is not what openapi-typescript makes of openapi.json: run "make generate"`)
	}
}

func absolute(t *testing.T, path string) string {
	t.Helper()
	path, err := filepath.Abs(path)
	must(t, err)
	return path
}

// A customer's program is checked by the compiler together with the client, and runs against the
// real server.
func TestTypeScriptClient_fromATenantToAReplay(t *testing.T) {
	modules := node.Modules(t)
	project := t.TempDir()
	must(t, os.CopyFS(filepath.Join(project, "src"), os.DirFS(typescriptClient+"/src")))
	for from, to := range map[string]string{
		"testdata/customer.ts":              "src/customer.ts",
		typescriptClient + "/tsconfig.json": "tsconfig.json",
		typescriptClient + "/package.json":  "package.json",
	} {
		text, err := os.ReadFile(from)
		must(t, err)
		must(t, os.WriteFile(filepath.Join(project, to), text, 0o644))
	}
	must(t, os.Symlink(modules, filepath.Join(project, "node_modules")))
	runNode(t, project, nil, filepath.Join(modules, "typescript", "bin", "tsc"))

	server := program.Serve(t, program.Build(t), "sqlite://"+filepath.Join(t.TempDir(), "waybill.db"))
	customer := newReceiver(t)
	customer.fails("/fails", http.StatusBadRequest)
	out := runNode(t, project, []string{"WAYBILL_URL=" + server.URL, "WAYBILL_API_KEY=" + server.APIKey, "RECEIVER=" + customer.URL}, "dist/customer.js")
	event, done := strings.CutPrefix(strings.TrimSpace(out), "done ")
	if !done {
		t.Fatalf("it wrote %s", out)
	}
	arrived := customer.got(event)
	if len(arrived) != 2 || string(arrived[1]) != `{"id":"pay_1","amount":5}` {
		t.Errorf("the receiver got %q, want the event twice", arrived)
	}
}
