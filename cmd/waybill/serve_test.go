package main

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/waybill-dev/waybill/internal/client"
	"github.com/waybill-dev/waybill/signature"
)

// decode reads what a command printed under --json.
func decode[T any](t *testing.T, text string) T {
	t.Helper()
	var v T
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return v
}

// receiver starts `waybill listen` and returns it with its address.
func receiver(t *testing.T, args ...string) (*process, string) {
	t.Helper()
	p := start(t, t.TempDir(), nil, append([]string{"listen", "--listen", "127.0.0.1:0"}, args...)...)
	address := ""
	wait(t, "the receiver's address", func() bool {
		m := regexp.MustCompile(`listening on (http://\S+)`).FindStringSubmatch(p.errs.String())
		if m == nil {
			return false
		}
		address = m[1]
		return true
	})
	return p, address
}

// One customer from the first command to the proof of the books, as a person would type it.
func TestServe_theWholeWayByCommandLine(t *testing.T) {
	s := serve(t)
	secret := signature.GenerateSecret()
	good, goodURL := receiver(t, "--secret", secret)
	_, badURL := receiver(t, "--secret", signature.GenerateSecret()) // it answers 401: permanent

	if out := ok(t, s.dir, s.env, "tenants", "put", "acme", "--name", "Acme Inc", "--weight", "2"); decode[client.Tenant](t, out).Weight != 2 {
		t.Errorf("tenants put printed %s", out)
	}
	ok(t, s.dir, s.env, "endpoints", "create", "--tenant", "acme", "--body", fmt.Sprintf(`{"url":%q,"uid":"good","event_types":["payment.*"],"secrets":[{"value":%q}]}`, goodURL, secret))
	ok(t, s.dir, s.env, "endpoints", "put", "--tenant", "acme", "bad", "--to", badURL, "--event-types", "payment.*")

	payload := "{ \"amount\": 1.0,\n \"note\": \"<&>\" }"
	id := strings.TrimSpace(ok(t, s.dir, s.env, "publish", "acme", "payment.succeeded", payload))
	if !strings.HasPrefix(id, "evt_") {
		t.Fatalf("publish printed %q", id)
	}
	if line := good.line(id); !strings.Contains(line, "payment.succeeded") || !strings.Contains(line, "signature ok") || !strings.Contains(line, fmt.Sprintf("%d bytes", len(payload))) {
		t.Errorf("the receiver shows %q", line)
	}
	ok(t, s.dir, s.env, "tenants", "put", "quiet")
	piped := waybill(t, s.dir, s.env, payload, "publish", "quiet", "payment.succeeded", "-")
	if got := ok(t, s.dir, s.env, "events", "payload", "--tenant", "quiet", strings.TrimSpace(piped.out)); got != payload {
		t.Errorf("through standard input %q, want %q", got, payload)
	}
	if got := ok(t, s.dir, s.env, "events", "payload", "--tenant", "acme", id); got != payload {
		t.Errorf("payload %q, want %q", got, payload)
	}

	var dead client.Page[client.Delivery]
	wait(t, "a dead letter", func() bool {
		dead = decode[client.Page[client.Delivery]](t, ok(t, s.dir, s.env, "deliveries", "list", "--tenant", "acme", "--state", "dead", "--json"))
		return len(dead.Data) == 1
	})
	letter := dead.Data[0]
	if letter.Dead == nil || letter.Dead.Reason != "permanent" || letter.LastAttempt == nil || letter.LastAttempt.StatusCode != 401 {
		t.Errorf("the dead letter is %+v", letter)
	}
	if out := ok(t, s.dir, s.env, "replay", letter.ID); !strings.Contains(out, "was dead and is sent again") {
		t.Errorf("replay printed %q", out)
	}
	wait(t, "the second attempt", func() bool {
		page := decode[client.Page[client.Attempt]](t, ok(t, s.dir, s.env, "deliveries", "attempts", "--tenant", "acme", letter.ID, "--json"))
		return len(page.Data) == 2
	})
	table := ok(t, s.dir, s.env, "events", "deliveries", "--tenant", "acme", id)
	if !strings.Contains(table, "delivered") || !strings.Contains(table, "401") {
		t.Errorf("the table of deliveries is\n%s", table)
	}

	books := decode[books](t, ok(t, s.dir, s.env, "verify", "--deep", "--json"))
	if !books.Balanced || len(books.Checks) == 0 {
		t.Errorf("the books are %+v", books)
	}
	if out := ok(t, s.dir, s.env, "verify"); !strings.Contains(out, "The books balance.") {
		t.Errorf("verify printed %s", out)
	}
	if code := s.stop(syscall.SIGTERM); code != exitOK {
		t.Errorf("exit code %d after SIGTERM", code)
	}
	if code := good.stop(interrupt); code != exitOK {
		t.Errorf("listen: exit code %d after Ctrl-C", code)
	}
}

