package outbox

import (
	"context"
	"time"
)

// Counting counts for people, never further than they need to know.
type Counting interface {
	// CountDeliveries counts the tenant's deliveries by state, reading at most limit rows of each
	// table, so that a count is cheap whatever there is. A count that stopped there is Capped.
	// Delivered counts the rounds that ended delivered: one delivered again by a replay counts
	// again, and one that was replayed since counts until then.
	CountDeliveries(ctx context.Context, q CountQuery, limit int) (map[DeliveryState]Count, error)
}

// CountQuery says which of a tenant's deliveries are counted; the times are the event's,
// [From, To). The tenant is required.
type CountQuery struct {
	Tenant   TenantRef
	Endpoint EndpointID // zero: of all
	From, To time.Time
}

// Count is how many there are, or where it is capped, that there are at least so many.
type Count struct {
	N      int
	Capped bool
}
