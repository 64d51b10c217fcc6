package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
	"github.com/waybill-dev/waybill/internal/publish"
)

const acmeEvents = "/v1/tenants/acme/events"

// What is published is what is stored, byte for byte.
func TestPublish_payloadBytesAreKept(t *testing.T) { onBoth(t, publish_payloadBytesAreKept) }

func publish_payloadBytesAreKept(t *testing.T, f *fixture) {
	f.tenant("acme")
	for name, payload := range map[string]string{
		"white space, floats, markup, big id": `{ "b": 1.0, "a": "<&>", "id": 9007199254740993 }`,
		"a NUL escape":                        `{"n":"a\u0000b"}`,
		"numbers past 2^53, zeros, exponents": `{"id":616581622363398142,"max":9007199254740993,"dec":0.10,"exp":1E2,"neg":-0}`,
		"key order":                           `{"zz":1,"b":2,"aaa":3}`,
		"a key twice":                         `{"a":1,"a":2}`,
		"line breaks and tabs":                "{\r\n\t\"a\" :\n 1 }",
		"text outside ASCII":                  `{"tier":"🚀 Gold é"}`,
		"escapes that could be shorter":       `"\u0041\/\ud83d\ude80\u2028"`,
		"half a surrogate pair":               `"\ud800"`,
		"a number":                            `0.0`,
		"true":                                `true`,
		"null":                                `null`,
		"an empty object":                     `{}`,
		"an empty string":                     `""`,
		"1,000 levels":                        strings.Repeat("[", 1000) + strings.Repeat("]", 1000),
	} {
		t.Run(name, func(t *testing.T) {
			f.t = t
			want := payload
			for how, body := range map[string]string{
				"alone":           `{"type":"a.b","payload":` + payload + `}`,
				"with air around": " {\n\"payload\" : \t" + payload + "\n, \"type\":\"a.b\"}\n",
			} {
				id := f.call("POST", acmeEvents, body).want(http.StatusAccepted).text("id")
				if got := f.call("GET", acmeEvents+"/"+id+"/payload", nil).want(http.StatusOK).body; string(got) != want {
					t.Errorf("%s: %q came back as %q", how, want, got)
				}
			}
			batch := f.call("POST", acmeEvents+"/batch", `{"events":[{"type":"a.b","payload":1},{"payload":`+payload+`,"type":"a.b"}]}`).want(http.StatusAccepted)
			if got := f.call("GET", acmeEvents+"/"+batch.text("data", 1, "id")+"/payload", nil).body; string(got) != want {
				t.Errorf("in a batch: %q came back as %q", want, got)
			}
		})
	}
}

func TestPublish_answer(t *testing.T) {
	f := newFixture(t)
	f.tenant("acme")
	a := f.call("POST", acmeEvents, `{"type":"payment.succeeded","payload":{},"ordering_key":"pay_1","metadata":{"order":"1"}}`).want(http.StatusAccepted)
	m := a.json()
	if m["type"] != "payment.succeeded" || m["duplicate"] != false || len(m) != 4 {
		t.Errorf("answer %s", a.body)
	}
	if at, err := time.Parse("2006-01-02T15:04:05.000Z", a.text("created_at")); err != nil || time.Since(at).Abs() > time.Minute {
		t.Errorf("created_at %v", m["created_at"])
	}
	got := f.call("GET", acmeEvents+"/"+a.text("id"), nil).want(http.StatusOK).json()
	if got["ordering_key"] != "pay_1" || got["metadata"].(map[string]any)["order"] != "1" || got["payload_bytes"] != 2.0 || got["tenant"] != "acme" {
		t.Errorf("event %v", got)
	}
	var typed acceptedEvent
	if err := json.Unmarshal(a.body, &struct {
		*acceptedEvent
		CreatedAt string `json:"created_at"`
	}{acceptedEvent: &typed}); err != nil || !strings.HasPrefix(typed.ID, "evt_") {
		t.Errorf("the hand-written answer does not fit its type: %v %s", err, a.body)
	}
}

