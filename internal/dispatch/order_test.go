package dispatch

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/internal/attempt"
	"github.com/waybill-dev/waybill/internal/outbox"
)

// keyed is what a receiver of ordered events sees.
type keyed struct {
	mu    sync.Mutex
	keys  map[outbox.EventID]string
	under map[string]int     // attempts under way, by key
	seen  map[string][]int64 // numbers, by key, in the order they came
	wrong []string
}

// watched lets the rig's sender note what comes under which key, before it answers.
func (r *rig) watched(answer func(s sent) attempt.Outcome) *keyed {
	k := &keyed{keys: map[outbox.EventID]string{}, under: map[string]int{}, seen: map[string][]int64{}}
	r.sender.script(func(_ context.Context, s sent) attempt.Outcome {
		k.mu.Lock()
		key := k.keys[s.Event]
		k.seen[key] = append(k.seen[key], s.Sequence)
		if k.under[key]++; k.under[key] > 1 {
			k.wrong = append(k.wrong, fmt.Sprintf("key %q: number %d beside another", key, s.Sequence))
		}
		k.mu.Unlock()
		defer func() {
			k.mu.Lock()
			k.under[key]--
			k.mu.Unlock()
		}()
		return answer(s)
	})
	return k
}

// of returns the numbers that came under a key.
func (k *keyed) of(key string) []int64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.seen[key])
}

// inOrder fails the test if anything came beside or before another of its key. A number may come
// again, right after itself.
func (k *keyed) inOrder(t *testing.T) {
	t.Helper()
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, w := range k.wrong {
		t.Error(w)
	}
	for key, numbers := range k.seen {
		if !slices.IsSorted(numbers) {
			t.Errorf("key %q came as %v", key, numbers)
		}
	}
}

// publishKeys stores an event for each key, in this order.
func (r *rig) publishKeys(k *keyed, tenant outbox.TenantRef, keys ...string) []outbox.EventID {
	r.t.Helper()
	now := r.clock.Now()
	var ids []outbox.EventID
	var batch []outbox.NewEvent
	k.mu.Lock()
	for i, key := range keys {
		id := outbox.NewEventID(now)
		payload := fmt.Appendf(nil, `{"n":%d}`, i)
		batch = append(batch, outbox.NewEvent{Event: outbox.Event{
			ID: id, Tenant: tenant, Type: "test.event", OrderingKey: key, Payload: payload, SHA256: sha256.Sum256(payload), CreatedAt: now,
		}})
		ids = append(ids, id)
		k.keys[id] = key
	}
	k.mu.Unlock()
	accepted, conflicts, err := r.store.InsertEvents(r.t.Context(), batch)
	if err != nil || len(conflicts) > 0 {
		r.t.Fatal(err, conflicts)
	}
	var rows []outbox.OutboxRow
	for i := range batch {
		rows = append(rows, outbox.OutboxRow{
			Shard: tenant.Shard, Pos: accepted[i].Pos, Tenant: tenant.ID, Event: ids[i], Source: &batch[i].Event, HasPayload: true,
		})
	}
	r.node.Offer(rows)
	return ids
}

func strictEndpoint(onDead outbox.OnDead) func(e *outbox.Endpoint) {
	return func(e *outbox.Endpoint) { e.Ordering, e.OnDead = outbox.OrderingStrict, onDead }
}

func refused() attempt.Outcome {
	return attempt.Outcome{Attempt: outbox.Attempt{
		Outcome: outbox.OutcomePermanent, Kind: outbox.KindHTTPStatus, StatusCode: 400, Message: "It is wrong.",
	}}
}

