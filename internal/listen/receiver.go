package listen

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/waybill-dev/waybill/signature"
)

// MaxBody is the largest body the receiver reads; Waybill sends at most 1 MiB.
const MaxBody = 2 << 20

// Receiver shows every request it gets and answers it. It is safe for concurrent use.
type Receiver struct {
	// Secrets to verify with; none: signatures are not judged, and the line says so.
	Secrets []signature.Secret
	// Out gets one line a request.
	Out io.Writer
	// JSON writes each line as an object, with the body.
	JSON bool
	// ShowBody writes the body under the line.
	ShowBody bool
	// Status to answer with; 0: 204. A signature that does not verify is answered 401 whatever
	// it says, as a careful receiver would.
	Status int
	// EventTypeHeader names the type's header; "": waybill-event-type.
	EventTypeHeader string

	mu sync.Mutex // one line at a time
}

// Received is one request as the JSON lines show it.
type Received struct {
	At        time.Time       `json:"at"`
	Type      string          `json:"type"`
	ID        string          `json:"id"`
	Attempt   string          `json:"attempt,omitempty"`
	Verified  *bool           `json:"verified"` // null: there was no secret to check with
	Reason    string          `json:"reason,omitempty"`
	Status    int             `json:"status"`
	Bytes     int             `json:"bytes"`
	Payload   json.RawMessage `json:"payload,omitempty"`
	BodyBytes []byte          `json:"body_base64,omitempty"` // where the body is no JSON
}

// ServeHTTP takes one request.
func (r *Receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	now := time.Now()
	if req.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		http.Error(w, "this is a webhook receiver; it takes POST", http.StatusMethodNotAllowed)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, MaxBody))
	if err != nil {
		http.Error(w, "the body could not be read", http.StatusBadRequest)
		return
	}
	got := r.judge(now, req.Header, body)
	r.show(got, body)
	w.WriteHeader(got.Status)
}

// judge says what arrived and what to answer.
func (r *Receiver) judge(now time.Time, header http.Header, body []byte) Received {
	typeHeader := r.EventTypeHeader
	if typeHeader == "" {
		typeHeader = "waybill-event-type"
	}
	got := Received{
		At:      now.UTC().Truncate(time.Millisecond),
		Type:    header.Get(typeHeader),
		ID:      header.Get(signature.HeaderID),
		Attempt: header.Get("waybill-attempt"),
		Status:  r.Status,
		Bytes:   len(body),
	}
	if got.Status == 0 {
		got.Status = http.StatusNoContent
	}
	if len(r.Secrets) == 0 {
		return got
	}
	verifier := signature.Verifier{Secrets: r.Secrets}
	_, err := verifier.VerifyAt(now, header, body)
	got.Verified = new(err == nil)
	if err != nil {
		got.Reason = explain(err)
		got.Status = http.StatusUnauthorized
	}
	return got
}

// explain says why a signature failed and, where that helps, what to look at.
func explain(err error) string {
	switch {
	case errors.Is(err, signature.ErrSignature):
		return "no signature matches the secret"
	case errors.Is(err, signature.ErrTimestamp):
		return "signed more than five minutes from now; compare the clocks"
	default:
		return err.Error()
	}
}

func (r *Receiver) show(got Received, body []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.JSON {
		if json.Valid(body) {
			got.Payload = body
		} else {
			got.BodyBytes = body
		}
		_ = json.NewEncoder(r.Out).Encode(got) // a closed terminal has nobody to tell
		return
	}
	verdict := "signature not checked"
	if got.Verified != nil {
		verdict = "signature ok"
		if !*got.Verified {
			verdict = "SIGNATURE WRONG: " + got.Reason
		}
	}
	again := ""
	if got.Attempt != "" && got.Attempt != "1" {
		again = "  attempt " + printable(got.Attempt)
	}
	fmt.Fprintf(r.Out, "%s  %s  %s  %s  %d bytes%s\n", got.At.Local().Format("15:04:05.000"), orDash(got.Type), orDash(got.ID), verdict, got.Bytes, again)
	if r.ShowBody {
		fmt.Fprintf(r.Out, "%s\n", printable(string(body)))
	}
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return printable(s)
}

// printable keeps a sender from moving the cursor or colouring the terminal.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || unicode.IsPrint(r) {
			return r
		}
		return unicode.ReplacementChar
	}, s)
}
