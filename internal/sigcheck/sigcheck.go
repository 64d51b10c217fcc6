// Package sigcheck says in words why a request does not verify: which of the usual mistakes would
// explain it.
package sigcheck

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/waybill-dev/waybill/receive"
	"github.com/waybill-dev/waybill/signature"
)

// Request is what there is to go by.
type Request struct {
	signature.Request
	Provider receive.Provider
	Secret   string
	At       time.Time // when it arrived
}

// Result is what came out.
type Result struct {
	Verified bool             `json:"verified"`
	Reason   signature.Reason `json:"reason,omitempty"`
	Detail   string           `json:"detail"`
	ID       string           `json:"id,omitempty"` // if the signature covers one outside of the body
	SignedAt *time.Time       `json:"signed_at,omitempty"`
	Hints    []string         `json:"hints,omitempty"`
}

// Explain verifies a request and, if it does not verify, tries what usually explains it. The error is
// about the secret or about a certificate that cannot be had.
func Explain(ctx context.Context, r Request) (Result, error) {
	key, err := r.Provider.Scheme.Key(r.Secret)
	if err != nil {
		return Result{}, err
	}
	v, err := r.Provider.Scheme.Verify(ctx, r.Request, []signature.Key{key}, r.At)
	if err == nil {
		res := Result{Verified: true, Detail: "the signature is right", ID: v.ID}
		if !v.At.IsZero() {
			res.SignedAt = &v.At
		}
		return res, nil
	}
	refusal, ok := errors.AsType[*signature.Error](err)
	if !ok {
		return Result{}, err
	}
	res := Result{Reason: refusal.Reason, Detail: refusal.Detail}
	switch refusal.Reason {
	case signature.Mismatch:
		res.Hints = mismatches(ctx, r)
	case signature.Missing, signature.Malformed:
		res.Hints = strangers(ctx, r)
	case signature.TooOld, signature.TooNew:
		res.Hints = []string{"everything but the time is right; --at checks it against another time"}
	}
	return res, nil
}

// verifies reports whether a request would do, at whatever time.
func verifies(ctx context.Context, s signature.Scheme, secret string, r signature.Request, at time.Time) bool {
	key, err := s.Key(secret)
	if err != nil {
		return false
	}
	_, err = s.Verify(ctx, r, []signature.Key{key}, at)
	reason, _ := signature.Why(err)
	return err == nil || reason == signature.TooOld || reason == signature.TooNew
}

// mismatches are the usual reasons for a signature that does not fit: the bytes are not those that
// were signed, or the secret is not the one that signed, or is read in another way.
func mismatches(ctx context.Context, r Request) (hints []string) {
	for _, b := range bodies(r.Body) {
		changed := r.Request
		changed.Body = b.body
		if verifies(ctx, r.Provider.Scheme, r.Secret, changed, r.At) {
			hints = append(hints, "it verifies "+b.says+": what you verify is not byte for byte what arrived")
		}
	}
	for _, s := range secrets(r.Secret) {
		if verifies(ctx, r.Provider.Scheme, s.secret, r.Request, r.At) {
			hints = append(hints, "it verifies with the secret "+s.says)
		}
	}
	if h, ok := r.Provider.Scheme.(signature.HMAC); ok {
		for _, form := range []struct {
			says string
			form signature.SecretForm
		}{
			{"read as base64", signature.SecretForm{Encoding: signature.Base64, Prefix: "whsec_"}},
			{"read as hexadecimal", signature.SecretForm{Encoding: signature.Hex}},
			{"read as text, prefix and all", signature.SecretForm{}},
		} {
			other := h
			other.Secret = form.form
			if other != h && verifies(ctx, other, r.Secret, r.Request, r.At) {
				hints = append(hints, "it verifies with the secret "+form.says)
			}
		}
	}
	if len(hints) == 0 {
		hints = append(hints, "no usual change of the body or the secret explains it; is this the secret of this endpoint, and of this mode (test or live)?")
	}
	return hints
}

type changedBody struct {
	says string
	body []byte
}

// bodies are what frameworks make of a body.
func bodies(body []byte) []changedBody {
	all := []changedBody{
		{"without the white space around the body", bytes.TrimSpace(body)},
		{"with a line feed at the end", append(bytes.Clone(body), '\n')},
		{"with CR LF at the end", append(bytes.Clone(body), "\r\n"...)},
		{"with LF for CR LF", bytes.ReplaceAll(body, []byte("\r\n"), []byte("\n"))},
		{"with CR LF for LF", bytes.ReplaceAll(body, []byte("\n"), []byte("\r\n"))},
		{"with no body at all", nil},
	}
	var compact, spaced bytes.Buffer
	if json.Compact(&compact, body) == nil {
		all = append(all, changedBody{"with the JSON made compact", compact.Bytes()})
	}
	if json.Indent(&spaced, body, "", "  ") == nil {
		all = append(all, changedBody{"with the JSON indented", spaced.Bytes()})
	}
	kept := all[:0]
	for _, b := range all {
		if !bytes.Equal(b.body, body) {
			kept = append(kept, b)
		}
	}
	return kept
}

type changedSecret struct{ says, secret string }

func secrets(secret string) []changedSecret {
	all := []changedSecret{
		{"without the white space around it", strings.TrimSpace(secret)},
		{"without its line's end", strings.TrimRight(secret, "\r\n")},
	}
	if _, after, found := strings.Cut(secret, "_"); found {
		all = append(all, changedSecret{"without what is before its first _", after})
	}
	kept := all[:0]
	for _, s := range all {
		if s.secret != secret && s.secret != "" {
			kept = append(kept, s)
		}
	}
	return kept
}

// strangers says whose the request looks like, if it is not this provider's.
func strangers(ctx context.Context, r Request) (hints []string) {
	for _, name := range r.Provider.Scheme.Headers() {
		hints = append(hints, fmt.Sprintf("%s signs in the header %s", r.Provider.Name, name))
	}
	return append(hints, others(ctx, r)...)
}