func TestPublish_refuses(t *testing.T) {
	f := newFixture(t, func(cfg *Config) { cfg.MaxPayload = 1000 })
	f.tenant("acme")
	now := f.clock.Now()
	old, early := outbox.NewEventID(now.Add(-24*time.Hour-time.Second)), outbox.NewEventID(now.Add(5*time.Minute+2*time.Second))
	many := map[string]string{}
	for i := range 51 {
		many[fmt.Sprint(i)] = ""
	}
	tooMany, _ := json.Marshal(many)
	for name, tc := range map[string]struct {
		body   string
		status int
		code   Code
		path   string
	}{
		"empty":                        {``, 422, CodeInvalidPayload, ""},
		"no JSON":                      {`hello`, 422, CodeInvalidPayload, ""},
		"an array":                     {`[]`, 422, CodeInvalidField, ""},
		"cut":                          {`{"type":"a.b","payload":{`, 422, CodeInvalidPayload, "payload"},
		"text after the end":           {`{"type":"a.b","payload":{}} x`, 422, CodeInvalidPayload, ""},
		"bad payload":                  {`{"type":"a.b","payload":{"a":01}}`, 422, CodeInvalidPayload, "payload"},
		"invalid UTF-8 in payload":     {"{\"type\":\"a.b\",\"payload\":\"\xff\"}", 422, CodeInvalidPayload, "payload"},
		"overlong UTF-8 in payload":    {"{\"type\":\"a.b\",\"payload\":\"\xc0\xaf\"}", 422, CodeInvalidPayload, "payload"},
		"invalid UTF-8 in a name":      {"{\"type\":\"a.b\",\"payload\":1,\"\xff\":1}", 422, CodeInvalidPayload, ""},
		"1,001 levels":                 {`{"type":"a.b","payload":` + strings.Repeat("[", 1001) + strings.Repeat("]", 1001) + `}`, 422, CodeInvalidPayload, "payload"},
		"no type":                      {`{"payload":1}`, 422, CodeMissingField, "type"},
		"no payload":                   {`{"type":"a.b"}`, 422, CodeMissingField, "payload"},
		"type null":                    {`{"type":null,"payload":1}`, 422, CodeInvalidField, "type"},
		"type of other kind":           {`{"type":1,"payload":1}`, 422, CodeInvalidField, "type"},
		"type with a space":            {`{"type":"a b","payload":1}`, 422, CodeInvalidField, "type"},
		"type with markup":             {`{"type":"<script>","payload":1}`, 422, CodeInvalidField, "type"},
		"type is a pattern":            {`{"type":"a.*","payload":1}`, 422, CodeInvalidField, "type"},
		"type of 129 bytes":            {`{"type":"` + strings.Repeat("a", 129) + `","payload":1}`, 422, CodeInvalidField, "type"},
		"unknown field":                {`{"type":"a.b","payload":1,"channel":"x"}`, 422, CodeUnknownField, "channel"},
		"tenant in a tenant's route":   {`{"type":"a.b","payload":1,"tenant":"acme"}`, 422, CodeUnknownField, "tenant"},
		"payload twice":                {`{"type":"a.b","payload":1,"payload":2}`, 422, CodeDuplicateField, "payload"},
		"payload of 1,001 bytes":       {`{"type":"a.b","payload":"` + strings.Repeat("a", 999) + `"}`, 413, CodePayloadTooLarge, "payload"},
		"body beyond any payload":      {`{"type":"a.b","payload":"` + strings.Repeat("a", 70_000) + `"}`, 413, CodePayloadTooLarge, ""},
		"id of another kind":           {`{"type":"a.b","payload":1,"id":"ep_01m8mnc692fxgt1qs89yv86m2t"}`, 422, CodeInvalidField, "id"},
		"id of the day before":         {`{"type":"a.b","payload":1,"id":"` + old.String() + `"}`, 422, CodeIDTime, "id"},
		"id of the future":             {`{"type":"a.b","payload":1,"id":"` + early.String() + `"}`, 422, CodeIDTime, "id"},
		"ordering key of 256 bytes":    {`{"type":"a.b","payload":1,"ordering_key":"` + strings.Repeat("a", 256) + `"}`, 422, CodeInvalidField, "ordering_key"},
		"ordering key with NUL":        {`{"type":"a.b","payload":1,"ordering_key":"\u0000"}`, 422, CodeInvalidField, "ordering_key"},
		"empty idempotency key":        {`{"type":"a.b","payload":1,"idempotency_key":""}`, 422, CodeInvalidField, "idempotency_key"},
		"idempotency key too long":     {`{"type":"a.b","payload":1,"idempotency_key":"` + strings.Repeat("a", 256) + `"}`, 422, CodeInvalidField, "idempotency_key"},
		"idempotency key with \\u0001": {`{"type":"a.b","payload":1,"idempotency_key":"batch\u0001"}`, 422, CodeInvalidField, "idempotency_key"},
		"metadata no object":           {`{"type":"a.b","payload":1,"metadata":[]}`, 422, CodeInvalidField, "metadata"},
		"metadata of numbers":          {`{"type":"a.b","payload":1,"metadata":{"n":1}}`, 422, CodeInvalidField, "metadata.n"},
		"metadata with NUL":            {`{"type":"a.b","payload":1,"metadata":{"n":"\u0000"}}`, 422, CodeInvalidField, "metadata.n"},
		"metadata of 51 entries":       {`{"type":"a.b","payload":1,"metadata":` + string(tooMany) + `}`, 422, CodeInvalidField, "metadata"},
		"metadata twice in itself":     {`{"type":"a.b","payload":1,"metadata":{"a":"1","a":"2"}}`, 422, CodeDuplicateField, "metadata.a"},
	} {
		t.Run(name, func(t *testing.T) {
			f.t = t
			p := f.call("POST", acmeEvents, tc.body).wantProblem(tc.status, tc.code)
			if tc.path != "" && (len(p.Errors) != 1 || p.Errors[0].Path != tc.path) {
				t.Errorf("errors %+v, want one at %q", p.Errors, tc.path)
			}
		})
	}
	f.t = t
	if rows := f.call("GET", acmeEvents, nil).want(http.StatusOK).get("data").([]any); len(rows) != 0 {
		t.Errorf("%d events were stored all the same", len(rows))
	}
}

