package faults

import (
	"database/sql"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/internal/postgres/pgtest"
	"github.com/waybill-dev/waybill/tests/program"
)

// failoverPatience is how long after the promotion of the standby the server may take to accept
// and to deliver again. It holds 15 s of the promise, and the pauses of a loaded machine.
const failoverPatience = 20 * time.Second

// The primary dies under load and its synchronous standby takes over: the server, which was told
// of both, goes on with the new one, and nothing that was acknowledged is lost.
func TestServer_losesNothingWhenAStandbyTakesOver(t *testing.T) {
	if testing.Short() {
		t.Skip("runs two PostgreSQL servers")
	}
	primary := pgtest.Start(t, map[string]string{"wal_level": "replica", "max_wal_senders": "4"})
	standby := primary.Standby(t)
	primary.Set("synchronous_standby_names", "*")

	s := newServer(t, program.Build(t), primary.DSNWith(standby))
	l := newLedger()
	var secret string
	r := newReceiver(t, l, func() string { return secret })
	s.start()
	secret = s.endpoint("acme", r.url)
	db, err := sql.Open("pgx", s.Database)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })

	load := startLoad(s, l, "acme", db)
	await(t, time.Minute, "deliveries", func() bool {
		_, arrived, _ := l.counts()
		return arrived >= 800
	})
	primary.Stop()
	standby.Promote()
	promoted := time.Now()
	accepted, arrived, _ := l.counts()
	await(t, failoverPatience, "the new primary to be used", func() bool {
		a, d, _ := l.counts()
		return a > accepted+20 && d > arrived+20
	})
	t.Logf("accepting and delivering again %v after the promotion", time.Since(promoted).Round(time.Millisecond))
	await(t, time.Minute, "more of the load", func() bool {
		a, _, _ := l.counts()
		return a > accepted+800
	})
	load.end()
	finish(t, s, l)
}
