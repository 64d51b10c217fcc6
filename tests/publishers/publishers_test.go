package publishers

import (
	"database/sql"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/waybill-dev/waybill"
	"github.com/waybill-dev/waybill/internal/postgres/pgtest"
	"github.com/waybill-dev/waybill/internal/sqlstub"
	"github.com/waybill-dev/waybill/waybilltest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// schemas are the two an application meets: the real one, and the stub in its own tests.
var schemas = []struct {
	name string
	dsn  func(t *testing.T) string
}{
	{"the real schema", func(t *testing.T) string { return pgtest.DSN(t) }},
	{"the stub", func(t *testing.T) string {
		dsn := pgtest.EmptyDSN(t)
		db := open(t, dsn)
		run(t, db, sqlstub.SQL)
		run(t, db, sqlstub.SQL) // again: it changes nothing
		return dsn
	}},
}

func TestPublishers_sameBytesSameRefusals(t *testing.T) {
	for _, schema := range schemas {
		t.Run(schema.name, func(t *testing.T) {
			dsn := schema.dsn(t)
			db := open(t, dsn)
			run(t, db, `CREATE TABLE app_order (id text PRIMARY KEY)`)
			run(t, db, `SELECT waybill.ensure_tenant('acme'), waybill.ensure_tenant('globex', 'Globex Inc')`)
			for _, p := range publishers() {
				t.Run(p.name, func(t *testing.T) { sameBytesSameRefusals(t, dsn, db, p) })
			}
		})
	}
}

// Everything a driver or a shell could stumble over: white space, quotes, backslashes, dollar
// and colon and percent signs, characters beyond the first plane, numbers beyond 2^53.
var (
	awkward = waybill.Event{
		Tenant:      "acme",
		Type:        "payment.succeeded",
		Payload:     []byte("{ \"b\": 1.0, \"a\": \"<&>\",\n\t\"id\": 9007199254740993, \"q\": \"it's \\\\ \\\" $1 :a %s ?\", \"u\": \"\\u0000 zażółć 😀\" }"),
		OrderingKey: "it's :ordered",
		Metadata:    map[string]string{"order": "o'17", "näme": "\\"},
	}
	plain = waybill.Event{Tenant: "globex", Type: "ping", Payload: []byte(`null`)}
	large = waybill.Event{Tenant: "acme", Type: "large", Payload: []byte(`"` + strings.Repeat("é", 128<<10-1) + `"`)}
)

func sameBytesSameRefusals(t *testing.T, dsn string, db *sql.DB, p publisher) {
	keyed, other := plain, plain
	keyed.IdempotencyKey, other.IdempotencyKey = p.name, p.name
	other.Payload = []byte(`{}`)
	refused := []struct {
		state string
		event waybill.Event
	}{
		{"WB001", waybill.Event{Tenant: "nobody", Type: "ping", Payload: []byte(`{}`)}},
		{"WB002", waybill.Event{Tenant: "acme", Type: "ping", Payload: []byte(`{"a":`)}},
		{"WB003", waybill.Event{Tenant: "acme", Type: "large", Payload: []byte(`"` + strings.Repeat("x", 256<<10-1) + `"`)}},
		{"WB004", other},
		{"WB005", waybill.Event{Tenant: "acme", Type: "not a type", Payload: []byte(`{}`)}},
	}
	events := []waybill.Event{awkward, plain, large}
	todo := []transaction{
		{Order: p.name, Events: events},
		{Order: p.name + " undone", Events: events, Rollback: true},
		{Order: p.name + " first", Events: []waybill.Event{keyed}},
		{Order: p.name + " second", Events: []waybill.Event{keyed}},
	}
	for _, r := range refused {
		todo = append(todo, transaction{Order: p.name + " " + r.state, Events: []waybill.Event{plain, r.event}})
	}

	before := count(t, db)
	got := p.run(t, dsn, todo)
	committed, undone, first, second := got[0], got[1], got[2], got[3]

	if len(committed.IDs) != len(events) {
		t.Fatalf("%+v, want three ids", committed)
	}
	for i, e := range events {
		var tenant, eventType, payload, orderingKey string
		err := db.QueryRowContext(t.Context(), `
			SELECT tenant, type, payload, coalesce(ordering_key, '')
			FROM waybill.published
			WHERE id = $1`, committed.IDs[i],
		).Scan(&tenant, &eventType, &payload, &orderingKey)
		if err != nil {
			t.Fatalf("event %d: %v", i, err)
		}
		want := []string{e.Tenant, e.Type, string(e.Payload), e.OrderingKey}
		if diff := cmp.Diff(want, []string{tenant, eventType, payload, orderingKey}); diff != "" {
			t.Errorf("event %d (-want +got):\n%s", i, diff)
		}
	}
	if len(undone.IDs) != len(events) {
		t.Errorf("before it was rolled back: %+v, want three ids", undone)
	}
	if diff := cmp.Diff(first, second); diff != "" || len(first.IDs) != 1 {
		t.Errorf("the same key in two transactions: %+v, then %+v", first, second)
	}
	for i, r := range refused {
		if state := got[4+i].SQLState; state != r.state {
			t.Errorf("%+v, want %s", got[4+i], r.state)
		}
	}
	// Three events and one under its key; the application's own rows stand and fall with them.
	if more := count(t, db) - before; more != 4 {
		t.Errorf("%d events more, want 4", more)
	}
	for i, tx := range todo {
		requireOrder(t, db, tx.Order, i == 0 || i == 2 || i == 3)
	}
}

// The overloads let a payload come as what an application has at hand; for jsonb the bytes are
// its text form.
func TestPublishers_payloadTypes(t *testing.T) {
	for _, schema := range schemas {
		t.Run(schema.name, func(t *testing.T) {
			db := open(t, schema.dsn(t))
			run(t, db, `SELECT waybill.ensure_tenant('acme')`)
			for _, c := range []struct{ expression, want, state string }{
				{`'{"b":1,  "a":2}'`, `{"b":1,  "a":2}`, ""},
				{`'{"b":1,  "a":2}'::text`, `{"b":1,  "a":2}`, ""},
				{`'{"b":1,  "a":2}'::varchar`, `{"b":1,  "a":2}`, ""},
				{`'{"b":1,  "a":2}'::json`, `{"b":1,  "a":2}`, ""},
				{`'{"b":1,  "a":2}'::jsonb`, `{"a": 2, "b": 1}`, ""},
				{`convert_to('{"b":1,  "a":2}', 'UTF8')`, `{"b":1,  "a":2}`, ""},
				{`json_build_object('n', 1)`, `{"n" : 1}`, ""},
				{`to_jsonb(7)`, `7`, ""},
				{`'\xff'::bytea`, "", "WB002"},
				{`''::bytea`, "", "WB002"},
				{`''`, "", "WB002"},
				{`NULL`, "", "WB002"},
				{`NULL::jsonb`, "", "WB002"},
				{`NULL::bytea`, "", "WB002"},
			} {
				var id string
				err := db.QueryRowContext(t.Context(), `SELECT waybill.publish(tenant => 'acme', type => 'ping', payload => `+c.expression+`)`).Scan(&id)
				if c.state != "" {
					if state, ok := err.(interface{ SQLState() string }); !ok || state.SQLState() != c.state {
						t.Errorf("%s: %v, want %s", c.expression, err, c.state)
					}
					continue
				}
				if err != nil {
					t.Errorf("%s: %v", c.expression, err)
					continue
				}
				waybilltest.RequirePublished(t, db, waybill.Event{ID: id, Payload: []byte(c.want)})
			}
		})
	}
}

func TestPublishers_theStubKnowsTheRealSchema(t *testing.T) {
	db := open(t, pgtest.DSN(t))
	if _, err := db.ExecContext(t.Context(), sqlstub.SQL); err == nil || !strings.Contains(err.Error(), "real waybill schema") {
		t.Errorf("the stub over the real schema: %v", err)
	}
}

// The stub would mislead if an application could call it in a way the real schema refuses.
func TestPublishers_theStubHasTheSameSignatures(t *testing.T) {
	signatures := func(dsn string) string {
		var text string
		err := open(t, dsn).QueryRowContext(t.Context(), `
			SELECT string_agg(
				format('%s(%s) returns %s', p.proname, pg_get_function_arguments(p.oid), pg_get_function_result(p.oid)),
				chr(10) ORDER BY p.proname, pg_get_function_arguments(p.oid))
			FROM pg_proc AS p
			WHERE p.pronamespace = 'waybill'::regnamespace AND p.proname IN ('publish', 'ensure_tenant')`,
		).Scan(&text)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	if diff := cmp.Diff(signatures(schemas[0].dsn(t)), signatures(schemas[1].dsn(t))); diff != "" {
		t.Errorf("functions (-real +stub):\n%s", diff)
	}
	columns := func(dsn string) string {
		var text string
		err := open(t, dsn).QueryRowContext(t.Context(), `
			SELECT string_agg(format('%s %s', attname, format_type(atttypid, atttypmod)), ', ' ORDER BY attnum)
			FROM pg_attribute
			WHERE attrelid = 'waybill.published'::regclass AND attnum > 0`,
		).Scan(&text)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	if diff := cmp.Diff(columns(schemas[0].dsn(t)), columns(schemas[1].dsn(t))); diff != "" {
		t.Errorf("the view published (-real +stub):\n%s", diff)
	}
}

func open(t *testing.T, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open("pgx", dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

func run(t *testing.T, db *sql.DB, statement string) {
	t.Helper()
	if _, err := db.ExecContext(t.Context(), statement); err != nil {
		t.Fatalf("%v\n%.200s", err, statement)
	}
}

func count(t *testing.T, db *sql.DB) (n int) {
	t.Helper()
	if err := db.QueryRowContext(t.Context(), `SELECT count(*) FROM waybill.published`).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// requireOrder fails the test unless the application's own row is there, or is not.
func requireOrder(t *testing.T, db *sql.DB, id string, want bool) {
	t.Helper()
	var got bool
	err := db.QueryRowContext(t.Context(), `SELECT count(*) = 1 FROM app_order WHERE id = $1`, id).Scan(&got)
	if err != nil {
		t.Fatal(err)
	}
	if got != want {
		t.Errorf("the application's row %q is there: %t, want %t", id, got, want)
	}
}

// file puts the bytes into a file of the test and names it.
func file(t *testing.T, content []byte) string {
	t.Helper()
	f, err := os.CreateTemp(t.TempDir(), "payload")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Write(content); err != nil {
		t.Fatal(err)
	}
	return filepath.ToSlash(f.Name())
}
