package portal

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/waybill-dev/waybill/internal/api"
)

// answers is an API that answers every call the same.
type answers struct {
	status int
	body   string
}

func (a answers) As(api.Holder) http.RoundTripper { return a }

func (a answers) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: a.status, Header: http.Header{"Content-Type": {"application/problem+json"}}, Body: io.NopCloser(strings.NewReader(a.body))}, nil
}

func newBase(t *testing.T, cfg Config) *Base {
	t.Helper()
	if cfg.API == nil {
		cfg.API = answers{status: 200, body: "{}"}
	}
	b, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	b.Get("/ask", stranger{}, func(v *Visit) error {
		_, err := Ask[struct{}](v, "/v1/whoami", nil)
		return err
	})
	b.Get("/broken", stranger{}, func(v *Visit) error { panic("the secret reason") })
	return b
}

// ask sends a request without a network.
func ask(t *testing.T, h http.Handler, method, target string, form url.Values, change ...func(*http.Request)) *http.Response {
	t.Helper()
	r := httptest.NewRequest(method, "http://pages.test"+target, strings.NewReader(form.Encode()))
	if form != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for _, c := range change {
		c(r)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result()
}

func text(t *testing.T, r *http.Response) string {
	t.Helper()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestBase_everyPageForbidsWhatItDoesNotNeed(t *testing.T) {
	b := newBase(t, Config{})
	for _, target := range []string{"/preferences", "/nothing/here", "/broken"} {
		r := ask(t, b, "GET", target, nil)
		csp := r.Header.Get("Content-Security-Policy")
		for _, want := range []string{"default-src 'none'", "script-src 'self'", "style-src 'self'", "form-action 'self'", "base-uri 'none'", "frame-ancestors 'none'"} {
			if !strings.Contains(csp, want) {
				t.Errorf("%s: the policy lacks %s: %s", target, want, csp)
			}
		}
		if strings.Contains(csp, "unsafe") || r.Header.Get("X-Frame-Options") != "DENY" || r.Header.Get("Referrer-Policy") != "no-referrer" || r.Header.Get("Cache-Control") != "no-store" {
			t.Errorf("%s: headers %v", target, r.Header)
		}
		page := text(t, r)
		if inline := regexp.MustCompile(`(?i)<script>|<style|\sstyle=|\son[a-z]+=`).FindString(page); inline != "" {
			t.Errorf("%s holds %q, which the policy would not let run", target, inline)
		}
		if elsewhere := regexp.MustCompile(`(?:src|href)="(?:https?:)?//[^"]*"`).FindString(page); elsewhere != "" {
			t.Errorf("%s loads %s", target, elsewhere)
		}
	}
}

func TestBase_framesOnlyForThoseAllowed(t *testing.T) {
	b := newBase(t, Config{FrameAncestors: []string{"https://app.example.com"}})
	r := ask(t, b, "GET", "/preferences", nil)
	if !strings.Contains(r.Header.Get("Content-Security-Policy"), "frame-ancestors https://app.example.com") || r.Header.Get("X-Frame-Options") != "" {
		t.Errorf("headers %v", r.Header)
	}
}

func TestBase_operatorsPagesAreInNobodysFrame(t *testing.T) {
	s := newSite(t)
	b, err := New(Config{API: s.api, Sessions: s.base.cfg.Sessions, Clock: s.clock, FrameAncestors: []string{"https://app.example.com"}})
	if err != nil {
		t.Fatal(err)
	}
	for target, framed := range map[string]bool{"/": false, "/deliveries": false, "/sources": false, "/sign-in": false, "/portal/acme/deliveries": true} {
		h := ask(t, b, "GET", target, nil).Header
		if got := strings.Contains(h.Get("Content-Security-Policy"), "frame-ancestors https://app.example.com"); got != framed || (h.Get("X-Frame-Options") == "DENY") == framed {
			t.Errorf("%s: %v", target, h)
		}
	}
}

func TestBase_actsOfOtherSitesAreRefused(t *testing.T) {
	b := newBase(t, Config{})
	for name, change := range map[string]func(*http.Request){
		"another site":     func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") },
		"a sibling":        func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "same-site") },
		"an older browser": func(r *http.Request) { r.Header.Set("Origin", "https://evil.example") },
	} {
		r := ask(t, b, "POST", "/preferences", url.Values{"theme": {"dark"}}, change)
		if r.StatusCode != http.StatusForbidden || len(r.Cookies()) != 0 {
			t.Errorf("%s: %d, cookies %v", name, r.StatusCode, r.Cookies())
		}
	}
	r := ask(t, b, "POST", "/preferences", url.Values{"theme": {"dark"}}, func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "same-origin") })
	if r.StatusCode != http.StatusSeeOther || len(r.Cookies()) != 1 {
		t.Errorf("our own page: %d, cookies %v", r.StatusCode, r.Cookies())
	}
}

