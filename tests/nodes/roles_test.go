package nodes

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/internal/postgres/pgtest"
)

// startAs starts a node with settings of its own.
func (c *cluster) startAs(name string, env ...string) *node {
	c.t.Helper()
	n := &node{c: c, name: name, Instance: c.place.Beside(c.database)}
	n.Env = append(env, "WAYBILL_USER_AGENT="+name)
	n.Process = n.Start()
	c.nodes = append(c.nodes, n)
	await(c.t, time.Minute, name+" to be ready", n.isReady)
	return n
}

// senders are the names of the nodes that sent something.
func (r *receiver) senders() []string {
	var names []string
	for _, q := range r.all(func(request) bool { return true }) {
		if !slices.Contains(names, q.node) {
			names = append(names, q.node)
		}
	}
	slices.Sort(names)
	return names
}

// Processes that each do a part: those that take requests own nothing and send nothing, those that
// send take no requests, and one that dies is replaced by its like alone.
func TestNodes_eachProcessDoesItsPart(t *testing.T) {
	t.Parallel() // it waits more than it works
	c := newCluster(t, pgtest.DSN(t))
	r := newReceiver(t)
	front := c.startAs("front", "WAYBILL_ROLES=api")
	c.startAs("gateway", "WAYBILL_ROLES=inbound")
	first, second := c.startAs("first", "WAYBILL_ROLES=dispatch"), c.startAs("second", "WAYBILL_ROLES=dispatch")
	c.awaitShared(2)
	for _, n := range c.nodes {
		for path, role := range map[string]string{"/v1/tenants": "front", "/in/nothing": "gateway"} {
			method := http.MethodGet
			if role == "gateway" {
				method = http.MethodPost
			}
			_, text := n.call(method, path, "")
			// A source that is not there is not found either, in the gateway's own words.
			if here := !strings.Contains(string(text), "not_found") || strings.Contains(string(text), "source"); here != (n.name == role) {
				t.Errorf("%s of %s: %s", path, n.name, text)
			}
		}
	}
	tenants := evenTenants(8)
	for _, tenant := range tenants {
		front.tenant(tenant, 5, r.of(tenant))
	}
	publish := func() {
		for i := range 40 {
			front.mustPublish(r, tenants[i%len(tenants)])
		}
		r.awaitAll(time.Minute)
	}
	publish()
	if got := r.senders(); !slices.Equal(got, []string{"first", "second"}) {
		t.Errorf("sent by %v", got)
	}
	first.kill()
	c.awaitShared(1)
	publish()
	if got := r.senders(); !slices.Equal(got, []string{"first", "second"}) {
		t.Errorf("sent by %v", got)
	}
	if !second.isReady() || !front.isReady() {
		t.Error("those that are left are not ready")
	}
	c.finish(r)
}

// Processes of another environment, on what may be a copy of the database, take events and send
// nothing, neither beside the first ones nor alone, until somebody adopts it.
func TestNodes_anotherEnvironmentSendsNothing(t *testing.T) {
	t.Parallel() // it waits more than it works
	c := newCluster(t, pgtest.DSN(t))
	r := newReceiver(t)
	production := c.startAs("production", "WAYBILL_ENVIRONMENT=production")
	c.awaitShared(1)
	tenants := evenTenants(4)
	for _, tenant := range tenants {
		production.tenant(tenant, 5, r.of(tenant))
	}
	owner := c.owned(tenants[0])
	copies := []*node{c.startAs("copy-1", "WAYBILL_ENVIRONMENT=staging"), c.startAs("copy-2", "WAYBILL_ENVIRONMENT=staging")}
	for _, tenant := range tenants {
		copies[0].mustPublish(r, tenant)
		copies[1].mustPublish(r, tenant)
	}
	r.awaitAll(time.Minute)
	if got := r.senders(); !slices.Equal(got, []string{"production"}) || c.owned(tenants[0]) != owner {
		t.Errorf("sent by %v beside the first", got)
	}

	production.Stop()
	for _, tenant := range tenants {
		copies[0].mustPublish(r, tenant)
	}
	pause(4 * time.Second) // several heartbeats of both
	if n := c.count("SELECT count(*) FROM waybill.shard WHERE node IS NOT NULL"); n != 0 || r.missing() != len(tenants) {
		t.Errorf("%d shards have an owner, %d events wait, want all %d", n, r.missing(), len(tenants))
	}
	if _, text := copies[0].call(http.MethodGet, "/readyz", ""); !strings.Contains(string(text), "another environment") {
		t.Errorf("/readyz: %s", text)
	}
	if status, text := copies[0].call(http.MethodPut, "/v1/dispatch", `{"state":"running"}`); status != http.StatusConflict {
		t.Errorf("resumed instead of adopted: %d %s", status, text)
	}
	if out, err := copies[0].Command("adopt").CombinedOutput(); err != nil || !strings.Contains(string(out), "belongs to staging now (formerly production)") {
		t.Fatalf("adopt: %v\n%s", err, out)
	}
	c.awaitShared(2)
	c.finish(r)
}
