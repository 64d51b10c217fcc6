package portal

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/waybill-dev/waybill/internal/client"
)

// faults are what the API refused in a form, by field.
type faults map[string]string

// formSentences stand for refusals that name what a request has and a form has not.
var formSentences = map[string]string{
	"secret_headers_required": "The URL is of another server now: type the secret headers again, or choose to forget them all.",
}

// faultsOf returns them, nil for an error that is not about fields. What is about a field the form
// does not have stands above all of them, under "".
func faultsOf(err error, fields ...string) faults {
	refused, is := errors.AsType[*client.Error](err)
	if !is || refused.Status != http.StatusUnprocessableEntity && refused.Status != http.StatusConflict && refused.Status != http.StatusRequestEntityTooLarge {
		return nil
	}
	found := faults{}
	for _, item := range refused.Items {
		field, _, _ := strings.Cut(item.Path, ".")
		field, _, _ = strings.Cut(field, "[")
		said := sentence(item.Detail)
		if own := formSentences[item.Code]; own != "" {
			said = own
		}
		if !slices.Contains(fields, field) && field != "" {
			field, said = "", sentence(item.Path+": "+item.Detail)
		}
		if found[field] == "" {
			found[field] = said
		}
	}
	if len(found) == 0 {
		found[""] = sentence(refused.Detail)
	}
	return found
}

// endpointFields are those of the form.
var endpointFields = []string{"url", "description", "event_types", "timeout_seconds", "rate_limit", "ordering", "headers", "secret_headers", "client_certificate"}

// endpointForm is the form that makes or changes an endpoint, with what is in its fields.
type endpointForm struct {
	ID          string // "" where the endpoint is new
	URL         string
	Description string
	EventTypes  string // one a line
	Headers     string // one a line, name: value
	Timeout     string
	Rate        string // requests a second; "" for no limit
	Ordering    string
	Draft       bool // of a new one: nothing is sent but test events, until somebody starts it
	Credentials credentialForm
	Faults      faults
	Action      string
	Cancel      string
}

func formOf(e client.Endpoint) endpointForm {
	f := endpointForm{
		ID: e.ID, URL: e.URL, Description: e.Description, EventTypes: strings.Join(e.EventTypes, "\n"),
		Timeout: fmt.Sprint(e.TimeoutSeconds), Ordering: e.Ordering, Credentials: credentialsOf(&e),
	}
	var names []string
	for name := range e.Headers {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		f.Headers += name + ": " + e.Headers[name] + "\n"
	}
	if r := e.RateLimit; r != nil {
		f.Rate = fmt.Sprintf("%g", float64(r.Count)/r.PerSeconds)
	}
	return f
}

func (c *customer) newEndpoint(v *Visit) error {
	return c.showForm(v, endpointForm{EventTypes: "*", Timeout: "10", Ordering: "none"}, http.StatusOK)
}

func (c *customer) editEndpoint(v *Visit) error {
	e, err := Ask[client.Endpoint](v, v.tenantPath("endpoints", v.PathValue("ep")), nil)
	if err != nil {
		return err
	}
	return c.showForm(v, formOf(e), http.StatusOK)
}

func (c *customer) showForm(v *Visit, f endpointForm, status int) error {
	title := "Add an endpoint"
	f.URL = withoutUser(f.URL)
	f.Action, f.Cancel = v.at("endpoints"), v.at("endpoints")
	if f.ID != "" {
		title = "Edit an endpoint"
		f.Action, f.Cancel = v.at("endpoints", f.ID, "edit"), v.at("endpoints", f.ID)
	}
	return v.Show(Page{Name: "endpointform", Title: title, Section: sectionEndpoints, Status: status, Data: f})
}

// withoutUser is an address, or what was typed as one, without the user name and password in it:
// they are refused, and no page gives a password back. Whatever may be one goes, since a password
// may hold what ends an authority.
func withoutUser(address string) string {
	start := 0
	if i := strings.Index(address, "//"); i >= 0 {
		start = i + len("//")
	}
	rest := address[start:]
	authority := rest
	if i := strings.IndexAny(rest, "/?#\\"); i >= 0 {
		authority = rest[:i]
	}
	end := strings.LastIndex(authority, "@")
	if _, port, has := strings.Cut(authority, ":"); end < 0 && has && strings.Trim(port, "0123456789") != "" && !strings.HasPrefix(authority, "[") {
		end = strings.LastIndex(rest, "@")
	}
	return address[:start] + rest[end+1:]
}

