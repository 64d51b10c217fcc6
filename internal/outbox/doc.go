// Package outbox is the domain of Waybill: tenants, endpoints, events, deliveries and
// attempts, the states they pass through, and the contract a store must keep so that an
// accepted event is never lost.
//
// The way of an event:
//
//	publisher ─► event (bytes, immutable) + outbox row      one transaction, the caller's or ours
//	owner     ─► delivery rows, one per matching endpoint   the outbox row goes in the same transaction
//	owner     ─► attempt rows; the delivery row goes when it ends, a dead letter stays if it failed
//
// Who may write what is the first rule of the system. Publishers write event, outbox and
// idempotency rows only. API nodes write configuration, and outbox rows that ask the owner for
// something (replay, command). Everything else is written by the node that owns the shard.
//
// The package knows no database and no network. The stores are internal/postgres and
// internal/sqlite; internal/outbox/outboxtest is the suite both pass, and a behaviour that is
// not in that suite is not a promise.
package outbox
