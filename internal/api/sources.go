package api

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/waybill-dev/waybill/internal/inbound"
	"github.com/waybill-dev/waybill/internal/outbox"
	"github.com/waybill-dev/waybill/receive"
)

// sourceRoutes are the addresses at which somebody else's webhooks arrive.
func sourceRoutes() []*route {
	const source = "/v1/sources/{source}"
	return []*route{
		{method: "PUT", path: source, name: "putSource", tag: "Sources", scope: ScopeWrite, operator: true,
			summary: "Create an inbound source, or change it", about: "Webhooks sent to /in/{source} are verified and become events of the tenant. Fields that are absent keep their value; null returns to the default. warnings says what may lose or repeat events.",
			body: describe("SourceInput", sourceFields), answers: map[int]any{200: sourceView{}, 201: sourceView{}}, refuses: []int{404}, handle: (*API).putSource},
		{method: "GET", path: source, name: "getSource", tag: "Sources", scope: ScopeRead, operator: true,
			summary: "Read a source", answers: map[int]any{200: sourceView{}}, refuses: []int{404}, handle: (*API).getSource},
		{method: "DELETE", path: source, name: "deleteSource", tag: "Sources", scope: ScopeWrite, operator: true,
			summary: "Delete a source", about: "Its events stay; the bodies that wait in quarantine go at once. What it has seen is remembered for as long as it would have been.",
			answers: map[int]any{204: nil}, refuses: []int{404}, handle: (*API).deleteSource},
		{method: "GET", path: "/v1/sources", name: "listSources", tag: "Sources", scope: ScopeRead, operator: true,
			summary: "List sources", query: listParams, answers: map[int]any{200: list[sourceView]{}}, handle: (*API).listSources},
		{method: "POST", path: source + "/secrets", name: "addSourceSecret", tag: "Sources", scope: ScopeWrite, operator: true,
			summary: "Add a secret", about: "Requests signed with it or with those before it verify.",
			body: describe("SourceSecretInput", addedSecretFields), answers: map[int]any{201: sourceView{}}, refuses: []int{404}, handle: (*API).postSourceSecret},
		{method: "DELETE", path: source + "/secrets", name: "deleteSourceSecrets", tag: "Sources", scope: ScopeWrite, operator: true,
			summary: "End all secrets", about: "Every request is refused until there is another.",
			answers: map[int]any{204: nil}, refuses: []int{404}, handle: (*API).deleteSourceSecrets},
		{method: "DELETE", path: source + "/secrets/{secret}", name: "deleteSourceSecret", tag: "Sources", scope: ScopeWrite, operator: true,
			summary: "End a secret", answers: map[int]any{204: nil}, refuses: []int{404}, handle: (*API).deleteSourceSecrets},
	}
}

// sourceView is a source in an answer. Its secrets are named, never shown.
type sourceView struct {
	ID             outbox.SourceID     `json:"id"`
	Source         string              `json:"source" doc:"The name in the address"`
	Path           string              `json:"path" doc:"Where the provider sends to, below the server's address"`
	Provider       string              `json:"provider"`
	Tenant         *string             `json:"tenant" doc:"null: it is deleted, and nothing is accepted"`
	State          outbox.SourceState  `json:"state"`
	Secrets        []sourceSecretView  `json:"secrets"`
	EventType      string              `json:"event_type"`
	IDPlace        *sourcePlaceView    `json:"id_place" doc:"The request's id; null: where the provider puts it"`
	Verify         *sourceCheckView    `json:"verify"`
	ForwardHeaders []string            `json:"forward_headers" doc:"As they are in effect"`
	Responses      sourceAnswersView   `json:"responses" doc:"As they are in effect"`
	MaxBody        int64               `json:"max_body" doc:"As it is in effect"`
	KeepSeconds    float64             `json:"keep_seconds"`
	Warnings       []sourceWarningView `json:"warnings" doc:"What may lose or repeat events, and what to do"`
	CreatedAt      stamp               `json:"created_at"`
	UpdatedAt      stamp               `json:"updated_at"`
}

