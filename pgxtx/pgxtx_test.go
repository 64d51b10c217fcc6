package pgxtx_test

import (
	"context"
	"log"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/waybill-dev/waybill"
	"github.com/waybill-dev/waybill/internal/postgres/pgtest"
	"github.com/waybill-dev/waybill/pgxtx"
	"github.com/waybill-dev/waybill/waybilltest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// exampleTB is what a function without a *testing.T, such as an example, can give to pgtest.
type exampleTB struct {
	testing.TB
	cleanups []func()
}

func (*exampleTB) Helper()                           {}
func (*exampleTB) Fatalf(format string, args ...any) { log.Fatalf(format, args...) }
func (*exampleTB) Logf(format string, args ...any)   { log.Printf(format, args...) }
func (tb *exampleTB) Cleanup(f func())               { tb.cleanups = append(tb.cleanups, f) }

func exampleDatabase() (dsn string, drop func()) {
	tb := &exampleTB{}
	dsn = pgtest.DSN(tb)
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close(ctx)
	for _, statement := range []string{`SELECT waybill.ensure_tenant('acme')`, `CREATE TABLE payment (id text, state text)`} {
		if _, err := conn.Exec(ctx, statement); err != nil {
			log.Fatal(err)
		}
	}
	return dsn, func() {
		for _, f := range slices.Backward(tb.cleanups) {
			f()
		}
	}
}

func TestWrap_connectionsPoolsAndTransactions(t *testing.T) {
	ctx := t.Context()
	dsn := pgtest.DSN(t)
	pool, err := pgxpool.New(ctx, dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	if _, err := pool.Exec(ctx, `SELECT waybill.ensure_tenant('acme')`); err != nil {
		t.Fatal(err)
	}
	pooled, err := pool.Acquire(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer pooled.Release()
	tx, err := pooled.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(ctx)
	nested, err := tx.Begin(ctx) // a savepoint
	if err != nil {
		t.Fatal(err)
	}
	event := waybill.Event{Tenant: "acme", Type: "ping", Payload: []byte(`{}`)}
	for name, q := range map[string]pgxtx.Querier{"a nested transaction": nested, "a pool": pool} {
		if _, err := waybill.Publish(ctx, pgxtx.Wrap(q), event); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := nested.Rollback(ctx); err != nil {
		t.Fatal(err)
	}
	for name, q := range map[string]pgxtx.Querier{"a transaction": tx, "its connection": pooled, "the one below": pooled.Conn()} {
		if _, err := waybill.Publish(ctx, pgxtx.Wrap(q), event); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n := len(waybilltest.Published(t, pgxtx.Wrap(pool))); n != 1 {
		t.Errorf("%d events are committed, want the pool's alone", n)
	}
	if err := tx.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	if n := len(waybilltest.Published(t, pgxtx.Wrap(pool))); n != 4 {
		t.Errorf("%d events, want all but the one rolled back", n)
	}
}
