package dispatch

import "github.com/waybill-dev/waybill/internal/outbox"

// holdReplays keeps the tenant's replays from starting, or lets them go on.
func (s *scheduler) holdReplays(id outbox.TenantID, hold bool) {
	t := s.tenants[id]
	if t == nil || t.noReplays == hold {
		return
	}
	t.noReplays = hold
	for _, e := range s.endpoints {
		if e.tenant == t {
			s.settle(e)
		}
	}
}

// flying are the tenant's deliveries that are under way, or whose results are being recorded.
func (s *scheduler) flying(id outbox.TenantID) []outbox.DeliveryID {
	var ids []outbox.DeliveryID
	for _, w := range s.taken {
		if w.endpoint.tenant.id == id && !w.started.IsZero() {
			ids = append(ids, w.due.ID)
		}
	}
	return ids
}
