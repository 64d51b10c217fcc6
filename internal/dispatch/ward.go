package dispatch

import (
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// ward holds the deliveries that may have killed a process. They are read like all others,
// but do not become ready: they are attempted one at a time, each in a process of its own.
type ward struct {
	suspects map[outbox.DeliveryID]outbox.Suspect
	waiting  []*work                             // read, without their payloads
	spent    map[outbox.EndpointID]time.Duration // on suspects of the endpoint
}

func (q *ward) suspect(s outbox.Suspect) {
	if q.suspects == nil {
		q.suspects = map[outbox.DeliveryID]outbox.Suspect{}
		q.spent = map[outbox.EndpointID]time.Duration{}
	}
	q.suspects[s.Delivery] = s
}

// acquit forgets what is known against a delivery: it was survived, or is gone.
func (q *ward) acquit(id outbox.DeliveryID) {
	delete(q.suspects, id)
	if len(q.suspects) == 0 {
		q.suspects, q.spent = nil, nil
	}
}

// takes reports whether the delivery is suspected, and keeps it then. Its payload is read again
// when its turn comes: turns are slow, and suspects may be many.
func (q *ward) takes(w *work) bool {
	if _, suspected := q.suspects[w.due.ID]; !suspected {
		return false
	}
	w.due.Payload = nil
	q.waiting = append(q.waiting, w)
	return true
}

// nextSuspect takes the suspect whose turn it is and occupies its slots; nil if none may run. Turns
// go to the endpoint that has used the least time so far, so that the ones that hang come last.
func (s *scheduler) nextSuspect(now time.Time) *work {
	q := &s.ward
	if len(q.waiting) == 0 || s.paused || s.stopped || s.running >= s.inFlight || s.pending >= s.unrecorded {
		return nil
	}
	best := -1
	for i, w := range q.waiting {
		if (best < 0 || q.spent[w.endpoint.id] < q.spent[q.waiting[best].endpoint.id]) && s.maySuspect(w, now) {
			best = i
		}
	}
	if best < 0 {
		return nil
	}
	w := q.waiting[best]
	q.waiting = append(q.waiting[:best:best], q.waiting[best+1:]...)
	s.begin(w)
	return w
}

// maySuspect reports whether a suspect may be attempted now: under the same limits as its
// endpoint's other deliveries. One that is given up needs no attempt.
func (s *scheduler) maySuspect(w *work, now time.Time) bool {
	e := w.endpoint
	if s.ward.suspects[w.due.ID].Strikes >= outbox.MaxStrikes {
		return true
	}
	if e.held() || e.tenant.inFlight >= e.tenant.cap || e.inFlight >= e.slots() ||
		w.due.Lane == outbox.LaneReplay && e.lanes[outbox.LaneReplay].inFlight >= e.replaySlots() ||
		e.nextAt(s.clock()).After(s.clock()) {
		return false
	}
	return e.breaker.may() || e.breaker.mayProbe(now)
}

// dropShards forgets what is suspected in shards that are no longer owned.
func (q *ward) dropShards(s *scheduler, gone map[outbox.Shard]bool) {
	if len(q.suspects) == 0 {
		return
	}
	var kept []*work
	for _, w := range q.waiting {
		if gone[w.due.Shard] {
			s.forget(w)
		} else {
			kept = append(kept, w)
		}
	}
	q.waiting = kept
	for id, suspect := range q.suspects {
		if gone[suspect.Shard] {
			q.acquit(id)
		}
	}
}
