package client

import "time"

// Source is where somebody else's webhooks arrive. Its secrets are named, never shown.
type Source struct {
	ID             string          `json:"id"`
	Name           string          `json:"source"`
	Path           string          `json:"path"`
	Provider       string          `json:"provider"`
	Tenant         string          `json:"tenant"`
	State          string          `json:"state"`
	Secrets        []SourceSecret  `json:"secrets"`
	EventType      string          `json:"event_type"`
	IDPlace        *SourcePlace    `json:"id_place"`
	Verify         *SourceCheck    `json:"verify"`
	ForwardHeaders []string        `json:"forward_headers"`
	MaxBody        int64           `json:"max_body"`
	KeepSeconds    float64         `json:"keep_seconds"`
	Warnings       []SourceWarning `json:"warnings"`
	CreatedAt      time.Time       `json:"created_at"`
}

// SourceSecret is one a provider signs with.
type SourceSecret struct {
	ID        string     `json:"id"`
	CreatedAt time.Time  `json:"created_at"`
	ExpiresAt *time.Time `json:"expires_at"` // nil: no end
}

// SourcePlace is where an event's id is.
type SourcePlace struct {
	Header            string  `json:"header"`
	Pointer           string  `json:"pointer"`
	BodyWithinSeconds float64 `json:"body_within_seconds"`
}

// SourceCheck is how a request is checked.
type SourceCheck struct {
	Signed    string `json:"signed"`
	Header    string `json:"header"`
	Form      string `json:"form"`
	Algorithm string `json:"algorithm"`

	IDHeader          string   `json:"id_header"`
	TimeHeader        string   `json:"time_header"`
	Milliseconds      bool     `json:"milliseconds"`
	ToleranceSeconds  float64  `json:"tolerance_seconds"`
	SecretEncodings   []string `json:"secret_encodings"`
	SecretPrefix      string   `json:"secret_prefix"`
	PublicURL         string   `json:"public_url"`
	HasChallengeToken bool     `json:"has_challenge_token"`
}

// SourceWarning is what may lose or repeat events.
type SourceWarning struct {
	Rule   string `json:"rule"`
	Harm   string `json:"harm"`
	Detail string `json:"detail"`
	Remedy string `json:"remedy"`
}

// InboundRequest is one request to a source.
type InboundRequest struct {
	ID         string `json:"id"`
	At         string `json:"at"`
	Outcome    string `json:"outcome"`
	ProviderID string `json:"provider_id"`
	Topic      string `json:"topic"`
	EventID    string `json:"event_id"`
	// ReleasedEventID is the event that a quarantined one was made.
	ReleasedEventID string `json:"released_event_id"`
	Reason          string `json:"reason"`
	Detail          string `json:"detail"`
	Bytes           int    `json:"bytes"`
	Digest          string `json:"digest"`
	Times           int    `json:"times"`
	Body            []byte `json:"body_base64"` // of a quarantined one
}
