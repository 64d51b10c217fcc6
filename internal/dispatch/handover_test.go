package dispatch

import (
	"context"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// stuck is a store that keeps its caller waiting while a suspect is written down, and shows what
// is handed over.
type stuck struct {
	*faulty
	first    bool // written down before the wait, not after it
	marking  chan struct{}
	goOn     chan struct{}
	released chan map[outbox.Shard][]outbox.HeldSlot
}

func (s *stuck) MarkSuspects(ctx context.Context, l outbox.Lease, suspects []outbox.Suspect, now time.Time) error {
	if suspects[0].Delivery.IsZero() {
		return s.faulty.MarkSuspects(ctx, l, suspects, now) // a row that is about to be routed
	}
	mark := func() error { return s.faulty.MarkSuspects(ctx, l, suspects, now) }
	var err error
	if s.first {
		err = mark()
	}
	select {
	case s.marking <- struct{}{}:
	default:
	}
	<-s.goOn
	if !s.first {
		err = mark()
	}
	return err
}

func (s *stuck) Release(ctx context.Context, l outbox.Lease, held map[outbox.Shard][]outbox.HeldSlot) error {
	err := s.faulty.Release(ctx, l, held)
	select {
	case s.released <- held:
	default:
	}
	return err
}

// A shard is handed over while a delivery of it waits to be written down as a suspect. It is not
// sent any more, so no result frees the slot: the next owner must not hold it for as long as an
// attempt could take, or a customer all of whose slots are in that state stands still meanwhile.
func TestNode_whatWaitsToBeWrittenDownIsNotHandedOverAsInFlight(t *testing.T) {
	for name, first := range map[string]bool{"written down too late": false, "written down in time": true} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			acme := r.tenant("acme", nil)
			r.endpoint(acme, "e", nil)
			r.die()
			s := &stuck{
				faulty: r.store, first: first,
				marking:  make(chan struct{}, 1),
				goOn:     make(chan struct{}),
				released: make(chan map[outbox.Shard][]outbox.HeldSlot, 1),
			}
			r.runOn(s)
			r.eventually("the node has its shards", func() bool { return len(r.node.Shards()) == outbox.Shards })
			r.publish(acme, 1, true)
			<-s.marking
			r.node.release(r.node.Shards())
			held := (<-s.released)[acme.Shard]
			began := time.Now()
			if len(held) != 1 || held[0].Left > 0 || held[0].Deadline.After(r.clock.Now()) {
				t.Errorf("handed over: %+v, want one that is over at once", held)
			}
			close(s.goOn)
			// The same node takes the shard again with its next heartbeat.
			r.eventually("it arrived", func() bool { return len(r.sender.all()) > 0 })
			if took := time.Since(began); took > 20*time.Second {
				t.Errorf("arrived %v after the hand-over", took)
			}
			r.halt()
			if n := len(r.sender.all()); n != 1 {
				t.Errorf("%d requests", n)
			}
			r.balanced()
		})
	}
}
