package attempt

import (
	"net/http"
	"strconv"
	"time"
)

// maxRetryAfter bounds what a receiver may ask for before Backoff caps it; it only keeps the
// arithmetic from overflowing.
const maxRetryAfter = 366 * 24 * time.Hour

// parseRetryAfter reads a Retry-After header (RFC 9110, section 10.2.3): a number of seconds, or
// a date in any of the three forms of HTTP. Whatever else it says is ignored: 0.
func parseRetryAfter(value string, now time.Time) time.Duration {
	if value == "" {
		return 0
	}
	if value[0] >= '0' && value[0] <= '9' {
		seconds, err := strconv.ParseUint(value, 10, 63)
		if err != nil {
			return 0
		}
		return time.Duration(min(seconds, uint64(maxRetryAfter/time.Second))) * time.Second
	}
	date, err := http.ParseTime(value)
	if err != nil || !date.After(now) {
		return 0
	}
	return min(date.Sub(now), maxRetryAfter)
}
