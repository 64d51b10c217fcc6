package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"

	"github.com/waybill-dev/waybill/internal/client"
)

// The bootstrap key makes the first key, and is not needed from then on. A key that was deleted
// opens nothing; with the last one gone the server does not start.
func TestServe_startsWithoutABootstrapKeyOnceThereAreKeys(t *testing.T) {
	s := serve(t)
	made := ok(t, s.dir, s.env, "keys", "create", "first", "--scopes", "admin", "--json")
	var key struct{ ID, Key string }
	if err := json.Unmarshal([]byte(made), &key); err != nil {
		t.Fatal(err)
	}
	if code := s.stop(syscall.SIGTERM); code != exitOK {
		t.Fatalf("exit code %d", code)
	}
	bare := with(s.env, "WAYBILL_API_KEY", "")
	again := start(t, s.dir, bare, "serve")
	address := strings.TrimPrefix(again.line("listening on "), "listening on ")
	env := with(with(s.env, "WAYBILL_API_KEY", key.Key), "WAYBILL_URL", address)
	if list := ok(t, s.dir, env, "keys", "list"); !strings.Contains(list, key.Key[:12]) || strings.Contains(list, key.Key[12:]) {
		t.Errorf("the list:\n%s", list)
	}
	if r := waybill(t, s.dir, with(env, "WAYBILL_API_KEY", testKey), "", "tenants", "list"); r.code != exitRefused {
		t.Errorf("the bootstrap key still opens: %v", r)
	}
	ok(t, s.dir, env, "keys", "delete", key.ID)
	if r := waybill(t, s.dir, env, "", "tenants", "list"); r.code != exitRefused || !strings.Contains(r.err, "401") {
		t.Errorf("a deleted key: %v", r)
	}
	if code := again.stop(syscall.SIGTERM); code != exitOK {
		t.Fatalf("exit code %d", code)
	}
	if strings.Contains(s.errs.String()+again.errs.String(), key.Key) {
		t.Error("the key is in the log")
	}
	if r := waybill(t, s.dir, bare, "", "serve"); r.code != exitRefused || !strings.Contains(r.err, "WAYBILL_API_KEY is not set") {
		t.Errorf("without any key: %v", r)
	}
}

func TestPortalLink_isPrintedAloneAndLeadsToTheServer(t *testing.T) {
	s := serve(t)
	ok(t, s.dir, s.env, "tenants", "put", "acme")
	for _, args := range [][]string{{"portal", "link", "acme", "--permissions", "view,replay", "--user", "u_1"}, {"portal", "sign-in", "--read-only"}} {
		link := strings.TrimSpace(ok(t, s.dir, s.env, args...))
		address := strings.TrimPrefix(s.env[len(s.env)-1], "WAYBILL_URL=")
		if !strings.HasPrefix(link, address+"/") || strings.ContainsAny(link, " \n") {
			t.Errorf("%v printed %q", args, link)
		}
	}
	if list := ok(t, s.dir, s.env, "portal", "sessions", "--tenant", "acme"); !strings.Contains(list, "view,replay") || !strings.Contains(list, "unused") || !strings.Contains(list, "u_1") {
		t.Errorf("the list:\n%s", list)
	}
	if list := ok(t, s.dir, s.env, "portal", "sessions"); strings.Contains(list, "replay") || !strings.Contains(list, "view") {
		t.Errorf("the operators' list:\n%s", list)
	}
	ok(t, s.dir, s.env, "portal", "revoke", "--all", "--tenant", "acme")
	if list := ok(t, s.dir, s.env, "portal", "sessions", "--tenant", "acme"); !strings.Contains(list, "revoked") {
		t.Errorf("the list:\n%s", list)
	}
	if r := waybill(t, s.dir, s.env, "", "portal", "revoke", "--tenant", "acme"); r.code != exitUsage {
		t.Errorf("%v", r)
	}
	if code := s.stop(syscall.SIGTERM); code != exitOK {
		t.Errorf("exit code %d", code)
	}
}

