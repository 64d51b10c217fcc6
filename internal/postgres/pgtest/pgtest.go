// Package pgtest gives tests a real PostgreSQL.
//
// The first test of a process that asks for a database starts a throw-away server from the
// installed binaries (PostgreSQL 15 or newer), in a private temporary directory and on a free
// loopback port. It ends with the process, even one that is killed. Set WAYBILL_TEST_POSTGRES to
// the DSN of a superuser to use that server instead.
//
// A package whose tests use it should have
//
//	func TestMain(m *testing.M) { pgtest.Main(m) }
package pgtest

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/waybill-dev/waybill/internal/postgres"
)

// shared is the server of this process, started by its first user.
var shared struct {
	mu       sync.Mutex
	started  bool
	err      error
	server   *Server // nil where WAYBILL_TEST_POSTGRES names another
	admin    string  // DSN of the maintenance database
	template string  // name of the migrated database that tests copy
	count    atomic.Int64
}

// Main runs the tests, stops the server whatever their outcome, and exits.
func Main(m *testing.M) {
	code := m.Run()
	shared.mu.Lock()
	defer shared.mu.Unlock()
	switch {
	case shared.server != nil:
		shared.server.remove()
	case shared.template != "":
		if err := execute(context.Background(), shared.admin, "DROP DATABASE IF EXISTS "+pgx.Identifier{shared.template}.Sanitize()); err != nil {
			fmt.Fprintf(os.Stderr, "pgtest: %v\n", err)
		}
	}
	os.Exit(code)
}

// DSN makes a migrated database for the test and returns its address. The database is dropped
// when the test ends. Its server does not wait for the disk; see Start for one that does.
func DSN(tb testing.TB) string {
	tb.Helper()
	admin, template := open(tb)
	return create(tb, admin, " TEMPLATE "+pgx.Identifier{template}.Sanitize()+" STRATEGY file_copy")
}

// EmptyDSN is DSN for a database that has not been migrated.
func EmptyDSN(tb testing.TB) string {
	tb.Helper()
	admin, _ := open(tb)
	return create(tb, admin, "")
}

func create(tb testing.TB, admin, options string) string {
	tb.Helper()
	name := fmt.Sprintf("waybill_test_%s_%d", processName, shared.count.Add(1))
	quoted := pgx.Identifier{name}.Sanitize()
	if err := execute(context.Background(), admin, "CREATE DATABASE "+quoted+options); err != nil {
		tb.Fatalf("pgtest: %v", err)
	}
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		// Force: a test that failed may have left connections.
		if err := execute(ctx, admin, "DROP DATABASE "+quoted+" WITH (FORCE)"); err != nil {
			tb.Logf("pgtest: %v", err)
		}
	})
	return withDatabase(admin, name)
}

// processName keeps the databases of test processes on one server apart.
var processName = fmt.Sprintf("%d_%s", os.Getpid(), strings.ToLower(rand.Text()[:8]))

// open starts the server if need be and migrates the template once.
func open(tb testing.TB) (admin, template string) {
	tb.Helper()
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if !shared.started {
		shared.started = true
		shared.err = openShared()
	}
	if shared.err != nil {
		tb.Fatalf("pgtest: %v", shared.err)
	}
	return shared.admin, shared.template
}

func openShared() error {
	shared.admin = os.Getenv("WAYBILL_TEST_POSTGRES")
	if shared.admin == "" {
		server, err := launch(map[string]string{
			"fsync":              "off",
			"synchronous_commit": "off",
			"full_page_writes":   "off",
		})
		if err != nil {
			return err
		}
		shared.server = server
		shared.admin = server.dsn("postgres")
	}
	name := "waybill_template_" + processName
	ctx := context.Background()
	if err := execute(ctx, shared.admin, "CREATE DATABASE "+pgx.Identifier{name}.Sanitize()); err != nil {
		return err
	}
	shared.template = name
	return postgres.Migrate(ctx, withDatabase(shared.admin, name), postgres.Up)
}

// withDatabase replaces the database a DSN names.
func withDatabase(dsn, name string) string {
	if u, err := url.Parse(dsn); err == nil && u.Scheme != "" {
		u.Path = "/" + name
		return u.String()
	}
	return dsn + " dbname=" + name // in the keyword form the last one counts
}
