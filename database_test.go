package waybill_test

import (
	"context"
	"database/sql"
	"net/url"
	"path/filepath"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"

	"github.com/waybill-dev/waybill/internal/postgres/pgtest"
	"github.com/waybill-dev/waybill/internal/sqlite"
	"github.com/waybill-dev/waybill/internal/sqlstub"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// database is one of the places an application publishes into.
type database struct {
	name   string
	open   func(t *testing.T) *sql.DB
	limits string // sets the largest payload to 1,000 bytes; "" where nothing can be set
	create string // lets unknown tenants be made
	age    string // makes every idempotency key 25 hours older; their retention is a day
}

// databases are all of them; each test runs in every one, in a database of its own that knows
// the tenants acme and globex.
func databases() []database {
	return []database{
		{"SQLite", openSQLite, `UPDATE waybill_setting SET max_payload = 1000`, `UPDATE waybill_setting SET unknown_tenant = 'create'`,
			`UPDATE waybill_idempotency SET created_at = created_at - 25 * 3600 * 1000000`},
		{"PostgreSQL", openPostgres, `UPDATE waybill.setting SET max_payload = 1000`, `UPDATE waybill.setting SET create_unknown_tenants = true`,
			`UPDATE waybill.idempotency SET created_at = created_at - interval '25 hours'`},
		{"PostgreSQL with the stub", openStub, "", "", ""},
	}
}

func openPostgres(t *testing.T) *sql.DB {
	t.Helper()
	db := open(t, "pgx", pgtest.DSN(t))
	run(t, db, `SELECT waybill.ensure_tenant('acme'), waybill.ensure_tenant('globex')`)
	return db
}

func openStub(t *testing.T) *sql.DB {
	t.Helper()
	db := open(t, "pgx", pgtest.EmptyDSN(t))
	run(t, db, sqlstub.SQL)
	run(t, db, `SELECT waybill.ensure_tenant('acme'), waybill.ensure_tenant('globex')`)
	return db
}

func openSQLite(t *testing.T) *sql.DB {
	t.Helper()
	path := filepath.Join(t.TempDir(), "app.db")
	db, err := openSQLiteFile(t.Context(), path, "_txlock=immediate")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

// openSQLiteFile makes Waybill's tables in the file, as waybill serve does, and opens it as an
// application would.
func openSQLiteFile(ctx context.Context, path string, options string) (*sql.DB, error) {
	store, err := sqlite.Open(ctx, sqlite.Config{Path: path})
	if err != nil {
		return nil, err
	}
	if err := store.Close(); err != nil {
		return nil, err
	}
	address := url.URL{Scheme: "file", Path: path, RawQuery: "_pragma=busy_timeout(5000)&" + options}
	db, err := sql.Open("sqlite", address.String())
	if err != nil {
		return nil, err
	}
	for _, tenant := range []string{"acme", "globex"} {
		_, err := db.ExecContext(ctx, `
			INSERT INTO waybill_tenant (shard, key, created_at, updated_at, resumed_at)
			VALUES ($1, $2, 0, 0, 0)`, shardOf(tenant), tenant)
		if err != nil {
			return nil, err
		}
	}
	return db, nil
}

func open(t *testing.T, driver, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open(driver, dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

func run(t *testing.T, db *sql.DB, statement string, args ...any) {
	t.Helper()
	if _, err := db.ExecContext(t.Context(), statement, args...); err != nil {
		t.Fatalf("%v\n%s", err, statement)
	}
}
