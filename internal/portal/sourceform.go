package portal

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"github.com/waybill-dev/waybill/internal/client"
	"github.com/waybill-dev/waybill/internal/inbound"
)

// sourceForm is the form that makes or changes a source, with what is in its fields. A secret is
// never put back into a page.
type sourceForm struct {
	New                               bool
	Name, Provider, Tenant, EventType string
	IDHeader, IDPointer               string
	Providers                         []string
	Custom                            bool // the provider is custom
	Check                             sourceCheck
	Was                               *client.SourceCheck // how the source checks; nil: as its provider says
	Faults                            faults
	Action, Cancel                    string
	secret                            string
	before                            *client.SourcePlace // where ids were
}

var sourceFormFields = []string{"source", "provider", "tenant", "event_type", "secrets", "verify", "id"}

func (v *Visit) sourceForm() sourceForm {
	typed := func(name string) string { return strings.TrimSpace(v.PostFormValue(name)) }
	return sourceForm{
		Name: typed("source"), Provider: typed("provider"), Tenant: typed("tenant"), EventType: typed("event_type"), secret: typed("secret"),
		IDHeader: typed("id_header"), IDPointer: typed("id_pointer"), Check: v.sourceCheck(),
	}
}

func (o *operator) newSource(v *Visit) error {
	return o.showSourceForm(v, sourceForm{New: true, Provider: "stripe", Tenant: v.URL.Query().Get("tenant"), EventType: "{topic}", Check: sourceCheck{Signed: "{body}", Form: "{hex}", Algorithm: "sha256"}}, http.StatusOK)
}

func (o *operator) showSourceForm(v *Visit, f sourceForm, status int) error {
	f.Providers, f.Custom = inbound.Providers(), f.Provider == inbound.Custom
	title := "Add a source"
	f.Action, f.Cancel = v.Path("sources"), v.Path("sources")
	if !f.New {
		title = "Edit a source"
		f.Action, f.Cancel = v.Path("sources", f.Name, "edit"), v.Path("sources", f.Name)
	}
	return v.Show(Page{Name: "sourceform", Title: title, Section: sectionSources, Status: status, Data: f})
}

// body is the request that the form means; what is good the API says.
func (f *sourceForm) body() ([]byte, error) {
	request := map[string]any{"tenant": f.Tenant, "event_type": nil}
	if f.EventType != "" {
		request["event_type"] = f.EventType
	}
	if f.New {
		request["provider"], request["secrets"] = f.Provider, []string{f.secret}
	}
	if check := f.Check.request(f.Provider == inbound.Custom, f.Was != nil); check != nil {
		request["verify"] = check
	}
	place := map[string]any{}
	if f.IDHeader != "" {
		place["header"] = f.IDHeader
	}
	if f.IDPointer != "" {
		place["pointer"] = f.IDPointer
	}
	switch {
	case len(place) > 0 && f.before != nil && f.before.BodyWithinSeconds > 0:
		place["body_within_seconds"] = f.before.BodyWithinSeconds
		request["id"] = place
	case len(place) > 0:
		request["id"] = place
	case f.before != nil && f.before.BodyWithinSeconds == 0:
		request["id"] = nil // the fields were emptied
	}
	return json.Marshal(request)
}

// makeSecret makes one where the provider lets its customers choose: 52 letters and digits, which
// also are base64, for those that read it as such.
func makeSecret() string { return rand.Text() + rand.Text() }

func (o *operator) addSource(v *Visit) error {
	f := v.sourceForm()
	f.New = true
	refuse := func(found faults) error {
		f.Faults = found
		return o.showSourceForm(v, f, http.StatusUnprocessableEntity)
	}
	if f.Name == "" {
		return refuse(faults{"source": "Every source has a name: the last part of its address."})
	}
	path := client.Path("v1", "sources", f.Name)
	if _, err := Ask[client.Source](v, path, nil); err == nil {
		return refuse(faults{"source": "There is a source with this name already."})
	}
	made := f.secret == ""
	if made {
		f.secret = makeSecret()
	}
	body, err := f.body()
	if err != nil {
		return err
	}
	s, err := Tell[client.Source](v.Context(), v.write(), http.MethodPut, path, body, "")
	if found := faultsOf(err, sourceFormFields...); found != nil {
		if made && found["secrets"] != "" {
			found["secrets"] = "This provider makes the secret itself: paste the one on its page."
		}
		return refuse(found)
	}
	if err != nil {
		return sourceTenant(err, refuse)
	}
	if !made {
		f.secret = ""
	}
	return o.showSourceSecret(v, s, f.secret, true)
}

