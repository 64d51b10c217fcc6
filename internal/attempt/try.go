package attempt

import (
	"time"

	"github.com/waybill-dev/waybill/internal/egress"
	"github.com/waybill-dev/waybill/internal/outbox"
)

// Tried is what an endpoint's address shows without a request.
type Tried struct {
	egress.Contact
	// Kind and Message say what is wrong, as an attempt would; "" where nothing is.
	Kind    outbox.Kind
	Message string
}

// Try looks the endpoint's host up, judges its addresses, connects, and makes the TLS handshake,
// and sends nothing. A server that turns clients without a certificate away may say so only once
// a request comes (TLS 1.3).
func (s *Sender) Try(t *Target) Tried {
	if t.unusable != nil {
		return Tried{Kind: t.unusable.kind, Message: t.unusable.message}
	}
	began := time.Now()
	contact, err := s.guard.Try(t.url, t.peer)
	if err != nil {
		v := s.judgeError(err, &flight{began: began}, t, s.clock.Now(), nil)
		return Tried{Kind: v.kind, Message: v.message}
	}
	return Tried{Contact: contact}
}
