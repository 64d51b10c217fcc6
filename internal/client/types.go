package client

import (
	"encoding/json"
	"time"
)

// The answers, with the fields the command line and the pages show. Fields it does not know are passed over:
// within /v1 the server may add some.

// Page is one page of a list.
type Page[T any] struct {
	Data       []T     `json:"data"`
	NextCursor *string `json:"next_cursor"`
}

// Tenant is a customer.
type Tenant struct {
	Key         string  `json:"tenant"`
	Name        string  `json:"name"`
	State       string  `json:"state"`
	Weight      float64 `json:"weight"`
	MaxInFlight int     `json:"max_in_flight"`
}

// Endpoint is where a customer wants events.
type Endpoint struct {
	ID             string            `json:"id"`
	UID            string            `json:"uid"`
	Tenant         string            `json:"tenant"`
	URL            string            `json:"url"`
	Description    string            `json:"description"`
	EventTypes     []string          `json:"event_types"`
	Headers        map[string]string `json:"headers"`
	SecretHeaders  []string          `json:"secret_headers"` // their names
	Certificate    *Certificate      `json:"client_certificate"`
	Secrets        []SecretInfo      `json:"secrets"`
	MaxInFlight    *int              `json:"max_in_flight"`
	RateLimit      *RateLimit        `json:"rate_limit"`
	TimeoutSeconds float64           `json:"timeout_seconds"`
	Ordering       string            `json:"ordering"`
	OnDead         string            `json:"on_dead"`
	State          string            `json:"state"`
	StateReason    *StateReason      `json:"state_reason"`
	Retry          Retry             `json:"retry"`
	Fault          string            `json:"fault"`
	CreatedAt      time.Time         `json:"created_at"`
	Health         Health            `json:"health"`
	Secret         string            `json:"secret"` // in the answer that made it, only
}

// Certificate is what is told of the one that is shown to servers that ask for it.
type Certificate struct {
	Subject  string    `json:"subject"`
	NotAfter time.Time `json:"not_after"`
}

// SecretInfo is what is told of a signing secret.
type SecretInfo struct {
	Fingerprint string     `json:"fingerprint"`
	CreatedAt   time.Time  `json:"created_at"`
	ExpiresAt   *time.Time `json:"expires_at"`
}

// Rotated is the answer to a rotation.
type Rotated struct {
	Secret            string     `json:"secret"`
	PreviousExpiresAt *time.Time `json:"previous_expires_at"`
}

// RateLimit is a fixed limit.
type RateLimit struct {
	Count      int     `json:"count"`
	PerSeconds float64 `json:"per_seconds"`
}

// StateReason says why an endpoint is not active.
type StateReason struct {
	Code    string    `json:"code"`
	Message string    `json:"message"`
	At      time.Time `json:"at"`
	By      string    `json:"by"`
}

// Retry is when a failed delivery is tried again, as it is in effect.
type Retry struct {
	InitialSeconds float64 `json:"initial_seconds"`
	MaxSeconds     float64 `json:"max_seconds"`
	WindowSeconds  float64 `json:"window_seconds"`
	MaxAttempts    *int    `json:"max_attempts"`
}

// Health is how an endpoint stands.
type Health struct {
	Breaker             string     `json:"breaker"`
	ConsecutiveFailures int        `json:"consecutive_failures"`
	OpenedAt            *time.Time `json:"opened_at"`
	NextProbeAt         *time.Time `json:"next_probe_at"`
	FailingSince        *time.Time `json:"failing_since"`
	Limit               int        `json:"limit"`
	Rate                *float64   `json:"rate"`
	InFlight            int        `json:"in_flight"`
	Pending             int        `json:"pending"`
	Capped              bool       `json:"pending_capped"`
	OldestPendingAt     *time.Time `json:"oldest_pending_at"`
	LastSuccessAt       *time.Time `json:"last_success_at"`
	LastFailure         *Failure   `json:"last_failure"`
	LastOutage          *Outage    `json:"last_outage"`
}

// Failure is an endpoint's latest failed attempt.
type Failure struct {
	At         time.Time `json:"at"`
	Kind       string    `json:"kind"`
	Message    string    `json:"message"`
	StatusCode int       `json:"status_code"`
}

// Outage is a time in which everything to an endpoint waited, because its server only failed.
type Outage struct {
	From     time.Time  `json:"from"`
	OpenedAt time.Time  `json:"opened_at"`
	To       *time.Time `json:"to"` // nil: it goes on
	Cause    Failure    `json:"cause"`
}

// Dispatch is the stop switch.
type Dispatch struct {
	State  string `json:"state"` // running, paused
	Reason string `json:"reason,omitempty"`
}

// Pruned is what was asked to be removed.
type Pruned struct {
	Before time.Time `json:"before"`
}

// Published is an accepted event.
type Published struct {
	ID        string    `json:"id"`
	Type      string    `json:"type"`
	CreatedAt time.Time `json:"created_at"`
	Duplicate bool      `json:"duplicate"`
}

// Event is an accepted event as lists show it.
type Event struct {
	ID           string            `json:"id"`
	Tenant       string            `json:"tenant"`
	Type         string            `json:"type"`
	State        string            `json:"state"`
	OrderingKey  string            `json:"ordering_key"`
	Metadata     map[string]string `json:"metadata"`
	PayloadBytes int               `json:"payload_bytes"`
	CreatedAt    time.Time         `json:"created_at"`
}

