package egress

import (
	"errors"
	"fmt"
	"net"
	"time"
)

// Step is a part of getting a connection.
type Step int

const (
	StepPolicy  Step = iota // the guard refused; nothing was sent anywhere but to DNS
	StepLookup              // the name could not be resolved
	StepConnect             // no judged address accepted a connection
	StepTLS                 // the handshake failed
)

func (s Step) String() string { return [...]string{"policy", "lookup", "connect", "tls"}[s] }

// Timing says how long getting a connection took. A step that did not happen is 0.
type Timing struct {
	DNS, Connect, TLS time.Duration
}

// DialError says why there was no connection. Its text is for logs: it may hold addresses that
// are nobody's business outside.
type DialError struct {
	Step   Step
	Timing Timing
	// CertificateAsked reports that the server wanted a client certificate before the handshake
	// failed.
	CertificateAsked bool
	Err              error
}

func (e *DialError) Error() string { return fmt.Sprintf("%s: %v", e.Step, e.Err) }
func (e *DialError) Unwrap() error { return e.Err }

// NoSuchHost reports that DNS answered, and the answer was that the name has no address.
func (e *DialError) NoSuchHost() bool {
	dns, ok := errors.AsType[*net.DNSError](e.Err)
	return e.Step == StepLookup && ok && dns.IsNotFound
}

// DeniedError is the refusal of an address, a port or a scheme. Where several steps refuse, or a
// refusal comes out of the socket layer, it is found by errors.AsType.
type DeniedError struct {
	Reason string // the kind of address ("private", "loopback", …), "port" or "scheme"
}

func (e *DeniedError) Error() string { return "egress denied: " + e.Reason }
