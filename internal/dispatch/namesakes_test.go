package dispatch

import (
	"context"
	"crypto/sha256"
	"fmt"
	"testing"

	"github.com/waybill-dev/waybill/internal/attempt"
	"github.com/waybill-dev/waybill/internal/outbox"
)

// Tenants may choose the same id for their events, a stranger on purpose. What one of them erases is
// erased of nobody else, also where the other's is in memory already.
func TestNode_erasingAnEventTouchesNoOtherTenantsOfThatID(t *testing.T) {
	r := newRig(t)
	acme, globex := r.tenant("acme", nil), r.tenant("globex", nil)
	r.endpoint(acme, "a", func(e *outbox.Endpoint) { e.MaxInFlight = 1 })
	r.endpoint(globex, "g", func(e *outbox.Endpoint) { e.MaxInFlight = 1 })
	hold := make(chan struct{})
	r.sender.script(func(context.Context, sent) attempt.Outcome {
		<-hold
		return delivered()
	})
	r.run()
	// The first of each holds the one place there is; the second waits in memory.
	r.publish(acme, 1, true)
	r.publish(globex, 1, true)
	r.eventually("both are under way", func() bool { return len(r.sender.all()) == 2 })
	id := outbox.NewEventID(r.clock.Now())
	for _, tenant := range []outbox.TenantRef{acme, globex} {
		payload := []byte(`{"of":"` + fmt.Sprint(tenant.ID) + `"}`)
		event := outbox.Event{ID: id, Tenant: tenant, Type: "test.event", Payload: payload, SHA256: sha256.Sum256(payload), CreatedAt: r.clock.Now()}
		accepted, conflicts, err := r.store.InsertEvents(t.Context(), []outbox.NewEvent{{Event: event, Chosen: true}})
		if err != nil || len(conflicts) > 0 || accepted[0].Duplicate {
			t.Fatal(accepted, conflicts, err)
		}
		r.node.Offer([]outbox.OutboxRow{{Shard: tenant.Shard, Pos: accepted[0].Pos, Tenant: tenant.ID, Event: id, Source: &event, HasPayload: true}})
	}
	for _, tenant := range []outbox.TenantRef{acme, globex} {
		r.settled(tenant, map[outbox.DeliveryState]int{outbox.StatePending: 2})
	}
	if err := r.store.ErasePayload(t.Context(), globex, id); err != nil {
		t.Fatal(err)
	}
	r.node.Poke()
	r.eventually("the node knows of it", func() bool { return r.node.erased.has(globex.ID, id) })
	close(hold)
	r.settled(acme, map[outbox.DeliveryState]int{outbox.StateDelivered: 2})
	r.settled(globex, map[outbox.DeliveryState]int{outbox.StateDelivered: 1, outbox.StateDead: 1})
	sent := map[string]string{}
	for _, s := range r.sender.all() {
		if s.Event == id {
			sent[s.url] = string(s.Payload)
		}
	}
	if len(sent) != 1 || sent["https://a.example/hook"] != `{"of":"`+fmt.Sprint(acme.ID)+`"}` {
		t.Errorf("under this id was sent %v, want what is left of it alone", sent)
	}
	r.balanced()
}
