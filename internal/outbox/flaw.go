package outbox

import (
	"net/url"
	"slices"
	"strings"

	"github.com/waybill-dev/waybill/internal/filter"
)

// Flaw is what can be wrong with an endpoint's row that somebody edited by hand or that was
// damaged: a sentence for people, without any of the content, the same in every store.
type Flaw string

// The flaws, in the order in which they are told.
const (
	FlawURL        Flaw = "The stored URL cannot be used."
	FlawSecrets    Flaw = "The stored secrets do not open with the encryption keys."
	FlawNoSecret   Flaw = "The endpoint has no secret."
	FlawHeaders    Flaw = "The stored headers do not open with the encryption keys."
	FlawCredential Flaw = "The stored secret headers or client certificate do not open with the encryption keys."
	FlawSigning    Flaw = "The stored signature schemes cannot be read."
	FlawFilter     Flaw = "The stored filter cannot be used."
	FlawEventTypes Flaw = "The stored event types cannot be read."
	FlawRetry      Flaw = "The stored retry policy cannot be used."
	FlawTimeout    Flaw = "The stored timeout is not from 1 to 30 seconds."
	FlawMetadata   Flaw = "The stored metadata cannot be read."
	FlawReason     Flaw = "The stored reason of the endpoint's state cannot be read."
)

var flaws = []Flaw{FlawURL, FlawSecrets, FlawNoSecret, FlawHeaders, FlawCredential, FlawSigning, FlawFilter, FlawEventTypes, FlawRetry, FlawTimeout, FlawMetadata, FlawReason}

// Judge sets the Fault of an endpoint as it was read: the flaws the store met while reading, and
// those that the values themselves show. A deleted endpoint has none; nothing is sent to it.
func (e *Endpoint) Judge(met ...Flaw) {
	e.Fault = ""
	if !e.DeletedAt.IsZero() {
		return
	}
	if !usableURL(e.URL) {
		met = append(met, FlawURL)
	}
	if len(e.Secrets) == 0 && !slices.Contains(met, FlawSecrets) {
		met = append(met, FlawNoSecret)
	}
	if len(e.EventTypes) == 0 || slices.ContainsFunc(e.EventTypes, func(p string) bool { return !ValidEventTypePattern(p) }) {
		e.EventTypes = []string{} // half of them would be believed
		met = append(met, FlawEventTypes)
	}
	if e.Filter != "" {
		if _, err := filter.Compile([]byte(e.Filter)); err != nil {
			met = append(met, FlawFilter)
		}
	}
	if len(e.Schemes) == 0 {
		met = append(met, FlawSigning)
	}
	if e.Retry.Validate() != nil {
		met = append(met, FlawRetry)
	}
	if e.Timeout < MinTimeout || e.Timeout > MaxTimeout {
		met = append(met, FlawTimeout)
	}
	var told []string
	for _, flaw := range flaws {
		if slices.Contains(met, flaw) {
			told = append(told, string(flaw))
		}
	}
	e.Fault = strings.Join(told, " ")
}

// Has reports whether a flaw is among the endpoint's.
func (e *Endpoint) Has(flaw Flaw) bool { return strings.Contains(e.Fault, string(flaw)) }

// usableURL accepts what registration could have stored, whatever its policy.
func usableURL(s string) bool {
	u, err := url.Parse(s)
	return err == nil && (u.Scheme == "https" || u.Scheme == "http") && u.Hostname() != "" && u.User == nil
}
