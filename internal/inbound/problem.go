package inbound

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"

	"github.com/waybill-dev/waybill/receive"
)

// problem is the body of an error answer, as the whole API has it (RFC 9457). Providers decide by
// the status alone; it is for whoever tries an address out. Why a request does not verify is in the
// source's list, and not told to strangers.
type problem struct {
	Type      string     `json:"type"`
	Title     string     `json:"title"`
	Status    int        `json:"status"`
	Detail    string     `json:"detail"`
	Code      string     `json:"code"`
	RequestID string     `json:"request_id"`
	Errors    []struct{} `json:"errors"`
}

// fault is what is wrong, by the API's codes.
type fault struct{ code, title, detail string }

var (
	notFound    = fault{"not_found", "Not found", "there is no such source"}
	unavailable = fault{"unavailable", "Not available", "the webhook cannot be stored now; send it again"}
	unverified  = fault{"invalid_signature", "Does not verify", "the request does not verify; the source's list of requests says why"}
	tooLarge    = fault{"payload_too_large", "Too large", "the body is larger than the source takes"}
	badRequest  = fault{"bad_request", "Bad request", "the body ended early"}
)

func refuse(w http.ResponseWriter, status int, f fault) {
	h := w.Header()
	body, err := json.Marshal(problem{
		Type: "/docs#" + f.code, Title: f.title, Status: status, Detail: f.detail, Code: f.code,
		RequestID: h.Get("Waybill-Request-Id"), Errors: []struct{}{},
	})
	if err != nil {
		panic(err) // a struct of strings and numbers always marshals
	}
	body = append(body, '\n')
	h.Set("Content-Type", "application/problem+json")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body) // the provider is gone; it comes again
}

// decline answers a request in which there is no event.
func (s *compiled) decline(w http.ResponseWriter, a *receive.Arrival) {
	status := a.Answer.Status
	switch {
	case status < 400:
		a.Answer.Send(w)
	case status == http.StatusMethodNotAllowed:
		allow := strings.Join(s.intake.Methods(), ", ")
		w.Header().Set("Allow", allow)
		refuse(w, status, fault{"method_not_allowed", "Method not allowed", "this address takes " + allow})
	case a.Outcome == receive.TooLarge:
		refuse(w, status, tooLarge)
	case a.Outcome == receive.Rejected:
		refuse(w, status, unverified)
	case a.Reason == "read":
		refuse(w, status, badRequest)
	default:
		refuse(w, status, unavailable)
	}
}
