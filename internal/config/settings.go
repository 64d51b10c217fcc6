package config

import (
	"errors"
	"fmt"
	"strings"

	"github.com/waybill-dev/waybill/internal/egress"
	"github.com/waybill-dev/waybill/internal/keyring"
	"github.com/waybill-dev/waybill/internal/outbox"
	"github.com/waybill-dev/waybill/internal/version"
)

// Setting is one name people can set.
type Setting struct {
	Key     string // as in the file: "max_payload"
	Default string
	Usage   string // one line for --help
	// Secret: there is a …_FILE spelling, and no flag that takes the value itself.
	Secret bool

	set func(c *Config, value string) error
}

// Variable is the setting's name in the environment.
func (s Setting) Variable() string { return prefix + strings.ToUpper(s.Key) }

// Flag is the setting's name on the command line.
func (s Setting) Flag() string {
	name := strings.ReplaceAll(s.Key, "_", "-")
	if s.Secret && s.Key != "database_url" { // most database URLs hold no secret
		name += "-file"
	}
	return name
}

const prefix = "WAYBILL_"

// Settings lists every setting in the order of the reference.
func Settings() []Setting { return settings }

var settings = []Setting{
	{Key: "database_url", Default: "sqlite://waybill.db", Secret: true,
		Usage: "sqlite://path or postgres://…; a password belongs into the environment or a file",
		set:   func(c *Config, v string) error { return setDatabase(&c.DatabaseURL, v) }},
	{Key: "migrate_database_url", Secret: true,
		Usage: "the same database as the role that owns the schema (default: the database URL)",
		set:   func(c *Config, v string) error { return setDatabase(&c.MigrateDatabaseURL, v) }},
	{Key: "database_max_conns", Default: "0",
		Usage: "connections to PostgreSQL for work, at most; six more carry heartbeats, wake-ups and upkeep; 0 lets Waybill decide",
		set:   func(c *Config, v string) error { return setInt(&c.DatabaseMaxConns, v, 0, 10_000) }},

	{Key: "listen", Default: "127.0.0.1:8420",
		Usage: "address of the API; port 0 picks one, which is printed and logged",
		set:   setListen},
	{Key: "admin_listen",
		Usage: "address for metrics, health, profiles and the dashboard, which then leave the public one",
		set:   func(c *Config, v string) error { return setAddress(&c.AdminListen, v) }},
	{Key: "public_url",
		Usage: "base of links handed to people, a path allowed; https makes cookies secure (default: from the listener)",
		set:   setPublicURL},
	{Key: "trusted_proxies",
		Usage: "CIDRs of proxies whose X-Forwarded-For is believed",
		set:   func(c *Config, v string) error { return setPrefixes(&c.TrustedProxies, v) }},

	{Key: "api_key", Secret: true,
		Usage: "the bootstrap operator key",
		set:   setAPIKey},
	{Key: "encryption_key", Secret: true,
		Usage: "32 bytes in base64 that seal secrets at rest; required with PostgreSQL, a key file beside the database with SQLite",
		set: func(c *Config, v string) error {
			key, err := keyring.ParseKey(v)
			c.EncryptionKey = key
			return err
		}},
	{Key: "encryption_keys_old", Secret: true,
		Usage: "earlier encryption keys, separated by commas, that may still open what they sealed",
		set: func(c *Config, v string) error {
			for _, item := range list(v) {
				key, err := keyring.ParseKey(item)
				if err != nil {
					return err
				}
				c.EncryptionKeysOld = append(c.EncryptionKeysOld, key)
			}
			return nil
		}},

	{Key: "environment", Default: "default",
		Usage: "name written into the database at its first start; nothing is sent from a database of another one until waybill adopt",
		set:   setEnvironment},
	{Key: "roles", Default: "all",
		Usage: "what this process does: all, or of api, inbound, portal, dashboard, dispatch",
		set:   setRoles},

	{Key: "egress_allow",
		Usage: "CIDRs, separated by commas, opened to every tenant (development, closed networks)",
		set:   func(c *Config, v string) error { return setPrefixes(&c.EgressAllow, v) }},
	{Key: "egress_allow_internal",
		Usage: "CIDRs opened only to tenants marked egress: internal",
		set:   func(c *Config, v string) error { return setPrefixes(&c.EgressAllowInternal, v) }},
	{Key: "egress_proxy", Secret: true,
		Usage: "http://host:port of a proxy that deliveries go through, with CONNECT; it resolves names and judges addresses",
		set: func(c *Config, v string) (err error) {
			c.EgressProxy, err = egress.ParseProxy(v)
			return err
		}},
	{Key: "egress_ports",
		Usage: "ports deliveries may go to (default: " + egress.DefaultPorts.String() + ")",
		set: func(c *Config, v string) (err error) {
			c.EgressPorts, err = egress.ParsePorts(v)
			return err
		}},
	{Key: "endpoint_schemes", Default: "http,https",
		Usage: "schemes an endpoint's URL may have",
		set:   setSchemes},

	{Key: "unknown_tenant", Default: "reject",
		Usage: "reject, or create: what publishing to an unknown tenant does",
		set: func(c *Config, v string) error {
			c.CreateUnknownTenants = v == "create"
			return oneOf(v, "reject", "create")
		}},
	{Key: "max_payload", Default: "256KiB",
		Usage: "largest payload, at most 1MiB",
		set: func(c *Config, v string) error {
			n, err := parseSize(v)
			if err == nil && (n < 1 || n > 1<<20) {
				err = errors.New("must be from 1 byte to 1MiB")
			}
			c.MaxPayload = int(n)
			return err
		}},
	{Key: "max_endpoints_per_tenant", Default: "50",
		Usage: "endpoints a tenant may make by itself; operator keys are not bound",
		set:   func(c *Config, v string) error { return setInt(&c.MaxEndpointsPerTenant, v, 1, 1_000_000) }},

	{Key: "retry_window", Default: "8h",
		Usage: "how long a failing delivery is tried",
		set: func(c *Config, v string) error {
			return setDuration(&c.Retry.Window, v, second, 30*day)
		}},
	{Key: "retry_max", Default: "1h",
		Usage: "longest wait between two tries",
		set: func(c *Config, v string) error {
			return setDuration(&c.Retry.Max, v, outbox.MinInitial, 7*day)
		}},
	{Key: "retry_statuses",
		Usage: "permanent answers that are tried again all the same, as 404,4xx",
		set: func(c *Config, v string) error {
			c.Retry.RetryStatuses = list(v)
			if (outbox.RetryPolicy{RetryStatuses: c.Retry.RetryStatuses}).Validate() != nil {
				return fmt.Errorf("%q must be statuses such as 404 or classes such as 4xx, separated by commas", v)
			}
			return nil
		}},
	{Key: "max_pending_age", Default: "5d",
		Usage: "a delivery pending for longer ends as expired",
		set:   func(c *Config, v string) error { return setDuration(&c.MaxPendingAge, v, second, 365*day) }},
	{Key: "retention", Default: "30d",
		Usage: "how long events, attempts and dead letters are kept",
		set:   func(c *Config, v string) error { return setDuration(&c.Retention, v, day, 3650*day) }},
	{Key: "retention_bytes",
		Usage: "how large the database may become, as 500GiB: above it the oldest days of events and attempts go early, but none that a pending delivery may need (default: no limit)",
		set: func(c *Config, v string) (err error) {
			c.RetentionBytes, err = parseSize(v)
			return err
		}},
	{Key: "idempotency_retention", Default: "24h",
		Usage: "how long idempotency keys are remembered",
		set:   func(c *Config, v string) error { return setDuration(&c.IdempotencyRetention, v, minute, 365*day) }},

	{Key: "max_in_flight", Default: "1000",
		Usage: "attempts at once in this process",
		set:   func(c *Config, v string) error { return setInt(&c.MaxInFlight, v, 1, 100_000) }},
	{Key: "shutdown_grace", Default: "35s",
		Usage: "how long a stop waits for what is in flight",
		set:   func(c *Config, v string) error { return setDuration(&c.ShutdownGrace, v, outbox.MaxTimeout, day) }},

	{Key: "header_prefix", Default: "waybill-",
		Usage: "prefix of our own headers on deliveries",
		set:   setHeaderPrefix},
	{Key: "user_agent", Default: "Waybill/" + version.String(),
		Usage: "user-agent of deliveries",
		set:   setUserAgent},
	{Key: "portal_frame_ancestors",
		Usage: "sites that may show the portal in a frame, separated by commas: https://app.example.com",
		set:   setFrameAncestors},
	{Key: "portal_name", Default: "Waybill",
		Usage: "name that customers see in the bar of the portal",
		set: func(c *Config, v string) error {
			c.PortalName = v
			if len(v) > 60 {
				return errors.New("must be at most 60 bytes")
			}
			return nil
		}},
	{Key: "portal_accent",
		Usage: "colour of the portal's logo and buttons, as #3459c7",
		set:   setAccent},
	{Key: "portal_logo",
		Usage: "path of a square SVG or PNG picture shown beside the name",
		set:   func(c *Config, v string) error { c.PortalLogo = v; return nil }},
	{Key: "cors_origins",
		Usage: "origins whose pages may call the API, separated by commas: https://app.example.com; * for all",
		set:   setOrigins},
	{Key: "rate_limit", Default: "200",
		Usage: "requests a second that a tenant's key or a portal session may send; 0: no limit; operator keys are not bound",
		set:   func(c *Config, v string) error { return setInt(&c.RateLimit, v, 0, 1_000_000) }},

	{Key: "log",
		Usage: "text or json (default: text on a terminal, else json)",
		set: func(c *Config, v string) error {
			c.Log = LogFormat(v)
			return oneOf(v, string(LogText), string(LogJSON))
		}},
	{Key: "log_level", Default: "info",
		Usage: "debug, info, warn or error; debug has a line for every attempt, info for every one that failed",
		set:   func(c *Config, v string) error { return c.LogLevel.UnmarshalText([]byte(v)) }},
}