func TestClient_whatTheServerRefuses(t *testing.T) {
	s := serve(t)
	ok(t, s.dir, s.env, "tenants", "put", "acme")
	for name, row := range map[string]struct {
		env  []string
		args []string
		code int
		want string
	}{
		"a tenant that is not there":     {s.env, []string{"tenants", "get", "nobody"}, exitNotFound, "the server answered 404"},
		"a delivery that is not there":   {s.env, []string{"deliveries", "get", "dlv_00000000000000000000000000"}, exitNotFound, "the server answered 404"},
		"publishing for an unknown one":  {s.env, []string{"publish", "nobody", "a.b", "{}"}, exitNotFound, "unknown_tenant"},
		"a bad event type":               {s.env, []string{"publish", "acme", "a..b", "{}"}, exitRefused, "the server answered 422"},
		"a bad URL":                      {s.env, []string{"endpoints", "create", "--tenant", "acme", "ftp://x"}, exitRefused, "the server answered 422"},
		"a field it does not know":       {s.env, []string{"tenants", "put", "acme", "--body", `{"colour":"red"}`}, exitRefused, "the server answered 422"},
		"a cursor that is none":          {s.env, []string{"tenants", "list", "--cursor", "x"}, exitRefused, "cursor_invalid"},
		"a key that opens nothing":       {with(s.env, "WAYBILL_API_KEY", "wrong"), []string{"tenants", "list"}, exitRefused, "the server answered 401"},
		"an idempotency key used before": {s.env, []string{"publish", "acme", "a.b", "{}", "--idempotency-key", "once"}, exitOK, ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := waybill(t, s.dir, row.env, "", row.args...)
			if r.code != row.code || !strings.Contains(r.err, row.want) {
				t.Errorf("want exit code %d and %q\n%v", row.code, row.want, r)
			}
		})
	}
	if r := waybill(t, s.dir, s.env, "", "publish", "acme", "a.b", `{"other":1}`, "--idempotency-key", "once"); r.code != exitRefused || !strings.Contains(r.err, "422 idempotency_mismatch") {
		t.Errorf("the key with another body: %v", r)
	}
}

func TestServe_oneServerForOneFile(t *testing.T) {
	s := serve(t)
	r := waybill(t, s.dir, s.env, "", "serve")
	if r.code != exitRefused || !strings.Contains(r.err, "another waybill serves this database") {
		t.Errorf("%v", r)
	}
	address := s.env[len(s.env)-1]
	elsewhere := with(s.env, "WAYBILL_LISTEN", strings.TrimPrefix(address, "WAYBILL_URL=http://"))
	if r := waybill(t, t.TempDir(), elsewhere, "", "serve"); r.code != exitRefused || !strings.Contains(r.err, "already in use") {
		t.Errorf("on the same address: %v", r)
	}
	if code := s.stop(syscall.SIGTERM); code != exitOK {
		t.Fatalf("exit code %d", code)
	}
	again := start(t, s.dir, s.env, "serve")
	again.line("listening on ")
	if code := again.stop(interrupt); code != exitOK {
		t.Errorf("exit code %d", code)
	}
}

