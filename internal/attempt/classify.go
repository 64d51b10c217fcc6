package attempt

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/waybill-dev/waybill/internal/egress"
	"github.com/waybill-dev/waybill/internal/outbox"
)

// verdict is what an attempt's end means.
type verdict struct {
	outcome outbox.Outcome
	kind    outbox.Kind
	message string
}

// verdict fills a row of the table of sentences with this target's facts and those given, as
// pairs of placeholder and text.
func (t *Target) verdict(c cause, facts ...string) verdict {
	row := sentences[c]
	host := t.host
	if host == "" {
		host = "This URL" // one that was never read so far
	}
	facts = append(facts, "{host}", host, "{port}", t.port, "{timeout}", seconds(t.timeout))
	return verdict{row.outcome, row.kind, strings.NewReplacer(facts...).Replace(row.sentence)}
}

// seconds writes a time-out with three digits, and never with an exponent.
func seconds(d time.Duration) string {
	n := strconv.FormatFloat(d.Seconds(), 'g', 3, 64)
	if rounded, err := strconv.ParseFloat(n, 64); err == nil {
		n = strconv.FormatFloat(rounded, 'f', -1, 64)
	}
	if n == "1" {
		return "1 second"
	}
	return n + " seconds"
}

func delivered(status int) bool { return status >= 200 && status <= 299 }

// judgeAnswer says what a status line means.
func judgeAnswer(res *http.Response, t *Target) verdict {
	status := res.StatusCode
	if delivered(status) {
		return verdict{outcome: outbox.OutcomeDelivered}
	}
	facts := []string{"{status}", statusName(status)}
	var v verdict
	switch {
	case status == http.StatusSwitchingProtocols:
		return t.verdict(protocolSwitched)
	case status < 200 || status > 599:
		return t.verdict(statusUnknown, facts...)
	case status < 400:
		if origin := locationOrigin(res); origin != "" {
			v = t.verdict(redirected, append(facts, "{location}", origin)...)
		} else {
			v = t.verdict(redirectedNowhere, facts...)
		}
	default:
		v = t.verdict(statusCause(status), facts...)
	}
	if v.outcome == outbox.OutcomePermanent && t.retry.Retries(status) {
		v.outcome = outbox.OutcomeTransient
	}
	return v
}

// statusName is the code with its registered name; what the server wrote beside the code is the
// server's and is not repeated.
func statusName(status int) string {
	name := http.StatusText(status)
	if name == "" {
		return strconv.Itoa(status)
	}
	return strconv.Itoa(status) + " " + name
}

// locationOrigin returns where a redirect points: scheme and host alone, since the rest may hold
// a token.
func locationOrigin(res *http.Response) string {
	location := res.Header.Get("Location")
	if location == "" || res.Request == nil {
		return ""
	}
	u, err := res.Request.URL.Parse(location)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return ""
	}
	origin := (&url.URL{Scheme: u.Scheme, Host: u.Host}).String()
	if len(origin) > 300 {
		return ""
	}
	return printable(origin)
}

// judgeError says what it means that no answer came. cause is why the attempt's context ended,
// nil if it has not.
func (s *Sender) judgeError(err error, f *flight, t *Target, at time.Time, cause error) verdict {
	dial, isDial := errors.AsType[*egress.DialError](err)
	if isDial && dial.NoSuchHost() {
		if s.absent.note(t.host, at) {
			return t.verdict(nameWrong)
		}
		return t.verdict(nameAbsent)
	}
	if f.Conn != nil || isDial && dial.Step > egress.StepLookup {
		s.absent.clear(t.host)
	}
	switch {
	case isDial:
		return judgeDial(dial, t)
	case errors.Is(cause, errOutOfTime):
		if f.Conn == nil {
			return t.verdict(timeoutConnecting)
		}
		return t.verdict(timeoutAnswering)
	case cause != nil:
		return t.verdict(aborted)
	case alert(err) == alertCertificateRequired || f.Conn != nil && f.Conn.CertificateAsked() && refusesClient(alert(err)):
		return t.turnedAway()
	case brokenOff(err):
		if f.Reused {
			return t.verdict(resetReused)
		}
		return t.verdict(reset)
	case isTimeout(err):
		return t.verdict(timeoutAnswering)
	}
	return t.verdict(protocol)
}

