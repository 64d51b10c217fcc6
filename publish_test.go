package waybill_test

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/waybill-dev/waybill"
	"github.com/waybill-dev/waybill/internal/outbox"
	"github.com/waybill-dev/waybill/waybilltest"
)

// shardOf is the documented rule: the first byte of SHA-256 of the tenant's key.
func shardOf(tenant string) int { return int(sha256.Sum256([]byte(tenant))[0]) }

func paid(payload string) waybill.Event {
	return waybill.Event{Tenant: "acme", Type: "payment.succeeded", Payload: []byte(payload)}
}

// inEvery runs the test in every kind of database.
func inEvery(t *testing.T, test func(t *testing.T, db *sql.DB, d database)) {
	for _, d := range databases() {
		t.Run(d.name, func(t *testing.T) { test(t, d.open(t), d) })
	}
}

func begin(t *testing.T, db *sql.DB) *sql.Tx {
	t.Helper()
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tx.Rollback() })
	return tx
}

func TestPublish_standsAndFallsWithTheCallersTransaction(t *testing.T) {
	inEvery(t, func(t *testing.T, db *sql.DB, _ database) {
		run(t, db, `CREATE TABLE payment (id text PRIMARY KEY)`)
		count := func() (n int) {
			if err := db.QueryRowContext(t.Context(), `SELECT count(*) FROM payment`).Scan(&n); err != nil {
				t.Fatal(err)
			}
			return n
		}

		tx := begin(t, db)
		if _, err := tx.ExecContext(t.Context(), `INSERT INTO payment (id) VALUES ('pay_1')`); err != nil {
			t.Fatal(err)
		}
		id, err := waybill.Publish(t.Context(), tx, paid(`{"id":"pay_1"}`))
		if err != nil {
			t.Fatal(err)
		}
		waybilltest.RequirePublished(t, tx, waybill.Event{ID: id})
		if err := tx.Rollback(); err != nil {
			t.Fatal(err)
		}
		waybilltest.RequireNothingPublished(t, db)
		if n := count(); n != 0 {
			t.Errorf("after the rollback there are %d payments", n)
		}

		tx = begin(t, db)
		if _, err := tx.ExecContext(t.Context(), `INSERT INTO payment (id) VALUES ('pay_1')`); err != nil {
			t.Fatal(err)
		}
		id, err = waybill.Publish(t.Context(), tx, paid(`{"id":"pay_1"}`))
		if err != nil {
			t.Fatal(err)
		}
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		got := waybilltest.Published(t, db)
		want := paid(`{"id":"pay_1"}`)
		want.ID = id
		if diff := cmp.Diff([]waybill.Event{want}, got); diff != "" {
			t.Errorf("published (-want +got):\n%s", diff)
		}
		if n := count(); n != 1 {
			t.Errorf("after the commit there are %d payments", n)
		}
	})
}

func TestPublish_storesTheBytesAsTheyAre(t *testing.T) {
	payloads := []string{
		`{ "b": 1.0, "a": "<&>", "id": 9007199254740993 }`,
		"{\n\t\"spaced\" :\r\n [ ]\n}\n",
		` "leading space"`,
		`{"k":1,"k":2}`,
		`"it's a \"quote\", a back\\slash, a :name, a $1 and a %s"`,
		`"\u0000\ud83d\ude00\uD800"`,
		"\"\u2028 zażółć 支付 😀 \x7f\"",
		`-0.0e-0`,
		`null`,
		`""`,
		`[` + strings.Repeat(`[`, 900) + strings.Repeat(`]`, 900) + `]`,
		`"` + strings.Repeat("x", 256<<10-2) + `"`,
	}
	inEvery(t, func(t *testing.T, db *sql.DB, _ database) {
		for i, payload := range payloads {
			id, err := waybill.Publish(t.Context(), db, paid(payload))
			if err != nil {
				t.Fatalf("payload %d: %v", i, err)
			}
			waybilltest.RequirePublished(t, db, waybill.Event{ID: id, Payload: []byte(payload)})
		}
		events := make([]waybill.Event, len(payloads))
		for i, payload := range payloads {
			events[i] = paid(payload)
			events[i].Tenant = "globex"
		}
		ids, err := waybill.PublishAll(t.Context(), db, events)
		if err != nil {
			t.Fatal(err)
		}
		for i := range events {
			events[i].ID = ids[i]
		}
		waybilltest.RequirePublished(t, db, events...)
	})
}

