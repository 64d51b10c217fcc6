package portal

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/waybill-dev/waybill/internal/api"
	"github.com/waybill-dev/waybill/internal/attempt"
	"github.com/waybill-dev/waybill/internal/egress"
	"github.com/waybill-dev/waybill/internal/keyring"
	"github.com/waybill-dev/waybill/internal/outbox"
	"github.com/waybill-dev/waybill/internal/publish"
	"github.com/waybill-dev/waybill/internal/session"
	"github.com/waybill-dev/waybill/internal/sqlite"
)

const operatorKey = "op_0123456789abcdef"

// site is the dashboard over a real API and store, and a browser at it.
type site struct {
	t     *testing.T
	api   *api.API
	base  *Base
	store outbox.Store
	clock *outbox.Clock
	jar   map[string]string
}

type siteGuard struct{ *egress.Guard }

func (siteGuard) CheckHeaders(h map[string]string) (map[string]string, error) {
	return attempt.CheckHeaders(h, "waybill-")
}

// sitePreviewer builds requests as the sender would.
type sitePreviewer struct{ sender *attempt.Sender }

func (p sitePreviewer) Preview(r *api.Previewed) (attempt.Preview, error) {
	target := p.sender.Prepare(attempt.Of(r.Endpoint, r.Tenant, r.Endpoint.Retry, r.Book))
	return p.sender.Preview(attempt.Request{Target: target, Event: r.Event.ID, EventType: r.Event.Type, N: r.N, Sequence: r.Sequence, Payload: r.Event.Payload, Metadata: r.Event.Metadata})
}

func newSite(t *testing.T) *site {
	t.Helper()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	keys, err := keyring.New(keyring.NewKey())
	check(err)
	store, err := sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(t.TempDir(), "waybill.db"), Keyring: keys})
	check(err)
	t.Cleanup(func() { store.Close() })
	guard, err := egress.New(egress.Config{Policy: egress.Policy{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, Schemes: []string{"http", "https"}}})
	check(err)
	t.Cleanup(guard.Close)
	s := &site{t: t, store: store, clock: &outbox.Clock{}, jar: map[string]string{}}
	committer := publish.New(publish.Config{Store: store})
	t.Cleanup(func() { _ = committer.Close(t.Context()) })
	here := &url.URL{Scheme: "http", Host: "pages.test"}
	sessions := session.New(session.Config{
		Store: store, Clock: s.clock, Portal: func() *url.URL { return here }, Dashboard: func() *url.URL { return here },
	})
	s.api, err = api.New(api.Config{Store: store, Publisher: committer, Guard: siteGuard{guard}, Clock: s.clock, BootstrapKey: operatorKey, Links: sessions,
		Previewer: sitePreviewer{attempt.New(attempt.Config{Guard: guard, Clock: s.clock})},
	})
	check(err)
	s.base, err = New(Config{API: s.api, Sessions: sessions, Who: s.api.Who, Clock: s.clock})
	check(err)
	return s
}

// call uses the API as the operator's programs do.
func (s *site) call(method, path, body string) map[string]any {
	s.t.Helper()
	r := httptest.NewRequestWithContext(s.t.Context(), method, "http://pages.test"+path, strings.NewReader(body))
	r.Header.Set("Authorization", "Bearer "+operatorKey)
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	s.api.ServeHTTP(w, r)
	if w.Code >= 300 {
		s.t.Fatalf("%s %s: %d %s", method, path, w.Code, w.Body)
	}
	var answer map[string]any
	_ = json.Unmarshal(w.Body.Bytes(), &answer)
	return answer
}