// sourceTenant turns an unknown tenant, which the API answers as not found, into a fault of its
// field.
func sourceTenant(err error, refuse func(faults) error) error {
	if refused, is := errors.AsType[*client.Error](err); is && refused.Status == http.StatusNotFound {
		return refuse(faults{"tenant": sentence(refused.Detail)})
	}
	return err
}

// showSourceSecret is the page after a source, or a secret of it, was made: with the address to
// give away, and the one sight of a secret that was made here.
func (o *operator) showSourceSecret(v *Visit, s client.Source, secret string, made bool) error {
	return v.Show(Page{Name: "source-secret", Title: "Where to send webhooks", Section: sectionSources, Data: map[string]any{
		"Source": s, "Secret": secret, "Made": made, "Address": v.outside(s.Path), "Page": v.Path("sources", s.Name),
	}})
}

func (o *operator) editSource(v *Visit) error {
	s, err := Ask[client.Source](v, client.Path("v1", "sources", v.PathValue("source")), nil)
	if err != nil {
		return err
	}
	f := sourceForm{Name: s.Name, Provider: s.Provider, Tenant: s.Tenant, EventType: s.EventType, Check: checkOf(s.Verify), Was: s.Verify}
	if p := s.IDPlace; p != nil {
		f.IDHeader, f.IDPointer = p.Header, p.Pointer
	}
	return o.showSourceForm(v, f, http.StatusOK)
}

func (o *operator) changeSource(v *Visit) error {
	f := v.sourceForm()
	f.Name = v.PathValue("source")
	refuse := func(found faults) error {
		f.Faults = found
		return o.showSourceForm(v, f, http.StatusUnprocessableEntity)
	}
	path := client.Path("v1", "sources", f.Name)
	before, err := Ask[client.Source](v, path, nil) // PUT would make one that was removed meanwhile
	if err != nil {
		return err
	}
	f.Provider, f.before, f.Was = before.Provider, before.IDPlace, before.Verify
	body, err := f.body()
	if err != nil {
		return err
	}
	_, err = Tell[client.Source](v.Context(), v.write(), http.MethodPut, path, body, "")
	if found := faultsOf(err, sourceFormFields...); found != nil {
		return refuse(found)
	}
	if err != nil {
		return sourceTenant(err, refuse)
	}
	return v.Redirect(v.Path("sources", f.Name), "Saved. The next request goes by it.")
}

// addSourceSecret adds a secret beside those before, so that none of what is on its way is
// refused while the provider changes over.
func (o *operator) addSourceSecret(v *Visit) error {
	name, secret := v.PathValue("source"), strings.TrimSpace(v.PostFormValue("secret"))
	made := secret == ""
	if made {
		secret = makeSecret()
	}
	request := map[string]any{"secret": secret}
	if overlap := v.PostFormValue("overlap_seconds"); overlap != "" {
		request["overlap_seconds"] = json.RawMessage(jsonNumber(overlap))
	}
	body, err := json.Marshal(request)
	if err != nil {
		return err
	}
	s, err := Tell[client.Source](v.Context(), v.write(), http.MethodPost, client.Path("v1", "sources", name, "secrets"), body, v.Key())
	if found := faultsOf(err); found != nil {
		fault := found[""]
		if made {
			fault = "This provider makes the secret itself: paste the one on its page."
		}
		return o.showSource(v, fault, http.StatusUnprocessableEntity)
	}
	if err != nil {
		return err
	}
	if !made {
		return v.Redirect(v.Path("sources", name), "The secret is added. Requests signed with it are taken from now on.")
	}
	return o.showSourceSecret(v, s, secret, false)
}

func (o *operator) endSourceSecret(v *Visit) error {
	name := v.PathValue("source")
	if _, err := v.write().Do(v.Context(), client.Request{Method: http.MethodDelete, Path: client.Path("v1", "sources", name, "secrets", v.PathValue("secret"))}); err != nil {
		return err
	}
	return v.Redirect(v.Path("sources", name), "The secret is ended. What is signed with it is refused from now on.")
}
