package dispatch

import (
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

const (
	// breakerAfter is how many failures in a row open a breaker.
	breakerAfter = 20
	// firstCooldown is the wait before the first probe; each probe that fails doubles it.
	firstCooldown = 30 * time.Second
	maxCooldown   = 15 * time.Minute
	// cooldownSpread is how far a wait is spread to both sides, so that endpoints behind one
	// broken proxy are not probed at once.
	cooldownSpread = 0.1
)

// breaker stops sending to an endpoint that only fails. While it is open nothing of the endpoint
// is read from the database, nothing is written and no attempt is counted: its deliveries wait as
// they are. It has no timer and no clock; whoever holds it asks and tells.
//
// A probe that ends in any way but success leads to the next probe, and so does one whose end is
// never reported: the state says when the next may start, not that one is out.
type breaker struct {
	state     outbox.BreakerState
	failures  int // in a row
	openedAt  time.Time
	cooldown  time.Duration
	nextProbe time.Time
}

func newBreaker() breaker { return breaker{state: outbox.BreakerClosed} }

// effect is what an attempt's end means to a breaker.
type effect int

const (
	effectNone    effect = iota // a 429, a failed replay: says nothing about the server's health
	effectSuccess               // any 2xx
	effectFailure               // connection failures, timeouts, 5xx, permanent answers
)

// may reports whether an ordinary delivery may be sent.
func (b *breaker) may() bool { return b.state == outbox.BreakerClosed }

// mayProbe reports whether a probe may start now.
func (b *breaker) mayProbe(now time.Time) bool {
	return b.state == outbox.BreakerOpen && !now.Before(b.nextProbe)
}

// probeStarted notes that a probe is out.
func (b *breaker) probeStarted() { b.state = outbox.BreakerProbing }

// ended notes how an attempt ended and reports whether the state changed. random is from [0, 1).
func (b *breaker) ended(e effect, probe bool, now time.Time, random float64) bool {
	switch {
	case e == effectSuccess:
		changed := b.state != outbox.BreakerClosed
		*b = newBreaker()
		return changed
	case probe && b.state == outbox.BreakerProbing:
		b.failures++
		b.wait(min(2*b.cooldown, maxCooldown), now, random)
		return true
	case b.state == outbox.BreakerClosed && e == effectFailure:
		if b.failures++; b.failures < breakerAfter {
			return false
		}
		b.openedAt = now
		b.wait(firstCooldown, now, random)
		return true
	}
	return false // a straggler: what was in flight when it opened says nothing new
}

// probeLost notes that a probe was cut off by the node itself: the next may start at once.
func (b *breaker) probeLost(now time.Time) {
	if b.state == outbox.BreakerProbing {
		b.state, b.nextProbe = outbox.BreakerOpen, now
	}
}

func (b *breaker) wait(cooldown time.Duration, now time.Time, random float64) {
	b.state, b.cooldown = outbox.BreakerOpen, cooldown
	spread := 1 + cooldownSpread*(2*random-1)
	b.nextProbe = now.Add(time.Duration(float64(cooldown) * spread)).Truncate(time.Microsecond)
}
