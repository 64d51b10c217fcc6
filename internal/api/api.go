package api

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/waybill-dev/waybill/internal/catalogue"
	"github.com/waybill-dev/waybill/internal/outbox"
	"github.com/waybill-dev/waybill/internal/thin"
	"github.com/waybill-dev/waybill/internal/traffic"
)

// Store is what the API needs of the database.
type Store interface {
	outbox.Idempotency
	outbox.Configuration
	outbox.Reading
	outbox.Counting
	outbox.Switch
	outbox.Inbox
	outbox.Signing
	outbox.Catalogue
	outbox.Erasing
	outbox.Sessions
	outbox.Keys
	outbox.Figures
	outbox.Looking
	outbox.Audit
	outbox.Jobs
	outbox.Testing
	outbox.Monitoring
	// HealthOf is that of outbox.Health.
	HealthOf(ctx context.Context, tenant outbox.TenantRef, endpoints []outbox.EndpointRow) (map[outbox.EndpointID]outbox.EndpointHealth, error)
	// ReadEvents is that of outbox.Routing.
	ReadEvents(ctx context.Context, rows []outbox.OutboxRow, maxPayload int64) error
	// Heads is that of outbox.Ownership.
	Heads(ctx context.Context, shards []outbox.Shard) ([]outbox.Head, error)
	Ping(ctx context.Context) error
}

// Publisher makes events durable; internal/publish.
type Publisher interface {
	// Submit stores the events, all or none, and answers once they are durable. Its errors are
	// those of internal/publish.
	Submit(ctx context.Context, events []outbox.NewEvent) ([]outbox.Accepted, []outbox.Conflict, error)
}

// Guard judges what strangers ask deliveries to be sent to and with. The text of its errors is
// for whoever typed the value.
type Guard interface {
	// CheckURL returns the URL as it will be dialled; internal is the tenant's egress class. The
	// error is an *egress.URLError.
	CheckURL(raw string, internal bool) (string, error)
	// CheckHeaders returns custom headers under their canonical names.
	CheckHeaders(headers map[string]string) (map[string]string, error)
}

// Inbound is the gateway for webhooks that arrive; internal/inbound.
type Inbound interface {
	http.Handler
	// Forget drops what is known of a source that was changed.
	Forget(source string)
}

// Check is one thing a server must have to be ready.
type Check struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail" doc:"Why not, in one sentence"`
}

// Config says what the API stands on. Store, Publisher, Guard and Links are required; every other
// field's zero value is usable.
type Config struct {
	Store     Store
	Publisher Publisher
	Guard     Guard
	Inbound   Inbound // serves /in/{source}; nil: nobody does
	Links     Links
	Clock     *outbox.Clock // database time; nil: the wall clock
	Log       *slog.Logger

	// BootstrapKey is an operator key that is valid besides those in Keys; "": none.
	BootstrapKey string
	Keys         Keys // nil: no stored keys
	// FingerprintKey makes the fingerprints that tell secrets apart; nil: a random one, so that
	// they hold for this process.
	FingerprintKey []byte

	Retry      outbox.RetryPolicy // the instance's defaults; zero fields: outbox.DefaultRetry
	MaxPayload int                // bytes; 0: 256 KiB
	// CreateUnknownTenants makes a tenant when something is first published or an endpoint made
	// under its key, instead of answering 404.
	CreateUnknownTenants bool
	// MaxEndpointsPerTenant binds keys other than an operator's; 0: 50.
	MaxEndpointsPerTenant int
	// RateLimit is how many requests a second a key other than an operator's may send; 0: no limit.
	RateLimit float64
	// FailuresPerSecond is how many wrong keys a second an address may try; 0: 20, negative: no
	// limit.
	FailuresPerSecond float64
	// TrustedProxies are those whose X-Forwarded-For is believed.
	TrustedProxies []netip.Prefix
	// CORSOrigins are the origins whose pages may call the API; "*": everybody's.
	CORSOrigins []string
	// RequestTimeout bounds a whole request; 0: 30 s.
	RequestTimeout time.Duration

	// Ready reports what /readyz shows; nil: whether the store answers.
	Ready func(ctx context.Context) []Check
	// Wake tells the owner of a shard in this process that its outbox has a new row; nil: it
	// finds out by polling.
	Wake func(shard outbox.Shard)
	// Thin makes the addresses of thin deliveries; nil: none answers.
	Thin *thin.Links
	// Previewer builds requests without sending them; nil: none is shown.
	Previewer Previewer
	// Trier connects to addresses without sending; nil: nothing is tried.
	Trier Trier
	// Live tells how an endpoint stands at this moment, false where another process owns its shard.
	// nil: what is shown is what owners wrote down, up to ten seconds old.
	Live func(outbox.EndpointID) (outbox.EndpointHealth, bool)
	// Traffic answers what happened; nil: what is written down.
	Traffic Traffic
	// Feed hands on what is happening; nil: nothing is.
	Feed Feed
	// Prune has what is from before a time removed in the background, and returns the time that
	// applies; nil: nothing is, and the time is returned.
	Prune func(before time.Time) time.Time
	// Registry holds what /metrics shows, and takes the API's own metrics; nil: a new one.
	Registry *prometheus.Registry
	Version  string
	// Development shows customers what servers at addresses opened by an allow list answer: on a
	// machine of one's own every server is there.
	Development bool
}

