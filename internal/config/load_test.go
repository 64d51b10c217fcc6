package config

import (
	"encoding/base64"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func write(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestLoad_defaultsAreThoseOfTheReference(t *testing.T) {
	c, err := Load(Sources{})
	if err != nil {
		t.Fatal(err)
	}
	type promised struct {
		Database, Listen, Prefix          string
		Payload, InFlight                 int
		Window, Max, Pending, Kept, Idem  time.Duration
		Grace                             time.Duration
		Create                            bool
		Schemes                           []string
		Allow, Internal                   []netip.Prefix
		AgentPrefix                       bool
		FirstStep                         time.Duration
		MigrateIsDatabase, NoKey, NoEnKey bool
	}
	got := promised{
		c.DatabaseURL.Reveal(), c.Listen, c.HeaderPrefix, c.MaxPayload, c.MaxInFlight,
		c.Retry.Window, c.Retry.Max, c.MaxPendingAge, c.Retention, c.IdempotencyRetention, c.ShutdownGrace,
		c.CreateUnknownTenants, c.EndpointSchemes, c.EgressAllow, c.EgressAllowInternal,
		strings.HasPrefix(c.UserAgent, "Waybill/"), c.Retry.Initial,
		c.MigrateDatabaseURL == c.DatabaseURL, c.APIKey == "", c.EncryptionKey == nil,
	}
	want := promised{
		"sqlite://waybill.db", "127.0.0.1:8420", "waybill-", 262144, 1000,
		8 * time.Hour, time.Hour, 120 * time.Hour, 720 * time.Hour, 24 * time.Hour, 35 * time.Second,
		false, []string{"http", "https"}, nil, nil, true, 2 * time.Second, true, true, true,
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Prefix{})); diff != "" {
		t.Error(diff)
	}
}

func TestLoad_flagBeatsEnvironmentBeatsFile(t *testing.T) {
	file := write(t, "waybill.yaml", "max_in_flight: 1\nretry_window: 1h\nretry_statuses: [404, 4xx]\nlisten: \":1\"\n")
	c, err := Load(Sources{
		File:    file,
		Environ: []string{"WAYBILL_RETRY_WINDOW=2h", "WAYBILL_LISTEN=:2", "WAYBILL_LOG=", "PATH=/bin"},
		Flags:   map[string]string{"listen": ":3"},
	})
	if err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprintf("%d %s %s %s %d", c.MaxInFlight, c.Retry.Window, c.Retry.RetryStatuses, c.Listen, len(c.Warnings))
	if want := "1 2h0m0s [404 4xx] :3 0"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestLoad_refusesWithOneSentence(t *testing.T) {
	key := base64.StdEncoding.EncodeToString(make([]byte, 32))
	for name, row := range map[string]struct {
		env  string
		want string
	}{
		"a duration without unit":            {"WAYBILL_RETRY_WINDOW=90", `WAYBILL_RETRY_WINDOW: "90" must be a duration such as 90s, 8h or 30d`},
		"a negative duration":                {"WAYBILL_RETRY_WINDOW=-8h", `WAYBILL_RETRY_WINDOW: "-8h" must be a duration such as 90s, 8h or 30d`},
		"a grace shorter than an attempt":    {"WAYBILL_SHUTDOWN_GRACE=5s", `WAYBILL_SHUTDOWN_GRACE: 5s must be from 30s to 1d`},
		"a size with a unit of a thousand":   {"WAYBILL_MAX_PAYLOAD=256KB", `WAYBILL_MAX_PAYLOAD: "256KB" has the unit "KB"; use B, KiB, MiB, GiB or TiB`},
		"a payload above the hard maximum":   {"WAYBILL_MAX_PAYLOAD=2MiB", `WAYBILL_MAX_PAYLOAD: must be from 1 byte to 1MiB`},
		"a size that would overflow":         {"WAYBILL_MAX_PAYLOAD=99999999999999999999", `WAYBILL_MAX_PAYLOAD: "99999999999999999999" must be a size such as 256KiB or 1MiB`},
		"a listener without port":            {"WAYBILL_LISTEN=localhost", `WAYBILL_LISTEN: "localhost" must be host:port, such as 127.0.0.1:8420 or :0`},
		"a CIDR that is an address":          {"WAYBILL_EGRESS_ALLOW=10.0.0.1", `WAYBILL_EGRESS_ALLOW: "10.0.0.1" must be a CIDR such as 10.0.0.0/8`},
		"a CIDR with bits behind its length": {"WAYBILL_EGRESS_ALLOW=10.0.0.1/8", `WAYBILL_EGRESS_ALLOW: "10.0.0.1/8" has bits set beyond its length; did you mean 10.0.0.0/8?`},
		"a port range upside down":           {"WAYBILL_EGRESS_PORTS=443-80", `WAYBILL_EGRESS_PORTS: "443-80" is neither a port, a range such as 1024-65535, nor one of these with a ! before it`},
		"an unknown scheme":                  {"WAYBILL_ENDPOINT_SCHEMES=https,ftp", `WAYBILL_ENDPOINT_SCHEMES: "ftp" must be http or https`},
		"a word where there are two":         {"WAYBILL_UNKNOWN_TENANT=maybe", `WAYBILL_UNKNOWN_TENANT: "maybe" must be reject or create`},
		"a status that is none":              {"WAYBILL_RETRY_STATUSES=404,9xx", `WAYBILL_RETRY_STATUSES: "404,9xx" must be statuses such as 404 or classes such as 4xx, separated by commas`},
		"no attempt at all":                  {"WAYBILL_MAX_IN_FLIGHT=0", `WAYBILL_MAX_IN_FLIGHT: 0 must be from 1 to 100000`},
		"a database of another kind":         {"WAYBILL_DATABASE_URL=mysql://u:hunter2@h/d", `WAYBILL_DATABASE_URL: must begin with sqlite:// or postgres://`},
		"a database in memory":               {"WAYBILL_DATABASE_URL=sqlite://:memory:", `WAYBILL_DATABASE_URL: an accepted event must outlive the process; a database in memory does not`},
		"a migration of another database":    {"WAYBILL_MIGRATE_DATABASE_URL=postgres://o@h/d", `WAYBILL_MIGRATE_DATABASE_URL: must name the same database as WAYBILL_DATABASE_URL, as another role`},
		"a short encryption key":             {"WAYBILL_ENCRYPTION_KEY=hunter2", `WAYBILL_ENCRYPTION_KEY: want base64 of 32 bytes`},
		"one short key among the old":        {"WAYBILL_ENCRYPTION_KEYS_OLD=" + key + ",hunter2", `WAYBILL_ENCRYPTION_KEYS_OLD: want base64 of 32 bytes`},
		"an API key with a space":            {"WAYBILL_API_KEY=hunter2 ", `WAYBILL_API_KEY: must be visible ASCII without spaces, as it travels in a header`},
		"a retention the pending outlive":    {"WAYBILL_RETENTION=6d", `WAYBILL_RETENTION: 6d must be at least two days longer than the largest pending age (5d), so that no pending delivery loses its event`},
		"a pending age the retention breaks": {"WAYBILL_MAX_PENDING_AGE=29d", `WAYBILL_RETENTION: 30d must be at least two days longer than the largest pending age (29d), so that no pending delivery loses its event`},
		"a prefix that is a standard's":      {"WAYBILL_HEADER_PREFIX=webhook-", `WAYBILL_HEADER_PREFIX: "webhook-" belongs to a standard`},
		"a user agent with a line break":     {"WAYBILL_USER_AGENT=a\r\nx: y", `WAYBILL_USER_AGENT: must be visible ASCII`},
		"a SQLite file nobody works on":      {"WAYBILL_ROLES=api", `WAYBILL_ROLES: must include dispatch with SQLite: no other process can do it`},
		"a secret's file that is not there":  {"WAYBILL_API_KEY_FILE=/nowhere/key", `WAYBILL_API_KEY_FILE: cannot read the file: no such file or directory`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Load(Sources{Environ: []string{row.env}})
			if err == nil {
				t.Fatal("accepted")
			}
			if err.Error() != row.want {
				t.Errorf("got  %s\nwant %s", err, row.want)
			}
			if strings.Contains(err.Error(), "hunter2") {
				t.Error("the sentence holds the secret")
			}
		})
	}
}

func TestLoad_unknownNames(t *testing.T) {
	t.Run("in the file they are refused", func(t *testing.T) {
		file := write(t, "waybill.yaml", "lisen: \":1\"\n")
		_, err := Load(Sources{File: file})
		if want := "lisen in " + file + ": there is no such setting"; err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	})
	t.Run("in the environment they are a warning, as orchestrators set some", func(t *testing.T) {
		c, err := Load(Sources{Environ: []string{"WAYBILL_PORT=tcp://10.0.0.1:8420", "WAYBILL_RETENTON=9d", "WAYBILL_URL=http://x", "WAYBILL_CONFIG=y"}})
		if err != nil {
			t.Fatal(err)
		}
		want := []string{"WAYBILL_PORT is not a setting of Waybill and has no effect", "WAYBILL_RETENTON is not a setting of Waybill and has no effect"}
		if diff := cmp.Diff(want, c.Warnings); diff != "" {
			t.Error(diff)
		}
	})
	t.Run("a file that is no YAML does not quote itself", func(t *testing.T) {
		file := write(t, "waybill.yaml", "api_key: hunter2\n\tlisten: [")
		if _, err := Load(Sources{File: file}); err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("got %v", err)
		}
	})
}

