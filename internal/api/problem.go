package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/waybill-dev/waybill/internal/outbox"
	"github.com/waybill-dev/waybill/internal/publish"
)

// Problem is the body of every error answer (RFC 9457).
type Problem struct {
	Type      string `json:"type" doc:"Where the code is explained"`
	Title     string `json:"title"`
	Status    int    `json:"status"`
	Detail    string `json:"detail"`
	Code      Code   `json:"code" doc:"What programs decide by; the list only grows"`
	RequestID string `json:"request_id"`
	Errors    []Item `json:"errors" doc:"Everything that is wrong with the request"`

	retryAfter int // seconds; 0: no Retry-After
	allow      string
	cause      error // for the log; never for the caller
}

// Item is one thing that is wrong with a request.
type Item struct {
	Index  *int   `json:"index,omitempty" doc:"Which member of a batch, from 0"`
	Path   string `json:"path" doc:"The field, for example retry.max_seconds or event_types[2]; empty for the whole"`
	Code   Code   `json:"code"`
	Detail string `json:"detail"`
}

// Error makes a Problem an error that handlers return.
func (p *Problem) Error() string {
	if p.cause != nil {
		return fmt.Sprintf("%s: %v", p.Code, p.cause)
	}
	return fmt.Sprintf("%s: %s", p.Code, p.Detail)
}

func (p *Problem) Unwrap() error { return p.cause }

// fail makes a problem of one code.
func fail(code Code, format string, args ...any) *Problem {
	spec := codes[code]
	return &Problem{
		Type:       "/docs#" + string(code),
		Title:      spec.title,
		Status:     spec.status,
		Detail:     fmt.Sprintf(format, args...),
		Code:       code,
		Errors:     []Item{},
		retryAfter: spec.retryAfter,
	}
}

// failField makes a problem about one field.
func failField(path string, code Code, format string, args ...any) *Problem {
	return failItems([]Item{{Path: path, Code: code, Detail: fmt.Sprintf(format, args...)}})
}

// failItems makes one problem of everything that was found: with the code they share, else as
// an invalid request.
func failItems(items []Item) *Problem {
	code := items[0].Code
	for _, item := range items {
		if item.Code != code {
			code = CodeInvalidRequest
			break
		}
	}
	detail := items[0].Detail
	if items[0].Path != "" {
		detail = items[0].Path + ": " + detail
	}
	if n := len(items) - 1; n > 0 {
		detail = fmt.Sprintf("%s (and %d more)", detail, n)
	}
	p := fail(code, "%s", detail)
	p.Errors = items
	return p
}

// problemOf turns whatever a handler returned into what the caller may see. Text of a database
// or of the runtime never passes.
func problemOf(err error) *Problem {
	if p, ok := errors.AsType[*Problem](err); ok {
		return p
	}
	var p *Problem
	switch {
	case errors.Is(err, outbox.ErrNotFound):
		p = fail(CodeNotFound, "there is no such object")
	case errors.Is(err, outbox.ErrEndpointGone):
		p = fail(CodeEndpointDeleted, "the endpoint of this delivery is deleted")
	case errors.Is(err, outbox.ErrPayloadGone):
		p = fail(CodePayloadGone, "the payload is no longer kept")
	case errors.Is(err, publish.ErrBusy):
		p = fail(CodeUnavailable, "too many events are waiting to be stored; nothing was accepted")
	case errors.Is(err, publish.ErrClosed):
		p = fail(CodeUnavailable, "the server is stopping; nothing was accepted")
	case errors.Is(err, publish.ErrLocked):
		p = fail(CodeIdempotencyRunning, "another request with this key or event id has not ended")
	case errors.Is(err, publish.ErrRefused):
		p = fail(CodeRefused, "the database refuses this content")
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		p = fail(CodeUnavailable, "the database did not answer in time; the outcome is not known")
	default:
		switch outbox.FaultOf(err) {
		case outbox.FaultRetry, outbox.FaultLocked:
			p = fail(CodeUnavailable, "the database is not available; nothing was changed")
		case outbox.FaultUnknown:
			p = fail(CodeUnavailable, "the database went away before it answered; the outcome is not known")
		case outbox.FaultRefused:
			p = fail(CodeRefused, "the database refuses this content")
		default:
			p = fail(CodeInternal, "an internal error; the log has it under the request id")
		}
	}
	p.cause = err
	return p
}

// write sends the problem.
func (p *Problem) write(w http.ResponseWriter, requestID string) {
	p.RequestID = requestID
	h := w.Header()
	h["Content-Type"] = problemJSON
	if p.retryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(p.retryAfter))
	}
	if p.allow != "" {
		h.Set("Allow", p.allow)
	}
	if p.Status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", `Bearer realm="waybill"`)
	}
	body, err := json.Marshal(p)
	if err != nil {
		body = []byte(`{"code":"internal"}`) // a struct of strings and numbers always marshals
	}
	body = append(body, '\n')
	h["Content-Length"] = []string{strconv.Itoa(len(body))}
	w.WriteHeader(p.Status)
	_, _ = w.Write(body) // the caller is gone; nobody is left to tell
}
