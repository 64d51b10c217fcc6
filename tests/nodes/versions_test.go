package nodes

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/internal/postgres/pgtest"
)

// A deploy, and its way back: the old version serves, the new one migrates under it, takes over
// process by process, and gives back. Nobody who publishes through a balancer that heeds /readyz
// is refused once, nothing is lost, and nothing is sent twice.
func TestNodes_twoVersionsSideBySide(t *testing.T) {
	t.Parallel() // it waits more than it works
	before, name := olderBuild(t)
	c := newCluster(t, pgtest.EmptyDSN(t))
	r := newReceiver(t)
	c.place.Use(before)
	c.migrate()
	level := c.level()
	first := []*node{c.start("old-1"), c.start("old-2")}
	c.awaitShared(2)
	tenants := evenTenants(8)
	for _, tenant := range tenants {
		first[0].tenant(tenant, 10, r.of(tenant))
	}
	front := newBalancer(c)
	front.put(first...)
	end := front.load(r, tenants, 10*time.Millisecond)
	front.awaitAccepted(50)

	c.place.Use(binary)
	c.migrate()
	t.Logf("old: %s with schema %d; new: this tree with schema %d", name, level, c.level())
	front.awaitAccepted(50)
	next := c.replace(front, first, "new")
	front.awaitAccepted(50)
	c.place.Use(before)
	last := c.replace(front, next, "old-again")
	front.awaitAccepted(50)
	end()

	if len(front.failed) > 0 {
		t.Errorf("%d of %d requests failed, the first: %s", len(front.failed), front.accepted+len(front.failed), front.failed[0])
	}
	if counts := c.shards(); len(counts) != len(last) {
		t.Errorf("shares %v, want those of %d nodes", counts, len(last))
	}
	c.place.Use(binary)
	c.finish(r)
}

// replace has other processes take over, one by one.
func (c *cluster) replace(front *balancer, old []*node, name string) (next []*node) {
	c.t.Helper()
	for i, n := range old {
		one := c.start(fmt.Sprint(name, "-", i+1))
		front.put(one)
		c.awaitShared(len(old) + 1)
		front.awaitWatched(n)
		n.Signal(syscall.SIGTERM)
		n.AwaitEnd()
		c.awaitShared(len(old))
		next = append(next, one)
	}
	return next
}

// migrate brings the schema to what the build in use needs.
func (c *cluster) migrate() {
	c.t.Helper()
	if out, err := c.place.Command("migrate", "up", "--no-role").CombinedOutput(); err != nil {
		c.t.Fatalf("waybill migrate up: %v\n%s", err, out)
	}
}

func (c *cluster) level() int {
	c.t.Helper()
	return c.count("SELECT max(version_id) FROM waybill.schema_migration WHERE is_applied")
}

// balancer sends requests to nodes in turn, as long as they say that they are ready.
type balancer struct {
	c *cluster

	mu       sync.Mutex
	ready    []*node
	asked    map[*node][2]time.Time // the first and the last time it said that it was ready
	turn     int
	accepted int
	failed   []string
}

func newBalancer(c *cluster) *balancer {
	return &balancer{c: c, asked: map[*node][2]time.Time{}}
}

// put takes nodes in as soon as they are ready, and out when they are not any more.
func (b *balancer) put(nodes ...*node) {
	b.c.t.Helper()
	for _, n := range nodes {
		await(b.c.t, time.Minute, n.name+" to be ready", func() bool { return n.isReady() })
		b.mu.Lock()
		b.ready = append(b.ready, n)
		b.asked[n] = [2]time.Time{time.Now(), time.Now()}
		b.mu.Unlock()
		go func() {
			for b.c.t.Context().Err() == nil && n.isReady() {
				b.mu.Lock()
				b.asked[n] = [2]time.Time{b.asked[n][0], time.Now()}
				b.mu.Unlock()
				time.Sleep(50 * time.Millisecond)
			}
			b.mu.Lock()
			defer b.mu.Unlock()
			for i := range b.ready {
				if b.ready[i] == n {
					b.ready = append(b.ready[:i:i], b.ready[i+1:]...)
					return
				}
			}
		}()
	}
}

