package outbox

import (
	"regexp"
	"strings"
	"time"
)

// Endpoint is where a tenant wants its events: an address, what it wants to hear of, and how.
type Endpoint struct {
	ID          EndpointID
	Tenant      TenantRef
	UID         string // the caller's own name, unique among the tenant's living endpoints; may be empty
	URL         string // as it is dialled: ASCII host, no userinfo, no fragment
	Description string
	Metadata    map[string]string
	EventTypes  []string // "exact", "prefix.*" or "*"
	Filter      string   // JSON as internal/filter reads it; "": none
	Headers     map[string]string
	Credentials Credentials
	Secrets     []Secret   // newest first; every live one of a scheme that is in use signs
	Schemes     []string   // how deliveries are signed, by name; nil is SchemeStandard alone
	MaxInFlight int        // 0: the tenant's
	RateLimit   *RateLimit // nil: none
	Timeout     time.Duration
	Ordering    Ordering      // "" is OrderingNone
	OnDead      OnDead        // "" is OnDeadSkip
	PayloadMode PayloadMode   // "" is PayloadFull
	ThinTTL     time.Duration // how long a thin delivery's URL answers; 0 is DefaultThinTTL
	State       EndpointState
	StateReason *StateReason
	Retry       RetryPolicy // overrides; zero fields take the tenant's, then the instance's
	CreatedAt   time.Time
	UpdatedAt   time.Time
	// ResumedAt is when the state last became active again (set by the database).
	ResumedAt time.Time
	// DiscardedAt: deliveries planned at or before it are cancelled instead of sent; zero: none.
	// It takes effect with the configuration, so a discarded backlog cannot slip out before the
	// command that clears its rows has run.
	DiscardedAt time.Time
	// DeletedAt is zero for a living endpoint. A deleted one keeps its row, without secrets and
	// headers, so that its history can still be read.
	DeletedAt time.Time
	// Fault says what is wrong with the stored row if it cannot be used (an edited column, a
	// secret that does not open; see Judge). Its deliveries fail with kind config; nobody else is
	// touched.
	Fault string
	// Siblings is set for the edit of a new endpoint alone (PutEndpoint): how many living ones the
	// tenant has. Nobody makes another before the edit is stored or given up.
	Siblings int
}

// Bounds of an endpoint.
const (
	DefaultTimeout = 10 * time.Second
	MinTimeout     = 1 * time.Second
	MaxTimeout     = 30 * time.Second
	MaxURL         = 2048
	DefaultThinTTL = 7 * 24 * time.Hour
	MinThinTTL     = time.Minute
	MaxThinTTL     = 30 * 24 * time.Hour
)

// PayloadMode says what a delivery carries.
type PayloadMode string

const (
	PayloadFull PayloadMode = "full" // the payload's bytes
	PayloadThin PayloadMode = "thin" // an address where they can be fetched
)

// Credentials are what an endpoint's server wants to see before it answers. They are sealed at
// rest and must not be printed.
type Credentials struct {
	Headers     map[string]string `json:"headers,omitempty"`
	Certificate string            `json:"certificate,omitempty"` // PEM, the chain, leaf first
	Key         string            `json:"key,omitempty"`         // PEM
}

// Empty reports whether there are none.
func (c Credentials) Empty() bool { return len(c.Headers) == 0 && c.Certificate == "" && c.Key == "" }

// String hides them.
func (Credentials) String() string { return "[credentials]" }

// GoString hides them.
func (Credentials) GoString() string { return "[credentials]" }

// EndpointState says what happens to events that match an endpoint.
type EndpointState string

const (
	EndpointDraft    EndpointState = "draft"    // not routed; can be tested
	EndpointActive   EndpointState = "active"   // routed and sent
	EndpointPaused   EndpointState = "paused"   // routed, waits; set by people
	EndpointDisabled EndpointState = "disabled" // routed, waits; set by the system or people
)

// Routes reports whether events are planned for an endpoint in this state.
func (s EndpointState) Routes() bool { return s != EndpointDraft }

// StateReason says why an endpoint is not active.
type StateReason struct {
	Code    string    `json:"code"`    // "gone", "failing", "manual"
	Message string    `json:"message"` // one sentence for the customer
	At      time.Time `json:"at"`
	By      string    `json:"by"` // "system", or who asked
}

// Secret signs deliveries. Its value is sealed at rest and must not be printed: String and
// LogValue hide it.
type Secret struct {
	Scheme    string    // whose it is; "" is SchemeStandard
	Value     string    // "whsec_…", or as its scheme has it
	CreatedAt time.Time // database time
	ExpiresAt time.Time // zero: no end; set when a newer one took over
}

// String hides the value.
func (Secret) String() string { return "[secret]" }

// GoString hides the value.
func (Secret) GoString() string { return "[secret]" }

// Live reports whether the secret signs at the given time.
func (s Secret) Live(now time.Time) bool { return s.ExpiresAt.IsZero() || now.Before(s.ExpiresAt) }

var endpointUID = regexp.MustCompile(`^[A-Za-z0-9_.:-]{1,128}$`)

// MaxEventType is the longest event type, in bytes.
const MaxEventType = 128

// ValidEventType reports whether s may be an event's type: words of letters, digits, _ and -,
// joined by dots.
//
// Every published event passes here, so it is a loop: as a regular expression it took a third of
// the time that reading a request takes.
func ValidEventType(s string) bool {
	if s == "" || len(s) > MaxEventType {
		return false
	}
	inWord := false
	for i := range len(s) {
		switch c := s[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '_', c == '-':
			inWord = true
		case c == '.' && inWord:
			inWord = false
		default:
			return false
		}
	}
	return inWord
}

// ValidEventTypePattern reports whether s may stand in an endpoint's event_types.
func ValidEventTypePattern(s string) bool {
	if s == "*" {
		return true
	}
	return ValidEventType(strings.TrimSuffix(s, ".*"))
}

// ValidUID reports whether s may be an endpoint's uid. One that looks like an endpoint id would
// make a path ambiguous and is refused.
func ValidUID(s string) bool { return endpointUID.MatchString(s) && !strings.HasPrefix(s, "ep_") }

// Matches reports whether the endpoint wants events of the type. One whose event types cannot be
// read may want any: they are planned and fail where its owner sees it and can replay them, while
// events it was silently not asked about would be lost to it.
func (e *Endpoint) Matches(eventType string) bool {
	if len(e.EventTypes) == 0 {
		return true
	}
	for _, pattern := range e.EventTypes {
		if MatchEventType(pattern, eventType) {
			return true
		}
	}
	return false
}

// MatchEventType reports whether one pattern covers a type: "*" all, "a.b.*" everything below
// a.b (not a.b itself), anything else exactly itself.
func MatchEventType(pattern, eventType string) bool {
	if pattern == "*" || pattern == eventType {
		return true
	}
	prefix, ok := strings.CutSuffix(pattern, "*")
	return ok && strings.HasSuffix(prefix, ".") && len(eventType) > len(prefix) && strings.HasPrefix(eventType, prefix)
}
