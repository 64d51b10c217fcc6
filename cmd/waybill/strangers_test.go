package main

import (
	"database/sql"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/internal/client"
	"github.com/waybill-dev/waybill/signature"
)

// address is where the server listens.
func (s *server) address() string {
	for _, entry := range s.env {
		if value, is := strings.CutPrefix(entry, "WAYBILL_URL="); is {
			return value
		}
	}
	return ""
}

// call sends a request with the operator's key, or with the headers given as name, value.
func (s *server) call(method, path, body string, headers ...string) (int, string) {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), method, s.address()+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+testKey)
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return res.StatusCode, string(text)
}

// want is call for an answer of a known status.
func (s *server) want(status int, method, path, body string, headers ...string) string {
	s.t.Helper()
	got, text := s.call(method, path, body, headers...)
	if got != status {
		s.t.Fatalf("%s %s: %d %s, want %d", method, path, got, text, status)
	}
	return text
}

// The bytes that were published are the bytes of every request, of the signature over it, and of every
// look: when it fails and is tried again, when it is replayed alone and among others.
func TestServe_everyRequestHasTheBytesThatWerePublished(t *testing.T) {
	const payload = "{ \"zz\": 1.0, \"b\": \"<&>\u2028 é🚀\",\n\t\"aaa\": 9007199254740993, \"id\": 616581622363398142, \"exp\": 1E2, \"dec\": 0.10, \"neg\": -0, \"n\": \"a\\u0000b\", \"s\": \"\\ud800\", \"b\": 2 }"
	secret := signature.GenerateSecret()
	key, err := signature.ParseSecret(secret)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var got []arrived
	sink := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		if got = append(got, arrived{r.Header, body}); len(got) <= 2 {
			w.WriteHeader(http.StatusInternalServerError)
		}
	}))
	t.Cleanup(sink.Close)
	arrivals := func() int { mu.Lock(); defer mu.Unlock(); return len(got) }
	s := serve(t)
	s.want(201, "PUT", "/v1/tenants/acme", `{}`)
	s.want(201, "PUT", "/v1/tenants/acme/endpoints/in", fmt.Sprintf(`{"url":%q,"secrets":[{"value":%q}],"retry":{"initial_seconds":0.05,"max_seconds":0.1}}`, sink.URL, secret))
	published := decode[struct{ ID string }](t, s.want(202, "POST", "/v1/tenants/acme/events", `{"type":"a.b","payload":`+payload+`}`))
	delivery := func() client.Delivery {
		t.Helper()
		return decode[client.Page[client.Delivery]](t, s.want(200, "GET", "/v1/tenants/acme/events/"+published.ID+"/deliveries", "")).Data[0]
	}
	wait(t, "two failures and a success", func() bool { return arrivals() == 3 && delivery().State == "delivered" })
	s.want(202, "POST", "/v1/tenants/acme/deliveries/"+delivery().ID+"/replay", `{}`)
	wait(t, "the replay of one", func() bool { return arrivals() == 4 && delivery().State == "delivered" })
	now := time.Now().UTC()
	s.want(202, "POST", "/v1/tenants/acme/replays", fmt.Sprintf(`{"from":%q,"to":%q,"state":"delivered"}`, now.Add(-time.Hour).Format(time.RFC3339), now.Add(time.Hour).Format(time.RFC3339)))
	wait(t, "the replay of a time", func() bool { return arrivals() == 5 && delivery().State == "delivered" })

	verifier := signature.Verifier{Secrets: []signature.Secret{key}}
	mu.Lock()
	defer mu.Unlock()
	for i, one := range got {
		if string(one.body) != payload {
			t.Errorf("request %d has %q", i+1, one.body)
		}
		if id := one.header.Get("webhook-id"); id != published.ID {
			t.Errorf("request %d is of %s", i+1, id)
		}
		if _, err := verifier.Verify(one.header, []byte(payload)); err != nil {
			t.Errorf("request %d: %v", i+1, err)
		}
	}
	for _, path := range []string{"/v1/tenants/acme/events/" + published.ID + "/payload"} {
		if shown := s.want(200, "GET", path, ""); shown != payload {
			t.Errorf("%s shows %q", path, shown)
		}
	}
	s.want(200, "GET", "/v1/tenants/acme/deliveries", "")
	s.want(200, "GET", "/v1/search?q="+published.ID, "")
}

// canary counts who connects to an address that nothing may reach.
func canary(t *testing.T) (port string, visits *atomic.Int64) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	visits = &atomic.Int64{}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			visits.Add(1)
			conn.Close()
		}
	}()
	_, port, _ = net.SplitHostPort(listener.Addr().String())
	return port, visits
}

