package dispatch

import (
	"crypto/sha256"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// One tenant's flood, several times of what fits in memory for it, is in the outbox when another
// tenant's event is committed: that one is not kept waiting, and all of the flood is routed, at
// the router's pace, without anybody having to wait for a sweep.
func TestNode_floodHidesNobodyAndIsRoutedToItsEnd(t *testing.T) {
	if testing.Short() {
		t.Skip("50,000 events take a while to store")
	}
	r := newRig(t)
	flood := r.tenant("flood", nil)
	r.endpoint(flood, "flooded", func(e *outbox.Endpoint) { e.State = outbox.EndpointPaused })
	calm := r.tenant("calm", nil)
	r.endpoint(calm, "calm", nil)
	const total = 50_000
	payload := []byte(`{}`)
	now := r.clock.Now()
	for range total / 1000 {
		events := make([]outbox.NewEvent, 1000)
		for i := range events {
			events[i].Event = outbox.Event{
				ID: outbox.NewEventID(now), Tenant: flood, Type: "a", Payload: payload, SHA256: sha256.Sum256(payload), CreatedAt: now,
			}
		}
		if _, _, err := r.store.InsertEvents(t.Context(), events); err != nil {
			t.Fatal(err)
		}
	}
	r.run()
	r.eventually("the flood is being routed", func() bool { return r.node.Status().Queued > 0 })
	begin := time.Now()
	events := r.publish(calm, 1, false)
	r.eventually("the calm tenant's event arrived", func() bool { return len(r.sender.all()) == 1 })
	t.Logf("the calm tenant's event took %v", time.Since(begin))
	if rows, err := r.store.ReadOutbox(t.Context(), []outbox.Shard{flood.Shard}, []int64{0}, 1); err != nil || len(rows) == 0 {
		t.Errorf("the calm tenant's event waited until the whole flood was routed (%v)", err)
	}
	if s := r.sender.all()[0]; s.Event != events[0] {
		t.Errorf("%s arrived", s.Event)
	}
	deadline := time.Now().Add(60 * time.Second)
	for {
		rows, err := r.store.ReadOutbox(t.Context(), []outbox.Shard{flood.Shard}, []int64{0}, 1)
		if err != nil {
			t.Fatal(err)
		}
		if len(rows) == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("rows from position %d on are still not routed", rows[0].Pos)
		}
		<-time.After(50 * time.Millisecond)
	}
	t.Logf("routed after %v", time.Since(begin))
	n, _, err := r.store.PendingOf(t.Context(), flood, r.mustFind(flood, "flooded"), total+1)
	if err != nil || n != total {
		t.Errorf("%d deliveries are pending, want %d (%v)", n, total, err)
	}
}

func (r *rig) mustFind(tenant outbox.TenantRef, uid string) outbox.EndpointID {
	r.t.Helper()
	e, err := r.store.Endpoint(r.t.Context(), tenant, outbox.EndpointRef{UID: uid})
	if err != nil {
		r.t.Fatal(err)
	}
	return e.ID
}
