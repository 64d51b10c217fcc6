package outbox

import (
	"crypto/sha256"
	"time"
)

// Event is something that happened, as its publisher wrote it. It never changes.
type Event struct {
	ID          EventID
	Tenant      TenantRef
	Type        string
	OrderingKey string            // "" for none
	Metadata    map[string]string // may be nil
	Payload     []byte            // the publisher's bytes; never parsed and printed again
	SHA256      [32]byte          // of Payload
	CreatedAt   time.Time
}

// NewEvent is an event on its way in.
type NewEvent struct {
	Event
	// IdempotencyKey makes a repeated publish meet the first; "" for none. It is bound to Digest.
	IdempotencyKey string
	// Chosen says that the publisher picked the id, so it may exist already.
	Chosen bool
	// Inbound is set on an event that arrived at a source, which is stored once for each key.
	Inbound *Inbound
}

// Keyed reports whether storing the event can meet an earlier one. Such events are committed
// apart from the others: one uncommitted key must not hold up strangers.
func (e *NewEvent) Keyed() bool { return e.Chosen || e.IdempotencyKey != "" || e.Inbound != nil }

// Digest identifies what an idempotency key is bound to: type and payload.
func (e *NewEvent) Digest() [32]byte {
	h := sha256.New()
	h.Write([]byte(e.Type))
	h.Write([]byte{0})
	h.Write(e.SHA256[:])
	return [32]byte(h.Sum(nil))
}

// Accepted is the answer for one event of a stored batch.
type Accepted struct {
	ID        EventID   // the first event's id where Duplicate
	CreatedAt time.Time // likewise
	Duplicate bool
	// Again says that it is one because its idempotency key had been used for it before, so the
	// publisher is due the answer it was given then.
	Again bool
	// OtherBody says, of a duplicate from a source, that the first one's body was another.
	OtherBody bool
	// Pos is the outbox position, for handing the event to the router of the same process
	// without reading it back. 0 where it is not known (a duplicate, a batch run again).
	Pos int64
}

// Conflict says why one member of a batch cannot be stored.
type Conflict struct {
	Index int   // in the batch
	Err   error // ErrIDConflict or ErrIdempotencyMismatch
}

// TestMark is the key of the metadata of test events. Its value is the endpoint, the only one that
// such an event is for.
const TestMark = "waybill.test"

// Bounds of an event and of one request.
const (
	MaxIdempotencyKey  = 255
	MaxOrderingKey     = 255
	MaxBatchEvents     = 1000
	MaxBatchBytes      = 8 << 20
	MaxPayloadDepth    = 1000 // levels; HTTP only
	HardMaxPayload     = 1 << 20
	ChosenIDPast       = 24 * time.Hour
	ChosenIDFuture     = 5 * time.Minute
	MaxMetadataEntries = 50
)

// OutboxKind says what an outbox row asks of the shard's owner.
type OutboxKind int16

const (
	OutboxEvent   OutboxKind = 0 // route this event
	OutboxReplay  OutboxKind = 1 // plan this delivery again, or now
	OutboxCommand OutboxKind = 2 // Command, in the row's args
)

// OutboxRow is a row of the one way into a shard's owner.
type OutboxRow struct {
	Shard    Shard
	Pos      int64 // order of acceptance
	Kind     OutboxKind
	Tenant   TenantID
	Event    EventID    // of an event or replay
	Endpoint EndpointID // of a replay or command; of a test event the only one it is for
	// After is the last endpoint already planned, for an event with more matches than one
	// transaction plans; zero at first.
	After EndpointID
	// Source is the event itself, once ReadEvents or the publisher in this process supplied it,
	// with its payload only where HasPayload. Nil if the event's row is gone.
	Source     *Event
	HasPayload bool
	Command    Command // of a command
}

// Command is what an API node asks of a shard's owner.
type Command struct {
	Name CommandName `json:"name"`
	// Reason is kept with every row the command ends, for people.
	Reason string `json:"reason,omitempty"`
	// Before limits the command to deliveries planned at or before it; zero: all.
	Before time.Time `json:"before,omitzero"`
	// Event is the one that CommandForget is about.
	Event EventID `json:"event,omitzero"`
	// Job is the job that the command is about, or that tells how it goes on.
	Job JobID `json:"job,omitzero"`
}

// CommandName names a command.
type CommandName string

const (
	// CommandCancelEndpoint ends every pending delivery of the endpoint as cancelled.
	CommandCancelEndpoint CommandName = "cancel_endpoint"
	// CommandCancelTenant does so for the whole tenant.
	CommandCancelTenant CommandName = "cancel_tenant"
	// CommandProbe makes the endpoint's oldest pending delivery due now, and lets its breaker send
	// it as a probe.
	CommandProbe CommandName = "probe"
	// CommandForget tells the owner that the bytes of Event were erased, so that what is
	// in memory is not sent.
	CommandForget CommandName = "forget"
	// CommandRunJob begins a job, CommandCancelJob stops it.
	CommandRunJob    CommandName = "run_job"
	CommandCancelJob CommandName = "cancel_job"
)