func TestPublish_refusesABadEventAndLeavesTheTransactionUsable(t *testing.T) {
	with := func(change func(e *waybill.Event)) waybill.Event {
		e := paid(`{}`)
		change(&e)
		return e
	}
	cases := []struct {
		name  string
		event waybill.Event
		want  error
	}{
		{"no tenant", with(func(e *waybill.Event) { e.Tenant = "" }), waybill.ErrBadEvent},
		{"a tenant with a space", with(func(e *waybill.Event) { e.Tenant = "ac me" }), waybill.ErrBadEvent},
		{"a tenant of 65 characters", with(func(e *waybill.Event) { e.Tenant = strings.Repeat("a", 65) }), waybill.ErrBadEvent},
		{"a tenant with a newline at its end", with(func(e *waybill.Event) { e.Tenant = "acme\n" }), waybill.ErrBadEvent},
		{"the reserved tenant", with(func(e *waybill.Event) { e.Tenant = "waybill" }), waybill.ErrBadEvent},
		{"no type", with(func(e *waybill.Event) { e.Type = "" }), waybill.ErrBadEvent},
		{"a pattern for a type", with(func(e *waybill.Event) { e.Type = "payment.*" }), waybill.ErrBadEvent},
		{"a type with an empty word", with(func(e *waybill.Event) { e.Type = "payment..succeeded" }), waybill.ErrBadEvent},
		{"a type of 129 bytes", with(func(e *waybill.Event) { e.Type = strings.Repeat("t", 129) }), waybill.ErrBadEvent},
		{"an id of another kind", with(func(e *waybill.Event) { e.ID = "ep_01m8mnc692fxgt1qs89yv86m2t" }), waybill.ErrBadEvent},
		{"an id in upper case", with(func(e *waybill.Event) { e.ID = "evt_01M8MNC692FXGT1QS89YV86M2T" }), waybill.ErrBadEvent},
		{"an ordering key of 256 bytes", with(func(e *waybill.Event) { e.OrderingKey = strings.Repeat("k", 256) }), waybill.ErrBadEvent},
		{"an idempotency key of 256 bytes", with(func(e *waybill.Event) { e.IdempotencyKey = strings.Repeat("k", 256) }), waybill.ErrBadEvent},
		{"an idempotency key with a NUL", with(func(e *waybill.Event) { e.IdempotencyKey = "a\x00b" }), waybill.ErrBadEvent},
		{"metadata that is not UTF-8", with(func(e *waybill.Event) { e.Metadata = map[string]string{"k": "\xff"} }), waybill.ErrBadEvent},
		{"no payload", with(func(e *waybill.Event) { e.Payload = nil }), waybill.ErrInvalidPayload},
		{"a payload cut short", with(func(e *waybill.Event) { e.Payload = []byte(`{"a":`) }), waybill.ErrInvalidPayload},
		{"two payloads", with(func(e *waybill.Event) { e.Payload = []byte(`{} {}`) }), waybill.ErrInvalidPayload},
		{"a payload that is not UTF-8", with(func(e *waybill.Event) { e.Payload = []byte("\"\xff\"") }), waybill.ErrInvalidPayload},
		{"a payload with a byte order mark", with(func(e *waybill.Event) { e.Payload = []byte("\ufeff{}") }), waybill.ErrInvalidPayload},
		{"a payload over the hard limit", with(func(e *waybill.Event) { e.Payload = []byte(`"` + strings.Repeat("x", 1<<20) + `"`) }), waybill.ErrPayloadTooLarge},
	}
	inEvery(t, func(t *testing.T, db *sql.DB, _ database) {
		for _, c := range cases {
			t.Run(c.name, func(t *testing.T) {
				tx := begin(t, db)
				if id, err := waybill.Publish(t.Context(), tx, c.event); !errors.Is(err, c.want) {
					t.Errorf("Publish = %q, %v; want %v", id, err, c.want)
				}
				events := []waybill.Event{paid(`1`), c.event}
				if _, err := waybill.PublishAll(t.Context(), tx, events); !errors.Is(err, c.want) || !strings.Contains(err.Error(), "event 1") {
					t.Errorf("PublishAll: %v; want %v about event 1", err, c.want)
				}
				if err := tx.Commit(); err != nil {
					t.Errorf("the caller's transaction: %v", err)
				}
			})
		}
		waybilltest.RequireNothingPublished(t, db)
	})
}