// awaitWatched waits until the node knows that it is watched: a server that nobody keeps asking
// closes its doors at once when it is stopped.
func (b *balancer) awaitWatched(n *node) {
	b.c.t.Helper()
	const settled = 6 * time.Second // a little longer than the server takes to believe it
	await(b.c.t, time.Minute, n.name+" to be watched", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.asked[n][1].Sub(b.asked[n][0]) > settled
	})
}

func (n *node) isReady() bool {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	status, _ := n.Send(ctx, http.MethodGet, "/readyz", nil)
	return status == http.StatusOK
}

// load publishes for every tenant in turn until it is ended.
func (b *balancer) load(r *receiver, tenants []string, every time.Duration) (end func()) {
	ctx, cancel := context.WithCancel(b.c.t.Context())
	var group sync.WaitGroup
	group.Go(func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for i := 0; ; i++ {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			group.Go(func() { b.publish(r, tenants[i%len(tenants)]) })
		}
	})
	return func() {
		cancel()
		group.Wait()
	}
}

func (b *balancer) publish(r *receiver, tenant string) {
	b.mu.Lock()
	if len(b.ready) == 0 {
		b.failed = append(b.failed, "no node is ready")
		b.mu.Unlock()
		return
	}
	n := b.ready[b.turn%len(b.ready)]
	b.turn++
	sent := time.Now()
	heard := sent.Sub(b.asked[n][1])
	b.mu.Unlock()
	if heard > time.Second {
		return // this machine is too slow for a balancer: it does not know how the node stands
	}
	if id := n.publish(tenant); id != "" {
		r.expect(id, tenant, sent)
		b.note("")
	} else {
		b.note(fmt.Sprintf("%s at %s", n.name, clockOf(sent)))
	}
}

func (b *balancer) note(failure string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if failure == "" {
		b.accepted++
	} else {
		b.failed = append(b.failed, failure)
	}
}

// awaitAccepted waits until so many more events were accepted.
func (b *balancer) awaitAccepted(more int) {
	b.c.t.Helper()
	accepted := func() int {
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.accepted
	}
	began := accepted()
	await(b.c.t, time.Minute, "events to be accepted", func() bool { return accepted() >= began+more })
}

// olderBuild builds the newest release there is, else the version before the newest migration: the
// one that a deploy of this tree meets. Where there is no history (a shallow clone, an archive), it
// is this tree once more: what is shown then is the handing over, without a difference of versions.
func olderBuild(t *testing.T) (binary, name string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/waybill-dev/waybill").Output()
	if err != nil {
		t.Fatal(err)
	}
	root := strings.TrimSpace(string(out))
	git := func(args ...string) string {
		out, err := exec.CommandContext(t.Context(), "git", append([]string{"-C", root}, args...)...).Output()
		if err != nil {
			return ""
		}
		return strings.TrimSpace(string(out))
	}
	head := git("rev-parse", "HEAD")
	revision := git("describe", "--tags", "--abbrev=0", "--match", "v[0-9]*", "HEAD^")
	if revision == "" {
		migrated := git("log", "-1", "--format=%H", "--", "internal/postgres/migrations")
		revision = git("rev-parse", "--verify", "--quiet", migrated+"^")
	}
	if revision == "" || revision == head || git("rev-parse", "--is-shallow-repository") != "false" {
		return currentBuild(), "this tree once more"
	}
	tree := filepath.Join(t.TempDir(), "tree")
	if err := os.Mkdir(tree, 0o755); err != nil {
		t.Fatal(err)
	}
	archive := filepath.Join(t.TempDir(), "tree.tar")
	for _, command := range [][]string{
		{"git", "-C", root, "archive", "--format=tar", "-o", archive, revision},
		{"tar", "-xf", archive, "-C", tree},
	} {
		if out, err := exec.CommandContext(t.Context(), command[0], command[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", command, err, out)
		}
	}
	binary = filepath.Join(t.TempDir(), "waybill")
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-buildvcs=false", "-o", binary, "./cmd/waybill")
	build.Dir = tree
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build of %s: %v\n%s", revision, err, out)
	}
	return binary, revision
}

// currentBuild is the program under test.
func currentBuild() string { return binary }
