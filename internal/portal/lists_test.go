package portal

import (
	"net/http"
	"strings"
	"testing"
)

// A filter that the API does not take is an error, in every list, and the page says what is wrong.
func TestLists_aFilterThatMeansNothingIsRefused(t *testing.T) {
	s := newSite(t)
	s.furnish()
	s.signIn()
	for _, target := range []string{
		"/deliveries?status_code=nonsense", "/endpoints?state=nonsense", "/events?state=nonsense", "/tenants?state=nonsense", "/search?q=%00",
		"/portal/acme/deliveries?status_code=nonsense", "/portal/acme/events?state=nonsense",
	} {
		resp, page := s.visit("GET", target, nil)
		if resp.StatusCode != http.StatusUnprocessableEntity || !strings.Contains(page, "This filter cannot be used") && !strings.HasPrefix(target, "/search") {
			t.Errorf("%s: %d", target, resp.StatusCode)
		}
	}
}