func TestPublish_refusesWhatOnlyTheDatabaseKnows(t *testing.T) {
	inEvery(t, func(t *testing.T, db *sql.DB, _ database) {
		unknown := paid(`{}`)
		unknown.Tenant = "nobody"
		if _, err := waybill.Publish(t.Context(), db, unknown); !errors.Is(err, waybill.ErrUnknownTenant) {
			t.Errorf("an unknown tenant: %v", err)
		}
		large := paid(`"` + strings.Repeat("x", 256<<10-1) + `"`)
		if _, err := waybill.Publish(t.Context(), db, large); !errors.Is(err, waybill.ErrPayloadTooLarge) {
			t.Errorf("a payload of 256 KiB and one byte: %v", err)
		}
		if _, err := waybill.PublishAll(t.Context(), db, []waybill.Event{paid(`{}`), unknown}); !errors.Is(err, waybill.ErrUnknownTenant) {
			t.Errorf("one of two tenants unknown: %v", err)
		}
		waybilltest.RequireNothingPublished(t, db)
	})
}

func TestPublish_obeysTheInstancesSettings(t *testing.T) {
	inEvery(t, func(t *testing.T, db *sql.DB, d database) {
		if d.limits == "" {
			return // the stub has the defaults and nothing to set
		}
		run(t, db, d.limits)
		if _, err := waybill.Publish(t.Context(), db, paid(`"`+strings.Repeat("x", 998)+`"`)); err != nil {
			t.Errorf("1,000 bytes: %v", err)
		}
		if _, err := waybill.Publish(t.Context(), db, paid(`"`+strings.Repeat("x", 999)+`"`)); !errors.Is(err, waybill.ErrPayloadTooLarge) {
			t.Errorf("1,001 bytes: %v", err)
		}
		run(t, db, d.create)
		initech := paid(`{}`)
		initech.Tenant = "initech"
		for range 2 {
			if _, err := waybill.Publish(t.Context(), db, initech); err != nil {
				t.Errorf("a tenant to be made: %v", err)
			}
		}
		waybilltest.RequirePublished(t, db, initech, initech)
	})
}

func TestPublish_chosenID(t *testing.T) {
	inEvery(t, func(t *testing.T, db *sql.DB, _ database) {
		now := time.Now()
		for name, c := range map[string]struct {
			at time.Time
			ok bool
		}{
			"now":              {now, true},
			"23 hours ago":     {now.Add(-23 * time.Hour), true},
			"25 hours ago":     {now.Add(-25 * time.Hour), false},
			"4 minutes ahead":  {now.Add(4 * time.Minute), true},
			"6 minutes ahead":  {now.Add(6 * time.Minute), false},
			"the epoch":        {time.UnixMilli(0), false},
			"the end of times": {time.UnixMilli(1<<48 - 1), false},
		} {
			e := paid(`{}`)
			e.ID = outbox.NewEventID(c.at).String()
			id, err := waybill.Publish(t.Context(), db, e)
			if c.ok && (err != nil || id != e.ID) {
				t.Errorf("%s: %q, %v; want %q", name, id, err, e.ID)
			}
			if !c.ok && !errors.Is(err, waybill.ErrBadEvent) {
				t.Errorf("%s: %q, %v; want ErrBadEvent", name, id, err)
			}
		}

		e := paid(`{"once":true}`)
		e.ID = outbox.NewEventID(now).String()
		for range 2 {
			if id, err := waybill.Publish(t.Context(), db, e); err != nil || id != e.ID {
				t.Errorf("the same event under the same id: %q, %v", id, err)
			}
		}
		e.Payload = []byte(`{"once":false}`)
		if _, err := waybill.Publish(t.Context(), db, e); !errors.Is(err, waybill.ErrIdempotencyConflict) {
			t.Errorf("another payload under the same id: %v", err)
		}
		if n := len(waybilltest.Published(t, db)); n != 4 {
			t.Errorf("%d events, want the three with a good time and this one", n)
		}
	})
}

