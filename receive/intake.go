package receive

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/waybill-dev/waybill/signature"
)

// defaultMaxBody is for providers that do not say what they send at most.
const defaultMaxBody = 1 << 20

// trustedLength is how much memory a header alone can make us take.
const trustedLength = 64 << 10

// Intake is the front half of a receiver: from a request to verified events, and nothing is stored.
// Inbox and Sync have one; a receiver with a store of its own may use it alone.
type Intake struct {
	src     Source
	codes   Codes
	keys    *keyring
	strip   []string // canonical header names
	id      lookup
	topic   lookup
	account lookup
	maxBody int64
}

// lookup is a Lookup made ready.
type lookup struct {
	Lookup
	path pointer
}

// Arrival is what a request turned out to be.
type Arrival struct {
	// Records are the events in it, in order. None: Answer is what to tell the provider.
	Records []Record
	Answer  Reply // of any status, unlike a handler's
	// Outcome is Handshaken, Declined, Rejected, TooLarge or Failed if there are no Records.
	Outcome string
	Reason  string        // for a metric label
	Skew    time.Duration // signed time minus now
	Err     error         // why; nothing of it is for the sender
}

// NewIntake checks the source. The error is a *ConfigError.
func NewIntake(src Source) (*Intake, error) {
	in, problems := newIntake(src, time.Now())
	if len(problems) > 0 {
		return nil, &ConfigError{src.Name, problems}
	}
	return in, nil
}

// Source is what the intake was made of.
func (in *Intake) Source() Source { return in.src }

// Codes are the provider's, with the defaults filled in.
func (in *Intake) Codes() Codes { return in.codes }

func newIntake(src Source, now time.Time) (*Intake, []Problem) {
	in := &Intake{src: src, codes: src.Provider.Codes.withDefaults(), maxBody: src.MaxBody}
	if in.maxBody == 0 {
		in.maxBody = max(src.Provider.MaxBody, defaultMaxBody)
	}
	var problems []Problem
	incomplete := func(what, remedy string) { problems = append(problems, Problem{Incomplete, Loses, what, remedy}) }
	if src.Name == "" {
		incomplete("the source has no name", "set Source.Name; it is part of every key, so two services on one store need two names")
	}
	if len(src.Name) > 200 || clean(src.Name) != src.Name {
		incomplete("the source's name is longer than 200 bytes or has characters that no log can show", "choose another name")
	}
	for _, l := range []struct {
		what string
		from Lookup
		to   *lookup
	}{{"ID", src.Provider.ID, &in.id}, {"Topic", src.Provider.Topic, &in.topic}, {"Account", src.Account, &in.account}} {
		path, err := parsePointer(l.from.Pointer)
		if err != nil {
			incomplete(l.what+": "+err.Error(), "write it like /data/id")
		}
		*l.to = lookup{l.from, path}
	}
	if src.Provider.Scheme == nil {
		incomplete("the provider has no signature scheme, so anyone could send", "use one of package providers, or set Provider.Scheme")
		return in, problems
	}
	keys, bad := newKeyring(&src, now)
	in.keys = keys
	problems = append(problems, bad...)
	if signsURL(src.Provider.Scheme) && src.PublicURL == "" {
		problems = append(problems, Problem{
			NeedsURL, Loses, src.Provider.Name + " signs the address it calls, and behind a proxy this server sees another",
			"set Source.PublicURL to the address as it is written on the provider's page",
		})
	}
	in.strip = []string{"Authorization", "Proxy-Authorization", "Cookie"}
	for _, name := range src.Provider.Scheme.Headers() {
		in.strip = append(in.strip, http.CanonicalHeaderKey(name))
	}
	return in, problems
}

// signsURL reports whether the scheme needs Source.PublicURL.
func signsURL(s signature.Scheme) bool {
	switch s := s.(type) {
	case signature.TwilioForm:
		return true
	case signature.HMAC:
		return strings.Contains(s.Signed, "{url}")
	case signature.AnyOf:
		return slices.ContainsFunc(s, signsURL)
	}
	return false
}

// tokenInURL reports whether a part of the address is the secret.
func tokenInURL(s signature.Scheme) bool {
	switch s := s.(type) {
	case signature.SharedToken:
		return s.Header == ""
	case signature.AnyOf:
		return slices.ContainsFunc(s, tokenInURL)
	}
	return false
}

func (c Codes) withDefaults() Codes {
	or := func(code *int, otherwise int) {
		if *code == 0 {
			*code = otherwise
		}
	}
	or(&c.OK, http.StatusOK)
	or(&c.InFlight, http.StatusServiceUnavailable)
	or(&c.Failed, http.StatusServiceUnavailable)
	or(&c.Rejected, http.StatusUnauthorized)
	or(&c.TooLarge, http.StatusRequestEntityTooLarge)
	return c
}

