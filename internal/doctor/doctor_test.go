package doctor

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/waybill-dev/waybill/internal/config"
	"github.com/waybill-dev/waybill/internal/outbox"
	"github.com/waybill-dev/waybill/internal/postgres/pgtest"
	"github.com/waybill-dev/waybill/internal/sqlite"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// load reads a configuration as serve would.
func load(t *testing.T, environ ...string) config.Config {
	t.Helper()
	cfg, err := config.Load(config.Sources{Environ: environ})
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// grades are the worst finding of each subject.
func grades(findings []Finding) map[string]Grade {
	worst := map[string]Grade{}
	for _, f := range findings {
		if worst[f.Subject] == "" || worst[f.Subject] == OK || f.Grade == Failure {
			worst[f.Subject] = f.Grade
		}
	}
	return worst
}

func want(t *testing.T, findings []Finding, subject string, grade Grade, words string) {
	t.Helper()
	for _, f := range findings {
		if f.Subject == subject && f.Grade == grade && strings.Contains(f.Detail+" "+f.Advice, words) {
			if grade != OK && f.Advice == "" {
				t.Errorf("%s: no advice with %q", subject, f.Detail)
			}
			return
		}
	}
	t.Errorf("no finding %s, %s, with %q among %+v", subject, grade, words, findings)
}

func TestExamine_postgres(t *testing.T) {
	dsn := pgtest.DSN(t)
	db, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close(context.Background()) })
	exec := func(sql string) {
		t.Helper()
		if _, err := db.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	var fsync string
	if err := db.QueryRow(t.Context(), "SHOW fsync").Scan(&fsync); err != nil {
		t.Fatal(err)
	}
	cfg := load(t, "WAYBILL_DATABASE_URL="+dsn, "WAYBILL_API_KEY=k", "WAYBILL_ENCRYPTION_KEY="+strings.Repeat("A", 43)+"=", "WAYBILL_EGRESS_ALLOW=127.0.0.0/8")

	found := server(t.Context(), &cfg)
	want(t, found, "database", OK, "PostgreSQL 15")
	want(t, found, "connections", OK, "in use")
	want(t, found, "clock", OK, "differs")
	want(t, found, "commit", OK, "takes")
	want(t, found, "size", OK, "0 deliveries are pending")
	if fsync == "off" { // as throw-away servers for tests are run
		want(t, found, "durability", Failure, "fsync is off")
	}
	want(t, network(t.Context(), &cfg), "egress", Warning, "127.0.0.0/8")

	few := cfg
	few.DatabaseMaxConns = 10_000
	want(t, server(t.Context(), &few), "connections", Warning, "Raise max_connections")

	exec("DROP TABLE waybill.event_" + time.Now().UTC().Add(2*24*time.Hour).Format("20060102"))
	want(t, server(t.Context(), &cfg), "partitions", Failure, "the next 1 days")

	empty := cfg
	empty.DatabaseURL = config.Secret(pgtest.EmptyDSN(t))
	want(t, server(t.Context(), &empty), "schema", Failure, "waybill migrate up")
}

func TestExamine_durabilityIsJudgedByWhatAnAnsweredCommitIsWorth(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a server of its own")
	}
	s := pgtest.Start(t, map[string]string{"fsync": "on", "full_page_writes": "on"})
	cfg := load(t, "WAYBILL_DATABASE_URL="+s.DSN())
	want(t, server(t.Context(), &cfg), "durability", OK, "before they are answered")
	db, err := pgx.Connect(t.Context(), s.DSN())
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close(context.Background())
	if _, err := db.Exec(t.Context(), "ALTER DATABASE waybill SET synchronous_commit = off"); err != nil {
		t.Fatal(err)
	}
	want(t, server(t.Context(), &cfg), "durability", Failure, "synchronous_commit is off")
}

func TestExamine_aDatabaseThatIsNotThereIsAFinding(t *testing.T) {
	cfg := load(t, "WAYBILL_DATABASE_URL=postgres://nobody:hunter2@127.0.0.1:1/none")
	found := server(t.Context(), &cfg)
	want(t, found, "database", Failure, "cannot be reached")
	if text := found[0].Detail + found[0].Advice; strings.Contains(text, "hunter2") {
		t.Errorf("the password is in %q", text)
	}
}

func TestExamine_sqlite(t *testing.T) {
	path := filepath.Join(t.TempDir(), "waybill.db")
	found := file(t.Context(), path)
	want(t, found, "database", OK, "the first start makes it")
	want(t, found, "commit", OK, "durable takes")
	if _, err := os.Stat(path); err == nil {
		t.Error("looking made a database")
	}

	store, err := sqlite.Open(t.Context(), sqlite.Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	want(t, file(t.Context(), path), "size", OK, "0 deliveries are pending")
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	want(t, file(t.Context(), path), "database", Warning, "chmod 600")
	want(t, file(t.Context(), "/proc/none/waybill.db"), "disk", Failure, "Nothing can be written")
}

func TestExamine_settingsThatDoNotServe(t *testing.T) {
	cfg := load(t, "WAYBILL_LISTEN=0.0.0.0:8420", "WAYBILL_API_KEY=short")
	if f := settings(&cfg); f.Grade != Failure || !strings.Contains(f.Advice, "longer key") {
		t.Errorf("a short key in public: %+v", f)
	}
	cfg = load(t, "WAYBILL_API_KEY=k", "WAYBILL_NO_SUCH=1")
	if f := settings(&cfg); f.Grade != Warning || !strings.Contains(f.Detail, "WAYBILL_NO_SUCH") {
		t.Errorf("a variable that means nothing: %+v", f)
	}
}

func TestTables_whatHurtsSomeDay(t *testing.T) {
	found := tables(outbox.Vitals{PartitionDaysAhead: 9, OldestTransaction: time.Hour})
	if g := grades(found); g["transactions"] != Warning || g["partitions"] != OK {
		t.Errorf("%+v", found)
	}
}
