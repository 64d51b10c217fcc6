package egress

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// Config says how a Guard works. The zero Config dials the public internet.
type Config struct {
	Policy Policy
	// Resolver is the host:port of the DNS server to ask. "" means the system's.
	Resolver string
	// RootCAs are the authorities trusted to sign certificates. nil means the system's.
	RootCAs *x509.CertPool
}

// Bounds of a connection's life.
const (
	// dialLimit bounds lookup, connecting and handshake together. A dial is not cut when the
	// attempt that asked for it runs out of time (the connection is kept for the next one), so it
	// needs an end of its own.
	dialLimit = 15 * time.Second
	// lookupLimit is shorter than the usual attempt, so that a silent DNS server is called that.
	lookupLimit = 5 * time.Second
	// idleLimit is how long an unused connection is kept: long enough for a steady trickle,
	// short enough that a changed address or policy is met soon.
	idleLimit = 30 * time.Second
	// maxIdle is what one pool keeps. Fewer than the attempts in flight to one endpoint would mean
	// a new connection for the difference, again and again.
	maxIdle = 256
	// maxResponseHeader bounds the header of an answer; more is a broken or hostile server.
	maxResponseHeader = 64 << 10
	// maxPools and maxConns bound what many endpoints together hold open.
	maxPools = 16 << 10
	maxConns = 8192
)

// Guard judges and dials. It is safe for use by many goroutines at once.
type Guard struct {
	policy   Policy
	resolver *net.Resolver
	roots    *x509.CertPool
	sessions [2]tls.ClientSessionCache // by class

	mu    sync.RWMutex
	pools map[origin]*pool

	open      atomic.Int64 // connections, busy and idle
	trimmedAt atomic.Int64 // UnixNano
	sweeping  atomic.Bool  // a sweep is due
}

// Peer says whose request it is. A connection is only ever used for one peer.
type Peer struct {
	Endpoint outbox.EndpointID
	Internal bool // the class of its tenant
	// Certificate is shown to a server that asks for one; nil: none. Two pointers are two peers,
	// so a connection made with one certificate is never used under another.
	Certificate *tls.Certificate
}

// origin is what a connection may be reused for.
type origin struct {
	peer         Peer
	scheme, host string // host with port, if the URL has one
}

// New makes a guard.
func New(cfg Config) (*Guard, error) {
	for _, scheme := range cfg.Policy.Schemes {
		if scheme != "http" && scheme != "https" {
			return nil, fmt.Errorf("scheme %q is neither http nor https", scheme)
		}
	}
	resolver, err := newResolver(cfg.Resolver)
	if err != nil {
		return nil, err
	}
	return &Guard{
		policy:   cfg.Policy,
		resolver: resolver,
		roots:    cfg.RootCAs,
		sessions: [2]tls.ClientSessionCache{tls.NewLRUClientSessionCache(1024), tls.NewLRUClientSessionCache(1024)},
		pools:    map[origin]*pool{},
	}, nil
}

// CloseIdle closes the unused connections made for an endpoint and forgets its pools, so that
// those in use are not kept either. Call it when the endpoint's URL or certificate changes, or
// the endpoint goes.
func (g *Guard) CloseIdle(endpoint outbox.EndpointID) {
	g.forget(func(key origin, _ *pool) bool { return key.peer.Endpoint == endpoint })
}

// Close closes all unused connections. The guard stays usable.
func (g *Guard) Close() {
	g.forget(func(origin, *pool) bool { return true })
}

// forget drops the pools that match and closes what they hold.
func (g *Guard) forget(match func(origin, *pool) bool) {
	var dropped []*pool
	g.mu.Lock()
	for key, p := range g.pools {
		if match(key, p) {
			dropped = append(dropped, p)
			delete(g.pools, key)
		}
	}
	g.mu.Unlock()
	for _, p := range dropped {
		p.retire()
	}
}

