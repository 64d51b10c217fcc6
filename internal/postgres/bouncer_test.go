package postgres_test

import (
	"testing"

	"github.com/waybill-dev/waybill/internal/outbox"
	"github.com/waybill-dev/waybill/internal/postgres/pgtest"
)

// A bouncer that pools transactions may not know prepared statements; pgx then describes a
// statement once and sends it whole each time.
func TestStore_needsNoPreparedStatements(t *testing.T) {
	for _, mode := range []string{"cache_describe", "describe_exec", "exec", "simple_protocol"} {
		t.Run(mode, func(t *testing.T) {
			dsn := pgtest.DSN(t)
			a := &application{Conn: connect(t, dsn), t: t, dsn: dsn, store: open(t, dsn+"&default_query_exec_mode="+mode)}
			a.must(`SELECT waybill.ensure_tenant('acme')`)
			plain, keyed := newEvent(a.tenant()), newEvent(a.tenant())
			keyed.IdempotencyKey = "k"
			for _, e := range []outbox.NewEvent{plain, keyed} {
				if _, _, err := a.store.InsertEvents(t.Context(), []outbox.NewEvent{e}); err != nil {
					t.Fatal(err)
				}
			}
			list, _, err := a.store.Events(t.Context(), outbox.EventQuery{Tenant: a.tenant().TenantRef}, outbox.Page{Limit: 10})
			if err != nil || len(list) != 2 {
				t.Fatalf("%d events, %v", len(list), err)
			}
			report, err := a.store.Verify(t.Context(), true)
			if err != nil || !report.Balanced() {
				t.Fatalf("the books: %+v, %v", report, err)
			}
		})
	}
}
