package nodes

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/internal/postgres/pgtest"
)

// Somebody sets the database's clock two hours forward or back. No shard changes hands, nothing is
// sent in a storm, and new events and waiting retries arrive as if nothing had happened.
func TestNodes_databaseClockIsSet(t *testing.T) {
	for name, step := range map[string]string{"two hours forward": "2 hours", "two hours back": "-2 hours"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // it waits more than it works
			setClock(t, step)
		})
	}
}

func setClock(t *testing.T, step string) {
	// What every statement that names no schema calls is found here first.
	c := newCluster(t, pgtest.DSN(t))
	for _, statement := range []string{
		`CREATE SCHEMA stepped`,
		`CREATE TABLE stepped.step (by interval NOT NULL)`,
		`INSERT INTO stepped.step VALUES ('0')`,
		`CREATE FUNCTION stepped.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE
			AS 'SELECT pg_catalog.clock_timestamp() + by FROM stepped.step'`,
		`DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET search_path = stepped, pg_catalog, public', current_database()); END $$`,
	} {
		if _, err := c.db.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	r := newReceiver(t)
	recovered := make(chan struct{})
	r.script(func(q request, _ <-chan struct{}) int {
		if strings.HasPrefix(q.tenant, "failing") {
			select {
			case <-recovered:
			default:
				return http.StatusInternalServerError
			}
		}
		return http.StatusNoContent
	})
	a := c.start("a")
	tenants := evenTenants(8)
	for _, tenant := range tenants {
		a.tenant(tenant, 5, r.of(tenant))
	}
	failing := []string{"failing-1", "failing-2", "failing-3"}
	for _, tenant := range failing {
		a.tenant(tenant, 5, r.of(tenant))
	}
	c.start("b")
	c.awaitShared(2)
	for _, tenant := range failing { // one each: twenty failures in a row would open the breaker
		a.mustPublish(r, tenant)
	}
	end := c.load(r, tenants, 10*time.Millisecond, a)
	pause(2 * time.Second)
	epochs := c.count("SELECT sum(epoch) FROM waybill.shard")
	if _, err := c.db.ExecContext(t.Context(), "UPDATE stepped.step SET by = $1::interval", step); err != nil {
		t.Fatal(err)
	}
	stepped := time.Now()
	pause(8 * time.Second)
	if n := c.count("SELECT sum(epoch) FROM waybill.shard"); n != epochs {
		t.Errorf("shards changed hands %d times because of a clock", n-epochs)
	}
	// A retry waits half a second at least from its second on, so ten in eight seconds and those
	// that a forward step made due at once.
	perEvent := len(r.all(func(q request) bool {
		return strings.HasPrefix(q.tenant, "failing") && q.at.After(stepped)
	})) / len(failing)
	t.Logf("%d requests for each failing event in 8 s after the step", perEvent)
	if perEvent > 20 {
		t.Errorf("%d requests for each failing event in 8 s: a storm", perEvent)
	}
	close(recovered)
	end()
	r.awaitAll(time.Minute)
	waits := r.latencies(tenants, stepped.Add(-time.Second), time.Now())
	if longest := waits[len(waits)-1]; longest > time.Minute { // believed, either clock would make it hours
		t.Errorf("an event of a healthy tenant waited %s", longest)
	}
	c.finish(r)
}
