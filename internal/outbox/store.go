package outbox

import (
	"context"
	"maps"
	"time"
)

// Store is everything a database must do. Consumers declare the one to three methods they use;
// this list is what both stores implement and what internal/outbox/outboxtest proves.
//
// Rules for all of it. A nil error from a write means it is durable. A failed write is a
// *WriteError; after FaultUnknown the caller runs the same call again, and every write is
// idempotent for that. Reads filter by tenant themselves. now is always a parameter: database
// time as the node keeps it (Clock). Methods are safe for concurrent use.
type Store interface {
	Publishing
	Testing
	Idempotency
	Configuration
	Signing
	Catalogue
	Erasing
	Ownership
	Routing
	Dispatching
	Order
	Health
	Switch
	Sessions
	Keys
	Audit
	Environments
	Resealing
	Careful
	Jobs
	JobWork
	Reading
	Counting
	Inbox
	Figures
	Looking
	Upkeep
	Monitoring
	Close() error
}

// Publishing accepts events.
type Publishing interface {
	// InsertEvents stores the events and an outbox row for each, all or nothing, in one
	// transaction. If any member conflicts with what is stored, nothing is written and the
	// conflicts are returned with a nil error. A member that is already stored with the same
	// content (or whose idempotency key met the same digest) is Duplicate, not a conflict.
	// Running the same batch again after an unknown commit changes nothing, even if its events
	// have been routed meanwhile. Idempotency keys are taken in sorted order and waited for at
	// most 100 ms (FaultLocked).
	InsertEvents(ctx context.Context, batch []NewEvent) ([]Accepted, []Conflict, error)
}

// IdempotencyState is how an idempotent request stands.
type IdempotencyState int

const (
	IdempotencyNew      IdempotencyState = iota // this call is the first; run the request
	IdempotencyRunning                          // another one is at it
	IdempotencyDone                             // Answer holds what the first one answered
	IdempotencyMismatch                         // the key was used with another request
)

// Idempotency keeps the answers of POST requests other than publishing, by key. Answers hold
// secrets and are sealed at rest. Such a request and an event share the keys of their tenant: a
// key that one has used is a mismatch for the other.
type Idempotency interface {
	// BeginIdempotent claims the key for a request with this digest. scope is the tenant, or the
	// zero TenantRef for the operator. A claim older than 60 s whose request never ended (its
	// process died) is taken over.
	BeginIdempotent(ctx context.Context, scope TenantRef, key string, digest [32]byte, now time.Time) (IdempotencyState, []byte, error)
	// EndIdempotent stores the answer.
	EndIdempotent(ctx context.Context, scope TenantRef, key string, answer []byte) error
	// DropIdempotent forgets the claim, so that the request may be sent again (after 5xx).
	DropIdempotent(ctx context.Context, scope TenantRef, key string) error
}

// Page asks for a part of a list.
type Page struct {
	Limit     int // rows at most, 1 to 250
	Ascending bool
}

