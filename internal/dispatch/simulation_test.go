package dispatch

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
	"github.com/waybill-dev/waybill/internal/sqlite"
)

var (
	simSeeds = flag.Int("sim.seeds", 0, "how many histories to simulate; 0: 60, or 5 under -short")
	simSeed  = flag.Uint64("sim.seed", 0, "simulate this history alone")
)

// TestSimulation plays seeded histories: customers publish, servers behave in every way, the node
// is killed or stopped and another starts, the database loses answers and results, people pause,
// resume, delete and replay. Afterwards everything heals, and then the books balance to the last
// number, no accepted event is lost, caps held throughout, and nothing arrived twice but what a
// kill, a lost answer or a person explains. A history that fails is printed with its seed.
func TestSimulation(t *testing.T) {
	first, n := uint64(1), *simSeeds
	switch {
	case *simSeed != 0:
		first, n = *simSeed, 1
	case n == 0 && testing.Short():
		n = 5
	case n == 0:
		n = 60
	}
	for seed := first; seed < first+uint64(n); seed++ {
		synctest.Test(t, func(t *testing.T) { simulate(t, seed) })
		if t.Failed() {
			t.Fatalf("seed %d failed; play it alone with -run TestSimulation -sim.seed=%d", seed, seed)
		}
	}
}

// simulation is one history.
type simulation struct {
	*rig
	rand    *rand.Rand
	begin   time.Time
	history strings.Builder
	servers map[string]*simServer
	tenants []*simTenant

	// The node that runs now: a process of its own, as far as the database can tell.
	handle *sqlite.Store
	faults *faulty
	life   context.Context // ends when it is killed
	die    context.CancelFunc
	dying  sync.WaitGroup

	inFlight, most map[int]int // attempts at once, by tenant; the sender's lock guards them
}

type simTenant struct {
	outbox.TenantRef
	cap       int
	endpoints []*simEndpoint
}

type simEndpoint struct {
	id      outbox.EndpointID
	uid     string
	owed    []outbox.EventID // published while it existed
	deleted bool
}

func (s *simulation) note(format string, args ...any) {
	fmt.Fprintf(&s.history, "%10v  %s\n", time.Since(s.begin).Round(time.Millisecond), fmt.Sprintf(format, args...))
}

func simulate(t *testing.T, seed uint64) {
	s := &simulation{
		rig:     newRig(t),
		rand:    rand.New(rand.NewPCG(seed, seed)),
		begin:   time.Now(),
		servers: map[string]*simServer{},
		most:    map[int]int{},
	}
	s.log = slog.New(slog.DiscardHandler)
	defer func() {
		if t.Failed() {
			t.Logf("seed %d:\n%s", seed, s.history.String())
		}
	}()
	s.customers()
	s.sender.script(s.answer)
	s.start()
	for range 15 + s.rand.IntN(25) {
		s.step()
		time.Sleep(time.Duration(s.rand.IntN(1500)) * time.Millisecond)
	}
	s.heal()
	s.settle()
	s.end()
	s.dying.Wait()
	s.check()
}

// start starts a node on a handle of its own.
func (s *simulation) start() {
	s.handle = s.open()
	s.faults = &faulty{Store: s.handle}
	s.sender.mu.Lock()
	s.life, s.die = context.WithCancel(context.Background())
	s.inFlight = map[int]int{}
	s.sender.mu.Unlock()
	s.runOn(s.faults)
}

// end stops the node in order.
func (s *simulation) end() {
	s.halt()
	s.die()
	if err := s.handle.Close(); err != nil {
		s.t.Error(err)
	}
}

// kill takes the node's connections away, all at once. What it had not recorded is forgotten.
func (s *simulation) kill() {
	s.sender.mu.Lock()
	s.node.mu.Lock()
	for _, w := range s.node.sched.taken {
		if !w.started.IsZero() && w.target != nil {
			s.servers[w.target.endpoint.URL].forgotten++
		}
	}
	s.node.sched.paused = true
	s.node.mu.Unlock()
	s.die()
	s.life = context.Background() // whoever asks from now on is of the next life
	s.sender.mu.Unlock()
	handle, stop := s.handle, s.stop
	s.stop = nil
	if err := handle.Close(); err != nil {
		s.t.Error(err)
	}
	s.dying.Go(func() { stop() }) // its loops find no database and end
}

