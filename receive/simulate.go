package receive

import (
	"iter"
	"time"
)

// Fate is what becomes of an event whose first run dies at CrashAt.
type Fate struct {
	CrashAt  time.Duration
	RunsAt   time.Duration // when an attempt of the provider runs it, from the first attempt
	Attempts int           // the provider's, up to and with the one that runs it
	Spare    int           // automatic attempts left after that one
	Lost     bool          // no attempt comes after the lease
}

// Simulate walks p's schedule against a Sync with this deadline and grace and otherwise default
// settings, one Fate for each second of a first run.
func Simulate(p Provider, deadline, grace time.Duration) iter.Seq[Fate] {
	c := SyncConfig{Source: Source{Provider: p}, Deadline: deadline, Grace: grace}.withDefaults()
	return simulate(p, c.Deadline, c.Grace, c.StoreBudget)
}

func simulate(p Provider, deadline, grace, budget time.Duration) iter.Seq[Fate] {
	c := SyncConfig{Source: Source{Provider: p}, Deadline: deadline, Grace: grace, StoreBudget: budget}.withDefaults()
	lease := deadline + grace + budget
	waits := p.waits()
	return func(yield func(Fate) bool) {
		for crash := time.Duration(0); crash <= deadline; crash += time.Second {
			f := Fate{CrashAt: crash, Attempts: 1, Lost: true}
			failed := min(crash, c.timeout()) // when the provider knows that its attempt failed
			told := time.Duration(0)          // the Retry-After it was given; a crash gives none
			for i, wait := range waits {
				if p.HonoursRetryAfter {
					wait = max(wait, told)
				}
				at := failed + wait
				f.Attempts++
				runs, ok := attemptRuns(at, lease, deadline, &c)
				if ok {
					f.RunsAt, f.Spare, f.Lost = runs, len(waits)-1-i, false
					break
				}
				// It was held for as long as repeats are, and then sent away.
				failed = min(at+max(c.Wait, 0), max(lease, at))
				told = lease - failed
			}
			if !yield(f) {
				return
			}
		}
	}
}

// attemptRuns is when an attempt that arrives at a time runs the event: at once after the lease, or
// after waiting for its end if a whole deadline is left then.
func attemptRuns(at, lease, deadline time.Duration, c *SyncConfig) (time.Duration, bool) {
	if at >= lease {
		return at, true
	}
	waited := lease - at
	return lease, waited <= c.Wait && waited <= c.timeout()-deadline
}

// waits are the provider's, or, where it does not publish them, doubling ones from a minute over its
// horizon: few enough not to promise what may not come.
func (p *Provider) waits() []time.Duration {
	if len(p.Retries) > 0 || p.Horizon == 0 {
		return p.Retries
	}
	var waits []time.Duration
	for at, wait := time.Duration(0), time.Minute; at+wait <= p.Horizon; wait *= 2 {
		waits = append(waits, wait)
		at += wait
	}
	return waits
}
