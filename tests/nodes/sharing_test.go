package nodes

import (
	"fmt"
	"net/http"
	"syscall"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/internal/postgres/pgtest"
)

// Nodes come and go under load. Whoever is there shares the shards evenly within five seconds, a
// hanging customer's attempts do not keep anybody else waiting, and nothing is sent twice.
func TestNodes_joinAndLeaveUnderLoad(t *testing.T) {
	c := newCluster(t, pgtest.DSN(t))
	r := newReceiver(t)
	r.script(func(q request, done <-chan struct{}) int {
		if q.tenant == "hanging" {
			hold(6*time.Second, done)
		}
		return http.StatusNoContent
	})
	a := c.start("a")
	healthy := evenTenants(12)
	for _, tenant := range healthy {
		a.tenant(tenant, 10, r.of(tenant))
	}
	a.tenant("hanging", 2, r.of("hanging"))
	c.awaitShared(1)
	for range 4 {
		a.mustPublish(r, "hanging")
	}
	from := time.Now()
	end := c.load(r, healthy, 10*time.Millisecond, a)

	shared := func(n int) {
		t.Helper()
		t.Logf("%d nodes shared evenly after %s", n, c.awaitShared(n).Round(time.Millisecond))
	}
	b := c.start("b")
	shared(2)
	d := c.start("d")
	shared(3)
	for i, n := range []*node{b, d} { // a rolling restart
		n.Signal(syscall.SIGTERM)
		shared(2)
		pause(300 * time.Millisecond)
		c.start(fmt.Sprintf("next-%d", i))
		shared(3)
		n.AwaitEnd()
		pause(300 * time.Millisecond)
	}
	end()
	to := time.Now()
	r.awaitAll(time.Minute)
	waits := r.latencies(healthy, from, to)
	t.Logf("%d events of healthy tenants: p50 %s, p99 %s, longest %s", len(waits), waits[len(waits)/2], waits[len(waits)*99/100], waits[len(waits)-1])
	// Shards that are not handed over wait six seconds until their owner is missed: a third of the
	// events of each restart.
	if p95 := waits[len(waits)*95/100]; p95 > 4*time.Second {
		t.Errorf("one in twenty events of healthy tenants waited %s and more across the restarts, want 2 s on a machine that is not crowded", p95)
	}
	r.capped("hanging", 2)
	c.finish(r)
}
