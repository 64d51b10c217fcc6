package dispatch

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/waybill-dev/waybill/internal/attempt"
	"github.com/waybill-dev/waybill/internal/outbox"
)

// simServer is a customer's server in a simulation. The history's lock guards it.
type simServer struct {
	tenant    *simTenant
	endpoint  *simEndpoint
	behaviour string
	seen      map[outbox.EventID]*seen
	rate      *limitedServer
	rand      *rand.Rand
	// Of a strict endpoint, by ordering key: which events are under way, and the last number that
	// arrived.
	flying map[string]outbox.EventID
	last   map[string]int64
	broken []string // what must not happen
}

// seen is what a server, and whoever judges it, knows of an event.
type seen struct {
	got     int // answered 2xx
	replays int // asked for by people
	excuses int // how often a process was lost that may have sent it and recorded nothing
	log     string

	answers, arrivals []arrival // all, and the 2xx
}

// late reports whether there may have been a result of the event that came late.
func (x *seen) late() bool {
	return slices.ContainsFunc(x.answers, func(a arrival) bool { return a.p.line.lapsedSince(a.at) })
}

// arrival is a request that was answered.
type arrival struct {
	p  *process
	at time.Time // when it was begun
}

func (s *simServer) of(event outbox.EventID) *seen {
	if s.seen[event] == nil {
		s.seen[event] = &seen{}
	}
	return s.seen[event]
}

var behaviours = []string{"well", "well", "slow", "flaky", "limited", "down", "refuses", "hangs"}

func newSimServer(t *simTenant, e *simEndpoint, random *rand.Rand) *simServer {
	return &simServer{
		tenant: t, endpoint: e,
		behaviour: behaviours[random.IntN(len(behaviours))],
		seen:      map[outbox.EventID]*seen{},
		rate:      &limitedServer{perSecond: 20, at: time.Now()},
		rand:      rand.New(rand.NewPCG(random.Uint64(), 1)),
		flying:    map[string]outbox.EventID{},
		last:      map[string]int64{},
	}
}

// simCall is a request under way.
type simCall struct {
	p      *process
	server *simServer
	event  outbox.EventID
	key    string
	began  time.Time
	over   bool // its connection is gone
}

// simSender is how a process reaches the servers.
type simSender struct {
	p     *process
	clock *outbox.Clock
	urls  map[any]string
	calls map[*simCall]bool
}

func (s *simSender) Prepare(e attempt.Endpoint) *attempt.Target {
	s.p.h.mu.Lock()
	defer s.p.h.mu.Unlock()
	t := &attempt.Target{}
	s.urls[t] = e.URL
	return t
}

