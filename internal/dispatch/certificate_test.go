package dispatch

import (
	"strings"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/internal/attempt"
	"github.com/waybill-dev/waybill/internal/outbox"
)

func TestNode_tellsOfACertificateThatIsAboutToEndOnceADay(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	var told []Notice
	n := &Node{cfg: Config{Notify: func(notice Notice) { told = append(told, notice) }}, ending: seldom{every: 24 * time.Hour}}
	seen := func(tenant string, until time.Duration, at time.Time) int {
		before := len(told)
		w := &work{target: &target{endpoint: outbox.Endpoint{URL: "https://hooks.example.com:8443/in"}, tenant: &outbox.Tenant{Key: tenant}}}
		tried := &attempt.Outcome{}
		if until != 0 {
			tried.CertificateUntil = at.Add(until)
		}
		n.watchCertificate(w, tried, at)
		return len(told) - before
	}
	const days = 24 * time.Hour
	for _, step := range []struct {
		what   string
		tenant string
		until  time.Duration
		at     time.Time
		want   int
	}{
		{"no certificate", "acme", 0, now, 0},
		{"good for long", "acme", 15 * days, now, 0},
		{"the operator's own", outbox.OperatorTenant, days, now, 0},
		{"two weeks left", "acme", 14 * days, now, 1},
		{"the same day", "acme", 14 * days, now.Add(23 * time.Hour), 0},
		{"the next day", "acme", 13 * days, now.Add(days), 1},
	} {
		if got := seen(step.tenant, step.until, step.at); got != step.want {
			t.Errorf("%s: told %d times, want %d", step.what, got, step.want)
		}
	}
	first := told[0]
	if first.Type != "endpoint.certificate_expiring" || first.Reason.Kind != outbox.KindTLSCertificate ||
		!strings.Contains(first.Reason.Message, "hooks.example.com") || !strings.Contains(first.Reason.Message, "14 Dec 2026") {
		t.Errorf("%+v", first)
	}
}
