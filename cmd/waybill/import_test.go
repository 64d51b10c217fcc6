package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// puts is a server that takes every endpoint but those whose description is "bad".
type puts struct {
	mu     sync.Mutex
	bodies map[string]string
}

func (p *puts) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	if strings.Contains(string(body), `"bad"`) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusUnprocessableEntity)
		io.WriteString(w, `{"status":422,"code":"url_not_allowed","detail":"url: it must not be","errors":[{"path":"url","code":"url_not_allowed","detail":"it must not be"}]}`)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.bodies[r.URL.Path] = string(body)
	if strings.HasSuffix(r.URL.Path, "/check") {
		io.WriteString(w, `{"would":"create","connection":{"ok":false,"kind":"refused","message":"nobody there"}}`)
		return
	}
	io.WriteString(w, `{"id":"ep_1","secret":"whsec_x"}`)
}

func TestImport_eachLineStandsForItself(t *testing.T) {
	p := &puts{bodies: map[string]string{}}
	server := httptest.NewServer(p)
	t.Cleanup(server.Close)
	file := filepath.Join(t.TempDir(), "endpoints.ndjson")
	lines := `{"tenant":"acme","uid":"one","url":"https://us%40er:pa:ss@hooks.example.com/a%2Fb?x=%20y@z"}

not JSON
{"uid":"three","url":"https://hooks.example.com/","description":"bad"}
{"url":"https://hooks.example.com/"}
{"tenant":5,"uid":"five"}
{"tenant":"acme","uid":"six","url":"https://u:p@hooks.example.com/","secret_headers":{"authorization":"Bearer x"}}
{"uid":"seven","url":"https://hooks.example.com/","metadata":{"big":9007199254740993}}
`
	if err := os.WriteFile(file, []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
	run := func(more ...string) result {
		t.Helper()
		var out, errs bytes.Buffer
		args := append([]string{"import", file, "--tenant", "globex", "--url", server.URL}, more...)
		code := run(t.Context(), args, streams{strings.NewReader(""), &out, &errs}, []string{"WAYBILL_API_KEY=k"})
		return result{code, out.String(), errs.String()}
	}
	r := run()
	want := `line 3 (-): is not a JSON object
line 4 (three): url: it must not be
line 5 (-): uid: is required, so that the import can be run again
line 6 (five): tenant: want a string
line 7 (six): url: holds a user name although secret_headers has Authorization
created 2, updated 0, would create 0, would update 0, refused 5, cannot be reached 0
`
	if r.code != exitFailed || r.out != want {
		t.Errorf("code %d, printed\n%s, want\n%s%s", r.code, r.out, want, r.err)
	}
	var one struct {
		URL           string
		SecretHeaders map[string]string `json:"secret_headers"`
	}
	if err := json.Unmarshal([]byte(p.bodies["/v1/tenants/acme/endpoints/one"]), &one); err != nil {
		t.Fatal(err)
	}
	// us@er:pa:ss, by base64(1).
	if one.URL != "https://hooks.example.com/a%2Fb?x=%20y@z" || one.SecretHeaders["Authorization"] != "Basic dXNAZXI6cGE6c3M=" {
		t.Errorf("the URL's user name became %+v", one)
	}
	if body := p.bodies["/v1/tenants/globex/endpoints/seven"]; !strings.Contains(body, "9007199254740993") {
		t.Errorf("a number changed on the way: %s", body)
	}

	clear(p.bodies)
	r = run("--dry-run", "--check", "--json")
	if _, made := p.bodies["/v1/tenants/acme/endpoints/one"]; made || r.code != exitFailed || !strings.Contains(r.out, `"line":1,"tenant":"acme","uid":"one","result":"unreachable","errors":[{"index":null,"path":"url","code":"unreachable","detail":"nobody there"}]`) {
		t.Errorf("dry run with check: code %d, %s", r.code, r.out)
	}
}
