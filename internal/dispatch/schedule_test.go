package dispatch

import (
	"fmt"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/waybill-dev/waybill/internal/outbox"
)

var start = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// world is a scheduler with tenants and endpoints made for a test.
type world struct {
	*scheduler
	now time.Time
	n   int64
}

func newWorld(inFlight int) *world {
	w := &world{
		scheduler: newScheduler(limits{inFlight: inFlight, unrecorded: 1 << 20, readyBytes: 1 << 40}),
		now:       start,
	}
	w.clock = func() time.Time { return w.now }
	return w
}

func (w *world) addTenant(id outbox.TenantID, weight float64, inFlight int) {
	t := w.tenant(id, outbox.Shard(id))
	t.weight, t.cap = weight, inFlight
}

func (w *world) addEndpoint(tenant outbox.TenantID) *endpointQueue {
	return w.endpoint(outbox.NewEndpointID(start), tenant, outbox.Shard(tenant))
}

// give makes n deliveries of an endpoint ready, whatever the room.
func (w *world) give(e *endpointQueue, lane outbox.Lane, n int) {
	for range n {
		w.n++
		d := outbox.Due{Payload: []byte("{}")}
		d.ID = outbox.NewDeliveryID(outbox.NewEventID(start), e.id)
		d.Endpoint, d.Tenant, d.Shard, d.Lane, d.Sequence, d.NextAt = e.id, e.tenant.id, e.tenant.shard, lane, w.n, start
		w.admit(&e.lanes[lane], d)
	}
	w.settle(e)
}

// TestScheduler_sharesWorkerTimeByWeight saturates every tenant and compares the worker time each
// got with its weight's share.
func TestScheduler_sharesWorkerTimeByWeight(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tenants := rapid.IntRange(2, 6).Draw(t, "tenants")
		w := newWorld(8)
		used := make([]float64, tenants)
		weights := make([]float64, tenants)
		cost := make([]time.Duration, tenants)
		total := 0.0
		eps := make([]*endpointQueue, tenants)
		for i := range tenants {
			weights[i] = float64(rapid.IntRange(1, 5).Draw(t, "weight"))
			cost[i] = time.Duration(rapid.IntRange(1, 100).Draw(t, "ms")) * time.Millisecond
			total += weights[i]
			w.addTenant(outbox.TenantID(i+1), weights[i], 100)
			eps[i] = w.addEndpoint(outbox.TenantID(i + 1))
		}
		// Event by event: the attempt that ends first frees its slot, and the next is chosen.
		type flight struct {
			work *work
			ends time.Time
		}
		var flying []flight
		fill := func() {
			for {
				for _, e := range eps {
					if len(e.lanes[0].ready) < 10 {
						w.give(e, outbox.LaneLive, 10)
					}
				}
				x := w.next()
				if x == nil {
					return
				}
				flying = append(flying, flight{x, w.now.Add(cost[x.endpoint.tenant.id-1])})
			}
		}
		for range 20_000 {
			fill()
			first := 0
			for i := range flying {
				if flying[i].ends.Before(flying[first].ends) {
					first = i
				}
			}
			f := flying[first]
			flying[first] = flying[len(flying)-1]
			flying = flying[:len(flying)-1]
			w.now = f.ends
			took := f.ends.Sub(f.work.started)
			used[f.work.endpoint.tenant.id-1] += took.Seconds()
			w.ended(f.work, took)
			w.recorded(f.work, time.Time{})
		}
		sum := 0.0
		for _, u := range used {
			sum += u
		}
		for i, u := range used {
			want := sum * weights[i] / total
			if math.Abs(u-want) > 0.05*want {
				t.Fatalf("tenant %d (weight %v, %v an attempt) got %.2f s of %.2f s, want %.2f s", i+1, weights[i], cost[i], u, sum, want)
			}
		}
	})
}

