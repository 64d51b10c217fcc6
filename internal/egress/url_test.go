package egress

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func guard(t testing.TB, policy Policy) *Guard {
	t.Helper()
	g, err := New(Config{Policy: policy})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	return g
}

func prefixes(texts ...string) []netip.Prefix {
	var all []netip.Prefix
	for _, text := range texts {
		all = append(all, netip.MustParsePrefix(text))
	}
	return all
}

func TestGuard_CheckURL_accepts(t *testing.T) {
	g := guard(t, Policy{})
	for raw, want := range map[string]string{
		"https://hooks.example.com/in":              "https://hooks.example.com/in",
		"https://hooks.example.com":                 "https://hooks.example.com",
		"http://ab_cd.test/x":                       "http://ab_cd.test/x",
		"https://h/a%2Fb?x=%20y&x=2":                "https://h/a%2Fb?x=%20y&x=2",
		"https://h/p?q#frag":                        "https://h/p?q",
		"https://h/p#frag?not-a-query":              "https://h/p",
		"https://h?x=1":                             "https://h?x=1",
		"https://h/p?":                              "https://h/p?",
		"HTTPS://Host/Path":                         "https://host/Path",
		"https://HOOKS.Example.COM./In":             "https://hooks.example.com/In",
		"https://h:443/":                            "https://h:443/",
		"https://h:/":                               "https://h/",
		"https://h:08443/":                          "https://h:8443/",
		"https://bücher.example/ü":                  "https://xn--bcher-kva.example/%C3%BC",
		"https://ｅｘａｍｐｌｅ．ｃｏｍ/":                      "https://example.com/",
		"https://xn--bcher-kva.example/":            "https://xn--bcher-kva.example/",
		"https://1.1.1.1/":                          "https://1.1.1.1/",
		"https://[2606:4700::1111]:8443/":           "https://[2606:4700::1111]:8443/",
		"https://[2606:4700:0:0:0:0:0:1111]/":       "https://[2606:4700::1111]/",
		"https://[::ffff:1.1.1.1]/":                 "https://1.1.1.1/",
		"https://169.254.169.254.nip.io/":           "https://169.254.169.254.nip.io/",
		"https://1e100.net/":                        "https://1e100.net/",
		"https://0x.example/":                       "https://0x.example/",
		"https://h/%2e%2e/%2F%2f":                   "https://h/%2e%2e/%2F%2f",
		"https://h/../a//b/./c":                     "https://h/../a//b/./c",
		"https://h/{id}/a%2Fb":                      "https://h/%7Bid%7D/a%2Fb",
		"https://h/a b?c d":                         "https://h/a%20b?c%20d",
		"https://h/!$&'()*+,;=:@[]~":                "https://h/!$&'()*+,;=:@[]~",
		"https://h/p?a=[]&b={}|\\^`<>\"&c=100%&d=/": "https://h/p?a=[]&b=%7B%7D%7C%5C%5E%60%3C%3E%22&c=100%&d=/",
	} {
		t.Run(raw, func(t *testing.T) {
			got, err := g.CheckURL(raw, false)
			if err != nil {
				t.Fatal(err)
			}
			if got != want {
				t.Errorf("stored as %s, want %s", got, want)
			}
			again, err := g.CheckURL(got, false)
			if err != nil || again != got {
				t.Errorf("what was stored is read as %s, %v", again, err)
			}
		})
	}
}

// What goes out in the request line is what was typed.
func TestGuard_ParseURL_requestTargetIsByteForByte(t *testing.T) {
	g := guard(t, Policy{})
	rapid.Check(t, func(t *rapid.T) {
		target := rapid.StringMatching(`(/([A-Za-z0-9._~!$&'()*+,;=:@\[\]-]|%[0-9A-Fa-f]{2})*){1,5}(\?([A-Za-z0-9._~!$&'()*+,;=:@/?\[\]-]|%[0-9A-Fa-f]{2})*)?`).Draw(t, "target")
		u, err := g.ParseURL("https://h"+target, false)
		if err != nil {
			t.Fatalf("%s: %v", target, err)
		}
		if u.RequestURI() != target {
			t.Fatalf("typed %s, sent %s", target, u.RequestURI())
		}
		if u.String() != "https://h"+target {
			t.Fatalf("typed %s, shown %s", target, u.String())
		}
	})
}

