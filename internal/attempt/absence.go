package attempt

import (
	"sync"
	"sync/atomic"
	"time"
)

// A name that is not in DNS may be one that is not there yet: a zone is being published, a record
// was deleted for a minute. It is believed to be wrong after absentLooks looks over absentFor.
const (
	absentLooks = 3
	absentFor   = 5 * time.Minute
	// absentGap separates two absences: looks this far apart say nothing about the time between.
	absentGap = 24 * time.Hour
	// maxAbsent bounds the hosts that are remembered. Forgetting one only makes its deliveries
	// be tried for longer.
	maxAbsent = 10_000
)

// absences remembers since when hosts have had no address. It is kept per process: what another
// node saw a minute ago is not worth a row.
type absences struct {
	known atomic.Int64 // len(hosts), for those who need not wait: it nearly always is 0
	mu    sync.Mutex
	hosts map[string]absence
}

type absence struct {
	since, last time.Time
	looks       int
}

// note counts a look that found nothing and reports whether the name is now believed wrong.
func (a *absences) note(host string, at time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	seen, known := a.hosts[host]
	if !known || at.Sub(seen.last) > absentGap {
		seen = absence{since: at}
	}
	if !known {
		if a.hosts == nil {
			a.hosts = map[string]absence{}
		}
		if len(a.hosts) >= maxAbsent {
			for other := range a.hosts { // any one
				delete(a.hosts, other)
				break
			}
		}
	}
	seen.last = at
	seen.looks++
	a.hosts[host] = seen
	a.known.Store(int64(len(a.hosts)))
	return seen.looks >= absentLooks && at.Sub(seen.since) >= absentFor
}

// clear forgets a host: it has an address.
func (a *absences) clear(host string) {
	if a.known.Load() == 0 {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.hosts, host)
	a.known.Store(int64(len(a.hosts)))
}