// Number 1 of a key fails twice. Number 2 waits for it, other keys do not.
func TestOrder_aFailingDeliveryKeepsItsPlace(t *testing.T) {
	r := newRig(t)
	acme := r.tenant("acme", nil)
	r.endpoint(acme, "a", strictEndpoint(outbox.OnDeadSkip))
	others := make(chan struct{}, 3)
	k := r.watched(func(s sent) attempt.Outcome {
		switch {
		case s.Sequence == 1 && s.N < 3:
			return failed(500) // a 503 beside a 2xx would be a rate limit
		case s.Sequence == 1:
			for range cap(others) { // delivered only once the others have been
				<-others
			}
		case s.Sequence > 2:
			others <- struct{}{}
		}
		return delivered()
	})
	r.run()
	r.publishKeys(k, acme, "k", "k", "j", "", "i")
	r.settled(acme, map[outbox.DeliveryState]int{outbox.StateDelivered: 5})
	k.inOrder(t)
	if got := k.of("k"); !slices.Equal(got, []int64{1, 1, 1, 2}) {
		t.Errorf("the key came as %v", got)
	}
	r.balanced()
}

// Number 1 can never be delivered. It becomes a dead letter, and the next goes on or is held.
func TestOrder_aDeadDeliveryIsSkippedOrHolds(t *testing.T) {
	for _, onDead := range []outbox.OnDead{outbox.OnDeadSkip, outbox.OnDeadHold} {
		t.Run(string(onDead), func(t *testing.T) {
			r := newRig(t)
			acme := r.tenant("acme", nil)
			e := r.endpoint(acme, "a", strictEndpoint(onDead))
			var mu sync.Mutex
			mended := false
			k := r.watched(func(s sent) attempt.Outcome {
				mu.Lock()
				defer mu.Unlock()
				if s.Sequence == 1 && !mended {
					return refused()
				}
				return delivered()
			})
			r.run()
			events := r.publishKeys(k, acme, "k", "k", "k", "j")
			if onDead == outbox.OnDeadSkip {
				r.settled(acme, map[outbox.DeliveryState]int{outbox.StateDead: 1, outbox.StateDelivered: 3})
			} else {
				r.settled(acme, map[outbox.DeliveryState]int{outbox.StateDead: 1, outbox.StatePending: 2, outbox.StateDelivered: 1})
			}
			r.balanced()
			mu.Lock()
			mended = true
			mu.Unlock()
			if _, err := r.store.RequestReplay(t.Context(), acme, outbox.NewDeliveryID(events[0], e)); err != nil {
				t.Fatal(err)
			}
			r.settled(acme, map[outbox.DeliveryState]int{outbox.StateDelivered: 4})
			want := []int64{1, 2, 3, 1}
			if onDead == outbox.OnDeadHold {
				want = []int64{1, 1, 2, 3}
			}
			if got := k.of("k"); !slices.Equal(got, want) {
				t.Errorf("the key came as %v, want %v", got, want)
			}
			r.balanced()
		})
	}
}

// Many events on few keys, published while the node works, with retries, a node that stops in the
// middle and another that goes on, and commits whose answers are lost.
func TestOrder_holdsThroughRetriesRestartsAndLostAnswers(t *testing.T) {
	r := newRig(t)
	acme := r.tenant("acme", nil)
	r.endpoint(acme, "a", strictEndpoint(outbox.OnDeadSkip))
	k := r.watched(func(s sent) attempt.Outcome {
		if s.Sequence%11 == 0 && s.N < 3 {
			return failed(500) // a 503 after a 2xx would be a rate limit
		}
		return delivered()
	})
	calls := 0
	r.store.set(func(f *faulty) {
		f.finish = func(_ []outbox.Result, apply func() (outbox.Finished, error)) (outbox.Finished, error) {
			done, err := apply()
			f.mu.Lock()
			defer f.mu.Unlock()
			if calls++; err == nil && calls%5 == 0 {
				return outbox.Finished{}, errCut // it is written, but who was freed is not heard
			}
			return done, err
		}
	})
	const rounds, perRound = 6, 30
	keys := []string{"a", "b", "", "c"}
	r.run()
	for round := range rounds {
		var batch []string
		for i := range perRound {
			batch = append(batch, keys[i%len(keys)])
		}
		r.publishKeys(k, acme, batch...)
		if round%3 == 1 {
			r.halt()
			r.run()
		}
	}
	r.settled(acme, map[outbox.DeliveryState]int{outbox.StateDelivered: rounds * perRound})
	k.inOrder(t)
	k.mu.Lock()
	var all []int64
	for _, numbers := range k.seen {
		all = append(all, slices.Compact(numbers)...)
	}
	k.mu.Unlock()
	slices.Sort(all)
	for i, n := range all {
		if n != int64(i+1) {
			t.Fatalf("number %d stands in place %d", n, i+1)
		}
	}
	r.balanced()
}

