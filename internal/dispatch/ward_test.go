package dispatch

import (
	"testing"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

func TestPredecessor_isTheIDBefore(t *testing.T) {
	id := outbox.DeliveryID{7: 2}
	if got, want := predecessor(id), (outbox.DeliveryID{7: 1, 8: 255, 9: 255, 10: 255, 11: 255, 12: 255, 13: 255, 14: 255, 15: 255}); got != want {
		t.Errorf("%x, want %x", got, want)
	}
	id = outbox.DeliveryID{15: 5}
	if got, want := predecessor(id), (outbox.DeliveryID{15: 4}); got != want {
		t.Errorf("%x, want %x", got, want)
	}
}

// Endpoints that hang use much time apart, and the others must not wait for them.
func TestWard_turnsGoToWhoUsedTheLeastTime(t *testing.T) {
	s := newScheduler(limits{inFlight: 100, unrecorded: 100, readyBytes: 1 << 20})
	now := time.Now()
	hanging := s.endpoint(outbox.NewEndpointID(now), 1, 1)
	quick := s.endpoint(outbox.NewEndpointID(now), 2, 1)
	suspect := func(e *endpointQueue) *work {
		w := &work{endpoint: e}
		w.due.ID, w.due.Endpoint, w.due.Shard, w.due.Payload = outbox.NewDeliveryID(outbox.NewEventID(now), e.id), e.id, 1, []byte(`{}`)
		s.ward.suspect(outbox.Suspect{Shard: 1, Delivery: w.due.ID})
		s.taken[w.due.ID] = w
		e.lanes[0].inMemory++
		if !s.ward.takes(w) || w.due.Payload != nil {
			t.Fatal("not taken, or with its payload")
		}
		return w
	}
	for range 3 {
		suspect(hanging)
	}
	for range 3 {
		suspect(quick)
	}
	var turns []*endpointQueue
	for range 6 {
		w := s.nextSuspect(now)
		turns = append(turns, w.endpoint)
		took := 20 * time.Millisecond
		if w.endpoint == hanging {
			took = 10 * time.Second
		}
		s.ended(w, took)
		s.ward.spent[w.endpoint.id] += took
	}
	want := []*endpointQueue{hanging, quick, quick, quick, hanging, hanging}
	for i := range want {
		if turns[i] != want[i] {
			t.Errorf("turn %d went to the wrong endpoint", i+1)
		}
	}
	if s.nextSuspect(now) != nil {
		t.Error("there is nobody left")
	}
}

func TestWard_keepsToCapsAndForgetsWithTheShard(t *testing.T) {
	s := newScheduler(limits{inFlight: 100, unrecorded: 100, readyBytes: 1 << 20})
	now := time.Now()
	e := s.endpoint(outbox.NewEndpointID(now), 1, 1)
	e.tenant.cap = 1
	w := &work{endpoint: e}
	w.due.ID, w.due.Endpoint, w.due.Shard = outbox.NewDeliveryID(outbox.NewEventID(now), e.id), e.id, 1
	s.ward.suspect(outbox.Suspect{Shard: 1, Delivery: w.due.ID})
	s.taken[w.due.ID] = w
	e.lanes[0].inMemory++
	s.ward.takes(w)
	e.inFlight, e.tenant.inFlight = 1, 1
	if s.nextSuspect(now) != nil {
		t.Error("the cap is used up")
	}
	if flying := s.dropShards(map[outbox.Shard]bool{1: true}); len(flying) != 0 || len(s.taken) != 0 || len(s.ward.suspects) != 0 || len(s.ward.waiting) != 0 {
		t.Errorf("%d in flight, %d taken, %d suspected, %d waiting after the shard was given up", len(flying), len(s.taken), len(s.ward.suspects), len(s.ward.waiting))
	}
}
