package faults

import (
	"database/sql"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"

	"github.com/waybill-dev/waybill/internal/postgres/pgtest"
	"github.com/waybill-dev/waybill/tests/program"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// kills are the ten ends of the server. Those that wait for deliveries meet it at full work; the
// others meet it while it starts, accepts, or still waits for its predecessor's shards.
var kills = []struct {
	deliveries int           // that must have arrived since the start
	within     time.Duration // a random part of this is waited, too
}{
	{100, 300 * time.Millisecond},
	{0, 50 * time.Millisecond},
	{0, 300 * time.Millisecond},
	{1, 20 * time.Millisecond}, // right after it takes up its work
	{0, 1 * time.Second},
	{50, 500 * time.Millisecond},
	{0, 0},
	{0, 100 * time.Millisecond},
	{0, 200 * time.Millisecond},
	{200, 200 * time.Millisecond},
}

func TestServer_losesNothingWhenKilledTenTimes(t *testing.T) {
	if testing.Short() {
		t.Skip("kills servers for most of a minute")
	}
	binary := program.Build(t)
	t.Run("sqlite", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "waybill.db")
		killTenTimes(t, newServer(t, binary, "sqlite://"+path), "sqlite", "file:"+path+"?_txlock=immediate&_pragma=busy_timeout(5000)")
	})
	t.Run("postgres", func(t *testing.T) {
		dsn := pgtest.DSN(t)
		killTenTimes(t, newServer(t, binary, dsn), "pgx", dsn)
	})
}

func killTenTimes(t *testing.T, s *server, driver, dsn string) {
	l := newLedger()
	var secret string
	r := newReceiver(t, l, func() string { return secret })
	s.start()
	secret = s.endpoint("acme", r.url)
	db, err := sql.Open(driver, dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })

	load := startLoad(s, l, "acme", db)
	for i, k := range kills {
		_, before, _ := l.counts()
		// A dead owner's shards are free six seconds after its last sign of life.
		await(t, time.Minute, "deliveries after a kill", func() bool {
			_, arrived, _ := l.counts()
			return arrived >= before+k.deliveries
		})
		if k.within > 0 {
			<-time.After(rand.N(k.within)) // the moment of death must be any
		}
		s.running.Kill()
		if i%2 == 0 {
			s.Verify() // the books balance while nobody is there, too
		}
		s.start()
	}
	load.end()
	finish(t, s, l)
}

// finish waits until everything accepted has arrived, stops the server, and compares.
func finish(t *testing.T, s *server, l *ledger) {
	t.Helper()
	patience := time.Now().Add(25 * time.Second)
	for _, _, missing := l.counts(); missing > 0 && time.Now().Before(patience); _, _, missing = l.counts() {
		<-time.After(10 * time.Millisecond)
	}
	await(t, time.Minute, "pending deliveries to end", func() bool {
		sums := s.Verify()
		return sums.Pending == 0 && sums.Waiting == 0
	})
	s.running.Stop()
	l.settle(t)
	sums := s.Verify()
	if sums.Pending != 0 || sums.Waiting != 0 || sums.Cancelled != 0 || sums.Planned != sums.Delivered+sums.Dead || sums.Events != sums.Planned {
		t.Errorf("one endpoint wants every event, so this cannot be: %+v", sums)
	}
	if accepted, _, _ := l.counts(); accepted < 500 {
		t.Errorf("only %d events were accepted; that was no load", accepted)
	}
}

// await polls until what it waits for is there.
func await(t *testing.T, patience time.Duration, what string, there func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !there(); {
		if time.Now().After(deadline) {
			t.Fatalf("waited %s for %s", patience, what)
		}
		<-time.After(5 * time.Millisecond)
	}
}
