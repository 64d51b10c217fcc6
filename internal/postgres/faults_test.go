package postgres_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
	"github.com/waybill-dev/waybill/internal/postgres"
	"github.com/waybill-dev/waybill/internal/postgres/pgtest"
)

func newEvent(tenant outbox.Tenant) outbox.NewEvent {
	now := time.Now().UTC().Truncate(time.Microsecond)
	payload := []byte(`{}`)
	return outbox.NewEvent{Event: outbox.Event{
		ID: outbox.NewEventID(now), Tenant: tenant.TenantRef, Type: "a.b",
		Payload: payload, SHA256: sha256.Sum256(payload), CreatedAt: now,
	}}
}

// A server that crashes under load: what was accepted is there, and a batch that is run again
// until its definite answer is there once.
func TestStore_losesAndRepeatsNothingWhenTheServerCrashes(t *testing.T) {
	server := pgtest.Start(t, nil)
	store := open(t, server.DSN())
	ctx := t.Context()
	acme, _, err := store.PutTenant(ctx, "acme", time.Now(), func(*outbox.Tenant, bool) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	const publishers = 4
	var group sync.WaitGroup
	stop := make(chan struct{})
	accepted := make([]map[outbox.EventID]bool, publishers)
	errs := make([]error, publishers)
	for i := range publishers {
		accepted[i] = map[outbox.EventID]bool{}
		group.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				batch := []outbox.NewEvent{newEvent(acme), newEvent(acme)}
				for deadline := time.Now().Add(time.Minute); ; {
					_, conflicts, err := store.InsertEvents(ctx, batch)
					if err == nil && len(conflicts) == 0 {
						break
					}
					if fault := outbox.FaultOf(err); fault != outbox.FaultRetry && fault != outbox.FaultUnknown || time.Now().After(deadline) {
						errs[i] = errors.Join(err, errors.New("not to be repeated, or not ending"))
						return
					}
				}
				for _, e := range batch {
					accepted[i][e.ID] = true
				}
			}
		})
	}
	for range 3 {
		waitFor(t, store, func(r outbox.Report) int64 { return r.Events })
		server.Stop()
		server.Start()
	}
	waitFor(t, store, func(r outbox.Report) int64 { return r.Events })
	close(stop)
	group.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	rows, err := store.ReadOutbox(ctx, []outbox.Shard{acme.Shard}, []int64{0}, 1_000_000)
	if err != nil {
		t.Fatal(err)
	}
	stored := map[outbox.EventID]int{}
	for _, row := range rows {
		stored[row.Event]++
	}
	want := 0
	for _, ids := range accepted {
		want += len(ids)
		for id := range ids {
			if stored[id] != 1 {
				t.Errorf("%s waits %d times, want once", id, stored[id])
			}
		}
	}
	if len(rows) != want {
		t.Errorf("%d rows wait, %d events were accepted", len(rows), want)
	}
	report, err := store.Verify(ctx, true)
	if err != nil || !report.Balanced() {
		t.Errorf("the books: %+v, %v", report, err)
	}
}

// waitFor waits until the load has got somewhere since the call.
func waitFor(t *testing.T, store *postgres.Store, count func(outbox.Report) int64) {
	t.Helper()
	first := int64(-1)
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		report, err := store.Verify(t.Context(), false)
		switch n := count(report); {
		case err != nil: // the server is still coming back
		case first < 0:
			first = n
		case n >= first+20:
			return
		}
	}
	t.Fatal("no progress")
}

func TestOpen_refusesADatabaseThatIsNotMigrated(t *testing.T) {
	dsn := pgtest.EmptyDSN(t)
	_, err := postgres.Open(t.Context(), postgres.Config{URL: dsn})
	if !errors.Is(err, postgres.ErrSchema) {
		t.Fatalf("an empty database: %v", err)
	}
	if err := postgres.Migrate(t.Context(), dsn, postgres.Up); err != nil {
		t.Fatal(err)
	}
	store, err := postgres.Open(t.Context(), postgres.Config{URL: dsn})
	if err != nil {
		t.Fatal(err)
	}
	store.Close()
}

func TestMigrate_goesUpAndDown(t *testing.T) {
	dsn := pgtest.EmptyDSN(t)
	applied := func() (n int) {
		t.Helper()
		list, err := postgres.MigrationStatus(t.Context(), dsn)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range list {
			if !m.AppliedAt.IsZero() {
				n++
			}
		}
		return n
	}
	var group sync.WaitGroup
	errs := make([]error, 3)
	for i := range errs { // at once: they take turns
		group.Go(func() { errs[i] = postgres.Migrate(t.Context(), dsn, postgres.Up) })
	}
	group.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	all := applied()
	for want := all - 1; want >= 0; want-- {
		if err := postgres.Migrate(t.Context(), dsn, postgres.Down); err != nil {
			t.Fatal(err)
		}
		if got := applied(); got != want {
			t.Fatalf("%d applied after a step down, want %d", got, want)
		}
	}
	conn := connect(t, dsn)
	var left int
	err := conn.QueryRow(t.Context(), `
		SELECT count(*)
		FROM pg_class
		WHERE relnamespace = 'waybill'::regnamespace AND relkind IN ('r', 'p', 'v') AND relname <> 'schema_migration'`).Scan(&left)
	if err != nil || left != 0 {
		t.Errorf("%d tables left after all steps down, %v", left, err)
	}
	if err := postgres.Migrate(t.Context(), dsn, postgres.Up); err != nil {
		t.Fatal(err)
	}
	if got := applied(); got != all {
		t.Errorf("%d applied after going up again, want %d", got, all)
	}
}

func TestMigrationSQL_makesTheSameSchemaByHand(t *testing.T) {
	dsn := pgtest.EmptyDSN(t)
	text, err := postgres.MigrationSQL()
	if err != nil {
		t.Fatal(err)
	}
	conn := connect(t, dsn)
	if _, err := conn.PgConn().Exec(t.Context(), text).ReadAll(); err != nil {
		t.Fatal(err)
	}
	if err := postgres.Migrate(t.Context(), dsn, postgres.Up); err != nil {
		t.Fatalf("migrating what was made by hand: %v", err)
	}
	open(t, dsn)
}

// Nobody may wait for a key that a long transaction holds.
func TestInsertEvents_doesNotWaitForSomebodysOpenKey(t *testing.T) {
	a := newApplication(t)
	a.must(`BEGIN`)
	a.must(`SELECT waybill.publish('acme', 'a.b', '{}', idempotency_key => 'k')`)
	e := newEvent(a.tenant())
	e.IdempotencyKey = "k"
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if _, _, err := a.store.InsertEvents(ctx, []outbox.NewEvent{e}); outbox.FaultOf(err) != outbox.FaultLocked {
		t.Errorf("with the key taken: %v, want locked", err)
	}
	other := newEvent(a.tenant())
	if _, _, err := a.store.InsertEvents(ctx, []outbox.NewEvent{other}); err != nil {
		t.Errorf("without a key: %v", err)
	}
	a.must(`ROLLBACK`)
	got, _, err := a.store.InsertEvents(ctx, []outbox.NewEvent{e})
	if err != nil || got[0].Duplicate {
		t.Errorf("after the rollback: %+v, %v", got, err)
	}
}
