package outbox

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"time"
)

// ErrBadID is wrapped by every error about an identifier that cannot be read.
var ErrBadID = errors.New("not a valid id")

// ID is a 16-byte identifier that sorts by time: the first 48 bits are Unix milliseconds.
// Outside the process it is written as a prefix that names its kind and 26 characters of
// lower-case Crockford base32 (the digits, then the letters without i, l, o and u), most
// significant bits first; the first character therefore is 0 to 7.
//
// The type parameter keeps an endpoint's id from being passed where an event's is meant.
type ID[K idKind] [16]byte

type idKind interface{ prefix() string }

type (
	eventKind    struct{}
	endpointKind struct{}
	deliveryKind struct{}
	attemptKind  struct{}
	nodeKind     struct{}
	sourceKind   struct{}
	inboundKind  struct{}
)

func (eventKind) prefix() string    { return "evt_" }
func (endpointKind) prefix() string { return "ep_" }
func (deliveryKind) prefix() string { return "dlv_" }
func (attemptKind) prefix() string  { return "att_" }
func (nodeKind) prefix() string     { return "node_" }
func (sourceKind) prefix() string   { return "src_" }
func (inboundKind) prefix() string  { return "in_" }

type (
	// EventID names an event; it is the webhook-id of every attempt to deliver it.
	EventID = ID[eventKind]
	// EndpointID names a customer's endpoint.
	EndpointID = ID[endpointKind]
	// DeliveryID names the delivery of one event to one endpoint. See NewDeliveryID.
	DeliveryID = ID[deliveryKind]
	// AttemptID names one try of a delivery.
	AttemptID = ID[attemptKind]
	// NodeID names one run of one process.
	NodeID = ID[nodeKind]
	// SourceID names an inbound source.
	SourceID = ID[sourceKind]
	// InboundID names a request that arrived at a source.
	InboundID = ID[inboundKind]
)

// NewID mints a UUIDv7 (RFC 9562, section 5.7) for the given time.
func NewID[K idKind](at time.Time) ID[K] {
	var id ID[K]
	rand.Read(id[6:]) // crypto/rand.Read never fails; it ends the process instead
	putMillis((*[16]byte)(&id), at)
	id[6] = id[6]&0x0f | 0x70
	id[8] = id[8]&0x3f | 0x80
	return id
}

// NewEventID mints an event id for the given database time.
func NewEventID(at time.Time) EventID { return NewID[eventKind](at) }

// NewEndpointID mints an endpoint id for the given database time.
func NewEndpointID(at time.Time) EndpointID { return NewID[endpointKind](at) }

// NewAttemptID mints an attempt id for the given database time.
func NewAttemptID(at time.Time) AttemptID { return NewID[attemptKind](at) }

// NewNodeID mints the id of a process that starts at the given time.
func NewNodeID(at time.Time) NodeID { return NewID[nodeKind](at) }

// NewDeliveryID derives the id of the delivery of event to endpoint: the event's 48 time bits,
// then 80 bits of SHA-256 over both ids. Being derived, a repeated routing of the same event
// meets its own rows; keeping the event's time, the deliveries of an event are found in the
// range of its millisecond.
func NewDeliveryID(event EventID, endpoint EndpointID) DeliveryID {
	var both [32]byte
	copy(both[:16], event[:])
	copy(both[16:], endpoint[:])
	sum := sha256.Sum256(both[:])
	var id DeliveryID
	copy(id[:6], event[:6])
	copy(id[6:], sum[:10])
	return id
}

// NewSourceID mints a source id for the given database time.
func NewSourceID(at time.Time) SourceID { return NewID[sourceKind](at) }

// NewInboundID mints the id of a request that arrived at the given database time.
func NewInboundID(at time.Time) InboundID { return NewID[inboundKind](at) }

// InboundFloor is the smallest request id of the given time's millisecond.
func InboundFloor(at time.Time) InboundID { return FloorID[inboundKind](at) }

// LastInboundID is behind every request's id.
var LastInboundID = CeilID[inboundKind](time.UnixMilli(1<<48 - 1))

// ParseEventID reads evt_….
func ParseEventID(s string) (EventID, error) { return ParseID[eventKind](s) }

// ParseEndpointID reads ep_….
func ParseEndpointID(s string) (EndpointID, error) { return ParseID[endpointKind](s) }

// ParseDeliveryID reads dlv_….
func ParseDeliveryID(s string) (DeliveryID, error) { return ParseID[deliveryKind](s) }

// ParseAttemptID reads att_….
func ParseAttemptID(s string) (AttemptID, error) { return ParseID[attemptKind](s) }

// ParseInboundID reads in_….
func ParseInboundID(s string) (InboundID, error) { return ParseID[inboundKind](s) }

