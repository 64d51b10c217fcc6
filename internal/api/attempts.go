package api

import (
	"encoding/base64"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// attemptView is an attempt in an answer.
type attemptView struct {
	ID         string               `json:"id"`
	Tenant     string               `json:"tenant"`
	DeliveryID string               `json:"delivery_id"`
	EventID    string               `json:"event_id"`
	EventType  string               `json:"event_type"`
	EndpointID string               `json:"endpoint_id"`
	N          int                  `json:"n" doc:"Counts from 1 over all replays; waybill-attempt"`
	Trigger    outbox.Trigger       `json:"trigger"`
	At         stamp                `json:"at"`
	DurationMS float64              `json:"duration_ms"`
	Timing     timingView           `json:"timing"`
	URL        string               `json:"url"`
	Outcome    outbox.Outcome       `json:"outcome"`
	Kind       *outbox.Kind         `json:"kind" doc:"What went wrong; null where delivered"`
	Message    string               `json:"message"`
	StatusCode *int                 `json:"status_code" doc:"null where no status line came"`
	Request    attemptRequestView   `json:"request"`
	Response   *attemptResponseView `json:"response" doc:"null where no status line came"`
}

// timingView says where the time went; a phase that did not happen is null.
type timingView struct {
	DNS       *float64 `json:"dns_ms"`
	Connect   *float64 `json:"connect_ms"`
	TLS       *float64 `json:"tls_ms"`
	FirstByte *float64 `json:"first_byte_ms"`
}

type attemptRequestView struct {
	Headers map[string]string `json:"headers" doc:"Names in lower case; secret values are replaced"`
	Bytes   int               `json:"bytes"`
}

type attemptResponseView struct {
	Headers    map[string]string `json:"headers" doc:"Names in lower case"`
	Body       *string           `json:"body" doc:"A bounded prefix; null where it is no text"`
	BodyBase64 *string           `json:"body_base64,omitempty" doc:"The prefix where it is no text"`
	Truncated  bool              `json:"truncated" doc:"There was, or may have been, more"`
	Hidden     bool              `json:"hidden,omitempty" doc:"It is kept, but shown to operators alone: an allow list opened the address, which is of a private network"`
}

// viewAttempt shows an attempt. What a server said whose address only an allow list opens is
// shown where all: to a customer it would tell what stands in a network that is not theirs.
func viewAttempt(at *outbox.AttemptView, all bool) attemptView {
	view := attemptView{
		ID:         at.ID.String(),
		Tenant:     at.TenantKey,
		DeliveryID: at.Delivery.String(),
		EventID:    at.Event.String(),
		EventType:  at.EventType,
		EndpointID: at.Endpoint.String(),
		N:          at.N,
		Trigger:    at.Trigger,
		At:         stamp(at.At),
		DurationMS: millis(at.Duration),
		Timing: timingView{
			DNS: phase(at.Timing.DNS), Connect: phase(at.Timing.Connect),
			TLS: phase(at.Timing.TLS), FirstByte: phase(at.Timing.FirstByte),
		},
		URL:        at.URL,
		Outcome:    at.Outcome,
		Kind:       orNull(at.Kind),
		Message:    at.Message,
		StatusCode: orNull(at.StatusCode),
		Request:    attemptRequestView{Headers: headerMap(at.RequestHeaders), Bytes: at.RequestBytes},
	}
	switch {
	case at.StatusCode == 0:
	case at.Opened && !all:
		view.Response = &attemptResponseView{Headers: map[string]string{}, Hidden: true}
	default:
		view.Response = &attemptResponseView{Headers: headerMap(at.ResponseHeaders), Truncated: at.Truncated}
		view.Response.Body, view.Response.BodyBase64 = showBody(at.ResponseBody, at.Truncated)
	}
	return view
}

// seesAll reports whether the caller is shown what servers in private networks answer.
func (a *API) seesAll(q *request) bool { return q.who.Operator() || a.cfg.Development }

func phase(d time.Duration) *float64 {
	if d == 0 {
		return nil
	}
	return new(millis(d))
}

// headerMap joins repeated headers as HTTP does.
func headerMap(headers []outbox.Header) map[string]string {
	m := map[string]string{}
	for _, h := range headers {
		name := strings.ToLower(h.Name)
		if first, repeated := m[name]; repeated {
			m[name] = first + ", " + h.Value
		} else {
			m[name] = h.Value
		}
	}
	return m
}

// showBody shows a body as text if it is text. A prefix that was cut inside a character is text
// without that last part of one.
func showBody(body []byte, truncated bool) (text, base *string) {
	shown := body
	if truncated {
		for cut := 1; cut < utf8.UTFMax && cut <= len(shown); cut++ {
			if utf8.RuneStart(shown[len(shown)-cut]) {
				if !utf8.FullRune(shown[len(shown)-cut:]) {
					shown = shown[:len(shown)-cut]
				}
				break
			}
		}
	}
	if utf8.Valid(shown) {
		return new(string(shown)), nil
	}
	return nil, new(base64.StdEncoding.EncodeToString(body))
}

func (a *API) listAttempts(q *request) (*answer, error) {
	delivery, err := q.pathDelivery()
	if err != nil {
		return nil, err
	}
	p := q.params()
	page, after := p.page()
	if err := p.err(); err != nil {
		return nil, err
	}
	tenant := q.tenant.TenantRef
	if tenant.ID == 0 { // the operator's route
		if tenant, err = a.cfg.Store.DeliveryTenant(q.Context(), delivery); err != nil {
			return nil, err
		}
	}
	// A delivery that was never tried has an empty list; one that does not exist has none.
	if _, err := a.cfg.Store.Delivery(q.Context(), tenant, delivery); err != nil {
		return nil, err
	}
	rows, err := a.cfg.Store.Attempts(q.Context(), tenant, delivery, int(after.number()), page)
	if err != nil {
		return nil, err
	}
	list := list[attemptView]{Data: []attemptView{}}
	for i := range rows {
		list.Data = append(list.Data, viewAttempt(&rows[i], a.seesAll(q)))
	}
	if len(rows) == page.Limit {
		last := rows[len(rows)-1].N
		more, err := a.cfg.Store.Attempts(q.Context(), tenant, delivery, last, outbox.Page{Limit: 1, Ascending: page.Ascending})
		if err != nil {
			return nil, err
		}
		if len(more) > 0 {
			list.NextCursor = p.cursor(numberPosition(int64(last)))
		}
	}
	return ok(list)
}

// getAttempt is the operator's look at any tenant's attempt.
func (a *API) getAttempt(q *request) (*answer, error) {
	id, err := outbox.ParseAttemptID(q.PathValue("att"))
	if err != nil {
		return nil, outbox.ErrNotFound
	}
	at, err := a.cfg.Store.Attempt(q.Context(), q.tenant.TenantRef, id)
	if err != nil {
		return nil, err
	}
	return ok(viewAttempt(&at, a.seesAll(q)))
}
