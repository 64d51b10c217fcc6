package api

import (
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/waybill-dev/waybill/internal/outbox"
	"github.com/waybill-dev/waybill/internal/signing"
)

// schemeEdit is a signature scheme on its way from a request into the store.
type schemeEdit struct {
	signing.Scheme
	preset string
}

func schemeText(name, about string, max int, into func(*signing.Scheme) *string) field[schemeEdit] {
	return field[schemeEdit]{
		name: name, about: about, schema: textSchema(max),
		set:   func(e *schemeEdit, v value) { setText(into(&e.Scheme), v, max) },
		reset: func(e *schemeEdit) { *into(&e.Scheme) = "" },
	}
}

func schemeMap(name, about string, into func(*signing.Scheme) *map[string]string) field[schemeEdit] {
	return field[schemeEdit]{
		name: name, about: about, schema: textMapSchema(10),
		set: func(e *schemeEdit, v value) {
			v.merge = false
			if m, ok := v.textMap(nil, 10, 1024); ok {
				*into(&e.Scheme) = m
			}
		},
		reset: func(e *schemeEdit) { *into(&e.Scheme) = nil },
	}
}

func schemeBound(name, about string, into func(*signing.Scheme) *int) field[schemeEdit] {
	return field[schemeEdit]{
		name: name, about: about, schema: rangeSchema(huma.TypeInteger, 1, signing.SecretLimit, nil),
		set:   func(e *schemeEdit, v value) { setInteger(into(&e.Scheme), v, 1, signing.SecretLimit) },
		reset: func(e *schemeEdit) { *into(&e.Scheme) = 0 },
	}
}

var presetNames = slices.Sorted(maps.Keys(signing.Presets()))

// schemeFields is PUT /v1/signature-schemes/{name}.
var schemeFields = []field[schemeEdit]{
	{
		name: "preset", about: "Begin with one of the presets, " + strings.Join(presetNames, ", ") + "; what else is given replaces parts of it.",
		schema: textSchema(64),
		set: func(e *schemeEdit, v value) {
			if s, ok := v.oneOf(presetNames...); ok {
				e.preset = s
			}
		},
		reset: func(*schemeEdit) {},
	},
	schemeText("algorithm", "hmac-sha1, hmac-sha256 or hmac-sha512.", 32, func(s *signing.Scheme) *string { return &s.Algorithm }),
	schemeText("secret_encoding", "How a secret's text becomes the key: utf8 (as it is), hex or base64.", 32, func(s *signing.Scheme) *string { return &s.SecretEncoding }),
	schemeText("secret_prefix", "What every secret begins with; it is no part of the key.", 32, func(s *signing.Scheme) *string { return &s.SecretPrefix }),
	schemeBound("secret_min", "The shortest key, in bytes; 1 by default.", func(s *signing.Scheme) *int { return &s.SecretMin }),
	schemeBound("secret_max", "The longest key, in bytes; 512 by default.", func(s *signing.Scheme) *int { return &s.SecretMax }),
	schemeText("signed_content", "What is signed, such as {timestamp}.{body}. Placeholders: {body} {timestamp} {timestamp_ms} {event_id} {event_type} {url} {metadata.KEY}; {{ and }} are braces.", 1024, func(s *signing.Scheme) *string { return &s.SignedContent }),
	schemeText("encoding", "Of the signature: hex, base64 or base64url.", 32, func(s *signing.Scheme) *string { return &s.Encoding }),
	schemeMap("headers", "What is sent, such as X-Acme-Signature: t={timestamp},v1={signature}. Placeholders as above but {body}, and {signature}.", func(s *signing.Scheme) *map[string]string { return &s.Headers }),
	schemeMap("repeat", "By header: what is appended for each further live secret while one takes over from another, such as ,v1={signature}. A list of name=value repeats its element by itself; without room for two, the secret that is being replaced signs until it ends.", func(s *signing.Scheme) *map[string]string { return &s.Repeat }),
}

