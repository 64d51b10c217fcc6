package session_test

import (
	"bytes"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/waybill-dev/waybill/internal/outbox"
	"github.com/waybill-dev/waybill/internal/session"
	"github.com/waybill-dev/waybill/internal/sqlite"
)

// site is a server that lets people in at an address, and its people.
type site struct {
	*testing.T
	*session.Manager
	store  *sqlite.Store
	clock  *outbox.Clock
	acme   outbox.Tenant
	portal string
	folder string // of the database
}

func newSite(t *testing.T, base string, frames ...string) *site {
	t.Helper()
	folder := t.TempDir()
	store, err := sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(folder, "waybill.db")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	u, err := url.Parse(base)
	if err != nil {
		t.Fatal(err)
	}
	s := &site{T: t, store: store, clock: &outbox.Clock{}, portal: base, folder: folder}
	at := func() *url.URL { return u }
	s.Manager = session.New(session.Config{Store: store, Clock: s.clock, Portal: at, Dashboard: at, FrameAncestors: frames})
	s.acme = s.tenant("acme")
	return s
}

func (s *site) tenant(key string) outbox.Tenant {
	s.Helper()
	tenant, _, err := s.store.PutTenant(s.Context(), key, s.clock.Now(), func(*outbox.Tenant, bool) error { return nil })
	if err != nil {
		s.Fatal(err)
	}
	return tenant
}

// offer makes a link to a tenant's portal, or to the dashboard, and returns its code.
func (s *site) offer(tenant outbox.Tenant, change ...func(*outbox.Session)) (outbox.Session, string) {
	s.Helper()
	now := s.clock.Now()
	asked := outbox.Session{
		Tenant: tenant.TenantRef, TenantKey: tenant.Key, Permissions: []outbox.Permission{outbox.PermissionView},
		LinkExpiresAt: now.Add(time.Minute), ExpiresAt: now.Add(time.Hour),
	}
	for _, c := range change {
		c(&asked)
	}
	made, link, err := s.Offer(s.Context(), asked, &outbox.Author{Entry: outbox.AuditEntry{ID: outbox.NewAuditID(now), Actor: outbox.Actor{Kind: outbox.ActorKey}, Action: "portal_session.create"}})
	if err != nil {
		s.Fatal(err)
	}
	below := session.LinkPath
	if tenant.Key == "" {
		below = session.SignInPath
	}
	code, ours := strings.CutPrefix(link, s.portal+below)
	if !ours || len(code) != 43 {
		s.Fatalf("the link is %s", link)
	}
	return made, code
}

// browser keeps cookies by name, as a browser does for one site.
type browser struct {
	*site
	jar    map[string]*http.Cookie
	framed bool
}

func (s *site) browser() *browser { return &browser{site: s, jar: map[string]*http.Cookie{}} }

func (b *browser) request() *http.Request {
	r := httptest.NewRequestWithContext(b.Context(), "POST", "/", nil)
	for _, c := range b.jar {
		r.AddCookie(&http.Cookie{Name: c.Name, Value: c.Value})
	}
	if b.framed {
		r.Header.Set("Sec-Fetch-Dest", "iframe")
	}
	return r
}

func (b *browser) keep(w *httptest.ResponseRecorder) {
	for _, c := range w.Result().Cookies() {
		if b.jar[c.Name] = c; c.MaxAge < 0 {
			delete(b.jar, c.Name)
		}
	}
}

// open submits the form of a link.
func (b *browser) open(code string, want session.Outcome) session.Principal {
	b.Helper()
	w := httptest.NewRecorder()
	p, outcome, err := b.Exchange(w, b.request(), code)
	if err != nil || outcome != want {
		b.Fatalf("outcome %d, want %d (%v)", outcome, want, err)
	}
	b.keep(w)
	return p
}

// sees fails unless the page of the link says so.
func (b *browser) sees(code string, want session.Outcome) {
	b.Helper()
	_, outcome, err := b.Peek(b.request(), code)
	if err != nil || outcome != want {
		b.Fatalf("the page shows outcome %d, want %d (%v)", outcome, want, err)
	}
}

func (b *browser) isIn(tenant string, want outbox.SessionID) {
	b.Helper()
	p, err := b.FromRequest(b.request(), tenant)
	if want.IsZero() && !errors.Is(err, session.ErrNone) || p.ID != want {
		b.Fatalf("session %s of %q (%v), want %s", p.ID, tenant, err, want)
	}
}

