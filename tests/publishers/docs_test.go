package publishers

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/waybill-dev/waybill"
	"github.com/waybill-dev/waybill/internal/postgres/pgtest"
	"github.com/waybill-dev/waybill/tests/node"
	"github.com/waybill-dev/waybill/tests/program"
	"github.com/waybill-dev/waybill/waybilltest"
)

// root is the module's, seen from this package.
const root = "../.."

// What the page on publishing shows is what happens: every fenced block is run, in its order,
// in one database.
func TestPublishers_everySnippetOfTheDocumentationRuns(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the binary and two programs")
	}
	blocks := fenced(t, filepath.Join(root, "docs", "publish.md"))
	dsn := pgtest.DSN(t)
	db := open(t, dsn)
	var server *program.Server // started once there is a tenant, by the first block that needs it

	languages := map[string]int{}
	for i, b := range blocks {
		languages[b.language]++
		name := fmt.Sprintf("block %d, %s", i+1, b.language)
		path := filepath.Join(t.TempDir(), "snippet")
		var cmd *exec.Cmd
		switch b.language {
		case "sql":
			cmd = exec.CommandContext(t.Context(), "psql", "--no-psqlrc", "--set=ON_ERROR_STOP=1", "--file="+write(t, path+".sql", b.text), dsn)
		case "go":
			// From the module's root, so that it is found; the file itself may lie anywhere.
			cmd = exec.CommandContext(t.Context(), "go", "run", write(t, path+".go", b.text))
			cmd.Dir = root
		case "python":
			cmd = exec.CommandContext(t.Context(), "/usr/bin/python3", write(t, path+".py", b.text))
		case "js":
			cmd = node.Command(t, b.text)
		case "sh":
			if server == nil {
				server = program.Serve(t, program.Build(t), dsn)
			}
			cmd = exec.CommandContext(t.Context(), "bash", "-euc", b.text)
			cmd.Env = append(os.Environ(), "WAYBILL_URL="+server.URL, "WAYBILL_API_KEY="+server.APIKey)
		default:
			t.Errorf("%s: no test knows how to run it", name)
			continue
		}
		if cmd.Env == nil {
			cmd.Env = append(os.Environ(), "DATABASE_URL="+dsn)
		}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}

	for _, language := range []string{"sql", "go", "python", "js", "sh"} {
		if languages[language] == 0 {
			t.Errorf("the page has no %s", language)
		}
	}
	// Eight snippets speak of a payment each; those in the caller's transaction settle it too.
	for n := 1; n <= 8; n++ {
		waybilltest.RequirePublished(t, db, waybill.Event{
			Tenant: "acme", Type: "payment.succeeded", Payload: fmt.Appendf(nil, `{"id":"pay_%d"}`, n),
		})
	}
	var settled string
	err := db.QueryRowContext(t.Context(), `
		SELECT string_agg(id, ' ' ORDER BY id)
		FROM payment
		WHERE state = 'succeeded'`,
	).Scan(&settled)
	if err != nil {
		t.Fatal(err)
	}
	if want := "pay_1 pay_2 pay_3 pay_4 pay_5"; settled != want {
		t.Errorf("settled payments: %s, want %s", settled, want)
	}
}

type block struct{ language, text string }

// fenced returns the fenced blocks of a Markdown file.
func fenced(t *testing.T, path string) []block {
	t.Helper()
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var blocks []block
	inside := false
	for line := range strings.Lines(string(page)) {
		language, fence := strings.CutPrefix(strings.TrimSpace(line), "```")
		switch {
		case fence && !inside:
			blocks = append(blocks, block{language: language})
			inside = true
		case fence:
			inside = false
		case inside:
			blocks[len(blocks)-1].text += line
		}
	}
	return blocks
}

func write(t *testing.T, path, text string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}
