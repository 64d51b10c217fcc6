package api

import (
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"golang.org/x/net/http/httpguts"

	"github.com/waybill-dev/waybill/internal/inbound"
	"github.com/waybill-dev/waybill/internal/outbox"
)

// sourceEdit is a source while a request changes it.
type sourceEdit struct {
	*outbox.Source
	tenant  string   // its new tenant's key; "": as before
	secrets []string // those that replace all others, if given
	given   bool     // secrets
	keep    bool     // keep_seconds was given
	now     time.Time
}

// Bounds of a source.
const (
	maxSourceSecrets  = 10
	maxSecretLen      = 1024
	maxForwardHeaders = 20
	maxKeep           = 400 * 24 * 3600
	maxTemplate       = 200
)

// sourceFields is PUT /v1/sources/{source}.
var sourceFields = []field[sourceEdit]{
	{
		name: "provider", about: "Who sends. custom: as verify says.", schema: &huma.Schema{Type: huma.TypeString, Enum: anyOf(inbound.Providers())},
		set: func(s *sourceEdit, v value) {
			if word, ok := v.oneOf(inbound.Providers()...); ok {
				s.Provider = word
			}
		},
	},
	{
		name: "tenant", about: "Whose events they become.", schema: textSchema(64),
		set: func(s *sourceEdit, v value) { setText(&s.tenant, v, 64) },
	},
	{
		name: "secrets", about: "All that may sign, newest first, as the provider's page shows them. They replace those before; POST …/secrets adds one.",
		schema: &huma.Schema{Type: huma.TypeArray, Items: textSchema(maxSecretLen), MaxItems: new(maxSourceSecrets)},
		set: func(s *sourceEdit, v value) {
			if texts, ok := v.texts(maxSourceSecrets, maxSecretLen); ok {
				s.secrets, s.given = texts, true
			}
		},
		reset: func(s *sourceEdit) { s.secrets, s.given = nil, true },
	},
	{
		name: "event_type", about: "Of the events; {topic} stands for the provider's own word. By default {topic}.", schema: textSchema(maxTemplate),
		set: func(s *sourceEdit, v value) {
			text, ok := v.text(maxTemplate)
			if ok && !outbox.ValidEventType(strings.ReplaceAll(text, "{topic}", "topic")) {
				v.invalid("want words of A-Z a-z 0-9 _ - joined by dots, one of which may be {topic}")
			} else if ok {
				s.Settings.EventType = text
			}
		},
		reset: func(s *sourceEdit) { s.Settings.EventType = "" },
	},
	{
		name: "id", about: "Where an event's id is; null: where the provider puts it.", schema: describe("SourcePlaceInput", sourcePlaceFields),
		set:   func(s *sourceEdit, v value) { setPart(&s.Settings.ID, v, sourcePlaceFields) },
		reset: func(s *sourceEdit) { s.Settings.ID = nil },
	},
	{
		name: "verify", about: "How a request is checked, for the provider custom, and what only you know of another.", schema: describe("SourceCheckInput", sourceCheckFields),
		set: func(s *sourceEdit, v value) {
			next := &outbox.SourceCheck{}
			if was := s.Settings.Verify; was != nil {
				next.ChallengeToken = was.ChallengeToken // nobody can send again what nobody is shown
			}
			fill(v, sourceCheckFields, next)
			s.Settings.Verify = next
		},
		reset: func(s *sourceEdit) { s.Settings.Verify = nil },
	},
	{
		name: "forward_headers", about: "Headers that go on with the event; the content type always does. null: those the provider tells its events apart by.",
		schema: &huma.Schema{Type: huma.TypeArray, Items: textSchema(100), MaxItems: new(maxForwardHeaders)},
		set: func(s *sourceEdit, v value) {
			names, ok := v.texts(maxForwardHeaders, 100)
			for i, name := range names {
				if !httpguts.ValidHeaderFieldName(name) {
					v.invalid("%q is not a header name", name)
					ok = false
				}
				names[i] = http.CanonicalHeaderKey(name)
			}
			if ok {
				s.Settings.ForwardHeaders = names
			}
		},
		reset: func(s *sourceEdit) { s.Settings.ForwardHeaders = nil },
	},
	{
		name: "responses", about: "Codes to answer with in place of the provider's.", schema: describe("SourceAnswersInput", sourceAnswerFields),
		set: func(s *sourceEdit, v value) {
			next := outbox.SourceAnswers{}
			fill(v, sourceAnswerFields, &next)
			s.Settings.Responses = next
		},
		reset: func(s *sourceEdit) { s.Settings.Responses = outbox.SourceAnswers{} },
	},
	{
		name: "max_body", about: "Bytes; what is larger is refused before anything else. By default what the provider sends at most, and never more than 1 MiB.",
		schema: rangeSchema(huma.TypeInteger, 1, outbox.HardMaxPayload, nil),
		set: func(s *sourceEdit, v value) {
			if n, ok := v.integer(1, outbox.HardMaxPayload); ok {
				s.Settings.MaxBody = int64(n)
			}
		},
		reset: func(s *sourceEdit) { s.Settings.MaxBody = 0 },
	},
	{
		name: "keep_seconds", about: "How long a request is kept, and its id remembered. By default as long as the provider can send it again, and 7 days at least.",
		schema: rangeSchema(huma.TypeInteger, 3600, maxKeep, nil),
		set: func(s *sourceEdit, v value) {
			if n, ok := v.integer(3600, maxKeep); ok {
				s.Keep, s.keep = time.Duration(n)*time.Second, true
			}
		},
		reset: func(s *sourceEdit) { s.Keep, s.keep = 0, true },
	},
	{
		name: "state", about: "paused: the provider is told to come back later.", schema: wordsSchema("active", "paused"),
		set: func(s *sourceEdit, v value) {
			if word, ok := v.oneOf("active", "paused"); ok {
				s.State = outbox.SourceState(word)
			}
		},
		reset: func(s *sourceEdit) { s.State = outbox.SourceActive },
	},
}

