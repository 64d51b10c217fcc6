package dispatch

import (
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

const (
	// rateWindow is how far back a success still counts towards the rate a server can take.
	rateWindow = 2 * time.Second
	rateBucket = 100 * time.Millisecond
	// rateLeast is the shortest time that a rate is measured over: what a server takes at once
	// after a rest says little about what it takes a second.
	rateLeast = 500 * time.Millisecond
	// rateCut of the measured rate is what a server that says "too many" is given at first.
	rateCut = 0.8
	// rateFloor is the least a limited server is given, and what it gets more each second.
	rateFloor = 1.0
	// rateUnlimited is where a rate stops being worth keeping.
	rateUnlimited = 1000.0
	// rateBurst is how much of a second may be sent at once after a pause.
	rateBurst = 0.05
)

// pace adapts to what an endpoint's server can take, in two ways that do not replace each other.
//
// A slow server is met by concurrency: the limit is halved when an attempt runs into its timeout,
// and grows by one for each round of successes. A limited one (429, or 503 in the middle of
// successes) is met by rate: concurrency alone would send a server that answers 429 within a
// millisecond thousands of them a second. Until then there is no rate at all.
type pace struct {
	limit    float64 // attempts at once; 0: not yet known, the cap
	halvedAt time.Time

	rate    float64   // requests a second; 0: unlimited
	doubles bool      // after an outage: the rate doubles each second instead of growing by one
	setAt   time.Time // when rate was last set; it grows from there
	tokens  float64
	filled  time.Time
	cutAt   time.Time

	success     [int(rateWindow / rateBucket)]int32
	successAt   int64 // bucket number of the newest
	lastSuccess time.Time
	since       time.Time // the first success with no rateWindow between it and the last one

	// until is the end of a pause the server asked for by Retry-After.
	until time.Time
}

// slots is how many attempts at once the server has shown to bear, at most most.
func (p *pace) slots(most int) int {
	if p.limit == 0 {
		return most
	}
	return max(1, min(int(p.limit), most))
}

// nextAt says when the next request may start: not after now if it may at once.
func (p *pace) nextAt(now time.Time) time.Time {
	if p.until.After(now) {
		return p.until
	}
	rate := p.currentRate(now)
	if rate == 0 {
		return now
	}
	p.fill(now, rate)
	if p.tokens >= 1 {
		return now
	}
	return now.Add(time.Duration((1 - p.tokens) / rate * float64(time.Second)))
}

// started takes a request's token.
func (p *pace) started() {
	if p.rate > 0 {
		p.tokens--
	}
}

// currentRate is the rate grown to now.
func (p *pace) currentRate(now time.Time) float64 {
	if p.rate == 0 {
		return 0
	}
	seconds := now.Sub(p.setAt).Seconds()
	rate := p.rate + rateFloor*seconds
	if p.doubles {
		rate = p.rate
		for range min(int(seconds), 20) {
			rate *= 2
		}
	}
	if rate >= rateUnlimited {
		p.rate, p.doubles = 0, false
		return 0
	}
	return rate
}

func (p *pace) fill(now time.Time, rate float64) {
	p.tokens = min(p.tokens+rate*now.Sub(p.filled).Seconds(), max(1, rate*rateBurst))
	p.filled = now
}

func (p *pace) setRate(rate float64, now time.Time) {
	p.rate, p.setAt = max(rate, rateFloor), now
	p.tokens, p.filled = 0, now
}

// slowStart begins again at one request a second after an outage, doubling each second: what
// waited must not knock over what has just come back.
func (p *pace) slowStart(now time.Time) {
	p.setRate(rateFloor, now)
	p.tokens = 1
	p.doubles = true
	p.cutAt = now
}

// succeeded notes a 2xx; most is the cap.
func (p *pace) succeeded(now time.Time, most int) {
	if now.Sub(p.lastSuccess) > rateWindow {
		p.since = now
	}
	p.lastSuccess = now
	p.shift(now)
	p.success[p.successAt%int64(len(p.success))]++
	if p.limit > 0 {
		if p.limit += 1 / p.limit; p.limit >= float64(most) {
			p.limit = 0
		}
	}
}

// timedOut notes that an attempt begun at started ran into its timeout. Those that were already
// under way at the last halving tell nothing new.
func (p *pace) timedOut(started, now time.Time, most int) {
	if started.Before(p.halvedAt) {
		return
	}
	p.limit = max(1, float64(p.slots(most))/2)
	p.halvedAt = now
}

// limited notes that the server said "too many" to a request begun at started.
func (p *pace) limited(started, now time.Time) {
	if started.Before(p.cutAt) {
		return
	}
	rate := p.successRate(now)
	p.setRate(rateCut*rate, now)
	// What was measured over less than rateWindow is a first guess, and low: successes were few yet.
	// Growing by one a second from there, a server that takes 50 would be sent so many after a minute.
	p.doubles = rate > 0 && now.Sub(p.since) < rateWindow
	p.cutAt = now
}

// pause keeps the endpoint alone until the given time.
func (p *pace) pause(until time.Time) {
	if until.After(p.until) {
		p.until = until
	}
}

// successRate is the successes a second over the last rateWindow, or since they began.
func (p *pace) successRate(now time.Time) float64 {
	p.shift(now)
	n := int32(0)
	for _, c := range p.success {
		n += c
	}
	return float64(n) / min(max(now.Sub(p.since), rateLeast), rateWindow).Seconds()
}

func (p *pace) shift(now time.Time) {
	bucket := now.UnixNano() / int64(rateBucket)
	if bucket-p.successAt >= int64(len(p.success)) {
		p.success = [len(p.success)]int32{}
	} else {
		for b := p.successAt + 1; b <= bucket; b++ {
			p.success[b%int64(len(p.success))] = 0
		}
	}
	p.successAt = max(bucket, p.successAt)
}

// tooMany reports whether an answer means that the server wants fewer requests: 429 always, 503
// only in the middle of successes. A 503 with none around it is an outage, the breaker's business.
func (p *pace) tooMany(status int, now time.Time) bool {
	return status == 429 || status == 503 && now.Sub(p.lastSuccess) <= rateWindow && !p.lastSuccess.IsZero()
}

// effectOf says what an attempt's end means to the breaker.
func effectOf(o *outbox.Attempt, lane outbox.Lane) effect {
	switch {
	case o.Outcome == outbox.OutcomeDelivered:
		return effectSuccess
	case o.StatusCode == 429, lane != outbox.LaneLive, o.Kind == outbox.KindPanic, o.Kind == outbox.KindConfig:
		return effectNone
	}
	return effectFailure
}
