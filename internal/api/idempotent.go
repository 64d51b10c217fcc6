package api

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"slices"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// idempotencyKey returns the request's Idempotency-Key, "" if it has none.
func (q *request) idempotencyKey() (string, error) {
	values := q.Header["Idempotency-Key"]
	switch {
	case values == nil:
		return "", nil
	case len(values) > 1:
		return "", failField("Idempotency-Key", CodeInvalidField, "the header is given more than once")
	}
	if detail := badKey(values[0]); detail != "" {
		return "", failField("Idempotency-Key", CodeInvalidField, "%s", detail)
	}
	return values[0], nil
}

// badKey says what is wrong with an idempotency key, "" if nothing is.
func badKey(key string) string {
	if len(key) < 1 || len(key) > outbox.MaxIdempotencyKey {
		return "want 1 to 255 bytes"
	}
	if !utf8.ValidString(key) || bytes.ContainsFunc([]byte(key), unicode.IsControl) {
		return "want text without control characters"
	}
	return ""
}

// keptAnswer is how a first answer is stored. The store seals it: it may hold a secret.
type keptAnswer struct {
	Status   int    `json:"status"`
	Kind     string `json:"kind,omitempty"`
	Location string `json:"location,omitempty"`
	Body     []byte `json:"body"`
}

// once runs the request if it is the first with its key, and else gives the first one's answer
// again. Publishing single events does not come here: their key is stored with the event.
//
// A process that dies between the request's effect and EndIdempotent leaves a claim that is
// taken over after a minute, and the request runs again. What must not happen twice therefore
// has a guard of its own: a batch's events carry keys derived from its key, an endpoint its uid.
func (a *API) once(q *request) (*answer, error) {
	key, err := q.idempotencyKey()
	if err != nil {
		return nil, err
	}
	scope, digest := q.tenant.TenantRef, q.digest()
	state, kept, err := a.cfg.Store.BeginIdempotent(q.Context(), scope, key, digest, q.now)
	if err != nil {
		return nil, err
	}
	switch state {
	case outbox.IdempotencyRunning:
		return nil, fail(CodeIdempotencyRunning, "the first request with this key has not ended")
	case outbox.IdempotencyMismatch:
		return nil, fail(CodeIdempotencyMismatch, "the key was used with another request")
	case outbox.IdempotencyDone:
		return unkeep(kept)
	}

	ans, err := q.route.handle(a, q)
	if err != nil {
		// A request that was refused changed nothing. Its key is free for the corrected one, as it
		// is where single events are published.
		a.dropClaim(q, scope, key)
		return nil, err
	}
	a.keep(q, scope, key, ans)
	return ans, nil
}

// digest is what a key is bound to: the request, whole, and what its sender may do. The answer may
// hold a secret that somebody with fewer rights could not have asked for: it must not be had by
// asking again under the same key.
func (q *request) digest() [32]byte {
	h := sha256.New()
	h.Write([]byte(q.Method + " " + q.URL.RequestURI() + "\x00" + q.who.Tenant + "\x00"))
	for _, scope := range slices.Sorted(slices.Values(q.who.Scopes)) {
		h.Write([]byte(scope + " "))
	}
	h.Write([]byte{0})
	h.Write(q.body)
	return [32]byte(h.Sum(nil))
}

// keep stores the answer. The effect has happened, so this does not end with the caller's
// patience, and its failure does not take the answer away.
func (a *API) keep(q *request, scope outbox.TenantRef, key string, ans *answer) {
	raw, err := ans.bytes()
	if err == nil {
		ans.raw = raw
		var kept []byte
		if kept, err = json.Marshal(keptAnswer{Status: ans.status, Kind: ans.kind, Location: ans.location, Body: raw}); err == nil {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(q.Context()), 5*time.Second)
			defer cancel()
			err = a.cfg.Store.EndIdempotent(ctx, scope, key, kept)
		}
	}
	if err != nil {
		a.cfg.Log.WarnContext(q.Context(), "the answer of an idempotent request was not kept", "request_id", q.id, "error", err)
	}
}

// dropClaim lets the request be sent again.
func (a *API) dropClaim(q *request, scope outbox.TenantRef, key string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(q.Context()), 5*time.Second)
	defer cancel()
	if err := a.cfg.Store.DropIdempotent(ctx, scope, key); err != nil {
		a.cfg.Log.WarnContext(q.Context(), "the claim of a failed request stays for a minute", "request_id", q.id, "error", err)
	}
}

func unkeep(kept []byte) (*answer, error) {
	var first keptAnswer
	if err := json.Unmarshal(kept, &first); err != nil {
		return nil, err
	}
	return &answer{status: first.Status, raw: first.Body, kind: first.Kind, location: first.Location, replayed: true}, nil
}