func TestPublish_idempotencyKey(t *testing.T) {
	inEvery(t, func(t *testing.T, db *sql.DB, d database) {
		keyed := func(tenant, eventType, payload string) (string, error) {
			return waybill.Publish(t.Context(), db, waybill.Event{
				Tenant: tenant, Type: eventType, Payload: []byte(payload), IdempotencyKey: "order 17",
			})
		}
		first, err := keyed("acme", "order.paid", `{"n":17}`)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := keyed("acme", "order.paid", `{"n":17}`); err != nil || again != first {
			t.Errorf("again: %q, %v; want the first event's id %q", again, err, first)
		}
		if _, err := keyed("acme", "order.paid", `{"n": 17}`); !errors.Is(err, waybill.ErrIdempotencyConflict) {
			t.Errorf("another payload: %v", err)
		}
		if _, err := keyed("acme", "order.refunded", `{"n":17}`); !errors.Is(err, waybill.ErrIdempotencyConflict) {
			t.Errorf("another type: %v", err)
		}
		other, err := keyed("globex", "order.paid", `{"n":18}`)
		if err != nil || other == first {
			t.Errorf("another tenant's key of the same name: %q, %v", other, err)
		}
		waybilltest.RequirePublished(t, db, waybill.Event{ID: first}, waybill.Event{ID: other})

		twice := paid(`{}`)
		twice.IdempotencyKey = "twice in one transaction"
		ids, err := waybill.PublishAll(t.Context(), db, []waybill.Event{twice, twice})
		if err != nil || ids[0] != ids[1] {
			t.Errorf("one key twice in one transaction: %q, %v", ids, err)
		}
		if n := len(waybilltest.Published(t, db)); n != 3 {
			t.Errorf("%d events, want 3", n)
		}

		if d.age == "" {
			return // the stub's keys last for ever
		}
		run(t, db, d.age)
		fresh, err := keyed("acme", "order.paid", `{"n":19}`)
		if err != nil || fresh == first {
			t.Errorf("a key whose retention is over: %q, %v; want another event than %q", fresh, err, first)
		}
		if again, err := keyed("acme", "order.paid", `{"n":19}`); err != nil || again != fresh {
			t.Errorf("and again: %q, %v; want %q", again, err, fresh)
		}
	})
}

func TestPublishAll_keepsTheOrder(t *testing.T) {
	inEvery(t, func(t *testing.T, db *sql.DB, _ database) {
		var events []waybill.Event
		for i := range 300 {
			e := paid(fmt.Sprintf(`{"n":%d}`, i))
			e.OrderingKey = "pay_1"
			e.Metadata = map[string]string{"n": fmt.Sprint(i)}
			events = append(events, e)
		}
		tx := begin(t, db)
		ids, err := waybill.PublishAll(t.Context(), tx, events)
		if err != nil {
			t.Fatal(err)
		}
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		byID := map[string]string{}
		for _, e := range waybilltest.Published(t, db) {
			byID[e.ID] = string(e.Payload)
		}
		if len(byID) != len(events) {
			t.Fatalf("%d events, want %d", len(byID), len(events))
		}
		for i, id := range ids {
			if want := string(events[i].Payload); byID[id] != want {
				t.Fatalf("id %d belongs to %s, want %s", i, byID[id], want)
			}
		}
		if none, err := waybill.PublishAll(t.Context(), db, nil); none != nil || err != nil {
			t.Errorf("no events: %v, %v", none, err)
		}
	})
}

func TestPublish_waitsForAnOpenTransactionWithTheSameKey(t *testing.T) {
	for _, d := range databases()[1:] { // SQLite has one writer at a time anyway
		for _, end := range []string{"commit", "rollback"} {
			t.Run(d.name+", "+end, func(t *testing.T) {
				db := d.open(t)
				e := paid(`{}`)
				e.IdempotencyKey = "k"
				tx := begin(t, db)
				first, err := waybill.Publish(t.Context(), tx, e)
				if err != nil {
					t.Fatal(err)
				}
				type answer struct {
					id  string
					err error
				}
				second := make(chan answer, 1)
				go func() {
					id, err := waybill.Publish(t.Context(), db, e)
					second <- answer{id, err}
				}()
				awaitLockWait(t, db)
				if end == "commit" {
					err = tx.Commit()
				} else {
					err = tx.Rollback()
				}
				if err != nil {
					t.Fatal(err)
				}
				got := <-second
				if got.err != nil {
					t.Fatal(got.err)
				}
				if same := got.id == first; same != (end == "commit") {
					t.Errorf("after the %s of %s the second publisher has %s", end, first, got.id)
				}
				if n := len(waybilltest.Published(t, db)); n != 1 {
					t.Errorf("%d events, want 1", n)
				}
			})
		}
	}
}

// awaitLockWait waits until a session of this database waits for another's lock.
func awaitLockWait(t *testing.T, db *sql.DB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	for waiting := false; !waiting; {
		err := db.QueryRowContext(ctx, `
			SELECT count(*) > 0
			FROM pg_stat_activity
			WHERE datname = current_database() AND wait_event_type = 'Lock'`,
		).Scan(&waiting)
		if err != nil {
			t.Fatalf("nobody waits for the key: %v", err)
		}
	}
}

