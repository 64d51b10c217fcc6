package publishers

import (
	"database/sql"
	"errors"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	_ "modernc.org/sqlite"
	"pgregory.net/rapid"

	"github.com/waybill-dev/waybill"
	"github.com/waybill-dev/waybill/internal/outbox"
	"github.com/waybill-dev/waybill/internal/sqlite"
)

// An event is refused for the same reason whether Go judges it (as it does for SQLite) or the
// function in the database, which judges for every other language: generated events, most of
// them a little wrong, meet both.
func TestPublishers_goAndSQLJudgeAlike(t *testing.T) {
	byGo := openSQLite(t)
	for _, schema := range schemas {
		t.Run(schema.name, func(t *testing.T) {
			bySQL := open(t, schema.dsn(t))
			run(t, bySQL, `SELECT waybill.ensure_tenant('acme')`)
			rapid.Check(t, func(rt *rapid.T) {
				e := events().Draw(rt, "event")
				want := judgedByGo(t, byGo, e)
				got := judgedBySQL(t, bySQL, e)
				if got != want {
					rt.Fatalf("%+v (payload %q): SQL says %q, Go says %q", e, e.Payload, got, want)
				}
			})
		})
	}
}

// events are good in all fields but at most one.
func events() *rapid.Generator[waybill.Event] {
	pieces := func(pieces ...string) *rapid.Generator[string] {
		return rapid.Map(rapid.SliceOfN(rapid.SampledFrom(pieces), 0, 7), func(drawn []string) string { return strings.Join(drawn, "") })
	}
	payload := pieces(`{`, `}`, `[`, `]`, `,`, `:`, `"a"`, `"a":`, `1`, `-`, `0`, `01`, `.5`, `1.5`, `e`, `1E+1`, `tru`, `true`, `null`,
		` `, "\n", "\t", "\v", "\u00a0", `"é"`, `"\u00e9"`, `"\ud800"`, `"\u12"`, `"\q"`, `"\/"`, "\"\x01\"", "\"\x7f\"", "\xff", "\"\xff\"", "\"\xed\xa0\x80\"", "\ufeff", `"`, `\`, `'`, `NaN`, `//`)
	name := pieces("acme", "waybill", "a", "Z", "9", ".", "_", "-", ":", " ", "\n", "é", "*", "%", strings.Repeat("x", 61), strings.Repeat("y", 125))
	text := pieces("k", "é", "😀", "'", "\\", "\n", strings.Repeat("k", 250), strings.Repeat("é", 126))
	id := rapid.Custom(func(t *rapid.T) string {
		age := rapid.SampledFrom([]time.Duration{0, time.Hour, 23 * time.Hour, 25 * time.Hour, 1000 * time.Hour, -4 * time.Minute, -6 * time.Minute, -10000 * time.Hour}).Draw(t, "age")
		id := outbox.NewEventID(time.Now().Add(-age)).String()
		if rapid.Bool().Draw(t, "as it is") {
			return id
		}
		at := rapid.IntRange(0, len(id)-1).Draw(t, "at")
		return id[:at] + rapid.SampledFrom([]string{"", "0", "8", "u", "i", "A", "-", "zz", "\n"}).Draw(t, "with") + id[at+1:]
	})
	return rapid.Custom(func(t *rapid.T) waybill.Event {
		e := waybill.Event{Tenant: "acme", Type: "ping", Payload: []byte(`{}`)}
		switch rapid.SampledFrom([]string{"payload", "tenant", "type", "id", "ordering key", "idempotency key", "metadata"}).Draw(t, "field") {
		case "payload":
			e.Payload = []byte(payload.Draw(t, "payload"))
		case "tenant":
			e.Tenant = name.Draw(t, "tenant")
		case "type":
			e.Type = name.Draw(t, "type")
		case "id":
			e.ID = id.Draw(t, "id")
		case "ordering key":
			e.OrderingKey = text.Draw(t, "ordering key")
		case "idempotency key":
			e.IdempotencyKey = text.Draw(t, "idempotency key")
		case "metadata":
			e.Metadata = rapid.MapOfN(text, text, 0, 3).Draw(t, "metadata")
			if rapid.IntRange(0, 9).Draw(t, "many") == 0 {
				for i := range 51 {
					e.Metadata[string(rune('A'+i))] = ""
				}
			}
		}
		return e
	})
}

func judgedByGo(t *testing.T, db *sql.DB, e waybill.Event) string {
	t.Helper()
	_, err := waybill.Publish(t.Context(), db, e)
	if err == nil {
		return ""
	}
	return stateOf(t, err)
}

// judgedBySQL sends the payload as bytea, which alone lets any bytes through to the function.
func judgedBySQL(t *testing.T, db *sql.DB, e waybill.Event) string {
	t.Helper()
	null := func(s string) sql.NullString { return sql.NullString{String: s, Valid: s != ""} }
	var id string
	err := db.QueryRowContext(t.Context(), `
		SELECT waybill.publish(tenant => $1, type => $2, payload => $3::bytea, id => $4,
			ordering_key => $5, idempotency_key => $6, metadata => $7::text::jsonb)`,
		e.Tenant, e.Type, e.Payload, null(e.ID), null(e.OrderingKey), null(e.IdempotencyKey), null(metadata(t, e)),
	).Scan(&id)
	if err == nil {
		return ""
	}
	refused, ok := errors.AsType[interface {
		error
		SQLState() string
	}](err)
	if !ok {
		t.Fatal(err)
	}
	return refused.SQLState()
}

// openSQLite is an application's file with Waybill's tables and the tenant acme.
func openSQLite(t *testing.T) *sql.DB {
	t.Helper()
	path := filepath.Join(t.TempDir(), "app.db")
	store, err := sqlite.Open(t.Context(), sqlite.Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	address := url.URL{Scheme: "file", Path: path, RawQuery: "_txlock=immediate&_pragma=synchronous(off)"}
	db, err := sql.Open("sqlite", address.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	// 130 is the shard of acme: the first byte of its SHA-256.
	run(t, db, `
		INSERT INTO waybill_tenant (shard, key, created_at, updated_at, resumed_at)
		VALUES (130, 'acme', 0, 0, 0)`)
	return db
}