// Read takes the request's body, at most MaxBody of it, verifies it, and finds the events in it. It
// reads r to its end or closes the connection; it writes nothing.
func (in *Intake) Read(w http.ResponseWriter, r *http.Request, now time.Time) Arrival {
	if r.Method != http.MethodPost {
		return in.greet(r)
	}
	body, refused := in.readBody(w, r)
	if refused != nil {
		return *refused
	}
	req := signature.Request{Method: r.Method, URL: in.url(r), Header: r.Header, Body: body}
	v, err := in.keys.verify(r.Context(), req, now)
	if err != nil {
		if reason, known := signature.Why(err); known {
			return Arrival{Answer: Reply{Status: in.codes.Rejected}, Outcome: Rejected, Reason: string(reason), Err: err}
		}
		return Arrival{Answer: Reply{Status: in.codes.Failed}, Outcome: Failed, Reason: "keys", Err: err}
	}
	for _, h := range in.src.Provider.Handshakes {
		if h.Method != r.Method {
			continue
		}
		if reply, ok := h.Answer(req, in.src.ChallengeToken); ok {
			return Arrival{Answer: in.plain(reply), Outcome: Handshaken}
		}
	}
	a := Arrival{}
	if !v.At.IsZero() {
		a.Skew = v.At.Sub(now)
	}
	a.Records = in.records(r.Header, body, v, now)
	if len(a.Records) == 0 {
		a.Answer, a.Outcome = Reply{Status: in.codes.OK}, Declined
	}
	return a
}

// Methods are those a request may come with, for the header Allow of a 405.
func (in *Intake) Methods() []string {
	methods := []string{http.MethodPost}
	for _, h := range in.src.Provider.Handshakes {
		if !slices.Contains(methods, h.Method) {
			methods = append(methods, h.Method)
			if h.Method == http.MethodGet {
				methods = append(methods, http.MethodHead)
			}
		}
	}
	return methods
}

// answer sends what the provider is told without a store having been asked.
func (in *Intake) answer(w http.ResponseWriter, r Reply) {
	if r.Status == http.StatusMethodNotAllowed {
		w.Header().Set("Allow", strings.Join(in.Methods(), ", "))
	}
	r.Send(w)
}

// greet answers a request that can only be a handshake.
func (in *Intake) greet(r *http.Request) Arrival {
	refused := Arrival{Answer: Reply{Status: http.StatusMethodNotAllowed}, Outcome: Rejected, Reason: "method", Err: errors.New("receive: a webhook is a POST")}
	for _, h := range in.src.Provider.Handshakes {
		if h.Method != r.Method && (h.Method != http.MethodGet || r.Method != http.MethodHead) {
			continue
		}
		if in.src.ChallengeToken == "" {
			refused.Answer.Status, refused.Reason = in.codes.Rejected, "challenge"
			refused.Err = errors.New("receive: an unsigned handshake came, and Source.ChallengeToken is not set")
			continue
		}
		req := signature.Request{Method: r.Method, URL: r.URL.String(), Header: r.Header}
		if reply, ok := h.Answer(req, in.src.ChallengeToken); ok {
			return Arrival{Answer: in.plain(reply), Outcome: Handshaken}
		}
		refused.Answer.Status, refused.Reason = in.codes.Rejected, "challenge"
		refused.Err = errors.New("receive: an unsigned handshake came with another token")
	}
	return refused
}

func (in *Intake) plain(r Reply) Reply {
	if r.Status == 0 {
		r.Status = in.codes.OK
	}
	return r
}

func (in *Intake) tooLarge() *Arrival {
	return &Arrival{Answer: Reply{Status: in.codes.TooLarge}, Outcome: TooLarge, Reason: "body", Err: errors.New("receive: the body is larger than this source takes")}
}

// readBody is before everything else: nothing is hashed, parsed or kept of what is too large.
func (in *Intake) readBody(w http.ResponseWriter, r *http.Request) ([]byte, *Arrival) {
	if r.ContentLength > in.maxBody {
		return nil, in.tooLarge()
	}
	// The signature is over what was sent, and what an encoding hides may be of any size.
	if e := r.Header.Get("Content-Encoding"); e != "" && !strings.EqualFold(e, "identity") {
		return nil, &Arrival{Answer: Reply{Status: in.codes.Rejected}, Outcome: Rejected, Reason: "encoding", Err: errors.New("receive: the body has a Content-Encoding")}
	}
	limited := http.MaxBytesReader(w, r.Body, in.maxBody)
	var body []byte
	var err error
	if n := r.ContentLength; n >= 0 && n <= trustedLength {
		body = make([]byte, n)
		_, err = io.ReadFull(limited, body)
	} else {
		body, err = io.ReadAll(limited)
	}
	if err != nil {
		if _, over := errors.AsType[*http.MaxBytesError](err); over {
			return nil, in.tooLarge()
		}
		return nil, &Arrival{Answer: Reply{Status: in.codes.Failed}, Outcome: Failed, Reason: "read", Err: err}
	}
	return body, nil
}

