package postgres_test

import (
	"testing"
	"time"

	"github.com/waybill-dev/waybill/internal/postgres"
	"github.com/waybill-dev/waybill/internal/postgres/pgtest"
)

// A migration that has to wait for a table makes everybody wait behind it. It gives up soon, lets
// them pass, and comes again until the table is free.
func TestMigrate_givesWayWhileATableIsHeld(t *testing.T) {
	dsn := pgtest.DSN(t)
	applied, err := postgres.MigrationStatus(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range applied {
		if m.Version < 20 { // that one changes waybill.job
			continue
		}
		if err := postgres.Migrate(t.Context(), dsn, postgres.Down); err != nil {
			t.Fatal(err)
		}
	}
	holder, watcher, writer := connect(t, dsn), connect(t, dsn), connect(t, dsn)
	for _, statement := range []string{"BEGIN", "SELECT count(*) FROM waybill.job"} {
		if _, err := holder.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	done := make(chan error, 1)
	go func() { done <- postgres.Migrate(t.Context(), dsn, postgres.Up) }()
	waiting := func(want bool) {
		t.Helper()
		for deadline := time.Now().Add(40 * time.Second); ; {
			var waits bool
			if err := watcher.QueryRow(t.Context(), "SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND relation = 'waybill.job'::regclass)").Scan(&waits); err != nil {
				t.Fatal(err)
			}
			if waits == want {
				return
			}
			select {
			case err := <-done:
				t.Fatalf("the migration ended while the table was held: %v", err)
			case <-time.After(time.Millisecond):
			}
			if time.Now().After(deadline) {
				t.Fatalf("waited 40 s for the migration to wait (%t)", want)
			}
		}
	}
	for range 2 {
		waiting(true)
		waiting(false)
		// Whoever came behind it goes on.
		if _, err := writer.Exec(t.Context(), "UPDATE waybill.job SET done = done"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := holder.Exec(t.Context(), "COMMIT"); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	applied, err = postgres.MigrationStatus(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range applied {
		if m.AppliedAt.IsZero() {
			t.Errorf("%s was not applied", m.Name)
		}
	}
}
