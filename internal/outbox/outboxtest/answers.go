package outboxtest

import (
	"bytes"
	"strings"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

var answers = topic{"answers of receivers", []promise{
	{"everything about a try is kept", attemptComesBack},
	{"answers are bytes, in any encoding", hostileAnswers},
}}

func attemptComesBack(w *world) {
	acme := w.tenant("acme")
	e := w.endpoint(acme, "*")
	d := w.planned(e, "a.b")
	w.now = w.now.Add(time.Second)
	r := w.refused(d)
	r.Attempt.Trigger = outbox.TriggerProbe
	r.Attempt.RequestHeaders = []outbox.Header{{Name: "webhook-id", Value: "a"}, {Name: "x-two", Value: "1"}, {Name: "x-two", Value: "2"}, {Name: "x-empty"}}
	r.Attempt.ResponseHeaders = []outbox.Header{{Name: "retry-after", Value: "120"}, {Name: "x-☂", Value: "'\"\\"}}
	r.Attempt.Truncated, r.Attempt.Opened = true, true
	w.finish(r)

	silent := w.failed(w.planned(e, "a.b"))
	silent.Attempt = &outbox.Attempt{ID: outbox.NewAttemptID(w.now), Trigger: outbox.TriggerSchedule, At: w.now, URL: "https://hooks.example.com/in", Outcome: outbox.OutcomeTransient, Kind: outbox.KindRefused, Message: "Nothing listens there."}
	w.finish(silent)

	for name, r := range map[string]outbox.Result{"full": r, "no answer at all": silent} {
		want := outbox.AttemptView{
			Attempt: *r.Attempt, N: 1, Sequence: r.Delivery.Sequence, Delivery: r.Delivery.ID, Event: r.Delivery.Event,
			EventType: "a.b", Endpoint: e.ID, Tenant: acme.TenantRef, TenantKey: "acme",
		}
		got, err := w.store.Attempt(w.ctx, acme.TenantRef, r.Attempt.ID)
		w.must(err)
		w.equal(name, got, want)
		w.equal(name+", in the list", w.attempts(r.Delivery), []outbox.AttemptView{want})
		got, err = w.store.Attempt(w.ctx, outbox.TenantRef{}, r.Attempt.ID)
		w.must(err)
		w.equal(name+", for the operator", got, want)
	}
}

func hostileAnswers(w *world) {
	acme := w.tenant("acme")
	e := w.endpoint(acme, "*")
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	for name, body := range map[string][]byte{
		"invalid UTF-8":          {0xe2, 0x28, 0x41},
		"NUL":                    []byte("a\x00b\x00"),
		"every byte":             every,
		"a rune cut in two":      []byte(strings.Repeat("☂", 6000))[:outbox.KeepOfFailure],
		"markup":                 []byte(`"><script>alert(1)</script>`),
		"looks like an escape":   []byte(`\x00\u0000'`),
		"empty":                  nil,
		"one byte that is no nl": {0xff},
	} {
		for _, result := range []func(outbox.Delivery) outbox.Result{w.delivered, w.failed, w.refused} {
			r := result(w.planned(e, "a.b"))
			r.Attempt.ResponseBody = body
			r.Attempt.ResponseHeaders = []outbox.Header{{Name: "server", Value: string(body[:min(len(body), 256)])}, {Name: "x-latin", Value: "caf\xe9"}, {Name: "x-nul", Value: "a\x00b"}}
			w.finish(r)
			got, err := w.store.Attempt(w.ctx, acme.TenantRef, r.Attempt.ID)
			w.must(err)
			if !bytes.Equal(got.ResponseBody, body) {
				w.Errorf("%s: body came back as %q", name, got.ResponseBody)
			}
			w.equal(name+": headers", len(got.ResponseHeaders), len(r.Attempt.ResponseHeaders))
			// Headers are shown as text; what is no text may come back as U+FFFD.
			for i, h := range r.Attempt.ResponseHeaders {
				if got := got.ResponseHeaders[i]; got != h && got.Value != strings.ToValidUTF8(h.Value, "\ufffd") && got.Value != eachInvalid(h.Value) {
					w.Errorf("%s: header %q came back as %q", name, h, got)
				}
			}
			// The dead letter is written with the same answer; nothing of it may refuse the row.
			w.view(r.Delivery)
		}
	}
	w.verify()
}

// eachInvalid replaces every single byte that is no UTF-8.
func eachInvalid(s string) string { return string([]rune(s)) }