// Configuration keeps tenants and endpoints. Every change bumps the revision of the tenant's
// shard, by trigger, so that its owner reloads it.
type Configuration interface {
	// PutTenant calls edit with the tenant under key, or with NewTenant and exists false, and
	// stores what edit left there. The row is locked meanwhile; edit's error ends it unchanged.
	PutTenant(ctx context.Context, key string, now time.Time, edit func(t *Tenant, exists bool) error) (Tenant, bool, error)
	// EditTenant is PutTenant for a tenant that must exist (ErrNotFound).
	EditTenant(ctx context.Context, key string, now time.Time, edit func(t *Tenant) error) (Tenant, error)
	// DeleteTenant deletes the tenant and its endpoints and asks the owner to cancel what is
	// pending; the job tells how that goes on. The key is free at once. by is who asked for it.
	DeleteTenant(ctx context.Context, key, by string, now time.Time) (Job, error)
	Tenant(ctx context.Context, key string) (Tenant, error)
	// Tenants lists living tenants by creation, after the given tenant (0: from the start).
	Tenants(ctx context.Context, q TenantQuery, page Page) ([]Tenant, error)

	// PutEndpoint calls edit with the tenant's living endpoint named by ref (by uid if ref.UID is
	// set, else by id), or with a zero Endpoint that has only ID and Tenant, and exists false,
	// where there is none of that uid. A ref with neither makes a new one. Of a new one Siblings is
	// set too, so that edit can hold the tenant to a number. Otherwise as PutTenant.
	// ErrNotFound: no endpoint has the id; ids are the store's to give. ErrConflict: the uid is
	// taken.
	PutEndpoint(ctx context.Context, tenant TenantRef, ref EndpointRef, now time.Time, edit func(e *Endpoint, exists bool) error) (Endpoint, bool, error)
	// EditEndpoint is PutEndpoint for an endpoint that must exist (ErrNotFound). Commands that
	// edit returns are written to the outbox in the same transaction.
	EditEndpoint(ctx context.Context, tenant TenantRef, ref EndpointRef, now time.Time, edit func(e *Endpoint) ([]Command, error)) (Endpoint, error)
	// DeleteEndpoint deletes the endpoint and asks the owner to cancel what is pending. It
	// returns the number of pending deliveries, at most limit.
	DeleteEndpoint(ctx context.Context, tenant TenantRef, ref EndpointRef, now time.Time, limit int) (int, error)
	// Endpoint finds a living endpoint. A zero tenant finds any tenant's, by id only (operator).
	Endpoint(ctx context.Context, tenant TenantRef, ref EndpointRef) (Endpoint, error)
	Endpoints(ctx context.Context, q EndpointQuery, page Page) ([]Endpoint, error)

	// WriteSettings stores what publishers by SQL must know.
	WriteSettings(ctx context.Context, s Settings) error
	// AdmitKeys calls admit with the marks of the encryption keys the database was served with
	// before, and with what begins the sealed values of its living endpoints, each beginning once
	// (keyring.Keyring.Admit decides on them), and stores the mark that admit returns, if any.
	// Two servers that start at once take turns. An error of admit changes nothing.
	AdmitKeys(ctx context.Context, admit func(marks, stored [][]byte) (mark []byte, err error)) error
}

// Settings are the instance's values that waybill.publish reads in the database.
type Settings struct {
	MaxPayload           int
	Retention            time.Duration
	IdempotencyRetention time.Duration
	CreateUnknownTenants bool
}

// EndpointRef names an endpoint within a tenant.
type EndpointRef struct {
	ID  EndpointID
	UID string
}

// TenantQuery filters tenants.
type TenantQuery struct {
	Search string // substring of key or name, case-insensitive
	State  TenantState
	After  TenantID
}

// EndpointQuery filters endpoints. A zero tenant lists all tenants' (operator).
type EndpointQuery struct {
	Tenant    TenantRef
	State     EndpointState
	EventType string // endpoints that match it
	After     EndpointID
}

// Lease is what a node holds: shards with the epoch it took each at. It does not say until when;
// the holder judges that on its own monotonic clock.
type Lease struct {
	Node   NodeID
	Epochs map[Shard]int64
	// Revisions are the configuration revisions the node has loaded. Route compares them, so an
	// event published after an endpoint was made is never routed by what was known before.
	Revisions map[Shard]int64
}

// ShardConfig is the configuration of some shards, and the revisions it is of, from one snapshot.
type ShardConfig struct {
	Tenants   []Tenant
	Endpoints []Endpoint // not the deleted ones; a row that cannot be used has its Fault set
	Revisions map[Shard]int64
	// Unordered are endpoints whose rows are not in line with their Ordering and OnDead yet, see
	// Order.
	Unordered []EndpointRow
	// Schemes are all of the operator's signature schemes.
	Schemes []SignatureScheme
}

// EndpointRow is an endpoint with the shard that holds its deliveries.
type EndpointRow struct {
	Shard    Shard
	Endpoint EndpointID
}

// Beat is what a heartbeat learns.
type Beat struct {
	Now       time.Time // database time while the statement ran
	Dispatch  DispatchState
	Revisions map[Shard]int64
	Nodes     []NodeBeat
	Shards    []ShardState
}

