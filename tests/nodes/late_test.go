package nodes

import (
	"context"
	"database/sql"
	"net/http"
	"syscall"
	"testing"
	"time"

	"github.com/waybill-dev/waybill"
	"github.com/waybill-dev/waybill/internal/postgres/pgtest"
)

// A transaction that took its place before another and commits after it, when that
// other's event is delivered already, is found: by the node that has watched the outbox all the
// while, and by one that started before the commit. Nobody restarts anything.
func TestNodes_findWhatCommitsLate(t *testing.T) {
	t.Parallel() // it waits more than it works
	c := newCluster(t, pgtest.DSN(t))
	r := newReceiver(t)
	a := c.start("a")
	tenants := evenTenants(8)
	for _, tenant := range tenants {
		a.tenant(tenant, 5, r.of(tenant))
	}
	c.awaitShared(1)
	begun := make([]*sql.Tx, len(tenants))
	late := make([]string, len(tenants))
	for i, tenant := range tenants {
		tx, err := c.db.BeginTx(context.Background(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Rollback()
		begun[i] = tx
		if late[i], err = waybill.Publish(t.Context(), tx, waybill.Event{Tenant: tenant, Type: "order.paid", Payload: []byte(`{"late": true}`)}); err != nil {
			t.Fatal(err)
		}
	}
	for _, tenant := range tenants { // later places, committed first
		a.mustPublish(r, tenant)
	}
	r.awaitAll(time.Minute)
	c.start("b")
	c.awaitShared(2)
	pause(11 * time.Second) // longer than what reads of the newest rows look back
	committed := time.Now()
	for i, tx := range begun {
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		r.expect(late[i], tenants[i], time.Now())
	}
	r.awaitAll(time.Minute)
	waits := r.latencies(tenants, committed, time.Now())
	t.Logf("found after %s to %s", waits[0].Round(time.Millisecond), waits[len(waits)-1].Round(time.Millisecond))
	c.finish(r)
}

// What a stopping node has in flight is neither repeated nor given up, though it takes
// longer than any heartbeat or lease; what it had not sent is sent by the other.
func TestNodes_slowAttemptsOutliveLeasesAndDeploys(t *testing.T) {
	t.Parallel() // it waits more than it works
	c := newCluster(t, pgtest.DSN(t))
	r := newReceiver(t)
	r.script(func(_ request, done <-chan struct{}) int {
		hold(8*time.Second, done) // the time-out is ten
		return http.StatusNoContent
	})
	a := c.start("a")
	tenants := evenTenants(4)
	for _, tenant := range tenants {
		a.tenant(tenant, 5, r.of(tenant))
	}
	c.awaitShared(1)
	for range 10 {
		for _, tenant := range tenants {
			a.mustPublish(r, tenant)
		}
	}
	r.awaitRequest(time.Minute, "a request", func(request) bool { return true })
	c.start("b")
	c.awaitShared(2)
	a.Signal(syscall.SIGTERM)
	pause(3 * time.Second)
	if n := c.count("SELECT count(*) FROM waybill.attempt"); n > 0 {
		t.Errorf("%d attempts are recorded, and nothing has been answered", n)
	}
	a.AwaitEnd()
	r.awaitAll(time.Minute)
	if requests := len(r.all(func(request) bool { return true })); requests != 40 {
		t.Errorf("%d requests for 40 events", requests)
	}
	for _, tenant := range tenants {
		r.capped(tenant, 5)
	}
	c.finish(r)
}

// An endpoint deleted through one node gets nothing more from the other, not even after both
// have been restarted.
func TestNodes_deletedEndpointGetsNothingMore(t *testing.T) {
	t.Parallel() // it waits more than it works
	c := newCluster(t, pgtest.DSN(t))
	r := newReceiver(t)
	r.script(func(request, <-chan struct{}) int { return http.StatusInternalServerError })
	a, b := c.start("a"), c.start("b")
	c.awaitShared(2)
	tenants := evenTenants(2)
	for _, tenant := range tenants {
		a.tenant(tenant, 5, r.of(tenant))
		for range 5 {
			if a.publish(tenant) == "" {
				t.Fatal("not accepted")
			}
		}
	}
	for _, tenant := range tenants {
		r.awaitRequest(time.Minute, "a request", func(q request) bool { return q.tenant == tenant && q.attempt != "1" })
		if status, text := b.call(http.MethodDelete, "/v1/tenants/"+tenant, ""); status != http.StatusOK && status != http.StatusNoContent && status != http.StatusAccepted {
			t.Fatalf("delete: %d %s", status, text)
		}
	}
	await(t, time.Minute, "everything pending to be cancelled", func() bool {
		return c.count("SELECT count(*) FROM waybill.delivery") == 0 &&
			c.count("SELECT count(*) FROM waybill.dead_letter WHERE state = 'cancelled'") == 10
	})
	before := len(r.all(func(request) bool { return true }))
	a.Stop()
	b.Stop()
	c.start("d")
	c.awaitShared(1)
	pause(2 * time.Second)
	if after := len(r.all(func(request) bool { return true })); after != before {
		t.Errorf("%d requests after everything was cancelled", after-before)
	}
	c.finish(r)
}
