package outbox

import (
	"context"
	"crypto/sha256"
)

// Erasing takes the bytes of an event away and leaves the books as they are.
//
// An erased event keeps its row, with an empty payload under the digest of what it was, and how
// many bytes that had. So a publish that is repeated is still known for one, the books still say how
// much was sent, and an event that always was empty is told apart by the digest of nothing.
type Erasing interface {
	// ErasePayload erases an event's bytes, wherever they are kept, and tells the owner of its
	// shard (CommandForget). What receivers answered is
	// theirs and stays. Erasing again changes nothing. ErrNotFound: the tenant has no such event.
	ErasePayload(ctx context.Context, tenant TenantRef, id EventID) error
}

var nothing = sha256.Sum256(nil)

// Erased reports whether a payload as it is stored is what is left of an erased one.
func Erased(payloadBytes int, sum [32]byte) bool { return payloadBytes == 0 && sum != nothing }
