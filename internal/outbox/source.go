package outbox

import (
	"context"
	"crypto/sha256"
	"regexp"
	"time"
)

// Source is an address at which somebody else's webhooks arrive, POST /in/{Name}: who sends them,
// how they are checked, and whose events they become.
type Source struct {
	ID       SourceID
	Name     string // in the address, and part of every key: who re-creates a source meets what it saw
	Provider string // who sends; a name the gateway knows
	// Tenant is whose events they become. TenantKey is read with it, "" where that one is deleted;
	// then nothing is accepted.
	Tenant    TenantRef
	TenantKey string
	State     SourceState
	Settings  SourceSettings
	Secrets   []SourceSecret // all that may sign now, newest first; sealed at rest
	// Keep is how long its requests are kept, and with them the ids it has seen. It must outlast
	// the provider's last retry.
	Keep      time.Duration
	CreatedAt time.Time
	UpdatedAt time.Time
}

// SealedSource is what of a source is sealed at rest.
type SealedSource struct {
	Secrets        []SourceSecret `json:"secrets,omitempty"`
	ChallengeToken string         `json:"challenge_token,omitempty"`
}

// Sealed returns what is to be sealed; false if there is nothing.
func (s *Source) Sealed() (SealedSource, bool) {
	sealed := SealedSource{Secrets: s.Secrets}
	if s.Settings.Verify != nil {
		sealed.ChallengeToken = s.Settings.Verify.ChallengeToken
	}
	return sealed, len(sealed.Secrets) > 0 || sealed.ChallengeToken != ""
}

// Unseal puts it back.
func (s *Source) Unseal(sealed SealedSource) {
	s.Secrets = sealed.Secrets
	if sealed.ChallengeToken != "" {
		if s.Settings.Verify == nil {
			s.Settings.Verify = &SourceCheck{}
		}
		s.Settings.Verify.ChallengeToken = sealed.ChallengeToken
	}
}

// SourceState says what happens to a request.
type SourceState string

const (
	SourceActive SourceState = "active"
	SourcePaused SourceState = "paused" // told to come back later; nothing is stored
)

// SourceSecret is one secret a provider signs with. Its value must not be printed.
type SourceSecret struct {
	ID        string    `json:"id"` // made by us, for people to name it by
	Value     string    `json:"value"`
	CreatedAt time.Time `json:"created_at"`
	ExpiresAt time.Time `json:"expires_at,omitzero"` // zero: no end
}

// String hides the value.
func (SourceSecret) String() string { return "[secret]" }

// GoString hides the value.
func (SourceSecret) GoString() string { return "[secret]" }

// Live reports whether the secret may sign at the given time.
func (s SourceSecret) Live(now time.Time) bool {
	return s.ExpiresAt.IsZero() || now.Before(s.ExpiresAt)
}

// HeaderMetadata begins the names of an event's metadata that travel as headers of its deliveries:
// what came with it and was to be forwarded. A publisher cannot use it.
const HeaderMetadata = "header:"

// SourceSettings are what is known better about a source than about its provider. The store keeps
// them as they are; the gateway gives them their meaning.
type SourceSettings struct {
	// EventType of the events; {topic} in it stands for the provider's own type. "": {topic}.
	EventType string       `json:"event_type,omitempty"`
	ID        *SourcePlace `json:"id,omitempty"`
	Verify    *SourceCheck `json:"verify,omitempty"`
	// ForwardHeaders are the names of headers that go on with the event. nil: those the provider
	// tells its events apart by.
	ForwardHeaders []string      `json:"forward_headers,omitempty"`
	Responses      SourceAnswers `json:"responses,omitzero"`
	MaxBody        int64         `json:"max_body,omitempty"` // bytes; 0: the provider's, at most a payload's
}

// SourcePlace is where an event's id is, in place of where the provider's is.
type SourcePlace struct {
	Header  string `json:"header,omitempty"`
	Pointer string `json:"pointer,omitempty"` // JSON, into the body
	// BodyWithin makes equal bodies one event within this time; for senders that give no id.
	BodyWithin time.Duration `json:"body_within,omitempty"`
}

// SourceCheck is how a request is checked where the provider is no known one, and what a known
// one's check cannot know.
type SourceCheck struct {
	Signed       string        `json:"signed,omitempty"`
	Header       string        `json:"header,omitempty"`
	Form         string        `json:"form,omitempty"`
	Algorithm    string        `json:"algorithm,omitempty"` // sha1, sha256, sha512
	IDHeader     string        `json:"id_header,omitempty"`
	TimeHeader   string        `json:"time_header,omitempty"`
	Milliseconds bool          `json:"milliseconds,omitempty"`
	Tolerance    time.Duration `json:"tolerance,omitempty"`
	// SecretEncodings are the ways a secret may be read, utf8, base64 or hex. Several stand side by
	// side while a provider changes from one to the other. None: as the provider spells it.
	SecretEncodings []string `json:"secret_encodings,omitempty"`
	SecretPrefix    string   `json:"secret_prefix,omitempty"`
	PublicURL       string   `json:"public_url,omitempty"`
	ChallengeToken  string   `json:"-"` // sealed with the secrets
}

// SourceAnswers are codes in place of the provider's; zero: the provider's.
type SourceAnswers struct {
	OK       int `json:"ok,omitempty"`
	InFlight int `json:"in_flight,omitempty"`
	Failed   int `json:"failed,omitempty"`
	Rejected int `json:"rejected,omitempty"`
	TooLarge int `json:"too_large,omitempty"`
}

var sourceName = regexp.MustCompile(`^[A-Za-z0-9_-][A-Za-z0-9_.:-]{0,63}$`)

