package outbox

import "context"

// Testing accepts test events.
type Testing interface {
	// InsertTest stores an event, with TestMark in its metadata, that is for one endpoint alone, in
	// whatever state that is. It is planned in LaneTest.
	InsertTest(ctx context.Context, e Event, endpoint EndpointID) error
}
