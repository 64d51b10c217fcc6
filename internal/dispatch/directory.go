package dispatch

import (
	"slices"

	"github.com/waybill-dev/waybill/internal/attempt"
	"github.com/waybill-dev/waybill/internal/outbox"
	"github.com/waybill-dev/waybill/internal/route"
	"github.com/waybill-dev/waybill/internal/signing"
)

// directory is the configuration the node works by: who subscribes to what, and where it goes.
type directory struct {
	tenants map[outbox.TenantID]*subscription
}

type subscription struct {
	tenant      outbox.Tenant
	subscribers route.Subscribers
	filters     bool // some of them look into the payload
}

// target is an endpoint as attempts use it: prepared once for each version of its configuration.
type target struct {
	endpoint outbox.Endpoint
	tenant   *outbox.Tenant
	retry    outbox.RetryPolicy // resolved
	prepared *attempt.Target
	book     signing.Book
}

func newDirectory() directory {
	return directory{tenants: map[outbox.TenantID]*subscription{}}
}

func (d *directory) weight(id outbox.TenantID) float64 {
	if s := d.tenants[id]; s != nil {
		return s.tenant.Weight
	}
	return outbox.DefaultWeight
}

func (d *directory) subscribers(id outbox.TenantID) route.Subscribers {
	if s := d.tenants[id]; s != nil {
		return s.subscribers
	}
	return nil
}

// filtered returns the tenant's subscribers if any of them has a filter.
func (d *directory) filtered(id outbox.TenantID) route.Subscribers {
	if s := d.tenants[id]; s != nil && s.filters {
		return s.subscribers
	}
	return nil
}

// replace puts the configuration of some shards in place of what was known of them.
func (d *directory) replace(shards map[outbox.Shard]bool, c outbox.ShardConfig) map[outbox.TenantID]*outbox.Tenant {
	d.drop(shards)
	tenants := make(map[outbox.TenantID]*outbox.Tenant, len(c.Tenants))
	of := map[outbox.TenantID][]*outbox.Endpoint{}
	for i := range c.Endpoints {
		e := &c.Endpoints[i]
		of[e.Tenant.ID] = append(of[e.Tenant.ID], e)
	}
	for i := range c.Tenants {
		t := &c.Tenants[i]
		tenants[t.ID] = t
		filters := slices.ContainsFunc(of[t.ID], func(e *outbox.Endpoint) bool { return e.Filter != "" })
		d.tenants[t.ID] = &subscription{*t, route.NewSubscribers(of[t.ID]), filters}
	}
	return tenants
}

func (d *directory) drop(shards map[outbox.Shard]bool) {
	for id, s := range d.tenants {
		if shards[s.tenant.Shard] {
			delete(d.tenants, id)
		}
	}
}

// prepare makes the targets of the endpoints. One whose stored row cannot be used fails its own
// deliveries, visibly, and nobody else's.
func prepare(sender Sender, book signing.Book, endpoints []outbox.Endpoint, tenants map[outbox.TenantID]*outbox.Tenant, instance outbox.RetryPolicy) map[outbox.EndpointID]*target {
	targets := make(map[outbox.EndpointID]*target, len(endpoints))
	for i := range endpoints {
		e := endpoints[i]
		tenant := tenants[e.Tenant.ID]
		if tenant == nil {
			continue // its tenant is deleted: what is pending is cancelled when met
		}
		retry := e.Retry.Over(tenant.Retry).Over(instance)
		t := &target{endpoint: e, tenant: tenant, retry: retry, book: book}
		t.prepared = sender.Prepare(t.sendable())
		targets[e.ID] = t
	}
	return targets
}

// moved reports whether connections made for the endpoint as it was must not be used for it any
// more: it is elsewhere, or is known there by another certificate.
func (t *target) moved(was *outbox.Endpoint) bool {
	now := &t.endpoint
	return now.URL != was.URL || now.Credentials.Certificate != was.Credentials.Certificate || now.Credentials.Key != was.Credentials.Key
}

// sendable is the configuration as far as sending needs it.
func (t *target) sendable() attempt.Endpoint {
	return attempt.Of(&t.endpoint, t.tenant, t.retry, t.book)
}