func TestPublish_tellsEverythingAtOnce(t *testing.T) {
	f := newFixture(t)
	f.tenant("acme")
	p := f.call("POST", acmeEvents, `{"type":"a b","channel":1,"id":"x","metadata":{"n":1}}`).wantProblem(422, CodeInvalidRequest)
	var paths []string
	for _, item := range p.Errors {
		paths = append(paths, item.Path)
	}
	if got := strings.Join(paths, " "); got != "type channel id metadata.n payload" {
		t.Errorf("errors at %q", got)
	}
	p = f.call("POST", acmeEvents+"/batch", `{"events":[{"type":"a.b","payload":1},{"type":"a b","payload":1},{"payload":1}]}`).wantProblem(422, CodeInvalidRequest)
	if len(p.Errors) != 2 || *p.Errors[0].Index != 1 || *p.Errors[1].Index != 2 {
		t.Errorf("errors %+v", p.Errors)
	}
}

func TestPublish_lenientIgnoresUnknownFields(t *testing.T) {
	f := newFixture(t)
	f.tenant("acme")
	body := `{"type":"a.b","payload":{},"new":{"deep":[1]}}`
	f.call("POST", acmeEvents, body, "Prefer", "respond-async, handling=lenient").want(http.StatusAccepted)
	f.call("POST", acmeEvents+"/batch", `{"events":[`+body+`],"more":1}`, "Prefer", `handling="lenient"`).want(http.StatusAccepted)
	f.call("POST", acmeEvents, body, "Prefer", "handling=strict").wantProblem(422, CodeUnknownField)
}

