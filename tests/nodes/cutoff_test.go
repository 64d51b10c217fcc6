package nodes

import (
	"net/http"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/internal/postgres/pgtest"
)

// leaseFor is how long after its last good heartbeat a node may start requests; nobody takes its
// shards before six seconds.
const leaseFor = 4 * time.Second

// A node that cannot reach the database stops sending before anybody can take its shards, goes on
// answering, says that it is not well, and takes up work again when the line is back.
func TestNodes_oneIsCutOffFromTheDatabase(t *testing.T) {
	for name, cut := range map[string]func(p *proxy){
		"swallowed": (*proxy).blackhole,
		"held back": (*proxy).pause,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // it waits more than it works
			cutOff(t, cut)
		})
	}
}

func cutOff(t *testing.T, cut func(p *proxy)) {
	c := newCluster(t, pgtest.DSN(t))
	r := newReceiver(t)
	r.script(func(q request, done <-chan struct{}) int {
		hold(50*time.Millisecond, done)
		return http.StatusNoContent
	})
	a := c.start("a")
	p, through := newProxy(t, c.database)
	b := c.startVia("b", through)
	tenants := evenTenants(8)
	for _, tenant := range tenants {
		a.tenant(tenant, 5, r.of(tenant))
	}
	c.awaitShared(2)
	// A backlog at both nodes: whoever may send has something to send all the time.
	end := c.load(r, tenants, 4*time.Millisecond, a)
	pause(time.Second)

	lost := c.diary.note(b.name, "cut off")
	cut(p)
	served := map[string]bool{}
	for _, tenant := range tenants {
		served[tenant] = r.wasSentBy(tenant, b.name, lost)
	}
	first := r.awaitRequest(time.Minute, "a delivery by the other node for one of the lost node's tenants", func(q request) bool {
		return q.node == a.name && q.at.After(lost.Add(3*time.Second)) && served[q.tenant]
	})
	t.Logf("taken over after %s", first.at.Sub(lost).Round(time.Millisecond))
	c.awaitShared(1)
	pause(time.Second)
	// Its last good heartbeat was before it was cut off.
	late := r.all(func(q request) bool { return q.node == b.name && q.at.After(lost.Add(leaseFor)) })
	for _, q := range late {
		t.Errorf("a request of %s started %s after the node was cut off", q.tenant, q.at.Sub(lost))
	}
	if status, text := b.call(http.MethodGet, "/healthz", ""); status != http.StatusOK {
		t.Errorf("a node without a database answers its health check with %d %s: restarting it would not help", status, text)
	}

	healed := c.diary.note(b.name, "healed")
	p.heal()
	c.awaitShared(2)
	t.Logf("shared again %s after the line was back", time.Since(healed).Round(time.Millisecond))
	r.awaitRequest(time.Minute, "a delivery by the node that came back", func(q request) bool {
		return q.node == b.name && q.at.After(healed)
	})
	p.reset() // and once more, as a switch that restarts
	c.diary.note(b.name, "its connections are reset")
	pause(time.Second)
	end()
	for _, tenant := range tenants {
		r.capped(tenant, 5)
	}
	c.finish(r)
}

// wasSentBy reports whether the tenant's last request before the given time came from the node.
func (r *receiver) wasSentBy(tenant, node string, before time.Time) bool {
	sent := r.all(func(q request) bool { return q.tenant == tenant && q.at.Before(before) })
	return len(sent) > 0 && sent[len(sent)-1].node == node
}
