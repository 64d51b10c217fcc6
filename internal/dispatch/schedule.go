package dispatch

import (
	"container/heap"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

const (
	// prefetch is how many times an endpoint's limit are kept ready in memory.
	prefetch = 4
	// handed is how many times its limit an endpoint may have ready of what was handed over by the
	// router, which costs nothing to get and much to read again.
	handed = 64
	// freshAfter is how long the first in an endpoint's line has been due when what is routed now
	// does not join it: after an outage, news would wait until all of the past is told. Every
	// second turn is theirs, unless the endpoint keeps order.
	freshAfter = 10 * time.Second
	// leastRoom is what an endpoint may keep ready although its tenant's others already fill the
	// tenant's share of memory: a dead endpoint must not starve a healthy one of prefetch.
	leastRoom = 2
	// replayShare of an endpoint's limit, at least one slot, may be used by replays.
	replayShare = 4
	// firstEstimate is what an attempt is charged before the endpoint's own durations are known.
	firstEstimate = 100 * time.Millisecond
)

// limits bound a scheduler.
type limits struct {
	inFlight   int   // attempts at once
	unrecorded int   // results not yet in the database; beyond, nothing starts
	readyBytes int64 // of payloads ready in memory
}

// scheduler holds what is ready and chooses among it. It is not safe for concurrent use: the node
// holds a lock around it.
type scheduler struct {
	limits
	tenants    map[outbox.TenantID]*tenantQueue
	endpoints  map[outbox.EndpointID]*endpointQueue
	taken      map[outbox.DeliveryID]*work // every delivery in memory
	reserved   map[outbox.DeliveryID]bool  // those whose routing is being committed, see reserve; true if met by a read
	queue      fairQueue[*tenantQueue]     // tenants with ready work and a free slot
	wakes      wakeHeap                    // lanes that wait to be read
	gates      gateHeap                    // endpoints whose rate lets them go on at a later moment
	gateMoved  bool                        // the first gate is another, or opens at another time
	changed    map[outbox.EndpointID]bool  // endpoints whose breaker changed, see healthLoop
	clock      func() time.Time            // monotonic
	running    int
	begun      int64 // attempts started, ever
	pending    int   // results not yet recorded
	bytesReady int64
	ward       ward
	paused     bool // nothing starts: the lease is lost, or the node stops
	stopped    bool // nothing starts: somebody threw the switch
	setback    setback

	// arriving are shards that were taken and are not settled yet, with the slots that their former
	// owner left in flight: nothing is read or sent for them before arrived.
	arriving map[outbox.Shard][]outbox.HeldSlot
}

// tenantQueue is a tenant among the others.
type tenantQueue struct {
	entrant
	id        outbox.TenantID
	shard     outbox.Shard
	weight    float64
	cap       int
	parked    bool
	config    outbox.Tenant
	endpoints fairQueue[*endpointQueue] // those with ready work and a free slot
	inFlight  int
	ready     int
	noReplays bool // see holdReplays
}

// endpointQueue is an endpoint among its tenant's others.
type endpointQueue struct {
	entrant
	id       outbox.EndpointID
	tenant   *tenantQueue
	target   *target // nil: deleted; its deliveries are cancelled when met
	parked   bool
	limit    int // 0: the tenant's cap
	lanes    [outbox.Lanes]lane
	inFlight int
	turn     int
	estimate time.Duration // moving average of its attempts' durations

	breaker breaker
	pace    pace
	window  *window       // its fixed rate limit, if it has one
	since   time.Time     // when its breaker last closed; retry windows count from it at the earliest
	outage  outbox.Outage // the latest time its breaker was open
	last    lastOutcomes
	noted   bool      // the row written last says that something is wrong
	opensAt time.Time // when its rate lets it go on (monotonic), while gatePos is not −1
	gatePos int
}

func newScheduler(l limits) *scheduler {
	return &scheduler{
		limits:    l,
		tenants:   map[outbox.TenantID]*tenantQueue{},
		endpoints: map[outbox.EndpointID]*endpointQueue{},
		taken:     map[outbox.DeliveryID]*work{},
		reserved:  map[outbox.DeliveryID]bool{},
		changed:   map[outbox.EndpointID]bool{},
		arriving:  map[outbox.Shard][]outbox.HeldSlot{},
		clock:     time.Now,
	}
}

func (s *scheduler) tenant(id outbox.TenantID, shard outbox.Shard) *tenantQueue {
	t := s.tenants[id]
	if t == nil {
		t = &tenantQueue{
			entrant: entrant{pos: -1, virtual: s.queue.now},
			id:      id, shard: shard,
			weight: outbox.DefaultWeight, cap: outbox.DefaultMaxInFlight,
		}
		s.tenants[id] = t
	}
	return t
}

func (s *scheduler) endpoint(id outbox.EndpointID, tenant outbox.TenantID, shard outbox.Shard) *endpointQueue {
	e := s.endpoints[id]
	if e == nil {
		t := s.tenant(tenant, shard)
		e = &endpointQueue{
			entrant: entrant{pos: -1, virtual: t.endpoints.now},
			id:      id, tenant: t, estimate: firstEstimate,
			breaker: newBreaker(), gatePos: -1,
		}
		for i := range e.lanes {
			e.lanes[i] = lane{endpoint: e, kind: outbox.Lane(i), pos: -1}
		}
		_, e.parked = s.arriving[shard]
		s.endpoints[id] = e
	}
	return e
}

// cap is how many attempts at once are allowed; slots how many its server bears.
func (e *endpointQueue) cap() int {
	if e.limit > 0 {
		return min(e.limit, e.tenant.cap)
	}
	return e.tenant.cap
}

func (e *endpointQueue) slots() int { return e.pace.slots(e.cap()) }

// held reports whether nothing of the endpoint may be read or sent: it is paused or disabled, or
// its tenant is.
func (e *endpointQueue) held() bool { return e.parked || e.tenant.parked }

// busyFor reports whether the endpoint has so much ready that nothing routed now is sent within d.
func (e *endpointQueue) busyFor(d time.Duration) bool {
	return e.held() || time.Duration(len(e.lanes[outbox.LaneLive].ready))*e.estimate >= time.Duration(e.slots())*d
}

func (e *endpointQueue) replaySlots() int { return max(1, e.slots()/replayShare) }

// nextLane says which lane's turn it is, nil if none may run. Replays come every fourth turn, so
// that they neither delay live deliveries nor starve behind them.
func (e *endpointQueue) nextLane() *lane {
	if test := &e.lanes[outbox.LaneTest]; len(test.ready) > 0 && e.inFlight < e.cap() {
		return test
	}
	if e.held() || e.breaker.state == outbox.BreakerProbing || e.inFlight >= e.slots() {
		return nil
	}
	live, replay := &e.lanes[outbox.LaneLive], &e.lanes[outbox.LaneReplay]
	replayMay := len(replay.ready) > 0 && replay.inFlight < e.replaySlots() && !e.tenant.noReplays
	switch {
	case live.waiting() > 0 && !(replayMay && e.turn%replayShare == replayShare-1):
		return live
	case replayMay:
		return replay
	}
	return nil
}

// settle puts the endpoint and its tenant into their queues, or takes them out, according to
// whether they could run now. It is called after every change to either. An endpoint that only its
// rate holds back is put among the gates.
func (s *scheduler) settle(e *endpointQueue) {
	t := e.tenant
	wait := false
	if l := e.nextLane(); l == nil {
		t.endpoints.leave(e)
	} else if l.kind == outbox.LaneTest {
		t.endpoints.enter(e)
	} else if now := s.clock(); e.nextAt(now).After(now) {
		t.endpoints.leave(e)
		e.opensAt, wait = e.nextAt(now), true
	} else {
		t.endpoints.enter(e)
	}
	if s.gates.set(e, wait) {
		s.gateMoved = true
	}
	s.settleTenant(t)
}

// nextAt says when the endpoint's rates let the next request start.
func (e *endpointQueue) nextAt(now time.Time) time.Time {
	at := e.pace.nextAt(now)
	if e.window != nil && e.window.nextAt().After(at) {
		at = e.window.nextAt()
	}
	return at
}

// openGates lets endpoints go on whose rate allows it now, and says when the next one's will
// (zero: none waits).
func (s *scheduler) openGates() time.Time {
	s.gateMoved = false
	for len(s.gates) > 0 {
		e := s.gates[0]
		if e.opensAt.After(s.clock()) {
			return e.opensAt
		}
		s.settle(e)
	}
	return time.Time{}
}

func (s *scheduler) settleTenant(t *tenantQueue) {
	if !t.parked && t.inFlight < t.cap && t.endpoints.len() > 0 {
		s.queue.enter(t)
	} else {
		s.queue.leave(t)
	}
}

// next takes the delivery whose turn it is, nil if none may start now, and occupies its slots.
func (s *scheduler) next() *work {
	if s.paused || s.stopped || s.running >= s.inFlight || s.pending >= s.unrecorded {
		return nil
	}
	t, ok := s.queue.first()
	if !ok {
		return nil
	}
	e, _ := t.endpoints.first() // settle keeps a tenant in the queue only while it has one
	l := e.nextLane()
	w := l.choose()
	e.turn++
	s.leaveReady(w)
	s.queue.chosen(t)
	t.endpoints.chosen(e)
	s.begin(w)
	return w
}

// begin occupies the slots of an attempt and charges for it.
func (s *scheduler) begin(w *work) {
	e := w.endpoint
	t, l := e.tenant, &e.lanes[w.due.Lane]
	now := s.clock()
	w.started, w.estimate, w.target = now, e.estimate, e.target
	if w.probe = e.breaker.state == outbox.BreakerOpen && w.due.Lane != outbox.LaneTest; w.probe {
		e.breaker.probeStarted()
	}
	e.pace.started()
	if e.window != nil {
		e.window.started(now)
	}
	s.queue.charge(t, w.estimate.Seconds(), t.weight)
	t.endpoints.charge(e, w.estimate.Seconds(), 1)
	s.running++
	s.begun++
	t.inFlight++
	e.inFlight++
	l.inFlight++
	s.settle(e)
	s.wake(l)
}

// ended frees the slots of an attempt that took the given time and corrects its charge. The
// delivery stays taken until its result is recorded.
func (s *scheduler) ended(w *work, took time.Duration) {
	e := w.endpoint
	t, l := e.tenant, &e.lanes[w.due.Lane]
	w.over = true
	s.running--
	s.pending++
	t.inFlight--
	e.inFlight--
	l.inFlight--
	wrong := (took - w.estimate).Seconds()
	s.queue.charge(t, wrong, t.weight)
	t.endpoints.charge(e, wrong, 1)
	e.estimate += (took - e.estimate) / 8
	s.settle(e)
}

// recorded forgets a delivery whose result is in the database; next is where it waits now, zero
// if it ended.
func (s *scheduler) recorded(w *work, next time.Time) {
	s.pending--
	s.forget(w)
	// The shard may have been given up, or given up and taken again, while the attempt ran: then
	// the lane to lower is the one that is read now.
	if e := s.endpoints[w.endpoint.id]; e != nil && !next.IsZero() {
		l := &e.lanes[w.due.Lane]
		l.lower(position{next, w.due.ID})
		s.wake(l)
	}
}

// abandoned forgets a delivery whose attempt was cut off by the node itself: what it did is not
// known, it counts as none, and the delivery is read again.
func (s *scheduler) abandoned(w *work, now time.Time) {
	if w.probe {
		w.endpoint.breaker.probeLost(now)
	}
	s.recorded(w, w.due.NextAt)
	s.rouse(w.endpoint)
}

// rouse looks again at everything that waits for the endpoint.
func (s *scheduler) rouse(e *endpointQueue) {
	s.settle(e)
	for i := range e.lanes {
		s.wake(&e.lanes[i])
	}
}

func (s *scheduler) forget(w *work) {
	if s.taken[w.due.ID] != w {
		return
	}
	delete(s.taken, w.due.ID)
	w.endpoint.lanes[w.due.Lane].inMemory--
	if e := s.endpoints[w.endpoint.id]; e != nil {
		e.lanes[w.due.Lane].leave(w.due.ID)
	}
}

// reserve keeps a delivery from being read while the transaction that makes it is under way: a
// fetch could see it, send it and forget it again before the router hears of its own commit, and
// what the router then offers would be sent twice. Every reserved delivery is offered or released.
func (s *scheduler) reserve(id outbox.DeliveryID) { s.reserved[id] = false }

// release ends a reservation. exists says that the delivery may be in the database, perhaps since
// an earlier routing whose next_at is not the one in d: its lane is read from the start. So it is
// where a read has passed over the delivery: it was parked, and its turn has come meanwhile.
func (s *scheduler) release(d *outbox.Delivery, exists bool) {
	met := s.reserved[d.ID]
	delete(s.reserved, d.ID)
	if exists || met && s.endpoints[d.Endpoint] != nil {
		l := &s.endpoint(d.Endpoint, d.Tenant, d.Shard).lanes[d.Lane]
		l.lower(fromTheStart)
		s.wake(l)
	}
}

// offer takes a freshly routed delivery into memory if there is room and nothing older waits to
// be read, or what waits is much older; otherwise it is left for a fetch.
func (s *scheduler) offer(d outbox.Due) {
	delete(s.reserved, d.ID)
	e := s.endpoint(d.Endpoint, d.Tenant, d.Shard)
	l := &e.lanes[d.Lane]
	if l.wakeAt.IsZero() && !l.reading && !e.held() && e.breaker.may() && s.roomHanded(l) > 0 && d.Payload != nil {
		s.admit(l, d)
		s.settle(e)
		return
	}
	if d.Lane == outbox.LaneLive && !d.Strict() && !e.held() && e.breaker.may() && l.behind(d.NextAt) &&
		len(l.fresh) < prefetch*e.slots() && s.bytesReady < s.readyBytes/2 && d.Payload != nil {
		if w := s.admitted(l, d); w != nil {
			w.fresh = true
			l.fresh = append(l.fresh, w)
		}
		s.settle(e)
		return
	}
	l.lower(positionOf(&d.Delivery))
	s.wake(l)
}

// admit makes a delivery ready, unless it is in memory already.
func (s *scheduler) admit(l *lane, d outbox.Due) {
	if w := s.admitted(l, d); w != nil {
		l.ready = append(l.ready, w)
		l.endpoint.tenant.ready++
	}
}

// admitted takes a delivery into memory, for the caller to put in a line; nil if that is not to
// be: it is in memory already, it is being routed, or the ward has it.
func (s *scheduler) admitted(l *lane, d outbox.Due) *work {
	if _, reserved := s.reserved[d.ID]; reserved {
		s.reserved[d.ID] = true
		return nil
	}
	if s.taken[d.ID] != nil {
		return nil
	}
	w := &work{due: d, endpoint: l.endpoint}
	s.taken[d.ID] = w
	l.inMemory++
	if s.ward.takes(w) {
		return nil
	}
	s.bytesReady += w.bytes()
	return w
}

// lower notes that a delivery waits in the database.
func (s *scheduler) lower(d *outbox.Delivery) {
	l := &s.endpoint(d.Endpoint, d.Tenant, d.Shard).lanes[d.Lane]
	l.lower(positionOf(d))
	s.wake(l)
}

// room says how many more deliveries of a lane may become ready.
func (s *scheduler) room(l *lane) int {
	e := l.endpoint
	if l.kind == outbox.LaneTest {
		return prefetch - len(l.ready)
	}
	if !e.breaker.may() { // one row, for the probe
		return 1 - len(e.lanes[0].ready) - len(e.lanes[1].ready)
	}
	room := prefetch*e.slots() - len(l.ready)
	if s.bytesReady >= s.readyBytes {
		room = min(room, 1-len(l.ready))
	} else if e.tenant.ready >= prefetch*e.tenant.cap {
		room = min(room, leastRoom-len(l.ready))
	}
	return room
}

// roomHanded says how many more deliveries handed over by the router may become ready. Half of the
// memory is left to what has to be read.
func (s *scheduler) roomHanded(l *lane) int {
	if s.bytesReady < s.readyBytes/2 {
		return handed*l.endpoint.cap() - len(l.ready)
	}
	return s.room(l)
}

// wake puts a lane among those to be read, or takes it out. A lane is read when half of what it
// may keep ready is gone, not row by row. While the breaker is open it is read for the probe alone.
func (s *scheduler) wake(l *lane) {
	e := l.endpoint
	if l.kind == outbox.LaneTest {
		_, arriving := s.arriving[e.tenant.shard]
		s.wakeIf(l, !l.wakeAt.IsZero() && !l.reading && !arriving && s.room(l) > 0, l.wakeAt)
		return
	}
	room := s.room(l)
	wanted := !l.wakeAt.IsZero() && !l.reading && !e.held() && e.breaker.state != outbox.BreakerProbing &&
		room > 0 && (len(l.ready) == 0 || room >= len(l.ready))
	at := l.wakeAt
	if e.breaker.state == outbox.BreakerOpen && e.breaker.nextProbe.After(at) {
		at = e.breaker.nextProbe
	}
	s.wakeIf(l, wanted, at)
}

// wakeIf puts a lane among those to be read, at the given time, or takes it out.
func (s *scheduler) wakeIf(l *lane, wanted bool, at time.Time) {
	l.readAt = at
	switch {
	case wanted && l.pos >= 0:
		heap.Fix(&s.wakes, l.pos)
	case wanted:
		heap.Push(&s.wakes, l)
	case l.pos >= 0:
		heap.Remove(&s.wakes, l.pos)
	}
}

// quiet reports whether nothing is in flight and every result is recorded.
func (s *scheduler) quiet() bool { return s.running == 0 && s.pending == 0 }
