package dispatch

import (
	"container/heap"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// limitedServer takes perSecond requests a second, by a bucket of a tenth of that, and answers
// 429 beyond, after latency.
type limitedServer struct {
	perSecond float64
	latency   time.Duration
	tokens    float64
	at        time.Time
}

func (s *limitedServer) take(now time.Time) (ok bool) {
	s.tokens = min(s.tokens+s.perSecond*now.Sub(s.at).Seconds(), s.perSecond/10)
	s.at = now
	if s.tokens < 1 {
		return false
	}
	s.tokens--
	return true
}

type answer struct {
	at, started time.Time
	ok          bool
}

type answers []answer

func (h answers) Len() int           { return len(h) }
func (h answers) Less(i, j int) bool { return h[i].at.Before(h[j].at) }
func (h answers) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *answers) Push(x any)        { *h = append(*h, x.(answer)) }
func (h *answers) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}

// drain sends total deliveries to a limited server, ten at once at most, and says how many requests
// that took, how many of them were answered 429, and how long it was until the last was taken.
func drain(s *limitedServer, total int, afterOutage bool) (sent, refused int, took time.Duration) {
	const most = 10
	s.at, s.tokens = start, s.perSecond/10
	var p pace
	now := start
	if afterOutage {
		p.slowStart(now)
	}
	var flying answers
	waiting := total
	for waiting > 0 || len(flying) > 0 {
		for waiting > 0 && len(flying) < p.slots(most) && !p.nextAt(now).After(now) {
			p.started()
			waiting--
			sent++
			heap.Push(&flying, answer{now.Add(s.latency), now, s.take(now)})
		}
		next := now.Add(time.Hour)
		if len(flying) > 0 {
			next = flying[0].at
		}
		if at := p.nextAt(now); waiting > 0 && len(flying) < p.slots(most) && at.Before(next) {
			next = at.Add(time.Nanosecond)
		}
		now = next
		for len(flying) > 0 && !flying[0].at.After(now) {
			a := heap.Pop(&flying).(answer)
			if a.ok {
				p.succeeded(now, most)
				continue
			}
			refused++
			waiting++ // tried again
			p.limited(a.started, now)
		}
	}
	return sent, refused, now.Sub(start)
}

// TestPace_drainsALimitedServer: 10,000 deliveries for a server that takes 50 a second. Fewer than
// 1 % are answered 429, and all are through within 1.25 times the ideal 200 s.
func TestPace_drainsALimitedServer(t *testing.T) {
	for _, latency := range []time.Duration{2 * time.Millisecond, 5 * time.Millisecond, 20 * time.Millisecond} {
		for _, afterOutage := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v, after an outage %v", latency, afterOutage), func(t *testing.T) {
				const total = 10_000
				sent, refused, took := drain(&limitedServer{perSecond: 50, latency: latency}, total, afterOutage)
				t.Logf("%d sent, %d refused (%.2f %%), %v", sent, refused, 100*float64(refused)/float64(sent), took)
				if float64(refused) > 0.01*float64(sent) {
					t.Errorf("%d of %d requests were answered 429", refused, sent)
				}
				if ideal := total / 50 * time.Second; took > ideal*5/4 {
					t.Errorf("took %v, ideal is %v", took, ideal)
				}
			})
		}
	}
}

// Ten seconds' worth for servers of every size: the first 429 comes when hardly anything has
// succeeded yet, and the rate must find its place from there within seconds, not within a minute.
func TestPace_findsTheRateSoon(t *testing.T) {
	for _, perSecond := range []float64{10, 50, 200} {
		for _, latency := range []time.Duration{2 * time.Millisecond, 20 * time.Millisecond} {
			t.Run(fmt.Sprintf("%v a second, %v", perSecond, latency), func(t *testing.T) {
				total := int(10 * perSecond)
				sent, refused, took := drain(&limitedServer{perSecond: perSecond, latency: latency}, total, false)
				t.Logf("%d sent, %d refused, %v", sent, refused, took)
				// Ten are in flight when the server first says that it is too much.
				if limit := 10 + total/20; refused > limit {
					t.Errorf("%d of %d requests were answered 429, want at most %d", refused, sent, limit)
				}
				if took > 20*time.Second {
					t.Errorf("took %v, ideal is 10 s", took)
				}
			})
		}
	}
}