// A body made to exhaust a recursive parser is refused, with or without a key. The parser stops at
// the bracket that is one too many and names its place: what stands behind it, which is malformed
// in the last request, is never looked at.
func TestPublish_deepNestingIsCheap(t *testing.T) {
	f := newFixture(t, func(cfg *Config) { cfg.MaxPayload = 1 << 20 })
	f.tenant("acme")
	const event, tenant = `{"type":"a.b","payload":`, `{"metadata":`
	for name, tc := range map[string]struct {
		open, middle, close string
		times               int
	}{
		"9,999 arrays":   {"[", "", "]", 9_999},
		"200,000 arrays": {"[", "", "]", 200_000},
		"50,000 objects": {`{"a":`, "1", "}", 50_000},
	} {
		t.Run(name, func(t *testing.T) {
			deep := strings.Repeat(tc.open, tc.times) + tc.middle + strings.Repeat(tc.close, tc.times)
			tooDeep := func(before string, levels int) string {
				return fmt.Sprintf("deeper than 1000 levels at byte %d", len(before)+levels*len(tc.open))
			}
			p := f.call("POST", acmeEvents, event+deep+"}").wantProblem(422, CodeInvalidPayload)
			if want := tooDeep(event, 1000); len(p.Errors) != 1 || p.Errors[0].Detail != want {
				t.Errorf("errors %+v, want %q", p.Errors, want)
			}
			f.call("POST", acmeEvents, event+deep+"}", "Authorization", "-").wantProblem(401, CodeUnauthorized)
			// The object around it is a level too.
			p = f.call("PUT", "/v1/tenants/other", tenant+deep[:len(deep)/4]+"}").wantProblem(422, CodeInvalidJSON)
			if want := tooDeep(tenant, 999); !strings.Contains(p.Detail, want) {
				t.Errorf("%q, want %q", p.Detail, want)
			}
		})
	}
}

func TestPublish_chosenIDs(t *testing.T) { onBoth(t, publish_chosenIDs) }

func publish_chosenIDs(t *testing.T, f *fixture) {
	f.tenant("acme")
	f.tenant("other")
	now := f.clock.Now()
	for name, at := range map[string]time.Time{
		"almost a day old": now.Add(-24*time.Hour + time.Minute),
		"a little ahead":   now.Add(4 * time.Minute),
	} {
		id := outbox.NewEventID(at).String()
		body := `{"type":"a.b","payload":{"n": 1},"id":"` + id + `"}`
		if a := f.call("POST", acmeEvents, body).want(http.StatusAccepted); a.text("id") != id || a.get("duplicate") != false {
			t.Errorf("%s: %s", name, a.body)
		}
		if a := f.call("POST", acmeEvents, body).want(http.StatusAccepted); a.text("id") != id || a.get("duplicate") != true {
			t.Errorf("%s, again: %s", name, a.body)
		}
		f.call("POST", acmeEvents, strings.Replace(body, `{"n": 1}`, `{"n":1}`, 1)).wantProblem(409, CodeIDConflict)
		p := f.call("POST", acmeEvents+"/batch", `{"events":[{"type":"a.b","payload":1},`+strings.Replace(body, `{"n": 1}`, `2`, 1)+`]}`).wantProblem(409, CodeIDConflict)
		if len(p.Errors) != 1 || *p.Errors[0].Index != 1 {
			t.Errorf("%s, in a batch: %+v", name, p.Errors)
		}
		if a := f.call("POST", "/v1/tenants/other/events", body).want(http.StatusAccepted); a.get("duplicate") != false {
			t.Errorf("%s: another tenant's event met this one", name)
		}
	}
	if n := len(f.call("GET", acmeEvents, nil).get("data").([]any)); n != 2 {
		t.Errorf("%d events, want 2", n)
	}
}

func TestPublish_idempotencyKey(t *testing.T) { onBoth(t, publish_idempotencyKey) }