type sourceSecretView struct {
	ID        string `json:"id"`
	CreatedAt stamp  `json:"created_at"`
	ExpiresAt *stamp `json:"expires_at" doc:"null: no end"`
}

type sourcePlaceView struct {
	Header            *string  `json:"header"`
	Pointer           *string  `json:"pointer"`
	BodyWithinSeconds *float64 `json:"body_within_seconds"`
}

type sourceCheckView struct {
	Signed           *string  `json:"signed"`
	Header           *string  `json:"header"`
	Form             *string  `json:"form"`
	Algorithm        *string  `json:"algorithm"`
	IDHeader         *string  `json:"id_header"`
	TimeHeader       *string  `json:"time_header"`
	Milliseconds     bool     `json:"milliseconds"`
	ToleranceSeconds *float64 `json:"tolerance_seconds"`
	SecretEncodings  []string `json:"secret_encodings"`
	SecretPrefix     *string  `json:"secret_prefix"`
	PublicURL        *string  `json:"public_url"`
	// The token is as good as a secret; only that there is one is told.
	ChallengeToken bool `json:"has_challenge_token"`
}

type sourceAnswersView struct {
	OK       int `json:"ok"`
	InFlight int `json:"in_flight"`
	Failed   int `json:"failed"`
	Rejected int `json:"rejected"`
	TooLarge int `json:"too_large"`
}

type sourceWarningView struct {
	Rule   receive.Rule `json:"rule"`
	Harm   string       `json:"harm" enum:"loses,repeats,delays,note"`
	Detail string       `json:"detail"`
	Remedy string       `json:"remedy"`
}

func viewSource(src *outbox.Source) sourceView {
	v := sourceView{
		ID: src.ID, Source: src.Name, Path: "/in/" + src.Name, Provider: src.Provider, Tenant: orNull(src.TenantKey), State: src.State,
		Secrets: []sourceSecretView{}, EventType: src.Settings.EventType, ForwardHeaders: []string{},
		KeepSeconds: src.Keep.Seconds(), Warnings: []sourceWarningView{}, CreatedAt: stamp(src.CreatedAt), UpdatedAt: stamp(src.UpdatedAt),
	}
	if v.EventType == "" {
		v.EventType = "{topic}"
	}
	for _, s := range src.Secrets {
		v.Secrets = append(v.Secrets, sourceSecretView{s.ID, stamp(s.CreatedAt), stampOf(s.ExpiresAt)})
	}
	if p := src.Settings.ID; p != nil {
		v.IDPlace = &sourcePlaceView{orNull(p.Header), orNull(p.Pointer), orNull(p.BodyWithin.Seconds())}
	}
	if c := src.Settings.Verify; c != nil {
		v.Verify = &sourceCheckView{
			orNull(c.Signed), orNull(c.Header), orNull(c.Form), orNull(c.Algorithm), orNull(c.IDHeader), orNull(c.TimeHeader), c.Milliseconds,
			orNull(c.Tolerance.Seconds()), append([]string{}, c.SecretEncodings...), orNull(c.SecretPrefix), orNull(c.PublicURL), c.ChallengeToken != "",
		}
	}
	// What is stored was good when it was stored; a newer version may judge otherwise.
	effect, problems, err := inbound.Describe(src)
	if err != nil {
		v.Warnings = append(v.Warnings, sourceWarningView{Rule: receive.Incomplete, Harm: receive.Loses.String(), Detail: err.Error(), Remedy: "change it"})
		return v
	}
	v.Responses, v.MaxBody, v.ForwardHeaders = sourceAnswersView(effect.Codes), effect.MaxBody, effect.Forward
	for _, p := range problems {
		v.Warnings = append(v.Warnings, sourceWarningView{p.Rule, p.Harm.String(), p.Detail, p.Remedy})
	}
	return v
}

