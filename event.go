package waybill

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// Event is something that happened, for one tenant to hear of.
type Event struct {
	// Tenant is the caller's own key for the customer: 1 to 64 of A-Z a-z 0-9 _ . : -
	Tenant string
	// Type names what happened, in words of letters, digits, _ and - joined by dots, at most 128
	// bytes: "payment.succeeded".
	Type string
	// Payload is any JSON value in UTF-8, at most 256 KiB unless the instance says otherwise.
	// Exactly these bytes are signed and delivered.
	Payload []byte
	// ID is the event's id, "evt_…", chosen by the caller; its time must lie between a day ago
	// and five minutes ahead. Publishing the same event again under the same id changes nothing.
	// "" lets Waybill choose.
	ID string
	// OrderingKey groups events that an endpoint with strict order receives one after the other.
	// At most 255 bytes; "" for none.
	OrderingKey string
	// IdempotencyKey makes publishing again, in another transaction, return the first event's id
	// instead of making a second one: per tenant, for a day unless the instance says otherwise.
	// At most 255 bytes; "" for none.
	IdempotencyKey string
	// Metadata is kept with the event for people to search by, and is not delivered. At most 50
	// entries.
	Metadata map[string]string
}

// check refuses what no database is needed to refuse. It runs before anything is sent, because
// in PostgreSQL an error raised by the server would take the caller's transaction with it.
func (e *Event) check() error {
	if !outbox.ValidTenantKey(e.Tenant) {
		return fmt.Errorf("%w: tenant: want 1 to 64 of letters, digits and _ . : -, not %q", ErrBadEvent, shorten(e.Tenant))
	}
	if e.Tenant == outbox.OperatorTenant {
		return fmt.Errorf("%w: tenant: %q is reserved for operational events", ErrBadEvent, outbox.OperatorTenant)
	}
	if !outbox.ValidEventType(e.Type) {
		return fmt.Errorf("%w: type: want words of letters, digits, _ and - joined by dots, at most %d bytes, not %q",
			ErrBadEvent, outbox.MaxEventType, shorten(e.Type))
	}
	if e.ID != "" {
		if _, err := outbox.ParseEventID(e.ID); err != nil {
			return fmt.Errorf("%w: id: %w", ErrBadEvent, err)
		}
	}
	if len(e.OrderingKey) > outbox.MaxOrderingKey || !storable(e.OrderingKey) {
		return fmt.Errorf("%w: ordering key: want at most %d bytes of UTF-8 text", ErrBadEvent, outbox.MaxOrderingKey)
	}
	if len(e.IdempotencyKey) > outbox.MaxIdempotencyKey || !storable(e.IdempotencyKey) {
		return fmt.Errorf("%w: idempotency key: want at most %d bytes of UTF-8 text", ErrBadEvent, outbox.MaxIdempotencyKey)
	}
	if len(e.Metadata) > outbox.MaxMetadataEntries {
		return fmt.Errorf("%w: metadata: %d entries, at most %d", ErrBadEvent, len(e.Metadata), outbox.MaxMetadataEntries)
	}
	for key, value := range e.Metadata {
		if !storable(key) || !storable(value) {
			return fmt.Errorf("%w: metadata: want UTF-8 text", ErrBadEvent)
		}
	}
	if len(e.Payload) > outbox.HardMaxPayload {
		return fmt.Errorf("%w: %d bytes, at most %d", ErrPayloadTooLarge, len(e.Payload), outbox.HardMaxPayload)
	}
	// encoding/json takes invalid UTF-8 inside a string for granted; receivers would not.
	if !utf8.Valid(e.Payload) || !json.Valid(e.Payload) {
		return fmt.Errorf("%w: %s", ErrInvalidPayload, whyInvalid(e.Payload))
	}
	return nil
}

// storable reports whether both databases can hold s as text: PostgreSQL refuses NUL.
func storable(s string) bool { return utf8.ValidString(s) && !strings.ContainsRune(s, 0) }

// whyInvalid says where a payload stops being JSON, without quoting it: payloads are the
// customer's data and errors end up in logs.
func whyInvalid(payload []byte) string {
	if len(payload) == 0 {
		return "it is empty"
	}
	if !utf8.Valid(payload) {
		return "it is not UTF-8"
	}
	var skipped json.RawMessage
	err := json.Unmarshal(payload, &skipped)
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		return fmt.Sprintf("at byte %d", syntax.Offset)
	}
	return "it cannot be read"
}

func shorten(s string) string {
	const most = 80
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
