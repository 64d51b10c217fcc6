package dispatch

import (
	"context"
	"crypto/sha256"
	"flag"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
	"github.com/waybill-dev/waybill/internal/outbox/memory"
)

var (
	simSeeds = flag.Int("sim.seeds", 0, "how many histories to simulate; 0: what 40 s allow, 200 to 4,000; under -short 100")
	simSeed  = flag.Uint64("sim.seed", 0, "simulate this history alone, and print it")
)

// TestSimulation plays seeded histories of one to three nodes on a store in memory. Customers
// publish, servers behave in every way, nodes are killed at any call to the database, stopped,
// started and cut off from it; the database is slow, loses answers, applies late what it said had
// failed, has its clock set; people pause, resume, delete and replay, change caps and stop everything. Afterwards
// all heals, and then the books balance to the last number, no accepted event is lost, caps and
// strict order held at every moment, and nothing arrived twice but what a lost process, a cut or a
// person explains. A history that fails is printed with its seed, which plays it again.
func TestSimulation(t *testing.T) {
	first, n := uint64(1), uint64(*simSeeds)
	switch {
	case *simSeed != 0:
		first, n = *simSeed, 1
	case n == 0 && testing.Short():
		n = 100
	case n == 0:
		n = 4000
	}
	enough := *simSeeds == 0 && *simSeed == 0 && !testing.Short()
	var next atomic.Uint64
	next.Store(first)
	var all sync.WaitGroup
	var played atomic.Int64
	began := time.Now()
	for range runtime.GOMAXPROCS(0) {
		all.Go(func() {
			for seed := next.Add(1) - 1; seed < first+n && !t.Failed(); seed = next.Add(1) - 1 {
				if enough && seed >= first+200 && time.Since(began) > 40*time.Second {
					return // a slow machine tries less
				}
				played.Add(1)
				t.Run(fmt.Sprint(seed), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) { newHistory(t, seed).play(seed) })
				})
			}
		})
	}
	all.Wait()
	if t.Failed() {
		t.Log("play a history alone with -run 'TestSimulation$' -sim.seed=N")
	}
	t.Logf("%d histories in %v", played.Load(), time.Since(began).Round(time.Millisecond))
}

// TestSimulation_onSQLite plays a few histories on a real database, one node at a time.
func TestSimulation_onSQLite(t *testing.T) {
	first, n := uint64(1), uint64(10)
	if *simSeed != 0 {
		first, n = *simSeed, 1
	} else if testing.Short() {
		n = 3
	}
	for seed := first; seed < first+n && !t.Failed(); seed++ {
		synctest.Test(t, func(t *testing.T) {
			h := newHistory(t, seed)
			h.store, h.exclusive, h.shards = newRig(t).store.Store, true, allShards()
			h.play(seed)
		})
	}
}

func allShards() []outbox.Shard {
	shards := make([]outbox.Shard, outbox.Shards)
	for i := range shards {
		shards[i] = outbox.Shard(i)
	}
	return shards
}

// history is one of them.
type history struct {
	t         *testing.T
	rand      *rand.Rand
	begin     time.Time
	store     outbox.Store
	exclusive bool // one process at a time
	shards    []outbox.Shard
	bubble    sync.WaitGroup // what of it goes on by itself
	step      atomic.Int64   // by which the database's clock was set
	faults    float64
	crew      sync.Mutex // guards processes; whoever holds it takes no other lock
	processes []*process
	tenants   []*simTenant

	mu      sync.Mutex // guards everything below, and what servers hold
	log     strings.Builder
	servers map[string]*simServer
	keys    map[outbox.EventID]string // their ordering keys
}

type simTenant struct {
	outbox.TenantRef
	key       string
	cap       int // the largest it had
	endpoints []*simEndpoint
	flying    int // attempts under way
	most      int
}

type simEndpoint struct {
	id      outbox.EndpointID
	uid     string
	strict  bool
	owed    []outbox.EventID // published while it existed
	deleted bool
}

func (e *simEndpoint) url() string { return "https://" + e.uid + ".example/hook" }

// simShards are the shards of a simulation: enough to be shared, and few to look at.
var simShards = []outbox.Shard{3, 60, 131, 254}

func newHistory(t *testing.T, seed uint64) *history {
	h := &history{
		t:       t,
		rand:    rand.New(rand.NewPCG(seed, seed)),
		begin:   time.Now(),
		shards:  simShards,
		servers: map[string]*simServer{},
		keys:    map[outbox.EventID]string{},
	}
	h.store = memory.New(func() time.Time { return time.Now().Add(time.Duration(h.step.Load())) }, simShards...)
	h.faults = []float64{0, 0.01, 0.05}[h.rand.IntN(3)]
	return h
}

