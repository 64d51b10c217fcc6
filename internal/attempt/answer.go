package attempt

import (
	"cmp"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// keptHeaders are the headers of an answer that are recorded: what helps to find the request in
// the receiver's own logs, and what the sentences speak of. Set-Cookie and the rest stay unread.
var keptHeaders = canonicalNames(
	"content-type", "content-length", "date", "server", "retry-after", "location",
	"x-request-id", "x-correlation-id", "x-trace-id", "request-id", "traceparent",
	"cf-ray", "x-amzn-requestid", "x-amzn-trace-id", "x-amz-cf-id", "x-vercel-id", "fly-request-id", "x-azure-ref", "x-cloud-trace-context",
)

// canonicalNames maps header names as net/http spells them to how we do.
func canonicalNames(names ...string) map[string]string {
	m := map[string]string{}
	for _, name := range names {
		m[http.CanonicalHeaderKey(name)] = name
	}
	return m
}

const (
	maxKeptHeader = 1 << 10 // bytes of one value
	maxKeptLines  = 4       // of one name
)

// buffers hold one byte more than is kept, which tells an answer that fits from one that does not.
var buffers = sync.Pool{New: func() any { return new([outbox.KeepOfFailure + 1]byte) }}

// read takes what is kept of an answer and ends the request. An answer that fits is read to its
// end, so its connection can be used again; a longer one costs its connection, because draining
// it would be at the mercy of whoever sends it.
func (s *Sender) read(out *Outcome, res *http.Response) {
	out.StatusCode = res.StatusCode
	out.ResponseHeaders = keepHeaders(res.Header)
	if res.Body == http.NoBody {
		return
	}
	defer res.Body.Close()
	buf := buffers.Get().(*[outbox.KeepOfFailure + 1]byte)
	defer buffers.Put(buf)
	n := 0
	var err error
	for n < len(buf) && err == nil {
		var k int
		k, err = res.Body.Read(buf[n:])
		n += k
	}
	keep := outbox.KeepOfFailure
	if delivered(res.StatusCode) {
		keep = outbox.KeepOfSuccess
	}
	out.Truncated = n > keep || err != io.EOF
	if n > keep {
		n = wholeRunes(buf[:keep])
	}
	if n > 0 {
		out.ResponseBody = slices.Clone(buf[:n])
	}
}

// wholeRunes returns the length of b without a character that the cut went through, so that text
// stays text. Bytes that are not UTF-8 are left as they are.
func wholeRunes(b []byte) int {
	for back := 1; back <= min(utf8.UTFMax-1, len(b)); back++ {
		if c := b[len(b)-back]; utf8.RuneStart(c) {
			if c >= utf8.RuneSelf && !utf8.FullRune(b[len(b)-back:]) {
				return len(b) - back
			}
			break
		}
	}
	return len(b)
}

func keepHeaders(header http.Header) []outbox.Header {
	kept := make([]outbox.Header, 0, 4)
	for canonical, values := range header {
		name := keptHeaders[canonical]
		if name == "" {
			continue
		}
		for _, value := range values[:min(len(values), maxKeptLines)] {
			kept = append(kept, outbox.Header{Name: name, Value: printable(value)})
		}
	}
	slices.SortFunc(kept, func(a, b outbox.Header) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.Value, b.Value))
	})
	return kept
}

// printable makes a header's value storable as text: bounded, valid UTF-8, no NUL.
func printable(value string) string {
	value = value[:min(len(value), maxKeptHeader)]
	return strings.ReplaceAll(strings.ToValidUTF8(value, "\uFFFD"), "\x00", "\uFFFD")
}