var nobody outbox.SessionID

func TestManager_aLinkLetsOneBrowserIn(t *testing.T) {
	s := newSite(t, "https://hooks.example.com")
	made, code := s.offer(s.acme)
	mine, another := s.browser(), s.browser()
	for range 3 { // a mail scanner, a preview, the person
		mine.sees(code, session.Opened)
	}
	if p := mine.open(code, session.Opened); p.Operator || p.TenantKey != "acme" || p.ID != made.ID {
		t.Errorf("the principal is %+v", p)
	}
	mine.isIn("acme", made.ID)
	mine.isIn("", nobody)

	// A reload, a double click, a frame mounted again.
	mine.open(code, session.Opened)
	mine.sees(code, session.Opened)
	mine.isIn("acme", made.ID)

	another.sees(code, session.Used)
	another.open(code, session.Used)
	another.isIn("acme", nobody)
	if len(another.jar) != 0 {
		t.Errorf("the other browser got %v", another.jar)
	}
}

func TestManager_refusesWhatIsOver(t *testing.T) {
	s := newSite(t, "https://hooks.example.com")
	b := s.browser()
	_, late := s.offer(s.acme, func(o *outbox.Session) { o.LinkExpiresAt = s.clock.Now() })
	b.sees(late, session.Expired)
	b.open(late, session.Expired)

	taken, back := s.offer(s.acme)
	if err := s.store.RevokeSession(t.Context(), s.acme.TenantRef, taken.ID, s.clock.Now()); err != nil {
		t.Fatal(err)
	}
	b.sees(back, session.Revoked)
	b.open(back, session.Revoked)

	for _, code := range []string{"", "x", strings.Repeat("A", 43), strings.Repeat("A", 42) + "!", late + "A", strings.Repeat("A", 1<<20)} {
		b.sees(code, session.Unknown)
		b.open(code, session.Unknown)
	}
	if len(b.jar) != 0 {
		t.Errorf("got in: %v", b.jar)
	}
}

func TestManager_revocationHoldsAtOnce(t *testing.T) {
	s := newSite(t, "https://hooks.example.com")
	made, code := s.offer(s.acme)
	b := s.browser()
	b.open(code, session.Opened)
	b.isIn("acme", made.ID)
	if _, err := s.store.RevokeSessions(t.Context(), s.acme.TenantRef, s.clock.Now()); err != nil {
		t.Fatal(err)
	}
	b.isIn("acme", nobody)
	b.open(code, session.Revoked)
}

func TestManager_tenantsInOneBrowserStayApart(t *testing.T) {
	s := newSite(t, "https://hooks.example.com")
	other := s.tenant("other")
	b := s.browser()
	sessions := map[string]outbox.SessionID{}
	for _, tenant := range []outbox.Tenant{s.acme, other, {}} {
		made, code := s.offer(tenant)
		sessions[tenant.Key] = made.ID
		b.open(code, session.Opened)
	}
	for tenant, id := range sessions {
		b.isIn(tenant, id)
	}
	if len(b.jar) != 3 {
		t.Fatalf("%d cookies, want 3", len(b.jar))
	}
	// Each cookie under each other's name: the name is the browser's word, the session is ours.
	names, values := []string{}, []string{}
	for name, c := range b.jar {
		names, values = append(names, name), append(values, c.Value)
	}
	for i := range names {
		b.jar = map[string]*http.Cookie{names[i]: {Name: names[i], Value: values[(i+1)%3]}}
		for tenant := range sessions {
			b.isIn(tenant, nobody)
		}
	}
}

func TestManager_signingOut(t *testing.T) {
	s := newSite(t, "https://hooks.example.com")
	_, code := s.offer(outbox.Tenant{})
	b := s.browser()
	if p := b.open(code, session.Opened); !p.Operator {
		t.Error("not an operator")
	}
	stolen := b.request()
	w := httptest.NewRecorder()
	if err := b.End(w, b.request(), ""); err != nil {
		t.Fatal(err)
	}
	b.keep(w)
	if len(b.jar) != 0 {
		t.Errorf("the browser keeps %v", b.jar)
	}
	if _, err := s.FromRequest(stolen, ""); !errors.Is(err, session.ErrNone) {
		t.Errorf("a copy of the cookie still lets in: %v", err)
	}
	if err := s.End(httptest.NewRecorder(), httptest.NewRequest("POST", "/", nil), ""); err != nil {
		t.Errorf("without a session: %v", err)
	}
}

