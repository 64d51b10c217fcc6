package outbox

import (
	"fmt"
	"regexp"
	"strconv"
	"time"
)

// RetryPolicy says when a failed delivery is tried again and for how long. A zero field takes
// the value of the next wider policy: endpoint, tenant, instance.
type RetryPolicy struct {
	Initial     time.Duration // the first step of the back-off
	Max         time.Duration // the largest step
	Window      time.Duration // no try is scheduled later than this after the delivery could first be sent
	MaxAttempts int           // per round; 0: the window alone decides
	// RetryStatuses are permanent answers to be retried all the same: "404", "4xx".
	// nil takes the wider policy's, an empty list is none.
	RetryStatuses []string
}

// DefaultRetry is the instance's policy where nothing is configured.
var DefaultRetry = RetryPolicy{
	Initial: 2 * time.Second,
	Max:     time.Hour,
	Window:  8 * time.Hour,
}

// MinInitial is the smallest first step.
const MinInitial = 50 * time.Millisecond

// Over returns the policy with its unset fields taken from wider.
func (p RetryPolicy) Over(wider RetryPolicy) RetryPolicy {
	if p.Initial == 0 {
		p.Initial = wider.Initial
	}
	if p.Max == 0 {
		p.Max = wider.Max
	}
	if p.Window == 0 {
		p.Window = wider.Window
	}
	if p.MaxAttempts == 0 {
		p.MaxAttempts = wider.MaxAttempts
	}
	if p.RetryStatuses == nil {
		p.RetryStatuses = wider.RetryStatuses
	}
	// An override of one bound alone may cross the other's default: the largest step is then
	// as small, or the first as large, as the one that was asked for.
	if p.Max != 0 { // not yet known where this is one of several steps
		p.Initial = min(p.Initial, p.Max)
	}
	return p
}

var statusPattern = regexp.MustCompile(`^[3-5](xx|[0-9][0-9])$`)

// Validate says what is wrong with the fields that are set. The field name comes first.
func (p RetryPolicy) Validate() error {
	switch {
	case p.Initial != 0 && p.Initial < MinInitial:
		return fmt.Errorf("initial_seconds: at least %g", MinInitial.Seconds())
	case p.Max < 0 || p.Max > 7*24*time.Hour:
		return fmt.Errorf("max_seconds: from initial_seconds to %d", 7*24*3600)
	case p.Initial != 0 && p.Max != 0 && p.Initial > p.Max:
		return fmt.Errorf("initial_seconds: at most max_seconds")
	case p.Window < 0 || p.Window > 30*24*time.Hour:
		return fmt.Errorf("window_seconds: from 0 to %d", 30*24*3600)
	case p.MaxAttempts < 0 || p.MaxAttempts > 100_000:
		return fmt.Errorf("max_attempts: from 1 to 100000")
	}
	for _, s := range p.RetryStatuses {
		if !statusPattern.MatchString(s) {
			return fmt.Errorf("retry_statuses: %q is neither a status such as 404 nor a class such as 4xx", s)
		}
	}
	return nil
}

// Retries reports whether the policy makes this status worth retrying.
func (p RetryPolicy) Retries(status int) bool {
	code := strconv.Itoa(status)
	for _, s := range p.RetryStatuses {
		if s == code || len(code) == 3 && s[1:] == "xx" && s[0] == code[0] {
			return true
		}
	}
	return false
}