// visit is what the browser does: it keeps cookies and follows no redirect.
func (s *site) visit(method, target string, form url.Values) (*http.Response, string) {
	s.t.Helper()
	r := httptest.NewRequestWithContext(s.t.Context(), method, "http://pages.test"+target, strings.NewReader(form.Encode()))
	if form != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	for name, value := range s.jar {
		r.AddCookie(&http.Cookie{Name: name, Value: value})
	}
	w := httptest.NewRecorder()
	s.base.ServeHTTP(w, r)
	resp := w.Result()
	for _, c := range resp.Cookies() {
		if c.MaxAge < 0 {
			delete(s.jar, c.Name)
		} else {
			s.jar[c.Name] = c.Value
		}
	}
	page, _ := io.ReadAll(resp.Body)
	return resp, string(page)
}

func (s *site) signIn() {
	s.t.Helper()
	if resp, page := s.visit("POST", "/sign-in", url.Values{"key": {operatorKey}}); resp.StatusCode != http.StatusSeeOther {
		s.t.Fatalf("sign-in: %d %s", resp.StatusCode, page)
	}
}

// page reads a page that must be there.
func (s *site) page(target string) string {
	s.t.Helper()
	resp, page := s.visit("GET", target, nil)
	if resp.StatusCode != http.StatusOK {
		s.t.Fatalf("%s: %d %s", target, resp.StatusCode, page)
	}
	return page
}

// hostile is text of a stranger's that must stay text.
const hostile = `"><script>x</script><img src=x onerror=alert(1)>`

// furnish makes a tenant with an endpoint, an event that waits, and one that is dead, all of them
// with hostile texts wherever a stranger can put one.
func (s *site) furnish() (delivery string) {
	s.t.Helper()
	text, _ := json.Marshal(hostile)
	s.call("PUT", "/v1/tenants/acme", `{"name":`+string(text)+`}`)
	ep := s.call("POST", "/v1/tenants/acme/endpoints", `{"url":"http://127.0.0.1:1999/in?q=%22%3E%3Cscript%3E","description":`+string(text)+`,"metadata":{"a":`+string(text)+`}}`)["id"].(string)
	s.call("POST", "/v1/tenants/acme/events", `{"type":"order.placed","payload":`+string(text)+`,"metadata":{"a":`+string(text)+`}}`)
	ctx, now := s.t.Context(), s.clock.Now()
	node := outbox.NewNodeID(now)
	check := func(err error) {
		s.t.Helper()
		if err != nil {
			s.t.Fatal(err)
		}
	}
	check(s.store.Join(ctx, node, now))
	beat, err := s.store.Beat(ctx, node, false)
	check(err)
	lease, _, err := s.store.Take(ctx, node, beat.Shards)
	check(err)
	shard := outbox.ShardOf("acme")
	config, err := s.store.LoadConfig(ctx, []outbox.Shard{shard})
	check(err)
	lease.Revisions = config.Revisions
	rows, err := s.store.ReadOutbox(ctx, []outbox.Shard{shard}, []int64{0}, 10)
	check(err)
	check(s.store.ReadEvents(ctx, rows, 1<<20))
	endpoint, err := outbox.ParseEndpointID(ep)
	check(err)
	d := outbox.Delivery{
		Shard: shard, ID: outbox.NewDeliveryID(rows[0].Event, endpoint), Tenant: rows[0].Tenant, Endpoint: endpoint, Event: rows[0].Event,
		EventType: rows[0].Source.Type, Sequence: 1, NextAt: now, SendableAt: now,
	}
	_, err = s.store.Route(ctx, lease, []outbox.Plan{{Row: rows[0], Deliveries: []outbox.Delivery{d}, Matched: true, Last: true}}, map[outbox.EndpointID]int64{endpoint: 2}, now)
	check(err)
	at := &outbox.Attempt{
		ID: outbox.NewAttemptID(now), Trigger: outbox.TriggerSchedule, At: now, Duration: 12e6, URL: "http://127.0.0.1:1999/in", Outcome: outbox.OutcomePermanent,
		Kind: outbox.KindHTTPStatus, Message: "Your server answered 404; check the path.", StatusCode: 404,
		ResponseHeaders: []outbox.Header{{Name: "Content-Type", Value: hostile}}, ResponseBody: []byte(hostile),
	}
	_, err = s.store.Finish(ctx, []outbox.Result{{Delivery: d, Attempt: at, Dead: outbox.DeadPermanent, At: now}})
	check(err)
	check(s.store.WriteHealth(ctx, lease, []outbox.EndpointHealth{{
		Shard: shard, Tenant: rows[0].Tenant, Endpoint: endpoint, Breaker: outbox.BreakerOpen, NextProbeAt: now.Add(60e9), OpenedAt: now.Add(-60e9), FailingSince: now.Add(-60e9),
		Failure: outbox.FailureInfo{At: now, Kind: outbox.KindTimeout, Message: hostile},
	}}, now))
	check(s.store.AddTraffic(ctx, []outbox.Traffic{
		{At: now.Add(-60e9), Counts: outbox.Counts{Published: 2, Failed: 1, Permanent: 1, Succeeded: 3}},
		{At: now.Add(-60e9), Tenant: rows[0].Tenant, Endpoint: endpoint, Counts: outbox.Counts{Permanent: 1}},
	}))
	return d.ID.String()
}