// setPart reads an object that replaces what was there.
func setPart[T any](into **T, v value, fields []field[T]) {
	next := new(T)
	fill(v, fields, next)
	*into = next
}

// anyOf turns words into a schema's list.
func anyOf(words []string) []any {
	out := make([]any, len(words))
	for i, word := range words {
		out[i] = word
	}
	return out
}

var sourcePlaceFields = []field[outbox.SourcePlace]{
	{
		name: "header", about: "A header.", schema: textSchema(100),
		set:   func(p *outbox.SourcePlace, v value) { setText(&p.Header, v, 100) },
		reset: func(p *outbox.SourcePlace) { p.Header = "" },
	},
	{
		name: "pointer", about: "A JSON pointer into the body, /data/id.", schema: textSchema(256),
		set:   func(p *outbox.SourcePlace, v value) { setText(&p.Pointer, v, 256) },
		reset: func(p *outbox.SourcePlace) { p.Pointer = "" },
	},
	{
		name: "body_within_seconds", about: "For senders without ids: equal bodies within this time are one event.", schema: rangeSchema(huma.TypeNumber, 1, maxKeep, nil),
		set:   func(p *outbox.SourcePlace, v value) { setSeconds(&p.BodyWithin, v, 1, maxKeep) },
		reset: func(p *outbox.SourcePlace) { p.BodyWithin = 0 },
	},
}

// checkText is a text field of verify.
func checkText(name, about string, at func(*outbox.SourceCheck) *string) field[outbox.SourceCheck] {
	return field[outbox.SourceCheck]{
		name: name, about: about, schema: textSchema(512),
		set:   func(c *outbox.SourceCheck, v value) { setText(at(c), v, 512) },
		reset: func(c *outbox.SourceCheck) { *at(c) = "" },
	}
}