func TestPublish_anErrorOfTheServerAbortsItsTransaction(t *testing.T) {
	for _, d := range databases()[1:] {
		t.Run(d.name, func(t *testing.T) {
			db := d.open(t)
			tx := begin(t, db)
			if _, err := waybill.Publish(t.Context(), tx, paid(`{"n":1}`)); err != nil {
				t.Fatal(err)
			}
			unknown := paid(`{}`)
			unknown.Tenant = "nobody"
			if _, err := waybill.Publish(t.Context(), tx, unknown); !errors.Is(err, waybill.ErrUnknownTenant) {
				t.Fatalf("an unknown tenant: %v", err)
			}
			if _, err := waybill.Publish(t.Context(), tx, paid(`{"n":2}`)); err == nil {
				t.Error("an aborted transaction took another event")
			}
			if err := tx.Commit(); err == nil {
				t.Error("an aborted transaction committed")
			}
			waybilltest.RequireNothingPublished(t, db)
		})
	}
}

func TestPublish_inSQLite(t *testing.T) {
	t.Run("a refused event leaves the transaction as it was", func(t *testing.T) {
		db := openSQLite(t)
		tx := begin(t, db)
		kept, err := waybill.Publish(t.Context(), tx, paid(`{"n":1}`))
		if err != nil {
			t.Fatal(err)
		}
		unknown := paid(`{}`)
		unknown.Tenant = "nobody"
		if _, err := waybill.PublishAll(t.Context(), tx, []waybill.Event{paid(`{"n":2}`), unknown}); !errors.Is(err, waybill.ErrUnknownTenant) {
			t.Fatal(err)
		}
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		got := waybilltest.Published(t, db)
		if len(got) != 1 || got[0].ID != kept {
			t.Errorf("published %v, want %s alone", got, kept)
		}
		requireOutbox(t, db, 1)
	})

	t.Run("a connection whose caller began by hand", func(t *testing.T) {
		db := openSQLite(t)
		conn, err := db.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		for _, end := range []string{"ROLLBACK", "COMMIT"} {
			if _, err := conn.ExecContext(t.Context(), "BEGIN IMMEDIATE"); err != nil {
				t.Fatal(err)
			}
			if _, err := waybill.Publish(t.Context(), conn, paid(`{}`)); err != nil {
				t.Fatal(err)
			}
			if _, err := conn.ExecContext(t.Context(), end); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := waybill.Publish(t.Context(), conn, paid(`{}`)); err != nil {
			t.Fatalf("without a transaction: %v", err)
		}
		requireOutbox(t, db, 2)
	})

	t.Run("a deferred transaction that read first is told what to do", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "app.db")
		db, err := openSQLiteFile(t.Context(), path, "")
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		run(t, db, `CREATE TABLE payment (id text)`)
		tx := begin(t, db)
		var n int
		if err := tx.QueryRowContext(t.Context(), `SELECT count(*) FROM payment`).Scan(&n); err != nil {
			t.Fatal(err)
		}
		run(t, db, `INSERT INTO payment (id) VALUES ('by somebody else')`)
		if _, err := waybill.Publish(t.Context(), tx, paid(`{}`)); err == nil || !strings.Contains(err.Error(), "BEGIN IMMEDIATE") {
			t.Errorf("%v; want the advice to use BEGIN IMMEDIATE", err)
		}
	})

	t.Run("many publishers at once", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "app.db")
		db, err := openSQLiteFile(t.Context(), path, "") // deferred: Publish takes the lock first of all
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		failed := make(chan error, 8)
		for range cap(failed) {
			go func() {
				for range 20 {
					if _, err := waybill.Publish(t.Context(), db, paid(`{}`)); err != nil {
						failed <- err
						return
					}
				}
				failed <- nil
			}()
		}
		for range cap(failed) {
			if err := <-failed; err != nil {
				t.Error(err)
			}
		}
		requireOutbox(t, db, 160)
	})

	t.Run("a context that has ended publishes nothing", func(t *testing.T) {
		db := openSQLite(t)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := waybill.Publish(ctx, db, paid(`{}`)); !errors.Is(err, context.Canceled) {
			t.Errorf("%v; want context.Canceled", err)
		}
		requireOutbox(t, db, 0)
	})
}

// requireOutbox fails the test unless there are n events and each has one outbox row that names it.
func requireOutbox(t *testing.T, db *sql.DB, n int) {
	t.Helper()
	var events, rows int
	err := db.QueryRowContext(t.Context(), `
		SELECT (SELECT count(*) FROM waybill_event),
		       (SELECT count(*)
		        FROM waybill_outbox AS o
		        JOIN waybill_event AS e ON e.shard = o.shard AND e.tenant = o.tenant AND e.id = o.event
		        WHERE o.kind = 0)`,
	).Scan(&events, &rows)
	if err != nil {
		t.Fatal(err)
	}
	if events != n || rows != n {
		t.Errorf("%d events and %d outbox rows that name one, want %d of each", events, rows, n)
	}
}
