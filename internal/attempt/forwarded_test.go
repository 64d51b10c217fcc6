package attempt_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/waybill-dev/waybill/internal/attempt"
	"github.com/waybill-dev/waybill/internal/egress"
	"github.com/waybill-dev/waybill/internal/outbox"
	"github.com/waybill-dev/waybill/internal/signing"
)

// What came with a webhook goes on with it, as far as a customer could have had it sent; the content
// type is the payload's own.
func TestSender_forwardsWhatCameWithAnEvent(t *testing.T) {
	s := answers(t, reply(200, "", ""))
	b := newBench(t, egress.Config{})
	target := b.Prepare(attempt.Endpoint{
		URL: s.url(), Headers: map[string]string{"X-Github-Event": "the endpoint's own"}, Secrets: []outbox.Secret{{Value: testSecret}},
	})
	out := b.Do(t.Context(), attempt.Request{
		Target: target, Event: testEvent, EventType: "push", N: 1, Payload: []byte("a=1&b=2"),
		Metadata: map[string]string{
			"source": "gh", "header:Content-Type": "application/x-www-form-urlencoded", "header:X-Github-Delivery": "guid-1",
			"header:X-Github-Event": "push", "header:X-Session-Token": "t", "header:Host": "evil", "header:Webhook-Id": "msg_9",
			"header:Waybill-Attempt": "9", "header:Content-Length": "0", "header:X-Broken": "a\r\nb: c", "header:X Y": "z", "header:X-Long": strings.Repeat("x", 5000),
		},
	})
	expect(t, out, delivered)
	_, header, body := split(t, s.received()[0])
	got := map[string][]string{}
	for _, name := range []string{"content-type", "x-github-delivery", "x-github-event", "x-session-token", "x-broken", "x-long", "content-length", "waybill-attempt"} {
		got[name] = header[name]
	}
	want := map[string][]string{
		"content-type": {"application/x-www-form-urlencoded"}, "x-github-delivery": {"guid-1"}, "x-github-event": {"the endpoint's own"},
		"x-session-token": {"t"}, "x-broken": nil, "x-long": nil, "content-length": {"7"}, "waybill-attempt": {"1"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("on the wire (- want, + got):\n%s", diff)
	}
	if id := header["webhook-id"]; len(id) != 1 || id[0] != testEvent.String() || body != "a=1&b=2" {
		t.Errorf("webhook-id %v, body %q", id, body)
	}
	recorded := map[string]string{}
	for _, h := range out.RequestHeaders {
		if _, twice := recorded[h.Name]; twice {
			t.Errorf("%s is on record twice", h.Name)
		}
		recorded[h.Name] = h.Value
	}
	if recorded["content-type"] != "application/x-www-form-urlencoded" || recorded["x-github-delivery"] != "guid-1" || recorded["x-session-token"] != "[secret]" {
		t.Errorf("on record: %v", recorded)
	}
}

// A webhook that is passed on brings the provider's signature along. Beside ours, under the same
// name, it would be the receiver's choice which of the two it checks.
func TestSender_nothingStandsBesideTheHeadersOfAScheme(t *testing.T) {
	s := answers(t, reply(200, "", ""))
	b := newBench(t, egress.Config{})
	const secret, payload = "it is a secret to everybody", `{"action":"opened"}`
	target := b.Prepare(attempt.Endpoint{
		URL:         s.url(),
		Headers:     map[string]string{"x-github-delivery": "the endpoint's own", "X-Plain": "1"},
		Credentials: outbox.Credentials{Headers: map[string]string{"X-Hub-Signature-256": "sha256=00"}},
		Schemes:     []signing.Named{{Name: "github", Scheme: signing.Presets()["github"]}},
		Secrets:     []outbox.Secret{{Scheme: "github", Value: secret}},
	})
	out := b.Do(t.Context(), attempt.Request{
		Target: target, Event: testEvent, EventType: "pull_request", N: 1, Payload: []byte(payload),
		Metadata: map[string]string{"header:X-Hub-Signature-256": "sha256=11", "header:x-github-event": "push", "header:X-Github-Hook-Id": "7"},
	})
	expect(t, out, delivered)
	_, header, _ := split(t, s.received()[0])
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(payload))
	want := map[string][]string{
		"x-hub-signature-256": {"sha256=" + hex.EncodeToString(mac.Sum(nil))},
		"x-github-event":      {"pull_request"},
		"x-github-delivery":   {testEvent.String()},
		"x-github-hook-id":    {"7"},
		"x-plain":             {"1"},
	}
	for name, lines := range want {
		if diff := cmp.Diff(lines, header[name]); diff != "" {
			t.Errorf("%s on the wire (- want, + got):\n%s", name, diff)
		}
		n := 0
		for _, h := range out.RequestHeaders {
			if strings.EqualFold(h.Name, name) {
				n++
			}
		}
		if n != 1 {
			t.Errorf("%s is on record %d times", name, n)
		}
	}
}
