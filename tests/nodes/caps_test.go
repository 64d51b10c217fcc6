package nodes

import (
	"net/http"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/internal/postgres/pgtest"
)

// A cap is exact, whoever works for the tenant: through hand-overs in both directions, and
// when it is changed meanwhile. Lowered, it holds within five seconds.
func TestNodes_capsAreExactAcrossTheCluster(t *testing.T) {
	c := newCluster(t, pgtest.DSN(t))
	r := newReceiver(t)
	r.script(func(_ request, done <-chan struct{}) int {
		hold(400*time.Millisecond, done)
		return http.StatusNoContent
	})
	a, b := c.start("a"), c.start("b")
	c.awaitShared(2)
	tenants := evenTenants(4)
	for _, tenant := range tenants {
		a.tenant(tenant, 1, r.of(tenant))
	}
	for range 40 {
		for _, tenant := range tenants {
			a.mustPublish(r, tenant)
		}
	}
	// counted takes the largest number of requests that were open at once, from now on.
	counted := func(during func()) map[string]int {
		r.mu.Lock()
		for _, tenant := range tenants {
			r.most[tenant] = r.open[tenant]
		}
		r.mu.Unlock()
		during()
		r.mu.Lock()
		defer r.mu.Unlock()
		most := map[string]int{}
		for _, tenant := range tenants {
			most[tenant] = r.most[tenant]
		}
		return most
	}
	check := func(what string, most map[string]int, limit int) {
		t.Helper()
		for tenant, n := range most {
			if n > limit {
				t.Errorf("%s: tenant %s had %d requests open at once, its cap is %d", what, tenant, n, limit)
			}
		}
	}
	owners := []*node{b}
	check("while shards change hands", counted(func() {
		for i, name := range []string{"d", "e", "f"} {
			owners[i].Signal(syscall.SIGTERM) // its requests under way go on
			owners = append(owners, c.start(name))
			c.awaitShared(2)
			owners[i].AwaitEnd()
			pause(300 * time.Millisecond)
		}
	}), 1)

	for _, tenant := range tenants {
		a.cap(tenant, 3)
	}
	await(t, time.Minute, "the raised caps to be used", func() bool {
		most := counted(func() { pause(500 * time.Millisecond) })
		check("raised to 3", most, 3)
		return !slices.ContainsFunc(tenants, func(tenant string) bool { return most[tenant] < 3 })
	})
	for _, tenant := range tenants {
		a.cap(tenant, 1)
	}
	lowered := time.Now()
	await(t, time.Minute, "the lowered caps to hold", func() bool {
		most := counted(func() { pause(100 * time.Millisecond) })
		return !slices.ContainsFunc(tenants, func(tenant string) bool { return most[tenant] > 1 })
	})
	t.Logf("lowered to 1, it holds after %s", time.Since(lowered).Round(100*time.Millisecond))
	check("lowered to 1", counted(func() { pause(time.Second) }), 1)
	for _, tenant := range tenants {
		a.cap(tenant, 20)
	}
	c.finish(r)
}