func judgeDial(dial *egress.DialError, t *Target) verdict {
	switch dial.Step {
	case egress.StepPolicy:
		return t.verdict(egressDenied)
	case egress.StepLookup:
		return t.verdict(nameTemporary)
	case egress.StepTLS:
		return judgeTLS(dial, t)
	}
	switch err := dial.Err; {
	case errors.Is(err, syscall.ECONNREFUSED):
		return t.verdict(refused)
	case isTimeout(err):
		return t.verdict(timeoutConnecting)
	case brokenOff(err):
		return t.verdict(reset)
	case errors.Is(err, syscall.EHOSTUNREACH) || errors.Is(err, syscall.ENETUNREACH):
		return t.verdict(unreachable)
	}
	return t.verdict(notConnected)
}

func judgeTLS(dial *egress.DialError, t *Target) verdict {
	err := dial.Err
	if cert, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return judgeCertificate(cert, t)
	}
	code := alert(err)
	switch {
	case code == alertCertificateRequired || dial.CertificateAsked && refusesClient(code):
		return t.turnedAway()
	case isTimeout(err):
		return t.verdict(timeoutHandshake)
	case brokenOff(err) || errors.Is(err, io.ErrUnexpectedEOF):
		return t.verdict(handshakeCut)
	}
	if _, plain := errors.AsType[tls.RecordHeaderError](err); plain {
		return t.verdict(handshakePlain)
	}
	return t.verdict(handshakeFailed)
}

func judgeCertificate(err *tls.CertificateVerificationError, t *Target) verdict {
	const day = sentenceDay
	facts := []string{"{until}", "an unknown date"}
	var leaf *x509.Certificate
	if len(err.UnverifiedCertificates) > 0 {
		leaf = err.UnverifiedCertificates[0]
		facts[1] = leaf.NotAfter.UTC().Format(day)
	}
	if invalid, ok := errors.AsType[x509.CertificateInvalidError](err); ok {
		switch {
		case invalid.Reason != x509.Expired || invalid.Cert == nil:
			return t.verdict(certificateInvalid, facts...)
		case time.Now().Before(invalid.Cert.NotBefore):
			return t.verdict(certificateEarly, append(facts, "{from}", invalid.Cert.NotBefore.UTC().Format(day))...)
		case leaf != nil && !invalid.Cert.Equal(leaf):
			return t.verdict(certificateChainExpired, "{until}", invalid.Cert.NotAfter.UTC().Format(day))
		}
		return t.verdict(certificateExpired, facts...)
	}
	if _, ok := errors.AsType[x509.HostnameError](err); ok {
		return t.verdict(certificateHost, facts...)
	}
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		if leaf != nil && bytes.Equal(leaf.RawIssuer, leaf.RawSubject) {
			return t.verdict(certificateSelfSigned, facts...)
		}
		return t.verdict(certificateUnknown, facts...)
	}
	return t.verdict(certificateInvalid, facts...)
}

// turnedAway says that the server wants to know who asks.
func (t *Target) turnedAway() verdict {
	if c := t.peer.Certificate; c != nil && c.Leaf != nil {
		return t.verdict(clientRefused, "{until}", c.Leaf.NotAfter.UTC().Format(sentenceDay))
	}
	return t.verdict(clientCertificate)
}

// sentenceDay is how a sentence writes a date.
const sentenceDay = "2 Jan 2006"

// TLS alerts (RFC 8446, section 6) by which servers turn away clients without a certificate.
const (
	alertHandshakeFailure    = 40
	alertBadCertificate      = 42
	alertCertificateUnknown  = 46
	alertUnknownCA           = 48
	alertAccessDenied        = 49
	alertCertificateRequired = 116
)

func refusesClient(code int) bool {
	switch code {
	case alertHandshakeFailure, alertBadCertificate, alertCertificateUnknown, alertUnknownCA, alertAccessDenied, alertCertificateRequired:
		return true
	}
	return false
}

// alert returns the code of the TLS alert the server sent, or 0. crypto/tls keeps the type of a
// received alert to itself; its text is that of the exported tls.AlertError of the same code.
func alert(err error) int {
	op, ok := errors.AsType[*net.OpError](err)
	if !ok || op.Op != "remote error" {
		return 0
	}
	for _, code := range []int{alertHandshakeFailure, alertBadCertificate, alertCertificateUnknown, alertUnknownCA, alertAccessDenied, alertCertificateRequired} {
		if op.Err.Error() == tls.AlertError(code).Error() {
			return code
		}
	}
	return 0
}

// brokenOff reports that the other side closed the connection instead of answering.
func brokenOff(err error) bool {
	return errors.Is(err, io.EOF) ||
		errors.Is(err, syscall.ECONNRESET) ||
		errors.Is(err, syscall.EPIPE) ||
		errors.Is(err, syscall.ECONNABORTED)
}

func isTimeout(err error) bool {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, syscall.ETIMEDOUT) {
		return true
	}
	timeout, ok := errors.AsType[net.Error](err)
	return ok && timeout.Timeout()
}