func (h *history) play(seed uint64) {
	defer func() {
		if h.t.Failed() || *simSeed != 0 {
			h.t.Logf("seed %d:\n%s", seed, h.log.String())
		}
	}()
	h.customers()
	for range 1 + h.rand.IntN(h.most()) {
		h.start()
	}
	for range 15 + h.rand.IntN(25) {
		h.happen()
		time.Sleep(time.Duration(h.rand.IntN(1500)) * time.Millisecond)
	}
	h.heal()
	h.settle()
	for _, p := range h.processes {
		p.end()
	}
	h.bubble.Wait()
	h.check()
}

// most is how many processes there may be at once.
func (h *history) most() int {
	if h.exclusive {
		return 1
	}
	return 3
}

func (h *history) note(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.noted(format, args...)
}

func (h *history) noted(format string, args ...any) {
	fmt.Fprintf(&h.log, "%10v  %s\n", time.Since(h.begin).Round(time.Millisecond), fmt.Sprintf(format, args...))
}

func (h *history) now() time.Time {
	return time.Now().Add(time.Duration(h.step.Load())).UTC().Truncate(time.Microsecond)
}

// chance is true once in so many times.
func (h *history) chance(in int) bool { return h.rand.IntN(in) == 0 }

// customers makes two or three tenants with small caps and one or two endpoints each.
func (h *history) customers() {
	for i := range 2 + h.rand.IntN(2) {
		limit := 1 + h.rand.IntN(4)
		tenant, _, err := h.store.PutTenant(h.t.Context(), keyIn(simShards[h.rand.IntN(len(simShards))], i), h.now(), func(t *outbox.Tenant, _ bool) error {
			t.MaxInFlight = limit
			return nil
		})
		if err != nil {
			h.t.Fatal(err)
		}
		t := &simTenant{key: tenant.Key, cap: limit, TenantRef: tenant.TenantRef}
		for j := range 1 + h.rand.IntN(2) {
			e := &simEndpoint{uid: fmt.Sprintf("e%d-%d", i, j), strict: h.chance(3)}
			stored, _, err := h.store.PutEndpoint(h.t.Context(), t.TenantRef, outbox.EndpointRef{UID: e.uid}, h.now(), func(p *outbox.Endpoint, _ bool) error {
				p.UID, p.URL, p.EventTypes, p.State = e.uid, e.url(), []string{"*"}, outbox.EndpointActive
				p.Retry = outbox.RetryPolicy{Initial: 200 * time.Millisecond, Max: 5 * time.Second}
				p.Timeout = 5 * time.Second
				if e.strict {
					p.Ordering = outbox.OrderingStrict
				}
				return nil
			})
			if err != nil {
				h.t.Fatal(err)
			}
			e.id = stored.ID
			t.endpoints = append(t.endpoints, e)
			h.servers[e.url()] = newSimServer(t, e, h.rand)
			h.note("%s (strict %v) of a tenant with cap %d behaves: %s", e.uid, e.strict, limit, h.servers[e.url()].behaviour)
		}
		h.tenants = append(h.tenants, t)
	}
}

// keyIn is a tenant's key that lies in a shard.
func keyIn(shard outbox.Shard, n int) string {
	for i := 0; ; i++ {
		if key := fmt.Sprintf("tenant-%d-%d", n, i); outbox.ShardOf(key) == shard {
			return key
		}
	}
}