// TestScheduler_keepsEveryCap plays random starts, ends, offers, parking and cap changes, and
// counts for itself.
func TestScheduler_keepsEveryCap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		node := rapid.IntRange(1, 20).Draw(t, "node")
		w := newWorld(node)
		var eps []*endpointQueue
		for i := range rapid.IntRange(1, 4).Draw(t, "tenants") {
			id := outbox.TenantID(i + 1)
			w.addTenant(id, 1, rapid.IntRange(1, 6).Draw(t, "cap"))
			for range rapid.IntRange(1, 3).Draw(t, "endpoints") {
				e := w.addEndpoint(id)
				e.limit = rapid.IntRange(0, 3).Draw(t, "limit")
				eps = append(eps, e)
			}
		}
		var flying []*work
		seen := map[outbox.DeliveryID]bool{}
		for range 300 {
			e := eps[rapid.IntRange(0, len(eps)-1).Draw(t, "endpoint")]
			switch rapid.IntRange(0, 4).Draw(t, "step") {
			case 0:
				w.give(e, outbox.Lane(rapid.IntRange(0, 1).Draw(t, "lane")), rapid.IntRange(1, 5).Draw(t, "n"))
			case 1:
				e.parked = !e.parked
				w.settle(e)
			case 2:
				if len(flying) > 0 {
					i := rapid.IntRange(0, len(flying)-1).Draw(t, "which")
					x := flying[i]
					flying = append(flying[:i:i], flying[i+1:]...)
					w.ended(x, time.Duration(rapid.IntRange(1, 10_000).Draw(t, "ms"))*time.Millisecond)
					w.recorded(x, time.Time{})
				}
			default:
				x := w.next()
				if x == nil {
					continue
				}
				if seen[x.due.ID] {
					t.Fatalf("%v was handed out twice", x.due.ID)
				}
				if x.endpoint.parked {
					t.Fatal("a parked endpoint was chosen")
				}
				seen[x.due.ID] = true
				flying = append(flying, x)
			}
			perTenant, perEndpoint, replays := map[outbox.TenantID]int{}, map[outbox.EndpointID]int{}, map[outbox.EndpointID]int{}
			for _, x := range flying {
				perTenant[x.endpoint.tenant.id]++
				perEndpoint[x.endpoint.id]++
				if x.due.Lane == outbox.LaneReplay {
					replays[x.endpoint.id]++
				}
			}
			if len(flying) > node {
				t.Fatalf("%d in flight, the node's cap is %d", len(flying), node)
			}
			for id, n := range perTenant {
				if n > w.tenants[id].cap {
					t.Fatalf("tenant %d has %d in flight, its cap is %d", id, n, w.tenants[id].cap)
				}
			}
			for _, e := range eps {
				limit := e.tenant.cap
				if e.limit > 0 {
					limit = min(limit, e.limit)
				}
				if perEndpoint[e.id] > limit {
					t.Fatalf("an endpoint has %d in flight, its limit is %d", perEndpoint[e.id], limit)
				}
				if replays[e.id] > max(1, limit/4) {
					t.Fatalf("an endpoint has %d replays in flight, its limit is %d", replays[e.id], limit)
				}
			}
		}
		// Work conserving: with everything unparked and room left, whatever is ready and below
		// its caps starts.
		for _, e := range eps {
			e.parked = false
			w.settle(e)
		}
		for x := w.next(); x != nil; x = w.next() {
			flying = append(flying, x)
		}
		if len(flying) < node {
			for _, e := range eps {
				if len(e.lanes[0].ready) > 0 && e.inFlight < e.slots() && e.tenant.inFlight < e.tenant.cap {
					t.Fatal("an endpoint with ready work and free slots was left idle")
				}
			}
		}
	})
}

// TestScheduler_hangingEndpointLeavesItsTenantsOthersAlone: one endpoint takes 10 s an attempt,
// another of the same tenant 10 ms; the quick one gets its turn whenever a slot is free.
func TestScheduler_chargesByWorkerTime(t *testing.T) {
	w := newWorld(100)
	w.addTenant(1, 1, 2)
	slow, quick := w.addEndpoint(1), w.addEndpoint(1)
	slow.limit = 1
	w.give(slow, outbox.LaneLive, 100)
	w.give(quick, outbox.LaneLive, 100)
	count := map[*endpointQueue]int{}
	x, y := w.next(), w.next()
	if x == nil || y == nil || x.endpoint == y.endpoint {
		t.Fatal("the two slots did not go to the two endpoints")
	}
	hanging, running := x, y
	if hanging.endpoint == quick {
		hanging, running = y, x
	}
	for range 50 {
		w.ended(running, 10*time.Millisecond)
		w.recorded(running, time.Time{})
		if running = w.next(); running == nil {
			t.Fatal("nothing was chosen though a slot was free")
		}
		count[running.endpoint]++
	}
	if count[quick] != 50 {
		t.Errorf("the quick endpoint had %d of 50 turns while the slow one hung", count[quick])
	}
	w.ended(hanging, 10*time.Second)
}

func BenchmarkScheduler_choose(b *testing.B) {
	for _, tenants := range []int{1_000, 100_000} {
		b.Run(fmt.Sprintf("%d tenants waiting", tenants), func(b *testing.B) {
			w := newWorld(1 << 30)
			for i := range tenants {
				id := outbox.TenantID(i + 1)
				w.addTenant(id, 1, 10)
				w.give(w.addEndpoint(id), outbox.LaneLive, 2)
			}
			b.ReportAllocs()
			for b.Loop() {
				x := w.next()
				w.ended(x, 50*time.Millisecond)
				w.pending--
				l := &x.endpoint.lanes[0]
				l.ready = append(l.ready, x)
				x.endpoint.tenant.ready++
				w.bytesReady += x.bytes()
				w.settle(x.endpoint)
			}
		})
	}
}
