package portal

import (
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// Who is about to replay a range is told beforehand what of it cannot be sent again.
func TestRecover_saysWhatWillBeSkipped(t *testing.T) {
	s := newSite(t)
	s.furnish()
	s.signIn()
	now := s.clock.Now()
	span := url.Values{"from": {stampOf(now.Add(-time.Hour))}, "to": {stampOf(now.Add(time.Hour))}}
	at := "/portal/acme/recover?" + span.Encode()
	if page := s.page(at); !strings.Contains(page, "<b>1</b> can be replayed") || strings.Contains(page, "will be skipped") {
		t.Errorf("with all there is: %s", page)
	}
	acme, err := s.store.Tenant(t.Context(), "acme")
	if err != nil {
		t.Fatal(err)
	}
	endpoints, err := s.store.Endpoints(t.Context(), outbox.EndpointQuery{Tenant: acme.TenantRef}, outbox.Page{Limit: 2})
	if err != nil || len(endpoints) != 1 {
		t.Fatal(endpoints, err)
	}
	if _, err := s.store.DeleteEndpoint(t.Context(), acme.TenantRef, outbox.EndpointRef{ID: endpoints[0].ID}, now, 10); err != nil {
		t.Fatal(err)
	}
	if page := s.page(at); !strings.Contains(page, "<b>1</b> found") || !strings.Contains(page, "1 of them will be skipped: the endpoint or the body is gone.") {
		t.Errorf("without the endpoint: %s", page)
	}
}
