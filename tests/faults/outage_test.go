package faults

import (
	"database/sql"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/internal/postgres/pgtest"
	"github.com/waybill-dev/waybill/tests/program"
)

func TestServer_losesNothingWhilePostgresIsAway(t *testing.T) {
	if testing.Short() {
		t.Skip("stops PostgreSQL for some seconds")
	}
	database := pgtest.Start(t, nil)
	s := newServer(t, program.Build(t), database.DSN())
	l := newLedger()
	var secret string
	r := newReceiver(t, l, func() string { return secret })
	s.start()
	secret = s.endpoint("acme", r.url)
	db, err := sql.Open("pgx", database.DSN())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })

	load := startLoad(s, l, "acme", db)
	for _, away := range []time.Duration{0, 2 * time.Second, 7 * time.Second} {
		_, before, _ := l.counts()
		await(t, time.Minute, "deliveries", func() bool {
			_, arrived, _ := l.counts()
			return arrived >= before+300
		})
		database.Stop()
		gone := time.Now()
		if away > 0 {
			load.refused()
		}
		<-time.After(away - time.Since(gone)) // how long it is away is what is tried
		database.Start()
		before, _, _ = l.counts()
		await(t, time.Minute, "events to be accepted again", func() bool {
			accepted, _, _ := l.counts()
			return accepted > before
		})
	}
	load.end()
	finish(t, s, l)

	// The server itself was there all the time: it answers, and never that something broke.
	for status, times := range load.statuses {
		if status != http.StatusAccepted && status != http.StatusServiceUnavailable {
			t.Errorf("%d answers with status %d, want 202 and 503 alone", times, status)
		}
	}
}

// refused publishes while the database is away: the publisher must soon be told to come again.
func (p *load) refused() {
	p.server.t.Helper()
	asked := time.Now()
	_, payload := p.ledger.payload()
	status, text := p.call("/events", fmt.Sprintf(`{"type":"order.paid","payload":%s}`, payload))
	if took := time.Since(asked); status != http.StatusServiceUnavailable || took > 20*time.Second {
		p.server.t.Errorf("published while the database was away: %d after %s: %s", status, took, text)
	}
}