// ParseSourceID reads src_….
func ParseSourceID(s string) (SourceID, error) { return ParseID[sourceKind](s) }

// EventFloor is the smallest event id of the given time's millisecond.
func EventFloor(at time.Time) EventID { return FloorID[eventKind](at) }

// DeliveryFloor is the smallest delivery id of the given time's millisecond.
func DeliveryFloor(at time.Time) DeliveryID { return FloorID[deliveryKind](at) }

// DeliveryCeil is the largest delivery id of the given time's millisecond.
func DeliveryCeil(at time.Time) DeliveryID { return CeilID[deliveryKind](at) }

// AttemptFloor is the smallest attempt id of the given time's millisecond.
func AttemptFloor(at time.Time) AttemptID { return FloorID[attemptKind](at) }

// Time returns the millisecond encoded in the id.
func (id ID[K]) Time() time.Time {
	var b [8]byte
	copy(b[2:], id[:6])
	return time.UnixMilli(int64(binary.BigEndian.Uint64(b[:]))).UTC()
}

// Before returns the id that sorts right before this one; the zero id has none and stays.
func (id ID[K]) Before() ID[K] {
	if id.IsZero() {
		return id
	}
	for i := len(id) - 1; ; i-- {
		id[i]--
		if id[i] != 0xff {
			return id
		}
	}
}

// IsZero reports whether the id is unset.
func (id ID[K]) IsZero() bool { return id == ID[K]{} }

// Day returns the UTC day of the id's time, the partition its row lives in.
func (id ID[K]) Day() time.Time { return id.Time().Truncate(24 * time.Hour) }

// FloorID returns the smallest id of the given time's millisecond, the lower bound of a time range.
func FloorID[K idKind](at time.Time) ID[K] {
	var id ID[K]
	putMillis((*[16]byte)(&id), at)
	return id
}

// CeilID returns the largest id of the given time's millisecond.
func CeilID[K idKind](at time.Time) ID[K] {
	id := FloorID[K](at)
	for i := 6; i < len(id); i++ {
		id[i] = 0xff
	}
	return id
}

func putMillis(id *[16]byte, at time.Time) {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], uint64(max(at.UnixMilli(), 0)))
	copy(id[:6], b[2:])
}

const crockford = "0123456789abcdefghjkmnpqrstvwxyz"

// String writes the typed form, for example evt_01m8mnc692fxgt1qs89yv86m2t.
func (id ID[K]) String() string {
	var k K
	return k.prefix() + encodeBase32(id)
}

// MarshalText writes the typed form.
func (id ID[K]) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText reads the typed form.
func (id *ID[K]) UnmarshalText(text []byte) error {
	parsed, err := ParseID[K](string(text))
	if err != nil {
		return err
	}
	*id = parsed
	return nil
}

// ParseID reads the typed form. It is strict: the prefix must be the kind's own, the letters
// lower-case, and the first character at most 7, so that one id has exactly one spelling.
func ParseID[K idKind](s string) (ID[K], error) {
	var k K
	var id ID[K]
	rest, ok := cutPrefix(s, k.prefix())
	if !ok || len(rest) != 26 || rest[0] > '7' {
		return id, fmt.Errorf("%w: want %s and 26 characters of base32", ErrBadID, k.prefix())
	}
	var hi, lo uint64
	for i := range len(rest) {
		v := crockfordValue(rest[i])
		if v < 0 {
			return ID[K]{}, fmt.Errorf("%w: %q does not belong in it", ErrBadID, rest[i])
		}
		hi = hi<<5 | lo>>59
		lo = lo<<5 | uint64(v)
	}
	binary.BigEndian.PutUint64(id[:8], hi)
	binary.BigEndian.PutUint64(id[8:], lo)
	return id, nil
}

func cutPrefix(s, prefix string) (string, bool) {
	if len(s) < len(prefix) || s[:len(prefix)] != prefix {
		return "", false
	}
	return s[len(prefix):], true
}

func encodeBase32(id [16]byte) string {
	hi, lo := binary.BigEndian.Uint64(id[:8]), binary.BigEndian.Uint64(id[8:])
	var out [26]byte
	for i := len(out) - 1; i >= 0; i-- {
		out[i] = crockford[lo&31]
		lo = lo>>5 | hi<<59
		hi >>= 5
	}
	return string(out[:])
}

func crockfordValue(c byte) int {
	switch {
	case '0' <= c && c <= '9':
		return int(c - '0')
	case 'a' <= c && c <= 'h':
		return int(c-'a') + 10
	case c == 'j' || c == 'k':
		return int(c-'j') + 18
	case c == 'm' || c == 'n':
		return int(c-'m') + 20
	case 'p' <= c && c <= 't':
		return int(c-'p') + 22
	case 'v' <= c && c <= 'z':
		return int(c-'v') + 27
	}
	return -1
}
