package dispatch

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/internal/attempt"
	"github.com/waybill-dev/waybill/internal/outbox"
)

// An open breaker waits half a minute for its first probe, unless somebody asks for one: by the
// command, or by replaying a delivery that is pending.
func TestNode_probeOnRequestGoesAtOnce(t *testing.T) {
	for name, ask := range map[string]func(r *rig, tenant outbox.TenantRef, d outbox.DeliveryID){
		"the command": func(r *rig, tenant outbox.TenantRef, _ outbox.DeliveryID) {
			_, err := r.store.EditEndpoint(r.t.Context(), tenant, outbox.EndpointRef{UID: "a"}, r.clock.Now(), func(*outbox.Endpoint) ([]outbox.Command, error) {
				return []outbox.Command{{Name: outbox.CommandProbe}}, nil
			})
			if err != nil {
				r.t.Fatal(err)
			}
		},
		"a replay of a pending delivery": func(r *rig, tenant outbox.TenantRef, d outbox.DeliveryID) {
			if was, err := r.store.RequestReplay(r.t.Context(), tenant, d); err != nil || was != outbox.StatePending {
				r.t.Fatal(was, err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			acme := r.tenant("acme", nil)
			id := r.endpoint(acme, "a", nil)
			var up atomic.Bool
			r.sender.script(func(context.Context, sent) attempt.Outcome {
				if up.Load() {
					return delivered()
				}
				return failed(500)
			})
			r.run()
			events := r.publish(acme, 40, true)
			r.eventually("the breaker is open", func() bool {
				h, known := r.node.Live(id)
				return known && h.Breaker == outbox.BreakerOpen && r.node.Status().InFlight == 0 && r.node.Status().Unrecorded == 0
			})
			before := len(r.sender.all())
			up.Store(true)
			begin := time.Now()
			ask(r, acme, outbox.NewDeliveryID(events[39], id))
			r.node.Poke()
			r.eventually("the probe", func() bool { return len(r.sender.all()) > before })
			if took := time.Since(begin); took > 20*time.Second {
				t.Errorf("the probe went after %v", took)
			}
			r.settled(acme, map[outbox.DeliveryState]int{outbox.StateDelivered: 40})
			r.balanced()
		})
	}
}