// A copy of production that is started elsewhere sends nothing, not even what waits in it, until
// it is adopted beside the running server.
func TestAdopt_aCopySendsNothingBefore(t *testing.T) {
	s := serve(t, "WAYBILL_ENVIRONMENT=production")
	receiver, address := receiver(t)
	ok(t, s.dir, s.env, "tenants", "put", "acme")
	ok(t, s.dir, s.env, "endpoints", "create", "--tenant", "acme", address, "--uid", "crm", "--state", "paused")
	waiting := strings.TrimSpace(ok(t, s.dir, s.env, "publish", "acme", "a.b", "1"))
	wait(t, "the event to wait", func() bool {
		return strings.Contains(ok(t, s.dir, s.env, "events", "deliveries", "--tenant", "acme", waiting, "--json"), `"pending"`)
	})
	if code := s.stop(syscall.SIGTERM); code != exitOK {
		t.Fatalf("exit code %d", code)
	}

	staging := with(s.env, "WAYBILL_ENVIRONMENT", "staging")
	copied := start(t, s.dir, staging, "serve")
	env := with(staging, "WAYBILL_URL", strings.TrimPrefix(copied.line("listening on "), "listening on "))
	ok(t, s.dir, env, "endpoints", "update", "--tenant", "acme", "crm", "--state", "active")
	fresh := strings.TrimSpace(ok(t, s.dir, env, "publish", "acme", "a.b", "2"))
	if r := waybill(t, s.dir, env, "", "resume"); r.code != exitRefused || !strings.Contains(r.err, "foreign_environment") {
		t.Errorf("resume instead of adopt: %v", r)
	}
	if health := healthOf(t, env); !strings.Contains(health, "another environment") || !strings.Contains(health, `"ready"`) {
		t.Errorf("readyz: %s", health)
	}
	if state := deliveredOf(t, s.dir, env, waiting) + deliveredOf(t, s.dir, env, fresh); state != 0 {
		t.Errorf("%d were delivered before", state)
	}
	if out := ok(t, s.dir, env, "adopt"); !strings.Contains(out, "belongs to staging now (formerly production)") {
		t.Errorf("adopt printed %q", out)
	}
	wait(t, "the copy to send", func() bool {
		return deliveredOf(t, s.dir, env, waiting)+deliveredOf(t, s.dir, env, fresh) == 2
	})
	receiver.line(fresh)
	if out := ok(t, s.dir, env, "adopt"); !strings.Contains(out, "belongs to staging already") {
		t.Errorf("adopt printed %q", out)
	}
	if code := copied.stop(syscall.SIGTERM); code != exitOK {
		t.Fatalf("exit code %d", code)
	}
	ok(t, s.dir, env, "verify", "--deep")
}

// deliveredOf counts the deliveries of an event that arrived.
func deliveredOf(t *testing.T, dir string, env []string, event string) (n int) {
	t.Helper()
	for _, d := range decode[client.Page[client.Delivery]](t, ok(t, dir, env, "events", "deliveries", "--tenant", "acme", event, "--json")).Data {
		if d.State == "delivered" {
			n++
		}
	}
	return n
}

func healthOf(t *testing.T, env []string) string {
	t.Helper()
	var base string
	for _, entry := range env {
		if url, is := strings.CutPrefix(entry, "WAYBILL_URL="); is {
			base = url
		}
	}
	_, body := get(t, base+"/readyz")
	return body
}

// get reads an address.
func get(t *testing.T, address string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultTransport.RoundTrip(req) // no redirect is followed
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

func TestServe_adminListenerTakesWhatIsPrivate(t *testing.T) {
	s := serve(t, "WAYBILL_ADMIN_LISTEN=127.0.0.1:0")
	admin := s.line("metrics, health and the dashboard on ")
	admin = admin[strings.LastIndex(admin, "http://"):]
	public := strings.TrimPrefix(s.env[len(s.env)-1], "WAYBILL_URL=")
	for path, want := range map[string]struct{ public, private int }{
		"/healthz":      {404, 200},
		"/metrics":      {404, 200},
		"/debug/pprof/": {404, 200},
		"/sign-in":      {404, 200},
		"/v1/version":   {401, 404},
		"/docs":         {200, 404},
	} {
		if status, _ := get(t, public+path); status != want.public {
			t.Errorf("%s on the public listener: %d, want %d", path, status, want.public)
		}
		if status, _ := get(t, admin+path); status != want.private {
			t.Errorf("%s on the admin listener: %d, want %d", path, status, want.private)
		}
	}
	if link := ok(t, s.dir, s.env, "portal", "sign-in"); !strings.HasPrefix(link, admin+"/sign-in/") {
		t.Errorf("the operators' link is %s", link)
	}
	if code := s.stop(syscall.SIGTERM); code != exitOK {
		t.Errorf("exit code %d", code)
	}
}

func TestReseal_makesTheOldKeySuperfluous(t *testing.T) {
	key := func(fill byte) string {
		return base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{fill}, 32))
	}
	s := serve(t, "WAYBILL_ENCRYPTION_KEY="+key(1))
	receiver, address := receiver(t)
	ok(t, s.dir, s.env, "tenants", "put", "acme")
	ok(t, s.dir, s.env, "endpoints", "create", "--tenant", "acme", address, "--uid", "crm")
	if code := s.stop(syscall.SIGTERM); code != exitOK {
		t.Fatalf("exit code %d", code)
	}
	alone := with(s.env, "WAYBILL_ENCRYPTION_KEY", key(2))
	for _, command := range []string{"serve", "reseal"} {
		if r := waybill(t, s.dir, alone, "", command); r.code != exitRefused || !strings.Contains(r.err, "WAYBILL_ENCRYPTION_KEYS_OLD") {
			t.Errorf("%s without the old key: %v", command, r)
		}
	}
	both := with(alone, "WAYBILL_ENCRYPTION_KEYS_OLD", key(1))
	if out := ok(t, s.dir, both, "reseal"); !strings.Contains(out, "1 values were sealed again") {
		t.Errorf("reseal printed %q", out)
	}
	if out := ok(t, s.dir, both, "reseal"); !strings.Contains(out, "0 values were sealed again") {
		t.Errorf("the second time it printed %q", out)
	}
	again := start(t, s.dir, alone, "serve")
	env := with(alone, "WAYBILL_URL", strings.TrimPrefix(again.line("listening on "), "listening on "))
	receiver.line(strings.TrimSpace(ok(t, s.dir, env, "publish", "acme", "a.b", "1")))
	if code := again.stop(syscall.SIGTERM); code != exitOK {
		t.Errorf("exit code %d", code)
	}
}
