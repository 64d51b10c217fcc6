package nodes

import (
	"net/http"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/internal/postgres/pgtest"
)

// A process that is stopped for twelve seconds, as by a hypervisor, wakes up believing that no
// time has passed. Its shards are somebody else's by then. It may repeat nothing but what was in
// flight when it froze, under the same ids; what it learned before is kept; and a success that
// another node has recorded meanwhile stays one.
func TestNodes_oneIsFrozen(t *testing.T) {
	t.Parallel() // it waits more than it works
	c := newCluster(t, pgtest.DSN(t))
	r := newReceiver(t)
	const slots = 4
	r.script(func(_ request, done <-chan struct{}) int {
		hold(300*time.Millisecond, done)
		return http.StatusNoContent
	})
	a := c.start("a")
	tenants := evenTenants(8)
	for _, tenant := range tenants {
		a.tenant(tenant, slots, r.of(tenant))
	}
	b := c.start("b")
	c.awaitShared(2)
	end := c.load(r, tenants, 15*time.Millisecond, a)
	pause(1500 * time.Millisecond)

	frozen := b.freeze()
	pause(time.Second) // what it had sent before arrives, and a commit that it had asked for ends
	recorded := c.recorded()
	known := map[string]bool{} // its requests whose answers had not been recorded when it froze
	for _, q := range r.all(func(q request) bool { return q.node == b.name && !recorded[q.id] }) {
		known[q.id] = true
	}
	if len(known) == 0 {
		t.Fatal("nothing was in flight; that freezes nothing")
	}
	pause(11 * time.Second)
	c.awaitShared(1)
	thawed := b.thaw()
	c.awaitShared(2)
	r.awaitRequest(time.Minute, "a delivery by the node that was thawed", func(q request) bool {
		return q.node == b.name && q.at.After(thawed.Add(time.Second))
	})
	end()
	r.awaitAll(time.Minute)

	repeated := 0
	r.mu.Lock()
	for id, requests := range r.requests {
		if len(requests) > 1 {
			repeated++
			if !known[id] {
				t.Errorf("%s was sent %d times and was not in flight when the node froze: %+v", id, len(requests), requests)
			}
		}
		for _, q := range requests {
			// A request that was written into a socket before the freeze may be met a little later.
			if q.node == b.name && q.at.After(frozen.Add(time.Second)) && q.at.Before(thawed) {
				t.Errorf("%s was sent by a frozen process", id)
			}
		}
	}
	r.mu.Unlock()
	t.Logf("%d in flight at the freeze, %d of them repeated", len(known), repeated)
	// Every event ended as delivered: what the thawed node then said of its cut-off attempts undid
	// nothing.
	if n := c.count("SELECT count(*) FROM waybill.dead_letter"); n > 0 {
		t.Errorf("%d dead letters", n)
	}
	for _, tenant := range tenants {
		r.capped(tenant, 2*slots) // the frozen process's own are still open at the receiver
	}
	c.finish(r)
}
