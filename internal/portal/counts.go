package portal

import (
	"net/url"
	"time"

	"github.com/waybill-dev/waybill/internal/client"
)

// counts reads how many deliveries there are in each state, as far as counting is cheap. With a
// filter they would say something else than the list, and are left out.
func (c *customer) counts(v *Visit, filtered bool) (map[string]string, error) {
	counts := map[string]string{}
	if filtered {
		return counts, nil
	}
	answer, err := Ask[client.DeliveryCounts](v, v.tenantPath("deliveries", "counts"), nil)
	if err != nil {
		return nil, err
	}
	for state, n := range answer.Counts {
		counts[state] = capped(n.Count, n.Capped)
	}
	return counts, nil
}

// countDead counts an endpoint's failed deliveries since a time, capped; 0 where that fails.
func (c *customer) countDead(v *Visit, endpoint string, since time.Time) (int, bool) {
	query := url.Values{"endpoint_id": {endpoint}, "from": {since.Add(-time.Minute).UTC().Format(time.RFC3339)}}
	answer, err := Ask[client.DeliveryCounts](v, v.tenantPath("deliveries", "counts"), query)
	if err != nil {
		return 0, false
	}
	n := answer.Counts["dead"]
	return n.Count, n.Capped
}
