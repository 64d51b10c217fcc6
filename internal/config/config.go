package config

import (
	"log/slog"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/waybill-dev/waybill/internal/egress"
	"github.com/waybill-dev/waybill/internal/outbox"
)

// Config is everything a process is told at its start. Load makes one that is valid.
type Config struct {
	// DatabaseURL is sqlite://path or postgres://…, MigrateDatabaseURL the same database as a
	// role that owns the schema (DatabaseURL where it was not set).
	DatabaseURL        Secret
	MigrateDatabaseURL Secret
	DatabaseMaxConns   int // 0: the store decides

	Listen string // host:port; port 0 picks one
	APIKey Secret // the bootstrap operator key; "" for none

	AdminListen    string         // where metrics, health and the dashboard are; "": on Listen
	TrustedProxies []netip.Prefix // whose forwarding headers are believed
	CORSOrigins    []string       // whose pages may call the API
	RateLimit      int            // requests a second of a tenant's key; 0: no limit
	Environment    string
	Roles          Roles

	PublicURL      *url.URL // base of links, without a slash at its end; nil: from the listener
	FrameAncestors []string // sites that may show the portal in a frame

	// EncryptionKey seals secrets at rest, 32 bytes; nil for the key file beside a SQLite
	// database (see Keyring). The old ones only open.
	EncryptionKey     []byte
	EncryptionKeysOld [][]byte

	EgressAllow         []netip.Prefix // opened to every tenant
	EgressAllowInternal []netip.Prefix // opened to tenants marked internal
	EgressPorts         egress.Ports   // zero: egress.DefaultPorts
	EgressProxy         *url.URL       // nil: none
	EndpointSchemes     []string       // of "http", "https"

	CreateUnknownTenants  bool
	MaxPayload            int                // bytes
	MaxEndpointsPerTenant int                // binds tenant keys and the portal
	Retry                 outbox.RetryPolicy // the instance's defaults
	MaxPendingAge         time.Duration
	Retention             time.Duration
	RetentionBytes        int64 // 0: no limit
	IdempotencyRetention  time.Duration

	MaxInFlight   int // attempts at once
	ShutdownGrace time.Duration
	HeaderPrefix  string // lower case, ends with "-"
	UserAgent     string

	Log      LogFormat
	LogLevel slog.Level
	// What customers see of the instance in the portal: its name, its colour ("": ours) and the path
	// of its logo ("": ours).
	PortalName, PortalAccent, PortalLogo string

	// Development: everything is on one machine and belongs to who sits there. Set by dev alone.
	Development bool
	// Warnings are sentences for the log of a start that may go on.
	Warnings []string
}

// LogFormat is how log lines look.
type LogFormat string

const (
	LogAuto LogFormat = ""     // text on a terminal, else JSON
	LogText LogFormat = "text" // for people
	LogJSON LogFormat = "json" // for machines
)

// Secret is a value that is never printed: formatted or logged it hides itself.
type Secret string

// Reveal returns the value.
func (s Secret) Reveal() string { return string(s) }

// String hides the value.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return "[secret]"
}

// GoString hides the value.
func (s Secret) GoString() string { return s.String() }

// LogValue hides the value.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// MarshalText hides the value.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

const sqliteScheme = "sqlite://"

// SQLitePath returns the path of the SQLite file, and false where the database is PostgreSQL.
func (c *Config) SQLitePath() (string, bool) {
	return strings.CutPrefix(c.DatabaseURL.Reveal(), sqliteScheme)
}

// Database describes the database without its password, for logs and messages.
func (c *Config) Database() string { return describeDatabase(c.DatabaseURL) }

func describeDatabase(dsn Secret) string {
	if strings.HasPrefix(dsn.Reveal(), sqliteScheme) {
		return dsn.Reveal()
	}
	u, err := url.Parse(dsn.Reveal())
	if err != nil {
		return "postgres" // several hosts or odd characters: better no detail than a password
	}
	return "postgres://" + u.Host + u.Path
}

// LogValue shows what a start should put on record, secrets hidden.
func (c *Config) LogValue() slog.Value {
	return slog.GroupValue(
		slog.String("database", c.Database()),
		slog.String("listen", c.Listen),
		slog.Any("egress_allow", c.EgressAllow),
		slog.Any("egress_allow_internal", c.EgressAllowInternal),
		slog.Int("max_payload", c.MaxPayload),
		slog.Duration("retry_window", c.Retry.Window),
		slog.Duration("max_pending_age", c.MaxPendingAge),
		slog.Duration("retention", c.Retention),
		slog.Int("max_in_flight", c.MaxInFlight),
	)
}
