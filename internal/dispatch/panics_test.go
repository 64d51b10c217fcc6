package dispatch

import (
	"context"
	"testing"

	"github.com/waybill-dev/waybill/internal/attempt"
	"github.com/waybill-dev/waybill/internal/outbox"
)

func TestPanicCounter_countsPanicsOfARoundAlone(t *testing.T) {
	var p panicCounter
	d := outbox.Delivery{ID: outbox.NewDeliveryID(outbox.NewEventID(start), outbox.NewEndpointID(start))}
	again := d
	again.Round = 1
	for i, step := range []struct {
		delivery outbox.Delivery
		kind     outbox.Kind
		want     int
	}{
		{d, outbox.KindHTTPStatus, 0}, {d, outbox.KindPanic, 1}, {d, outbox.KindTimeout, 0}, {again, outbox.KindPanic, 1},
		{d, outbox.KindPanic, 2}, {d, "", 0}, {d, outbox.KindPanic, 3}, {again, outbox.KindPanic, 2},
	} {
		if got := p.count(&step.delivery, step.kind); got != step.want {
			t.Errorf("step %d: %d panics, want %d", i+1, got, step.want)
		}
	}
}

func TestNode_givesUpWhatPanicsThreeTimes(t *testing.T) {
	r := newRig(t)
	acme := r.tenant("acme", nil)
	r.endpoint(acme, "hook", nil)
	tries := 0
	r.sender.script(func(_ context.Context, s sent) attempt.Outcome {
		if tries++; tries <= 2 {
			return failed(503)
		}
		panic("a defect of ours")
	})
	r.run()
	ids := r.publish(acme, 1, true)
	r.settled(acme, map[outbox.DeliveryState]int{outbox.StateDead: 1})
	if tries != 5 {
		t.Errorf("%d tries, want two failures and three panics", tries)
	}
	list, _, err := r.store.Deliveries(t.Context(), outbox.DeliveryQuery{Tenant: acme, Event: ids[0]}, outbox.Page{Limit: 1})
	if err != nil || len(list) != 1 {
		t.Fatal(err, list)
	}
	_, _, sentence := attempt.Killing()
	if dead := list[0].Dead; dead.Reason != outbox.DeadPoison || dead.Message != sentence {
		t.Errorf("dead: %+v", dead)
	}
	r.balanced()
}
