package config

import (
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/waybill-dev/waybill/internal/keyring"
)

// Refusal is a start that is possible but unsafe. Its text is one sentence for the person who
// started the process.
type Refusal struct{ Reason string }

func (e *Refusal) Error() string { return e.Reason }

var errNoEncryptionKey = &Refusal{"WAYBILL_ENCRYPTION_KEY is not set and the database is PostgreSQL: set it to 32 bytes in base64, for example the output of \"openssl rand -base64 32\", and keep it as safe as the database"}

// leastPublicKey is the shortest operator key a listener that others can reach may have.
const leastPublicKey = 16

// ErrNoOperator refuses to serve a database without keys, where none is configured either.
var ErrNoOperator = &Refusal{"WAYBILL_API_KEY is not set and the database holds no operator's key with the scope admin, so nobody could use the API: set it to a long random value, for example the output of \"openssl rand -hex 32\""}

// CheckServe refuses to serve where a setting would leave the door open, with a *Refusal. A
// database that exists may hold keys; whoever opens it looks (ErrNoOperator).
func (c *Config) CheckServe() error {
	path, sqlite := c.SQLitePath()
	switch {
	case c.APIKey == "" && c.Roles.NeedKeys() && sqlite && !exists(path):
		return ErrNoOperator
	case c.APIKey != "" && len(c.APIKey) < leastPublicKey && !isLoopback(c.Listen):
		return &Refusal{fmt.Sprintf("WAYBILL_API_KEY is shorter than %d characters and %s can be reached by others: use a longer key, or listen on 127.0.0.1", leastPublicKey, c.Listen)}
	case !sqlite && c.EncryptionKey == nil:
		return errNoEncryptionKey
	}
	return nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// KeyFile is where the encryption key of a SQLite database is kept when none is configured.
func (c *Config) KeyFile() string {
	path, _ := c.SQLitePath()
	return path + ".key"
}

// KeySource names where the encryption key comes from, for messages.
func (c *Config) KeySource() string {
	if c.EncryptionKey != nil {
		return "WAYBILL_ENCRYPTION_KEY"
	}
	return "the key in " + c.KeyFile()
}

// Keyring returns the keys that seal secrets. For a SQLite database without a configured key it
// reads the key file, or makes one beside a database that does not exist yet: call it before the
// database is opened, so that a crash between the two leaves a key without a database and never
// a database whose secrets nobody can open.
func (c *Config) Keyring() (*keyring.Keyring, error) {
	current := c.EncryptionKey
	if current == nil {
		path, sqlite := c.SQLitePath()
		if !sqlite {
			return nil, errNoEncryptionKey
		}
		key, err := keyBeside(path, c.KeyFile())
		if err != nil {
			return nil, err
		}
		current = key
	}
	return keyring.New(current, c.EncryptionKeysOld...)
}

// DevKeys are what `waybill dev` hands out. They are derived from the encryption key beside its
// database, so they stay the same over restarts and need no file of their own.
type DevKeys struct {
	APIKey        Secret
	SigningSecret Secret // of the demo endpoint, "whsec_…"
}

// DevKeys derives them, making the key file as Keyring does.
func (c *Config) DevKeys() (DevKeys, error) {
	seed := c.EncryptionKey
	if seed == nil {
		path, _ := c.SQLitePath()
		key, err := keyBeside(path, c.KeyFile())
		if err != nil {
			return DevKeys{}, err
		}
		seed = key
	}
	api, err1 := hkdf.Key(sha256.New, seed, nil, "waybill dev api key", 18)
	signing, err2 := hkdf.Key(sha256.New, seed, nil, "waybill dev signing secret", 33)
	return DevKeys{
		APIKey:        Secret("dev_" + base64.RawURLEncoding.EncodeToString(api)),
		SigningSecret: Secret("whsec_" + base64.StdEncoding.EncodeToString(signing)),
	}, errors.Join(err1, err2)
}

// keyBeside reads the key file of a database, or makes both possible for a database that is not
// there yet.
func keyBeside(database, path string) ([]byte, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Stat(database); err == nil {
			return nil, &Refusal{fmt.Sprintf("%s exists but its key file %s does not, so the secrets in it cannot be opened: restore the key file, or set WAYBILL_ENCRYPTION_KEY", database, path)}
		}
		if err := makeKeyFile(path); err != nil {
			return nil, err
		}
		info, err = os.Stat(path)
	}
	if err != nil {
		return nil, fmt.Errorf("key file: %w", err)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return nil, &Refusal{fmt.Sprintf("%s can be read by others: run chmod 600 %s", path, path)}
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("key file: %w", err)
	}
	key, err := keyring.ParseKey(strings.TrimSpace(string(content)))
	if err != nil {
		return nil, &Refusal{path + " does not hold a key (" + err.Error() + ")"}
	}
	return key, nil
}

// makeKeyFile writes a new key so that, whatever happens, the file is either whole and durable
// or not there. A file that another process made meanwhile is kept.
func makeKeyFile(path string) error {
	dir := filepath.Dir(path)
	temp, err := os.CreateTemp(dir, filepath.Base(path)+".*") // CreateTemp makes it 0600
	if err != nil {
		return fmt.Errorf("key file: %w", err)
	}
	defer os.Remove(temp.Name())
	_, err = temp.WriteString(base64.StdEncoding.EncodeToString(keyring.NewKey()) + "\n")
	if err := errors.Join(err, temp.Sync(), temp.Close()); err != nil {
		return fmt.Errorf("key file: %w", err)
	}
	// Link, unlike rename, does not replace a key that is already in use.
	if err := os.Link(temp.Name(), path); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("key file: %w", err)
	}
	return syncDir(dir)
}

// syncDir makes a new name in the directory durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("key file: %w", err)
	}
	if err := errors.Join(d.Sync(), d.Close()); err != nil {
		return fmt.Errorf("key file: %w", err)
	}
	return nil
}
