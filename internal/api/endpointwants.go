package api

import (
	"errors"
	"net/textproto"
	"net/url"

	"github.com/danielgtaylor/huma/v2"

	"github.com/waybill-dev/waybill/internal/attempt"
	"github.com/waybill-dev/waybill/internal/filter"
	"github.com/waybill-dev/waybill/internal/outbox"
)

// wantFields are what an endpoint's server wants to see and to get.
var wantFields = []field[endpointEdit]{
	{
		name: "secret_headers", about: "Sent with every delivery like headers, and never shown: Authorization with Basic or Bearer credentials, an API key. A new origin in url clears them unless they are sent again.",
		schema: textMapSchema(maxHeaders),
		set:    setSecretHeaders,
		reset: func(e *endpointEdit) {
			e.Credentials.Headers, e.sentAgain, e.secretHeadersGiven = nil, nil, true
		},
	},
	{
		name: "drop_secret_headers", about: "true: a new origin in url clears the secret headers.", schema: &huma.Schema{Type: huma.TypeBoolean},
		set: func(e *endpointEdit, v value) {
			if b, ok := v.boolean(); ok {
				e.dropSecretHeaders = b
			}
		},
		reset: func(e *endpointEdit) { e.dropSecretHeaders = false },
	},
	{
		name: "client_certificate", about: "Shown to a server that asks for one (mTLS).", schema: describe("ClientCertificateInput", certificateFields),
		set:   setClientCertificate,
		reset: func(e *endpointEdit) { e.Credentials.Certificate, e.Credentials.Key = "", "" },
	},
	{
		name: "filter", about: `Which payloads the endpoint wants, such as {"data":{"amount":{"$gt":100}}}; null: all. See the documentation for the operators.`,
		schema: &huma.Schema{Type: huma.TypeObject, AdditionalProperties: true},
		set: func(e *endpointEdit, v value) {
			if _, err := filter.Compile(v.raw); err != nil {
				if fault, ok := errors.AsType[*filter.Error](err); ok && fault.Path != "" {
					v = v.at(join(v.path, fault.Path), v.raw)
					v.invalid("%s", fault.Detail)
				} else {
					v.invalid("%s", err)
				}
				return
			}
			e.Filter = string(v.raw)
		},
		reset: func(e *endpointEdit) { e.Filter = "" },
	},
	{
		name: "payload_mode", about: "full: deliveries carry the payload. thin: they carry a signed address where it can be fetched for a while.",
		schema: wordsSchema(string(outbox.PayloadFull), string(outbox.PayloadThin)),
		set: func(e *endpointEdit, v value) {
			if s, ok := v.oneOf(string(outbox.PayloadFull), string(outbox.PayloadThin)); ok {
				e.PayloadMode = outbox.PayloadMode(s)
			}
		},
		reset: func(e *endpointEdit) { e.PayloadMode = outbox.PayloadFull },
	},
	{
		name: "thin_ttl_seconds", about: "How long the address in a thin delivery answers.",
		schema: rangeSchema(huma.TypeNumber, outbox.MinThinTTL.Seconds(), outbox.MaxThinTTL.Seconds(), outbox.DefaultThinTTL.Seconds()),
		set: func(e *endpointEdit, v value) {
			setSeconds(&e.ThinTTL, v, outbox.MinThinTTL.Seconds(), outbox.MaxThinTTL.Seconds())
		},
		reset: func(e *endpointEdit) { e.ThinTTL = 0 },
	},
}

// givenCertificate is the object client_certificate.
type givenCertificate struct{ chain, key string }

const maxPEM = 64 << 10

var certificateFields = []field[givenCertificate]{
	{
		name: "certificate", about: "The chain in PEM, the endpoint's own certificate first.", required: true, schema: textSchema(maxPEM),
		set: func(c *givenCertificate, v value) { setText(&c.chain, v, maxPEM) },
	},
	{
		name: "private_key", about: "Its key in PEM. It is never shown.", required: true,
		schema: &huma.Schema{Type: huma.TypeString, WriteOnly: true},
		set:    func(c *givenCertificate, v value) { setText(&c.key, v, maxPEM) },
	},
}

func setClientCertificate(e *endpointEdit, v value) {
	before := len(*v.items)
	var given givenCertificate
	v.merge = false
	fill(v, certificateFields, &given)
	if len(*v.items) > before {
		return
	}
	if _, err := attempt.ClientCertificate(given.chain, given.key); err != nil {
		part := "certificate"
		if errors.Is(err, attempt.ErrCertificateKey) {
			part = "private_key"
		}
		v.at(join(v.path, part), nil).invalid("%s", err)
		return
	}
	e.Credentials.Certificate, e.Credentials.Key = given.chain, given.key
}

func setSecretHeaders(e *endpointEdit, v value) {
	merged, ok := v.textMap(e.Credentials.Headers, maxHeaders, maxHeaderValue, textproto.CanonicalMIMEHeaderKey)
	if !ok {
		return
	}
	given, _ := v.textMap(nil, maxHeaders, maxHeaderValue, textproto.CanonicalMIMEHeaderKey)
	checked, err := e.guard.CheckHeaders(merged)
	if err != nil {
		v.bad(CodeInvalidHeader, "%s", err)
		return
	}
	if e.sentAgain, err = e.guard.CheckHeaders(given); err != nil {
		v.bad(CodeInvalidHeader, "%s", err)
		return
	}
	e.Credentials.Headers, e.secretHeadersGiven = checked, true
}

// settle judges the fields together, once all of them are read.
func (e *endpointEdit) settle() error {
	var items []Item
	bad := func(path string, code Code, format string, args ...any) {
		value{path: path, items: &items}.bad(code, format, args...)
	}
	// Whoever may change the URL must not be able to have the credentials sent to a server of
	// their own.
	if e.exists && originOf(e.urlBefore) != originOf(e.URL) {
		switch {
		case e.secretHeadersGiven:
			e.Credentials.Headers = e.sentAgain
		case e.dropSecretHeaders:
			e.Credentials.Headers = nil
		case len(e.Credentials.Headers) > 0:
			bad("secret_headers", CodeSecretHeadersRequired, "the URL has another origin; send the secret headers again, or drop_secret_headers: true")
		}
	}
	e.settleSigning(bad)
	if len(items) > 0 {
		return failItems(items)
	}
	return nil
}

// originOf is where a URL's requests go: scheme, host and port.
func originOf(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return raw
	}
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return u.Scheme + "://" + u.Hostname() + ":" + port
}
