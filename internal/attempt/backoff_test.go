package attempt

import (
	"math"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
	"pgregory.net/rapid"
)

func TestBackoff_schedule(t *testing.T) {
	p := outbox.DefaultRetry // 2 s, doubling, up to 1 h
	for failures, want := range map[int]time.Duration{
		0: 2 * time.Second, 1: 4 * time.Second, 2: 8 * time.Second, 9: 1024 * time.Second, 10: 2048 * time.Second,
		11: time.Hour, 12: time.Hour, 33: time.Hour, 40: time.Hour, 63: time.Hour, 64: time.Hour, 1000: time.Hour, math.MaxInt32: time.Hour,
	} {
		if low := Backoff(p, failures, 0, 0); low != want/2 {
			t.Errorf("after %d failures at least %s, want %s", failures, low, want/2)
		}
		if high := Backoff(p, failures, 0, math.Nextafter(1, 0)); high < want-time.Microsecond || high > want {
			t.Errorf("after %d failures at most %s, want %s", failures, high, want)
		}
	}
}

func TestBackoff_retryAfter(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	p := outbox.DefaultRetry
	for name, row := range map[string]struct {
		policy    outbox.RetryPolicy
		value     string
		low, high time.Duration // for the first failure: 1 s to 2 s by itself
	}{
		"none":                       {p, "", time.Second, 2 * time.Second},
		"zero":                       {p, "0", time.Second, 2 * time.Second},
		"shorter than the step":      {p, "1", time.Second, 2 * time.Second},
		"two minutes":                {p, "120", 2 * time.Minute, 150 * time.Second},
		"an hour":                    {p, "3600", time.Hour, time.Hour},
		"decades":                    {p, "9999999999", time.Hour, time.Hour},
		"with leading zeros":         {p, "00120", 2 * time.Minute, 150 * time.Second},
		"more than 64 bits":          {p, "99999999999999999999", time.Second, 2 * time.Second},
		"negative":                   {p, "-5", time.Second, 2 * time.Second},
		"a fraction":                 {p, "1.5", time.Second, 2 * time.Second},
		"a sign":                     {p, "+120", time.Second, 2 * time.Second},
		"words":                      {p, "abc", time.Second, 2 * time.Second},
		"a number and words":         {p, "120 seconds", time.Second, 2 * time.Second},
		"a date":                     {p, "Mon, 30 Nov 2026 12:02:00 GMT", 2 * time.Minute, 150 * time.Second},
		"a date of RFC 850":          {p, "Monday, 30-Nov-26 12:02:00 GMT", 2 * time.Minute, 150 * time.Second},
		"a date of asctime":          {p, "Mon Nov 30 12:02:00 2026", 2 * time.Minute, 150 * time.Second},
		"a date in the past":         {p, "Mon, 30 Nov 2026 11:00:00 GMT", time.Second, 2 * time.Second},
		"a date in a thousand years": {p, "Mon, 30 Nov 3026 11:00:00 GMT", time.Hour, time.Hour},
		"a date of another form":     {p, "2026-11-30T12:02:00Z", time.Second, 2 * time.Second},
		"longer steps than 1 h":      {outbox.RetryPolicy{Initial: 2 * time.Second, Max: 6 * time.Hour}, "18000", 5 * time.Hour, 6 * time.Hour},
		"shorter steps than 1 h":     {outbox.RetryPolicy{Initial: 2 * time.Second, Max: 10 * time.Second}, "1800", 30 * time.Minute, 37*time.Minute + 30*time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			asked := parseRetryAfter(row.value, now)
			low, high := Backoff(row.policy, 0, asked, 0), Backoff(row.policy, 0, asked, math.Nextafter(1, 0))
			if low != row.low || (high-row.high).Abs() > time.Microsecond {
				t.Errorf("waits %s to %s, want %s to %s", low, high, row.low, row.high)
			}
		})
	}
}

// Whatever the policy, the number and the request: a wait is positive, never below half a step,
// and never beyond the larger of the largest step and an hour.
func TestBackoff_staysWithinItsBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := outbox.RetryPolicy{Max: time.Duration(rapid.Int64Range(int64(outbox.MinInitial), int64(7*24*time.Hour)).Draw(t, "max"))}
		p.Initial = time.Duration(rapid.Int64Range(int64(outbox.MinInitial), int64(p.Max)).Draw(t, "initial"))
		n := rapid.IntRange(0, 5000).Draw(t, "failures")
		asked := time.Duration(rapid.Int64Range(-1, math.MaxInt64).Draw(t, "retry after"))
		random := rapid.Float64Range(0, math.Nextafter(1, 0)).Draw(t, "random")
		wait := Backoff(p, n, asked, random)
		if least := step(p, n) / 2; wait < least || wait <= 0 {
			t.Fatalf("waits %s, less than half of the step", wait)
		}
		if most := max(p.Max, retryAfterCap); wait > most {
			t.Fatalf("waits %s, more than %s", wait, most)
		}
		if step(p, n+1) < step(p, n) {
			t.Fatalf("the steps fall from %s to %s", step(p, n), step(p, n+1))
		}
	})
}
