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
		allowed := name == "Content-Type" || !reserved(name, s.prefix) && !r.Target.sets(name)
		if allowed && httpguts.ValidHeaderFieldName(name) && httpguts.ValidHeaderFieldValue(value) && len(name)+len(value) <= MaxHeaderBytes {
			lines = append(lines, outbox.Header{Name: strings.ToLower(name), Value: value})
		}
	}
	slices.SortFunc(lines, func(a, b outbox.Header) int { return strings.Compare(a.Name, b.Name) })
	return lines
}

// sets reports whether the endpoint has a header of its own by this name, in canonical spelling: one
// it was given, or one that a scheme it signs by writes. Beside the latter a second line would leave
// it to the receiver which of two signatures it reads.
func (t *Target) sets(name string) bool {
	_, own := t.header[name]
	return own || slices.Contains(t.signed, name)
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