func (cfg Config) withDefaults() Config {
	if cfg.Clock == nil {
		cfg.Clock = &outbox.Clock{}
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	cfg.Retry = cfg.Retry.Over(outbox.DefaultRetry)
	if cfg.FingerprintKey == nil {
		cfg.FingerprintKey = make([]byte, sha256.Size)
		rand.Read(cfg.FingerprintKey)
	}
	if cfg.MaxPayload == 0 {
		cfg.MaxPayload = 256 << 10
	}
	if cfg.MaxEndpointsPerTenant == 0 {
		cfg.MaxEndpointsPerTenant = 50
	}
	if cfg.FailuresPerSecond == 0 {
		cfg.FailuresPerSecond = failuresPerSecond
	}
	if cfg.RequestTimeout == 0 {
		cfg.RequestTimeout = 30 * time.Second
	}
	if cfg.Ready == nil {
		cfg.Ready = func(ctx context.Context) []Check {
			if err := cfg.Store.Ping(ctx); err != nil {
				return []Check{{Name: "store", Detail: "The database does not answer."}}
			}
			return []Check{{Name: "store", OK: true}}
		}
	}
	if cfg.Wake == nil {
		cfg.Wake = func(outbox.Shard) {}
	}
	if cfg.Live == nil {
		cfg.Live = func(outbox.EndpointID) (outbox.EndpointHealth, bool) { return outbox.EndpointHealth{}, false }
	}
	if cfg.Traffic == nil {
		cfg.Traffic = storedTraffic{cfg.Store}
	}
	if cfg.Feed == nil {
		cfg.Feed = traffic.NewFeed()
	}
	if cfg.Prune == nil {
		cfg.Prune = func(before time.Time) time.Time { return before }
	}
	if cfg.Registry == nil {
		cfg.Registry = prometheus.NewRegistry()
	}
	return cfg
}

func (cfg Config) validate() error {
	switch {
	case cfg.Store == nil || cfg.Publisher == nil || cfg.Guard == nil || cfg.Links == nil:
		return errors.New("api: Store, Publisher, Guard and Links are required")
	case cfg.MaxPayload < 0 || cfg.MaxPayload > outbox.HardMaxPayload:
		return errors.New("api: MaxPayload is out of bounds")
	}
	return cfg.Retry.Validate()
}

// API serves the routes of routes.go.
type API struct {
	cfg     Config
	mux     *http.ServeMux
	routes  []*route
	other   http.HandlerFunc // what no route matches
	holders *holders
	tenants *tenantCache
	metrics *metrics
	ids     requestIDs

	callers  callers
	rates    *buckets // of keys
	failures *buckets // of addresses

	catalogue *catalogue.Checker

	document func() (*document, error)
}

// New makes the handler. It is safe for concurrent use; NewServer gives it its limits.
func New(cfg Config) (*API, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	a := &API{
		cfg:     cfg,
		mux:     http.NewServeMux(),
		holders: newHolders(cfg.BootstrapKey, cfg.Keys),
		tenants: newTenantCache(cfg.Store),
		metrics: newMetrics(cfg.Registry),
		ids:     newRequestIDs(),

		callers:  callers{cfg.TrustedProxies},
		rates:    newBuckets(cfg.RateLimit),
		failures: newBuckets(cfg.FailuresPerSecond),

		catalogue: catalogue.New(cfg.Store),
	}
	a.routes = routes()
	// Made when it is first asked for: most processes never are.
	a.document = sync.OnceValues(func() (*document, error) { return newDocument(a.routes, cfg.Version) })
	for _, r := range a.routes {
		if r.gateway {
			continue
		}
		r.calls = a.metrics.of(r)
		a.mux.HandleFunc(r.method+" "+r.path, a.serve(r))
	}
	if cfg.Inbound != nil {
		a.mux.HandleFunc("/in/{source}", func(w http.ResponseWriter, r *http.Request) {
			w.Header()["Waybill-Request-Id"] = []string{a.ids.next()}
			cfg.Inbound.ServeHTTP(w, r)
		})
	}
	a.other = a.serve(&route{path: "/", calls: a.metrics.of(&route{method: "any", path: "other"}), handle: (*API).noRoute})
	a.mux.HandleFunc("/", a.other)
	return a, nil
}

// ServeHTTP answers a request.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if a.cors(w, r) {
		return
	}
	if !namesSomething(r.URL) {
		a.other(w, r)
		return
	}
	a.mux.ServeHTTP(w, r)
}

// namesSomething reports whether anything can be at an address. There is nothing at one with empty
// or dotted steps: the mux would answer it with a page of its own, a redirect, before anything of
// ours. Nor at one that is no text a database can hold.
func namesSomething(u *url.URL) bool {
	return plainPath(u.EscapedPath()) && utf8.ValidString(u.Path) && !strings.ContainsRune(u.Path, 0)
}

// plainPath reports whether a path is one the mux takes as it is.
func plainPath(path string) bool {
	if !strings.HasPrefix(path, "/") || strings.Contains(path, "//") {
		return false
	}
	for step := range strings.SplitSeq(path, "/") {
		if step == "." || step == ".." {
			return false
		}
	}
	return true
}

// NewServer gives the handler the limits a server open to strangers needs: what a slow client
// may hold, and for how long. A body has less time than a whole request (RequestTimeout), so
// that what arrived late can still be stored.
func NewServer(handler http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       20 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    32 << 10,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
}