// Whatever a customer writes, and whatever answers: nothing on this machine is connected to. The
// server may send to one address, that of the receiver, and not to the one beside it.
func TestServe_nothingReachesACanaryOnLoopback(t *testing.T) {
	port, visits := canary(t)
	listener, err := net.Listen("tcp", "127.0.0.2:0")
	if err != nil {
		t.Skipf("there is one loopback address: %v", err)
	}
	var answered atomic.Int64
	receiver := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answered.Add(1)
		if r.URL.Path == "/redirect" {
			w.Header().Set("Location", "http://127.0.0.1:"+port+"/")
			w.WriteHeader(http.StatusTemporaryRedirect)
		}
	})}
	go receiver.Serve(listener)
	t.Cleanup(func() { receiver.Close() })

	// Made while the whole of loopback is open: as if the policy had been another one once.
	open := serve(t)
	open.want(201, "PUT", "/v1/tenants/acme", `{}`)
	open.want(201, "PUT", "/v1/tenants/acme/endpoints/stored", `{"url":"http://127.0.0.1:`+port+`/"}`)
	open.want(201, "PUT", "/v1/tenants/acme/endpoints/named", `{"url":"http://localhost:`+port+`/"}`)
	if code := open.stop(syscall.SIGTERM); code != exitOK {
		t.Fatalf("exit code %d", code)
	}
	env := with(open.env, "WAYBILL_EGRESS_ALLOW", "127.0.0.2/32")
	again := start(t, open.dir, env, "serve")
	s := &server{again, open.dir, with(env, "WAYBILL_URL", strings.TrimPrefix(again.line("listening on "), "listening on "))}

	const endpoints = "/v1/tenants/acme/endpoints"
	for _, host := range []string{
		"127.0.0.1", "127.1", "2130706433", "0x7f000001", "0177.0.0.1", "0.0.0.0", "0", "localhost", "LOCALHOST.", "a.localhost",
		"[::1]", "[::]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[64:ff9b::7f00:1]", "[2002:7f00:1::]", "①②⑦.⓪.⓪.①", "127。0。0。1", "user@127.0.0.1",
	} {
		body := fmt.Sprintf(`{"url":"http://%s:%s/"}`, host, port)
		s.want(422, "POST", endpoints, body)
		s.want(422, "PUT", endpoints+"/stored", body)
		s.want(422, "PATCH", endpoints+"/stored", body)
		s.call("POST", endpoints+"/check", `{"uid":"checked",`+body[1:])
	}
	s.want(201, "PUT", endpoints+"/redirecting", `{"url":"http://`+listener.Addr().String()+`/redirect"}`)
	s.want(201, "PUT", endpoints+"/thin", `{"url":"http://`+listener.Addr().String()+`/","payload_mode":"thin"}`)
	// A link in a payload is not followed, whoever it is from.
	s.want(202, "POST", "/v1/tenants/acme/events", `{"type":"a.b","payload":{"url":"http://127.0.0.1:`+port+`/","$ref":"http://127.0.0.1:`+port+`/"}}`)
	for _, uid := range []string{"stored", "named", "redirecting", "thin"} {
		s.want(202, "POST", endpoints+"/"+uid+"/test", `{}`)
		s.want(202, "POST", endpoints+"/"+uid+"/probe", ``)
	}
	s.want(422, "PUT", "/v1/event-types/a.b", `{"schema":{"$ref":"http://127.0.0.1:`+port+`/"}}`)
	s.want(201, "PUT", "/v1/sources/pp", `{"provider":"paypal","tenant":"acme","secrets":["8PT597110X687430LKGECATA"]}`)
	for _, address := range []string{"http://127.0.0.1:" + port + "/c", "https://127.0.0.1:" + port + "/c", "https://api.paypal.com@127.0.0.1:" + port + "/c"} {
		if status, text := s.call("POST", "/in/pp", `{"id":"WH-1"}`, "Paypal-Transmission-Id", "t", "Paypal-Transmission-Time", time.Now().UTC().Format(time.RFC3339),
			"Paypal-Auth-Algo", "SHA256withRSA", "Paypal-Cert-Url", address, "Paypal-Transmission-Sig", "c2ln"); status/100 != 4 {
			t.Errorf("a certificate at %s: %d %s", address, status, text)
		}
	}

	// All of it is over when every delivery has its end.
	wait(t, "every delivery ends", func() bool {
		var page client.Page[client.Delivery]
		page = decode[client.Page[client.Delivery]](t, s.want(200, "GET", "/v1/deliveries", ""))
		kinds := map[string]int{}
		for _, d := range page.Data {
			kind := ""
			if d.Dead != nil {
				kind = d.Dead.Kind
			}
			kinds[d.State+" "+kind]++
		}
		// The event and a test to each of four.
		return kinds["dead egress_denied"] == 4 && kinds["dead redirect"] == 2 && kinds["delivered "] == 2
	})
	for _, d := range decode[client.Page[client.Delivery]](t, s.want(200, "GET", "/v1/deliveries?state=dead&kind=egress_denied", "")).Data {
		s.want(202, "POST", "/v1/deliveries/"+d.ID+"/replay", `{}`)
	}
	wait(t, "the replays end", func() bool {
		page := decode[client.Page[client.Delivery]](t, s.want(200, "GET", "/v1/deliveries?state=dead&kind=egress_denied", ""))
		return len(page.Data) == 4
	})
	if n := answered.Load(); n < 4 {
		t.Errorf("the receiver that may be reached got %d requests", n)
	}
	if n := visits.Load(); n != 0 {
		t.Errorf("%d connections to the canary", n)
	}
}

