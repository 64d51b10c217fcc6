package portal

import (
	"fmt"
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

// A tenant with more endpoints than a page of a list has can choose any of them.
func TestRecover_offersEveryEndpoint(t *testing.T) {
	s := newSite(t)
	s.furnish() // with one
	const many = 260
	for i := range many - 1 {
		s.call("PUT", fmt.Sprintf("/v1/tenants/acme/endpoints/e%d", i), fmt.Sprintf(`{"url":"https://e%d.example.com/"}`, i))
	}
	s.signIn()
	for _, at := range []string{"recover", "deliveries"} {
		if n := strings.Count(s.page("/portal/acme/"+at), `<option value="ep_`); n != many {
			t.Errorf("%s offers %d of %d endpoints", at, n, many)
		}
	}
}