// NoteOwners writes the beat of each shard's owner down beside it.
func (b *Beat) NoteOwners() {
	beats := make(map[NodeID]int64, len(b.Nodes))
	for _, n := range b.Nodes {
		beats[n.Node] = n.Beat
	}
	for i := range b.Shards {
		b.Shards[i].Beat = beats[b.Shards[i].Node]
	}
}

// NodeBeat is one node's heart.
type NodeBeat struct {
	Node      NodeID
	Beat      int64 // counts up; a taker watches it stand still on its own clock
	StartedAt time.Time
	Draining  bool
}

// ShardState is who has a shard.
type ShardState struct {
	Shard Shard
	Node  NodeID // zero: nobody
	Epoch int64
	// Released is false if the last owner did not give the shard up itself: it died, and the
	// next runs it carefully.
	Released bool
	// Beat is the owner's when this was read; 0: it has none.
	Beat int64
}

// HeldSlot is an attempt that was in flight at a hand-over: it occupies a slot, and its delivery
// is left alone, until its result appears or it can take no longer.
type HeldSlot struct {
	Delivery DeliveryID `json:"delivery"`
	Endpoint EndpointID `json:"endpoint"`
	Tenant   TenantID   `json:"tenant,omitzero"`
	Attempt  int        `json:"attempt"` // recorded before it
	// Began is when it began at the earliest: a late result of somebody else who tried the same
	// delivery before, under the same number, is not its own. Zero: not known.
	Began time.Time `json:"began,omitzero"`
	// Left is how long it may still take. Whoever takes the shard counts it from then on, on the clock
	// of its own process: between the two the database's clock may be set.
	Left     time.Duration `json:"left,omitzero"`
	Deadline time.Time     `json:"deadline"` // the same as database time, for where Left is not known
}

// Ownership says which node works on which shard.
type Ownership interface {
	// Join registers the node; Leave removes it (after Release).
	Join(ctx context.Context, node NodeID, now time.Time) error
	Leave(ctx context.Context, node NodeID) error
	// Beat writes the node's heartbeat and reads everyone's.
	Beat(ctx context.Context, node NodeID, draining bool) (Beat, error)
	// Take makes node the owner of those of the shards that still are in the given state, and
	// bumps their epochs. It returns the lease for what it got and the slots left in flight. The state
	// includes the owner's beat: a call that reaches the database late takes nothing from one that has
	// come back meanwhile.
	Take(ctx context.Context, node NodeID, shards []ShardState) (Lease, map[Shard][]HeldSlot, error)
	// Release gives shards up, writing what is in flight. Shards no longer held are passed over.
	Release(ctx context.Context, lease Lease, held map[Shard][]HeldSlot) error
	// LoadConfig reads the configuration of the shards. A row that cannot be used comes with its
	// Fault set instead of failing the call.
	LoadConfig(ctx context.Context, shards []Shard) (ShardConfig, error)
	// Revisions returns those of the shards' configuration, as a heartbeat does, without one.
	Revisions(ctx context.Context, shards []Shard) (map[Shard]int64, error)
	// Heads returns, for the shards, each endpoint and lane with pending deliveries that are not
	// parked and its smallest NextAt, in time that does not grow with the backlog.
	Heads(ctx context.Context, shards []Shard) ([]Head, error)
}

// Head is the front of an endpoint's pending deliveries in one lane.
type Head struct {
	Shard    Shard
	Endpoint EndpointID
	Tenant   TenantID
	Lane     Lane
	NextAt   time.Time
}

// Plan is what one outbox row of kind event became: its deliveries, in endpoint order.
type Plan struct {
	Row        OutboxRow
	Deliveries []Delivery
	// Last is false if more endpoints follow: the row stays, with After moved to the last
	// planned endpoint.
	Last bool
	// Matched says whether the event has any delivery at all, over all its chunks.
	Matched bool
}

// Routed is the answer to a Route call.
type Routed struct {
	// Gone are outbox positions that no longer existed: someone else routed them. Where there
	// are any, nothing was written.
	Gone []int64
	// Stale are shards whose configuration is newer than Lease.Revisions says. Where there are
	// any, nothing was written: load it and plan again.
	Stale []Shard
	// Parked are the planned deliveries whose turn in their ordering key has not come.
	Parked []DeliveryID
}

