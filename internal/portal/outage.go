package portal

import (
	"net/url"
	"time"

	"github.com/waybill-dev/waybill/internal/client"
)

// outage is what the banner says: an endpoint that does not answer, or did not until a moment
// ago, computed from its breaker.
type outage struct {
	Endpoint   client.Endpoint
	URL        string // of the endpoint's page
	From       time.Time
	To         *time.Time // nil: it goes on
	Cause      string
	Waiting    int
	Capped     bool
	NextProbe  *time.Time
	Dead       int // need the reader
	DeadCapped bool
	Replay     string // the address that counts them
	List       string
}

// recent is how long after its end an outage is still news.
const recent = 24 * time.Hour

// banner chooses the outage to tell of: one that goes on before one that is over, the larger
// first. A failure to count leaves the banner out; the list is the page.
func (c *customer) banner(v *Visit, endpoints []client.Endpoint) *outage {
	var chosen *outage
	for _, e := range endpoints {
		o := outageOf(v, e)
		if o == nil {
			continue
		}
		o.Dead, o.DeadCapped = c.countDead(v, e.ID, o.From)
		if o.To != nil && o.Dead == 0 {
			continue // over, and nothing to do
		}
		if chosen == nil || o.To == nil && chosen.To != nil || (o.To == nil) == (chosen.To == nil) && o.Waiting+o.Dead > chosen.Waiting+chosen.Dead {
			chosen = o
		}
	}
	return chosen
}

func outageOf(v *Visit, e client.Endpoint) *outage {
	h := e.Health
	o := &outage{Endpoint: e, URL: v.at("endpoints", e.ID), Waiting: h.Pending, Capped: h.Capped, NextProbe: h.NextProbeAt}
	switch last := h.LastOutage; {
	case last != nil && (last.To == nil || v.Now.Sub(*last.To) < recent):
		o.From, o.To = last.From, last.To
		o.Cause, _ = faultParts(last.Cause.Message)
	case h.Breaker != "closed" && h.OpenedAt != nil:
		o.From = *h.OpenedAt
		if h.LastFailure != nil {
			o.Cause, _ = faultParts(h.LastFailure.Message)
		}
	default:
		return nil
	}
	// A second before and after, so that [from, to) holds what failed first and last.
	from := o.From.Add(-time.Second).Truncate(time.Second)
	until := v.Now
	if o.To != nil {
		until = *o.To
	}
	o.List = withQuery(v.at("deliveries"), url.Values{"state": {"dead"}, "endpoint_id": {e.ID}})
	o.Replay = withQuery(v.at("recover"), url.Values{
		"endpoint_id": {e.ID}, "state": {"dead"}, "from": {from.UTC().Format(time.RFC3339)},
		"to": {until.Add(time.Second).Truncate(time.Second).UTC().Format(time.RFC3339)},
	})
	return o
}
