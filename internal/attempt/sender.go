package attempt

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"strconv"
	"time"

	"github.com/waybill-dev/waybill/internal/egress"
	"github.com/waybill-dev/waybill/internal/outbox"
	"github.com/waybill-dev/waybill/internal/poison"
	"github.com/waybill-dev/waybill/internal/signing"
	"github.com/waybill-dev/waybill/signature"
)

// Config says how a Sender works. Guard and Clock are required.
type Config struct {
	Guard *egress.Guard
	Clock *outbox.Clock
	// Traces sends traceparent, so that what the receiver does joins the event's trace.
	Traces bool
	// UserAgent is sent with every request. "" means "Waybill".
	UserAgent string
	// HeaderPrefix begins the names of our own headers. "" means "waybill-".
	HeaderPrefix string
	// Log gets the real error of a failed attempt, at debug level. nil discards.
	Log *slog.Logger
}

// ProxyHeader stands among the recorded headers of a request that went through the egress proxy,
// and names it. It is not sent.
const ProxyHeader = "egress-proxy"

// DefaultHeaderPrefix begins the names of our own headers where nothing else is configured.
const DefaultHeaderPrefix = "waybill-"

// Sender makes attempts. It is safe for use by many goroutines at once.
type Sender struct {
	guard     *egress.Guard
	clock     *outbox.Clock
	log       *slog.Logger
	userAgent string
	traces    bool
	prefix    string
	absent    absences

	headerEventType, headerAttempt, headerSequence string
}

