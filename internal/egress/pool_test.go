package egress

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/url"
	"testing"
	"time"
)

func TestGuard_sweepClosesWhatIsOfNoUse(t *testing.T) {
	hangUp := make(chan struct{})
	u := script(t, nil, func(_ int, conn net.Conn) {
		if take(bufio.NewReader(conn)) {
			io.WriteString(conn, own)
			<-hangUp
		}
	})
	g, _ := onLoopback(t)
	if _, _, err := send(t, g, u, Peer{}, 10); err != nil {
		t.Fatal(err)
	}
	g.sweep()
	if n := g.open.Load(); n != 1 {
		t.Errorf("a good connection: %d are open after a sweep", n)
	}
	close(hangUp)
	eventually(t, "a connection whose other side hung up is closed", func() bool {
		g.sweep()
		return g.open.Load() == 0
	})
	if len(g.pools) != 1 {
		t.Errorf("%d pools, want the one that was just used", len(g.pools))
	}
	for _, p := range g.pools {
		p.usedAt.Add(-int64(forgetPool))
	}
	g.sweep()
	if len(g.pools) != 0 {
		t.Error("a pool out of use is kept")
	}
}

func TestPool_sweepClosesOldConnections(t *testing.T) {
	c := newCanary(t, "127.0.0.1")
	g, _ := onLoopback(t)
	u := &url.URL{Scheme: "http", Host: "127.0.0.1:" + c.port, Path: "/"}
	if _, _, err := send(t, g, u, Peer{}, 10); err != nil {
		t.Fatal(err)
	}
	p, err := g.pool(u, Peer{})
	if err != nil {
		t.Fatal(err)
	}
	if p.sweep(time.Now().Add(idleLimit - time.Second)) {
		t.Error("closed before its time")
	}
	if !p.sweep(time.Now().Add(idleLimit)) || g.open.Load() != 0 {
		t.Errorf("%d connections are open after their time", g.open.Load())
	}
}

// The connection of an attempt that ran out of time while it was dialled is there for the next.
func TestPool_anAbandonedDialIsKept(t *testing.T) {
	ns := newNameServer(t)
	c := newCanary(t, "127.0.0.1")
	g, err := New(Config{Policy: Policy{Allow: prefixes("127.0.0.0/8")}, Resolver: ns.addr})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	ns.answer("slow.test", []string{"127.0.0.1"})
	u := &url.URL{Scheme: "http", Host: "slow.test:" + c.port, Path: "/"}
	p, err := g.pool(u, Peer{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if conn, _, err := p.get(ctx); err == nil {
		p.put(conn) // the dial was that fast
	}
	eventually(t, "the connection is kept", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return len(p.idle) == 1
	})
	if _, trip, err := send(t, g, u, Peer{}, 0); err != nil || !trip.Reused {
		t.Errorf("%v, on the kept connection: %v", err, trip.Reused)
	}
}
