package outbox

// Why a delivery ended without an attempt, as people read it. They are kept with the row, and
// must not depend on the database it lies in.
const (
	ReasonEndpointDeleted = "The endpoint was deleted."
	ReasonTenantDeleted   = "The tenant was deleted."
	ReasonReplayStopped   = "The replay that planned it was stopped before it was sent."
	ReasonExpired         = "It waited longer than deliveries are kept waiting."
)