// happen lets something happen.
func (h *history) happen() {
	h.replaceDead()
	t := h.tenants[h.rand.IntN(len(h.tenants))]
	e := t.endpoints[h.rand.IntN(len(t.endpoints))]
	p := h.processes[h.rand.IntN(len(h.processes))]
	switch h.rand.IntN(22) {
	case 0, 1, 2, 3, 4, 5, 6:
		h.publish(t, 1+h.rand.IntN(20))
	case 7, 8:
		behaviour := behaviours[h.rand.IntN(len(behaviours))]
		h.note("%s behaves: %s", e.uid, behaviour)
		h.mu.Lock()
		h.servers[e.url()].behaviour = behaviour
		h.mu.Unlock()
	case 9:
		p.crashSoon(1+h.rand.IntN(60), h.chance(2))
	case 10:
		if h.chance(2) {
			h.note("%s is killed", p.name)
			p.kill()
		} else {
			h.note("%s is stopped", p.name)
			p.end()
		}
	case 11:
		if len(h.living()) < h.most() {
			h.start()
		}
	case 12:
		p.cutOff(time.Duration(h.rand.IntN(15_000)) * time.Millisecond)
	case 13, 14:
		if !e.deleted {
			state := []outbox.EndpointState{outbox.EndpointPaused, outbox.EndpointActive}[h.rand.IntN(2)]
			h.note("%s is %s", e.uid, state)
			h.edit(t, e, func(e *outbox.Endpoint) { e.State = state })
		}
	case 15:
		if len(t.endpoints) > 1 && !e.deleted {
			h.note("%s is deleted", e.uid)
			if _, err := h.store.DeleteEndpoint(h.t.Context(), t.TenantRef, outbox.EndpointRef{UID: e.uid}, h.now(), 1); err != nil {
				h.t.Error(err)
			}
			e.deleted = true
		}
	case 16:
		state := outbox.DispatchState{Paused: h.chance(2)}
		h.note("dispatch is paused: %v", state.Paused)
		if err := h.store.SetDispatch(h.t.Context(), state); err != nil {
			h.t.Error(err)
		}
	case 17:
		if !h.exclusive && h.chance(3) {
			// Forward: once it was set back, a result that is older by the clock than the attempt that
			// holds a slot looks younger (outbox.HeldSlot).
			by := time.Duration(h.rand.IntN(120)) * time.Second
			h.note("the database's clock is set by %v", by)
			h.step.Add(int64(by))
		}
	case 18:
		limit := 1 + h.rand.IntN(4)
		h.note("the cap of the tenant of %s is %d", t.endpoints[0].uid, limit)
		h.mu.Lock()
		t.cap = max(t.cap, limit) // a node may not have heard yet of one that is lower
		h.mu.Unlock()
		h.editTenant(t, func(t *outbox.Tenant) { t.MaxInFlight = limit })
	case 19:
		state := []outbox.TenantState{outbox.TenantPaused, outbox.TenantActive}[h.rand.IntN(2)]
		h.note("the tenant of %s is %s", t.endpoints[0].uid, state)
		h.editTenant(t, func(t *outbox.Tenant) { t.State = state })
	default:
		h.replay(t, e)
	}
}

func (h *history) editTenant(t *simTenant, change func(t *outbox.Tenant)) {
	_, err := h.store.EditTenant(h.t.Context(), t.key, h.now(), func(t *outbox.Tenant) error {
		change(t)
		return nil
	})
	if err != nil {
		h.t.Error(err)
	}
}

func (h *history) edit(t *simTenant, e *simEndpoint, change func(e *outbox.Endpoint)) {
	_, err := h.store.EditEndpoint(h.t.Context(), t.TenantRef, outbox.EndpointRef{UID: e.uid}, h.now(), func(e *outbox.Endpoint) ([]outbox.Command, error) {
		change(e)
		return nil, nil
	})
	if err != nil {
		h.t.Error(err)
	}
}

// publish accepts events, which a node of the same process gets directly or all have to find.
func (h *history) publish(t *simTenant, n int) {
	now := h.now()
	batch := make([]outbox.NewEvent, n)
	for i := range batch {
		id := outbox.NewEventID(now)
		payload := fmt.Appendf(nil, `{ "n": %d, "e": "%s" }`, i, id)
		batch[i].Event = outbox.Event{
			ID: id, Tenant: t.TenantRef, Type: "test.event", Payload: payload, SHA256: sha256.Sum256(payload), CreatedAt: now,
			OrderingKey: []string{"", "a", "b"}[h.rand.IntN(3)],
		}
	}
	h.mu.Lock()
	for i := range batch {
		h.keys[batch[i].ID] = batch[i].OrderingKey
	}
	h.mu.Unlock()
	accepted, conflicts, err := h.store.InsertEvents(h.t.Context(), batch)
	if err != nil || len(conflicts) > 0 {
		h.t.Fatal(err, conflicts)
	}
	h.note("%d events for the tenant of %s", n, t.endpoints[0].uid)
	for _, e := range t.endpoints {
		for i := range batch {
			if !e.deleted {
				e.owed = append(e.owed, batch[i].ID)
			}
		}
	}
	if living := h.living(); len(living) > 0 && h.chance(2) {
		rows := make([]outbox.OutboxRow, n)
		for i := range rows {
			rows[i] = outbox.OutboxRow{
				Shard: t.Shard, Pos: accepted[i].Pos, Tenant: t.ID, Event: batch[i].ID, Source: &batch[i].Event, HasPayload: true,
			}
		}
		living[h.rand.IntN(len(living))].node.Offer(rows)
	}
}

