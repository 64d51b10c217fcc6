package postgres_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/waybill-dev/waybill/internal/keyring"
	"github.com/waybill-dev/waybill/internal/outbox"
	"github.com/waybill-dev/waybill/internal/postgres"
	"github.com/waybill-dev/waybill/internal/postgres/pgtest"
)

// application is a connection of somebody who publishes by SQL, beside a store.
type application struct {
	*pgx.Conn
	t     *testing.T
	dsn   string
	store *postgres.Store
}

func newApplication(t *testing.T) *application {
	t.Helper()
	dsn := pgtest.DSN(t)
	a := &application{Conn: connect(t, dsn), t: t, dsn: dsn, store: open(t, dsn)}
	a.must(`SELECT waybill.ensure_tenant('acme', 'Acme Inc')`)
	return a
}

func connect(t *testing.T, dsn string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(context.WithoutCancel(t.Context())) })
	return conn
}

func open(t testing.TB, dsn string) *postgres.Store {
	t.Helper()
	keys, err := keyring.New(keyring.NewKey())
	if err != nil {
		t.Fatal(err)
	}
	store, err := postgres.Open(t.Context(), postgres.Config{URL: dsn, MaxConns: 4, Keyring: keys, Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	return store
}

func (a *application) must(sql string, args ...any) {
	a.t.Helper()
	if _, err := a.Exec(a.t.Context(), sql, args...); err != nil {
		a.t.Fatal(err)
	}
}

func (a *application) text(sql string, args ...any) string {
	a.t.Helper()
	var s string
	if err := a.QueryRow(a.t.Context(), sql, args...).Scan(&s); err != nil {
		a.t.Fatal(err)
	}
	return s
}

func (a *application) tenant() outbox.Tenant {
	a.t.Helper()
	tenant, err := a.store.Tenant(a.t.Context(), "acme")
	if err != nil {
		a.t.Fatal(err)
	}
	return tenant
}

func TestPublish_keepsTheBytesOfEveryOverload(t *testing.T) {
	a := newApplication(t)
	for what, c := range map[string]struct{ call, want string }{
		"literal": {`'{"id" :  "pay_1"}'`, `{"id" :  "pay_1"}`},
		"text":    {`'{"b":1, "a":2.50,"a":"ü"}'::text`, `{"b":1, "a":2.50,"a":"ü"}`},
		"json":    {`'[1 , 2]'::json`, `[1 , 2]`},
		"jsonb":   {`'{"bb":1,"a":2.50}'::jsonb`, `{"a": 2.50, "bb": 1}`},
		"bytea":   {`'\x7b7d0a'::bytea`, "{}\n"},
	} {
		id, err := outbox.ParseEventID(a.text(`SELECT waybill.publish(tenant => 'acme', type => 'a.b', payload => ` + c.call + `)`))
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		got, err := a.store.Payload(t.Context(), a.tenant().TenantRef, id)
		if err != nil || string(got) != c.want {
			t.Errorf("%s: %q, %v; want %q", what, got, err, c.want)
		}
		event, err := a.store.Event(t.Context(), a.tenant().TenantRef, id)
		if err != nil || event.SHA256 != sha256.Sum256([]byte(c.want)) || event.State != outbox.EventUnrouted {
			t.Errorf("%s: %+v, %v", what, event, err)
		}
		if age := time.Since(id.Time()); age < -time.Minute || age > time.Minute {
			t.Errorf("%s: the id is of %v", what, id.Time())
		}
	}
}

func TestPublish_writesEverythingItIsGiven(t *testing.T) {
	a := newApplication(t)
	chosen := outbox.NewEventID(time.Now().Add(-time.Hour))
	got := a.text(`
		SELECT waybill.publish(tenant => 'acme', type => 'a.b', payload => '{}', id => $1,
			ordering_key => 'order-1', idempotency_key => 'k', metadata => '{"source":"test"}')`, chosen.String())
	if got != chosen.String() {
		t.Errorf("id %s, want %s", got, chosen)
	}
	event, err := a.store.Event(t.Context(), a.tenant().TenantRef, chosen)
	if err != nil {
		t.Fatal(err)
	}
	if event.OrderingKey != "order-1" || event.Type != "a.b" || !cmp.Equal(event.Metadata, map[string]string{"source": "test"}) {
		t.Errorf("stored: %+v", event)
	}
	rows, err := a.store.ReadOutbox(t.Context(), []outbox.Shard{a.tenant().Shard}, []int64{0}, 10)
	if err != nil || len(rows) != 1 || rows[0].Event != chosen || rows[0].Kind != outbox.OutboxEvent {
		t.Errorf("outbox: %+v, %v", rows, err)
	}
	row := a.text(`SELECT concat_ws(' ', id, tenant, type, payload, ordering_key) FROM waybill.published`)
	if want := chosen.String() + " acme a.b {} order-1"; row != want {
		t.Errorf("published: %q, want %q", row, want)
	}
}

func TestPublish_writesIDsAsTheyAreReadElsewhere(t *testing.T) {
	a := newApplication(t)
	for range 200 {
		id := outbox.NewEventID(time.Now())
		if got := a.text(`SELECT waybill.event_id($1)`, [16]byte(id)); got != id.String() {
			t.Fatalf("%x is written %s, want %s", id[:], got, id)
		}
		if got := a.text(`SELECT waybill.parse_event_id($1)::text`, id.String()); strings.ReplaceAll(got, "-", "") != hex(id[:]) {
			t.Fatalf("%s is read as %s", id, got)
		}
	}
}

func hex(b []byte) string {
	const digits = "0123456789abcdef"
	var s strings.Builder
	for _, c := range b {
		s.WriteByte(digits[c>>4])
		s.WriteByte(digits[c&15])
	}
	return s.String()
}

func TestPublish_refusesBadInputByName(t *testing.T) {
	a := newApplication(t)
	a.must(`SELECT waybill.publish('acme', 'a.b', '{}', idempotency_key => 'taken')`)
	taken := outbox.NewEventID(time.Now())
	a.must(`SELECT waybill.publish('acme', 'a.b', '{}', id => $1)`, taken.String())
	waiting := a.text(`SELECT count(*)::text FROM waybill.outbox`)

	id := func(at time.Duration) string { return "id => '" + outbox.NewEventID(time.Now().Add(at)).String() + "'" }
	for what, c := range map[string]struct{ args, code, field string }{
		"unknown tenant":           {`'nobody', 'a.b', '{}'`, "WB001", "tenant"},
		"tenant that is no key":    {`'no body', 'a.b', '{}'`, "WB005", "tenant"},
		"reserved tenant":          {`'waybill', 'a.b', '{}'`, "WB005", "tenant"},
		"no tenant":                {`NULL, 'a.b', '{}'`, "WB005", "tenant"},
		"no type":                  {`'acme', NULL, '{}'`, "WB005", "type"},
		"type with a space":        {`'acme', 'a b', '{}'`, "WB005", "type"},
		"type with an empty word":  {`'acme', 'a..b', '{}'`, "WB005", "type"},
		"type of two lines":        {`'acme', E'a\nb', '{}'`, "WB005", "type"},
		"type too long":            {`'acme', repeat('a', 129), '{}'`, "WB005", "type"},
		"no payload":               {`'acme', 'a.b', NULL::text`, "WB002", "payload"},
		"empty payload":            {`'acme', 'a.b', ''`, "WB002", "payload"},
		"payload that is not JSON": {`'acme', 'a.b', '{'`, "WB002", "payload"},
		"bytes that are not UTF-8": {`'acme', 'a.b', '\x22ff22'::bytea`, "WB002", "payload"},
		"bytes that are not JSON":  {`'acme', 'a.b', '\x7b'::bytea`, "WB002", "payload"},
		"payload too deep to read": {`'acme', 'a.b', repeat('[', 100000)`, "WB002", "payload"},
		"payload too large":        {`'acme', 'a.b', to_json(repeat('x', 262143))`, "WB003", "payload"},
		"key with other content":   {`'acme', 'a.b', '[]', idempotency_key => 'taken'`, "WB004", "idempotency_key"},
		"key with another type":    {`'acme', 'a.c', '{}', idempotency_key => 'taken'`, "WB004", "idempotency_key"},
		"id with other content":    {`'acme', 'a.b', '[]', id => '` + taken.String() + `'`, "WB004", "id"},
		"id with another type":     {`'acme', 'a.c', '{}', id => '` + taken.String() + `'`, "WB004", "id"},
		"id without a prefix":      {`'acme', 'a.b', '{}', id => '01m8mnc692fxgt1qs89yv86m2t'`, "WB005", "id"},
		"id in capitals":           {`'acme', 'a.b', '{}', id => upper('` + taken.String() + `')`, "WB005", "id"},
		"id that is too large":     {`'acme', 'a.b', '{}', id => 'evt_81m8mnc692fxgt1qs89yv86m2t'`, "WB005", "id"},
		"id of the day before":     {`'acme', 'a.b', '{}', ` + id(-24*time.Hour-time.Minute), "WB005", "id"},
		"id of later":              {`'acme', 'a.b', '{}', ` + id(6*time.Minute), "WB005", "id"},
		"ordering key too long":    {`'acme', 'a.b', '{}', ordering_key => repeat('x', 256)`, "WB005", "ordering_key"},
		"key too long":             {`'acme', 'a.b', '{}', idempotency_key => repeat('x', 256)`, "WB005", "idempotency_key"},
		"metadata that is a list":  {`'acme', 'a.b', '{}', metadata => '[]'`, "WB005", "metadata"},
		"metadata with a number":   {`'acme', 'a.b', '{}', metadata => '{"n":1}'`, "WB005", "metadata"},
		"metadata with 51 entries": {`'acme', 'a.b', '{}', metadata => (SELECT jsonb_object_agg(n, '') FROM generate_series(1, 51) AS n)`, "WB005", "metadata"},
	} {
		_, err := a.Exec(t.Context(), `SELECT waybill.publish(`+c.args+`)`)
		pgErr, ok := errors.AsType[*pgconn.PgError](err)
		if !ok || pgErr.Code != c.code || pgErr.ColumnName != c.field || !strings.HasPrefix(pgErr.Message, c.field) {
			t.Errorf("%s: %v, want %s naming %s", what, err, c.code, c.field)
		}
	}
	if got := a.text(`SELECT count(*)::text FROM waybill.outbox`); got != waiting {
		t.Errorf("%s rows wait, want %s as before", got, waiting)
	}
	// The edges of what is allowed.
	a.must(`SELECT waybill.publish('acme', 'a.b', '{}', ` + id(-24*time.Hour+time.Minute) + `)`)
	a.must(`SELECT waybill.publish('acme', 'a.b', '{}', ` + id(4*time.Minute) + `)`)
	a.must(`SELECT waybill.publish('acme', 'a.b', to_json(repeat('x', 262142)))`)
	a.must(`SELECT waybill.publish('acme', 'a.b', repeat('[', 1001) || repeat(']', 1001))`)
}

func TestPublish_meetsItsDuplicatesWhoeverWroteThem(t *testing.T) {
	a := newApplication(t)
	bySQL := a.text(`SELECT waybill.publish('acme', 'a.b', '{"n":1}', idempotency_key => 'k')`)
	if again := a.text(`SELECT waybill.publish('acme', 'a.b', '{"n":1}', idempotency_key => 'k')`); again != bySQL {
		t.Errorf("again by SQL: %s, want %s", again, bySQL)
	}
	event := func(key, payload string) outbox.NewEvent {
		now := time.Now().UTC()
		return outbox.NewEvent{IdempotencyKey: key, Event: outbox.Event{
			ID: outbox.NewEventID(now), Tenant: a.tenant().TenantRef, Type: "a.b",
			Payload: []byte(payload), SHA256: sha256.Sum256([]byte(payload)), CreatedAt: now,
		}}
	}
	insert := func(e outbox.NewEvent) outbox.Accepted {
		t.Helper()
		got, conflicts, err := a.store.InsertEvents(t.Context(), []outbox.NewEvent{e})
		if err != nil || len(conflicts) > 0 {
			t.Fatal(conflicts, err)
		}
		return got[0]
	}
	if got := insert(event("k", `{"n":1}`)); !got.Duplicate || got.ID.String() != bySQL {
		t.Errorf("again by the API: %+v, want a duplicate of %s", got, bySQL)
	}
	byAPI := insert(event("other", `{"n":2}`))
	if got := a.text(`SELECT waybill.publish('acme', 'a.b', '{"n":2}', idempotency_key => 'other')`); got != byAPI.ID.String() {
		t.Errorf("by SQL after the API: %s, want %s", got, byAPI.ID)
	}
	if got := a.text(`SELECT waybill.publish('acme', 'a.b', '{"n":2}', id => $1)`, byAPI.ID.String()); got != byAPI.ID.String() {
		t.Errorf("the same id and bytes: %s", got)
	}
	// A key is free again once its retention is over, pruned or not.
	a.must(`UPDATE waybill.idempotency SET created_at = created_at - interval '25 hours'`)
	if got := a.text(`SELECT waybill.publish('acme', 'a.b', '{"n":3}', idempotency_key => 'k')`); got == bySQL {
		t.Error("a key outlives its retention")
	}
	if n := a.text(`SELECT count(*)::text FROM waybill.outbox`); n != "3" {
		t.Errorf("%s rows wait, want 3", n)
	}
}

func TestPublish_followsTheSettings(t *testing.T) {
	a := newApplication(t)
	err := a.store.WriteSettings(t.Context(), outbox.Settings{
		MaxPayload: 10, Retention: 36 * time.Hour, IdempotencyRetention: time.Hour, CreateUnknownTenants: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	a.must(`SELECT waybill.publish('newcomer', 'a.b', '{}')`)
	if _, err := a.store.Tenant(t.Context(), "newcomer"); err != nil {
		t.Errorf("the tenant was not made: %v", err)
	}
	for what, args := range map[string]string{
		"a bad key is still refused":                     `'new comer', 'a.b', '{}'`,
		"eleven bytes":                                   `'acme', 'a.b', '"123456789"'`,
		"an id whose day will be dropped within the day": `'acme', 'a.b', '{}', id => '` + outbox.NewEventID(time.Now().Add(-13*time.Hour)).String() + `'`,
	} {
		if _, err := a.Exec(t.Context(), `SELECT waybill.publish(`+args+`)`); err == nil {
			t.Errorf("%s: accepted", what)
		}
	}
}

func TestPublish_needsNothingButExecute(t *testing.T) {
	a := newApplication(t)
	const role = "waybill_test_publisher"
	for range 2 { // making it twice is as good as once
		if err := postgres.MakePublisherRole(t.Context(), a.dsn, role); err != nil {
			t.Fatal(err)
		}
	}
	a.must(`SET ROLE ` + role)
	// A search path of the caller's own must not lead the function astray.
	a.must(`CREATE TEMPORARY TABLE event (id int)`)
	a.must(`SET search_path = pg_temp, public`)
	a.must(`SELECT waybill.ensure_tenant('globex')`)
	a.must(`SELECT waybill.publish(tenant => 'globex', type => 'a.b', payload => '{}', idempotency_key => 'k', id => $1)`, outbox.NewEventID(time.Now()).String())
	for _, statement := range []string{
		`SELECT * FROM waybill.event`,
		`SELECT * FROM waybill.published`,
		`SELECT * FROM waybill.tenant`,
		`INSERT INTO waybill.outbox (shard, kind, tenant, event) VALUES (1, 0, 1, gen_random_uuid())`,
		`SELECT waybill.accept('globex', 'a.b', '\x7b7d', true, NULL, NULL, NULL, NULL)`,
		`SELECT waybill.add_partition('event', '2100-01-01')`,
		`CREATE TABLE waybill.mine ()`,
	} {
		_, err := a.Exec(t.Context(), statement)
		if pgErr, ok := errors.AsType[*pgconn.PgError](err); !ok || pgErr.Code != "42501" {
			t.Errorf("%s: %v, want it refused", statement, err)
		}
	}
	a.must(`RESET ROLE`)
}

func TestPublish_holdsNobodyUp(t *testing.T) {
	a := newApplication(t)
	other := connect(t, a.dsn)
	a.must(`BEGIN`)
	a.must(`SELECT waybill.ensure_tenant('acme-2')`)
	a.must(`SELECT waybill.publish('acme', 'a.b', '{}')`)
	// While that transaction stays open, everybody else goes on.
	for _, statement := range []string{
		`SET lock_timeout = '1s'`,
		`SELECT waybill.publish('acme', 'a.b', '{}')`,
		`UPDATE waybill.tenant SET name = 'new' WHERE key = 'acme'`,
		`SELECT waybill.ensure_tenant('acme-3')`,
	} {
		if _, err := other.Exec(t.Context(), statement); err != nil {
			t.Errorf("%s: %v", statement, err)
		}
	}
	a.must(`ROLLBACK`)
	if n := a.text(`SELECT count(*)::text FROM waybill.event`); n != "1" {
		t.Errorf("%s events after a rollback, want the other's", n)
	}
}