// pagesOf are the dashboard's pages, and a tenant's as the operator sees them.
func pagesOf(delivery string) []string {
	return []string{
		"/", "/?period=1h", "/?period=7d", "/?period=30d", "/deliveries", "/deliveries?state=dead&tenant=acme", "/endpoints", "/events", "/tenants", "/tenants/new", "/tenants/acme",
		"/search?q=acme", "/search?q=" + url.QueryEscape(hostile), "/audit", "/replays", "/cancellations", "/erasures",
		"/portal/acme/deliveries", "/portal/acme/deliveries/" + delivery, "/portal/acme/deliveries/" + delivery + "/curl", "/sources", "/sources/new", "/portal/acme/events", "/portal/acme/endpoints", "/portal/acme/recover",
	}
}

func TestOperator_everyPageShowsStrangersTextsAsText(t *testing.T) {
	s := newSite(t)
	delivery := s.furnish()
	s.signIn()
	for _, target := range pagesOf(delivery) {
		page := s.page(target)
		if strings.Contains(page, "<script>x") || strings.Contains(page, "<img src=x") {
			t.Errorf("%s: a stranger's text is markup", target)
		}
		if inline := regexp.MustCompile(`(?i)<script>|<style|\sstyle=|\son[a-z]+=["']`).FindString(page); inline != "" {
			t.Errorf("%s holds %q, which the policy would not let run", target, inline)
		}
		if len(page) > 200<<10 {
			t.Errorf("%s weighs %d bytes", target, len(page))
		}
		for _, secret := range []string{"whsec_", operatorKey} {
			if strings.Contains(page, secret) {
				t.Errorf("%s shows %s", target, secret)
			}
		}
	}
	for target, wants := range map[string][]string{
		"/":                       {"One customer is hurting, and 1 endpoint is cut off", "Failed for good", "75.00 %", "256 shards", "127.0.0.1:1999", "Replay"},
		"/deliveries?state=dead":  {"order.placed", "Your server answered 404", "acme"},
		"/tenants/acme":           {"Attempts at once", "Settings"},
		"/search?q=acme":          {"/tenants/acme"},
		"/portal/acme/deliveries": {"Overview", "/tenants/acme", "Replay"},
	} {
		page := s.page(target)
		for _, want := range wants {
			if !strings.Contains(page, want) {
				t.Errorf("%s lacks %q", target, want)
			}
		}
	}
	if resp, _ := s.visit("GET", "/search?q="+delivery, nil); resp.Header.Get("Location") != "/portal/acme/deliveries/"+delivery {
		t.Errorf("a delivery's id leads to %q", resp.Header.Get("Location"))
	}
}

