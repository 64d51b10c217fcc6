package attempt_test

import (
	"bufio"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/waybill-dev/waybill/internal/attempt"
	"github.com/waybill-dev/waybill/internal/egress"
	"github.com/waybill-dev/waybill/internal/outbox"
)

// byHand signs as the Standard Webhooks text says, without the code under test.
func byHand(secret, id, timestamp string, body []byte) string {
	key, _ := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	mac := hmac.New(sha256.New, key)
	fmt.Fprintf(mac, "%s.%s.%s", id, timestamp, body)
	return "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

// split takes a raw request apart: request line, header lines by lower-case name, body.
func split(t *testing.T, raw string) (line string, header map[string][]string, body string) {
	t.Helper()
	head, body, ok := strings.Cut(raw, "\r\n\r\n")
	if !ok {
		t.Fatalf("not a request: %q", raw)
	}
	lines := strings.Split(head, "\r\n")
	header = map[string][]string{}
	for _, l := range lines[1:] {
		name, value, _ := strings.Cut(l, ": ")
		header[strings.ToLower(name)] = append(header[strings.ToLower(name)], value)
	}
	return lines[0], header, body
}

func TestSender_whatIsOnTheWire(t *testing.T) {
	s := answers(t, reply(200, "", ""))
	b := newBench(t, egress.Config{})
	now := time.Date(2027, 1, 2, 3, 4, 5, 0, time.UTC)
	b.at(now)
	target := b.Prepare(attempt.Endpoint{
		URL:     s.url() + "/a%2Fb?x=%20y&x=2",
		Headers: map[string]string{"x-team": "billing", "authorization": "Bearer sesame", "X-Api-Key": "k"},
		Secrets: []outbox.Secret{{Value: testSecret}},
	})
	payload := []byte("{ \"b\": 1.0, \"a\": \"<&>\", \"id\": 9007199254740993 }")
	out := b.Do(t.Context(), attempt.Request{Target: target, Event: testEvent, EventType: "payment.succeeded", N: 3, Sequence: 42, Trigger: outbox.TriggerReplay, Payload: payload})
	expect(t, out, delivered)

	line, header, body := split(t, s.received()[0])
	if line != "POST /hook/a%2Fb?x=%20y&x=2 HTTP/1.1" {
		t.Errorf("request line %q", line)
	}
	if body != string(payload) {
		t.Errorf("body %q, want the payload's bytes", body)
	}
	stamp := fmt.Sprint(now.Unix())
	want := map[string][]string{
		"host":               {s.Addr().String()},
		"content-length":     {fmt.Sprint(len(payload))},
		"content-type":       {"application/json"},
		"user-agent":         {"Waybill/test"},
		"webhook-id":         {testEvent.String()},
		"webhook-timestamp":  {stamp},
		"webhook-signature":  {byHand(testSecret, testEvent.String(), stamp, payload)},
		"waybill-event-type": {"payment.succeeded"},
		"waybill-attempt":    {"3"},
		"waybill-sequence":   {"42"},
		"x-team":             {"billing"},
		"authorization":      {"Bearer sesame"},
		"x-api-key":          {"k"},
	}
	if diff := cmp.Diff(want, header); diff != "" {
		t.Errorf("headers (-want +got):\n%s", diff)
	}

	recorded := map[string]string{}
	for _, h := range out.RequestHeaders {
		if h.Name != strings.ToLower(h.Name) {
			t.Errorf("recorded header %q is not in lower case", h.Name)
		}
		recorded[h.Name] = h.Value
	}
	for name, values := range want {
		shown := values[0]
		switch name {
		case "host", "content-length": // follow from the URL and the length of the body
			continue
		case "authorization", "x-api-key":
			shown = "[secret]"
		}
		if recorded[name] != shown {
			t.Errorf("recorded %s: %q, want %q", name, recorded[name], shown)
		}
	}
	if out.URL != s.url()+"/a%2Fb?x=%20y&x=2" || out.RequestBytes != len(payload) || out.Trigger != outbox.TriggerReplay || !out.At.Equal(now.Truncate(time.Second)) && out.At.Sub(now) > time.Minute {
		t.Errorf("recorded %s, %d bytes, %s, at %s", out.URL, out.RequestBytes, out.Trigger, out.At)
	}
}

func TestSender_bodiesOfAnySizeAreFramedByTheirLength(t *testing.T) {
	s := answers(t, reply(500, "", ""))
	b := newBench(t, egress.Config{})
	target := b.Prepare(attempt.Endpoint{URL: s.url(), Secrets: []outbox.Secret{{Value: testSecret}}})
	for _, payload := range []string{"", "{}", strings.Repeat("x", 1<<20)} {
		for range 2 { // the second attempt sends the same
			b.Do(t.Context(), attempt.Request{Target: target, Event: testEvent, EventType: "a", N: 1, Sequence: 1, Payload: []byte(payload)})
			requests := s.received()
			_, header, body := split(t, requests[len(requests)-1])
			if body != payload || !slices.Equal(header["content-length"], []string{fmt.Sprint(len(payload))}) {
				t.Errorf("%d bytes sent with length %v", len(body), header["content-length"])
			}
			for _, never := range []string{"transfer-encoding", "expect", "idempotency-key", "x-idempotency-key", "accept-encoding", "connection"} {
				if header[never] != nil {
					t.Errorf("sent %s: %v", never, header[never])
				}
			}
		}
	}
}

func TestSender_signsWithTheSecretsThatAreLive(t *testing.T) {
	s := answers(t, reply(200, "", ""))
	b := newBench(t, egress.Config{})
	start := time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)
	other := "whsec_" + base64.StdEncoding.EncodeToString([]byte("an older secret of 32 bytes ...."))
	target := b.Prepare(attempt.Endpoint{URL: s.url(), Secrets: []outbox.Secret{
		{Value: testSecret},
		{Value: other, ExpiresAt: start.Add(time.Hour)},
	}})
	for _, row := range []struct {
		at   time.Time
		want []string
	}{
		{start, []string{testSecret, other}},
		{start.Add(59 * time.Minute), []string{testSecret, other}},
		{start.Add(61 * time.Minute), []string{testSecret}},
		{start, []string{testSecret}}, // a clock does not step back; what ran out stays out
	} {
		b.at(row.at)
		expect(t, b.do(t, target), delivered)
		requests := s.received()
		_, header, body := split(t, requests[len(requests)-1])
		var want []string
		for _, secret := range row.want {
			want = append(want, byHand(secret, testEvent.String(), header["webhook-timestamp"][0], []byte(body)))
		}
		if got := header["webhook-signature"][0]; got != strings.Join(want, " ") {
			t.Errorf("at %s signed %q, want %q", row.at, got, want)
		}
	}
}

