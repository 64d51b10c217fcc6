package nodes

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/waybill-dev/waybill/internal/outbox"
	"github.com/waybill-dev/waybill/tests/program"
)

// cluster is a database and the nodes that work on it.
type cluster struct {
	t        *testing.T
	database string
	db       *sql.DB
	place    *program.Instance // its keys are those of every node
	nodes    []*node
	diary    diary
}

func newCluster(t *testing.T, database string) *cluster {
	db, err := sql.Open("pgx", database)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return &cluster{t: t, database: database, db: db, place: program.NewInstance(t, binary, database)}
}

// diary is what the test did that may cost a repeated request: killing, freezing, cutting off.
type diary struct {
	mu      sync.Mutex
	entries []entry
}

type entry struct {
	at   time.Time
	node string
	what string
}

func (d *diary) note(node, what string) time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	d.entries = append(d.entries, entry{now, node, what})
	return now
}

// excuses reports whether something was done to the node at or after the given time: then a
// request of that time may have ended in a way nobody recorded.
func (d *diary) excuses(node string, since time.Time) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.ContainsFunc(d.entries, func(e entry) bool { return e.node == node && !e.at.Before(since) })
}

// node is one waybill serve. Its requests carry its name as the user agent.
type node struct {
	*program.Instance
	*program.Process
	c    *cluster
	name string
}

// start starts a new node and returns once it listens. It need not own anything yet.
func (c *cluster) start(name string) *node {
	c.t.Helper()
	return c.startVia(name, c.database)
}

// startVia starts a node that reaches the database in another way.
func (c *cluster) startVia(name, database string) *node {
	c.t.Helper()
	n := c.launch(name, database)
	n.AwaitListening()
	return n
}

// launch starts a node and does not wait for it.
func (c *cluster) launch(name, database string) *node {
	c.t.Helper()
	n := &node{c: c, name: name, Instance: c.place.Beside(database)}
	n.Env = append(n.Env, "WAYBILL_USER_AGENT="+name)
	process, err := n.Launch()
	if err != nil {
		c.t.Fatal(err)
	}
	n.Process = process
	c.nodes = append(c.nodes, n)
	return n
}

// kill ends the node as the out-of-memory killer would.
func (n *node) kill() time.Time {
	n.c.t.Helper()
	at := n.c.diary.note(n.name, "killed")
	if !n.Running() {
		n.c.t.Fatalf("%s ended by itself", n.name)
	}
	n.Kill()
	return at
}

// freeze stops the process on whatever line it is; thaw lets it go on.
func (n *node) freeze() time.Time {
	n.Signal(syscall.SIGSTOP)
	return n.c.diary.note(n.name, "frozen")
}

func (n *node) thaw() time.Time {
	at := n.c.diary.note(n.name, "thawed")
	n.Signal(syscall.SIGCONT)
	return at
}

// finish waits until everything the receiver expects is there and nothing is pending, stops the
// nodes, and has the books proven to the last number.
func (c *cluster) finish(r *receiver) {
	c.t.Helper()
	r.awaitAll(time.Minute)
	await(c.t, time.Minute, "pending deliveries to end", func() bool {
		return c.count("SELECT count(*) FROM waybill.delivery") == 0 && c.count("SELECT count(*) FROM waybill.outbox") == 0
	})
	for _, n := range c.nodes {
		if n.Running() {
			n.Stop()
		}
	}
	c.place.Verify()
	r.settle(&c.diary)
}

func (c *cluster) count(query string, args ...any) int {
	c.t.Helper()
	var n int
	if err := c.db.QueryRowContext(c.t.Context(), query, args...).Scan(&n); err != nil {
		c.t.Fatal(err)
	}
	return n
}

// recorded is the events of which an attempt is written down.
func (c *cluster) recorded() map[string]bool {
	c.t.Helper()
	rows, err := c.db.QueryContext(c.t.Context(), "SELECT DISTINCT uuid_send(event) FROM waybill.attempt")
	if err != nil {
		c.t.Fatal(err)
	}
	defer rows.Close()
	events := map[string]bool{}
	for rows.Next() {
		var id []byte
		if err := rows.Scan(&id); err != nil {
			c.t.Fatal(err)
		}
		events[outbox.EventID(id).String()] = true
	}
	if err := rows.Err(); err != nil {
		c.t.Fatal(err)
	}
	return events
}

// shards counts the shards of each owner that has any, in ascending order.
func (c *cluster) shards() []int {
	c.t.Helper()
	rows, err := c.db.QueryContext(c.t.Context(), "SELECT count(*) FROM waybill.shard WHERE node IS NOT NULL GROUP BY node ORDER BY 1")
	if err != nil {
		c.t.Fatal(err)
	}
	defer rows.Close()
	var counts []int
	for rows.Next() {
		var n int
		if err := rows.Scan(&n); err != nil {
			c.t.Fatal(err)
		}
		counts = append(counts, n)
	}
	if err := rows.Err(); err != nil {
		c.t.Fatal(err)
	}
	return counts
}