func (a *API) putSource(q *request) (*answer, error) {
	name := q.PathValue("source")
	if !outbox.ValidSourceName(name) {
		return nil, failField("source", CodeInvalidField, "a source's name is 1 to 64 characters of A-Z a-z 0-9 _ . : - and begins with no dot or colon")
	}
	raw, err := q.object()
	if err != nil {
		return nil, err
	}
	// Read before the source is locked: it names the tenant by its key.
	probe := sourceEdit{Source: &outbox.Source{}}
	if err := fillBody(q, raw, sourceFields, &probe); err != nil {
		return nil, err
	}
	var tenant *outbox.Tenant
	if probe.tenant != "" {
		t, err := a.findTenant(q, probe.tenant, a.cfg.CreateUnknownTenants)
		if err == nil {
			err = refuseReserved(&t)
		}
		if err != nil {
			return nil, err
		}
		tenant = &t
	}
	src, created, err := q.store.PutSource(q.Context(), name, q.now, func(s *outbox.Source, exists bool) error {
		before := *s
		edit := sourceEdit{Source: s, now: q.now}
		if err := fillBody(q, raw, sourceFields, &edit); err != nil {
			return err
		}
		if err := edit.finish(tenant, &before, exists); err != nil {
			return err
		}
		q.records(made("source", exists), name, outbox.SourceChanges(&before, s))
		return nil
	})
	a.forgetSource(name)
	if err != nil {
		return nil, err
	}
	ans := &answer{status: http.StatusOK, body: viewSource(&src)}
	if created {
		ans.status = http.StatusCreated
	}
	return ans, nil
}

// finish puts together what the fields left, and judges it.
func (s *sourceEdit) finish(tenant *outbox.Tenant, before *outbox.Source, exists bool) error {
	var missing []Item
	if s.Provider == "" {
		missing = append(missing, Item{Path: "provider", Code: CodeMissingField, Detail: "is required"})
	}
	if tenant == nil && !exists {
		missing = append(missing, Item{Path: "tenant", Code: CodeMissingField, Detail: "is required"})
	}
	if len(missing) > 0 {
		return failItems(missing)
	}
	if tenant != nil {
		s.Tenant, s.TenantKey = tenant.TenantRef, tenant.Key
	}
	if s.given {
		s.replaceSecrets()
	}
	// A default follows the provider, and a value of one's own stays.
	if !s.keep || s.Keep == 0 {
		was, err := inbound.KeepFor(before)
		if !exists || s.Keep == 0 || err == nil && s.Keep == was {
			if s.Keep, err = inbound.KeepFor(s.Source); err != nil {
				return sourceFault(err)
			}
		}
	}
	return judgeSource(s.Source)
}

// replaceSecrets sets the list, and keeps what is known of those that stay.
func (s *sourceEdit) replaceSecrets() {
	next := make([]outbox.SourceSecret, 0, len(s.secrets))
	for _, text := range s.secrets {
		one := newSourceSecret(text, s.now)
		for _, old := range s.Secrets {
			if old.Value == text {
				one = old
				one.ExpiresAt = time.Time{}
			}
		}
		if !slices.ContainsFunc(next, func(other outbox.SourceSecret) bool { return other.Value == text }) {
			next = append(next, one)
		}
	}
	s.Secrets = next
}

func newSourceSecret(text string, now time.Time) outbox.SourceSecret {
	return outbox.SourceSecret{ID: "sec_" + rand.Text(), Value: text, CreatedAt: now}
}

func judgeSource(src *outbox.Source) error {
	_, err := inbound.Check(src)
	return sourceFault(err)
}

// sourceFault turns what the gateway finds wrong into an answer.
func sourceFault(err error) error {
	if fault, is := errors.AsType[*inbound.FieldError](err); is {
		return failField(fault.Path, CodeInvalidField, "%s", fault.Detail)
	}
	if fault, is := errors.AsType[*inbound.SecretError](err); is {
		return failField(fmt.Sprintf("secrets[%d]", fault.Index), CodeInvalidSecret, "%s", fault.Detail)
	}
	return err
}

// judgeAddedSecret is judgeSource for a source whose first secret stands in the request by itself,
// in no list.
func judgeAddedSecret(src *outbox.Source) error {
	_, err := inbound.Check(src)
	if fault, is := errors.AsType[*inbound.SecretError](err); is && fault.Index == 0 {
		return failField("secret", CodeInvalidSecret, "%s", fault.Detail)
	}
	return sourceFault(err)
}