func TestOperator_nobodyElseGetsIn(t *testing.T) {
	s := newSite(t)
	delivery := s.furnish()
	strangers := func(who string) {
		t.Helper()
		for _, target := range pagesOf(delivery) {
			resp, page := s.visit("GET", target, nil)
			inside := strings.HasPrefix(target, "/portal/")
			if inside && resp.StatusCode != http.StatusUnauthorized || !inside && !strings.HasPrefix(resp.Header.Get("Location"), "/sign-in?back=") {
				t.Errorf("%s: %s: %d %s", who, target, resp.StatusCode, page)
			}
		}
		for _, target := range []string{"/dispatch", "/tenants", "/tenants/acme", "/replay"} {
			if resp, _ := s.visit("POST", target, url.Values{"state": {"paused"}, "tenant": {"mallory"}}); resp.Header.Get("Location") != "/sign-in" {
				t.Errorf("%s: POST %s: %d", who, target, resp.StatusCode)
			}
		}
	}
	strangers("a stranger")
	link, err := url.Parse(s.call("POST", "/v1/tenants/acme/portal-sessions", `{}`)["url"].(string))
	if err != nil {
		t.Fatal(err)
	}
	s.visit("POST", link.Path, url.Values{})
	s.page("/portal/acme/deliveries")
	for _, target := range []string{"/", "/deliveries", "/tenants/acme", "/search?q=acme"} {
		if resp, _ := s.visit("GET", target, nil); !strings.HasPrefix(resp.Header.Get("Location"), "/sign-in") {
			t.Errorf("a customer at %s: %d", target, resp.StatusCode)
		}
	}
	if state := s.call("GET", "/v1/dispatch", "")["state"]; state != "running" {
		t.Errorf("sending is %v", state)
	}
	s.jar = map[string]string{}
	for _, key := range []string{"", "wrong", strings.ToUpper(operatorKey)} {
		if resp, _ := s.visit("POST", "/sign-in", url.Values{"key": {key}}); resp.StatusCode != http.StatusUnprocessableEntity {
			t.Errorf("with the key %q: %d", key, resp.StatusCode)
		}
	}
	strangers("with a wrong key")
}

func TestOperator_signsInByALinkThatWorksOnce(t *testing.T) {
	s := newSite(t)
	link, err := url.Parse(s.call("POST", "/v1/operator-sessions", `{}`)["url"].(string))
	if err != nil {
		t.Fatal(err)
	}
	s.page(link.Path) // which a mail scanner does too
	s.page(link.Path)
	if resp, _ := s.visit("POST", link.Path, url.Values{}); resp.StatusCode != http.StatusSeeOther || resp.Header.Get("Location") != "/" {
		t.Fatalf("%d to %q", resp.StatusCode, resp.Header.Get("Location"))
	}
	s.page("/")
	mine := s.jar
	s.jar = map[string]string{}
	if resp, _ := s.visit("POST", link.Path, url.Values{}); resp.StatusCode != http.StatusGone {
		t.Errorf("another browser: %d", resp.StatusCode)
	}
	s.jar = mine
	s.visit("POST", "/sign-out", url.Values{})
	if resp, _ := s.visit("GET", "/", nil); resp.StatusCode != http.StatusSeeOther {
		t.Errorf("after signing out: %d", resp.StatusCode)
	}
}