func TestSender_headerPrefixIsConfigured(t *testing.T) {
	s := answers(t, reply(200, "", ""))
	b := newBench(t, egress.Config{})
	sender := attempt.New(attempt.Config{Guard: b.guard, Clock: b.clock, HeaderPrefix: "acme-"})
	target := sender.Prepare(attempt.Endpoint{URL: s.url(), Secrets: []outbox.Secret{{Value: testSecret}}})
	sender.Do(t.Context(), attempt.Request{Target: target, Event: testEvent, EventType: "a", N: 1, Sequence: 1})
	_, header, _ := split(t, s.received()[0])
	if header["acme-attempt"] == nil || header["acme-sequence"] == nil || header["acme-event-type"] == nil || header["waybill-attempt"] != nil {
		t.Errorf("headers %v", header)
	}
}

// A connection that dies under a request that was sent is one failure, seen; the event goes out
// again when somebody decides so, not by itself.
func TestSender_aConnectionThatDiesOnReuseIsOneVisibleFailure(t *testing.T) {
	first := true
	s := newSink(t, func(s *sink, conn net.Conn) {
		r := bufio.NewReader(conn)
		s.mu.Lock()
		dying := first
		first = false
		s.mu.Unlock()
		for n := 0; s.receive(r); n++ {
			if dying && n == 1 {
				return
			}
			fmt.Fprint(conn, reply(200, "", "ok"))
		}
	})
	b := newBench(t, egress.Config{})
	// No header the transport knows as a promise that repeating is safe.
	target := b.Prepare(attempt.Endpoint{URL: s.url(), Secrets: []outbox.Secret{{Value: testSecret}}})
	expect(t, b.do(t, target), delivered)
	out := b.do(t, target)
	expect(t, out, verdict{outbox.OutcomeTransient, outbox.KindReset, 0})
	if out.Timing.Connect != 0 {
		t.Errorf("a kept connection took %s to connect", out.Timing.Connect)
	}
	if n := len(s.received()); n != 2 {
		t.Fatalf("%d requests for two attempts", n)
	}
	out = b.do(t, target)
	expect(t, out, delivered)
	if out.Timing.Connect <= 0 || out.Timing.FirstByte <= 0 || out.Timing.DNS != 0 || out.Timing.TLS != 0 {
		t.Errorf("timing of a new plain connection to an address: %+v", out.Timing)
	}
	if n, conns := len(s.received()), s.connections(); n != 3 || conns != 2 {
		t.Errorf("%d requests on %d connections, want 3 on 2", n, conns)
	}
}

