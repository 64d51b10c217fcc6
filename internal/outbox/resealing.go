package outbox

import "context"

// ResealPart is one of the places where sealed values lie.
type ResealPart int

const (
	ResealEndpoints ResealPart = iota
	ResealSources
	ResealAnswers // of idempotent requests
	ResealDone
)

// ResealAt is how far sealing again has come; zero: nowhere. The fields besides Part are the key of
// the last row that was looked at.
type ResealAt struct {
	Part   ResealPart
	ID     [16]byte
	Shard  Shard
	Tenant TenantID
	Key    string
}

// Resealed is what one step did.
type Resealed struct {
	Values int // sealed again
	Broken int // open with none of the keys, and were left as they are
	Next   ResealAt
}

// Resealing brings everything sealed under the current encryption key, so that earlier ones can be
// dropped. It goes on beside servers that have both.
type Resealing interface {
	// Reseal looks at the next rows, at most limit, in one transaction, and seals again what an
	// earlier key sealed. A step may be done twice, and the whole begun anew at any time.
	Reseal(ctx context.Context, at ResealAt, limit int) (Resealed, error)
}
