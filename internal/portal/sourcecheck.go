package portal

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/waybill-dev/waybill/internal/client"
)

// sourceCheck is the part of a source's form that says how a request is checked: all of it for the
// provider custom, and of another what only its user knows.
type sourceCheck struct {
	Signed, Header, Form, Algorithm    string
	IDHeader, TimeHeader, SecretPrefix string
	Milliseconds                       bool
	Encodings                          []string // ways to read a secret that are ticked
	Tolerance                          string   // seconds, as typed
	PublicURL                          string
	challengeToken                     string // never put back into a page
}

func (v *Visit) sourceCheck() sourceCheck {
	typed := func(name string) string { return strings.TrimSpace(v.PostFormValue(name)) }
	return sourceCheck{
		Signed: typed("signed"), Header: typed("header"), Form: typed("form"), Algorithm: typed("algorithm"),
		IDHeader: typed("signed_id_header"), TimeHeader: typed("time_header"), SecretPrefix: typed("secret_prefix"),
		Milliseconds: typed("milliseconds") != "", Encodings: v.PostForm["secret_encodings"],
		Tolerance: typed("tolerance_seconds"), PublicURL: typed("public_url"), challengeToken: typed("challenge_token"),
	}
}

// checkOf fills the form with how a source checks.
func checkOf(c *client.SourceCheck) sourceCheck {
	if c == nil {
		return sourceCheck{}
	}
	check := sourceCheck{
		Signed: c.Signed, Header: c.Header, Form: c.Form, Algorithm: c.Algorithm,
		IDHeader: c.IDHeader, TimeHeader: c.TimeHeader, SecretPrefix: c.SecretPrefix,
		Milliseconds: c.Milliseconds, Encodings: c.SecretEncodings, PublicURL: c.PublicURL,
	}
	if c.ToleranceSeconds > 0 {
		check.Tolerance = strconv.FormatFloat(c.ToleranceSeconds, 'f', -1, 64)
	}
	return check
}

// Reads reports whether secrets are read in a way.
func (c sourceCheck) Reads(encoding string) bool { return slices.Contains(c.Encodings, encoding) }

// More reports whether any of what is seldom needed is filled in.
func (c sourceCheck) More() bool {
	return c.IDHeader != "" || c.TimeHeader != "" || c.Milliseconds
}

// request is how the API is to check from now on; nil where that is as the provider says. had says
// that the source has a check of its own, which this one replaces.
func (c sourceCheck) request(custom, had bool) map[string]any {
	request := map[string]any{}
	set := func(name, value string) {
		if value != "" {
			request[name] = value
		}
	}
	set("public_url", c.PublicURL)
	set("challenge_token", c.challengeToken)
	set("secret_prefix", c.SecretPrefix)
	if len(c.Encodings) > 0 {
		request["secret_encodings"] = c.Encodings
	}
	if c.Tolerance != "" {
		request["tolerance_seconds"] = json.RawMessage(jsonNumber(c.Tolerance))
	}
	if custom {
		set("signed", c.Signed)
		set("header", c.Header)
		set("form", c.Form)
		set("algorithm", c.Algorithm)
		set("id_header", c.IDHeader)
		set("time_header", c.TimeHeader)
		if c.Milliseconds {
			request["milliseconds"] = true
		}
	}
	if len(request) == 0 && !had {
		return nil
	}
	return request
}