func TestServe_refusesAKeyThatDoesNotOpenTheDatabase(t *testing.T) {
	first := serve(t)
	ok(t, first.dir, first.env, "tenants", "put", "acme")
	ok(t, first.dir, first.env, "endpoints", "create", "--tenant", "acme", "http://127.0.0.1:65432/x")
	first.stop(syscall.SIGTERM)
	keyFile := filepath.Join(first.dir, "waybill.db.key")
	old, err := os.ReadFile(keyFile)
	if err != nil {
		t.Fatal(err)
	}
	another := base64.StdEncoding.EncodeToString([]byte("another key of thirty-two bytes!"))

	serves := func(env []string) {
		t.Helper()
		p := start(t, first.dir, env, "serve")
		p.line("listening on ")
		if code := p.stop(syscall.SIGTERM); code != exitOK {
			t.Errorf("exit code %d\n%s", code, p.errs.String())
		}
	}
	refuses := func(env []string, sentence string) {
		t.Helper()
		if r := waybill(t, first.dir, env, "", "serve"); r.code != exitRefused || !strings.Contains(r.err, sentence) || strings.Count(r.err, "\n") != 1 {
			t.Errorf("want exit code %d and %q\n%v", exitRefused, sentence, r)
		}
	}
	replaced := with(first.env, "WAYBILL_ENCRYPTION_KEY", another)
	refuses(replaced, "WAYBILL_ENCRYPTION_KEY does not open the secrets in sqlite://waybill.db")
	rotated := with(replaced, "WAYBILL_ENCRYPTION_KEYS_OLD", strings.TrimSpace(string(old)))
	serves(rotated)
	refuses(replaced, "still sealed with an earlier encryption key")
	serves(rotated)

	if err := os.WriteFile(keyFile, []byte(another+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	refuses(first.env, "still sealed with an earlier encryption key")
	stranger := base64.StdEncoding.EncodeToString([]byte("a third key of thirty-two bytes!"))
	if err := os.WriteFile(keyFile, []byte(stranger+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	refuses(first.env, "the key in waybill.db.key does not open the secrets")
	dev := waybill(t, first.dir, nil, "", "dev", "--listen", "127.0.0.1:0")
	if dev.code != exitRefused || !strings.Contains(dev.err, "does not open the secrets") {
		t.Errorf("dev: %v", dev)
	}
}

func TestServe_secretsStayOutOfTheLog(t *testing.T) {
	s := serve(t, "WAYBILL_LOG=json")
	secret := signature.GenerateSecret()
	ok(t, s.dir, s.env, "tenants", "put", "acme")
	ok(t, s.dir, s.env, "endpoints", "create", "--tenant", "acme", "--body", fmt.Sprintf(`{"url":"http://127.0.0.1:65432/x","secrets":[{"value":%q}]}`, secret))
	ok(t, s.dir, s.env, "publish", "acme", "a.b", `{"card":"4111111111111111"}`)
	wait(t, "an attempt", func() bool {
		page := decode[client.Page[client.Delivery]](t, ok(t, s.dir, s.env, "deliveries", "list", "--json"))
		return len(page.Data) == 1 && page.Data[0].LastAttempt != nil
	})
	s.stop(syscall.SIGTERM)
	for _, secret := range []string{testKey, secret, "4111111111111111"} {
		if strings.Contains(s.errs.String(), secret) {
			t.Errorf("the log holds %s", secret)
		}
	}
	for line := range strings.Lines(s.errs.String()) {
		if !json.Valid([]byte(line)) {
			t.Errorf("a line of the log is no JSON: %s", line)
		}
	}
}

func TestListen_pullsFromAServerItCannotBeReachedBy(t *testing.T) {
	s := serve(t)
	ok(t, s.dir, s.env, "tenants", "put", "acme")
	address := strings.TrimPrefix(s.env[len(s.env)-1], "WAYBILL_URL=")
	p := start(t, s.dir, s.env, "listen", "--listen", "127.0.0.1:0", "--url", address, "--tenant", "acme", "--event-type", "a.b")
	wait(t, "the first look", func() bool { return strings.Contains(p.errs.String(), "showing new events of acme") })
	// Events of before the first look are not new, so publish until one arrives.
	arrived := ""
	wait(t, "an event", func() bool {
		ok(t, s.dir, s.env, "publish", "acme", "c.d", `{}`)
		ok(t, s.dir, s.env, "publish", "acme", "a.b", `{"n":1}`)
		select {
		case arrived = <-p.lines:
			return true
		default:
			return false
		}
	})
	if !strings.Contains(arrived, "a.b") || !strings.Contains(arrived, "signature ok") {
		t.Errorf("it shows %q", arrived)
	}
	if code := p.stop(interrupt); code != exitOK {
		t.Errorf("exit code %d", code)
	}
}

func TestDev_deliversAtOnceAndLeavesTwoFiles(t *testing.T) {
	dir := t.TempDir()
	p := start(t, dir, nil, "dev", "--listen", "127.0.0.1:0")
	base := strings.TrimPrefix(p.line("Waybill is running at "), "Waybill is running at ")
	key := strings.TrimSpace(strings.TrimPrefix(p.line("  API key "), "  API key "))
	if line := p.line("demo.started"); !strings.Contains(line, "signature ok") {
		t.Errorf("the first delivery shows as %q", line)
	}
	env := []string{"WAYBILL_URL=" + base, "WAYBILL_API_KEY=" + key}
	id := strings.TrimSpace(ok(t, dir, env, "publish", "demo", "payment.succeeded", `{"id":"pay_1"}`))
	if line := p.line(id); !strings.Contains(line, "signature ok") {
		t.Errorf("the delivery shows as %q", line)
	}
	if code := p.stop(interrupt); code != exitOK {
		t.Errorf("exit code %d\n%s", code, p.errs.String())
	}
	left, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{filepath.Join(dir, "waybill.db"), filepath.Join(dir, "waybill.db.key")}; strings.Join(left, " ") != strings.Join(want, " ") {
		t.Errorf("left behind: %v, want %v", left, want)
	}
	if errs := p.errs.String(); errs != "" {
		t.Errorf("it complained: %s", errs)
	}

	// A second start goes on with the same key and data.
	again := start(t, dir, nil, "dev", "--listen", "127.0.0.1:0")
	if line := again.line("  API key "); !strings.Contains(line, key) {
		t.Errorf("another key: %s", line)
	}
	again.line("demo.started")
	if code := again.stop(interrupt); code != exitOK {
		t.Errorf("exit code %d", code)
	}
}

// The three commands that dev prints do what they say.
func TestDev_printsCommandsThatWork(t *testing.T) {
	if _, err := os.Stat("/usr/bin/curl"); err != nil {
		t.Fatal("curl is missing; apt-get install curl")
	}
	dir := t.TempDir()
	p := start(t, dir, nil, "dev", "--listen", "127.0.0.1:0")
	var commands []string
	for range 3 {
		commands = append(commands, strings.TrimSpace(p.line("  curl -s ")))
	}
	p.line("demo.started")
	for i, want := range []string{`"id":"evt_`, `"state":"`, `"secret":"whsec_`} {
		if got := shellOutput(t, dir, commands[i]); !strings.Contains(got, want) {
			t.Errorf("%s\nprinted %s, want %s in it", commands[i], got, want)
		}
	}
	p.stop(interrupt)
}