func TestBase_preferencesAreHonouredByTheServer(t *testing.T) {
	b := newBase(t, Config{})
	with := func(name, value string) func(*http.Request) {
		return func(r *http.Request) { r.AddCookie(&http.Cookie{Name: name, Value: value}) }
	}
	if page := text(t, ask(t, b, "GET", "/preferences", nil, with(cookieTheme, "dark"))); !strings.Contains(page, `<html lang="en" data-theme="dark">`) {
		t.Error("the dark theme is not in the page")
	}
	if page := text(t, ask(t, b, "GET", "/preferences", nil, with(cookieTheme, `x" onload="`))); strings.Contains(page, "onload") {
		t.Error("a cookie's value got into the page")
	}
	if page := text(t, ask(t, b, "GET", "/preferences", nil, with(cookieZone, "Asia/Kolkata"))); !strings.Contains(page, `<option value="Asia/Kolkata" selected>`) {
		t.Error("the zone is not in the page")
	}
	// Local without a zone, as without script, leads to where one is chosen.
	r := ask(t, b, "POST", "/preferences", url.Values{"tz": {"local"}, "zone": {""}, "back": {"/portal/deliveries?state=dead"}})
	if want := "/preferences?back=%2Fportal%2Fdeliveries%3Fstate%3Ddead"; r.Header.Get("Location") != want {
		t.Errorf("Location %q, want %q", r.Header.Get("Location"), want)
	}
	for _, back := range []string{"https://evil.example/", "//evil.example", `/\evil.example`, "javascript:alert(1)", ""} {
		r := ask(t, b, "POST", "/preferences", url.Values{"theme": {"dark"}, "back": {back}})
		if r.Header.Get("Location") != "/" {
			t.Errorf("back %q leads to %q", back, r.Header.Get("Location"))
		}
	}
}

func TestBase_troubleHasAPageAndNoInsides(t *testing.T) {
	for _, row := range []struct {
		name   string
		api    answers
		target string
		status int
		says   string
	}{
		{"nothing there", answers{}, "/no/such/page", 404, "There is nothing at this address"},
		{"an unknown id", answers{404, `{"status":404,"code":"not_found","detail":"no"}`}, "/ask", 404, "There is nothing at this address"},
		{"refused with a reason", answers{409, `{"status":409,"code":"endpoint_gone","detail":"the endpoint is deleted"}`}, "/ask", 409, "The endpoint is deleted."},
		{"the store is away", answers{503, `{"status":503,"code":"unavailable","detail":"x"}`}, "/ask", 503, "Nothing is lost"},
		{"a defect of the API", answers{500, `{"status":500,"code":"internal","detail":"pq: password"}`}, "/ask", 500, "It is our fault"},
		{"a defect of a page", answers{}, "/broken", 500, "It is our fault"},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := ask(t, newBase(t, Config{API: row.api}), "GET", row.target, nil)
			page := text(t, r)
			if r.StatusCode != row.status || !strings.Contains(page, row.says) {
				t.Errorf("%d, want %d and %q in:\n%s", r.StatusCode, row.status, row.says, page)
			}
			if strings.Contains(page, "password") || strings.Contains(page, "secret reason") {
				t.Error("the page shows what is for the log")
			}
		})
	}
}

func TestBase_assetsAreKeptForEverAndOnlyTheirOwn(t *testing.T) {
	b := newBase(t, Config{Look: Look{Name: "Example Pay", Accent: "#7a1fa2", Logo: []byte(`<svg xmlns="http://www.w3.org/2000/svg"/>`)}})
	page := text(t, ask(t, b, "GET", "/preferences", nil))
	found := regexp.MustCompile(`/assets/[a-z0-9.-]+`).FindAllString(page, -1)
	if len(found) != 4 { // style sheet, theme, script and, once, no logo on a page without a bar
		t.Logf("assets: %v", found)
	}
	for _, at := range found {
		r := ask(t, b, "GET", at, nil)
		if r.StatusCode != 200 || !strings.Contains(r.Header.Get("Cache-Control"), "immutable") {
			t.Errorf("%s: %d %v", at, r.StatusCode, r.Header)
		}
	}
	for _, at := range []string{"/assets/app.css", "/assets/../base.go", "/assets/accent-zzzzzz.css", "/assets/accent-123456%7D.css"} {
		if r := ask(t, b, "GET", at, nil); r.StatusCode == 200 {
			t.Errorf("%s is served", at)
		}
	}
	if _, err := New(Config{API: answers{}, Look: Look{Accent: "red;}"}}); err == nil {
		t.Error("an accent that is no colour passes")
	}
}

func TestBase_pathsBeginWithThePublicOne(t *testing.T) {
	public, _ := url.Parse("https://pay.example.com/hooks/")
	b := newBase(t, Config{PublicURL: public})
	if got, want := b.Path("portal", "deliveries", "a/b c"), "/hooks/portal/deliveries/a%2Fb%20c"; got != want {
		t.Errorf("Path %q, want %q", got, want)
	}
	r := ask(t, b, "POST", "/preferences", url.Values{"theme": {"dark"}}, func(r *http.Request) { r.Header.Set("Origin", "https://pay.example.com") })
	if c := r.Cookies(); r.StatusCode != http.StatusSeeOther || len(c) != 1 || !c[0].Secure || !c[0].HttpOnly || c[0].Path != "/hooks/" {
		t.Errorf("%d, cookies %v", r.StatusCode, c)
	}
}