func publish_idempotencyKey(t *testing.T, f *fixture) {
	f.tenant("acme")
	f.tenant("other")
	body := `{"type":"a.b","payload":{"n":1}}`
	keyed := `{"type":"a.b","payload":{"n":1},"idempotency_key":"k1"}`
	first := f.call("POST", acmeEvents, body, "Idempotency-Key", "k1").want(http.StatusAccepted)
	if first.header.Get("Idempotent-Replayed") != "" {
		t.Error("the first answer says it is a repetition")
	}
	for name, again := range map[string]*reply{
		"by header":           f.call("POST", acmeEvents, body, "Idempotency-Key", "k1"),
		"by field":            f.call("POST", acmeEvents, keyed),
		"by both":             f.call("POST", acmeEvents, keyed, "Idempotency-Key", "k1"),
		"with more air in it": f.call("POST", acmeEvents, "{ \"payload\":{\"n\":1}, \"type\":\"a.b\" }", "Idempotency-Key", "k1"),
	} {
		again.want(http.StatusAccepted)
		if !bytes.Equal(again.body, first.body) || again.header.Get("Idempotent-Replayed") != "true" {
			t.Errorf("%s: %s %v", name, again.body, again.header)
		}
	}
	f.call("POST", acmeEvents, `{"type":"a.b","payload":{"n":2}}`, "Idempotency-Key", "k1").wantProblem(422, CodeIdempotencyMismatch)
	f.call("POST", acmeEvents, `{"type":"a.c","payload":{"n":1}}`, "Idempotency-Key", "k1").wantProblem(422, CodeIdempotencyMismatch)
	f.call("POST", acmeEvents, keyed, "Idempotency-Key", "k2").wantProblem(422, CodeInvalidField)
	f.call("POST", acmeEvents, body, "Idempotency-Key", "").wantProblem(422, CodeInvalidField)
	f.call("POST", acmeEvents, body, "Idempotency-Key", strings.Repeat("k", 256)).wantProblem(422, CodeInvalidField)
	f.call("POST", acmeEvents, body, "Idempotency-Key", strings.Repeat("k", 255)).want(http.StatusAccepted)
	if a := f.call("POST", "/v1/tenants/other/events", body, "Idempotency-Key", "k1").want(http.StatusAccepted); a.get("duplicate") != false {
		t.Error("another tenant's key met this one")
	}
}

func TestPublish_batch(t *testing.T) {
	f := newFixture(t)
	f.tenant("acme")
	var body strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&body, `,{"type":"a.b","payload":%d}`, i)
	}
	a := f.call("POST", acmeEvents+"/batch", `{"events":[`+body.String()[1:]+`]}`).want(http.StatusAccepted)
	if n := len(a.get("data").([]any)); n != 1000 {
		t.Fatalf("%d answers, want 1000", n)
	}
	for _, i := range []int{0, 499, 999} {
		if got := f.call("GET", acmeEvents+"/"+a.text("data", i, "id")+"/payload", nil).body; string(got) != fmt.Sprint(i) {
			t.Errorf("answer %d belongs to the event with payload %s", i, got)
		}
	}
	f.call("POST", acmeEvents+"/batch", `{"events":[`+body.String()[1:]+body.String()[:20]+`}]}`).want(422)
	f.call("POST", acmeEvents+"/batch", `{"events":[{"type":"a.b","payload":0}`+body.String()+`]}`).wantProblem(422, CodeBatchTooLarge)
	f.call("POST", acmeEvents+"/batch", `{"events":[]}`).wantProblem(422, CodeBatchTooLarge)
	f.call("POST", acmeEvents+"/batch", `{}`).wantProblem(422, CodeMissingField)
	f.call("POST", acmeEvents+"/batch", `{"events":{}}`).wantProblem(422, CodeInvalidField)
	f.call("POST", acmeEvents+"/batch", `{"events":[1]}`).wantProblem(422, CodeInvalidField)
	big := `{"type":"a.b","payload":"` + strings.Repeat("x", 200_000) + `"}`
	f.call("POST", acmeEvents+"/batch", `{"events":[`+strings.Repeat(big+",", 41)+big+`]}`).wantProblem(413, CodePayloadTooLarge)
	f.call("POST", acmeEvents+"/batch", `{"events":[`+strings.Repeat(big+",", 39)+big+`]}`).want(http.StatusAccepted)
}