func TestSender_configurationFaultsAreRecordedNotSent(t *testing.T) {
	s := answers(t, reply(200, "", ""))
	b := newBench(t, egress.Config{})
	for name, row := range map[string]struct {
		spoil func(*attempt.Endpoint)
		kind  outbox.Kind
	}{
		"stored row cannot be read": {func(e *attempt.Endpoint) { e.Fault = "headers: json: cannot unmarshal number" }, outbox.KindConfig},
		"half a URL":                {func(e *attempt.Endpoint) { e.URL = "http://[::1" }, outbox.KindConfig},
		"no URL":                    {func(e *attempt.Endpoint) { e.URL = "" }, outbox.KindConfig},
		"password in the URL":       {func(e *attempt.Endpoint) { e.URL = "http://alice:hunter2@" + s.Addr().String() + "/" }, outbox.KindConfig},
		"forbidden address":         {func(e *attempt.Endpoint) { e.URL = "http://169.254.169.254/latest" }, outbox.KindEgressDenied},
		"forbidden port":            {func(e *attempt.Endpoint) { e.URL = "http://127.0.0.1:22/" }, outbox.KindEgressDenied},
		"number for a host":         {func(e *attempt.Endpoint) { e.URL = "http://2130706433/" }, outbox.KindEgressDenied},
		"line break in a header":    {func(e *attempt.Endpoint) { e.Headers = map[string]string{"X-A": "b\r\nwebhook-id: forged"} }, outbox.KindConfig},
		"header of the framing":     {func(e *attempt.Endpoint) { e.Headers = map[string]string{"content-length": "1"} }, outbox.KindConfig},
		"no secret":                 {func(e *attempt.Endpoint) { e.Secrets = nil }, outbox.KindConfig},
		"secret that is none":       {func(e *attempt.Endpoint) { e.Secrets = []outbox.Secret{{Value: "hunter2"}} }, outbox.KindConfig},
		"secrets that all have ended": {func(e *attempt.Endpoint) {
			e.Secrets = []outbox.Secret{{Value: testSecret, ExpiresAt: time.Unix(1, 0)}}
		}, outbox.KindConfig},
	} {
		t.Run(name, func(t *testing.T) {
			out := b.send(t, s.url(), row.spoil)
			expect(t, out, verdict{outbox.OutcomePermanent, row.kind, 0})
			for _, never := range []string{"hunter2", "unmarshal", "{"} {
				if strings.Contains(out.Message+out.URL, never) {
					t.Errorf("%q or %q shows %q", out.Message, out.URL, never)
				}
			}
			if out.ID == (outbox.AttemptID{}) || out.At.IsZero() {
				t.Error("the attempt has no id or no time")
			}
		})
	}
	if n := s.connections(); n != 0 {
		t.Errorf("%d connections were made", n)
	}
}

func TestCheckHeaders_reservedNames(t *testing.T) {
	for _, name := range []string{
		"host", "Host", "HOST", "content-length", "Content-Type", "content-encoding", "transfer-encoding", "te", "trailer", "connection", "keep-alive",
		"proxy-authorization", "proxy-anything", "upgrade", "http2-settings", "expect", "idempotency-key", "X-Idempotency-Key",
		"webhook-id", "Webhook-Signature", "webhook-anything", "waybill-attempt", "Waybill-Anything", "acme-attempt", "user-agent", "accept-encoding", "date",
		"via", "forwarded", "x-forwarded-for", "x-real-ip", "metadata", "metadata-flavor", "x-google-metadata-request", "x-aws-ec2-metadata-token",
	} {
		_, err := attempt.CheckHeaders(map[string]string{name: "x"}, "acme-")
		if problem, ok := err.(*attempt.HeaderError); !ok || problem.Name != name {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

func TestCheckHeaders_formAndBounds(t *testing.T) {
	many := map[string]string{}
	for i := range attempt.MaxHeaders {
		many[fmt.Sprintf("X-%d", i)] = "v"
	}
	one := func(name, value string) map[string]string { return map[string]string{name: value} }
	for name, row := range map[string]struct {
		headers map[string]string
		ok      bool
	}{
		"none":                      {nil, true},
		"credentials":               {one("authorization", "Bearer x"), true},
		"a cookie":                  {one("Cookie", "a=b"), true},
		"an empty value":            {one("X-A", ""), true},
		"a value in UTF-8":          {one("X-A", "é"), true},
		"twenty":                    {many, true},
		"4 KiB":                     {one("X-A", strings.Repeat("v", attempt.MaxHeaderBytes-3)), true},
		"more than 4 KiB":           {one("X-A", strings.Repeat("v", attempt.MaxHeaderBytes-2)), false},
		"an empty name":             {one("", "v"), false},
		"a space in the name":       {one("X A", "v"), false},
		"a space after the name":    {one("Host ", "v"), false},
		"a colon in the name":       {one("X-A:", "v"), false},
		"a line break in the name":  {one("X-A\r\nHost", "v"), false},
		"an umlaut in the name":     {one("X-Ä", "v"), false},
		"a carriage return":         {one("X-A", "v\rw"), false},
		"a line feed":               {one("X-A", "v\nw"), false},
		"a NUL":                     {one("X-A", "v\x00w"), false},
		"space around the value":    {one("X-A", " v"), false},
		"one name in two spellings": {map[string]string{"X-A": "1", "x-a": "2"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			canonical, err := attempt.CheckHeaders(row.headers, attempt.DefaultHeaderPrefix)
			if (err == nil) != row.ok {
				t.Fatalf("error %v", err)
			}
			for key := range canonical {
				if key != http.CanonicalHeaderKey(key) {
					t.Errorf("%q is not canonical", key)
				}
			}
		})
	}
	many["X-20"] = "v"
	if _, err := attempt.CheckHeaders(many, ""); err == nil {
		t.Error("21 headers are accepted")
	}
}