func (a *API) forgetSource(name string) {
	if a.cfg.Inbound != nil {
		a.cfg.Inbound.Forget(name)
	}
}

func (a *API) getSource(q *request) (*answer, error) {
	src, err := q.store.Source(q.Context(), q.PathValue("source"))
	if err != nil {
		return nil, err
	}
	return ok(viewSource(&src))
}

func (a *API) deleteSource(q *request) (*answer, error) {
	name := q.PathValue("source")
	err := q.store.DeleteSource(q.Context(), name, q.now)
	a.forgetSource(name)
	if err != nil {
		return nil, err
	}
	return &answer{status: http.StatusNoContent, raw: []byte{}}, nil
}

func (a *API) listSources(q *request) (*answer, error) {
	p := q.params()
	page, after := p.page()
	if err := p.err(); err != nil {
		return nil, err
	}
	wanted := page
	wanted.Limit++
	rows, err := q.store.Sources(q.Context(), outbox.SourceID(after), wanted)
	if err != nil {
		return nil, err
	}
	out := list[sourceView]{Data: []sourceView{}}
	if len(rows) > page.Limit {
		rows = rows[:page.Limit]
		out.NextCursor = p.cursor(position(rows[page.Limit-1].ID))
	}
	for i := range rows {
		out.Data = append(out.Data, viewSource(&rows[i]))
	}
	return ok(out)
}

func (a *API) postSourceSecret(q *request) (*answer, error) {
	raw, err := q.object()
	if err != nil {
		return nil, err
	}
	var added addedSecret
	if err := fillBody(q, raw, addedSecretFields, &added); err != nil {
		return nil, err
	}
	src, err := a.editSource(q, func(s *outbox.Source) error {
		for i := range s.Secrets {
			old := &s.Secrets[i]
			if added.overlap != nil {
				if end := q.now.Add(*added.overlap); old.ExpiresAt.IsZero() || end.Before(old.ExpiresAt) {
					old.ExpiresAt = end
				}
			}
		}
		one := newSourceSecret(added.value, q.now)
		s.Secrets = slices.DeleteFunc(s.Secrets, func(old outbox.SourceSecret) bool {
			if old.Value == one.Value { // added again: it stays, without an end
				one.ID, one.CreatedAt = old.ID, old.CreatedAt
				return true
			}
			return !old.Live(q.now)
		})
		if len(s.Secrets) >= maxSourceSecrets {
			return failField("secret", CodeSecretLimit, "the source has %d secrets; end one first", maxSourceSecrets)
		}
		s.Secrets = append([]outbox.SourceSecret{one}, s.Secrets...)
		return judgeAddedSecret(s)
	})
	if err != nil {
		return nil, err
	}
	return &answer{status: http.StatusCreated, body: viewSource(&src)}, nil
}

// deleteSourceSecrets ends one secret, or all of them where none is named.
func (a *API) deleteSourceSecrets(q *request) (*answer, error) {
	id := q.PathValue("secret")
	_, err := a.editSource(q, func(s *outbox.Source) error {
		before := len(s.Secrets)
		s.Secrets = slices.DeleteFunc(s.Secrets, func(one outbox.SourceSecret) bool { return id == "" || one.ID == id })
		if len(s.Secrets) == before && id != "" {
			return outbox.ErrNotFound
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return &answer{status: http.StatusNoContent, raw: []byte{}}, nil
}

// editSource changes a source that must exist.
func (a *API) editSource(q *request, edit func(s *outbox.Source) error) (outbox.Source, error) {
	name := q.PathValue("source")
	src, _, err := q.store.PutSource(q.Context(), name, q.now, func(s *outbox.Source, exists bool) error {
		if !exists {
			return outbox.ErrNotFound
		}
		before := *s
		before.Secrets = slices.Clone(s.Secrets)
		if err := edit(s); err != nil {
			return err
		}
		q.records("source.update", name, outbox.SourceChanges(&before, s))
		return nil
	})
	a.forgetSource(name)
	return src, err
}