// shared reports whether n owners have every shard, each within one of an even share.
func (c *cluster) shared(n int) bool {
	c.t.Helper()
	counts := c.shards()
	total := 0
	for _, count := range counts {
		if count < outbox.Shards/n || count > (outbox.Shards+n-1)/n {
			return false
		}
		total += count
	}
	return len(counts) == n && total == outbox.Shards
}

// awaitShared waits until n nodes share the shards evenly and returns how long that took.
func (c *cluster) awaitShared(n int) time.Duration {
	c.t.Helper()
	began := time.Now()
	await(c.t, time.Minute, fmt.Sprintf("%d nodes to share evenly", n), func() bool { return c.shared(n) })
	return time.Since(began)
}

// evenTenants returns n tenant keys whose shards are spread evenly over all of them, so that every
// node of a small cluster owns some.
func evenTenants(n int) []string {
	keys := make([]string, 0, n)
	for i, next := 0, 0; len(keys) < n; i++ {
		key := fmt.Sprintf("t%d", i)
		if at := int(outbox.ShardOf(key)) * n / outbox.Shards; at == next {
			keys = append(keys, key)
			next++
		}
	}
	return keys
}

// owned is the id of the node that owns the tenant, "" if nobody does.
func (c *cluster) owned(tenant string) (owner string) {
	c.t.Helper()
	var id sql.NullString
	err := c.db.QueryRowContext(c.t.Context(), "SELECT node::text FROM waybill.shard WHERE shard = $1", int(outbox.ShardOf(tenant))).Scan(&id)
	if err != nil {
		c.t.Fatal(err)
	}
	return id.String
}

// call sends a request to the node and returns the status and the body; 0 where there was none.
func (n *node) call(method, path string, body string) (int, []byte) {
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
	defer cancel()
	return n.Send(ctx, method, path, []byte(body))
}

// tenant makes a tenant with a cap and an endpoint at the receiver that retries soon.
func (n *node) tenant(key string, maxInFlight int, url string) {
	n.c.t.Helper()
	n.cap(key, maxInFlight)
	status, text := n.call(http.MethodPost, "/v1/tenants/"+key+"/endpoints",
		fmt.Sprintf(`{"url":%q,"retry":{"initial_seconds":0.2,"max_seconds":1}}`, url))
	if status != http.StatusCreated {
		n.c.t.Fatalf("endpoint: %d %s", status, text)
	}
}

func (n *node) cap(key string, maxInFlight int) {
	n.c.t.Helper()
	status, text := n.call(http.MethodPut, "/v1/tenants/"+key, fmt.Sprintf(`{"max_in_flight":%d}`, maxInFlight))
	if status != http.StatusCreated && status != http.StatusOK {
		n.c.t.Fatalf("tenant: %d %s", status, text)
	}
}

// publish publishes an event and returns its id, "" if it was not accepted.
func (n *node) publish(tenant string) string {
	status, text := n.call(http.MethodPost, "/v1/tenants/"+tenant+"/events", `{"type":"order.paid","payload":{"amount": 1.10}}`)
	if status != http.StatusAccepted {
		return ""
	}
	var answer struct {
		ID string `json:"id"`
	}
	if err := json.Unmarshal(text, &answer); err != nil {
		n.c.t.Errorf("answer %q: %v", text, err)
	}
	return answer.ID
}

// mustPublish publishes through the node and has the receiver expect the event.
func (n *node) mustPublish(r *receiver, tenant string) string {
	n.c.t.Helper()
	sent := time.Now()
	id := n.publish(tenant)
	if id == "" {
		n.c.t.Fatalf("%s did not accept an event", n.name)
	}
	r.expect(id, tenant, sent)
	return id
}

// load publishes for every tenant in turn, through the nodes in turn, every so often until it is
// ended. What is not accepted is given up.
func (c *cluster) load(r *receiver, tenants []string, every time.Duration, through ...*node) (end func()) {
	ctx, cancel := context.WithCancel(c.t.Context())
	var group sync.WaitGroup
	tick := time.NewTicker(every)
	group.Go(func() {
		defer tick.Stop()
		for i := 0; ; i++ {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			group.Go(func() {
				tenant, sent := tenants[i%len(tenants)], time.Now()
				if id := through[i%len(through)].publish(tenant); id != "" {
					r.expect(id, tenant, sent)
				}
			})
		}
	})
	return func() {
		cancel()
		group.Wait()
	}
}

// await polls until what it waits for is there.
func await(t *testing.T, patience time.Duration, what string, there func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !there(); {
		if time.Now().After(deadline) {
			t.Fatalf("waited %s for %s", patience, what)
		}
		pause(10 * time.Millisecond)
	}
}

// pause lets time pass where the time itself is what is tried.
func pause(d time.Duration) { <-time.After(d) }