func TestPace_concurrencyHalvesOnceARound(t *testing.T) {
	const most = 16
	var p pace
	began := start
	now := start.Add(10 * time.Second)
	for range 16 { // all that were in flight ran into the timeout
		p.timedOut(began, now, most)
	}
	if got := p.slots(most); got != 8 {
		t.Fatalf("%d slots after one round of timeouts, want 8", got)
	}
	for round := range 8 { // each round of successes gives one more
		for range p.slots(most) {
			p.succeeded(now, most)
		}
		if got, want := p.slots(most), min(9+round, most); got < want-1 || got > want {
			t.Fatalf("round %d: %d slots, want %d", round, got, want)
		}
	}
	for range 20 {
		now = now.Add(time.Minute)
		p.timedOut(now, now, most)
	}
	if got := p.slots(most); got != 1 {
		t.Fatalf("%d slots, want 1 at the least", got)
	}
}

func TestPace_slowStartDoublesEachSecond(t *testing.T) {
	var p pace
	p.slowStart(start)
	sent := make([]int, 5)
	for now := start; now.Before(start.Add(5 * time.Second)); now = now.Add(time.Millisecond) {
		for !p.nextAt(now).After(now) {
			p.started()
			sent[int(now.Sub(start).Seconds())]++
		}
	}
	for second, want := range []int{1, 2, 4, 8, 16} {
		if got := sent[second]; got < want-1 || got > want+1 {
			t.Errorf("second %d: %d requests, want %d", second+1, got, want)
		}
	}
	if p.nextAt(start.Add(time.Minute)).After(start.Add(time.Minute)) || p.rate != 0 {
		t.Error("still limited a minute later")
	}
}

func TestPace_retryAfterPausesTheEndpoint(t *testing.T) {
	var p pace
	until := start.Add(90 * time.Second)
	p.pause(until)
	p.pause(start.Add(time.Second)) // a shorter one does not shorten it
	if got := p.nextAt(start); !got.Equal(until) {
		t.Errorf("next at %v, want %v", got, until)
	}
	if got := p.nextAt(until); got.After(until) {
		t.Errorf("still paused at its end: %v", got)
	}
}

func TestPace_tooMany(t *testing.T) {
	for name, tc := range map[string]struct {
		status int
		since  time.Duration // since the last success; negative: never
		want   bool
	}{
		"429 alone":                 {429, -1, true},
		"503 amid successes":        {503, time.Second, true},
		"503 long after a success":  {503, 3 * time.Second, false},
		"503 without any":           {503, -1, false},
		"500 amid successes":        {500, time.Second, false},
		"a 200 is not a complaint":  {200, time.Second, false},
		"429 long after a success":  {429, time.Hour, true},
		"502 amid successes is not": {502, 0, false},
	} {
		var p pace
		if tc.since >= 0 {
			p.succeeded(start.Add(-tc.since), 10)
		}
		if got := p.tooMany(tc.status, start); got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// However requests come, no span of the window's length holds more than its count.
func TestWindow_holdsInEverySpan(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		count := rapid.IntRange(1, 10).Draw(t, "count")
		per := time.Duration(rapid.IntRange(1, 60).Draw(t, "per")) * time.Second
		w := newWindow(count, per, start)
		if rapid.Bool().Draw(t, "taken over") {
			w.usedUp(start)
			if first := w.nextAt(); !first.Equal(start.Add(per / time.Duration(count))) {
				t.Fatalf("the first may go %v after a takeover", first.Sub(start))
			}
		} else if w.nextAt().After(start) {
			t.Fatal("a new limit holds the first one back")
		}
		var starts []time.Time
		now := start
		for range 100 {
			now = now.Add(time.Duration(rapid.IntRange(0, 3000).Draw(t, "ms")) * time.Millisecond)
			for !w.nextAt().After(now) {
				w.started(now)
				starts = append(starts, now)
			}
		}
		for i := range starts {
			if j := i + count; j < len(starts) && starts[j].Sub(starts[i]) < per {
				t.Fatalf("%d starts within %v", count+1, starts[j].Sub(starts[i]))
			}
		}
		if first := w.nextAt(); first.After(now.Add(per)) {
			t.Fatalf("waits longer than a whole span: %v", first.Sub(now))
		}
	})
}