// Delivery is an event on its way to one endpoint, or arrived, or dead.
type Delivery struct {
	ID            string          `json:"id"`
	Tenant        string          `json:"tenant"`
	EventID       string          `json:"event_id"`
	EventType     string          `json:"event_type"`
	EndpointID    string          `json:"endpoint_id"`
	EndpointURL   string          `json:"endpoint_url"`
	State         string          `json:"state"`
	AttemptCount  int             `json:"attempt_count"`
	Sequence      int64           `json:"sequence"`
	CreatedAt     time.Time       `json:"created_at"`
	FinishedAt    *time.Time      `json:"finished_at"`
	NextAttemptAt *time.Time      `json:"next_attempt_at"`
	LastAttempt   *AttemptSummary `json:"last_attempt"`
	Waiting       *Waiting        `json:"waiting"`
	Dead          *Dead           `json:"dead"`
}

// AttemptSummary is the last try of a delivery.
type AttemptSummary struct {
	ID         string    `json:"id"`
	N          int       `json:"n"`
	At         time.Time `json:"at"`
	StatusCode int       `json:"status_code"`
	Kind       string    `json:"kind"`
	Message    string    `json:"message"`
	DurationMS float64   `json:"duration_ms"`
}

// Waiting says why a delivery is late.
type Waiting struct {
	Reason string     `json:"reason"`
	Detail string     `json:"detail"`
	Ahead  *int       `json:"ahead"`
	Capped bool       `json:"ahead_capped"`
	Until  *time.Time `json:"until"`
	ETA    *time.Time `json:"eta"`
	Behind *Behind    `json:"behind"`
}

// Behind is the delivery of the same ordering key that another one waits for.
type Behind struct {
	DeliveryID string `json:"delivery_id"`
	State      string `json:"state"`
}

// Dead says why a delivery ended undelivered.
type Dead struct {
	Reason  string    `json:"reason"`
	Kind    string    `json:"kind"`
	Message string    `json:"message"`
	At      time.Time `json:"at"`
}

// Attempt is one try.
type Attempt struct {
	ID         string    `json:"id"`
	N          int       `json:"n"`
	Trigger    string    `json:"trigger"`
	At         time.Time `json:"at"`
	DurationMS float64   `json:"duration_ms"`
	Timing     Timing    `json:"timing"`
	URL        string    `json:"url"`
	Outcome    string    `json:"outcome"`
	Kind       string    `json:"kind"`
	Message    string    `json:"message"`
	StatusCode int       `json:"status_code"`
	Request    Sent      `json:"request"`
	Response   *Response `json:"response"` // nil where no status line came
}

// Timing says where an attempt's time went, in milliseconds; a phase that did not happen is 0.
type Timing struct {
	DNS       float64 `json:"dns_ms"`
	Connect   float64 `json:"connect_ms"`
	TLS       float64 `json:"tls_ms"`
	FirstByte float64 `json:"first_byte_ms"`
}

// Sent is what an attempt sent.
type Sent struct {
	Headers map[string]string `json:"headers"`
	Bytes   int               `json:"bytes"`
}

// Response is what an attempt was answered.
type Response struct {
	Headers    map[string]string `json:"headers"`
	Body       *string           `json:"body"`        // nil where it is no text
	BodyBase64 []byte            `json:"body_base64"` // where it is no text
	Truncated  bool              `json:"truncated"`
	Hidden     bool              `json:"hidden"` // it is kept, but not for who asks
}

// Replayed is the answer to a replay.
type Replayed struct {
	Delivery Delivery `json:"delivery"`
	Was      string   `json:"was"`
}

// NewEvent is an event to publish. Its payload goes out byte for byte.
type NewEvent struct {
	Type           string            `json:"type"`
	ID             string            `json:"id,omitempty"`
	OrderingKey    string            `json:"ordering_key,omitempty"`
	IdempotencyKey string            `json:"idempotency_key,omitempty"`
	Metadata       map[string]string `json:"metadata,omitempty"`
}

// EventBody writes the request body that publishes e with this payload. The payload is put in
// by hand, since encoding/json would drop its white space.
func EventBody(e NewEvent, payload []byte) ([]byte, error) {
	head, err := json.Marshal(e)
	if err != nil {
		return nil, err
	}
	body := make([]byte, 0, len(head)+len(payload)+len(`,"payload":}`))
	body = append(body, head[:len(head)-1]...)
	body = append(body, `,"payload":`...)
	body = append(body, payload...)
	return append(body, '}'), nil
}

// DeliveryCounts is how many deliveries there are, by state.
type DeliveryCounts struct {
	Counts map[string]Count `json:"counts"`
}

// Count is a number, or where it is capped, a bound it is not below.
type Count struct {
	Count  int  `json:"count"`
	Capped bool `json:"capped"`
}

// Job is work on many deliveries: a replay, or a cancellation.
type Job struct {
	ID         string     `json:"id"` // "" where it was only counted
	Type       string     `json:"type"`
	Tenant     string     `json:"tenant"`
	State      string     `json:"state"`
	Stopping   bool       `json:"stopping"` // it runs, and takes back what it planned
	Filter     JobFilter  `json:"filter"`
	Reason     string     `json:"reason"`
	Matched    int        `json:"matched"`
	Done       int        `json:"done"`
	Delivered  int        `json:"delivered"`
	Failed     int        `json:"failed"`
	Skipped    int        `json:"skipped"`
	CreatedBy  string     `json:"created_by"`
	CreatedAt  time.Time  `json:"created_at"`
	FinishedAt *time.Time `json:"finished_at"`
	ETA        *time.Time `json:"eta"`
}

// JobFilter says which deliveries a job is about.
type JobFilter struct {
	From        *time.Time `json:"from"`
	To          *time.Time `json:"to"`
	EndpointID  string     `json:"endpoint_id"`
	EventTypes  []string   `json:"event_types"`
	State       string     `json:"state"`
	DeliveryIDs []string   `json:"delivery_ids"`
	EventIDs    []string   `json:"event_ids"`

	Metadata map[string]string `json:"metadata"`
}
