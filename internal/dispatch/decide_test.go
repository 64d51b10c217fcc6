package dispatch

import (
	"testing"
	"time"

	"github.com/waybill-dev/waybill/internal/attempt"
	"github.com/waybill-dev/waybill/internal/outbox"
)

func TestDecide(t *testing.T) {
	policy := outbox.RetryPolicy{Initial: 2 * time.Second, Max: time.Hour, Window: 8 * time.Hour}
	failing := outbox.Attempt{Outcome: outbox.OutcomeTransient, Kind: outbox.KindTimeout}
	panicking := outbox.Attempt{Outcome: outbox.OutcomeTransient, Kind: outbox.KindPanic}
	limited := policy
	limited.MaxAttempts = 3
	for name, tc := range map[string]struct {
		made, roundStart int // attempts before this one, and those of earlier rounds
		panics           int // with this one
		attempt          outbox.Attempt
		retryAfter       time.Duration
		policy           outbox.RetryPolicy
		since            time.Duration // ago
		delivered        bool
		dead             outbox.DeadReason
		from, to         time.Duration // of the next try, from now
	}{
		"delivered":                                  {attempt: outbox.Attempt{Outcome: outbox.OutcomeDelivered}, policy: policy, delivered: true},
		"permanent":                                  {attempt: outbox.Attempt{Outcome: outbox.OutcomePermanent}, policy: policy, dead: outbox.DeadPermanent},
		"first failure waits 1 to 2 s":               {attempt: failing, policy: policy, from: time.Second, to: 2 * time.Second},
		"fourth failure waits 8 to 16 s":             {made: 3, attempt: failing, policy: policy, from: 8 * time.Second, to: 16 * time.Second},
		"a new round starts over":                    {made: 30, roundStart: 30, attempt: failing, policy: policy, from: time.Second, to: 2 * time.Second},
		"attempt 1000 waits half an hour to an hour": {made: 1000, attempt: failing, policy: policy, from: 30 * time.Minute, to: time.Hour},
		"Retry-After is a floor":                     {attempt: failing, retryAfter: 2 * time.Minute, policy: policy, from: 2 * time.Minute, to: time.Hour},
		"within the window":                          {made: 3, attempt: failing, policy: policy, since: 7 * time.Hour, from: 8 * time.Second, to: 16 * time.Second},
		"window over":                                {made: 3, attempt: failing, policy: policy, since: 8 * time.Hour, dead: outbox.DeadExhausted},
		"second of three attempts":                   {made: 1, attempt: failing, policy: limited, from: 2 * time.Second, to: 4 * time.Second},
		"third of three attempts":                    {made: 2, attempt: failing, policy: limited, dead: outbox.DeadExhausted},
		"third of this round":                        {made: 7, roundStart: 5, attempt: failing, policy: limited, dead: outbox.DeadExhausted},
		"first panic after two failures":             {made: 2, panics: 1, attempt: panicking, policy: policy, from: 4 * time.Second, to: 8 * time.Second},
		"second panic":                               {made: 1, panics: 2, attempt: panicking, policy: policy, from: 2 * time.Second, to: 4 * time.Second},
		"third panic":                                {made: 2, panics: 3, attempt: panicking, policy: policy, dead: outbox.DeadPoison},
	} {
		d := outbox.Delivery{Attempt: tc.made, RoundStart: tc.roundStart}
		o := attempt.Outcome{Attempt: tc.attempt, RetryAfter: tc.retryAfter}
		v := decide(&d, &o, tc.policy, tc.panics, start.Add(-tc.since), start)
		if v.delivered != tc.delivered || v.dead != tc.dead || v.retryAt.IsZero() != (tc.to == 0) || v.why == "" {
			t.Errorf("%s: %+v", name, v)
			continue
		}
		if wait := v.retryAt.Sub(start); tc.to != 0 && (wait < tc.from || wait > tc.to) {
			t.Errorf("%s: waits %v, want %v to %v", name, wait, tc.from, tc.to)
		}
	}
}

func TestGoneCounter_thirdInTenMinutes(t *testing.T) {
	var g goneCounter
	id := outbox.NewEndpointID(start)
	for i, step := range []struct {
		at   time.Duration
		want bool
	}{{0, false}, {9 * time.Minute, false}, {11 * time.Minute, false}, {12 * time.Minute, true}, {13 * time.Minute, false}} {
		if got := g.third(id, start.Add(step.at)); got != step.want {
			t.Errorf("answer %d: %v", i+1, got)
		}
	}
}
