package api

import (
	"net/netip"
	"strconv"
	"testing"
	"time"
)

func TestBuckets_giveWhatTheyAreFilledWith(t *testing.T) {
	now := time.Now()
	b := newBuckets(10)
	for i := range 20 { // two seconds' worth
		if wait := b.take("a", now); wait != 0 {
			t.Fatalf("request %d waits for %v", i, wait)
		}
	}
	if wait := b.take("a", now); wait != 100*time.Millisecond {
		t.Errorf("one too many waits for %v", wait)
	}
	if wait := b.take("b", now); wait != 0 {
		t.Errorf("somebody else waits for %v", wait)
	}
	// Who keeps asking is not made to wait for longer by it.
	for i := range 10 {
		b.take("a", now.Add(time.Duration(i)*time.Millisecond))
	}
	if wait := b.take("a", now.Add(100*time.Millisecond)); wait > time.Microsecond {
		t.Errorf("after a tenth of a second it waits for %v", wait)
	}
	granted := 0
	for i := range 10_000 { // ten seconds of a thousand a second
		if b.take("c", now.Add(time.Duration(i)*time.Millisecond)) == 0 {
			granted++
		}
	}
	if granted < 118 || granted > 120 { // 20 at once and ten a second from then on
		t.Errorf("%d were granted in ten seconds", granted)
	}
	if wait := newBuckets(0).take("a", now); wait != 0 {
		t.Errorf("without a limit it waits for %v", wait)
	}
}

func TestBuckets_areBounded(t *testing.T) {
	b, now := newBuckets(1), time.Now()
	for i := range 2*maxCallers + 10 {
		b.take(strconv.Itoa(i), now)
	}
	if len(b.of) > maxCallers {
		t.Errorf("%d callers are remembered", len(b.of))
	}
}

func TestCallers_believeOnlyTrustedProxies(t *testing.T) {
	trusted := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("2001:db8:1::/48")}
	for name, row := range map[string]struct {
		remote    string
		forwarded []string
		want      string
	}{
		"nobody between":                  {"192.0.2.7:1234", nil, "192.0.2.7"},
		"a stranger who says otherwise":   {"192.0.2.7:1234", []string{"198.51.100.1"}, "192.0.2.7"},
		"our proxy":                       {"10.0.0.1:1234", []string{"198.51.100.1"}, "198.51.100.1"},
		"our proxy, and what it was told": {"10.0.0.1:1234", []string{"1.1.1.1, 198.51.100.1"}, "198.51.100.1"},
		"two of our proxies":              {"10.0.0.1:1234", []string{"1.1.1.1, 198.51.100.1, 10.9.9.9"}, "198.51.100.1"},
		"in two lines":                    {"10.0.0.1:1234", []string{"198.51.100.1", "10.9.9.9"}, "198.51.100.1"},
		"ours all the way":                {"10.0.0.1:1234", []string{"10.2.2.2"}, "10.2.2.2"},
		"a proxy that says nothing":       {"10.0.0.1:1234", nil, "10.0.0.1"},
		"nonsense":                        {"10.0.0.1:1234", []string{"unknown"}, "10.0.0.1"},
		"IPv6":                            {"[2001:db8:1::2]:80", []string{"2001:db8:2::3"}, "2001:db8:2::3"},
		"with a port":                     {"10.0.0.1:1234", []string{"[2001:db8:2::3]:80"}, "2001:db8:2::3"},
		"IPv4 in IPv6":                    {"[::ffff:10.0.0.1]:80", []string{"198.51.100.1"}, "198.51.100.1"},
	} {
		if got := (callers{trusted}).of(row.remote, row.forwarded); got != row.want {
			t.Errorf("%s: %s, want %s", name, got, row.want)
		}
	}
}

// An address that tries one key after the other is told to wait; a right key passes all the same.
func TestRoutes_tooMany(t *testing.T) {
	s := newScene(t, func(cfg *Config) { cfg.FailuresPerSecond = 0.01 })
	s.call("GET", "/v1/whoami", nil, "Authorization", "Bearer wrong").wantProblem(401, CodeUnauthorized)
	for _, r := range keyed() {
		a := s.call(r.method, s.address(r, "acme"), r.sample(), "Authorization", "Bearer wrong")
		a.wantProblem(429, CodeTooManyRequests)
		if seconds, err := strconv.Atoi(a.header.Get("Retry-After")); err != nil || seconds < 90 || seconds > 100 {
			t.Errorf("%s: Retry-After %q", r.name, a.header.Get("Retry-After"))
		}
	}
	s.call("GET", "/v1/nothing", nil, "Authorization", "Bearer wrong").wantProblem(429, CodeTooManyRequests)
	s.call("GET", "/v1/whoami", nil).want(200)
}

func TestRateLimit_bindsTenantsKeys(t *testing.T) {
	f := newFixture(t, func(cfg *Config) { cfg.RateLimit = 1 })
	f.tenant("acme")
	for range 2 {
		f.call("GET", "/v1/tenants/acme", nil, as(acmeKey)...).want(200)
	}
	f.call("GET", "/v1/tenants/acme", nil, as(acmeKey)...).wantProblem(429, CodeTooManyRequests)
	for range 10 {
		f.call("GET", "/v1/tenants/acme", nil).want(200)
		f.call("GET", "/v1/tenants/acme", nil, as(readKey)...).want(200)
	}
}

func TestCORS(t *testing.T) {
	f := newFixture(t, func(cfg *Config) { cfg.CORSOrigins = []string{"https://app.example.com"} })
	f.tenant("acme")
	const allowed = "Access-Control-Allow-Origin"
	preflight := []string{"Access-Control-Request-Method", "POST", "Authorization", "-"}
	a := f.call("OPTIONS", acmeEndpoints, nil, append(preflight, "Origin", "https://app.example.com")...).want(204)
	if a.header.Get(allowed) != "https://app.example.com" || a.header.Get("Access-Control-Allow-Headers") == "" || a.header.Get("Access-Control-Allow-Credentials") != "" {
		t.Errorf("preflight %v", a.header)
	}
	for _, origin := range []string{"https://evil.example", "https://app.example.com.evil.example", "http://app.example.com", "null"} {
		if a := f.call("OPTIONS", acmeEndpoints, nil, append(preflight, "Origin", origin)...); a.header.Get(allowed) != "" || a.status == 204 {
			t.Errorf("%s may: %d %v", origin, a.status, a.header)
		}
		if a := f.call("GET", acmeEndpoints, nil, "Origin", origin).want(200); a.header.Get(allowed) != "" || a.header.Get("Vary") != "Origin" {
			t.Errorf("%s reads: %v", origin, a.header)
		}
	}
	if a := f.call("GET", acmeEndpoints, nil, "Origin", "https://app.example.com").want(200); a.header.Get(allowed) != "https://app.example.com" {
		t.Errorf("answer %v", a.header)
	}
	// Refusals can be read too.
	if a := f.call("GET", "/v1/tenants/nobody", nil, "Origin", "https://app.example.com").want(404); a.header.Get(allowed) == "" {
		t.Errorf("refusal %v", a.header)
	}
	if a := f.call("GET", "/metrics", nil, "Origin", "https://app.example.com").want(200); a.header.Get(allowed) != "" {
		t.Errorf("metrics %v", a.header)
	}
	if a := newFixture(t).call("OPTIONS", acmeEndpoints, nil, append(preflight, "Origin", "https://app.example.com")...); a.header.Get(allowed) != "" {
		t.Errorf("without origins %v", a.header)
	}
}
