package api

import (
	"math"
	"net"
	"net/netip"
	"strings"
	"sync"
	"time"
)

// Limits of what callers may ask for, in requests a second. A bucket holds two seconds' worth, so
// that what comes in bursts is not refused.
const (
	burstSeconds = 2
	// failuresPerSecond is how many wrong keys an address may try before it is told to wait. A
	// right one passes all the same: behind a proxy that nobody said to trust, everybody has one
	// address.
	failuresPerSecond = 20
	// maxCallers bounds the callers that are told apart; beyond, all are forgotten, which lets
	// each have a burst too many.
	maxCallers = 50_000
)

// buckets count requests by caller.
type buckets struct {
	perSecond float64 // 0: nothing is limited
	mu        sync.Mutex
	of        map[string]bucket
}

type bucket struct {
	left float64
	at   time.Time // of left, on the monotonic clock
}

func newBuckets(perSecond float64) *buckets {
	return &buckets{perSecond: perSecond, of: map[string]bucket{}}
}

// take takes one request out of the caller's bucket, or says after how long there will be one.
func (b *buckets) take(caller string, now time.Time) (wait time.Duration) {
	if b.perSecond <= 0 {
		return 0
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	size := math.Max(b.perSecond*burstSeconds, 1)
	one, has := b.of[caller]
	if !has {
		if len(b.of) >= maxCallers {
			clear(b.of)
		}
		one = bucket{left: size, at: now}
	}
	left := math.Min(size, one.left+now.Sub(one.at).Seconds()*b.perSecond)
	if left < 1 {
		b.of[caller] = bucket{left: left, at: now}
		return time.Duration((1 - left) / b.perSecond * float64(time.Second))
	}
	b.of[caller] = bucket{left: left - 1, at: now}
	return 0
}

// tooMany is the refusal of a caller who is to wait.
func tooMany(wait time.Duration, what string) error {
	p := fail(CodeTooManyRequests, "%s; wait for the seconds in Retry-After", what)
	p.retryAfter = max(1, int(math.Ceil(wait.Seconds())))
	return p
}

// callers finds out where requests come from.
type callers struct{ trusted []netip.Prefix }

// of is the address of the client: of the connection, or, where a trusted proxy made it, the last
// in X-Forwarded-For that is no trusted proxy's. What stands before that anybody could have
// written.
func (c callers) of(remote string, forwarded []string) string {
	host, _, err := net.SplitHostPort(remote)
	if err != nil {
		host = remote
	}
	if !c.trusts(host) {
		return host
	}
	hops := strings.Split(strings.Join(forwarded, ","), ",")
	for i := len(hops) - 1; i >= 0; i-- {
		hop := strings.TrimSpace(hops[i])
		if addr, _, err := net.SplitHostPort(hop); err == nil {
			hop = addr
		}
		addr, err := netip.ParseAddr(strings.Trim(hop, "[]"))
		if err != nil {
			break // a proxy of ours would not have written it
		}
		if host = addr.Unmap().WithZone("").String(); !c.trusts(host) {
			break
		}
	}
	return host
}

func (c callers) trusts(host string) bool {
	addr, err := netip.ParseAddr(host)
	if err != nil {
		return false
	}
	addr = addr.Unmap().WithZone("")
	for _, p := range c.trusted {
		if p.Contains(addr) {
			return true
		}
	}
	return false
}
