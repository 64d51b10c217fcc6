package nodes

import (
	"testing"
	"time"

	"github.com/waybill-dev/waybill/internal/postgres/pgtest"
)

// An event published through a node that does not own its tenant reaches the owner at once, and not
// when that looks the next time.
func TestNodes_publishingAtAnyNodeWakesTheOwner(t *testing.T) {
	server := pgtest.Start(t, nil) // durable, as in earnest
	c := newCluster(t, server.DSN())
	r := newReceiver(t)
	a := c.start("a")
	tenants := evenTenants(16)
	for _, tenant := range tenants {
		a.tenant(tenant, 5, r.of(tenant))
	}
	b := c.start("b")
	c.awaitShared(2)
	pause(1500 * time.Millisecond) // both are idle, and look once a second
	from := time.Now()
	for i := range 60 {
		b.mustPublish(r, tenants[i%len(tenants)])
		pause(time.Duration(50+i*7%100) * time.Millisecond)
	}
	r.awaitAll(time.Minute)
	var there, elsewhere []time.Duration
	r.mu.Lock()
	var own, strange []string
	for _, requests := range r.requests {
		if requests[0].node == b.name {
			own = append(own, requests[0].tenant)
		} else {
			strange = append(strange, requests[0].tenant)
		}
	}
	r.mu.Unlock()
	there, elsewhere = r.latencies(own, from, time.Now()), r.latencies(strange, from, time.Now())
	t.Logf("owner is the node published at: %d events, p50 %s, p99 %s", len(there), there[len(there)/2], there[len(there)*99/100])
	t.Logf("owner is another node: %d events, p50 %s, p99 %s", len(elsewhere), elsewhere[len(elsewhere)/2], elsewhere[len(elsewhere)*99/100])
	// Found by looking once a second, half of them would take half a second longer.
	if p50, own := elsewhere[len(elsewhere)/2], there[len(there)/2]; p50 > own+400*time.Millisecond {
		t.Errorf("half of the events reach another node only after %s, the node they were published at after %s", p50, own)
	}
	c.finish(r)
}
