package portal

import (
	"bytes"
	"cmp"
	"errors"
	"html/template"
	"log/slog"
	"net/http"
	"net/url"
	"strings"

	"github.com/waybill-dev/waybill/internal/api"
	"github.com/waybill-dev/waybill/internal/outbox"
	"github.com/waybill-dev/waybill/internal/session"
)

// API opens the HTTP API to the pages, within the process, as the given holder; *api.API.
type API interface {
	As(who api.Holder) http.RoundTripper
}

// Config says what the pages stand on. API is required; every other field's zero value is usable.
type Config struct {
	API API
	// Who lets operators sign in by their key; nil: by links alone.
	Who   Who
	Clock *outbox.Clock // database time; nil: the wall clock
	Log   *slog.Logger

	// Sessions lets customers in; nil: there is no customer portal.
	Sessions Sessions

	// PublicURL is the base that links begin with, a path included; nil: the root of this server.
	// With https cookies are Secure.
	PublicURL *url.URL
	// FrameAncestors are the origins whose pages may show ours in a frame; none: nobody's.
	FrameAncestors []string
	// Look is how the instance shows itself.
	Look Look
}

// Look is an instance's own name and colour.
type Look struct {
	Name   string // shown in the bar; "": Waybill
	Accent string // a CSS colour as #rrggbb; "": ours
	Logo   []byte // an SVG or PNG picture, square; nil: ours
}

// Base is what all pages share: templates, assets, headers, preferences, errors. Register pages
// with Get and Post, then serve it. Registering is not safe once it serves.
type Base struct {
	cfg    Config
	root   string         // of every path in a page, without a slash at its end
	secure bool           // cookies go over TLS alone
	mux    *http.ServeMux // the pages
	links  *http.ServeMux // the one-time links, whose addresses could be pages of a tenant named "open"
	pages  map[string]*template.Template
	assets map[string]asset
	csp    string
	cross  *http.CrossOriginProtection
}

// New prepares the pages.
func New(cfg Config) (*Base, error) {
	if cfg.API == nil {
		return nil, errors.New("portal: API is required")
	}
	if cfg.Clock == nil {
		cfg.Clock = &outbox.Clock{}
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	cfg.Look.Name = cmp.Or(cfg.Look.Name, "Waybill")
	b := &Base{cfg: cfg, mux: http.NewServeMux(), links: http.NewServeMux(), cross: http.NewCrossOriginProtection()}
	if u := cfg.PublicURL; u != nil {
		b.root, b.secure = strings.TrimSuffix(u.EscapedPath(), "/"), u.Scheme == "https"
		// Behind a proxy that rewrites Host, a page's origin is the public one.
		if err := b.cross.AddTrustedOrigin(u.Scheme + "://" + u.Host); err != nil {
			return nil, err
		}
	}
	b.csp = policy(cfg.FrameAncestors)
	var err error
	if b.assets, err = loadAssets(cfg.Look); err != nil {
		return nil, err
	}
	if b.pages, err = b.parse(); err != nil {
		return nil, err
	}
	b.mux.HandleFunc("GET /assets/{name}", b.serveAsset)
	b.Get("/preferences", stranger{}, b.ShowPreferences)
	b.Post("/preferences", stranger{}, b.SetPreferences)
	if cfg.Sessions != nil {
		b.serveCustomers(cfg.Sessions)
		b.serveOperators(cfg.Sessions)
	}
	b.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		b.visit(stranger{}, func(v *Visit) error { return errNoPage })(w, r)
	})
	return b, nil
}

// policy is the Content-Security-Policy of every page: nothing from elsewhere, no inline script
// or style, no frame but those allowed.
func policy(ancestors []string) string {
	frames := "'none'"
	if len(ancestors) > 0 {
		frames = strings.Join(ancestors, " ")
	}
	return "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; connect-src 'self'; " +
		"form-action 'self'; base-uri 'none'; frame-ancestors " + frames
}

// Get registers a page. GET never changes anything.
func (b *Base) Get(path string, face Face, page func(*Visit) error) {
	b.muxOf(path).HandleFunc("GET "+path, b.visit(face, page))
}

// muxOf keeps the links apart from the pages.
func (b *Base) muxOf(path string) *http.ServeMux {
	if strings.HasPrefix(path, session.LinkPath) {
		return b.links
	}
	return b.mux
}

// Post registers an act. What comes from another site's page is refused before it.
func (b *Base) Post(path string, face Face, act func(*Visit) error) {
	b.muxOf(path).HandleFunc("POST "+path, b.visit(face, func(v *Visit) error {
		if err := b.cross.Check(v.Request); err != nil {
			return errCrossOrigin
		}
		v.Request.Body = http.MaxBytesReader(v.w, v.Request.Body, maxForm)
		if err := v.ParseForm(); err != nil {
			return errBadForm
		}
		return act(v)
	}))
}

// maxForm is the largest form: a test event's payload and what surrounds it.
const maxForm = 2 << 20

// ServeHTTP answers with a page.
func (b *Base) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if code, is := strings.CutPrefix(r.URL.Path, session.LinkPath); is && len(code) > len("preferences") && !strings.Contains(code, "/") {
		b.links.ServeHTTP(w, r)
		return
	}
	b.mux.ServeHTTP(w, r)
}

// Path makes the address of one of our pages from parts of a path that begin with it, escaped:
// Path("portal", "deliveries", id).
func (b *Base) Path(parts ...string) string {
	var path strings.Builder
	path.WriteString(b.root)
	for _, part := range parts {
		path.WriteByte('/')
		path.WriteString(url.PathEscape(part))
	}
	return path.String()
}

// write sends a finished page.
func (b *Base) write(w http.ResponseWriter, status int, page *bytes.Buffer) {
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = page.WriteTo(w) // the reader is gone; nobody is left to tell
}

// unframed keeps a page out of every frame. The hosts that may show a customer's pages may not show
// an operator's: one on the same site as ours would have the operator's cookie sent along.
func (b *Base) unframed(h http.Header) {
	h.Set("Content-Security-Policy", policy(nil))
	h.Set("X-Frame-Options", "DENY")
}

// guard sets the headers every page has.
func (b *Base) guard(h http.Header) {
	h.Set("Content-Security-Policy", b.csp)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "no-store")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Permissions-Policy", "clipboard-write=(self)")
	if len(b.cfg.FrameAncestors) == 0 {
		h.Set("X-Frame-Options", "DENY")
	}
}