// read takes what was typed.
func (v *Visit) endpointForm() endpointForm {
	return endpointForm{
		ID:          v.PathValue("ep"),
		URL:         strings.TrimSpace(v.PostFormValue("url")),
		Description: strings.TrimSpace(v.PostFormValue("description")),
		EventTypes:  v.PostFormValue("event_types"),
		Headers:     v.PostFormValue("headers"),
		Timeout:     strings.TrimSpace(v.PostFormValue("timeout_seconds")),
		Rate:        strings.TrimSpace(v.PostFormValue("rate")),
		Ordering:    v.PostFormValue("ordering"),
		Draft:       v.PostFormValue("state") == "draft",
		Credentials: v.readCredentials(),
	}
}

// body is the request that the form means. Whether its values are good the API says; here is only
// what cannot be written as JSON.
func (f *endpointForm) body(before *client.Endpoint) ([]byte, error) {
	request := map[string]any{
		"url": f.URL, "description": f.Description, "event_types": types(f.EventTypes),
		"timeout_seconds": json.RawMessage(jsonNumber(f.Timeout)),
	}
	if f.Ordering != "" {
		request["ordering"] = f.Ordering
	}
	if f.Rate != "" {
		request["rate_limit"] = map[string]any{"count": json.RawMessage(jsonNumber(f.Rate)), "per_seconds": 1}
	} else {
		request["rate_limit"] = nil
	}
	// A PATCH merges headers: one that is no longer in the form is taken away by null.
	headers := map[string]any{}
	if before != nil {
		for name := range before.Headers {
			headers[name] = nil
		}
	}
	typed, err := headerLines(f.Headers, "headers")
	if err != nil {
		return nil, err
	}
	for name, value := range typed {
		for known := range headers {
			if strings.EqualFold(known, name) {
				delete(headers, known)
			}
		}
		headers[name] = value
	}
	request["headers"] = headers
	if before == nil && len(headers) == 0 {
		delete(request, "headers")
	}
	if before == nil && f.Draft {
		request["state"] = "draft"
	}
	if err := f.Credentials.into(request, before); err != nil {
		return nil, err
	}
	return json.Marshal(request)
}

// types reads one pattern a line, or several with commas between.
func types(text string) []string {
	out := []string{}
	for _, s := range strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == '\n' || r == '\r' || r == ' ' || r == '\t' }) {
		out = append(out, s)
	}
	return out
}

func (c *customer) addEndpoint(v *Visit) error {
	f := v.endpointForm()
	body, err := f.body(nil)
	var made client.Endpoint
	if err == nil {
		made, err = Tell[client.Endpoint](v.Context(), v.write(), "POST", v.tenantPath("endpoints"), body, v.Key())
	}
	if f.Faults = faultsOf(err, endpointFields...); f.Faults != nil {
		f.Credentials = f.Credentials.shown(nil)
		return c.showForm(v, f, http.StatusUnprocessableEntity)
	}
	if err != nil {
		return err
	}
	return c.showSecret(v, made, made.Secret, nil, true)
}

func (c *customer) changeEndpoint(v *Visit) error {
	f := v.endpointForm()
	before, err := Ask[client.Endpoint](v, v.tenantPath("endpoints", f.ID), nil)
	if err != nil {
		return err
	}
	body, err := f.body(&before)
	if err == nil {
		_, err = Tell[client.Endpoint](v.Context(), v.write(), "PATCH", v.tenantPath("endpoints", f.ID), body, "")
	}
	if f.Faults = faultsOf(err, endpointFields...); f.Faults != nil {
		f.Credentials = f.Credentials.shown(&before)
		return c.showForm(v, f, http.StatusUnprocessableEntity)
	}
	if err != nil {
		return err
	}
	return v.Redirect(v.at("endpoints", f.ID), "Saved. The next attempt goes by it.")
}