// signatureSchemeView is a signature scheme in an answer.
type signatureSchemeView struct {
	Name string `json:"name"`
	signing.Scheme
	Preset    bool   `json:"preset" doc:"It is built in"`
	CreatedAt *stamp `json:"created_at"`
	UpdatedAt *stamp `json:"updated_at"`
}

func viewScheme(s *outbox.SignatureScheme) (signatureSchemeView, error) {
	scheme, err := signing.Parse(s.Definition)
	return signatureSchemeView{Name: s.Name, Scheme: scheme, CreatedAt: stampOf(s.CreatedAt), UpdatedAt: stampOf(s.UpdatedAt)}, err
}

// putScheme defines a scheme, whole: what is not given is not part of it.
func (a *API) putScheme(q *request) (*answer, error) {
	name := q.PathValue("name")
	if !outbox.ValidSchemeName(name) {
		return nil, failField("name", CodeInvalidScheme, "want 1 to 64 characters of a-z 0-9 _ . - that begin with a letter or digit")
	}
	if signing.BuiltIn(name) || name == "v1a" {
		return nil, failField("name", CodeInvalidScheme, "%s is built in and cannot be defined; choose another name", name)
	}
	raw, err := q.object()
	if err != nil {
		return nil, err
	}
	var base schemeEdit
	if err := fillBody(q, raw, schemeFields, &base); err != nil {
		return nil, err
	}
	edit := schemeEdit{Scheme: signing.Presets()[base.preset]}
	if err := fillBody(q, raw, schemeFields, &edit); err != nil {
		return nil, err
	}
	if err := edit.Validate(); err != nil {
		if fault, ok := errors.AsType[*signing.Error](err); ok {
			return nil, failField(fault.Field, CodeInvalidScheme, "%s", fault.Detail)
		}
		return nil, err
	}
	if _, err := a.cfg.Guard.CheckHeaders(edit.Headers); err != nil {
		return nil, failField("headers", CodeInvalidScheme, "%s", err)
	}
	stored, created, err := q.store.PutSignatureScheme(q.Context(), outbox.SignatureScheme{Name: name, Definition: compact(edit.Scheme)}, q.now)
	if err != nil {
		return nil, err
	}
	view, err := viewScheme(&stored)
	if err != nil {
		return nil, err
	}
	if created {
		return &answer{status: http.StatusCreated, body: view, location: "/v1/signature-schemes/" + name}, nil
	}
	return ok(view)
}

func (a *API) getScheme(q *request) (*answer, error) {
	name := q.PathValue("name")
	stored, err := a.cfg.Store.SignatureScheme(q.Context(), name)
	if errors.Is(err, outbox.ErrNotFound) {
		if preset, isPreset := signing.Presets()[name]; isPreset {
			return ok(signatureSchemeView{Name: name, Scheme: preset, Preset: true})
		}
	}
	if err != nil {
		return nil, err
	}
	view, err := viewScheme(&stored)
	if err != nil {
		return nil, err
	}
	return ok(view)
}

func (a *API) listSchemes(q *request) (*answer, error) {
	stored, err := a.cfg.Store.SignatureSchemes(q.Context())
	if err != nil {
		return nil, err
	}
	list := list[signatureSchemeView]{Data: []signatureSchemeView{}}
	presets := signing.Presets()
	for i := range stored {
		view, err := viewScheme(&stored[i])
		if err != nil {
			return nil, err
		}
		delete(presets, view.Name)
		list.Data = append(list.Data, view)
	}
	for _, name := range slices.Sorted(maps.Keys(presets)) {
		list.Data = append(list.Data, signatureSchemeView{Name: name, Scheme: presets[name], Preset: true})
	}
	return ok(list)
}

func (a *API) deleteScheme(q *request) (*answer, error) {
	err := q.store.DeleteSignatureScheme(q.Context(), q.PathValue("name"))
	if errors.Is(err, outbox.ErrConflict) {
		return nil, fail(CodeSchemeInUse, "an endpoint signs with it")
	}
	if err != nil {
		return nil, err
	}
	return noContent()
}