func TestLoad_secretsFromFiles(t *testing.T) {
	path := write(t, "key", "  from-a-file\n")
	for name, src := range map[string]Sources{
		"named in the environment": {Environ: []string{"WAYBILL_API_KEY_FILE=" + path}},
		"named by a flag":          {Flags: map[string]string{"api-key-file": path}, Environ: []string{"WAYBILL_API_KEY=weaker"}},
		"named in the file":        {File: write(t, "waybill.yaml", "api_key_file: "+path+"\n")},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := Load(src)
			if err != nil {
				t.Fatal(err)
			}
			if c.APIKey.Reveal() != "from-a-file" {
				t.Errorf("key %q", c.APIKey.Reveal())
			}
		})
	}
	t.Run("beside the value itself it is refused", func(t *testing.T) {
		_, err := Load(Sources{Environ: []string{"WAYBILL_API_KEY=a", "WAYBILL_API_KEY_FILE=" + path}})
		if want := "WAYBILL_API_KEY_FILE: is set beside WAYBILL_API_KEY; keep one"; err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	})
}

func TestConfig_neverPrintsASecret(t *testing.T) {
	c, err := Load(Sources{
		Environ: []string{
			"WAYBILL_API_KEY=hunter2", "WAYBILL_DATABASE_URL=postgres://waybill:hunter2@db.example:5432/app",
			"WAYBILL_ENCRYPTION_KEY=" + base64.StdEncoding.EncodeToString([]byte("hunter2hunter2hunter2hunter2hunt")),
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	var logged strings.Builder
	slog.New(slog.NewJSONHandler(&logged, nil)).Info("start", "config", &c, "key", c.APIKey)
	for _, printed := range []string{logged.String(), fmt.Sprintf("%v %+v %#v %s", c.APIKey, c.DatabaseURL, c.APIKey, c.Database())} {
		if strings.Contains(printed, "hunter2") || strings.Contains(printed, "aHVudGVy") {
			t.Errorf("a secret is in %s", printed)
		}
	}
	if want := "postgres://db.example:5432/app"; c.Database() != want {
		t.Errorf("database %q, want %q", c.Database(), want)
	}
}

func TestParseDuration_daysAndTheirSum(t *testing.T) {
	for in, want := range map[string]time.Duration{
		"90s": 90 * time.Second, "8h": 8 * time.Hour, "30d": 720 * time.Hour, "1d12h": 36 * time.Hour,
		"1h30m": 90 * time.Minute, "0s": 0, "250ms": 250 * time.Millisecond,
	} {
		if got, err := parseDuration(in); err != nil || got != want {
			t.Errorf("%s: %v, %v, want %v", in, got, err, want)
		}
	}
	for _, in := range []string{"", "d", "1.5d", "30 d", "99999999999d", "1dd", "5"} {
		if got, err := parseDuration(in); err == nil {
			t.Errorf("%q was read as %v", in, got)
		}
	}
}

func TestFormatDuration_readsBack(t *testing.T) {
	for want, d := range map[string]time.Duration{"30d": 720 * time.Hour, "8h": 8 * time.Hour, "35s": 35 * time.Second, "1h30m": 90 * time.Minute, "50ms": 50 * time.Millisecond, "36h": 36 * time.Hour, "10m": 10 * time.Minute} {
		if got := FormatDuration(d); got != want {
			t.Errorf("%v is written %q, want %q", d, got, want)
		}
		if back, err := parseDuration(want); err != nil || back != d {
			t.Errorf("%q reads back as %v, %v", want, back, err)
		}
	}
}