// Switched while deliveries wait: those planned before come in order too, from then on.
func TestOrder_isSwitchedOnAndOffWhileDeliveriesWait(t *testing.T) {
	r := newRig(t)
	acme := r.tenant("acme", nil)
	r.endpoint(acme, "a", func(e *outbox.Endpoint) { e.State = outbox.EndpointPaused })
	k := r.watched(func(sent) attempt.Outcome { return delivered() })
	r.run()
	var batch []string
	for i := range 60 {
		batch = append(batch, []string{"x", "y", "z"}[i%3])
	}
	r.publishKeys(k, acme, batch...)
	r.settled(acme, map[outbox.DeliveryState]int{outbox.StatePending: 60})
	r.edit(acme, "a", func(e *outbox.Endpoint) { e.Ordering = outbox.OrderingStrict })
	r.eventually("the rows are in line", func() bool { return r.inLine(acme.Shard) })
	r.edit(acme, "a", func(e *outbox.Endpoint) { e.State = outbox.EndpointActive })
	r.publishKeys(k, acme, batch...)
	r.settled(acme, map[outbox.DeliveryState]int{outbox.StateDelivered: 120})
	k.inOrder(t)
	r.balanced()

	r.edit(acme, "a", func(e *outbox.Endpoint) { e.State = outbox.EndpointPaused })
	r.publishKeys(k, acme, batch...)
	r.settled(acme, map[outbox.DeliveryState]int{outbox.StateDelivered: 120, outbox.StatePending: 60})
	r.edit(acme, "a", func(e *outbox.Endpoint) { e.Ordering, e.State = outbox.OrderingNone, outbox.EndpointActive })
	r.settled(acme, map[outbox.DeliveryState]int{outbox.StateDelivered: 180})
	r.eventually("the rows are in line", func() bool { return r.inLine(acme.Shard) })
	r.balanced()
}

// inLine reports whether no endpoint of the shard is being switched.
func (r *rig) inLine(shard outbox.Shard) bool {
	r.t.Helper()
	c, err := r.store.LoadConfig(r.t.Context(), []outbox.Shard{shard})
	if err != nil {
		r.t.Fatal(err)
	}
	return len(c.Unordered) == 0
}

// A delivery that waited for its turn for longer than the retry window has all of it left.
func TestOrder_windowCountsFromTheTurn(t *testing.T) {
	r := newRig(t)
	acme := r.tenant("acme", nil)
	r.endpoint(acme, "a", func(e *outbox.Endpoint) {
		strictEndpoint(outbox.OnDeadSkip)(e)
		e.Retry = outbox.RetryPolicy{Initial: 50 * time.Millisecond, Max: 50 * time.Millisecond, Window: 300 * time.Millisecond}
	})
	k := r.watched(func(s sent) attempt.Outcome {
		if s.Sequence < 3 || s.N == 1 {
			return failed(500)
		}
		return delivered()
	})
	r.run()
	r.publishKeys(k, acme, "k", "k", "k")
	// The first two use up their windows, one after the other; the third has one of its own.
	r.settled(acme, map[outbox.DeliveryState]int{outbox.StateDead: 2, outbox.StateDelivered: 1})
	if got := slices.Compact(k.of("k")); !slices.Equal(got, []int64{1, 2, 3}) {
		t.Errorf("the key came as %v", got)
	}
	r.balanced()
}
