package dispatch

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// Deliveries that nobody could try for too long are dead like any other, and the operator hears of
// it: once an hour for each endpoint.
func TestExpired_isTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.pending = 2 * time.Minute
		var told []Notice
		r.notify = func(n Notice) {
			r.sender.mu.Lock()
			defer r.sender.mu.Unlock()
			told = append(told, n)
		}
		acme, globex := r.tenant("acme", nil), r.tenant("globex", nil)
		pause := func(e *outbox.Endpoint) { e.State = outbox.EndpointPaused }
		first, second := r.endpoint(acme, "crm", pause), r.endpoint(globex, "erp", pause)
		r.run()
		r.publish(acme, 3, true)
		r.publish(globex, 1, true)
		began := time.Now()
		expired := func(tenant outbox.TenantRef, n int) func() bool {
			return func() bool { return r.states(tenant)[outbox.StateDead] == n }
		}
		r.until("the first expired", 6*time.Minute, expired(acme, 3))
		r.until("the other's expired", 2*time.Minute, expired(globex, 1))
		if age := time.Since(began); age < r.pending {
			t.Errorf("they expired after %v", age)
		}
		time.Sleep(time.Hour) // the notice is not repeated sooner
		r.publish(acme, 1, true)
		r.until("the next expired", 6*time.Minute, expired(acme, 4))
		r.halt()
		of := map[outbox.EndpointID]int{}
		for _, n := range told {
			if n.Type != NoticeDead || n.Reason.Message != outbox.ReasonExpired || n.At.IsZero() || n.Tenant.ID == 0 {
				t.Errorf("told %+v", n)
			}
			of[n.Endpoint.ID]++
		}
		if of[first] != 2 || of[second] != 1 || len(of) != 2 {
			t.Errorf("told %v", of)
		}
	})
}