func TestManager_cookies(t *testing.T) {
	const plain = "waybill_portal_822b33ad87c1" // printf acme | sha256sum | cut -c1-12
	for name, tc := range map[string]struct {
		base   string
		frames []string
		framed bool
		want   http.Cookie
	}{
		"https": {base: "https://hooks.example.com",
			want: http.Cookie{Name: "__Host-" + plain, Path: "/", Secure: true, HttpOnly: true, SameSite: http.SameSiteLaxMode}},
		"https below a path": {base: "https://example.com/hooks",
			want: http.Cookie{Name: "__Secure-" + plain, Path: "/hooks/", Secure: true, HttpOnly: true, SameSite: http.SameSiteLaxMode}},
		"http": {base: "http://127.0.0.1:8420",
			want: http.Cookie{Name: plain, Path: "/", HttpOnly: true, SameSite: http.SameSiteLaxMode}},
		"in a frame that may": {base: "https://hooks.example.com", frames: []string{"https://app.example.com"}, framed: true,
			want: http.Cookie{Name: "__Host-" + plain, Path: "/", Secure: true, HttpOnly: true, SameSite: http.SameSiteNoneMode, Partitioned: true}},
		"not in a frame, although it may": {base: "https://hooks.example.com", frames: []string{"https://app.example.com"},
			want: http.Cookie{Name: "__Host-" + plain, Path: "/", Secure: true, HttpOnly: true, SameSite: http.SameSiteLaxMode}},
		"in a frame that may not": {base: "https://hooks.example.com", framed: true,
			want: http.Cookie{Name: "__Host-" + plain, Path: "/", Secure: true, HttpOnly: true, SameSite: http.SameSiteLaxMode}},
		"in a frame without TLS": {base: "http://127.0.0.1:8420", frames: []string{"https://app.example.com"}, framed: true,
			want: http.Cookie{Name: plain, Path: "/", HttpOnly: true, SameSite: http.SameSiteLaxMode}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, tc.base, tc.frames...)
			_, code := s.offer(s.acme)
			b := s.browser()
			b.framed = tc.framed
			w := httptest.NewRecorder()
			if _, _, err := b.Exchange(w, b.request(), code); err != nil {
				t.Fatal(err)
			}
			got := *w.Result().Cookies()[0]
			if len(got.Value) != 43 || got.MaxAge < 3590 || got.MaxAge > 3600 {
				t.Errorf("value of %d characters for %d s", len(got.Value), got.MaxAge)
			}
			got.Value, got.MaxAge, got.Raw = "", 0, ""
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestManager_home(t *testing.T) {
	s := newSite(t, "https://example.com/hooks")
	for path, want := range map[string]string{
		"":                       "/hooks/portal/acme/",
		"/":                      "/hooks/portal/acme/",
		"/deliveries?state=dead": "/hooks/portal/acme/deliveries?state=dead",
	} {
		p := session.Principal{Session: outbox.Session{Tenant: s.acme.TenantRef, TenantKey: "acme", Path: path}}
		if got := s.Home(&p); got != want {
			t.Errorf("%q: %s, want %s", path, got, want)
		}
	}
	if got := s.Home(&session.Principal{Operator: true}); got != "/hooks/" {
		t.Errorf("operator: %s", got)
	}
}

// Whoever reads the database, or a backup of it, gets into nothing.
func TestManager_secretsAreNotStored(t *testing.T) {
	s := newSite(t, "https://hooks.example.com")
	_, code := s.offer(s.acme)
	b := s.browser()
	b.open(code, session.Opened)
	_, unused := s.offer(s.acme)
	files, err := filepath.Glob(filepath.Join(s.folder, "*"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	secrets := []string{code, unused}
	for _, c := range b.jar {
		secrets = append(secrets, c.Value)
	}
	found := false
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		found = found || bytes.Contains(content, []byte("acme"))
		for _, secret := range secrets {
			if bytes.Contains(content, []byte(secret)) {
				t.Errorf("%s holds a code or token", filepath.Base(file))
			}
		}
	}
	if !found {
		t.Error("the files do not even hold the tenant's key; they prove nothing")
	}
}
