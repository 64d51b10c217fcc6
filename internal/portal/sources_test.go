package portal

import (
	"bytes"
	"crypto/sha256"
	"html"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// digits that a program which reads JSON would round, and bytes that are no text.
var strange = []byte("{\"id\":1152921506151679042, \"z\":1.10}\x00\xff" + hostile)

// arrive writes down what came to a source: one of each outcome.
func (s *site) arrive(name string) (quarantined outbox.InboundID) {
	s.t.Helper()
	src, err := s.store.Source(s.t.Context(), name)
	if err != nil {
		s.t.Fatal(err)
	}
	var rows []outbox.InboundRequest
	for _, outcome := range []outbox.InboundOutcome{outbox.InboundDuplicate, outbox.InboundRejected, outbox.InboundQuarantined} {
		r := outbox.InboundRequest{ID: outbox.NewInboundID(s.clock.Now()), Source: src.ID, Shard: outbox.SourceShard(name), Outcome: outcome, ProviderID: hostile, Topic: "topic." + string(outcome), Times: 3}
		switch outcome {
		case outbox.InboundRejected:
			r.Reason, r.Detail = "mismatch", "the signature is another secret's "+hostile
		case outbox.InboundQuarantined:
			r.Body, r.Bytes, r.Digest = strange, len(strange), sha256.Sum256(strange)
			r.Reason, r.ReleaseKey = outbox.QuarantinedOtherBody, [32]byte{1}
			quarantined = r.ID
		}
		rows = append(rows, r)
	}
	if err := s.store.RecordRequests(s.t.Context(), rows); err != nil {
		s.t.Fatal(err)
	}
	return quarantined
}

func TestSources_aMadeSecretIsShownOnceAndSignsFromThenOn(t *testing.T) {
	s := newSite(t)
	s.call("PUT", "/v1/tenants/acme", `{}`)
	s.signIn()
	resp, page := s.visit("POST", "/sources", url.Values{"source": {"hub"}, "provider": {"github"}, "tenant": {"acme"}, "event_type": {"github.{topic}"}})
	found := regexp.MustCompile(`id="secret"[^>]*>([^<]+)<`).FindStringSubmatch(page)
	if resp.StatusCode != http.StatusOK || found == nil || !strings.Contains(page, "http://pages.test/in/hub") {
		t.Fatalf("%d %s", resp.StatusCode, page)
	}
	secret := found[1]
	stored, err := s.store.Source(t.Context(), "hub")
	if err != nil || len(stored.Secrets) != 1 || stored.Secrets[0].Value != secret || stored.Settings.EventType != "github.{topic}" || stored.TenantKey != "acme" {
		t.Fatalf("stored %+v (%v)", stored, err)
	}
	if len(secret) < 32 {
		t.Errorf("a secret of %d characters", len(secret))
	}
	for _, at := range []string{"/sources", "/sources/hub", "/sources/hub/edit", "/sources/hub/remove"} {
		if strings.Contains(s.page(at), secret) {
			t.Errorf("%s shows the secret", at)
		}
	}

	// Another beside it: the first goes on for an hour.
	_, page = s.visit("POST", "/sources/hub/secrets", url.Values{"overlap_seconds": {"3600"}})
	next := regexp.MustCompile(`id="secret"[^>]*>([^<]+)<`).FindStringSubmatch(page)
	if next == nil || next[1] == secret {
		t.Fatalf("rotated: %s", page)
	}
	stored, err = s.store.Source(t.Context(), "hub")
	if err != nil || len(stored.Secrets) != 2 || stored.Secrets[0].Value != next[1] || stored.Secrets[1].ExpiresAt.IsZero() || !stored.Secrets[0].ExpiresAt.IsZero() {
		t.Errorf("stored %+v (%v)", stored.Secrets, err)
	}
	// The first is ended by hand, and one that is typed is shown nowhere.
	s.visit("POST", "/sources/hub/secrets/"+stored.Secrets[1].ID+"/end", url.Values{})
	resp, page = s.visit("POST", "/sources/hub/secrets", url.Values{"secret": {"typed-by-the-operator-0123456789"}, "overlap_seconds": {""}})
	if resp.StatusCode != http.StatusSeeOther || strings.Contains(page, "typed-by") {
		t.Errorf("%d %s", resp.StatusCode, page)
	}
	stored, _ = s.store.Source(t.Context(), "hub")
	if len(stored.Secrets) != 2 || stored.Secrets[0].Value != "typed-by-the-operator-0123456789" || stored.Secrets[1].Value != next[1] {
		t.Errorf("stored %d secrets", len(stored.Secrets))
	}
}

func TestSources_whatArrivedIsShownAsItIs(t *testing.T) {
	s := newSite(t)
	s.call("PUT", "/v1/tenants/acme", `{}`)
	s.call("PUT", "/v1/sources/hub", `{"provider":"github","tenant":"acme","secrets":["a-secret-of-the-tests"]}`)
	quarantined := s.arrive("hub")
	s.signIn()
	page := s.page("/sources/hub")
	for _, want := range []string{"Refused", "Repeat", "Quarantined", "The signature is another secret", "1152921506151679042", "topic.duplicate"} {
		if !strings.Contains(html.UnescapeString(page), want) && !strings.Contains(strings.ToLower(page), strings.ToLower(want)) {
			t.Errorf("the page lacks %q", want)
		}
	}
	for _, at := range []string{"/sources", "/sources/hub", "/sources/hub?outcome=quarantined"} {
		page := s.page(at)
		if strings.Contains(page, "<script>x") || strings.Contains(page, "<img src=x") || strings.Contains(page, "a-secret-of-the-tests") {
			t.Errorf("%s: a stranger's text is markup, or a secret is shown", at)
		}
	}
	for _, query := range []string{"outcome=nope", "cursor=nope"} {
		resp, page := s.visit("GET", "/sources/hub?"+query, nil)
		if resp.StatusCode != http.StatusUnprocessableEntity || !strings.Contains(page, "This filter cannot be used") || strings.Contains(page, "topic.rejected") {
			t.Errorf("%s: %d, or it does not say that the filter is wrong", query, resp.StatusCode)
		}
	}
	if page := s.page("/sources/hub?outcome=rejected"); strings.Contains(page, "topic.duplicate") || !strings.Contains(page, "topic.rejected") {
		t.Error("the filter does not filter")
	}
	resp, body := s.visit("GET", "/sources/hub/requests/"+quarantined.String()+"/body", nil)
	if !bytes.Equal([]byte(body), strange) || resp.Header.Get("Content-Type") != "application/octet-stream" || !strings.HasPrefix(resp.Header.Get("Content-Disposition"), "attachment") {
		t.Errorf("the body is not what arrived: %d, %v", resp.StatusCode, resp.Header)
	}
}

func TestSources_quarantinedAreReleased(t *testing.T) {
	s := newSite(t)
	s.call("PUT", "/v1/tenants/acme", `{}`)
	s.call("PUT", "/v1/sources/hub", `{"provider":"github","tenant":"acme","secrets":["a-secret-of-the-tests"]}`)
	release := "/sources/hub/requests/" + s.arrive("hub").String() + "/release"
	s.signIn()
	if page := s.page("/sources/hub?outcome=quarantined"); !strings.Contains(page, `action="`+release) && !strings.Contains(page, release) {
		t.Fatal("the page offers no release")
	}
	if resp, _ := s.visit("POST", release, url.Values{}); resp.StatusCode != http.StatusSeeOther {
		t.Errorf("the release is answered %d", resp.StatusCode)
	}
	if page := s.page("/sources/hub"); !strings.Contains(page, "Released as the event evt_") {
		t.Error("the page does not say what became of it")
	}
	if resp, _ := s.visit("GET", strings.TrimSuffix(release, "release")+"body", nil); resp.StatusCode != http.StatusNotFound {
		t.Errorf("the body of what was released is answered %d: the event has it", resp.StatusCode)
	}
	if page := s.page("/sources/hub?outcome=quarantined"); strings.Contains(page, "Download it whole") || strings.Contains(page, release) {
		t.Error("the page offers it again")
	}
	src, err := s.store.Source(t.Context(), "hub")
	if err != nil {
		t.Fatal(err)
	}
	events, _, err := s.store.Events(t.Context(), outbox.EventQuery{Tenant: src.Tenant}, outbox.Page{Limit: 10})
	if err != nil || len(events) != 1 || events[0].Type != "topic.quarantined" {
		t.Errorf("events %+v, %v", events, err)
	}
}

func TestSources_refusals(t *testing.T) {
	s := newSite(t)
	s.call("PUT", "/v1/tenants/acme", `{}`)
	s.call("PUT", "/v1/sources/taken", `{"provider":"github","tenant":"acme","secrets":["a-secret-of-the-tests"]}`)
	s.signIn()
	for name, row := range map[string]struct {
		form  url.Values
		field string
	}{
		"no name":           {url.Values{"provider": {"github"}, "tenant": {"acme"}}, "source"},
		"a name in use":     {url.Values{"source": {"taken"}, "provider": {"github"}, "tenant": {"acme"}}, "source"},
		"a name that is no": {url.Values{"source": {"a b"}, "provider": {"github"}, "tenant": {"acme"}}, "source"},
		"no such tenant":    {url.Values{"source": {"x"}, "provider": {"github"}, "tenant": {"nobody"}}, "tenant"},
		"a bad type":        {url.Values{"source": {"x"}, "provider": {"github"}, "tenant": {"acme"}, "event_type": {"a b"}}, "event_type"},
		"a short secret":    {url.Values{"source": {"x"}, "provider": {"stripe"}, "tenant": {"acme"}, "secret": {"short"}}, "secrets"},
		"a key we make not": {url.Values{"source": {"x"}, "provider": {"discord"}, "tenant": {"acme"}}, "secrets"},
		"custom, unsaid":    {url.Values{"source": {"x"}, "provider": {"custom"}, "tenant": {"acme"}}, "verify"},
	} {
		resp, page := s.visit("POST", "/sources", row.form)
		if resp.StatusCode != http.StatusUnprocessableEntity || !strings.Contains(page, `id="f-`+row.field+`"`) {
			t.Errorf("%s: %d, no fault at %s in %s", name, resp.StatusCode, row.field, regexp.MustCompile(`<p class="tone bad[^/]*/p>`).FindAllString(page, -1))
		}
		if secret := row.form.Get("secret"); secret != "" && strings.Contains(page, secret) {
			t.Errorf("%s: the page gives the secret back", name)
		}
	}
	if _, err := s.store.Source(t.Context(), "x"); err == nil {
		t.Error("a source was made of a form that was refused")
	}

	// Who may only look, and who is not an operator.
	s.jar = map[string]string{}
	link, err := url.Parse(s.call("POST", "/v1/operator-sessions", `{"read_only":true}`)["url"].(string))
	if err != nil {
		t.Fatal(err)
	}
	s.visit("POST", link.Path, url.Values{})
	if page := s.page("/sources/taken"); strings.Contains(page, "Add the secret") || strings.Contains(page, "Remove source") || strings.Contains(page, "End now") {
		t.Error("acts are offered to who may only look")
	}
	for _, at := range []string{"/sources", "/sources/taken/edit", "/sources/taken/pause", "/sources/taken/secrets", "/sources/taken/secrets/sec_0/end", "/sources/taken/remove"} {
		if resp, _ := s.visit("POST", at, url.Values{"source": {"x"}}); resp.StatusCode != http.StatusForbidden {
			t.Errorf("POST %s: %d", at, resp.StatusCode)
		}
	}
	s.jar = map[string]string{}
	for _, at := range []string{"/sources", "/sources/taken", "/sources/taken/requests/in_0/body"} {
		if resp, _ := s.visit("GET", at, nil); !strings.HasPrefix(resp.Header.Get("Location"), "/sign-in") {
			t.Errorf("a stranger at %s: %d", at, resp.StatusCode)
		}
	}
}

func TestSources_life(t *testing.T) {
	s := newSite(t)
	s.call("PUT", "/v1/tenants/acme", `{}`)
	s.call("PUT", "/v1/tenants/beta", `{}`)
	s.signIn()
	to := func(target string, form url.Values) string {
		t.Helper()
		resp, page := s.visit("POST", target, form)
		if resp.StatusCode != http.StatusSeeOther {
			t.Fatalf("POST %s: %d %s", target, resp.StatusCode, page)
		}
		return resp.Header.Get("Location")
	}
	if resp, page := s.visit("POST", "/sources", url.Values{
		"source": {"own"}, "provider": {"custom"}, "tenant": {"acme"}, "event_type": {"own.{topic}"}, "secret": {"a-secret-of-the-tests"},
		"signed": {"{timestamp}.{body}"}, "header": {"X-Sig"}, "form": {"t={timestamp},v1={hex}"}, "algorithm": {"sha512"}, "id_pointer": {"/data/id"},
	}); resp.StatusCode != http.StatusOK || strings.Contains(page, "a-secret-of-the-tests") {
		t.Fatalf("%d %s", resp.StatusCode, page)
	}
	made, err := s.store.Source(t.Context(), "own")
	if err != nil {
		t.Fatal(err)
	}
	if c := made.Settings.Verify; c == nil || c.Signed != "{timestamp}.{body}" || c.Header != "X-Sig" || c.Form != "t={timestamp},v1={hex}" || c.Algorithm != "sha512" || made.Settings.ID == nil || made.Settings.ID.Pointer != "/data/id" {
		t.Errorf("settings %+v", made.Settings)
	}
	to("/sources/own/pause", url.Values{})
	if src, _ := s.store.Source(t.Context(), "own"); src.State != outbox.SourcePaused {
		t.Errorf("state %s", src.State)
	}
	to("/sources/own/resume", url.Values{})
	// The form shows how it checks, and changes it.
	page := s.page("/sources/own/edit")
	for _, shown := range []string{`value="{timestamp}.{body}"`, `value="X-Sig"`, `value="t={timestamp},v1={hex}"`, "<option selected>sha512"} {
		if !strings.Contains(page, shown) {
			t.Errorf("the form does not show %s", shown)
		}
	}
	checks := url.Values{
		"signed": {"{id}.{timestamp}.{body}"}, "header": {"X-Sig2"}, "form": {"{base64}"}, "algorithm": {"sha256"}, "signed_id_header": {"X-Request-Id"},
		"time_header": {"X-At"}, "milliseconds": {"1"}, "secret_encodings": {"utf8", "base64"}, "secret_prefix": {"whsec_"}, "tolerance_seconds": {"60"},
		"public_url": {"https://example.com/in/own"}, "challenge_token": {"of-our-own-making"},
	}
	edit := func(more url.Values) {
		t.Helper()
		form := url.Values{"tenant": {"beta"}, "event_type": {""}}
		for _, values := range []url.Values{checks, more} {
			maps.Copy(form, values)
		}
		to("/sources/own/edit", form)
	}
	edit(url.Values{"id_header": {"X-Id"}})
	wantCheck := &outbox.SourceCheck{
		Signed: "{id}.{timestamp}.{body}", Header: "X-Sig2", Form: "{base64}", Algorithm: "sha256", IDHeader: "X-Request-Id", TimeHeader: "X-At", Milliseconds: true,
		SecretEncodings: []string{"utf8", "base64"}, SecretPrefix: "whsec_", Tolerance: time.Minute, PublicURL: "https://example.com/in/own", ChallengeToken: "of-our-own-making",
	}
	if src, _ := s.store.Source(t.Context(), "own"); !cmp.Equal(src.Settings.Verify, wantCheck) {
		t.Errorf("checks: %s", cmp.Diff(wantCheck, src.Settings.Verify))
	}
	if page := s.page("/sources/own/edit"); strings.Contains(page, "of-our-own-making") {
		t.Error("the page gives the token of the handshake back")
	}
	// What is emptied is reset, but for a secret, which nobody sees.
	checks = url.Values{"signed": {"{timestamp}.{body}"}, "header": {"X-Sig"}, "form": {"t={timestamp},v1={hex}"}, "algorithm": {"sha512"}}
	edit(url.Values{"id_header": {"X-Id"}})
	wantCheck = &outbox.SourceCheck{Signed: "{timestamp}.{body}", Header: "X-Sig", Form: "t={timestamp},v1={hex}", Algorithm: "sha512", ChallengeToken: "of-our-own-making"}
	if src, _ := s.store.Source(t.Context(), "own"); !cmp.Equal(src.Settings.Verify, wantCheck) {
		t.Errorf("checks that were emptied: %s", cmp.Diff(wantCheck, src.Settings.Verify))
	}
	src, _ := s.store.Source(t.Context(), "own")
	if src.TenantKey != "beta" || src.Settings.EventType != "" || src.Settings.ID == nil || src.Settings.ID.Header != "X-Id" || src.Settings.Verify == nil || len(src.Secrets) != 1 || src.State != outbox.SourceActive {
		t.Errorf("changed: %+v", src)
	}
	edit(nil)
	if src, _ := s.store.Source(t.Context(), "own"); src.Settings.ID != nil {
		t.Errorf("an emptied field left %+v", src.Settings.ID)
	}
	// Providers that sign the address need it.
	if resp, page := s.visit("POST", "/sources", url.Values{"source": {"sms"}, "provider": {"twilio"}, "tenant": {"acme"}, "secret": {"a-secret-of-the-tests"}}); resp.StatusCode != http.StatusUnprocessableEntity || !strings.Contains(page, `id="f-verify"`) {
		t.Errorf("Twilio without an address: %d", resp.StatusCode)
	}
	if resp, _ := s.visit("POST", "/sources", url.Values{"source": {"sms"}, "provider": {"twilio"}, "tenant": {"acme"}, "secret": {"a-secret-of-the-tests"}, "public_url": {"https://example.com/in/sms"}}); resp.StatusCode != http.StatusOK {
		t.Errorf("Twilio with an address: %d", resp.StatusCode)
	}
	if page := s.page("/sources/sms"); !strings.Contains(page, "https://example.com/in/sms") {
		t.Error("the page does not show the address that is signed")
	}
	to("/sources/own/remove", url.Values{})
	if _, err := s.store.Source(t.Context(), "own"); err == nil {
		t.Error("it is still there")
	}
	if resp, _ := s.visit("POST", "/sources/own/edit", url.Values{"tenant": {"beta"}}); resp.StatusCode != http.StatusNotFound {
		t.Errorf("a form about a source that is gone: %d", resp.StatusCode)
	}
}
