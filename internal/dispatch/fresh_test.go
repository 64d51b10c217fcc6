package dispatch

import (
	"testing"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// After an outage the past is told in turns with what happens now: neither waits for all of the
// other.
func TestScheduler_newsDoesNotWaitBehindALongLine(t *testing.T) {
	for name, c := range map[string]struct {
		due    time.Duration // of the first in the line, before now
		strict bool
		want   string // o: from the line, n: news
	}{
		"a line of a minute":           {time.Minute, false, "nononono"},
		"a line of a moment":           {time.Second, false, "oooonnnn"},
		"a line of a minute, in order": {time.Minute, true, "oooonnnn"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(1)
			w.addTenant(1, 1, 1)
			e := w.addEndpoint(1)
			db, old := table{}, map[outbox.DeliveryID]bool{}
			make := func(at time.Time) outbox.Delivery {
				d := outbox.Delivery{Shard: 1, Tenant: 1, Endpoint: e.id, NextAt: at}
				if c.strict {
					d.TurnAt = at
				}
				d.ID = outbox.NewDeliveryID(outbox.NewEventID(start), e.id)
				db[d.ID] = d
				return d
			}
			for i := range 4 {
				d := make(w.now.Add(-c.due + time.Duration(i)*time.Millisecond))
				old[d.ID] = true
				w.lower(&d)
			}
			read := func() {
				for _, r := range w.wants(w.now, 1) {
					w.fetched(r, db.read(r.request, w.now, 0), w.now)
				}
			}
			got := ""
			for range 4 { // as each is sent another comes
				read()
				w.offer(outbox.Due{Delivery: make(w.now), Payload: []byte("{}")})
			}
			for range 8 {
				read()
				x := w.next()
				if x == nil {
					t.Fatalf("after %q nothing is ready", got)
				}
				if old[x.due.ID] {
					got += "o"
				} else {
					got += "n"
				}
				w.ended(x, time.Millisecond)
				delete(db, x.due.ID)
				w.recorded(x, time.Time{})
			}
			if got != c.want {
				t.Errorf("sent %q, want %q", got, c.want)
			}
		})
	}
}
