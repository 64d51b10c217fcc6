package portal

import (
	"encoding/base64"
	"net/http"
	"net/textproto"
	"slices"
	"strings"
	"time"

	"github.com/waybill-dev/waybill/internal/client"
)

// credentialForm is the part of an endpoint's form about what its server lets us in by. What is
// typed into it is never put back into a page, nor is what is stored: there are names alone.
type credentialForm struct {
	Known       []string            // names of the secret headers there are
	Certificate *client.Certificate // that there is; nil: none
	Again       bool                // something was typed that is to be typed again

	lines, user, password, token string
	chain, key                   string
	remove                       []string // names of headers
	removeCertificate, forget    bool
}

func credentialsOf(e *client.Endpoint) credentialForm {
	return credentialForm{Known: e.SecretHeaders, Certificate: e.Certificate}
}

// readCredentials takes what was typed.
func (v *Visit) readCredentials() credentialForm {
	return credentialForm{
		lines: v.PostFormValue("secret_headers"), user: v.PostFormValue("auth_user"), password: v.PostFormValue("auth_password"),
		token: strings.TrimSpace(v.PostFormValue("auth_token")), chain: strings.TrimSpace(v.PostFormValue("certificate")), key: strings.TrimSpace(v.PostFormValue("private_key")),
		remove: v.PostForm["remove_secret"], removeCertificate: v.PostFormValue("remove_certificate") != "", forget: v.PostFormValue("drop_secret_headers") != "",
	}
}

// shown is the form after a fault: with what is stored, and without what was typed.
func (f credentialForm) shown(before *client.Endpoint) credentialForm {
	again := credentialForm{Again: f.lines != "" || f.user != "" || f.password != "" || f.token != "" || f.key != "" || f.chain != ""}
	if before != nil {
		again.Known, again.Certificate = before.SecretHeaders, before.Certificate
	}
	return again
}

// into adds to a request what the form means. before is the endpoint it is about, nil of a new one.
func (f *credentialForm) into(request map[string]any, before *client.Endpoint) error {
	wrong := func(field, detail string) error {
		return &client.Error{Status: http.StatusUnprocessableEntity, Items: []client.Item{{Path: field, Detail: detail}}}
	}
	typed, err := headerLines(f.lines, "secret_headers")
	if err != nil {
		return err
	}
	headers := map[string]any{}
	for name, value := range typed {
		headers[textproto.CanonicalMIMEHeaderKey(name)] = value
	}
	const authorization = "Authorization"
	switch basic := f.user != "" || f.password != ""; {
	case basic && f.token != "":
		return wrong("secret_headers", "want a user name and password, or a token, not both")
	case (basic || f.token != "") && headers[authorization] != nil:
		return wrong("secret_headers", "Authorization is among the other secret headers, and a user name or a token makes one too: want one of them")
	case strings.Contains(f.user, ":"):
		return wrong("secret_headers", "a user name for Basic authentication has no colon")
	case basic:
		headers[authorization] = "Basic " + base64.StdEncoding.EncodeToString([]byte(f.user+":"+f.password))
	case f.token != "":
		headers[authorization] = "Bearer " + f.token
	}
	if before != nil {
		for _, name := range f.remove {
			canonical := textproto.CanonicalMIMEHeaderKey(name)
			if _, typed := headers[canonical]; !typed && slices.Contains(before.SecretHeaders, name) {
				headers[name] = nil // a PATCH takes it away by null
			}
		}
		if f.forget {
			request["drop_secret_headers"] = true
		}
	}
	if len(headers) > 0 {
		request["secret_headers"] = headers
	}
	switch {
	case f.chain != "" || f.key != "":
		request["client_certificate"] = map[string]string{"certificate": f.chain, "private_key": f.key}
	case f.removeCertificate && before != nil:
		request["client_certificate"] = nil
	}
	return nil
}

// headerLines reads one header a line, written as Name: value.
func headerLines(text, field string) (map[string]any, error) {
	headers := map[string]any{}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		name, value, is := strings.Cut(line, ":")
		if !is {
			return nil, &client.Error{Status: http.StatusUnprocessableEntity, Items: []client.Item{{Path: field, Detail: "want one header a line, written as Name: value"}}}
		}
		headers[strings.TrimSpace(name)] = strings.TrimSpace(value)
	}
	return headers, nil
}

// Ended reports whether the certificate that is shown to servers is no longer good.
func (f credentialForm) Ended(now time.Time) bool {
	return f.Certificate != nil && !f.Certificate.NotAfter.After(now)
}
