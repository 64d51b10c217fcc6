package attempt

import (
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// retryAfterCap is the longest Retry-After that is honoured where the endpoint's largest step is
// shorter.
const retryAfterCap = time.Hour

// Backoff returns how long to wait after a failed attempt. failures counts the attempts of this
// round before it, so the first failure has 0; retryAfter is what the receiver asked for, or 0;
// random is from [0, 1) and is the only chance in it.
//
// The wait lies between half of the step and the whole of it, so that what failed together does
// not come back together. A receiver's Retry-After is a floor, spread upwards by up to a quarter,
// and honoured up to an hour or the endpoint's largest step, whichever is more.
func Backoff(p outbox.RetryPolicy, failures int, retryAfter time.Duration, random float64) time.Duration {
	b := step(p, failures)
	wait := b/2 + time.Duration(random*float64(b-b/2))
	if retryAfter <= 0 {
		return wait
	}
	limit := max(p.Max, retryAfterCap)
	floor := min(retryAfter, limit)
	floor = min(floor+time.Duration(random*float64(floor/4)), limit)
	return max(wait, floor)
}

// step returns min(p.Max, p.Initial·2ⁿ), doubling only while there is room: a shift would wrap
// around to a negative step after 30-odd failures.
func step(p outbox.RetryPolicy, n int) time.Duration {
	b := p.Initial
	for range n {
		if b <= 0 || b >= p.Max/2 {
			return p.Max
		}
		b *= 2
	}
	return min(b, p.Max)
}
