package dispatch

import (
	"sync"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// erased remembers the events whose bytes were erased lately. Deliveries that were read, or
// handed over, before that still have them in memory: they are looked up here when their turn has
// come, instead of searching every place where one may wait.
type erased struct {
	mu     sync.RWMutex
	events [2]map[erasedEvent]struct{} // the newer, the older
}

// erasedEvent names the tenant too: another one's event may have the same id.
type erasedEvent struct {
	tenant outbox.TenantID
	id     outbox.EventID
}

// manyErased is how many are remembered at least. A delivery that stays in memory while so many
// other events are erased has been waiting for far longer than anything does.
const manyErased = 50_000

// erased marks what waits in memory of events that were erased. A job erases more of them than are
// remembered for those that are on their way between the places.
func (s *scheduler) erased(tenant outbox.TenantID, events []outbox.EventID) {
	if len(events) == 0 {
		return
	}
	gone := make(map[outbox.EventID]bool, len(events))
	for _, id := range events {
		gone[id] = true
	}
	for _, w := range s.taken {
		if w.endpoint.tenant.id == tenant && w.started.IsZero() && gone[w.due.Event] {
			w.due.Gone = true
		}
	}
}

func (e *erased) add(tenant outbox.TenantID, id outbox.EventID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.events[0] == nil || len(e.events[0]) >= manyErased {
		e.events[0], e.events[1] = map[erasedEvent]struct{}{}, e.events[0]
	}
	e.events[0][erasedEvent{tenant, id}] = struct{}{}
}

func (e *erased) has(tenant outbox.TenantID, id outbox.EventID) bool {
	e.mu.RLock()
	defer e.mu.RUnlock()
	for _, set := range e.events {
		if _, ok := set[erasedEvent{tenant, id}]; ok {
			return true
		}
	}
	return false
}
