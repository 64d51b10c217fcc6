package outbox

import (
	"context"
	"time"
)

type auditKind struct{}

func (auditKind) prefix() string { return "aud_" }

// AuditID names an entry of the record of changes.
type AuditID = ID[auditKind]

// NewAuditID mints an entry's id for the given database time. The twelve bits behind its
// millisecond hold the part of one (RFC 9562, section 6.2, method 3): what one program does in
// quick succession is listed in that order.
func NewAuditID(at time.Time) AuditID {
	id := NewID[auditKind](at)
	part := at.Nanosecond() % int(time.Millisecond) * 4096 / int(time.Millisecond)
	id[6], id[7] = id[6]&0xf0|byte(part>>8), byte(part)
	return id
}

// AuditFloor is the smallest entry id of the given time's millisecond.
func AuditFloor(at time.Time) AuditID { return FloorID[auditKind](at) }

// AuditAge is how long the record is kept, or for as long as everything else where that is longer:
// whoever looks back on a year finds all of it.
const AuditAge = 400 * 24 * time.Hour

// ActorKind is what sort of somebody made a change.
type ActorKind string

const (
	ActorKey      ActorKind = "key"      // a program with a key of the API
	ActorPortal   ActorKind = "portal"   // a customer in the portal
	ActorOperator ActorKind = "operator" // an operator on the dashboard
	ActorCLI      ActorKind = "cli"      // a command that opens the database itself
	ActorSystem   ActorKind = "system"   // Waybill
)

// Actor is who made a change.
type Actor struct {
	Kind ActorKind
	Name string // for people
	ID   string // the beginning of the key, or the session; "" where there is none
}

// AuditEntry is one change that somebody made. It never holds a secret.
type AuditEntry struct {
	ID AuditID // its time is the change's
	// Tenant is whose thing was changed; zero with an empty TenantKey where it is the instance's.
	// A zero Tenant with a key is looked up when the entry is written: it may have been made by
	// the change itself.
	Tenant    TenantRef
	TenantKey string
	Actor     Actor
	Action    string // "endpoint.create"
	Object    string // the id, or the name, of what was changed
	Changes   Changes
	RequestID string
	Address   string // where the request came from
}

// Changes are the fields that differ, by their names in the API.
type Changes map[string]Change

// Change is a field before and after. Both are nil where it holds a secret: that it differs is all
// there is to know.
type Change struct {
	From any `json:"from"`
	To   any `json:"to"`
}

// Author is somebody about to make a change, which is then put on record in the transaction that
// makes it. It is for one change, and used by one goroutine at a time.
type Author struct {
	Entry AuditEntry
	noted bool
}

// Due reports whether the entry is still to be written. A store asks before each transaction.
func (a *Author) Due() bool { return a != nil && !a.noted }

// Noted tells the author that the entry is durable.
func (a *Author) Noted() { a.noted = true }

// AuditQuery filters the record. A zero tenant asks for everybody's.
type AuditQuery struct {
	Tenant   TenantRef
	Action   string
	Actor    string // an actor's ID
	Object   string
	From, To time.Time // [from, to); zero: open
	After    AuditID
}

// Audit keeps the record of changes.
type Audit interface {
	// By returns the store for one author: the first transaction through it that is committed
	// writes the author's entry too, so that there is no change without its entry, and none of what
	// failed or was refused. What the store has open is shared.
	By(author *Author) Store
	// Note writes the entry of this store's author by itself, for what is done outside the store.
	Note(ctx context.Context) error
	// AuditEntries lists the record by id, which is by time.
	AuditEntries(ctx context.Context, q AuditQuery, page Page) ([]AuditEntry, error)
}
