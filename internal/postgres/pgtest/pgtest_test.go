package pgtest_test

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/waybill-dev/waybill/internal/postgres/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func TestDSN_givesEachTestItsOwnMigratedDatabase(t *testing.T) {
	first, second := connect(t, pgtest.DSN(t)), connect(t, pgtest.DSN(t))
	if _, err := first.Exec(t.Context(), "INSERT INTO waybill.tenant (key) VALUES ('acme')"); err != nil {
		t.Fatal(err)
	}
	if n := tenants(t, first); n != 1 {
		t.Errorf("first database has %d tenants, want 1", n)
	}
	if n := tenants(t, second); n != 0 {
		t.Errorf("second database has %d tenants, want 0", n)
	}
}

func TestServer_keepsWhatWasCommittedOverAnImmediateStop(t *testing.T) {
	server := pgtest.Start(t, nil)
	if _, err := connect(t, server.DSN()).Exec(t.Context(), "INSERT INTO waybill.tenant (key) VALUES ('acme')"); err != nil {
		t.Fatal(err)
	}
	server.Stop()
	if conn, err := pgx.Connect(t.Context(), server.DSN()); err == nil {
		conn.Close(t.Context())
		t.Error("a stopped server answers")
	}
	server.Start()
	if n := tenants(t, connect(t, server.DSN())); n != 1 {
		t.Errorf("%d tenants after the crash, want 1", n)
	}
}

func connect(t *testing.T, dsn string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(t.Context()) })
	return conn
}

func tenants(t *testing.T, conn *pgx.Conn) int {
	t.Helper()
	var n int
	if err := conn.QueryRow(t.Context(), "SELECT count(*) FROM waybill.tenant").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}
