package outbox

import (
	"context"
	"time"
)

// EventType is an entry of the catalogue: what an operator says about a type of events.
type EventType struct {
	Name        string
	Description string
	Schema      []byte // JSON Schema the payloads follow; nil: none
	Example     []byte // a payload; nil: none
	OnInvalid   OnInvalid
	Archived    bool // no longer published; kept for its history
	CreatedAt   time.Time
	UpdatedAt   time.Time
}

// OnInvalid says what becomes of an event whose payload does not follow its type's schema.
type OnInvalid string

const (
	OnInvalidWarn   OnInvalid = "warn"   // it is accepted, and the answer says so
	OnInvalidRefuse OnInvalid = "refuse" // it is not accepted
)

// Catalogue keeps the event types.
type Catalogue interface {
	// PutEventType calls edit with the type under its name, or with a zero one and exists false,
	// and stores what edit left there, with nobody else in between.
	PutEventType(ctx context.Context, name string, now time.Time, edit func(t *EventType, exists bool) error) (EventType, bool, error)
	// EventType finds one (ErrNotFound).
	EventType(ctx context.Context, name string) (EventType, error)
	// EventTypes lists them by name, after the given one ("": from the start).
	EventTypes(ctx context.Context, after string, page Page) ([]EventType, error)
	// DeleteEventType forgets one (ErrNotFound).
	DeleteEventType(ctx context.Context, name string) error
	// CatalogueRevision changes whenever the catalogue does, so that compiled schemas can be kept.
	CatalogueRevision(ctx context.Context) (int64, error)
}
