package main

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/waybill-dev/waybill/internal/client"
)

// documents are the README and everything in docs.
func documents(t *testing.T) map[string]string {
	t.Helper()
	names, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	of := map[string]string{}
	for _, name := range append(names, "../../README.md", "../../CONTRIBUTING.md", "../../clients/README.md") {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		of[filepath.Base(filepath.Dir(name))+"/"+filepath.Base(name)] = string(text)
	}
	return of
}

var (
	inline = regexp.MustCompile("`(waybill(?: [^`\n]+)?)`")
	fenced = regexp.MustCompile("(?ms)^```(?:sh|console|bash)\n(.*?)^```")
	flag   = regexp.MustCompile(`^--[a-z-]+`)
)

// Every command a page names, and every flag it gives it, is there.
func TestDocs_everyCommandNamedIsThere(t *testing.T) {
	named := 0
	for page, text := range documents(t) {
		var lines []string
		for _, m := range inline.FindAllStringSubmatch(text, -1) {
			lines = append(lines, m[1])
		}
		for _, m := range fenced.FindAllStringSubmatch(text, -1) {
			for line := range strings.Lines(strings.ReplaceAll(m[1], "\\\n", " ")) {
				lines = append(lines, strings.TrimPrefix(strings.TrimSpace(line), "./bin/"))
			}
		}
		for _, line := range lines {
			words := strings.Fields(strings.SplitN(line, "#", 2)[0])
			if len(words) < 2 || words[0] != "waybill" || strings.HasPrefix(words[1], "--") {
				continue
			}
			named++
			root := (&shell{}).root()
			root.InitDefaultCompletionCmd()
			found, rest, err := root.Find(words[1:])
			if err != nil || found == root {
				t.Errorf("%s: there is no command %q", page, line)
				continue
			}
			if len(found.Commands()) > 0 && len(rest) > 0 && !strings.HasPrefix(rest[0], "-") && !found.Runnable() {
				t.Errorf("%s: %q is no command", page, line)
			}
			for _, word := range rest {
				name := strings.TrimPrefix(flag.FindString(word), "--")
				if name != "" && found.Flags().Lookup(name) == nil && found.InheritedFlags().Lookup(name) == nil && name != "help" {
					t.Errorf("%s: %q: %s has no flag --%s", page, line, found.CommandPath(), name)
				}
			}
		}
	}
	if named < 100 {
		t.Errorf("only %d commands were looked at", named)
	}
}

// elsewhere are the blocks of commands that something else runs, by how they begin, and why.
var elsewhere = map[string]string{
	"go run ./cmd/waybill dev":                              "TestDev_printsCommandsThatWork; the other is the run of all tests itself",
	"make build\n":                                          "builds what this package's tests build, and serves; TestServe_theWholeWayByCommandLine",
	"export WAYBILL_DATABASE_URL":                           "TestMigrate_fromNothingToAServer",
	"waybill bench --database-url":                          "internal/bench runs its scenarios",
	"kubectl create secret":                                 "needs a cluster",
	"curl --fail-with-body --silent --show-error \"$WAYBIL": "tests/publishers runs the page on publishing",
}

// What the pages tell people to type works, typed in this order.
func TestDocs_everyBlockOfCommandsRuns(t *testing.T) {
	failing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) }))
	t.Cleanup(failing.Close)
	all := documents(t)
	ran := 0
	for _, page := range slices.Sorted(maps.Keys(all)) {
		var s *server
		for _, m := range fenced.FindAllStringSubmatch(all[page], -1) {
			block := m[1]
			if slices.ContainsFunc(slices.Collect(maps.Keys(elsewhere)), func(start string) bool { return strings.HasPrefix(block, start) }) {
				continue
			}
			if s == nil {
				s = serve(t)
				s.want(201, "PUT", "/v1/tenants/acme", `{}`)
			}
			ran++
			runBlock(t, s, page, block, failing.URL)
		}
	}
	if ran < 5 {
		t.Errorf("only %d blocks were run", ran)
	}
}

// runBlock types a block into a shell where waybill is the program under test, after what it leaves
// open is filled in: ids, the server's address, a file it names.
func runBlock(t *testing.T, s *server, page, block, failing string) {
	t.Helper()
	// A dead letter for what is asked about, at a server that is reached from here.
	made := decode[client.Endpoint](t, s.want(201, "POST", "/v1/tenants/acme/endpoints", fmt.Sprintf(`{"url":%q,"event_types":["known"],"retry":{"max_attempts":1}}`, failing)))
	event := decode[struct{ ID string }](t, s.want(202, "POST", "/v1/tenants/acme/events", `{"type":"known","payload":{}}`)).ID
	var delivery string
	wait(t, "a dead letter", func() bool {
		for _, d := range decode[client.Page[client.Delivery]](t, s.want(200, "GET", "/v1/tenants/acme/events/"+event+"/deliveries", "")).Data {
			if d.EndpointID == made.ID && d.State == "dead" {
				delivery = d.ID
			}
		}
		return delivery != ""
	})
	script := strings.NewReplacer(
		"http://127.0.0.1:8420", s.address(), "dlv_…", delivery, "ep_…", made.ID,
		"https://hooks.example.com/in\"", failing+"/in\"", "http://billing.internal/hooks", failing+"/hooks",
		"curl ", "curl --silent --show-error --fail-with-body ",
	).Replace(block)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "stripe.secret"), []byte("whsec_of_the_tests_0123456789"), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", script)
	cmd.Dir = dir
	cmd.Env = append(slices.Concat(settled, s.env), "PATH="+filepath.Dir(program)+":"+os.Getenv("PATH"), "WAYBILL_API_KEY="+testKey)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%s: %v\n%s\n%s", page, err, script, out)
	}
}
