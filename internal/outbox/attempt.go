package outbox

import "time"

// Attempt is the record of one try. It is written once and never changed.
type Attempt struct {
	ID         AttemptID
	Trigger    Trigger
	At         time.Time // database time when it began
	Duration   time.Duration
	Timing     Timing
	URL        string // as it was dialled
	Outcome    Outcome
	Kind       Kind   // "" where delivered
	Message    string // one plain sentence for the customer; never an error's own text
	StatusCode int    // 0 where no status line came

	RequestHeaders  []Header // as sent; secret values are replaced
	RequestBytes    int      // length of the body
	ResponseHeaders []Header // the allow-listed ones
	ResponseBody    []byte   // a bounded prefix, any encoding
	Truncated       bool     // there was, or may have been, more
	// Opened: the address was one that only an allow list opens, so what it answered is for
	// operators and nobody else.
	Opened bool
}

// Header is one header line.
type Header struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Timing says where an attempt's time went; a phase that did not happen is 0.
type Timing struct {
	DNS, Connect, TLS, FirstByte time.Duration
}

// Trigger says what caused an attempt.
type Trigger string

const (
	TriggerSchedule Trigger = "schedule"
	TriggerReplay   Trigger = "replay"
	TriggerProbe    Trigger = "probe"
	TriggerTest     Trigger = "test"
)

// Outcome is the class of an attempt's end.
type Outcome string

const (
	OutcomeDelivered Outcome = "delivered"
	OutcomeTransient Outcome = "transient" // worth retrying
	OutcomePermanent Outcome = "permanent" // never going to work
)

// Kind names a fault. Each has one sentence for the customer (internal/attempt).
type Kind string

const (
	KindRefused              Kind = "refused"
	KindReset                Kind = "reset"
	KindTimeout              Kind = "timeout"
	KindDNSTemporary         Kind = "dns_temporary"
	KindDNSNotFound          Kind = "dns_not_found"
	KindTLSHandshake         Kind = "tls_handshake"
	KindTLSCertificate       Kind = "tls_certificate"
	KindTLSClientCertificate Kind = "tls_client_certificate"
	KindProtocol             Kind = "protocol"
	KindHTTPStatus           Kind = "http_status"
	KindRedirect             Kind = "redirect"
	KindEgressDenied         Kind = "egress_denied"
	KindConfig               Kind = "config"
	KindPayloadGone          Kind = "payload_gone" // the event's bytes are no longer kept
	KindPanic                Kind = "panic"        // our own fault while handling it
)

// How much of an answer is kept.
const (
	KeepOfFailure = 16 << 10
	KeepOfSuccess = 1 << 10
)

// FailureInfo is an endpoint's latest failed attempt.
type FailureInfo struct {
	At         time.Time `json:"at,omitzero"`
	Kind       Kind      `json:"kind,omitzero"`
	Message    string    `json:"message,omitzero"`
	StatusCode int       `json:"status_code,omitzero"`
}
