package postgres_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/waybill-dev/waybill/internal/outbox"
)

const days = 24 * time.Hour

func TestMaintain_retiresDaysWithoutBlockingAnOpenPublisher(t *testing.T) {
	a := newApplication(t)
	now := time.Now().UTC()
	maintenance := outbox.Maintenance{Now: now.Add(9 * days), Retention: 7 * days, IdempotencyRetention: days}
	today, tomorrow := "event_"+now.Format("20060102"), "event_"+now.Add(days).Format("20060102")

	a.must(`BEGIN`)
	a.must(`SELECT waybill.publish('acme', 'a.b', '{}')`)
	// That transaction has its hands on the days to be retired, and stays.
	maintained := make(chan error, 1)
	go func() { maintained <- a.store.Maintain(context.WithoutCancel(t.Context()), maintenance) }()
	other := connect(t, a.dsn)
	for range 200 {
		began := time.Now()
		publishAt(t, other, "acme")
		if waited := time.Since(began); waited > 15*time.Second {
			t.Fatalf("a publisher waited %v", waited)
		}
	}
	if err := <-maintained; err != nil {
		t.Fatal(err)
	}
	a.must(`COMMIT`)

	if err := a.store.Maintain(t.Context(), maintenance); err != nil {
		t.Fatal(err)
	}
	partitions := a.text(`
		SELECT string_agg(c.relname, ' ' ORDER BY c.relname)
		FROM pg_class AS c
		WHERE c.relname LIKE 'event\_2%' AND c.relkind = 'r'`)
	if contains(partitions, today) || contains(partitions, tomorrow) {
		t.Errorf("%s and %s are still there: %s", today, tomorrow, partitions)
	}
	if last := "event_" + maintenance.Now.Add(7*days).Format("20060102"); !contains(partitions, last) {
		t.Errorf("%s was not made ahead: %s", last, partitions)
	}
	// Nobody routed the events, so they are all kept.
	if n := a.text(`SELECT count(*)::text FROM waybill.event_kept`); n != a.text(`SELECT count(*)::text FROM waybill.outbox`) {
		t.Errorf("%s events kept, want every one that waits", n)
	}
	report, err := a.store.Verify(t.Context(), true)
	if err != nil || !report.Balanced() {
		t.Errorf("the books: %+v, %v", report, err)
	}
}

// publishAt publishes, if today has not been retired under the publisher yet: the maintainer's
// clock is days ahead.
func publishAt(t *testing.T, conn *pgx.Conn, tenant string) {
	t.Helper()
	if _, err := conn.Exec(t.Context(), `SELECT waybill.publish($1, 'a.b', '{}'::text)`, tenant); err != nil && !noPartition(err) {
		t.Fatal(err)
	}
}

func TestMaintain_finishesWhatWasCutOff(t *testing.T) {
	a := newApplication(t)
	now := time.Now().UTC()
	// A reader's snapshot keeps a detachment from ending.
	reader := connect(t, a.dsn)
	for _, statement := range []string{`BEGIN ISOLATION LEVEL REPEATABLE READ`, `SELECT count(*) FROM waybill.event`} {
		if _, err := reader.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	maintenance := outbox.Maintenance{Now: now.Add(9 * days), Retention: 7 * days, IdempotencyRetention: days}
	if err := a.store.Maintain(t.Context(), maintenance); err != nil {
		t.Fatal(err)
	}
	if n := a.text(`SELECT count(*)::text FROM pg_inherits WHERE inhdetachpending`); n == "0" {
		t.Fatal("nothing was cut off; the test shows nothing")
	}
	if _, err := reader.Exec(t.Context(), `COMMIT`); err != nil {
		t.Fatal(err)
	}
	if err := a.store.Maintain(t.Context(), maintenance); err != nil {
		t.Fatal(err)
	}
	if n := a.text(`SELECT count(*)::text FROM pg_inherits WHERE inhdetachpending`); n != "0" {
		t.Errorf("%s days are still half detached", n)
	}
	if n := a.text(`SELECT count(*)::text FROM pg_class WHERE relname = 'event_' || to_char(now() AT TIME ZONE 'UTC', 'YYYYMMDD')`); n != "0" {
		t.Error("today is still there")
	}
}

func TestMaintain_onlyOneNodeWorks(t *testing.T) {
	a := newApplication(t)
	a.must(`BEGIN`)
	a.must(`SELECT pg_advisory_xact_lock($1)`, 0x77617962)
	maintenance := outbox.Maintenance{Now: time.Now().Add(9 * days), Retention: 7 * days, IdempotencyRetention: days}
	if err := a.store.Maintain(t.Context(), maintenance); err != nil {
		t.Fatal(err)
	}
	if n := a.text(`SELECT count(*)::text FROM pg_class WHERE relname = 'event_' || to_char(now() AT TIME ZONE 'UTC', 'YYYYMMDD')`); n != "1" {
		t.Error("a second node did the work too")
	}
}

func TestInsertEvents_refusesAnEventOfNoDay(t *testing.T) {
	a := newApplication(t)
	e := outbox.NewEvent{Event: outbox.Event{
		ID: outbox.NewEventID(time.Now().Add(-30 * days)), Tenant: a.tenant().TenantRef, Type: "a.b", Payload: []byte("{}"), CreatedAt: time.Now(),
	}}
	_, _, err := a.store.InsertEvents(t.Context(), []outbox.NewEvent{e})
	if outbox.FaultOf(err) != outbox.FaultRefused {
		t.Errorf("%v, want it refused: there is no default partition", errors.Unwrap(err))
	}
}

func contains(list, name string) bool { return slices.Contains(strings.Fields(list), name) }

func noPartition(err error) bool {
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	return ok && pgErr.Code == "23514"
}
