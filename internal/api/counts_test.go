package api

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The scene's one delivery is dead, and acme's.
func TestCounts_areOfOneTenantAlone(t *testing.T) {
	s := newScene(t)
	counts := func(tenant string) any {
		return s.call("GET", "/v1/tenants/"+tenant+"/deliveries/counts", nil).want(200).get("counts")
	}
	of := func(dead float64) any {
		none := map[string]any{"count": 0.0}
		return map[string]any{"pending": none, "delivered": none, "cancelled": none, "dead": map[string]any{"count": dead}}
	}
	if diff := cmp.Diff(of(1), counts("acme")); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(of(0), counts("other")); diff != "" {
		t.Error(diff)
	}
	s.call("GET", "/v1/tenants/acme/deliveries/counts?endpoint_id=nonsense", nil).wantProblem(422, CodeInvalidField)
}
