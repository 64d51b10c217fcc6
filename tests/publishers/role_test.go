package publishers

import (
	"crypto/rand"
	"database/sql"
	"net/url"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/waybill-dev/waybill"
	"github.com/waybill-dev/waybill/internal/postgres"
	"github.com/waybill-dev/waybill/internal/postgres/pgtest"
	"github.com/waybill-dev/waybill/waybilltest"
)

// An application's role is a member of the publisher's role: it can publish beside its own rows,
// and read or change nothing of Waybill's, whatever it puts in front of the search path.
func TestPublishers_aRoleThatMayPublishAndNothingElse(t *testing.T) {
	dsn := pgtest.DSN(t)
	owner := open(t, dsn)
	publisher := "publisher_" + strings.ToLower(rand.Text())
	app := "app_" + strings.ToLower(rand.Text())
	if err := postgres.MakePublisherRole(t.Context(), dsn, publisher); err != nil {
		t.Fatal(err)
	}
	// Roles outlive the test's database on a server that is not the test's own.
	t.Cleanup(func() {
		for _, role := range []string{app, publisher} {
			name := pgx.Identifier{role}.Sanitize()
			if _, err := owner.Exec("DROP OWNED BY " + name + "; DROP ROLE " + name); err != nil {
				t.Error(err)
			}
		}
	})
	for _, statement := range []string{
		`CREATE ROLE ` + app + ` LOGIN IN ROLE ` + publisher,
		`CREATE SCHEMA app AUTHORIZATION ` + app,
		`SELECT waybill.ensure_tenant('acme')`,
	} {
		run(t, owner, statement)
	}
	address, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	address.User = url.User(app)
	db := open(t, address.String())
	db.SetMaxOpenConns(1) // one session, so that SET lasts

	for _, statement := range []string{
		// What a search path that is not pinned would pick up, running as the owner.
		`CREATE FUNCTION app.sha256(bytea) RETURNS bytea LANGUAGE sql AS $$ SELECT '\x00'::bytea $$`,
		`CREATE FUNCTION app.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS $$ SELECT 'epoch'::timestamptz $$`,
		`CREATE TEMPORARY TABLE setting (max_payload integer)`,
		`SET search_path = app, pg_temp, waybill, pg_catalog`,
		`CREATE TABLE app.app_order (id text PRIMARY KEY)`,
	} {
		run(t, db, statement)
	}
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	if _, err := tx.ExecContext(t.Context(), insertOrder, "1"); err != nil {
		t.Fatal(err)
	}
	event := waybill.Event{Tenant: "acme", Type: "ping", Payload: []byte(`{}`), IdempotencyKey: "k"}
	id, err := waybill.Publish(t.Context(), tx, event)
	if err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	waybilltest.RequirePublished(t, owner, waybill.Event{ID: id})
	var genuine bool
	err = owner.QueryRowContext(t.Context(), `SELECT bool_and(sha256 = pg_catalog.sha256(payload)) FROM waybill.event`).Scan(&genuine)
	if err != nil || !genuine {
		t.Errorf("the stored digest is right: %t, %v", genuine, err)
	}

	for _, statement := range []string{
		`SELECT * FROM waybill.event`,
		`SELECT * FROM waybill.published`,
		`SELECT * FROM waybill.endpoint`,
		`SELECT * FROM waybill.setting`,
		`INSERT INTO waybill.outbox (shard, kind, tenant, event) VALUES (0, 0, 1, gen_random_uuid())`,
		`UPDATE waybill.setting SET max_payload = 1`,
		`DELETE FROM waybill.tenant`,
		`TRUNCATE waybill.delivery`,
		`CREATE TABLE waybill.mine (id integer)`,
		`SELECT waybill.accept('acme', 'ping', '\xff', true, NULL, NULL, NULL, NULL)`,
		`SELECT waybill.add_partition('event', current_date)`,
	} {
		if state := sqlStateOf(t, db, statement); state != "42501" {
			t.Errorf("%s: SQLSTATE %q, want 42501 (insufficient privilege)", statement, state)
		}
	}
}

func sqlStateOf(t *testing.T, db *sql.DB, statement string) string {
	t.Helper()
	_, err := db.ExecContext(t.Context(), statement)
	if state, ok := err.(interface{ SQLState() string }); ok {
		return state.SQLState()
	}
	return ""
}