// Routing turns outbox rows into deliveries. Starting work needs the lease: every write begins
// by locking the shard rows with node and epoch, and returns ErrFenced if one does not match.
type Routing interface {
	// ReadOutbox returns thin rows (Source nil) of the shards, in order of position within each
	// shard: those with Pos greater than the shard's entry in after (parallel to shards), at most
	// perShard of each.
	ReadOutbox(ctx context.Context, shards []Shard, after []int64, perShard int) ([]OutboxRow, error)
	// ReadEvents fills in Source for rows of kind event and replay, leaving it nil where the
	// event is gone, and its payload for the first rows as long as these fit in maxPayload bytes
	// together (HasPayload).
	ReadEvents(ctx context.Context, rows []OutboxRow, maxPayload int64) error
	// OutboxTip returns the newest position given out so far, 0 at first.
	OutboxTip(ctx context.Context) (int64, error)
	// NextSequences reads the next number of each endpoint: 1 where it has none yet.
	NextSequences(ctx context.Context, endpoints map[EndpointID]Shard) (map[EndpointID]int64, error)
	// Route writes the plans in one transaction: deletes the outbox rows (or moves After),
	// inserts the deliveries, appends next as marks of the endpoints' numbers, appends to the
	// ledger what was really inserted and deleted. A delivery that exists already is passed over.
	// Of the strict ones (TurnAt set) only the next of a free key is stored as planned; the others
	// are parked. Those of an endpoint that is still being switched to strict are stored as if
	// they were not.
	Route(ctx context.Context, lease Lease, plans []Plan, next map[EndpointID]int64, now time.Time) (Routed, error)
	// Replay executes outbox rows of kind replay, in one transaction, deleting each row. A
	// delivery that is pending becomes due now; a dead letter or a delivered one is planned
	// again with Round+1, keeping its sequence and its attempt count, in LaneReplay; one whose
	// event or endpoint is gone is left as it is. One whose ordering key is taken is parked, or
	// stays so. It returns the deliveries that are now due.
	Replay(ctx context.Context, lease Lease, rows []OutboxRow, now time.Time) ([]Delivery, error)
	// HastenOldest executes one outbox row of CommandProbe, and deletes it: of the endpoint's
	// pending deliveries it returns the one that is next by (Lane, NextAt, ID), live before
	// replayed and never a parked one, due now; nil if there is none.
	HastenOldest(ctx context.Context, lease Lease, row OutboxRow, now time.Time) (*Delivery, error)
	// EndCommand deletes the outbox row of a command that the owner has carried out by itself.
	EndCommand(ctx context.Context, lease Lease, row OutboxRow) error
	// Cancel executes one outbox row of kind command for at most limit deliveries: they become
	// dead letters with reason cancelled. done is true, and the row deleted, once none are left.
	// Dead letters of the endpoint that hold their ordering keys let go of them.
	Cancel(ctx context.Context, lease Lease, row OutboxRow, limit int, now time.Time) (ended Ended, done bool, err error)
}

// FetchRequest asks for the next rows of one endpoint and lane.
type FetchRequest struct {
	Shard    Shard
	Endpoint EndpointID
	Lane     Lane
	// AfterNextAt and AfterID are the cursor: rows at or before it are passed over. Zero: from
	// the start.
	AfterNextAt time.Time
	AfterID     DeliveryID
	Limit       int
}

// Fetched answers one FetchRequest.
type Fetched struct {
	Rows []Due
	Cut  bool // rows within Limit were left out because of maxBytes
}

// Result is how one delivery fared: an attempt, or an end without one (Attempt nil).
type Result struct {
	Delivery Delivery // as it was fetched: Attempt is the number before this one
	Attempt  *Attempt
	// Exactly one of these three says what follows.
	Delivered bool
	RetryAt   time.Time
	Dead      DeadReason
	// DeadKind and DeadMessage describe an end without an attempt.
	DeadKind    Kind
	DeadMessage string
	At          time.Time // database time of the end
	// Suspect says that the delivery was written down as a suspect (Careful); the result takes
	// that back.
	Suspect bool
}