// pool returns the connections of a peer to a URL's origin. Scheme and port are judged once per
// pool, not once per request; addresses whenever one is dialled.
func (g *Guard) pool(u *url.URL, peer Peer) (*pool, error) {
	key := origin{peer, u.Scheme, u.Host}
	now := time.Now().UnixNano()
	g.mu.RLock()
	p := g.pools[key]
	g.mu.RUnlock()
	if p != nil {
		p.usedAt.Store(now)
		return p, nil
	}
	t, err := g.target(u, peer)
	if err != nil {
		return nil, err
	}
	made := &pool{target: t}
	made.usedAt.Store(now)
	defer g.sweepLater()
	g.mu.Lock()
	defer g.mu.Unlock()
	if p := g.pools[key]; p != nil {
		return p, nil
	}
	if len(g.pools) >= maxPools {
		g.dropOlderHalf()
	}
	g.pools[key] = made
	return made, nil
}

// target resolves what of a URL matters for dialling, and refuses what the policy forbids.
func (g *Guard) target(u *url.URL, peer Peer) (*target, error) {
	deny := func(reason string) error { return &DialError{Step: StepPolicy, Err: &DeniedError{reason}} }
	if !g.policy.allowsScheme(u.Scheme) {
		return nil, deny("scheme")
	}
	port := uint16(443)
	if u.Scheme == "http" {
		port = 80
	}
	if text := u.Port(); text != "" {
		n, err := strconv.ParseUint(text, 10, 16)
		if err != nil {
			return nil, deny("port")
		}
		port = uint16(n)
	}
	if !g.policy.allowsPort(port) {
		return nil, deny("port")
	}
	t := &target{guard: g, host: u.Hostname(), port: port, internal: peer.Internal, certificate: peer.Certificate}
	t.literal, _ = netip.ParseAddr(t.host)
	if u.Scheme == "https" {
		t.tls = &tls.Config{
			ServerName:         t.host,
			RootCAs:            g.roots,
			MinVersion:         tls.VersionTLS12,
			NextProtos:         []string{"http/1.1"},
			ClientSessionCache: g.sessions[class(peer.Internal)],
		}
		if peer.Certificate != nil {
			t.tls.ClientSessionCache = nil // a session of somebody else's would do without it
		}
	}
	t.dialer.ControlContext = t.control
	return t, nil
}

func class(internal bool) int {
	if internal {
		return 1
	}
	return 0
}

// dropOlderHalf forgets the pools that were not used for longest. Half of them at once: looking at
// all of them for every new one, under the lock, would be felt where endpoints are many. The caller
// holds the lock.
func (g *Guard) dropOlderHalf() {
	used := make(map[origin]int64, len(g.pools)) // it goes on changing
	for key, p := range g.pools {
		used[key] = p.usedAt.Load()
	}
	byUse := slices.SortedFunc(maps.Keys(used), func(a, b origin) int { return cmp.Compare(used[a], used[b]) })
	var dropped []*pool
	for _, key := range byUse[:len(byUse)/2] {
		dropped = append(dropped, g.pools[key])
		delete(g.pools, key)
	}
	go func() {
		for _, p := range dropped {
			p.retire()
		}
	}()
}

// trim closes the idle connections of endpoints nothing was sent to in the last second, when too
// many are open in all. At most once a second: it looks at every pool.
func (g *Guard) trim() {
	if g.open.Load() < maxConns {
		return
	}
	now := time.Now().UnixNano()
	before := now - int64(time.Second)
	last := g.trimmedAt.Load()
	if last > before || !g.trimmedAt.CompareAndSwap(last, now) {
		return
	}
	var quiet []*pool
	g.mu.RLock()
	for _, p := range g.pools {
		if p.usedAt.Load() < before {
			quiet = append(quiet, p)
		}
	}
	g.mu.RUnlock()
	for _, p := range quiet {
		p.closeIdle()
	}
}

// loopbacks are the addresses that localhost means to a tenant of this class: those that are
// opened to it.
func (g *Guard) loopbacks(internal bool) []netip.Addr {
	var open []netip.Addr
	for _, addr := range loopbacks {
		if g.policy.opens(addr, internal) {
			open = append(open, addr)
		}
	}
	return open
}
