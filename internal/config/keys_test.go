package config

import (
	"encoding/base64"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/waybill-dev/waybill/signature"
)

func sqliteConfig(t *testing.T) Config {
	t.Helper()
	c, err := Load(Sources{Environ: []string{"WAYBILL_DATABASE_URL=sqlite://" + filepath.Join(t.TempDir(), "w.db")}})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestConfig_keyFileIsMadeOnceAndPrivate(t *testing.T) {
	c := sqliteConfig(t)
	first, err := c.Keyring()
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(c.KeyFile())
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("key file: %v, %v", info, err)
	}
	second, err := c.Keyring()
	if err != nil {
		t.Fatal(err)
	}
	plain, err := second.Open(first.Seal([]byte("secret"), "here"), "here")
	if err != nil || string(plain) != "secret" {
		t.Errorf("what the first start sealed opens as %q, %v", plain, err)
	}
	entries, err := os.ReadDir(filepath.Dir(c.KeyFile()))
	if err != nil || len(entries) != 1 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
}

func TestConfig_refusesAKeyFileItCannotTrust(t *testing.T) {
	for name, row := range map[string]struct {
		prepare func(t *testing.T, c Config, database string)
		want    string
	}{
		"a database whose key is lost": {func(t *testing.T, c Config, database string) {
			os.WriteFile(database, []byte("data"), 0o600)
		}, "restore the key file"},
		"a key others can read": {func(t *testing.T, c Config, _ string) {
			os.WriteFile(c.KeyFile(), []byte(base64.StdEncoding.EncodeToString(make([]byte, 32))), 0o644)
		}, "can be read by others: run chmod 600"},
		"a file that holds no key": {func(t *testing.T, c Config, _ string) {
			os.WriteFile(c.KeyFile(), []byte("hunter2"), 0o600)
		}, "does not hold a key"},
	} {
		t.Run(name, func(t *testing.T) {
			c := sqliteConfig(t)
			path, _ := c.SQLitePath()
			row.prepare(t, c, path)
			_, err := c.Keyring()
			if _, refused := errors.AsType[*Refusal](err); !refused || !strings.Contains(err.Error(), row.want) {
				t.Errorf("got %v, want a refusal with %q", err, row.want)
			}
		})
	}
}

func TestConfig_devKeysStayTheSame(t *testing.T) {
	c := sqliteConfig(t)
	first, err := c.DevKeys()
	if err != nil {
		t.Fatal(err)
	}
	second, err := c.DevKeys()
	if err != nil || first != second || len(first.APIKey) < 20 {
		t.Errorf("keys of %d and %d characters, equal %t, %v", len(first.APIKey), len(second.APIKey), first == second, err)
	}
	if _, err := signature.ParseSecret(first.SigningSecret.Reveal()); err != nil {
		t.Error(err)
	}
	other := sqliteConfig(t)
	if third, err := other.DevKeys(); err != nil || third.APIKey == first.APIKey || third.SigningSecret == first.SigningSecret {
		t.Errorf("two databases share a key: %v", err)
	}
}

func TestConfig_refusesUnsafeStarts(t *testing.T) {
	key := "WAYBILL_ENCRYPTION_KEY=" + base64.StdEncoding.EncodeToString(make([]byte, 32))
	for name, row := range map[string]struct {
		environ []string
		want    string // "" for a start that is fine
	}{
		"no key at all":                       {nil, "WAYBILL_API_KEY is not set"},
		"keys that may be in the database":    {[]string{"WAYBILL_DATABASE_URL=postgres://h/d", key}, ""},
		"a short key for this machine":        {[]string{"WAYBILL_API_KEY=k"}, ""},
		"a short key for everybody":           {[]string{"WAYBILL_API_KEY=k", "WAYBILL_LISTEN=0.0.0.0:8420"}, "can be reached by others"},
		"a short key for every address":       {[]string{"WAYBILL_API_KEY=k", "WAYBILL_LISTEN=:8420"}, "can be reached by others"},
		"a short key for a name":              {[]string{"WAYBILL_API_KEY=k", "WAYBILL_LISTEN=example.com:80"}, "can be reached by others"},
		"a long key for everybody":            {[]string{"WAYBILL_API_KEY=0123456789abcdef", "WAYBILL_LISTEN=:8420"}, ""},
		"PostgreSQL without encryption key":   {[]string{"WAYBILL_API_KEY=k", "WAYBILL_DATABASE_URL=postgres://h/d"}, "WAYBILL_ENCRYPTION_KEY is not set"},
		"PostgreSQL with its encryption key":  {[]string{"WAYBILL_API_KEY=k", "WAYBILL_DATABASE_URL=postgres://h/d", key}, ""},
		"the loopback of the other protocol":  {[]string{"WAYBILL_API_KEY=k", "WAYBILL_LISTEN=[::1]:0"}, ""},
		"the name everybody gives this place": {[]string{"WAYBILL_API_KEY=k", "WAYBILL_LISTEN=localhost:0"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := Load(Sources{Environ: row.environ})
			if err != nil {
				t.Fatal(err)
			}
			err = c.CheckServe()
			if row.want == "" && err != nil {
				t.Errorf("refused: %v", err)
			}
			if _, refused := errors.AsType[*Refusal](err); row.want != "" && (!refused || !strings.Contains(err.Error(), row.want)) {
				t.Errorf("got %v, want a refusal with %q", err, row.want)
			}
		})
	}
}