func TestGuard_CheckURL_refuses(t *testing.T) {
	g := guard(t, Policy{})
	for raw, want := range map[string]URLCode{
		"":                                      URLScheme,
		"h/x":                                   URLScheme,
		"//h/x":                                 URLScheme,
		"ftp://h/":                              URLScheme,
		"file:///etc/passwd":                    URLScheme,
		"javascript:alert(1)":                   URLScheme,
		"gopher://h/":                           URLScheme,
		"http:///x":                             URLInvalid,
		"http:/x":                               URLInvalid,
		"http:127.0.0.1/":                       URLInvalid,
		"http://":                               URLInvalid,
		"http://:80/":                           URLInvalid,
		"http://h\t/":                           URLInvalid,
		"http://h\r\nX: y/":                     URLInvalid,
		"http://h/\x00":                         URLInvalid,
		"http://h/a\nb":                         URLInvalid,
		"http://exa mple/":                      URLInvalid,
		" http://h/":                            URLInvalid,
		"http://h/%zz":                          URLInvalid,
		"http://h/100%":                         URLInvalid,
		"http://127%2e0%2e0%2e1/":               URLInvalid,
		"http://[example.com]/":                 URLInvalid,
		"http://[127.0.0.1]/":                   URLInvalid,
		"http://[::1":                           URLInvalid,
		"http://h..example/":                    URLInvalid,
		"http://.h/":                            URLInvalid,
		"http://./":                             URLInvalid,
		"http://h!/":                            URLInvalid,
		"http://a,b/":                           URLInvalid,
		"http://h\\@127.0.0.1/":                 URLInvalid,
		"http://h:80:90/":                       URLInvalid,
		"http://h:-1/":                          URLInvalid,
		"http://h:http/":                        URLInvalid,
		"http://" + strings.Repeat("a", 64):     URLInvalid,
		"http://h/" + strings.Repeat("a", 2040): URLInvalid,
		"http://" + strings.Repeat("a.", 127) + "com/": URLInvalid,
		"http://h/" + strings.Repeat("ü", 500):         URLInvalid, // three times as long when encoded
		"http://u:p@h/":                                URLUserinfo,
		"http://u@h/":                                  URLUserinfo,
		"http://@h/":                                   URLUserinfo,
		"http://example.com@127.0.0.1/":                URLUserinfo,
		"http://h:0/":                                  URLPort,
		"http://h:65536/":                              URLPort,
		"http://h:99999/":                              URLPort,
		"http://h:99999999999999999999/":               URLPort,
		"http://h:22/":                                 URLPort,
		"http://h:5432/":                               URLPort,
		"http://h:6379/":                               URLPort,
		"http://127.0.0.1/":                            URLNotAllowed,
		"http://127.0.0.1./":                           URLNotAllowed,
		"http://127.1/":                                URLNotAllowed,
		"http://2130706433/":                           URLNotAllowed,
		"http://0x7f000001/":                           URLNotAllowed,
		"http://0x7f.1/":                               URLNotAllowed,
		"http://0x/":                                   URLNotAllowed,
		"http://0177.0.0.1/":                           URLNotAllowed,
		"http://127.0.0.01/":                           URLNotAllowed,
		"http://0/":                                    URLNotAllowed,
		"http://0.0.0.0/":                              URLNotAllowed,
		"http://1.1.1/":                                URLNotAllowed,
		"http://1.1.1.1.1/":                            URLNotAllowed,
		"http://8.8.8.256/":                            URLNotAllowed,
		"http://10.0.0.1/":                             URLNotAllowed,
		"http://168.63.129.16/":                        URLNotAllowed,
		"http://169.254.169.254/latest":                URLNotAllowed,
		"http://①②⑦.⓪.⓪.①/":                            URLNotAllowed,
		"http://127。0。0。1/":                            URLNotAllowed,
		"http://ⓛocalhost/":                            URLNotAllowed,
		"http://localhost/":                            URLNotAllowed,
		"http://localhost./":                           URLNotAllowed,
		"http://LOCALHOST/":                            URLNotAllowed,
		"http://app.localhost:8080/":                   URLNotAllowed,
		"http://metadata/":                             URLNotAllowed,
		"http://metadata.google.internal/":             URLNotAllowed,
		"http://Metadata.Goog./":                       URLNotAllowed,
		"http://instance-data/":                        URLNotAllowed,
		"http://[::]/":                                 URLNotAllowed,
		"http://[::1]/":                                URLNotAllowed,
		"http://[::ffff:127.0.0.1]/":                   URLNotAllowed,
		"http://[::ffff:7f00:1]/":                      URLNotAllowed,
		"http://[::127.0.0.1]/":                        URLNotAllowed,
		"http://[64:ff9b::7f00:1]/":                    URLNotAllowed,
		"http://[2002:7f00:1::]/":                      URLNotAllowed,
		"http://[fd00:ec2::254]/":                      URLNotAllowed,
		"http://[fe80::1%25lo]/":                       URLNotAllowed,
		"http://[2606:4700::1111%25eth0]/":             URLNotAllowed,
	} {
		t.Run(raw, func(t *testing.T) {
			for _, internal := range []bool{false, true} {
				got, err := g.CheckURL(raw, internal)
				problem, ok := errors.AsType[*URLError](err)
				if !ok {
					t.Fatalf("stored as %q, error %v", got, err)
				}
				if problem.Code != want {
					t.Errorf("code %s (%s), want %s", problem.Code, problem.Message, want)
				}
			}
		})
	}
}

