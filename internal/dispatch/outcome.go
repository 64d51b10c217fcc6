package dispatch

import (
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// lastOutcomes is what people are shown of an endpoint's latest attempts.
type lastOutcomes struct {
	successAt time.Time
	failure   outbox.FailureInfo
	// The run of failures since the last success.
	failingSince time.Time
	failures     int
	failedDays   int
	failedDay    time.Time
}

// failed notes a failed attempt.
func (l *lastOutcomes) failed(f outbox.FailureInfo) {
	l.failure = f
	if l.failingSince.IsZero() {
		l.failingSince = f.At
	}
	l.failures++
	if day := f.At.Truncate(24 * time.Hour); !day.Equal(l.failedDay) {
		l.failedDay = day
		l.failedDays++
	}
}

// succeeded notes a 2xx, which ends the run of failures.
func (l *lastOutcomes) succeeded(now time.Time) {
	*l = lastOutcomes{successAt: now, failure: l.failure}
}

const (
	// An endpoint that has done nothing but fail for so long, on so many days and in so many
	// attempts, is disabled: nobody is there. The days keep an endpoint that is hardly used from
	// being judged by one bad evening, the attempts one that was parked meanwhile.
	hopelessAfter    = 5 * 24 * time.Hour
	hopelessDays     = 3
	hopelessAttempts = 10
)

// hopeless reports whether the endpoint is to be disabled.
func (l *lastOutcomes) hopeless(now time.Time) bool {
	return !l.failingSince.IsZero() && now.Sub(l.failingSince) >= hopelessAfter &&
		l.failedDays >= hopelessDays && l.failures >= hopelessAttempts
}

// news is what an attempt's end changed about its endpoint.
type news struct {
	breaker  outbox.BreakerState // its new state, "" if it did not change
	since    time.Time           // when the trouble began, where it ends or opens the breaker
	hopeless bool
}

// learn lets the endpoint's breaker and pace know how an attempt ended. It is called before ended,
// which puts the endpoint where what was learned wants it. now is database time, random from [0, 1).
func (s *scheduler) learn(w *work, o *outbox.Attempt, retryAfter time.Duration, now time.Time, random float64) news {
	e := w.endpoint
	mono := s.clock()
	learned := news{since: e.last.failingSince}
	if w.due.Lane == outbox.LaneTest && o.Outcome != outbox.OutcomeDelivered {
		return learned // people try things; that is not the server's health
	}
	switch {
	case o.Outcome == outbox.OutcomeDelivered:
		e.last.succeeded(now)
		e.pace.succeeded(mono, e.cap())
	case o.Kind == outbox.KindTimeout:
		e.pace.timedOut(w.started, mono, e.cap())
	case e.pace.tooMany(o.StatusCode, mono):
		e.pace.limited(w.started, mono)
	}
	if retryAfter > 0 && (o.StatusCode == 429 || o.StatusCode == 503) {
		e.pace.pause(mono.Add(min(retryAfter, maxPause)))
	}
	if o.Outcome != outbox.OutcomeDelivered {
		e.last.failed(outbox.FailureInfo{At: now, Kind: o.Kind, Message: o.Message, StatusCode: o.StatusCode})
	}
	learned.hopeless = e.last.hopeless(now)
	was := e.breaker.state
	if !e.breaker.ended(effectOf(o, w.due.Lane), w.probe, now.Add(s.setback.ahead), random) {
		return learned
	}
	s.changed[e.id] = true
	switch e.breaker.state {
	case outbox.BreakerClosed:
		learned.breaker = outbox.BreakerClosed
		e.since, e.outage.To = now, now
		e.pace = pace{}
		e.pace.slowStart(mono)
	case outbox.BreakerOpen:
		if was == outbox.BreakerClosed { // not after a probe that failed
			learned.breaker, learned.since = outbox.BreakerOpen, e.last.failingSince
			e.outage = outbox.Outage{From: e.last.failingSince, OpenedAt: now, Cause: e.last.failure}
		}
		s.park(e) // what is ready waits in the database like the rest
	}
	s.rouse(e)
	return learned
}

// probeNow lets the endpoint be tried at once: its breaker's wait and a pause its server asked for
// are over. now is database time.
func (s *scheduler) probeNow(id outbox.EndpointID, now time.Time) {
	e := s.endpoints[id]
	if e == nil {
		return
	}
	e.pace.until = time.Time{}
	if e.breaker.state == outbox.BreakerOpen {
		e.breaker.nextProbe = now
	}
	s.rouse(e)
}

// maxPause is the longest pause of an endpoint that its server can ask for.
const maxPause = time.Hour