// Do makes a request, and fills in what a real sender does.
func (s *simSender) Do(ctx context.Context, r attempt.Request) attempt.Outcome {
	h := s.p.h
	h.mu.Lock()
	url := s.urls[r.Target]
	server := h.servers[url]
	call := &simCall{p: s.p, server: server, event: r.Event, began: time.Now()}
	wait, behaviour := server.begin(h, call, &r)
	if s.calls == nil {
		s.calls = map[*simCall]bool{}
	}
	s.calls[call] = true
	h.mu.Unlock()

	cut := false
	select {
	case <-time.After(wait):
	case <-ctx.Done():
		cut = true
	case <-s.p.life.Done(): // the process dies, and its connections with it
		cut = true
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(s.calls, call)
	cut = cut || call.over
	call.end()
	if x := server.of(r.Event); len(x.log) < 2000 {
		x.log += fmt.Sprintf("\n\t\t%v-%v by %s, number %d, attempt %d, %s, cut %v", call.began.Sub(h.begin), time.Since(h.begin), s.p.name, r.Sequence, r.N, behaviour, cut)
	}
	if !cut {
		server.of(r.Event).answers = append(server.of(r.Event).answers, arrival{s.p, call.began})
	}
	o := attempt.Outcome{Attempt: outbox.Attempt{Outcome: outbox.OutcomeTransient, Kind: outbox.KindReset}, Aborted: true}
	if !cut {
		o = server.answer(h, call, behaviour, &r)
	}
	at := s.clock.Now()
	o.ID, o.At, o.Trigger, o.URL, o.RequestBytes = outbox.NewAttemptID(at), at, r.Trigger, url, len(r.Payload)
	return o
}

// begin takes a request in, and says how long it takes. The history is locked.
func (s *simServer) begin(h *history, call *simCall, r *attempt.Request) (time.Duration, string) {
	s.tenant.flying++
	s.tenant.most = max(s.tenant.most, s.tenant.flying)
	if s.tenant.flying > s.tenant.cap {
		h.noted("%s got %s from %s: %d attempts at once %s", s.endpoint.uid, r.Event, call.p.name, s.tenant.flying, h.calls(s.tenant))
	}
	if s.endpoint.strict {
		call.key = h.keys[r.Event]
		// A late result may end a delivery that is being repeated, and give its turn away.
		if other, taken := s.flying[call.key]; taken && !s.of(other).late() && !s.of(r.Event).late() {
			s.broken = append(s.broken, fmt.Sprintf("%v: %s got %s, number %d, by %s while %s of the same key was under way: %s", time.Since(h.begin), s.endpoint.uid, r.Event, r.Sequence, call.p.name, other, h.calls(s.tenant)))
		}
		s.flying[call.key] = r.Event
	}
	switch s.behaviour {
	case "slow":
		return time.Duration(s.rand.IntN(3000)) * time.Millisecond, s.behaviour
	case "hangs":
		return 5 * time.Second, s.behaviour
	}
	return time.Duration(1+s.rand.IntN(20)) * time.Millisecond, s.behaviour
}

// calls lists the requests of a tenant that are under way. The history is locked.
func (h *history) calls(t *simTenant) string {
	var list []string
	for _, p := range h.all() {
		for call := range p.node.cfg.Sender.(*simSender).calls {
			if call.server.tenant == t && !call.over {
				list = append(list, fmt.Sprintf("%s of %s by %s for %v", call.event, call.server.endpoint.uid, p.name, time.Since(call.began)))
			}
		}
	}
	return strings.Join(list, ", ")
}

// end gives the request's place back. The history is locked.
func (c *simCall) end() {
	if c.over {
		return
	}
	c.over = true
	c.server.tenant.flying--
	delete(c.server.flying, c.key)
}

// hangUp ends a process's requests, as the operating system does with those of a dead one.
func (h *history) hangUp(p *process) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for call := range p.node.cfg.Sender.(*simSender).calls {
		call.end()
	}
}

// answer answers a request that got through. The history is locked.
func (s *simServer) answer(h *history, call *simCall, behaviour string, r *attempt.Request) attempt.Outcome {
	switch behaviour {
	case "flaky":
		if s.rand.IntN(2) == 0 {
			return failed(503)
		}
	case "limited":
		if !s.rate.take(time.Now()) {
			o := failed(429)
			if s.rand.IntN(3) == 0 {
				o.RetryAfter = time.Second
			}
			return o
		}
	case "down":
		return attempt.Outcome{Attempt: outbox.Attempt{Outcome: outbox.OutcomeTransient, Kind: outbox.KindRefused, Message: "Refused."}}
	case "refuses":
		return attempt.Outcome{Attempt: outbox.Attempt{Outcome: outbox.OutcomePermanent, Kind: outbox.KindHTTPStatus, StatusCode: 404, Message: "Not there."}}
	case "hangs":
		return attempt.Outcome{Attempt: outbox.Attempt{Outcome: outbox.OutcomeTransient, Kind: outbox.KindTimeout, Message: "Too slow."}}
	}
	x := s.of(r.Event)
	for _, before := range x.arrivals {
		if before.p.line.lapsedSince(before.at) {
			x.excuses++ // its result may have been recorded too late
			break
		}
	}
	x.arrivals = append(x.arrivals, arrival{call.p, call.began})
	if x.got++; s.endpoint.strict && x.got == 1 && x.replays == 0 { // one that is replayed comes when it comes
		key := h.keys[r.Event]
		if r.Sequence < s.last[key] {
			s.broken = append(s.broken, fmt.Sprintf("%s got number %d of key %q after number %d", s.endpoint.uid, r.Sequence, key, s.last[key]))
		}
		s.last[key] = max(s.last[key], r.Sequence)
	}
	return delivered()
}