func TestBreaker(t *testing.T) {
	b := newBreaker()
	now := start
	for i := range 19 {
		if b.ended(effectFailure, false, now, 0.5) || !b.may() {
			t.Fatalf("open after %d failures", i+1)
		}
	}
	b.ended(effectNone, false, now, 0.5)
	b.ended(effectSuccess, false, now, 0.5)
	for range 19 {
		b.ended(effectFailure, false, now, 0.5)
	}
	if !b.may() {
		t.Fatal("a success in between did not start the count again")
	}
	if !b.ended(effectFailure, false, now, 0.5) || b.may() {
		t.Fatal("not open after 20 failures in a row")
	}
	// What was in flight when it opened changes nothing.
	for range 5 {
		if b.ended(effectFailure, false, now, 0.5) {
			t.Fatal("a straggler changed the state")
		}
	}
	wait := 30 * time.Second
	for probe := range 8 {
		if b.mayProbe(now.Add(wait - time.Millisecond)) {
			t.Fatalf("probe %d came before %v were over", probe, wait)
		}
		now = now.Add(wait)
		if !b.mayProbe(now) {
			t.Fatalf("no probe %d after %v", probe, wait)
		}
		b.probeStarted()
		if b.mayProbe(now) || b.may() {
			t.Fatal("more than the probe may go")
		}
		switch probe % 3 {
		case 0:
			b.ended(effectFailure, true, now, 0.5)
		case 1:
			b.ended(effectNone, true, now, 0.5) // a 429, or a replay that failed
		case 2: // the node was cut off: at once again, and no longer wait
			b.probeLost(now)
			if !b.mayProbe(now) {
				t.Fatal("a lost probe keeps the breaker shut")
			}
			b.probeStarted()
			b.ended(effectFailure, true, now, 0.5)
		}
		wait = min(2*wait, 15*time.Minute)
	}
	if !b.ended(effectSuccess, true, now, 0.5) || !b.may() || b.failures != 0 {
		t.Fatal("a successful probe does not close it")
	}
}

func TestBreaker_spreadsItsWaits(t *testing.T) {
	for _, random := range []float64{0, 0.25, 0.5, 0.999} {
		b := newBreaker()
		for range breakerAfter {
			b.ended(effectFailure, false, start, random)
		}
		if wait := b.nextProbe.Sub(start); wait < 27*time.Second || wait > 33*time.Second {
			t.Errorf("waits %v, want 30 s and 10 %% to both sides", wait)
		}
	}
}

func TestEffectOf(t *testing.T) {
	for name, tc := range map[string]struct {
		attempt outbox.Attempt
		lane    outbox.Lane
		want    effect
	}{
		"a 2xx":             {outbox.Attempt{Outcome: outbox.OutcomeDelivered, StatusCode: 204}, outbox.LaneLive, effectSuccess},
		"a replayed 2xx":    {outbox.Attempt{Outcome: outbox.OutcomeDelivered, StatusCode: 200}, outbox.LaneReplay, effectSuccess},
		"a timeout":         {outbox.Attempt{Outcome: outbox.OutcomeTransient, Kind: outbox.KindTimeout}, outbox.LaneLive, effectFailure},
		"a 500":             {outbox.Attempt{Outcome: outbox.OutcomeTransient, Kind: outbox.KindHTTPStatus, StatusCode: 500}, outbox.LaneLive, effectFailure},
		"a 404":             {outbox.Attempt{Outcome: outbox.OutcomePermanent, Kind: outbox.KindHTTPStatus, StatusCode: 404}, outbox.LaneLive, effectFailure},
		"a 429":             {outbox.Attempt{Outcome: outbox.OutcomeTransient, Kind: outbox.KindHTTPStatus, StatusCode: 429}, outbox.LaneLive, effectNone},
		"a replay that did": {outbox.Attempt{Outcome: outbox.OutcomeTransient, Kind: outbox.KindTimeout}, outbox.LaneReplay, effectNone},
		"our own panic":     {outbox.Attempt{Outcome: outbox.OutcomeTransient, Kind: outbox.KindPanic}, outbox.LaneLive, effectNone},
	} {
		if got := effectOf(&tc.attempt, tc.lane); got != tc.want {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}
