package app

import (
	"bytes"
	"context"
	"encoding/base64"
	"log/slog"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/waybill-dev/waybill/internal/config"
	"github.com/waybill-dev/waybill/internal/postgres/pgtest"
)

// A server on a database whose answered commits a crash can take back says so when it starts.
func TestApp_saysWhenCommitsAreNotDurable(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a server of its own")
	}
	s := pgtest.Start(t, map[string]string{"fsync": "on", "full_page_writes": "on", "synchronous_commit": "on"})
	started := func() string {
		t.Helper()
		cfg, err := config.Load(config.Sources{Environ: []string{
			"WAYBILL_DATABASE_URL=" + s.DSN(), "WAYBILL_API_KEY=0123456789abcdef", "WAYBILL_LISTEN=127.0.0.1:0",
			"WAYBILL_ENCRYPTION_KEY=" + base64.StdEncoding.EncodeToString(make([]byte, 32)),
		}})
		if err != nil {
			t.Fatal(err)
		}
		var said bytes.Buffer
		a, err := New(t.Context(), cfg, slog.New(slog.NewTextHandler(&said, nil)))
		if err != nil {
			t.Fatal(err)
		}
		if err := a.life.stop(); err != nil {
			t.Fatal(err)
		}
		return said.String()
	}
	const warning = "accepted events can be lost in a crash"
	if said := started(); strings.Contains(said, warning) {
		t.Errorf("of a durable database it says %s", said)
	}
	db, err := pgx.Connect(t.Context(), s.DSN())
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close(context.Background())
	if _, err := db.Exec(t.Context(), "ALTER DATABASE waybill SET synchronous_commit = off"); err != nil {
		t.Fatal(err)
	}
	if said := started(); !strings.Contains(said, warning) || !strings.Contains(said, "synchronous_commit is off") {
		t.Errorf("of one that is not it says %q", said)
	}
}