// ValidSourceName reports whether name may name a source.
func ValidSourceName(name string) bool { return sourceName.MatchString(name) }

// SourceShard is the shard of what arrives at a source. It is the name's, not the tenant's: the
// source may be given to another tenant, and still knows what it has seen.
func SourceShard(name string) Shard {
	sum := sha256.Sum256([]byte(name))
	return Shard(sum[0])
}

// Inbound makes an event one that arrived at a source: it is stored once for each Key.
type Inbound struct {
	Source SourceID
	Shard  Shard // SourceShard
	// Key tells events apart: the source's name and the provider's id are in it.
	Key [32]byte
	// Window is how long Key is remembered; 0: for as long as the request is.
	Window time.Duration
	// Digest is of the body, without what changes from attempt to attempt.
	Digest     [32]byte
	ProviderID string
	Topic      string
}

// InboundOutcome is what became of a request to a source.
type InboundOutcome string

const (
	InboundAccepted    InboundOutcome = "accepted"    // it is an event
	InboundDuplicate   InboundOutcome = "duplicate"   // it was one already
	InboundRejected    InboundOutcome = "rejected"    // it does not verify, or cannot be taken
	InboundQuarantined InboundOutcome = "quarantined" // kept for people, who may release it
)

// InboundRequest is one request to a source, as people see it.
type InboundRequest struct {
	ID      InboundID // its time is the request's
	Source  SourceID
	Shard   Shard
	Outcome InboundOutcome
	Reason  string // a word, of a rejected or quarantined one
	Detail  string // a sentence, of a rejected or quarantined one
	// ProviderID and Topic are what the request says of itself: of a rejected one, nobody vouches
	// for them.
	ProviderID string
	Topic      string
	Event      EventID // the event it is or repeats; zero: none
	Digest     [32]byte
	Bytes      int

	// Body, Metadata and ReleaseKey are of a quarantined one: what it takes to make it an event.
	// ReleaseKey is what Inbound.Key of that event is, so that releasing twice makes one. Body is
	// nil from when that event is stored, and where it was erased.
	Body       []byte
	Metadata   map[string]string
	ReleaseKey [32]byte
	Released   EventID // the event it was made; zero: none
	// Window is how long ReleaseKey is remembered, as Inbound's; it is not stored.
	Window time.Duration

	// Times is how many like it stand in this one row: of a quarantined one itself and its repeats,
	// else those that arrived within the same moment; 0: one.
	Times int
}

// Since is the first request's id from when the ReleaseKey is remembered; zero: it always is.
func (r *InboundRequest) Since() InboundID {
	if r.Window == 0 {
		return InboundID{}
	}
	return InboundFloor(r.ID.Time().Add(-r.Window))
}

// Quarantined is how a request that was to be kept in quarantine was met.
type Quarantined struct {
	// Event is what it repeats, which is stored under its ReleaseKey or was released; zero: it is
	// kept.
	Event EventID
	// Repeat: it waits there already, and was counted.
	Repeat bool
}

// Erased reports whether the body of a quarantined request was erased before anybody released it.
func (r *InboundRequest) Erased() bool {
	return r.Outcome == InboundQuarantined && r.Released.IsZero() && r.Bytes > 0 && len(r.Body) == 0
}

// RequestQuery filters requests.
type RequestQuery struct {
	Source  SourceID
	Shard   Shard
	Outcome InboundOutcome // "": any
	After   InboundID
}

// Inbox keeps the sources and what arrived at them. The requests that became events are stored
// with the event, by Publishing.InsertEvents.
type Inbox interface {
	// PutSource calls edit with the source under name, or with a new one and exists false, and
	// stores what edit left there. The row is locked meanwhile; edit's error ends it unchanged.
	PutSource(ctx context.Context, name string, now time.Time, edit func(s *Source, exists bool) error) (Source, bool, error)
	// DeleteSource ends a source; its secrets and what it has in quarantine go at once. Its events
	// stay, and the ids it has seen are remembered for as long as they would have been.
	DeleteSource(ctx context.Context, name string, now time.Time) error
	// Source finds a living source (ErrNotFound).
	Source(ctx context.Context, name string) (Source, error)
	// Sources lists the living ones by creation.
	Sources(ctx context.Context, after SourceID, page Page) ([]Source, error)
	// RecordRequests stores requests that made no event.
	RecordRequests(ctx context.Context, requests []InboundRequest) error
	// Quarantine keeps requests of a source for people. One whose key and digest are an event's by
	// now is not kept, and one that waits there with its body is counted in its row.
	Quarantine(ctx context.Context, requests []InboundRequest) ([]Quarantined, error)
	// Requests lists what arrived at a source, by time, and returns where to go on.
	Requests(ctx context.Context, q RequestQuery, page Page) ([]InboundRequest, InboundID, error)
	// Request finds one request of a source (ErrNotFound).
	Request(ctx context.Context, source SourceID, shard Shard, id InboundID) (InboundRequest, error)
	// ReleaseRequest writes down which event a quarantined request was made, and drops its body;
	// ErrNotFound if there is no such quarantined one. The first event stays. InsertEvents has done so
	// already, for all whose ReleaseKey is the event's, unless their digest is another.
	ReleaseRequest(ctx context.Context, source SourceID, shard Shard, id InboundID, event EventID) error
}

// Reasons of quarantined requests.
const (
	QuarantinedOtherBody = "other_body" // the id of an event, and another body
	QuarantinedSchema    = "schema"     // its type's schema refuses it
)

// DefaultKeep is the least a source keeps its requests where nobody says otherwise.
const DefaultKeep = 7 * 24 * time.Hour