func TestGuard_CheckURL_neverRepeatsUserinfo(t *testing.T) {
	g := guard(t, Policy{})
	for _, raw := range []string{
		"https://alice:hunter2@h/", "https://alice:hunter2@h:bad/", "https://alice:hunter2@/", "ftp://alice:hunter2@h/",
		"https://alice:hunter2%zz@h/", "https://alice:hunter2@127.0.0.1/", "https://alice:hunter2@h:0/", "alice:hunter2@h",
	} {
		if _, err := g.CheckURL(raw, false); err == nil || strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), "alice") {
			t.Errorf("%s: error %v", raw, err)
		}
	}
}

func TestGuard_CheckURL_openedRanges(t *testing.T) {
	dev := guard(t, Policy{Allow: prefixes("127.0.0.0/8")})
	inside := guard(t, Policy{AllowInternal: prefixes("10.0.0.0/8", "::1/128", "169.254.0.0/16")})
	for _, row := range []struct {
		name     string
		g        *Guard
		raw      string
		internal bool
		ok       bool
	}{
		{"development: localhost", dev, "http://localhost:3000/hook", false, true},
		{"development: a name below localhost", dev, "http://app.localhost:3000/", false, true},
		{"development: loopback address", dev, "http://127.0.0.1:3000/hook", false, true},
		{"development: mapped loopback address", dev, "http://[::ffff:127.0.0.1]:3000/", false, true},
		{"development: the other loopback", dev, "http://[::1]:3000/", false, false},
		{"development: private network", dev, "http://10.0.0.1/", false, false},
		{"development: metadata", dev, "http://metadata.google.internal/", false, false},
		{"development: shorthand stays refused", dev, "http://127.1:3000/", false, false},
		{"development: database port stays closed", dev, "http://127.0.0.1:5432/", false, false},
		{"internal range, public tenant", inside, "http://10.0.0.1:8080/", false, false},
		{"internal range, internal tenant", inside, "http://10.0.0.1:8080/", true, true},
		{"internal range, public tenant, localhost", inside, "http://localhost:8080/", false, false},
		{"internal range, internal tenant, localhost", inside, "http://localhost:8080/", true, true},
		{"internal range, internal tenant, metadata", inside, "http://metadata/", true, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			_, err := row.g.CheckURL(row.raw, row.internal)
			if (err == nil) != row.ok {
				t.Errorf("%s: error %v", row.raw, err)
			}
		})
	}
}

func TestGuard_CheckURL_schemesOfThePolicy(t *testing.T) {
	g := guard(t, Policy{Schemes: []string{"https"}})
	if _, err := g.CheckURL("https://h/", false); err != nil {
		t.Error(err)
	}
	_, err := g.CheckURL("http://h/", false)
	if problem, ok := errors.AsType[*URLError](err); !ok || problem.Code != URLScheme || !strings.Contains(problem.Message, "https://.") {
		t.Errorf("http where only https is allowed: %v", err)
	}
	if _, err := New(Config{Policy: Policy{Schemes: []string{"ftp"}}}); err == nil {
		t.Error("a policy with scheme ftp is accepted")
	}
}

func FuzzGuard_ParseURL(f *testing.F) {
	for _, raw := range []string{"https://h/a%2Fb?x=%20y", "http://①②⑦.⓪.⓪.①/", "http://[::ffff:7f00:1]/", "http://u:p@h:1/", "http://h\\@x/"} {
		f.Add(raw)
	}
	g, err := New(Config{})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		u, err := g.ParseURL(raw, false)
		if err != nil {
			return
		}
		// What is accepted is stable, and its host is a public address or a plain name.
		again, err := g.ParseURL(u.String(), false)
		if err != nil || again.String() != u.String() {
			t.Fatalf("%q becomes %q, then %v, %v", raw, u, again, err)
		}
		if addr, err := netip.ParseAddr(u.Hostname()); err == nil && special(addr) != "" {
			t.Fatalf("%q is accepted with the address %s", raw, addr)
		}
		if host := u.Hostname(); host != strings.ToLower(host) || !ascii(host) || strings.ContainsAny(host, " \r\n\t%@/\\") {
			t.Fatalf("%q is accepted with the host %q", raw, host)
		}
		if strings.ContainsAny(u.RequestURI(), " \r\n") {
			t.Fatalf("%q would send the target %q", raw, u.RequestURI())
		}
	})
}