// Final reports whether the result ends the delivery's round.
func (r *Result) Final() bool { return r.Delivered || r.Dead != "" }

// Dispatching serves the sender.
type Dispatching interface {
	// FetchDue returns, request by request, the next pending rows by (NextAt, ID), due or not but
	// never parked, with the payloads of those due at now, as long as these fit in maxBytes
	// together (the first row of each request always comes). A due row whose payload did not fit,
	// and all after it of its request, are left out, and Cut is set.
	FetchDue(ctx context.Context, requests []FetchRequest, now time.Time, maxBytes int64) ([]Fetched, error)
	// Finish records results in one transaction. They are facts and are never refused: an
	// attempt is always kept; Delivered ends the delivery of the same round whatever its attempt
	// number or owner; RetryAt and Dead apply only while the stored attempt count is still
	// Delivery.Attempt. Running a batch again changes nothing. The ledger is written from the
	// rows really deleted. A strict delivery that ends gives its turn to the next of its key. No
	// lease is needed.
	Finish(ctx context.Context, results []Result) (Finished, error)
	// PendingAttempts returns, for those of the deliveries that are still pending, how many
	// attempts are recorded. ids is parallel to shards.
	PendingAttempts(ctx context.Context, shards []Shard, ids []DeliveryID) (map[DeliveryID]int, error)
	// Recorded returns those of the held attempts, by their deliveries, whose results are recorded:
	// that the delivery is gone says nothing, it may have been cancelled. slots is parallel to
	// shards.
	Recorded(ctx context.Context, shards []Shard, slots []HeldSlot) (map[DeliveryID]bool, error)
	// Expire ends, as DeadExpired, at most limit deliveries of the shards planned before the
	// given time, and returns them.
	Expire(ctx context.Context, lease Lease, before time.Time, limit int, now time.Time) (Ended, error)
}

// Upkeep keeps the database small and proves its books.
type Upkeep interface {
	// Maintain makes partitions ahead, retires old ones, prunes idempotency keys and marks, and
	// folds the ledger. Any node may call it; one at a time does the work.
	Maintain(ctx context.Context, m Maintenance) error
	// Verify proves the books from one snapshot.
	Verify(ctx context.Context, deep bool) (Report, error)
	// Ping reports whether the database answers.
	Ping(ctx context.Context) error
}

// Maintenance says what to keep.
type Maintenance struct {
	Now                  time.Time
	Retention            time.Duration
	IdempotencyRetention time.Duration
	// Days is how long events and attempts are kept, where that is to be shorter than Retention;
	// dead letters and what they need are kept for Retention all the same. Zero: Retention.
	Days time.Duration
	// Shards whose marks and ledger the calling node may fold: those it owns.
	Shards []Shard
}

// KeepDays returns how long events and attempts are kept.
func (m *Maintenance) KeepDays() time.Duration {
	if m.Days > 0 && m.Days < m.Retention {
		return m.Days
	}
	return m.Retention
}

// With returns the lease with shards added; the receiver is not changed.
func (l Lease) With(epochs map[Shard]int64) Lease {
	next := l.clone()
	maps.Copy(next.Epochs, epochs)
	for s := range epochs {
		delete(next.Revisions, s)
	}
	return next
}

// Without returns the lease without the shards.
func (l Lease) Without(gone map[Shard]bool) Lease {
	next := l.clone()
	for s := range gone {
		delete(next.Epochs, s)
		delete(next.Revisions, s)
	}
	return next
}

// Only returns the part of the lease that is about the shards.
func (l Lease) Only(shards []Shard) Lease {
	next := Lease{Node: l.Node, Epochs: map[Shard]int64{}, Revisions: map[Shard]int64{}}
	for _, s := range shards {
		if epoch, ok := l.Epochs[s]; ok {
			next.Epochs[s], next.Revisions[s] = epoch, l.Revisions[s]
		}
	}
	return next
}

func (l Lease) clone() Lease {
	return Lease{Node: l.Node, Epochs: maps.Clone(l.Epochs), Revisions: maps.Clone(l.Revisions)}
}