func TestPublish_batchIsAllOrNothing(t *testing.T) {
	f := newFixture(t)
	f.tenant("acme")
	f.call("POST", acmeEvents, `{"type":"a.b","payload":1,"idempotency_key":"taken"}`).want(http.StatusAccepted)
	f.call("POST", acmeEvents+"/batch", `{"events":[{"type":"a.b","payload":1},{"type":"a.b","payload":2,"idempotency_key":"taken"}]}`).wantProblem(422, CodeIdempotencyMismatch)
	f.call("POST", acmeEvents+"/batch", `{"events":[{"type":"a.b","payload":1},{"type":"a.b","payload":[}]}`).wantProblem(422, CodeInvalidPayload)
	if n := len(f.call("GET", acmeEvents, nil).get("data").([]any)); n != 1 {
		t.Errorf("%d events, want the first alone", n)
	}
}

func TestPublish_batchWithRepetitions(t *testing.T) { onBoth(t, publish_batchWithRepetitions) }

func publish_batchWithRepetitions(t *testing.T, f *fixture) {
	f.tenant("acme")
	id := outbox.NewEventID(f.clock.Now()).String()
	a := f.call("POST", acmeEvents+"/batch", `{"events":[
		{"type":"a.b","payload":1,"idempotency_key":"k"},
		{"type":"a.b","payload":1,"id":"`+id+`"},
		{"type":"a.b","payload":1,"idempotency_key":"k"},
		{"type":"a.b","payload":1,"id":"`+id+`"},
		{"type":"a.b","payload":1}]}`).want(http.StatusAccepted)
	if a.text("data", 0, "id") != a.text("data", 2, "id") || a.get("data", 2, "duplicate") != true || a.get("data", 0, "duplicate") != false ||
		a.text("data", 3, "id") != id || a.get("data", 3, "duplicate") != true || a.get("data", 4, "duplicate") != false {
		t.Errorf("answers %s", a.body)
	}
	if n := len(f.call("GET", acmeEvents, nil).get("data").([]any)); n != 3 {
		t.Errorf("%d events, want 3", n)
	}
	p := f.call("POST", acmeEvents+"/batch", `{"events":[{"type":"a.b","payload":1,"idempotency_key":"q"},{"type":"a.b","payload":2,"idempotency_key":"q"}]}`).wantProblem(422, CodeIdempotencyMismatch)
	if len(p.Errors) != 1 || *p.Errors[0].Index != 1 {
		t.Errorf("errors %+v", p.Errors)
	}
}

func TestPublish_batchWithAKeyIsStoredOnce(t *testing.T) {
	f := newFixture(t)
	f.tenant("acme")
	body := `{"events":[{"type":"a.b","payload":1},{"type":"a.b","payload":1}]}`
	first := f.call("POST", acmeEvents+"/batch", body, "Idempotency-Key", "b1").want(http.StatusAccepted)
	again := f.call("POST", acmeEvents+"/batch", body, "Idempotency-Key", "b1").want(http.StatusAccepted)
	if !bytes.Equal(first.body, again.body) || again.header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("again: %s, first: %s", again.body, first.body)
	}
	f.call("POST", acmeEvents+"/batch", `{"events":[{"type":"a.b","payload":2}]}`, "Idempotency-Key", "b1").wantProblem(422, CodeIdempotencyMismatch)

	// The process dies between the commit and the keeping of the answer, and the claim runs out:
	// the batch is run again and meets its own events.
	f.broken.forgetful = true
	first = f.call("POST", acmeEvents+"/batch", body, "Idempotency-Key", "b2").want(http.StatusAccepted)
	after := f.call("POST", acmeEvents+"/batch", body, "Idempotency-Key", "b2").want(http.StatusAccepted)
	for i := range 2 {
		if after.text("data", i, "id") != first.text("data", i, "id") || after.get("data", i, "duplicate") != true {
			t.Errorf("after the crash: %s", after.body)
		}
	}
	if n := len(f.call("GET", acmeEvents, nil).get("data").([]any)); n != 4 {
		t.Errorf("%d events, want 4", n)
	}
}

