package nodes

import (
	"encoding/json"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/internal/postgres/pgtest"
)

// A replay of many deliveries goes on where it stood when its owner is killed: each is planned
// again once, and none is left out.
func TestNodes_replaySurvivesItsOwner(t *testing.T) {
	t.Parallel() // it waits more than it works
	c := newCluster(t, pgtest.DSN(t))
	r := newReceiver(t)
	var well atomic.Bool
	r.script(func(q request, _ <-chan struct{}) int {
		// Every other event is refused at first; so many in a row would open the breaker.
		if !well.Load() && q.id[len(q.id)-1]%2 == 0 {
			return http.StatusNotFound
		}
		return http.StatusNoContent
	})
	a, b := c.start("a"), c.start("b")
	c.awaitShared(2)
	tenant := evenTenants(1)[0]
	a.tenant(tenant, 5, r.of(tenant))
	const events = 240
	for range events {
		a.mustPublish(r, tenant)
	}
	await(t, time.Minute, "every event to end", func() bool {
		return c.count("SELECT count(*) FROM waybill.delivery") == 0 &&
			c.count("SELECT count(*) FROM waybill.attempt WHERE final") == events
	})
	dead := c.count("SELECT count(*) FROM waybill.dead_letter")
	if dead < events/4 {
		t.Fatalf("only %d of %d are dead", dead, events)
	}
	well.Store(true)

	now := time.Now()
	status, text := a.call(http.MethodPost, "/v1/tenants/"+tenant+"/replays", fmt.Sprintf(`{"from":%q,"to":%q,"rate_per_second":40}`,
		now.Add(-time.Hour).Format(time.RFC3339), now.Add(time.Hour).Format(time.RFC3339)))
	var job struct {
		ID, State                string
		Matched, Done, Delivered int
	}
	if err := json.Unmarshal(text, &job); err != nil || status != http.StatusAccepted || job.Matched != dead {
		t.Fatalf("%d %s, want a job about %d", status, text, dead)
	}
	await(t, time.Minute, "some replays", func() bool {
		return c.count("SELECT count(*) FROM waybill.attempt WHERE trigger = 'replay'") >= dead/4
	})
	began := time.Now()
	owner, left := a, b
	if r.awaitRequest(time.Minute, "the next replay", func(q request) bool { return q.at.After(began) }).node == b.name {
		owner, left = b, a
	}
	owner.kill()
	await(t, time.Minute, "the job to end", func() bool {
		status, text := left.call(http.MethodGet, "/v1/tenants/"+tenant+"/replays/"+job.ID, "")
		return status == http.StatusOK && json.Unmarshal(text, &job) == nil && job.State == "done"
	})
	if job.Done != dead || job.Delivered != dead {
		t.Errorf("the job says %+v, want %d delivered", job, dead)
	}
	if n := c.count("SELECT count(*) FROM (SELECT dlv FROM waybill.attempt WHERE trigger = 'replay' AND final GROUP BY dlv) AS d"); n != dead {
		t.Errorf("%d of %d were replayed", n, dead)
	}
	if round := c.count("SELECT max(round) FROM waybill.attempt"); round != 1 {
		t.Errorf("round %d was begun", round)
	}
	c.finish(r)
}
