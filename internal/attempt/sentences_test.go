package attempt

import (
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

func TestSentences_everyKindHasOne(t *testing.T) {
	kinds := map[outbox.Kind]bool{}
	for _, row := range sentences {
		kinds[row.kind] = true
	}
	for _, kind := range []outbox.Kind{
		outbox.KindRefused, outbox.KindReset, outbox.KindTimeout, outbox.KindDNSTemporary, outbox.KindDNSNotFound, outbox.KindTLSHandshake,
		outbox.KindTLSCertificate, outbox.KindTLSClientCertificate, outbox.KindProtocol, outbox.KindHTTPStatus, outbox.KindRedirect,
		outbox.KindEgressDenied, outbox.KindConfig, outbox.KindPayloadGone, outbox.KindPanic,
	} {
		if !kinds[kind] {
			t.Errorf("%s has no sentence", kind)
		}
	}
}

var placeholder = regexp.MustCompile(`\{[a-z]+\}`)

func TestSentences_areOnePlainSentence(t *testing.T) {
	target := &Target{host: "hooks.example.com", port: "443", timeout: 10 * time.Second}
	for c, row := range sentences {
		v := target.verdict(c, "{status}", "404 Not Found", "{location}", "https://x.example", "{until}", "3 Nov 2026", "{from}", "3 Nov 2025")
		if left := placeholder.FindString(v.message); left != "" {
			t.Errorf("%s: %s is never filled in", c, left)
		}
		if !strings.HasSuffix(v.message, ".") || strings.Count(v.message, ". ") > 0 || len(v.message) > 300 {
			t.Errorf("%s: not one sentence: %s", c, v.message)
		}
		if row.outcome != transient && row.outcome != permanent {
			t.Errorf("%s: class %q", c, row.outcome)
		}
		// What another try cannot change ends with the way back, except where there is none.
		if row.outcome == permanent && c != payloadGone && !strings.Contains(v.message, "replay") {
			t.Errorf("%s is permanent and does not say how to go on: %s", c, v.message)
		}
	}
}

func TestStatusCause_coversEveryStatus(t *testing.T) {
	for status := 400; status <= 599; status++ {
		row, known := sentences[statusCause(status)]
		if !known || row.kind != outbox.KindHTTPStatus {
			t.Errorf("%d has no sentence", status)
		}
		if name := http.StatusText(status); name != "" && !strings.Contains(statusName(status), name) {
			t.Errorf("%d is shown as %q", status, statusName(status))
		}
	}
}

func TestVerdict_showsTheTimeoutInWords(t *testing.T) {
	for d, want := range map[time.Duration]string{time.Second: "1 second", 10 * time.Second: "10 seconds", 1500 * time.Millisecond: "1.5 seconds", time.Microsecond: "0.000001 seconds"} {
		if got := seconds(d); got != want {
			t.Errorf("%s is shown as %q, want %q", d, got, want)
		}
	}
}

func TestSecretHeader_goesByTheName(t *testing.T) {
	for _, name := range []string{"Authorization", "authorization", "Cookie", "X-Api-Key", "apikey", "X-Auth-Token", "X-Hub-Secret", "Password", "X-Session-Id"} {
		if !SecretHeader(name) {
			t.Errorf("%s is shown", name)
		}
	}
	for _, name := range []string{"X-Team", "Accept", "X-Environment", "Accept-Language"} {
		if SecretHeader(name) {
			t.Errorf("%s is hidden", name)
		}
	}
}