// customers makes two or three tenants with small caps and one or two endpoints each.
func (s *simulation) customers() {
	for i := range 2 + s.rand.IntN(2) {
		limit := 1 + s.rand.IntN(4)
		t := &simTenant{cap: limit}
		t.TenantRef = s.tenant(fmt.Sprintf("tenant-%d", i), func(t *outbox.Tenant) { t.MaxInFlight = limit })
		for j := range 1 + s.rand.IntN(2) {
			e := &simEndpoint{uid: fmt.Sprintf("e%d-%d", i, j)}
			e.id = s.endpoint(t.TenantRef, e.uid, func(e *outbox.Endpoint) {
				e.Retry = outbox.RetryPolicy{Initial: 200 * time.Millisecond, Max: 5 * time.Second}
				e.Timeout = 5 * time.Second
			})
			t.endpoints = append(t.endpoints, e)
			s.servers[e.url()] = &simServer{
				tenant:    i,
				behaviour: behaviours[s.rand.IntN(len(behaviours))],
				got:       map[outbox.EventID]int{},
				rate:      &limitedServer{perSecond: 20, at: s.begin},
				rand:      rand.New(rand.NewPCG(s.rand.Uint64(), 1)),
			}
			s.note("%s of a tenant with cap %d behaves: %s", e.uid, limit, s.servers[e.url()].behaviour)
		}
		s.tenants = append(s.tenants, t)
	}
}

func (e *simEndpoint) url() string { return "https://" + e.uid + ".example/hook" }

// step is something that happens.
func (s *simulation) step() {
	t := s.tenants[s.rand.IntN(len(s.tenants))]
	e := t.endpoints[s.rand.IntN(len(t.endpoints))]
	switch s.rand.IntN(14) {
	case 0, 1, 2, 3, 4, 5:
		events := s.publish(t.TenantRef, 1+s.rand.IntN(20), s.rand.IntN(2) == 0)
		s.note("%d events for the tenant of %s", len(events), e.uid)
		for _, e := range t.endpoints {
			if !e.deleted {
				e.owed = append(e.owed, events...)
			}
		}
	case 6:
		behaviour := behaviours[s.rand.IntN(len(behaviours))]
		s.note("%s behaves: %s", e.uid, behaviour)
		s.sender.mu.Lock()
		s.servers[e.url()].behaviour = behaviour
		s.sender.mu.Unlock()
	case 7:
		s.note("the node is killed")
		s.kill()
		s.start()
	case 8:
		s.note("the node is stopped")
		s.end()
		s.start()
	case 9:
		s.loseAnswers()
	case 10:
		if !e.deleted {
			state := []outbox.EndpointState{outbox.EndpointPaused, outbox.EndpointActive}[s.rand.IntN(2)]
			s.note("%s is %s", e.uid, state)
			s.edit(t.TenantRef, e.uid, func(e *outbox.Endpoint) { e.State = state })
		}
	case 11:
		if len(t.endpoints) > 1 && !e.deleted {
			s.note("%s is deleted", e.uid)
			if _, err := s.store.DeleteEndpoint(s.t.Context(), t.TenantRef, outbox.EndpointRef{UID: e.uid}, s.clock.Now(), 1); err != nil {
				s.t.Error(err)
			}
			e.deleted = true
		}
	default:
		s.replayOne(t, e)
	}
}

func (s *simulation) replayOne(t *simTenant, e *simEndpoint) {
	if len(e.owed) == 0 || e.deleted {
		return
	}
	event := e.owed[s.rand.IntN(len(e.owed))]
	was, err := s.store.RequestReplay(s.t.Context(), t.TenantRef, outbox.NewDeliveryID(event, e.id))
	if err != nil {
		return // not planned yet
	}
	s.note("%s is replayed to %s; it was %s", event, e.uid, was)
	s.sender.mu.Lock()
	s.servers[e.url()].replays++
	s.sender.mu.Unlock()
	s.node.Poke()
}