// url is the request's address as the provider knows it. Where a token in it is the secret, it is the
// one that was called: PublicURL may have the right one.
func (in *Intake) url(r *http.Request) string {
	if tokenInURL(in.src.Provider.Scheme) {
		return r.URL.String()
	}
	u := in.src.PublicURL
	if u != "" && r.URL.RawQuery != "" && !strings.Contains(u, "?") {
		u += "?" + r.URL.RawQuery
	}
	return u
}

// records cuts the verified body into events.
func (in *Intake) records(header http.Header, body []byte, v signature.Verified, now time.Time) []Record {
	p := &in.src.Provider
	parts := [][]byte{body}
	if p.Split != nil {
		// What cannot be split is one event: the handler, and a dead letter, see it whole.
		if split, err := p.Split(body); err == nil {
			parts = split
		}
	}
	kept := in.keptHeader(header)
	records := make([]Record, 0, len(parts))
	for i, part := range parts {
		topic, has := in.topic.in(header, part)
		var id string
		if p.Identify != nil {
			var found string
			if id, found = p.Identify(part); !has {
				topic, has = found, found != ""
			}
		}
		if has && len(in.src.Topics) > 0 && !slices.Contains(in.src.Topics, topic) {
			continue
		}
		r := Record{
			Key:   Key{Source: in.src.Name, Index: i},
			Topic: clean(topic), Header: kept, Body: part, Of: len(parts),
			SentAt: v.At, ReceivedAt: now,
		}
		account, _ := in.account.in(header, part)
		r.Key.Account = clean(account)
		if p.Fingerprint != nil {
			r.Digest = sha256.Sum256(p.Fingerprint(part))
		} else {
			r.Digest = sha256.Sum256(part)
		}
		in.identify(&r, header, part, id, v)
		records = append(records, r)
	}
	return records
}

// identify says what makes another request the same event. other is what Identify found.
func (in *Intake) identify(r *Record, header http.Header, part []byte, other string, v signature.Verified) {
	id, found := v.ID, v.ID != ""
	r.IDSigned = found
	if !found {
		id, found = in.id.in(header, part)
		found = found && id != ""
		r.IDSigned = found && in.id.Header == ""
	}
	if !found && other != "" {
		id, found, r.IDSigned = other, true, true
	}
	switch {
	case found:
		r.Key.ID = clean(id)
		if !r.IDSigned {
			r.Key.Digest = r.Digest
		}
		if in.src.Provider.IDPerTopic {
			r.Key.Digest = sha256.Sum256(append(r.Key.Digest[:], r.Topic...))
		}
	case in.src.BodyIsID > 0:
		r.Key.Digest = r.Digest
	default:
		rand.Read(r.Key.Digest[:])
	}
}

// keptHeader is the header without what carried the signature or a secret.
func (in *Intake) keptHeader(header http.Header) http.Header {
	kept := make(http.Header, len(header))
	for name, lines := range header {
		if !slices.Contains(in.strip, http.CanonicalHeaderKey(name)) {
			kept[name] = lines
		}
	}
	return kept
}

// in looks in the header or in the event's bytes.
func (l *lookup) in(header http.Header, part []byte) (string, bool) {
	if l.Header != "" {
		for name, lines := range header {
			if len(lines) > 0 && strings.EqualFold(name, l.Header) {
				return lines[0], true
			}
		}
		return "", false
	}
	if l.path == nil {
		return "", false
	}
	return l.path.text(part)
}

// clean is text that any store and any log can keep. What they could not, a NUL for PostgreSQL, is
// replaced by its digest, so that two such texts stay two.
func clean(text string) string {
	odd := func(r rune) bool { return unicode.IsControl(r) || r == utf8.RuneError }
	if len(text) <= 512 && !strings.ContainsFunc(text, odd) {
		return text
	}
	sum := sha256.Sum256([]byte(text))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// Send writes the answer.
func (r Reply) Send(w http.ResponseWriter) {
	if r.ContentType != "" {
		w.Header().Set("Content-Type", r.ContentType)
		w.Header().Set("X-Content-Type-Options", "nosniff") // a handshake says back what a stranger sent
	}
	w.WriteHeader(r.Status)
	if len(r.Body) > 0 && r.Status != http.StatusNoContent {
		_, _ = w.Write(r.Body) // a provider that hung up comes again, or does not care
	}
}

// detached is a context that a provider who hangs up does not end.
func detached(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), limit)
}
