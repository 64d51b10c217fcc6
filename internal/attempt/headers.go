package attempt

import (
	"fmt"
	"net/textproto"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// Bounds of an endpoint's own headers.
const (
	MaxHeaders     = 20
	MaxHeaderBytes = 4 << 10 // of name and value together
)

// HeaderError says which of an endpoint's own headers is not accepted, and why.
type HeaderError struct {
	Name    string // as it was given
	Problem string
}

func (e *HeaderError) Error() string { return fmt.Sprintf("header %q: %s", e.Name, e.Problem) }

// reservedHeaders are ours, or the connection's, or speak in the name of somebody else: of the
// proxies on the way, or to the metadata service of a cloud. A name with a final * is a prefix.
//
// The framing ones are more than bad manners. net/http writes a header whose name it does not
// find in its usual spelling as it is, so "content-length" would go out beside the real one, and
// what follows would be read as a second request.
var reservedHeaders = []string{
	// one connection's (RFC 9110, section 7.6.1) and the framing of messages
	"connection", "keep-alive", "proxy-*", "te", "trailer", "trailers", "transfer-encoding", "upgrade", "http2-settings",
	"host", "expect", "content-*",
	// make Go's transport re-send a POST by itself
	"idempotency-key", "x-idempotency-key",
	// what we say about the message
	"webhook-*", "user-agent", "accept-encoding", "date", "traceparent", "tracestate",
	// what proxies say about the sender
	"via", "forwarded", "x-forwarded-*", "x-real-ip",
	// what a metadata service wants to hear before it answers
	"metadata", "metadata-flavor", "x-google-*", "x-aws-ec2-metadata-*",
}

// CheckHeaders judges the headers a customer wants sent with every delivery and returns them
// under their canonical names. prefix begins the names of our own headers. The error is a
// *HeaderError.
func CheckHeaders(headers map[string]string, prefix string) (map[string]string, error) {
	if len(headers) > MaxHeaders {
		return nil, &HeaderError{"", fmt.Sprintf("there are %d, at most %d are sent", len(headers), MaxHeaders)}
	}
	canonical := make(map[string]string, len(headers))
	for name, value := range headers {
		// Judged in one spelling and sent in that spelling: what is sent is what was judged.
		key := textproto.CanonicalMIMEHeaderKey(name)
		problem := ""
		switch _, twice := canonical[key]; {
		case !httpguts.ValidHeaderFieldName(name):
			problem = "is not a header name"
		case reserved(key, prefix):
			problem = "is set by the sender or belongs to the connection, and cannot be chosen"
		case len(name)+len(value) > MaxHeaderBytes:
			problem = fmt.Sprintf("is longer than %d bytes", MaxHeaderBytes)
		case !httpguts.ValidHeaderFieldValue(value):
			problem = "has a value with control characters, such as a line break"
		case strings.Trim(value, " \t") != value:
			problem = "has a value with white space around it"
		case twice:
			problem = "is given twice, in different spellings"
		}
		if problem != "" {
			return nil, &HeaderError{name, problem}
		}
		canonical[key] = value
	}
	return canonical, nil
}

func reserved(name, prefix string) bool {
	name = strings.ToLower(name)
	if strings.HasPrefix(name, DefaultHeaderPrefix) || prefix != "" && strings.HasPrefix(name, strings.ToLower(prefix)) {
		return true
	}
	return slices.ContainsFunc(reservedHeaders, func(rule string) bool {
		if start, ok := strings.CutSuffix(rule, "*"); ok {
			return strings.HasPrefix(name, start)
		}
		return name == rule
	})
}

// SecretHeader reports whether a header, going by its name, carries a credential, so that its
// value is replaced wherever the header is shown.
func SecretHeader(name string) bool {
	name = strings.ToLower(name)
	return slices.ContainsFunc([]string{
		"auth", "cookie", "token", "secret", "key", "password", "passwd", "credential", "session", "signature", "bearer", "jwt",
	}, func(word string) bool { return strings.Contains(name, word) })
}