func TestOperator_acts(t *testing.T) {
	s := newSite(t)
	delivery := s.furnish()
	s.signIn()
	to := func(target string, form url.Values) string {
		t.Helper()
		resp, page := s.visit("POST", target, form)
		if resp.StatusCode != http.StatusSeeOther {
			t.Fatalf("POST %s: %d %s", target, resp.StatusCode, page)
		}
		return resp.Header.Get("Location")
	}
	to("/dispatch", url.Values{"state": {"paused"}, "reason": {"a test"}})
	if d := s.call("GET", "/v1/dispatch", ""); d["state"] != "paused" || d["reason"] != "a test" {
		t.Errorf("the stop switch is %v", d)
	}
	if page := s.page("/"); !strings.Contains(page, "Sending is stopped for everybody") {
		t.Error("the overview does not say that sending is stopped")
	}
	to("/dispatch", url.Values{"state": {"running"}})

	if at := to("/tenants", url.Values{"tenant": {"new-one"}, "name": {"New"}, "max_in_flight": {"7"}, "weight": {""}, "state": {"active"}, "egress": {"public"}}); at != "/tenants/new-one" {
		t.Errorf("the new tenant is at %s", at)
	}
	if made := s.call("GET", "/v1/tenants/new-one", ""); made["name"] != "New" || made["max_in_flight"] != 7.0 || made["weight"] != 1.0 {
		t.Errorf("made: %v", made)
	}
	to("/tenants/new-one", url.Values{"name": {"Changed"}, "max_in_flight": {"7"}, "weight": {"2.5"}, "state": {"paused"}, "egress": {"internal"}})
	if changed := s.call("GET", "/v1/tenants/new-one", ""); changed["state"] != "paused" || changed["weight"] != 2.5 || changed["egress"] != "internal" {
		t.Errorf("changed: %v", changed)
	}
	for name, form := range map[string]url.Values{
		"a tenant that is there": {"tenant": {"acme"}}, "a key that is none": {"tenant": {"a b"}}, "no key": {}, "no number": {"tenant": {"x"}, "max_in_flight": {"many"}}, "too large": {"tenant": {"x"}, "max_in_flight": {"100000"}},
	} {
		form.Set("state", "active")
		form.Set("egress", "public")
		form.Set("name", "kept")
		resp, page := s.visit("POST", "/tenants", form)
		if resp.StatusCode != http.StatusUnprocessableEntity || !strings.Contains(page, `aria-invalid="true"`) || !strings.Contains(page, `value="kept"`) {
			t.Errorf("%s: %d", name, resp.StatusCode)
		}
	}

	// One press is one replay, and sending the form again is none.
	form := url.Values{"delivery": {delivery}, "idempotency_key": {fmt.Sprintf("%x", sha256.Sum256([]byte("form")))}, "back": {"/deliveries"}}
	for range 2 {
		if at := to("/replay", form); at != "/deliveries" {
			t.Errorf("back at %s", at)
		}
	}
	rows, err := s.store.ReadOutbox(t.Context(), []outbox.Shard{outbox.ShardOf("acme")}, []int64{0}, 10)
	if err != nil || len(rows) != 1 || rows[0].Kind != outbox.OutboxReplay {
		t.Errorf("the outbox holds %d rows: %v", len(rows), err)
	}
}

func TestOperator_aSessionThatMayOnlyLookActsOnNothing(t *testing.T) {
	s := newSite(t)
	delivery := s.furnish()
	link, err := url.Parse(s.call("POST", "/v1/operator-sessions", `{"read_only":true}`)["url"].(string))
	if err != nil {
		t.Fatal(err)
	}
	s.visit("POST", link.Path, url.Values{})
	for _, target := range []string{"/", "/deliveries?state=dead", "/tenants", "/tenants/acme"} {
		page := s.page(target)
		for _, act := range []string{">Replay<", "Add a tenant", "Stop sending", "Save the changes", "Probe now"} {
			if strings.Contains(page, act) {
				t.Errorf("%s offers %q", target, act)
			}
		}
	}
	if resp, _ := s.visit("GET", "/portal/acme/deliveries/"+delivery+"/curl", nil); resp.StatusCode != http.StatusForbidden {
		t.Errorf("a fresh signature: %d", resp.StatusCode)
	}
	for target, form := range map[string]url.Values{
		"/dispatch": {"state": {"paused"}}, "/tenants": {"tenant": {"x"}}, "/tenants/acme": {"name": {"x"}}, "/replay": {"delivery": {delivery}}, "/sources": {"source": {"x"}}, "/portal/acme/replay": {"delivery": {delivery}},
	} {
		if resp, _ := s.visit("POST", target, form); resp.StatusCode != http.StatusForbidden {
			t.Errorf("POST %s: %d", target, resp.StatusCode)
		}
	}
	if state := s.call("GET", "/v1/dispatch", "")["state"]; state != "running" {
		t.Errorf("sending is %v", state)
	}
}
