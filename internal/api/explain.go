package api

import (
	"context"
	"errors"

	"github.com/waybill-dev/waybill/internal/filter"
	"github.com/waybill-dev/waybill/internal/outbox"
)

// explainedEventView is an event, and why endpoints did not get it.
type explainedEventView struct {
	eventView
	NotMatched []notMatchedView `json:"not_matched,omitzero" required:"false" doc:"With explain=true"`
}

// notMatchedView is an endpoint that an event was not planned for.
type notMatchedView struct {
	EndpointID string     `json:"endpoint_id"`
	URL        string     `json:"url"`
	Reason     missReason `json:"reason" doc:"event_type; filter; draft; created_after: the endpoint is younger than the event; deleted; changed_since: it would get the event now, but was changed after the event was routed"`
}

type missReason string

const (
	missEventType    missReason = "event_type"
	missFilter       missReason = "filter"
	missDraft        missReason = "draft"
	missCreatedAfter missReason = "created_after"
	missDeleted      missReason = "deleted"
	missChangedSince missReason = "changed_since"
)

// maxExplained is how many of a tenant's endpoints are looked at, the newest first.
const maxExplained = 1000

// explain says of each of the tenant's endpoints that has no delivery of the event why it has none.
func (a *API) explain(ctx context.Context, e *outbox.EventView) ([]notMatchedView, error) {
	misses := []notMatchedView{}
	endpoints, err := a.cfg.Store.EndpointsEver(ctx, e.Tenant, maxExplained)
	if err != nil {
		return nil, err
	}
	planned := map[outbox.EndpointID]bool{}
	query := outbox.DeliveryQuery{Tenant: e.Tenant, Event: e.ID}
	for {
		rows, next, err := a.cfg.Store.Deliveries(ctx, query, outbox.Page{Limit: maxLimit})
		if err != nil {
			return nil, err
		}
		for i := range rows {
			planned[rows[i].Endpoint] = true
		}
		if next.IsZero() || len(planned) >= maxExplained {
			break
		}
		query.After = next
	}
	var document *filter.Document // nil: the bytes are not kept any more
	payload, err := a.cfg.Store.Payload(ctx, e.Tenant, e.ID)
	if err == nil {
		document = filter.Parse(payload)
	} else if !errors.Is(err, outbox.ErrPayloadGone) && !errors.Is(err, outbox.ErrNotFound) {
		return nil, err
	}
	unrouted := e.State == outbox.EventUnrouted && len(planned) == 0
	for i := range endpoints {
		if planned[endpoints[i].ID] {
			continue
		}
		reason := missed(&endpoints[i], e, document)
		if reason == missChangedSince && unrouted {
			continue // it is about to be planned
		}
		misses = append(misses, notMatchedView{EndpointID: endpoints[i].ID.String(), URL: endpoints[i].URL, Reason: reason})
	}
	return misses, nil
}

// missed says why an endpoint has no delivery of an event, as far as the configuration of now can
// tell.
func missed(endpoint *outbox.Endpoint, e *outbox.EventView, document *filter.Document) missReason {
	switch {
	case !endpoint.DeletedAt.IsZero():
		return missDeleted
	case endpoint.CreatedAt.After(e.CreatedAt):
		return missCreatedAfter
	case !endpoint.State.Routes():
		return missDraft
	case !endpoint.Matches(e.Type):
		return missEventType
	case endpoint.Filter != "" && document != nil:
		if f, err := filter.Compile([]byte(endpoint.Filter)); err == nil && !f.Matches(document) {
			return missFilter
		}
	}
	return missChangedSince
}
