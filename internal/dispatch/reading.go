package dispatch

import (
	"container/heap"
	"slices"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// read is a fetch that is out: the lane it is for and what was asked.
type read struct {
	lane    *lane
	request outbox.FetchRequest
}

// wants takes the lanes that are to be read now, at most most of them.
func (s *scheduler) wants(now time.Time, most int) []read {
	var reads []read
	for len(reads) < most && len(s.wakes) > 0 && !s.wakes[0].readAt.After(now) {
		l := heap.Pop(&s.wakes).(*lane)
		l.reading = true
		reads = append(reads, read{l, outbox.FetchRequest{
			Shard:       l.endpoint.tenant.shard,
			Endpoint:    l.endpoint.id,
			Lane:        l.kind,
			AfterNextAt: l.cursor.at,
			AfterID:     l.cursor.id,
			// Rows in memory may stand behind the cursor after it was lowered; they are
			// passed over and must not use up the limit.
			Limit: max(1, s.room(l)) + l.inMemory,
		}})
	}
	return reads
}

// nextWake says when the next lane is to be read, zero if none is known.
func (s *scheduler) nextWake() time.Time {
	if len(s.wakes) == 0 {
		return time.Time{}
	}
	return s.wakes[0].readAt
}

// fetched takes the rows of one read into memory.
func (s *scheduler) fetched(r read, f outbox.Fetched, now time.Time) {
	l := r.lane
	if s.endpoints[l.endpoint.id] != l.endpoint {
		return // its shard was given up meanwhile
	}
	left := l.left
	l.reading, l.left = false, nil
	l.wakeAt = time.Time{}
	for i := range f.Rows {
		row := f.Rows[i]
		if row.NextAt.After(now) {
			l.wakeAt = row.NextAt
			break
		}
		if l.kind != outbox.LaneTest && !l.endpoint.breaker.may() && s.room(l) <= 0 {
			l.wakeAt = row.NextAt // the breaker opened meanwhile, or the other lane has the probe
			break
		}
		if _, gone := left[row.ID]; !gone {
			s.admit(l, row)
		}
		l.cursor = positionOf(&row.Delivery)
	}
	if l.wakeAt.IsZero() && (f.Cut || len(f.Rows) >= r.request.Limit) {
		l.wakeAt = now
	}
	s.applyLowered(l)
	s.settle(l.endpoint)
	s.wake(l)
}

// failed makes a lane whose read failed be read again later.
func (s *scheduler) failed(r read, again time.Time) {
	l := r.lane
	l.reading, l.left = false, nil
	l.wakeAt = again
	s.applyLowered(l)
	s.wake(l)
}

func (s *scheduler) applyLowered(l *lane) {
	if low := l.lowered; !low.at.IsZero() {
		l.lowered = position{}
		l.lower(low)
	}
}

// heads makes every lane that has pending rows be read from its start. Called at takeover, and at
// intervals as the net under every shortcut taken with cursors.
func (s *scheduler) heads(heads []outbox.Head) {
	for _, h := range heads {
		l := &s.endpoint(h.Endpoint, h.Tenant, h.Shard).lanes[h.Lane]
		l.lower(position{at: h.NextAt})
		s.wake(l)
	}
}

// park drops what is ready of an endpoint that must wait; it is read again afterwards.
func (s *scheduler) park(e *endpointQueue) {
	for i := range e.lanes {
		l := &e.lanes[i]
		for _, w := range slices.Concat(l.ready, l.fresh) {
			s.unready(w)
			l.lower(positionOf(&w.due.Delivery))
		}
		l.ready, l.fresh = nil, nil
		s.wake(l)
	}
	s.settle(e)
}

// unready takes back what admit or offer did, but for the lane's list.
func (s *scheduler) unready(w *work) {
	s.leaveReady(w)
	s.forget(w)
}

// leaveReady takes a delivery that leaves its line off the counts.
func (s *scheduler) leaveReady(w *work) {
	s.bytesReady -= w.bytes()
	if !w.fresh {
		w.endpoint.tenant.ready--
	}
}

// drop forgets deliveries that were ended elsewhere, unless they are in flight already.
func (s *scheduler) drop(ids []outbox.DeliveryID) {
	for _, e := range s.endpoints {
		for i := range e.lanes {
			if !e.lanes[i].reading {
				continue
			}
			for _, id := range ids {
				e.lanes[i].leave(id)
			}
		}
	}
	for _, id := range ids {
		w := s.taken[id]
		if w == nil || !w.started.IsZero() {
			continue
		}
		l := &w.endpoint.lanes[w.due.Lane]
		if l.remove(w) {
			s.unready(w)
		}
		s.settle(w.endpoint)
		s.wake(l)
	}
}

// configure replaces what is known of the tenants and endpoints of some shards. It returns the
// endpoints whose connections are of no use any more.
func (s *scheduler) configure(shards map[outbox.Shard]bool, tenants map[outbox.TenantID]*outbox.Tenant, targets map[outbox.EndpointID]*target) (left []outbox.EndpointID) {
	for _, c := range tenants {
		t := s.tenant(c.ID, c.Shard)
		t.config, t.weight, t.cap = *c, c.Weight, c.MaxInFlight
		t.parked = c.State == outbox.TenantPaused
	}
	for id, target := range targets {
		s.endpoint(id, target.endpoint.Tenant.ID, target.endpoint.Tenant.Shard)
	}
	for id, e := range s.endpoints {
		if !shards[e.tenant.shard] {
			continue
		}
		if old := e.target; old != nil && (targets[id] == nil || targets[id].moved(&old.endpoint)) {
			left = append(left, id)
		}
		e.target = targets[id]
		e.limit = 0
		if e.target != nil {
			_, taken := s.arriving[e.tenant.shard]
			e.limit = e.target.endpoint.MaxInFlight
			e.setRateLimit(e.target.endpoint.RateLimit, taken, s.clock())
		}
		s.unpark(e)
	}
	return left
}

// unpark lets an endpoint run, or parks it, as its state says.
func (s *scheduler) unpark(e *endpointQueue) {
	_, e.parked = s.arriving[e.tenant.shard]
	if e.target != nil && e.target.endpoint.State != outbox.EndpointActive {
		e.parked = true
	}
	if e.held() {
		s.park(e)
		return
	}
	s.rouse(e)
}

// dropShards forgets everything of shards that are no longer owned and returns what is in flight
// there: its results are still facts and will be recorded.
func (s *scheduler) dropShards(gone map[outbox.Shard]bool) []*work {
	var flying []*work
	s.ward.dropShards(s, gone)
	for id, e := range s.endpoints {
		if !gone[e.tenant.shard] {
			continue
		}
		e.parked = true
		s.park(e)
		delete(s.endpoints, id)
	}
	for shard := range gone {
		delete(s.arriving, shard)
	}
	for id, t := range s.tenants {
		if gone[t.shard] {
			s.queue.leave(t)
			delete(s.tenants, id)
		}
	}
	for _, w := range s.taken {
		if gone[w.endpoint.tenant.shard] {
			w.given = w.unsent
			flying = append(flying, w)
		}
	}
	return flying
}
