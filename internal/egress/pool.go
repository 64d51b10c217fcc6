package egress

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// sweepEvery is how often unused connections are looked at: has the other side hung up, are they
// too old.
const sweepEvery = 5 * time.Second

// forgetPool is how long a pool without connections is kept. It is longer than an attempt takes,
// so that one does not come back to a pool that was forgotten under it.
const forgetPool = 2 * idleLimit

// pool holds the unused connections of one peer to one origin.
type pool struct {
	target *target
	usedAt atomic.Int64 // UnixNano

	mu      sync.Mutex
	idle    []*Conn // the one used last is last, and is used next
	retired bool    // nothing is kept any more
}

// get returns a connection to send a request on, and whether it was used before. If ctx ends
// first, the dial goes on and its connection is for whoever comes next.
func (p *pool) get(ctx context.Context) (conn *Conn, reused bool, err error) {
	for conn := p.take(); conn != nil; conn = p.take() {
		if conn.glance() == nil {
			return conn, true, nil
		}
		conn.Close()
	}
	type dialled struct {
		conn *Conn
		err  error
	}
	done := make(chan dialled, 1)
	go func() {
		conn, err := p.target.connection()
		done <- dialled{conn, err}
	}()
	select {
	case d := <-done:
		return d.conn, false, d.err
	case <-ctx.Done():
	}
	select {
	case d := <-done: // a failed dial is a fact, even if the caller gives up
		return d.conn, false, d.err
	default:
	}
	go func() {
		if d := <-done; d.err == nil {
			p.put(d.conn)
		}
	}()
	return nil, false, context.Cause(ctx)
}

func (p *pool) take() *Conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	last := len(p.idle) - 1
	if last < 0 {
		return nil
	}
	conn := p.idle[last]
	p.idle[last] = nil
	p.idle = p.idle[:last]
	return conn
}

// put keeps a connection for the next request, if there is room.
func (p *pool) put(conn *Conn) {
	now := time.Now()
	p.mu.Lock()
	keep := !p.retired && len(p.idle) < maxIdle
	if keep {
		conn.idleSince = now
		p.idle = append(p.idle, conn)
	}
	p.mu.Unlock()
	if !keep {
		conn.Close()
		return
	}
	p.target.guard.sweepLater()
}

// closeIdle closes the unused connections.
func (p *pool) closeIdle() { p.closeAll(false) }

// retire also has those in use closed once they are done.
func (p *pool) retire() { p.closeAll(true) }

func (p *pool) closeAll(retire bool) {
	p.mu.Lock()
	idle := p.idle
	p.idle = nil
	p.retired = p.retired || retire
	p.mu.Unlock()
	for _, conn := range idle {
		conn.Close()
	}
}

// sweep closes the connections that cannot or should not be used again and reports whether the
// pool is empty.
func (p *pool) sweep(now time.Time) (empty bool) {
	var useless []*Conn
	p.mu.Lock()
	p.idle = slices.DeleteFunc(p.idle, func(conn *Conn) bool {
		gone := now.Sub(conn.idleSince) >= idleLimit || conn.glance() != nil
		if gone {
			useless = append(useless, conn)
		}
		return gone
	})
	if len(p.idle) == 0 {
		p.idle = nil // and not an array as long as the pool ever was
	}
	empty = len(p.idle) == 0
	p.mu.Unlock()
	for _, conn := range useless {
		conn.Close()
	}
	return empty
}

// sweepLater has the pools swept soon, if that is not due anyway.
func (g *Guard) sweepLater() {
	if !g.sweeping.Load() && g.sweeping.CompareAndSwap(false, true) {
		time.AfterFunc(sweepEvery, g.sweep)
	}
}

// sweep looks at all pools, forgets those that are out of use, and comes again while there are
// any. There is no goroutine to stop.
func (g *Guard) sweep() {
	g.sweeping.Store(false) // first, so that what is put from now on has a sweep to come
	now := time.Now()
	g.mu.RLock()
	pools := make([]*pool, 0, len(g.pools))
	for _, p := range g.pools {
		pools = append(pools, p)
	}
	g.mu.RUnlock()
	before := now.Add(-forgetPool).UnixNano()
	stale := map[*pool]bool{}
	for _, p := range pools {
		if p.sweep(now) && p.usedAt.Load() < before {
			stale[p] = true
		}
	}
	if len(stale) > 0 {
		g.forget(func(_ origin, p *pool) bool { return stale[p] && p.usedAt.Load() < before })
	}
	if len(pools) > len(stale) {
		g.sweepLater()
	}
}
