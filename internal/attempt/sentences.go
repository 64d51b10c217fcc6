package attempt

import (
	"net/url"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// cause is why an attempt failed, finer than its kind where another sentence helps more.
type cause string

const (
	refused                 cause = "refused"
	unreachable             cause = "unreachable"
	notConnected            cause = "not connected"
	reset                   cause = "reset"
	resetReused             cause = "reset on a kept connection"
	aborted                 cause = "aborted"
	timeoutConnecting       cause = "timeout connecting"
	timeoutHandshake        cause = "timeout in the handshake"
	timeoutAnswering        cause = "timeout answering"
	nameAbsent              cause = "name absent"
	nameWrong               cause = "name wrong"
	nameTemporary           cause = "name server failed"
	handshakeCut            cause = "handshake cut"
	handshakePlain          cause = "no TLS"
	handshakeFailed         cause = "handshake failed"
	certificateExpired      cause = "certificate expired"
	certificateChainExpired cause = "certificate chain expired"
	certificateEarly        cause = "certificate not yet valid"
	certificateHost         cause = "certificate for another host"
	certificateSelfSigned   cause = "certificate self-signed"
	certificateUnknown      cause = "certificate of unknown authority"
	certificateInvalid      cause = "certificate invalid"
	certificateEnding       cause = "certificate about to expire (no failure yet)"
	clientCertificate       cause = "client certificate demanded"
	clientRefused           cause = "client certificate refused"
	protocol                cause = "protocol"
	protocolSwitched        cause = "switching protocols"
	statusUnknown           cause = "status unknown"
	redirected              cause = "redirect"
	redirectedNowhere       cause = "redirect without location"
	egressDenied            cause = "egress denied"
	configBroken            cause = "configuration broken"
	configURL               cause = "configuration: url"
	configHeader            cause = "configuration: header"
	configSecret            cause = "configuration: secret"
	configScheme            cause = "configuration: signature scheme"
	configCertificate       cause = "configuration: client certificate"
	payloadGone             cause = "payload gone"
	panicked                cause = "panic"
	killing                 cause = "kills the process"

	status400   cause = "400"
	status401   cause = "401"
	status403   cause = "403"
	status404   cause = "404"
	status405   cause = "405"
	status408   cause = "408"
	status409   cause = "409"
	status410   cause = "410"
	status413   cause = "413"
	status415   cause = "415"
	status422   cause = "422"
	status425   cause = "425"
	status429   cause = "429"
	status4xx   cause = "4xx"
	status500   cause = "500"
	status501   cause = "501"
	statusProxy cause = "502, 504"
	status503   cause = "503"
	status505   cause = "505"
	status5xx   cause = "5xx"
)

const (
	transient = outbox.OutcomeTransient
	permanent = outbox.OutcomePermanent
)

// sentences is the table of failures: what each is called, whether another try can help, and the
// one sentence its owner reads, which names the fault and what to do. Placeholders: {host},
// {port}, {timeout} of the endpoint, {status} with its registered name, {location} a redirect's
// origin, {until} and {from} a certificate's dates.
var sentences = map[cause]struct {
	kind     outbox.Kind
	outcome  outbox.Outcome
	sentence string
}{
	refused:           {outbox.KindRefused, transient, "{host} refused the connection on port {port}; check that your server is running and that a firewall lets us in."},
	unreachable:       {outbox.KindRefused, transient, "There is no network route to {host}; check its DNS record and your provider's network."},
	notConnected:      {outbox.KindRefused, transient, "No connection to {host} on port {port} came about; check that your server is running and reachable."},
	reset:             {outbox.KindReset, transient, "{host} closed the connection before answering; look for a crash, a restart or a proxy limit in your server's log at this time."},
	resetReused:       {outbox.KindReset, transient, "{host} closed a kept-alive connection just as it was used again; if this happens often, give your server a longer keep-alive time."},
	aborted:           {outbox.KindReset, transient, "We had to break off this attempt, through no fault of {host}; it is made again."},
	timeoutConnecting: {outbox.KindTimeout, transient, "No connection to {host} came about within {timeout}; check that your server is running and that a firewall does not drop our packets."},
	timeoutHandshake:  {outbox.KindTimeout, transient, "{host} accepted the connection but did not finish the TLS handshake within {timeout}; check the load of your server."},
	timeoutAnswering:  {outbox.KindTimeout, transient, "{host} did not answer within {timeout}; answer first and do the work afterwards, or raise the endpoint's timeout."},

	nameAbsent:    {outbox.KindDNSNotFound, transient, "The name {host} is not in DNS; check the URL for a typing error, or publish the record."},
	nameWrong:     {outbox.KindDNSNotFound, permanent, "The name {host} has not been in DNS for several minutes; correct the URL or publish the record, then replay."},
	nameTemporary: {outbox.KindDNSTemporary, transient, "The DNS servers of {host} did not give an answer; check them with your DNS provider."},

	handshakeCut:    {outbox.KindTLSHandshake, transient, "{host} broke off the TLS handshake; check that it speaks TLS 1.2 or newer for this name on port {port}."},
	handshakePlain:  {outbox.KindTLSHandshake, transient, "{host} does not speak TLS on port {port}; correct the port, set up TLS there, or begin the URL with http://."},
	handshakeFailed: {outbox.KindTLSHandshake, transient, "{host} and we could not agree on a TLS connection; your server must offer TLS 1.2 or newer with a current cipher."},

	certificateExpired:      {outbox.KindTLSCertificate, permanent, "Your certificate for {host} expired on {until}; renew it, then replay."},
	certificateChainExpired: {outbox.KindTLSCertificate, permanent, "A certificate in the chain that {host} sends expired on {until}; install your authority's current chain, then replay."},
	certificateEarly:        {outbox.KindTLSCertificate, permanent, "Your certificate for {host} is valid only from {from} (until {until}); install one that is valid now, then replay."},
	certificateHost:         {outbox.KindTLSCertificate, permanent, "The certificate that {host} sends (valid until {until}) was issued for another name; install one that covers {host}, then replay."},
	certificateSelfSigned:   {outbox.KindTLSCertificate, permanent, "The certificate that {host} sends (valid until {until}) is self-signed; install one from a public authority, then replay."},
	certificateUnknown:      {outbox.KindTLSCertificate, permanent, "The certificate that {host} sends (valid until {until}) comes from an authority that is not publicly trusted, or an intermediate certificate is missing; install the full chain of a public authority, then replay."},
	certificateInvalid:      {outbox.KindTLSCertificate, permanent, "The certificate that {host} sends (valid until {until}) may not be used for a web server; install one issued for that, then replay."},
	certificateEnding:       {outbox.KindTLSCertificate, transient, "Your certificate for {host} expires on {until}; renew it before that, because deliveries stop on the day."},
	clientCertificate:       {outbox.KindTLSClientCertificate, permanent, "{host} demands a client certificate, which the endpoint does not have; set its client_certificate, or take the webhook URL out of that rule and verify our signature instead, then replay."},
	clientRefused:           {outbox.KindTLSClientCertificate, permanent, "{host} does not accept the endpoint's client certificate (valid until {until}); set one that your server trusts, then replay."},

	protocol:         {outbox.KindProtocol, transient, "What {host} sent back is not a complete HTTP answer; check that port {port} is a web server and look into its log at this time."},
	protocolSwitched: {outbox.KindProtocol, transient, "{host} answered 101 and wanted to leave HTTP, which nobody asked for; check what answers at this URL."},
	statusUnknown:    {outbox.KindProtocol, transient, "{host} answered with the status {status}, which HTTP does not know; answer 200 to 299 for success."},

	redirected:        {outbox.KindRedirect, permanent, "Your server answered {status} and points to {location}; redirects are not followed because they lose the event, so set the endpoint's URL to the final address, then replay."},
	redirectedNowhere: {outbox.KindRedirect, permanent, "Your server answered {status}, a redirect, without saying where to; redirects are not followed, so set the endpoint's URL to the final address, then replay."},

	egressDenied:      {outbox.KindEgressDenied, permanent, "{host} is not a destination webhooks may be sent to; use a public address on a port meant for the web, then replay."},
	configBroken:      {outbox.KindConfig, permanent, "The endpoint's stored configuration cannot be used, and its field \"fault\" says why; set that part again, then replay."},
	configURL:         {outbox.KindConfig, permanent, "The endpoint's stored URL cannot be used; correct it, then replay."},
	configHeader:      {outbox.KindConfig, permanent, "One of the endpoint's own headers cannot be sent; correct it, then replay."},
	configSecret:      {outbox.KindConfig, permanent, "The endpoint has no usable signing secret; rotate the secret, then replay."},
	configScheme:      {outbox.KindConfig, permanent, "The endpoint signs with a scheme that is not defined; define it, or choose other schemes for the endpoint, then replay."},
	configCertificate: {outbox.KindConfig, permanent, "The endpoint's client certificate cannot be used; set it again with its private key, then replay."},
	payloadGone:       {outbox.KindPayloadGone, permanent, "The event's payload is no longer kept, so there is nothing to send; publish the event again if it is still needed."},
	panicked:          {outbox.KindPanic, transient, "We failed while handling this delivery, through no fault of yours; it is tried again, and we have been told."},
	killing:           {outbox.KindPanic, permanent, "We failed three times while handling this delivery, through no fault of yours; it is kept, and can be replayed once we have mended that."},

	status400: {outbox.KindHTTPStatus, permanent, "Your server answered {status}: it does not accept this event as it is; its answer says more, so correct the handler, then replay."},
	status401: {outbox.KindHTTPStatus, permanent, "Your server answered {status}: it wants credentials; send them with a header of the endpoint, or verify our signature instead, then replay."},
	status403: {outbox.KindHTTPStatus, permanent, "Your server answered {status}: it, or a firewall before it, does not let us in; allow this URL, then replay."},
	status404: {outbox.KindHTTPStatus, permanent, "Your server answered {status}: nothing takes webhooks at this URL; correct the URL or deploy the handler, then replay."},
	status405: {outbox.KindHTTPStatus, permanent, "Your server answered {status}: this URL does not take POST; correct the URL or the route, then replay."},
	status408: {outbox.KindHTTPStatus, transient, "Your server answered {status}: it waited too long for our request; check its load and its read timeout."},
	status409: {outbox.KindHTTPStatus, transient, "Your server answered {status}: it was busy with something in conflict; answer 2xx for an event you already have."},
	status410: {outbox.KindHTTPStatus, permanent, "Your server answered {status}: it wants no more webhooks at this URL; delete the endpoint, or correct its URL and replay."},
	status413: {outbox.KindHTTPStatus, permanent, "Your server answered {status}: the event is larger than it accepts; raise its limit for this URL, then replay."},
	status415: {outbox.KindHTTPStatus, permanent, "Your server answered {status}: it does not take application/json at this URL; accept it, then replay."},
	status422: {outbox.KindHTTPStatus, permanent, "Your server answered {status}: it does not accept this event's content; its answer says more, so correct the handler, then replay."},
	status425: {outbox.KindHTTPStatus, transient, "Your server answered {status}: it was not ready for this request yet; check what protects it from early data."},
	status429: {outbox.KindHTTPStatus, transient, "Your server answered {status}: it wants fewer requests at a time; raise its limit, or set a lower max_in_flight on the endpoint."},
	status4xx: {outbox.KindHTTPStatus, permanent, "Your server answered {status} and so refused the event; its answer may say more, so correct the handler, then replay."},

	status500:   {outbox.KindHTTPStatus, transient, "Your server answered {status}: the handler failed; look into its log at this time."},
	status501:   {outbox.KindHTTPStatus, permanent, "Your server answered {status}: it cannot do this at all; correct the URL or the handler, then replay."},
	statusProxy: {outbox.KindHTTPStatus, transient, "Your server answered {status}: the proxy in front did not get an answer from your application; check that the application is running."},
	status503:   {outbox.KindHTTPStatus, transient, "Your server answered {status}: it is overloaded or down for maintenance."},
	status505:   {outbox.KindHTTPStatus, permanent, "Your server answered {status}: it does not take HTTP/1.1; allow it, then replay."},
	status5xx:   {outbox.KindHTTPStatus, transient, "Your server answered {status}, an error of its own; look into its log, or that of the proxy in front, at this time."},
}

// statusCause finds the row of a status from 400 to 599.
func statusCause(status int) cause {
	switch status {
	case 400:
		return status400
	case 401, 407:
		return status401
	case 403:
		return status403
	case 404:
		return status404
	case 405:
		return status405
	case 408:
		return status408
	case 409:
		return status409
	case 410:
		return status410
	case 413:
		return status413
	case 415:
		return status415
	case 422:
		return status422
	case 425:
		return status425
	case 429:
		return status429
	case 500:
		return status500
	case 501:
		return status501
	case 502, 504:
		return statusProxy
	case 503:
		return status503
	case 505:
		return status505
	}
	if status < 500 {
		return status4xx
	}
	return status5xx
}

// PayloadGone returns the outcome of a delivery whose event's bytes are no longer kept, in the
// form of an attempt that was not made.
func PayloadGone() (outbox.Outcome, outbox.Kind, string) { return fixed(payloadGone) }

// Panicked returns the outcome of an attempt that ended in a panic of ours.
func Panicked() (outbox.Outcome, outbox.Kind, string) { return fixed(panicked) }

// Killing returns the outcome of a delivery that is given up because handling it ends the
// process, in the form of an attempt that was not made.
func Killing() (outbox.Outcome, outbox.Kind, string) { return fixed(killing) }

// BrokenOff returns the outcome of an attempt that our own process had to be ended in.
func (t *Target) BrokenOff() (outbox.Outcome, outbox.Kind, string) {
	v := t.verdict(aborted)
	return v.outcome, v.kind, v.message
}

func fixed(c cause) (outbox.Outcome, outbox.Kind, string) {
	row := sentences[c]
	return row.outcome, row.kind, row.sentence
}

// CertificateEnds says, as a failure would, that the certificate of an endpoint's server is about
// to expire.
func CertificateEnds(endpointURL string, until time.Time) (outbox.Kind, string) {
	t := &Target{}
	if u, err := url.Parse(endpointURL); err == nil {
		t.host = u.Hostname()
	}
	v := t.verdict(certificateEnding, "{until}", until.UTC().Format(sentenceDay))
	return v.kind, v.message
}
