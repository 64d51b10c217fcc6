package outbox

import (
	"crypto/sha256"
	"regexp"
	"time"
)

// Shards is the number of shards; it never changes for a database.
const Shards = 256

// Shard is a part of all tenants, 0 to 255, owned by exactly one node at a time. Every hot row
// carries it first in its key, so the schema can be distributed by it.
type Shard uint8

// ShardOf returns the shard of a tenant key: the first byte of its SHA-256.
func ShardOf(tenantKey string) Shard {
	sum := sha256.Sum256([]byte(tenantKey))
	return Shard(sum[0])
}

// TenantID is the surrogate rows elsewhere carry. A tenant created again under an old key gets a
// new one and never sees the old rows. It starts at 1; 0 is no tenant.
type TenantID int64

// TenantRef is what a row needs to name its tenant. Every store method that reads or writes a
// tenant's rows takes one: the tenant filter lives in the store.
type TenantRef struct {
	ID    TenantID
	Shard Shard
}

// Tenant is a customer of the company that runs Waybill.
type Tenant struct {
	TenantRef
	Key         string // the caller's own name for the customer, case-sensitive
	Name        string
	Weight      float64 // share of worker time under saturation, 1 by default
	MaxInFlight int     // attempts at once over all its endpoints, a hard cap
	State       TenantState
	Egress      EgressClass
	Retry       RetryPolicy // overrides; zero fields take the instance's
	Metadata    map[string]string
	// MaxEndpoints overrides the instance's limit; nil takes it.
	MaxEndpoints *int
	CreatedAt    time.Time
	UpdatedAt    time.Time
	// ResumedAt is when the state last became active again (set by the database, so edits by
	// psql count); retry windows are counted from it at the earliest.
	ResumedAt time.Time
	// DeletedAt is zero for a living tenant. A deleted one keeps its row, without its key, for
	// as long as its history is kept.
	DeletedAt time.Time
}

// Defaults and bounds of a tenant.
const (
	DefaultWeight      = 1.0
	DefaultMaxInFlight = 10
	MaxMaxInFlight     = 1000
)

// NewTenant returns a tenant with the defaults of the contract. The store gives it its ID.
func NewTenant(key string, now time.Time) Tenant {
	return Tenant{
		TenantRef:   TenantRef{Shard: ShardOf(key)},
		Key:         key,
		Weight:      DefaultWeight,
		MaxInFlight: DefaultMaxInFlight,
		State:       TenantActive,
		Egress:      EgressPublic,
		CreatedAt:   now,
		UpdatedAt:   now,
		ResumedAt:   now,
	}
}

// TenantState says whether a tenant's deliveries run.
type TenantState string

const (
	TenantActive TenantState = "active"
	TenantPaused TenantState = "paused" // events are accepted and planned, and wait
)

// EgressClass says which networks a tenant's endpoints may live in.
type EgressClass string

const (
	EgressPublic   EgressClass = "public"
	EgressInternal EgressClass = "internal" // also the operator's WAYBILL_EGRESS_ALLOW_INTERNAL
)

var tenantKey = regexp.MustCompile(`^[A-Za-z0-9_.:-]{1,64}$`)

// ValidTenantKey reports whether key may name a tenant.
func ValidTenantKey(key string) bool { return tenantKey.MatchString(key) }

// OperatorTenant is reserved for operational events.
const OperatorTenant = "waybill"
