package attempt

import (
	"net/textproto"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// forwarded are the headers that came with an event from a source and go on with it, in the order of
// their names. What a customer could not have sent is not passed on for a provider either, and what
// the endpoint says itself stands. The content type is the one exception: it is the payload's.
func (s *Sender) forwarded(r Request) []outbox.Header {
	var lines []outbox.Header
	for key, value := range r.Metadata {
		name, is := strings.CutPrefix(key, outbox.HeaderMetadata)
		if !is {
			continue
		}
		name = textproto.CanonicalMIMEHeaderKey(name)
		_, taken := r.Target.header[name]
		allowed := name == "Content-Type" || !reserved(name, s.prefix) && !taken
		if allowed && httpguts.ValidHeaderFieldName(name) && httpguts.ValidHeaderFieldValue(value) && len(name)+len(value) <= MaxHeaderBytes {
			lines = append(lines, outbox.Header{Name: strings.ToLower(name), Value: value})
		}
	}
	slices.SortFunc(lines, func(a, b outbox.Header) int { return strings.Compare(a.Name, b.Name) })
	return lines
}

// recordedWith are the target's headers as they are put on record, with those that go on with an event.
func (t *Target) recordedWith(forwarded []outbox.Header) []outbox.Header {
	if len(forwarded) == 0 {
		return t.recorded
	}
	all := make([]outbox.Header, 0, len(t.recorded)+len(forwarded))
	for _, h := range t.recorded {
		if !slices.ContainsFunc(forwarded, func(f outbox.Header) bool { return f.Name == h.Name }) {
			all = append(all, h)
		}
	}
	for _, h := range forwarded {
		if SecretHeader(h.Name) {
			h.Value = "[secret]"
		}
		all = append(all, h)
	}
	return all
}
