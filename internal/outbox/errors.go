package outbox

import (
	"errors"
	"fmt"
)

// What a caller can do about a failed call, whatever the database.
var (
	// ErrNotFound: no such row, or another tenant's; the two are never told apart.
	ErrNotFound = errors.New("not found")
	// ErrAmbiguous: several rows have the id, of different tenants.
	ErrAmbiguous = errors.New("several have this id")
	// ErrConflict: a unique name (uid, tenant key) is taken.
	ErrConflict = errors.New("name is taken")
	// ErrIDConflict: the event id exists with other bytes.
	ErrIDConflict = errors.New("event id exists with other content")
	// ErrIdempotencyMismatch: the idempotency key was used for something else.
	ErrIdempotencyMismatch = errors.New("idempotency key was used with other content")
	// ErrEndpointGone: the endpoint of a delivery to be replayed is deleted.
	ErrEndpointGone = errors.New("the endpoint is deleted")
	// ErrPayloadGone: the event's bytes are no longer kept.
	ErrPayloadGone = errors.New("the payload is no longer kept")
	// ErrFenced: the node no longer owns a shard it wants to start work on. Nothing was written.
	ErrFenced = errors.New("shard is owned by another node")
)

// Fault says what a failed write means for the caller's next step.
type Fault int

const (
	// FaultBroken: a defect or an unusable database; retrying the same call will not help.
	FaultBroken Fault = iota
	// FaultRefused: the database refused the content (SQLSTATE 21-23). Split and retry to find
	// the guilty member. Nothing was written.
	FaultRefused
	// FaultRetry: nothing was written; the same call may succeed later (serialization failure,
	// deadlock, server shutting down, no connection).
	FaultRetry
	// FaultLocked: nothing was written; another transaction holds a key for longer than a batch
	// may wait.
	FaultLocked
	// FaultUnknown: the connection broke while the commit was in flight. Run the same call again
	// until a definite answer: every write here is idempotent for that.
	FaultUnknown
)

func (f Fault) String() string {
	return [...]string{"broken", "refused", "retry", "locked", "unknown"}[f]
}

// WriteError is a failed write with what it means.
type WriteError struct {
	Fault Fault
	Err   error // the database's own; for logs, never for a customer
}

func (e *WriteError) Error() string { return fmt.Sprintf("store write (%s): %v", e.Fault, e.Err) }
func (e *WriteError) Unwrap() error { return e.Err }

// FaultOf classifies an error of a store's write method; FaultBroken if it says nothing.
func FaultOf(err error) Fault {
	if we, ok := errors.AsType[*WriteError](err); ok {
		return we.Fault
	}
	return FaultBroken
}