// loseAnswers makes the next commits of the router, or of the recorder, unanswered or refused.
func (s *simulation) loseAnswers() {
	left, applied, routing := 1+s.rand.IntN(3), s.rand.IntN(2) == 0, s.rand.IntN(2) == 0
	s.note("%d answers are lost: routing %v, applied %v", left, routing, applied)
	s.faults.set(func(f *faulty) {
		lose := func() bool {
			f.mu.Lock()
			defer f.mu.Unlock()
			left--
			return left >= 0
		}
		f.route, f.finish = nil, nil
		if routing {
			f.route = func(apply func() (outbox.Routed, error)) (outbox.Routed, error) {
				if !lose() {
					return apply()
				}
				if applied {
					if routed, err := apply(); err != nil || len(routed.Gone)+len(routed.Stale) > 0 {
						return routed, err
					}
				}
				return outbox.Routed{}, errCut
			}
			return
		}
		f.finish = func(_ []outbox.Result, apply func() (outbox.Finished, error)) (outbox.Finished, error) {
			if !lose() {
				return apply()
			}
			if applied {
				if finished, err := apply(); err != nil {
					return finished, err
				}
			}
			return outbox.Finished{}, errCut
		}
	})
}

// heal makes every server well and every endpoint active again.
func (s *simulation) heal() {
	s.note("everything heals")
	s.faults.set(func(f *faulty) { f.route, f.finish = nil, nil })
	s.sender.mu.Lock()
	for _, server := range s.servers {
		server.behaviour = "well"
	}
	s.sender.mu.Unlock()
	for _, t := range s.tenants {
		for _, e := range t.endpoints {
			if !e.deleted {
				s.edit(t.TenantRef, e.uid, func(e *outbox.Endpoint) { e.State = outbox.EndpointActive })
			}
		}
	}
}

// settle waits until nothing is pending. The longest wait is a breaker's.
func (s *simulation) settle() {
	begin := time.Now()
	for {
		pending := 0
		for _, t := range s.tenants {
			rows, _, err := s.store.Deliveries(s.t.Context(), outbox.DeliveryQuery{
				Tenant: t.TenantRef, States: []outbox.DeliveryState{outbox.StatePending},
			}, outbox.Page{Limit: 1})
			if err != nil {
				s.t.Fatal(err)
			}
			pending += len(rows)
		}
		outboxRows, err := s.store.ReadOutbox(s.t.Context(), allShards(), make([]int64, outbox.Shards), 1)
		if err != nil {
			s.t.Fatal(err)
		}
		if pending+len(outboxRows) == 0 {
			s.note("settled after %v", time.Since(begin))
			return
		}
		if time.Since(begin) > 20*time.Minute {
			s.t.Fatalf("%d tenants still have pending deliveries, %d shards outbox rows", pending, len(outboxRows))
		}
		time.Sleep(5 * time.Second)
	}
}

func allShards() []outbox.Shard {
	shards := make([]outbox.Shard, outbox.Shards)
	for i := range shards {
		shards[i] = outbox.Shard(i)
	}
	return shards
}

// check holds what happened against what was promised.
func (s *simulation) check() {
	s.balanced()
	for _, t := range s.tenants {
		for _, e := range t.endpoints {
			server := s.servers[e.url()]
			extra := 0
			for _, event := range e.owed {
				got := server.got[event]
				if extra += max(got-1, 0); got > 0 || e.deleted {
					continue
				}
				d, err := s.store.Delivery(s.t.Context(), t.TenantRef, outbox.NewDeliveryID(event, e.id))
				if err != nil || d.State != outbox.StateDead {
					s.t.Errorf("%s was accepted for %s and never arrived; it is %q (%v)", event, e.uid, d.State, err)
				}
			}
			// A kill forgets the results of what was in flight or not recorded yet.
			if most := server.replays + server.forgotten; extra > most {
				s.t.Errorf("%s got %d events more than once, %d replays and forgotten results explain that", e.uid, extra, most)
			}
		}
		if most := s.most[s.tenantIndex(t)]; most > t.cap {
			s.t.Errorf("a tenant had %d attempts at once, its cap is %d", most, t.cap)
		}
	}
}

func (s *simulation) tenantIndex(t *simTenant) int {
	for i := range s.tenants {
		if s.tenants[i] == t {
			return i
		}
	}
	return -1
}
