package outbox

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestRetryPolicy_theNarrowestValueHolds(t *testing.T) {
	instance := RetryPolicy{Initial: 2 * time.Second, Max: time.Hour, Window: 8 * time.Hour}
	for name, tc := range map[string]struct{ endpoint, tenant, want RetryPolicy }{
		"nothing set":                    {want: instance},
		"the endpoint's first step only": {endpoint: RetryPolicy{Initial: time.Second}, want: RetryPolicy{Initial: time.Second, Max: time.Hour, Window: 8 * time.Hour}},
		"the tenant's first step only":   {tenant: RetryPolicy{Initial: time.Second}, want: RetryPolicy{Initial: time.Second, Max: time.Hour, Window: 8 * time.Hour}},
		"a largest step below the first": {endpoint: RetryPolicy{Max: time.Second}, want: RetryPolicy{Initial: time.Second, Max: time.Second, Window: 8 * time.Hour}},
		"no statuses against the tenant's": {
			endpoint: RetryPolicy{RetryStatuses: []string{}}, tenant: RetryPolicy{RetryStatuses: []string{"404"}, MaxAttempts: 3},
			want: RetryPolicy{Initial: 2 * time.Second, Max: time.Hour, Window: 8 * time.Hour, MaxAttempts: 3, RetryStatuses: []string{}},
		},
	} {
		if diff := cmp.Diff(tc.want, tc.endpoint.Over(tc.tenant).Over(instance)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}
