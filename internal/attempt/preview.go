package attempt

import (
	"errors"
	"net/http"
	"strconv"
	"strings"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// Preview is a request as it would be sent, with the values of secret headers replaced.
type Preview struct {
	Method  string
	URL     string
	Headers []outbox.Header // names in lower case
	Body    []byte
}

// Preview builds and signs the request of an attempt without making it. An endpoint that cannot
// be used has none; the error is the sentence its attempts would end with.
func (s *Sender) Preview(r Request) (Preview, error) {
	at := s.clock.Now()
	signer, unusable := r.Target.signer(at)
	if unusable != nil {
		return Preview{}, errors.New(unusable.message)
	}
	p := Preview{Method: http.MethodPost, URL: r.Target.shown, Body: r.Payload}
	p.Headers = append(p.Headers,
		outbox.Header{Name: "host", Value: r.Target.url.Host},
		outbox.Header{Name: "content-length", Value: strconv.Itoa(len(r.Payload))},
	)
	for _, h := range append(s.own(r, at, signer), r.Target.recordedWith(s.forwarded(r))...) {
		p.Headers = append(p.Headers, outbox.Header{Name: strings.ToLower(h.Name), Value: h.Value})
	}
	return p, nil
}