// New makes a sender.
func New(cfg Config) *Sender {
	if cfg.UserAgent == "" {
		cfg.UserAgent = "Waybill"
	}
	if cfg.HeaderPrefix == "" {
		cfg.HeaderPrefix = DefaultHeaderPrefix
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Sender{
		guard:           cfg.Guard,
		clock:           cfg.Clock,
		log:             cfg.Log,
		userAgent:       cfg.UserAgent,
		traces:          cfg.Traces,
		prefix:          cfg.HeaderPrefix,
		headerEventType: cfg.HeaderPrefix + "event-type",
		headerAttempt:   cfg.HeaderPrefix + "attempt",
		headerSequence:  cfg.HeaderPrefix + "sequence",
	}
}

// Request is one attempt to be made.
type Request struct {
	Target    *Target
	Event     outbox.EventID
	EventType string
	N         int   // which attempt this is, over all rounds; the first is 1
	Sequence  int64 // the delivery's number at its endpoint
	Trigger   outbox.Trigger
	Payload   []byte            // sent and signed as it is; must not change until Do returns
	Metadata  map[string]string // the event's, for schemes that sign or send some of it
}

// Outcome is how an attempt ended.
type Outcome struct {
	outbox.Attempt
	// RetryAfter is how long the receiver asked to be left alone; 0: it did not.
	RetryAfter time.Duration
	// CertificateUntil is when the server's certificate ends; zero where there was none, and where
	// the attempt failed for want of a good one.
	CertificateUntil time.Time
	// Aborted: the caller's context ended before the attempt did and no status line had come.
	// Whether the receiver has the event is unknown, and it is not the receiver's fault.
	Aborted bool
}

var errOutOfTime = errors.New("the attempt's own deadline")

// Do makes one attempt and always returns an outcome; it ends within the target's timeout, or
// soon after ctx does.
func (s *Sender) Do(ctx context.Context, r Request) Outcome {
	poison.Attempted(r.Payload)
	at := s.clock.Now()
	out := Outcome{Attempt: outbox.Attempt{
		ID:           outbox.NewAttemptID(at),
		Trigger:      r.Trigger,
		At:           at,
		URL:          r.Target.shown,
		RequestBytes: len(r.Payload),
	}}
	f := &flight{began: time.Now()}
	signer, unusable := r.Target.signer(at)
	if unusable != nil {
		s.conclude(&out, *unusable)
		return out
	}
	attemptCtx, cancel := context.WithTimeoutCause(ctx, r.Target.timeout, errOutOfTime)
	defer cancel()

	res, err := s.send(attemptCtx, f, &out, r, signer)
	if err != nil {
		cause := context.Cause(attemptCtx)
		// A dial does not end with the context that asked for it, so its failure is a fact of its own.
		_, undialled := errors.AsType[*egress.DialError](err)
		out.Aborted = !undialled && cause != nil && !errors.Is(cause, errOutOfTime)
		v := s.judgeError(err, f, r.Target, at, cause)
		out.Duration = time.Since(f.began)
		out.Timing = f.timing(err)
		s.conclude(&out, v)
		s.log.DebugContext(ctx, "attempt failed", "event", r.Event, "attempt", out.ID, "kind", out.Kind, "cause", causeOf(err))
		return out
	}
	s.absent.clear(r.Target.host)
	out.CertificateUntil = f.Conn.CertificateUntil()
	out.Opened = f.Conn.Opened()
	s.read(&out, res)
	out.Duration = time.Since(f.began)
	out.Timing = f.timing(nil)
	s.conclude(&out, judgeAnswer(res, r.Target))
	if out.Outcome == outbox.OutcomeTransient {
		out.RetryAfter = parseRetryAfter(res.Header.Get("Retry-After"), at)
	}
	return out
}

// conclude writes a verdict into the outcome.
func (s *Sender) conclude(out *Outcome, v verdict) {
	out.Outcome, out.Kind, out.Message = v.outcome, v.kind, v.message
}

// send builds, signs and sends the request.
func (s *Sender) send(ctx context.Context, f *flight, out *Outcome, r Request, signer *signing.Signer) (*http.Response, error) {
	t := r.Target
	lines := s.own(r, out.At, signer)
	if s.traces {
		lines = append(lines, outbox.Header{Name: "traceparent", Value: outbox.TraceParent(r.Event, out.ID)})
	}
	values := make([]string, len(lines)) // one array behind all the slices of the map
	header := make(http.Header, len(lines)+len(t.header))
	for i, line := range lines {
		values[i] = line.Value
		header[line.Name] = values[i : i+1 : i+1]
	}
	maps.Copy(header, t.header)
	forwarded := s.forwarded(r)
	for _, line := range forwarded {
		header[line.Name] = []string{line.Value}
	}
	out.RequestHeaders = append(lines, t.recordedWith(forwarded)...)
	if via := s.guard.Proxy(); via != "" {
		out.RequestHeaders = append(out.RequestHeaders, outbox.Header{Name: ProxyHeader, Value: via})
	}

	req := http.Request{
		Method:        http.MethodPost,
		URL:           t.url,
		Host:          t.url.Host,
		Proto:         "HTTP/1.1",
		ProtoMajor:    1,
		ProtoMinor:    1,
		Header:        header,
		Body:          http.NoBody,
		ContentLength: int64(len(r.Payload)),
	}
	if len(r.Payload) > 0 {
		// Of a body whose type it knows, net/http knows that it will not have to wait for it, and
		// writes header and body in one. A type of our own costs a second system call.
		req.Body = io.NopCloser(bytes.NewReader(r.Payload))
	}
	return s.guard.RoundTrip(req.WithContext(ctx), t.peer, &f.Trip)
}

// own returns the headers that are ours, and are different in every request.
func (s *Sender) own(r Request, at time.Time, signer *signing.Signer) []outbox.Header {
	m := signing.Message{
		ID:               r.Event.String(),
		Type:             r.EventType,
		At:               at,
		URL:              r.Target.shown,
		Body:             r.Payload,
		EventMetadata:    r.Metadata,
		EndpointMetadata: r.Target.metadata,
	}
	lines := make([]outbox.Header, 0, 7+len(r.Target.recorded))
	lines = append(lines,
		outbox.Header{Name: signature.HeaderID, Value: m.ID},
		outbox.Header{Name: signature.HeaderTimestamp, Value: strconv.FormatInt(at.Unix(), 10)},
	)
	if standard := signer.Standard(&m); standard != "" {
		lines = append(lines, outbox.Header{Name: signature.HeaderSignature, Value: standard})
	}
	lines = append(lines,
		outbox.Header{Name: s.headerEventType, Value: r.EventType},
		outbox.Header{Name: s.headerAttempt, Value: strconv.Itoa(r.N)},
		outbox.Header{Name: s.headerSequence, Value: strconv.FormatInt(r.Sequence, 10)},
	)
	if signer.Plain() {
		return lines
	}
	return signer.Headers(lines, &m)
}

// flight is a request on its way.
type flight struct {
	began time.Time
	egress.Trip
}

// timing says where the time went; err is the error of the request, if any.
func (f *flight) timing(err error) outbox.Timing {
	var t outbox.Timing
	if !f.FirstByte.IsZero() {
		t.FirstByte = f.FirstByte.Sub(f.began)
	}
	var dial egress.Timing
	if failed, ok := errors.AsType[*egress.DialError](err); ok {
		dial = failed.Timing
	} else if f.Conn != nil && !f.Reused {
		dial = f.Conn.Timing()
	}
	t.DNS, t.Connect, t.TLS = dial.DNS, dial.Connect, dial.TLS
	return t
}