// A configuration that somebody edited in the database by hand, or half, is its own endpoint's
// trouble: the others get everything, the process lives, and the trouble is told where people look.
func TestServe_brokenConfigurationHurtsItsOwnEndpointAlone(t *testing.T) {
	const healthy, events = 9, 10
	var mu sync.Mutex
	got := map[string]int{}
	sink := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		got[r.URL.Path]++
	}))
	t.Cleanup(sink.Close)
	made := serve(t)
	made.want(201, "PUT", "/v1/tenants/acme", `{"max_in_flight":50}`)
	const endpoints = "/v1/tenants/acme/endpoints"
	for n := range healthy {
		made.want(201, "PUT", fmt.Sprintf("%s/good-%d", endpoints, n), fmt.Sprintf(`{"url":"%s/good-%d"}`, sink.URL, n))
	}
	damages := []string{
		`url = 'http://[::1'`, `url = ''`, `headers = X'010203'`, `secrets = NULL`, `secrets = X'00'`, `retry = '{"max_attempts":"many"}'`,
	}
	for n := range damages {
		made.want(201, "PUT", fmt.Sprintf("%s/broken-%d", endpoints, n), fmt.Sprintf(`{"url":"%s/broken","headers":{"X-A":"b"}}`, sink.URL))
	}
	if code := made.stop(syscall.SIGTERM); code != exitOK {
		t.Fatalf("exit code %d", code)
	}
	database, err := sql.Open("sqlite", filepath.Join(made.dir, "waybill.db"))
	if err != nil {
		t.Fatal(err)
	}
	for n, damage := range damages {
		if _, err := database.ExecContext(t.Context(), "UPDATE waybill_endpoint SET "+damage+" WHERE uid = ?", fmt.Sprintf("broken-%d", n)); err != nil {
			t.Fatalf("%s: %v", damage, err)
		}
	}
	if err := database.Close(); err != nil {
		t.Fatal(err)
	}

	again := start(t, made.dir, made.env, "serve")
	s := &server{again, made.dir, with(made.env, "WAYBILL_URL", strings.TrimPrefix(again.line("listening on "), "listening on "))}
	for n := range events {
		s.want(202, "POST", "/v1/tenants/acme/events", fmt.Sprintf(`{"type":"a.b","payload":%d}`, n))
	}
	wait(t, "every delivery ends", func() bool {
		ended := map[string]int{}
		for _, d := range decode[client.Page[client.Delivery]](t, s.want(200, "GET", "/v1/deliveries?limit=250", "")).Data {
			kind := ""
			if d.Dead != nil {
				kind = d.Dead.Kind
			}
			ended[d.State+" "+kind]++
		}
		return len(ended) == 2 && ended["delivered "] == healthy*events && ended["dead config"] == len(damages)*events
	})
	mu.Lock()
	defer mu.Unlock()
	for n := range healthy {
		if n, want := got[fmt.Sprintf("/good-%d", n)], events; n != want {
			t.Errorf("a healthy endpoint got %d events, want %d", n, want)
		}
	}
	if got["/broken"] != 0 {
		t.Errorf("%d requests went out by a configuration that cannot be read", got["/broken"])
	}
	for n, damage := range damages {
		shown := decode[struct{ Fault string }](t, s.want(200, "GET", fmt.Sprintf("%s/broken-%d", endpoints, n), ""))
		if shown.Fault == "" {
			t.Errorf("%s: the endpoint shows no fault", damage)
		}
	}
	if code := s.stop(syscall.SIGTERM); code != exitOK {
		t.Errorf("exit code %d", code)
	}
}
