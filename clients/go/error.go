package waybillapi

import (
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"time"
)

// Error is a refusal: an answer of 400 and above. Programs decide by Code; Errors names every
// field that is wrong.
type Error struct {
	Problem
	// RetryAfter is how long the server asks to wait before the same request is sent again; 0
	// where it does not ask for it.
	RetryAfter time.Duration
}

// Error gives the code, the sentence, and the request's id, by which the server's log has it.
func (e *Error) Error() string {
	return fmt.Sprintf("waybill: %s: %s (%d, request %s)", e.Code, e.Detail, e.Status, e.RequestID)
}

// largestProblem is how much of a refusal is read.
const largestProblem = 1 << 20

// Refusals sends requests with Next and turns refusals into errors.
type Refusals struct {
	Next HttpRequestDoer
}

// Do sends a request. An answer of 400 and above is an *Error, be it Waybill's own or that of a
// proxy on the way, which has no code; GET /readyz's 503, which is no refusal, passes.
func (r *Refusals) Do(req *http.Request) (*http.Response, error) {
	answer, err := r.Next.Do(req)
	if err != nil || answer.StatusCode < 400 {
		return answer, err
	}
	kind, _, _ := mime.ParseMediaType(answer.Header.Get("Content-Type"))
	if kind == "application/json" {
		return answer, nil
	}
	defer answer.Body.Close()
	refusal := &Error{Problem: Problem{Status: int64(answer.StatusCode), Title: http.StatusText(answer.StatusCode)}}
	text, err := io.ReadAll(io.LimitReader(answer.Body, largestProblem))
	if err == nil && kind == "application/problem+json" {
		err = json.Unmarshal(text, &refusal.Problem)
	}
	if err != nil || refusal.Code == "" {
		refusal.Detail = "the answer is no problem document of Waybill's; something between may have given it"
		refusal.RequestID = answer.Header.Get("Waybill-Request-Id")
	}
	if seconds, err := strconv.Atoi(answer.Header.Get("Retry-After")); err == nil && seconds > 0 {
		refusal.RetryAfter = time.Duration(seconds) * time.Second
	}
	return nil, refusal
}