// replay asks for one delivery again.
func (h *history) replay(t *simTenant, e *simEndpoint) {
	if len(e.owed) == 0 || e.deleted {
		return
	}
	event := e.owed[h.rand.IntN(len(e.owed))]
	h.mu.Lock()
	h.servers[e.url()].of(event).replays++ // before it can arrive
	h.mu.Unlock()
	was, err := h.store.RequestReplay(h.t.Context(), t.TenantRef, outbox.NewDeliveryID(event, e.id))
	if err != nil {
		h.mu.Lock()
		h.servers[e.url()].of(event).replays-- // not planned yet
		h.mu.Unlock()
		return
	}
	h.note("%s is replayed to %s; it was %s", event, e.uid, was)
	for _, p := range h.living() {
		p.node.Wrote(t.Shard)
	}
}

// heal makes everything well.
func (h *history) heal() {
	h.note("everything heals")
	h.mu.Lock()
	for _, server := range h.servers {
		server.behaviour = "well"
	}
	h.mu.Unlock()
	for _, p := range h.processes {
		p.well()
	}
	if len(h.living()) == 0 {
		h.start().well()
	}
	if err := h.store.SetDispatch(h.t.Context(), outbox.DispatchState{}); err != nil {
		h.t.Error(err)
	}
	for _, t := range h.tenants {
		h.editTenant(t, func(t *outbox.Tenant) { t.State = outbox.TenantActive })
		for _, e := range t.endpoints {
			if !e.deleted {
				h.edit(t, e, func(e *outbox.Endpoint) { e.State = outbox.EndpointActive })
			}
		}
	}
}

// settle waits until nothing is pending. The longest wait is a breaker's.
func (h *history) settle() {
	begin := time.Now()
	for {
		if len(h.living()) == 0 { // the last one ended in a call that was under way when all healed
			h.start().well()
		}
		report, err := h.store.Verify(h.t.Context(), false)
		if err != nil {
			h.t.Fatal(err)
		}
		rows, err := h.store.ReadOutbox(h.t.Context(), h.shards, make([]int64, len(h.shards)), 1)
		if err != nil {
			h.t.Fatal(err)
		}
		if report.Pending == 0 && len(rows) == 0 {
			h.note("settled after %v", time.Since(begin))
			return
		}
		if time.Since(begin) > 20*time.Minute {
			h.t.Errorf("%d deliveries are still pending, %d shards have outbox rows", report.Pending, len(rows))
			return
		}
		time.Sleep(time.Second)
	}
}

// check holds what happened against what was promised.
func (h *history) check() {
	report, err := h.store.Verify(context.Background(), true)
	if err != nil {
		h.t.Fatal(err)
	}
	for _, c := range report.Checks {
		for _, b := range c.Broken {
			h.t.Errorf("%s: %s: %d and %d", c.Name, b.Where, b.Left, b.Right)
		}
	}
	for _, t := range h.tenants {
		if t.most > t.cap {
			h.t.Errorf("a tenant had %d attempts at once, its cap is %d", t.most, t.cap)
		}
		for _, e := range t.endpoints {
			server := h.servers[e.url()]
			for _, broken := range server.broken {
				h.t.Error(broken)
			}
			for _, event := range e.owed {
				seen := server.of(event)
				if most := 1 + seen.replays + seen.excuses; seen.got > most {
					h.t.Errorf("%s got %s %d times; %d replays and %d lost results explain %d:%s", e.uid, event, seen.got, seen.replays, seen.excuses, most, seen.log)
				}
				if seen.got > 0 || e.deleted {
					continue
				}
				d, err := h.store.Delivery(context.Background(), t.TenantRef, outbox.NewDeliveryID(event, e.id))
				if err != nil || d.State != outbox.StateDead {
					h.t.Errorf("%s was accepted for %s and never arrived; it is %q (%v)", event, e.uid, d.State, err)
				}
			}
		}
	}
}

// all are the processes there ever were.
func (h *history) all() []*process {
	h.crew.Lock()
	defer h.crew.Unlock()
	return slices.Clone(h.processes)
}

func (h *history) living() []*process {
	var living []*process
	for _, p := range h.all() {
		if !p.gone.Load() {
			living = append(living, p)
		}
	}
	return living
}

// replaceDead starts a process where all have ended, as whoever runs them does after a while.
func (h *history) replaceDead() {
	if living := len(h.living()); living == 0 || living < h.most() && h.chance(3) {
		h.start()
	}
}
