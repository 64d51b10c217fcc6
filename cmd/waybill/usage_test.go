package main

import (
	"encoding/base64"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// commands lists every command people see, by its words.
func commands(t *testing.T) [][]string {
	t.Helper()
	var all [][]string
	var walk func(c *cobra.Command, words []string)
	walk = func(c *cobra.Command, words []string) {
		all = append(all, words)
		for _, below := range c.Commands() {
			if !below.Hidden {
				walk(below, append(words[:len(words):len(words)], below.Name()))
			}
		}
	}
	walk((&shell{}).root(), nil)
	if len(all) < 30 {
		t.Fatalf("only %d commands", len(all))
	}
	return all
}

func TestEveryCommand_hasHelpAndAPlaceInTheReference(t *testing.T) {
	page, err := os.ReadFile("../../docs/command-line.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, words := range commands(t) {
		name := strings.Join(append([]string{"waybill"}, words...), " ")
		t.Run(name, func(t *testing.T) {
			r := inProcess(t, append(words[:len(words):len(words)], "--help")...)
			if r.code != exitOK || !strings.Contains(r.out, "Usage:\n  "+name) || r.err != "" {
				t.Errorf("--help: %v", r)
			}
			group := strings.Contains(r.out, "Available Commands:")
			if !group && !strings.Contains(string(page), "| `"+name) {
				t.Errorf("docs/command-line.md does not list %q", name)
			}
		})
	}
}

func TestCommandLine_refusesWithOneSentenceAndACode(t *testing.T) {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := "http://" + free.Addr().String()
	free.Close()
	key, sealing := "WAYBILL_API_KEY=k", "WAYBILL_ENCRYPTION_KEY="+base64.StdEncoding.EncodeToString(make([]byte, 32))
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { taken.Close() })
	for name, row := range map[string]struct {
		env  []string
		args string
		code int
		want string
	}{
		"no such command":                  {nil, "bogus", exitUsage, `"waybill" has no command "bogus"`},
		"no such command of a noun":        {nil, "tenants bogus", exitUsage, `"waybill tenants" has no command "bogus"`},
		"a noun alone":                     {nil, "deliveries", exitUsage, `"waybill deliveries" needs a command`},
		"no such flag":                     {nil, "serve --bogus", exitUsage, "unknown flag: --bogus"},
		"an argument too many":             {nil, "version now", exitUsage, `unknown command "now" for "waybill version"`},
		"an argument too few":              {nil, "tenants get", exitUsage, "accepts 1 arg(s), received 0"},
		"a number that is none":            {nil, "tenants put acme --max-in-flight many", exitUsage, `invalid argument "many" for "--max-in-flight" flag`},
		"a setting that cannot be used":    {[]string{"WAYBILL_RETENTION=soon"}, "serve", exitUsage, `WAYBILL_RETENTION: "soon" must be a duration such as 90s, 8h or 30d`},
		"a part that cannot be alone":      {nil, "serve --roles api", exitUsage, "--roles: must include dispatch with SQLite: no other process can do it"},
		"a file of settings that is gone":  {nil, "serve --config nowhere.yaml", exitUsage, "nowhere.yaml: cannot read the configuration file: no such file or directory"},
		"an address with a raw password":   {[]string{"WAYBILL_DATABASE_URL=postgres://w:hunter2 #@h/d"}, "config check", exitUsage, "WAYBILL_DATABASE_URL: is not a PostgreSQL address"},
		"a port that is none":              {[]string{"WAYBILL_DATABASE_URL=postgres://w:hunter2@h:99999/d"}, "serve", exitUsage, "WAYBILL_DATABASE_URL: is not a PostgreSQL address"},
		"a directory that is not there":    {[]string{key}, "serve --database-url sqlite://nowhere/waybill.db", exitRefused, "there is no directory"},
		"a directory for a database":       {[]string{key}, "serve --database-url sqlite://.", exitRefused, ". is a directory; name a file in it"},
		"a port that is taken":             {[]string{key}, "serve --listen " + taken.Addr().String(), exitRefused, "the address is already in use"},
		"an address of another machine":    {[]string{"WAYBILL_API_KEY=0123456789abcdef0123456789abcdef"}, "serve --listen 203.0.113.7:8420", exitRefused, "this machine has no such address"},
		"PostgreSQL that is away":          {[]string{key, sealing}, "serve --database-url postgres://127.0.0.1:1/x", exitUnreachable, "PostgreSQL: the server cannot be reached; does it run"},
		"a server without a key":           {nil, "serve", exitRefused, "WAYBILL_API_KEY is not set"},
		"a server anybody could guess at":  {[]string{key}, "serve --listen 0.0.0.0:0", exitRefused, "can be reached by others"},
		"PostgreSQL without its key":       {[]string{key}, "serve --database-url postgres://127.0.0.1:1/x", exitRefused, "WAYBILL_ENCRYPTION_KEY is not set"},
		"dev on PostgreSQL":                {nil, "dev --database-url postgres://127.0.0.1:1/x", exitRefused, "dev keeps its data in a SQLite file"},
		"publish without a type":           {nil, "publish acme", exitUsage, "give TENANT and TYPE"},
		"publish with a type twice":        {nil, "publish --type a.b acme c.d", exitUsage, `"c.d" is given twice`},
		"publish what is no JSON":          {nil, "publish acme a.b {bad", exitRefused, "the payload is not JSON"},
		"publish nothing":                  {nil, "publish acme a.b", exitRefused, "the payload is not JSON"},
		"publish a file that is not there": {nil, "publish acme a.b @nowhere.json", exitUsage, "no such file"},
		"a server that is not there":       {[]string{key, "WAYBILL_URL=" + nobody}, "tenants list", exitUnreachable, "cannot reach " + nobody + ": nothing listens there; is the server running?"},
		"an address that is none":          {nil, "tenants list --url localhost", exitUsage, `"localhost" is not the address of a server`},
		"a client without a key":           {nil, "tenants list", exitRefused, "WAYBILL_API_KEY is not set"},
		"an argument that is no text":      {[]string{key}, "publish acme a.b 1 --metadata a=\xff", exitUsage, `an argument is not UTF-8 text: "a=\xff"`},
		"events of nobody":                 {nil, "events list", exitUsage, "give --tenant"},
		"a body and a field":               {nil, "tenants put acme --body {} --name x", exitUsage, "--body and --name exclude each other"},
		"verify without a database":        {nil, "verify", exitNotFound, "no database to look at"},
		"verify PostgreSQL that is away":   {nil, "verify --database-url postgres://127.0.0.1:1/x", exitUnreachable, ""},
		"migrate PostgreSQL that is away":  {nil, "migrate up --database-url postgres://127.0.0.1:1/x", exitUnreachable, ""},
		"two wishes about the role":        {nil, "migrate up --no-role --publisher-role r --database-url postgres://127.0.0.1:1/x", exitUsage, "exclude each other"},
		"SQLite is not taken back":         {nil, "migrate down", exitRefused, "is not taken back"},
		"a secret that is none":            {nil, "listen --secret hunter2", exitUsage, "signing secret"},
		"forwarding from nowhere":          {nil, "listen --forward-to http://localhost:1", exitUsage, "need --url"},
		"pulling for nobody":               {nil, "listen --url http://localhost:1", exitUsage, "give --tenant"},
		"a scenario that is none":          {nil, "bench --scenario bogus", exitUsage, `there is no scenario "bogus"`},
		"a bench without end":              {nil, "bench --duration 100h", exitUsage, "--duration must be from 1s to 1h"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := waybill(t, t.TempDir(), row.env, "", strings.Fields(row.args)...)
			if r.code != row.code {
				t.Errorf("exit code %d, want %d", r.code, row.code)
			}
			if !strings.Contains(r.err, row.want) {
				t.Errorf("it says %q, want %q", r.err, row.want)
			}
			if !strings.Contains(r.err, "waybill: ") || strings.Contains(r.err, "goroutine ") || strings.Contains(r.err, "hunter2") {
				t.Errorf("it says %q", r.err)
			}
			if r.out != "" {
				t.Errorf("standard output has %q", r.out)
			}
		})
	}
}

func TestCommandLine_leavesNoFileBehindWhenItRefuses(t *testing.T) {
	dir := t.TempDir()
	waybill(t, dir, nil, "", "serve")
	waybill(t, dir, nil, "", "verify")
	waybill(t, dir, nil, "", "migrate", "up")
	if left, err := filepath.Glob(filepath.Join(dir, "*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestSQLStub_isPrinted(t *testing.T) {
	r := inProcess(t, "sql", "stub")
	if r.code != exitOK || !strings.Contains(r.out, "FUNCTION waybill.publish(") {
		t.Errorf("%v", r)
	}
}

func TestVersion_isAFlagToo(t *testing.T) {
	command, flag := inProcess(t, "version"), inProcess(t, "--version")
	if flag.code != exitOK || flag.out != command.out || flag.out == "" {
		t.Errorf("the flag says %q, the command %q", flag.out, command.out)
	}
	if r := inProcess(t, "version", "--json"); !strings.Contains(r.out, `"go": "go1.`) && !strings.Contains(r.out, `"go":"go1.`) {
		t.Errorf("as JSON: %s", r.out)
	}
}