func TestPublish_acrossTenants(t *testing.T) {
	f := newFixture(t)
	f.tenant("acme")
	f.tenant("other")
	a := f.call("POST", "/v1/events/batch", `{"events":[{"tenant":"acme","type":"a.b","payload":1},{"tenant":"other","type":"a.b","payload":2},{"tenant":"acme","type":"a.b","payload":3}]}`).want(http.StatusAccepted)
	if got := f.call("GET", "/v1/tenants/other/events", nil).text("data", 0, "id"); got != a.text("data", 1, "id") {
		t.Errorf("other's event is %s", got)
	}
	if n := len(f.call("GET", acmeEvents, nil).get("data").([]any)); n != 2 {
		t.Errorf("acme has %d events, want 2", n)
	}
	p := f.call("POST", "/v1/events/batch", `{"events":[{"tenant":"acme","type":"a.b","payload":1},{"tenant":"nobody","type":"a.b","payload":2}]}`).wantProblem(404, CodeUnknownTenant)
	if len(p.Errors) != 1 || *p.Errors[0].Index != 1 || p.Errors[0].Path != "tenant" {
		t.Errorf("errors %+v", p.Errors)
	}
	f.call("POST", "/v1/events/batch", `{"events":[{"type":"a.b","payload":1}]}`).wantProblem(422, CodeMissingField)
	f.call("POST", "/v1/events/batch", `{"events":[{"tenant":1,"type":"a.b","payload":1}]}`).wantProblem(422, CodeInvalidField)
	f.call("POST", "/v1/events/batch", `{"events":[{"tenant":"acme","type":"a.b","payload":1,"id":"`+outbox.NewEventID(f.clock.Now()).String()+`"},{"tenant":"waybill","type":"a.b","payload":1}]}`).want(404)
	if n := len(f.call("GET", acmeEvents, nil).get("data").([]any)); n != 2 {
		t.Errorf("acme has %d events after refused batches, want 2", n)
	}
}

func TestPublish_unknownTenants(t *testing.T) {
	f := newFixture(t)
	body := `{"type":"a.b","payload":1}`
	f.call("POST", "/v1/tenants/new/events", body).wantProblem(404, CodeUnknownTenant)
	f.call("POST", "/v1/tenants/no%20key/events", body).wantProblem(404, CodeUnknownTenant)
	f.tenant("waybill")
	f.call("POST", "/v1/tenants/waybill/events", body).wantProblem(422, CodeReservedTenant)
	f.call("POST", "/v1/tenants/waybill/events/batch", `{"events":[`+body+`]}`).wantProblem(422, CodeReservedTenant)

	f = newFixture(t, func(cfg *Config) { cfg.CreateUnknownTenants = true })
	f.call("POST", "/v1/tenants/new/events", body).want(http.StatusAccepted)
	f.call("GET", "/v1/tenants/new", nil).want(http.StatusOK)
	f.endpoint("newer", "")
	f.call("POST", "/v1/events/batch", `{"events":[{"tenant":"newest","type":"a.b","payload":1}]}`).want(http.StatusAccepted)
	f.call("GET", "/v1/tenants/newest", nil).want(http.StatusOK)
	f.call("GET", "/v1/tenants/never/events", nil).wantProblem(404, CodeUnknownTenant)
	f.call("POST", "/v1/tenants/no%20key/events", body).wantProblem(404, CodeUnknownTenant)
	f.call("POST", "/v1/tenants/foreign/events", body, "Authorization", "Bearer "+acmeKey).wantProblem(404, CodeUnknownTenant)
}