var sourceCheckFields = []field[outbox.SourceCheck]{
	checkText("signed", "What is signed: {body}, {timestamp}.{body}, with {id} and {url} too.", func(c *outbox.SourceCheck) *string { return &c.Signed }),
	checkText("header", "The header that carries the signature.", func(c *outbox.SourceCheck) *string { return &c.Header }),
	checkText("form", "How it is written there: sha256={hex}, t={timestamp},v1={hex}, {base64}.", func(c *outbox.SourceCheck) *string { return &c.Form }),
	checkText("algorithm", "sha256 by default; sha1, sha512.", func(c *outbox.SourceCheck) *string { return &c.Algorithm }),
	checkText("id_header", "Where {id} comes from.", func(c *outbox.SourceCheck) *string { return &c.IDHeader }),
	checkText("time_header", "Where {timestamp} comes from, if not from form.", func(c *outbox.SourceCheck) *string { return &c.TimeHeader }),
	{
		name: "milliseconds", about: "The timestamp counts milliseconds.", schema: &huma.Schema{Type: huma.TypeBoolean},
		set: func(c *outbox.SourceCheck, v value) {
			switch string(v.raw) {
			case "true", "false":
				c.Milliseconds = string(v.raw) == "true"
			default:
				v.invalid("want true or false")
			}
		},
		reset: func(c *outbox.SourceCheck) { c.Milliseconds = false },
	},
	{
		name: "tolerance_seconds", about: "How far a timestamp may be from now, either way; 300 by default.", schema: rangeSchema(huma.TypeNumber, 1, 7*24*3600, nil),
		set:   func(c *outbox.SourceCheck, v value) { setSeconds(&c.Tolerance, v, 1, 7*24*3600) },
		reset: func(c *outbox.SourceCheck) { c.Tolerance = 0 },
	},
	{
		name: "secret_encodings", about: "How a secret is read: utf8, base64, hex. Several stand side by side while a provider changes it.",
		schema: &huma.Schema{Type: huma.TypeArray, Items: wordsSchema("utf8", "base64", "hex"), MaxItems: new(3)},
		set: func(c *outbox.SourceCheck, v value) {
			if texts, ok := v.texts(3, 10); ok {
				c.SecretEncodings = texts
			}
		},
		reset: func(c *outbox.SourceCheck) { c.SecretEncodings = nil },
	},
	checkText("secret_prefix", "Dropped from a secret that is not utf8.", func(c *outbox.SourceCheck) *string { return &c.SecretPrefix }),
	checkText("public_url", "The address as it is written on the provider's page, where the provider signs it (Twilio, Square).", func(c *outbox.SourceCheck) *string { return &c.PublicURL }),
	checkText("challenge_token", "Answers an unsigned handshake (Meta's hub.verify_token). It is never shown; left out it stays, null forgets it.", func(c *outbox.SourceCheck) *string { return &c.ChallengeToken }),
}

// answerCode is a code of responses. One that a provider takes for success must not be told to it
// for anything else, and the other way round.
func answerCode(name, about string, success bool, at func(*outbox.SourceAnswers) *int) field[outbox.SourceAnswers] {
	from, to := 400, 599
	if success {
		from, to = 200, 299
	}
	return field[outbox.SourceAnswers]{
		name: name, about: about, schema: rangeSchema(huma.TypeInteger, float64(from), float64(to), nil),
		set:   func(a *outbox.SourceAnswers, v value) { setInteger(at(a), v, from, to) },
		reset: func(a *outbox.SourceAnswers) { *at(a) = 0 },
	}
}

var sourceAnswerFields = []field[outbox.SourceAnswers]{
	answerCode("ok", "Stored, or stored before.", true, func(a *outbox.SourceAnswers) *int { return &a.OK }),
	answerCode("in_flight", "Being stored at this moment.", false, func(a *outbox.SourceAnswers) *int { return &a.InFlight }),
	answerCode("failed", "Not stored; come again.", false, func(a *outbox.SourceAnswers) *int { return &a.Failed }),
	answerCode("rejected", "Does not verify.", false, func(a *outbox.SourceAnswers) *int { return &a.Rejected }),
	answerCode("too_large", "Larger than max_body.", false, func(a *outbox.SourceAnswers) *int { return &a.TooLarge }),
}

// addedSecret is POST /v1/sources/{source}/secrets.
type addedSecret struct {
	value   string
	overlap *time.Duration // nil: the others stay
}

var addedSecretFields = []field[addedSecret]{
	{
		name: "secret", about: "As the provider's page shows it.", required: true, schema: textSchema(maxSecretLen),
		set: func(s *addedSecret, v value) { setText(&s.value, v, maxSecretLen) },
	},
	{
		name: "overlap_seconds", about: "When those before it end; null: not by themselves.", schema: rangeSchema(huma.TypeNumber, 0, maxKeep, nil),
		set: func(s *addedSecret, v value) {
			if n, ok := v.number(0, maxKeep); ok {
				s.overlap = new(time.Duration(n * float64(time.Second)))
			}
		},
		reset: func(s *addedSecret) { s.overlap = nil },
	},
}
