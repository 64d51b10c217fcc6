package dispatch

import (
	"context"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
	"github.com/waybill-dev/waybill/internal/route"
)

// crowded is a store on which the routing of a crowd takes until it is told to go on.
type crowded struct {
	*faulty
	begun chan struct{}
	goOn  chan struct{}
}

func (c *crowded) Route(ctx context.Context, l outbox.Lease, plans []outbox.Plan, next map[outbox.EndpointID]int64, now time.Time) (outbox.Routed, error) {
	if len(plans) > route.Crowd {
		select {
		case c.begun <- struct{}{}:
		default:
		}
		<-c.goOn
	}
	return c.faulty.Route(ctx, l, plans, next, now)
}

// However long a crowd's routing takes, somebody else's event is routed and sent beside it. The
// crowd's own next event waits for it, or it could be numbered before what was accepted first.
func TestNode_nobodyWaitsForTheRoutingOfACrowd(t *testing.T) {
	r := newRig(t)
	crowd, calm := r.tenant("crowd", nil), r.tenant("calm", nil)
	r.endpoint(crowd, "crowd", nil)
	r.endpoint(calm, "calm", nil)
	s := &crowded{faulty: r.store, begun: make(chan struct{}, 1), goOn: make(chan struct{})}
	r.runOn(s)
	r.eventually("the node has its shards", func() bool { return len(r.node.Shards()) == outbox.Shards })
	first := r.publish(crowd, 3*route.Crowd, true)
	<-s.begun
	last := r.publish(crowd, 1, true)
	events := r.publish(calm, 5, true)
	r.eventually("the calm tenant's events arrived", func() bool { return len(r.sender.all()) == len(events) })
	for _, x := range r.sender.all() {
		if x.Sequence > int64(len(events)) || x.Event == last[0] {
			t.Errorf("%s was sent with number %d", x.Event, x.Sequence)
		}
	}
	close(s.goOn)
	all := len(first) + len(last) + len(events)
	r.eventually("the crowd's arrived", func() bool { return len(r.sender.all()) == all })
	for _, x := range r.sender.all() {
		if x.Event == last[0] && x.Sequence != int64(len(first)+1) {
			t.Errorf("the event accepted last has number %d of %d", x.Sequence, len(first)+1)
		}
	}
	r.halt()
	r.balanced()
}
