package dispatch

import (
	"testing"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// What a job erased is not sent from memory, however many events it erased; what is under way is
// not touched, and neither is another tenant's.
func TestScheduler_erasedIsNotSentFromMemory(t *testing.T) {
	now := time.Now()
	mine, theirs, flying := outbox.NewEventID(now), outbox.NewEventID(now), outbox.NewEventID(now)
	s := newScheduler(limits{})
	put := func(id byte, tenant outbox.TenantID, event outbox.EventID, started time.Time) *work {
		e := s.endpoint(outbox.EndpointID{id}, tenant, 0)
		w := &work{endpoint: e, started: started}
		w.due.ID, w.due.Event, w.due.Payload = outbox.DeliveryID{id}, event, []byte(`{}`)
		s.taken[w.due.ID] = w
		return w
	}
	works := []*work{
		put(1, 1, mine, time.Time{}), put(2, 1, theirs, time.Time{}),
		put(3, 1, flying, now), put(4, 2, mine, time.Time{}),
	}
	s.erased(1, []outbox.EventID{mine, flying})
	for i, want := range []bool{true, false, false, false} {
		if works[i].due.Gone != want {
			t.Errorf("%d: gone is %t", i, works[i].due.Gone)
		}
	}
}
