package outbox

import (
	"context"
	"time"
)

// Looking serves the operator: search, what goes on right now, and who is hurting. A zero
// TenantRef means all tenants. Every method reads a bounded number of rows.
type Looking interface {
	// FindEndpoints returns living endpoints whose uid, URL, description or a value of whose
	// metadata contains the text, letters of either case alike; newest first.
	FindEndpoints(ctx context.Context, tenant TenantRef, text string, limit int) ([]Endpoint, error)
	// EndpointsEver returns the tenant's endpoints, the deleted ones too, newest first.
	EndpointsEver(ctx context.Context, tenant TenantRef, limit int) ([]Endpoint, error)
	// EventOfKey returns the event that an idempotency key of the tenant stands for (ErrNotFound).
	EventOfKey(ctx context.Context, tenant TenantRef, key string) (EventID, error)
	// EventsWithMetadata returns the tenant's newest events that have the text as a value of
	// their metadata, among the newest MaxListScan.
	EventsWithMetadata(ctx context.Context, tenant TenantRef, text string, limit int) ([]EventID, error)
	// EventsAfter returns the tenant's event ids above the given one, in order.
	EventsAfter(ctx context.Context, tenant TenantRef, after EventID, limit int) ([]EventID, error)
	// AttemptsEnded returns attempts in the order of their end, without headers and bodies.
	AttemptsEnded(ctx context.Context, q EndedQuery, limit int) ([]AttemptView, error)

	// Unwell returns the health of endpoints whose breaker is not closed or that have failed since
	// their last success, those with an open breaker first, at most limit.
	Unwell(ctx context.Context, limit int) ([]EndpointHealth, error)
	// Standing returns how much is pending and dead in all, from the books.
	Standing(ctx context.Context) (Standing, error)

	// ReportNode writes what a node says of itself.
	ReportNode(ctx context.Context, r NodeReport) error
	// Cluster returns the nodes and who owns which shard.
	Cluster(ctx context.Context) (Cluster, error)
	// OutboxHeads returns the first position that waits in each of the shards; none where nothing
	// waits.
	OutboxHeads(ctx context.Context, shards []Shard) (map[Shard]int64, error)
}

// EndedQuery asks for attempts that ended after a moment, or at it with a greater id.
type EndedQuery struct {
	Tenant  TenantRef
	Shards  []Shard // nil: all
	After   time.Time
	AfterID AttemptID
}

// Since is where an attempt that ends after the moment can have begun at the earliest.
func (q *EndedQuery) Since() time.Time { return q.After.Add(-MaxTimeout - 5*time.Second) }

// Standing is what the books say at this moment.
type Standing struct {
	Pending int64
	Dead    int64 // and cancelled, as far as they are kept
}

// NodeReport is what a node says of itself, every few seconds.
type NodeReport struct {
	Node        NodeID    `json:"-"`
	At          time.Time `json:"-"`
	Name        string    `json:"name"` // of its machine
	Version     string    `json:"version"`
	InFlight    int       `json:"in_flight"`
	MaxInFlight int       `json:"max_in_flight"`
	// PerSecond is how many attempts it has ended a second since its report before.
	PerSecond float64 `json:"per_second"`
	// OldestRunnable is for how long the delivery that could run for longest has waited.
	OldestRunnable time.Duration `json:"oldest_runnable"`
}

// NodeView is a node as people see it.
type NodeView struct {
	NodeBeat
	NodeReport
	Shards int
}

// Cluster is who works on what.
type Cluster struct {
	Nodes  []NodeView   // by id
	Shards []ShardState // by number
}
