package waybill

import (
	"errors"
	"fmt"
)

// Why an event was refused. Errors of Publish and PublishAll wrap at most one of these; any
// other error is the database's own. In PostgreSQL each has a SQLSTATE, for other languages.
var (
	// ErrUnknownTenant: no such tenant, and the instance does not make tenants by itself. WB001.
	ErrUnknownTenant = errors.New("waybill: unknown tenant")
	// ErrInvalidPayload: the payload is not a JSON value in UTF-8. WB002.
	ErrInvalidPayload = errors.New("waybill: payload is not valid JSON")
	// ErrPayloadTooLarge: the payload is larger than the instance accepts. WB003.
	ErrPayloadTooLarge = errors.New("waybill: payload is too large")
	// ErrIdempotencyConflict: the idempotency key, or the chosen id, stands for another event. WB004.
	ErrIdempotencyConflict = errors.New("waybill: key or id was used for another event")
	// ErrBadEvent: tenant, type, id, a key or the metadata is not of the documented form. WB005.
	ErrBadEvent = errors.New("waybill: bad event")
)

var sentinels = map[string]error{
	"WB001": ErrUnknownTenant,
	"WB002": ErrInvalidPayload,
	"WB003": ErrPayloadTooLarge,
	"WB004": ErrIdempotencyConflict,
	"WB005": ErrBadEvent,
}

// refused gives an error of the database its meaning, keeping the original in the chain.
func refused(err error) error {
	if sentinel, ok := sentinels[sqlState(err)]; ok {
		return fmt.Errorf("%w: %w", sentinel, err)
	}
	return fmt.Errorf("waybill: publish: %w", err)
}

// sqlState finds the SQLSTATE in an error of any driver: by the method pgx and newer versions of
// lib/pq share, or by the field accessor that older ones have. It is "" for errors that did not
// come from a PostgreSQL server.
func sqlState(err error) string {
	if e, ok := errors.AsType[interface {
		error
		SQLState() string
	}](err); ok {
		return e.SQLState()
	}
	if e, ok := errors.AsType[interface {
		error
		Get(field byte) string
	}](err); ok {
		return e.Get('C')
	}
	return ""
}
