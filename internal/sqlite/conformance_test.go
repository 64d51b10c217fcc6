package sqlite_test

import (
	"context"
	"database/sql"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/waybill-dev/waybill/internal/keyring"
	"github.com/waybill-dev/waybill/internal/outbox"
	"github.com/waybill-dev/waybill/internal/outbox/outboxtest"
	"github.com/waybill-dev/waybill/internal/sqlite"
)

func TestStore_keepsTheContract(t *testing.T) {
	outboxtest.Run(t, func(t *testing.T) outbox.Store {
		store, path := openStore(t)
		side, err := sql.Open("sqlite", path+"?_pragma=busy_timeout(5000)")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = side.Close() })
		return &backdoored{Store: store, side: side}
	})
}

// openStore opens a store in a new file, a copy of one that is migrated already: under the race
// detector the migrations take longer than most tests.
func openStore(t testing.TB) (*sqlite.Store, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "waybill.db")
	file, err := template()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, file, 0o600); err != nil {
		t.Fatal(err)
	}
	return openAt(t, path), path
}

var template = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "waybill")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	path := filepath.Join(dir, "template.db")
	store, err := sqlite.Open(context.Background(), sqlite.Config{Path: path})
	if err != nil {
		return nil, err
	}
	if err := store.Close(); err != nil { // folds the WAL into the file
		return nil, err
	}
	return os.ReadFile(path)
})

var testKey = keyring.NewKey()

func openAt(t testing.TB, path string) *sqlite.Store {
	t.Helper()
	keys, err := keyring.New(testKey)
	if err != nil {
		t.Fatal(err)
	}
	store, err := sqlite.Open(t.Context(), sqlite.Config{Path: path, Keyring: keys})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return store
}

// backdoored lets the suite look at what is stored and damage it.
type backdoored struct {
	*sqlite.Store
	side *sql.DB
}

var table = regexp.MustCompile(`\{(\w+)\}`)

func (b *backdoored) Exec(ctx context.Context, statement string) error {
	_, err := b.side.ExecContext(ctx, expand(statement))
	return err
}

func (b *backdoored) Count(ctx context.Context, query string) (n int, err error) {
	err = b.side.QueryRowContext(ctx, expand(query)).Scan(&n)
	return n, err
}

func expand(statement string) string {
	statement = strings.NewReplacer("{garbage}", "x'0bad'", "{nothing}", `'[]'`, "{odd}", `'["*",{}]'`).Replace(statement)
	return table.ReplaceAllString(statement, "waybill_$1")
}

func (b *backdoored) Dump(ctx context.Context) ([]byte, error) {
	var dump strings.Builder
	for _, name := range []string{"tenant", "endpoint", "idempotency", "request", "source", "session", "api_key", "audit"} {
		rows, err := b.side.QueryContext(ctx, "SELECT * FROM waybill_"+name)
		if err != nil {
			return nil, err
		}
		columns, err := rows.Columns()
		if err != nil {
			return nil, err
		}
		for rows.Next() {
			values := make([]sql.RawBytes, len(columns))
			dest := make([]any, len(columns))
			for i := range values {
				dest[i] = &values[i]
			}
			if err := rows.Scan(dest...); err != nil {
				return nil, err
			}
			for _, v := range values {
				dump.Write(v)
				dump.WriteByte('\n')
			}
		}
		if err := rows.Err(); err != nil {
			return nil, err
		}
		if err := rows.Close(); err != nil {
			return nil, err
		}
	}
	return []byte(dump.String()), nil
}
