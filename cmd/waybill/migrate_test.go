package main

import (
	"encoding/base64"
	"net/url"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/waybill-dev/waybill/internal/postgres/pgtest"
)

// emptyDatabase makes a database on a server of its own.
func emptyDatabase(t *testing.T) string {
	t.Helper()
	server := pgtest.Start(t, nil)
	conn, err := pgx.Connect(t.Context(), server.DSN())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if _, err := conn.Exec(t.Context(), "CREATE DATABASE empty"); err != nil {
		t.Fatal(err)
	}
	dsn, err := url.Parse(server.DSN())
	if err != nil {
		t.Fatal(err)
	}
	dsn.Path = "/empty"
	return dsn.String()
}

func TestMigrate_fromNothingToAServer(t *testing.T) {
	dir := t.TempDir()
	env := []string{
		"WAYBILL_DATABASE_URL=" + emptyDatabase(t),
		"WAYBILL_ENCRYPTION_KEY=" + base64.StdEncoding.EncodeToString(make([]byte, 32)),
		"WAYBILL_API_KEY=" + testKey,
		"WAYBILL_LISTEN=127.0.0.1:0",
		"WAYBILL_DATABASE_MAX_CONNS=1", // little, but enough
	}
	type status struct{ Data []migration }

	if r := waybill(t, dir, env, "", "serve"); r.code != exitRefused || !strings.Contains(r.err, "waybill migrate up") {
		t.Errorf("serve before the migration: %v", r)
	}
	if r := waybill(t, dir, env, "", "migrate", "status"); r.code != exitFailed || !strings.Contains(r.out, "missing") {
		t.Errorf("status before the migration: %v", r)
	}
	up := decode[status](t, ok(t, dir, env, "migrate", "up", "--json", "--publisher-role", "shop"))
	if len(up.Data) == 0 || up.Data[0].AppliedAt == nil {
		t.Errorf("up printed %+v", up)
	}
	if out := ok(t, dir, env, "migrate", "status"); strings.Contains(out, "missing") {
		t.Errorf("status after the migration: %s", out)
	}
	ok(t, dir, env, "migrate", "up") // again: nothing to do
	if out := ok(t, dir, env, "migrate", "up", "--no-role"); !strings.Contains(out, "GRANT USAGE ON SCHEMA waybill") {
		t.Errorf("up --no-role printed %s", out)
	}

	p := start(t, dir, env, "serve")
	address := strings.TrimPrefix(p.line("listening on "), "listening on ")
	client := append(env, "WAYBILL_URL="+address)
	ok(t, dir, client, "tenants", "put", "acme")
	ok(t, dir, client, "publish", "acme", "a.b", "{}")
	if out := ok(t, dir, env, "verify", "--deep"); !strings.Contains(out, "The books balance.") {
		t.Errorf("verify printed %s", out)
	}
	if code := p.stop(syscall.SIGTERM); code != exitOK {
		t.Errorf("exit code %d", code)
	}
	another := base64.StdEncoding.EncodeToString([]byte("another key of thirty-two bytes!"))
	if r := waybill(t, dir, with(env, "WAYBILL_ENCRYPTION_KEY", another), "", "serve"); r.code != exitRefused || !strings.Contains(r.err, "WAYBILL_ENCRYPTION_KEY does not open the secrets") {
		t.Errorf("serve with another key: %v", r)
	}

	if out := inProcess(t, "migrate", "sql").out; !strings.Contains(out, "CREATE FUNCTION waybill.publish(") && !strings.Contains(out, "CREATE OR REPLACE FUNCTION waybill.publish(") {
		t.Error("migrate sql does not print waybill.publish")
	}
	for range up.Data {
		ok(t, dir, env, "migrate", "down")
	}
	if r := waybill(t, dir, env, "", "migrate", "status"); r.code != exitFailed {
		t.Errorf("status after taking all back: %v", r)
	}
}
