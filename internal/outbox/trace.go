package outbox

import "encoding/hex"

// TraceParent is the trace context (W3C, version 00) of an attempt: the trace is the event, by the
// bytes of its id, and the span the attempt, by the random end of its own. So every delivery and
// retry of an event is in one trace, whoever published it and however, and nothing needs to be
// stored for it.
func TraceParent(event EventID, attempt AttemptID) string {
	text := make([]byte, 0, 55)
	text = append(text, "00-"...)
	text = hex.AppendEncode(text, event[:])
	text = append(text, '-')
	text = hex.AppendEncode(text, attempt[8:])
	return string(append(text, "-01"...))
}