func TestPublish_afterTheTenantIsDeleted(t *testing.T) { onBoth(t, publish_afterTheTenantIsDeleted) }

func publish_afterTheTenantIsDeleted(t *testing.T, f *fixture) {
	f.tenant("acme")
	first := f.publish("acme", "a.b", "1")
	f.call("DELETE", "/v1/tenants/acme", nil).want(http.StatusAccepted)
	f.call("POST", acmeEvents, `{"type":"a.b","payload":1}`).wantProblem(404, CodeUnknownTenant)
	f.tenant("acme")
	f.publish("acme", "a.b", "1")
	if rows := f.call("GET", acmeEvents, nil).get("data").([]any); len(rows) != 1 {
		t.Errorf("a tenant made again sees %d events, want its own one", len(rows))
	}
	f.call("GET", acmeEvents+"/"+first, nil).wantProblem(404, CodeNotFound)
}

// In-process, the store's faults become the answers a publisher can act on.
func TestPublish_storeFaults(t *testing.T) {
	f := newFixture(t)
	f.tenant("acme")
	body := `{"type":"a.b","payload":1}`
	f.publish("acme", "a.b", "1") // the tenant is known by now
	for fault, want := range map[outbox.Fault]struct {
		status int
		code   Code
		retry  bool
	}{
		outbox.FaultRetry:   {503, CodeUnavailable, true},
		outbox.FaultLocked:  {409, CodeIdempotencyRunning, true},
		outbox.FaultRefused: {422, CodeRefused, false},
		outbox.FaultBroken:  {500, CodeInternal, false},
	} {
		f.broken.fail(&outbox.WriteError{Fault: fault, Err: errors.New("SECRET of the database")})
		a := f.call("POST", acmeEvents, body)
		a.wantProblem(want.status, want.code)
		if (a.header.Get("Retry-After") != "") != want.retry {
			t.Errorf("%v: Retry-After %q", fault, a.header.Get("Retry-After"))
		}
		if bytes.Contains(a.body, []byte("SECRET")) {
			t.Errorf("%v: the database's text is in the answer", fault)
		}
	}
	f.broken.fail(nil)
	f.call("POST", acmeEvents, body).want(http.StatusAccepted)
}

// What the committer says becomes what the publisher is told.
func TestProblemOf_publishing(t *testing.T) {
	for err, want := range map[error]struct {
		status, retryAfter int
		says               string
	}{
		publish.ErrBusy:             {503, 1, "nothing was accepted"},
		publish.ErrClosed:           {503, 1, "nothing was accepted"},
		publish.ErrUnavailable:      {503, 1, "nothing was changed"},
		publish.ErrUnknown:          {503, 1, "not known"},
		publish.ErrLocked:           {409, 1, "has not ended"},
		publish.ErrRefused:          {422, 0, "refuses"},
		context.DeadlineExceeded:    {503, 1, "not known"},
		errors.New("a nil pointer"): {500, 0, "the log has it"},
	} {
		fault := map[error]outbox.Fault{publish.ErrUnavailable: outbox.FaultRetry, publish.ErrUnknown: outbox.FaultUnknown}[err]
		p := problemOf(fmt.Errorf("submit: %w: %w", err, &outbox.WriteError{Fault: fault, Err: errors.New("SECRET")}))
		if p.Status != want.status || p.retryAfter != want.retryAfter || !strings.Contains(p.Detail, want.says) || strings.Contains(p.Detail, "SECRET") {
			t.Errorf("%v: %d, Retry-After %d, %q", err, p.Status, p.retryAfter, p.Detail)
		}
	}
}

func TestPublish_bodyThatEndsEarly(t *testing.T) {
	f := newFixture(t)
	f.tenant("acme")
	f.call("POST", acmeEvents, io.MultiReader(strings.NewReader(`{"type"`), failingReader{io.ErrUnexpectedEOF})).wantProblem(400, CodeBadRequest)
}

type failingReader struct{ err error }

func (r failingReader) Read([]byte) (int, error) { return 0, r.err }
