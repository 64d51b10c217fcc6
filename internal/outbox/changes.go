package outbox

import (
	"maps"
	"reflect"
	"slices"
)

// add notes a field that differs.
func (c Changes) add(name string, from, to any) {
	if !reflect.DeepEqual(from, to) {
		c[name] = Change{From: from, To: to}
	}
}

// secret notes that a field differs, and nothing of what it holds.
func (c Changes) secret(name string, from, to any) {
	if !reflect.DeepEqual(from, to) {
		c[name] = Change{}
	}
}

// TenantChanges are the fields in which two states of a tenant differ.
func TenantChanges(before, after *Tenant) Changes {
	c := Changes{}
	c.add("name", before.Name, after.Name)
	c.add("weight", before.Weight, after.Weight)
	c.add("max_in_flight", before.MaxInFlight, after.MaxInFlight)
	c.add("max_endpoints", orNil(before.MaxEndpoints), orNil(after.MaxEndpoints))
	c.add("state", string(before.State), string(after.State))
	c.add("egress", string(before.Egress), string(after.Egress))
	c.add("retry", retryShown(before.Retry), retryShown(after.Retry))
	c.add("metadata", shown(before.Metadata), shown(after.Metadata))
	return c
}

// EndpointChanges are the fields in which two states of an endpoint differ. Headers count as
// secrets: people put tokens into them.
func EndpointChanges(before, after *Endpoint) Changes {
	c := Changes{}
	c.add("uid", before.UID, after.UID)
	c.add("url", before.URL, after.URL)
	c.add("description", before.Description, after.Description)
	c.add("metadata", shown(before.Metadata), shown(after.Metadata))
	c.add("event_types", slices.Clone(before.EventTypes), slices.Clone(after.EventTypes))
	c.add("filter", before.Filter, after.Filter)
	c.add("signing", slices.Clone(before.Schemes), slices.Clone(after.Schemes))
	c.add("max_in_flight", before.MaxInFlight, after.MaxInFlight)
	c.add("rate_limit", rateShown(before.RateLimit), rateShown(after.RateLimit))
	c.add("timeout_seconds", before.Timeout.Seconds(), after.Timeout.Seconds())
	c.add("ordering", string(before.Ordering), string(after.Ordering))
	c.add("on_dead", string(before.OnDead), string(after.OnDead))
	c.add("payload_mode", string(before.PayloadMode), string(after.PayloadMode))
	c.add("thin_ttl_seconds", before.ThinTTL.Seconds(), after.ThinTTL.Seconds())
	c.add("state", string(before.State), string(after.State))
	c.add("retry", retryShown(before.Retry), retryShown(after.Retry))
	if !before.DiscardedAt.Equal(after.DiscardedAt) {
		c["backlog"] = Change{To: "discard"}
	}
	c.secret("headers", shown(before.Headers), shown(after.Headers))
	c.secret("secret_headers", shown(before.Credentials.Headers), shown(after.Credentials.Headers))
	c.secret("client_certificate", [2]string{before.Credentials.Certificate, before.Credentials.Key}, [2]string{after.Credentials.Certificate, after.Credentials.Key})
	c.secret("secrets", slices.Clone(before.Secrets), slices.Clone(after.Secrets))
	return c
}

// shown makes an empty map and none the same.
func shown(m map[string]string) map[string]string {
	if len(m) == 0 {
		return map[string]string{}
	}
	return maps.Clone(m)
}

func orNil(n *int) any {
	if n == nil {
		return nil
	}
	return *n
}

func rateShown(r *RateLimit) any {
	if r == nil {
		return nil
	}
	return map[string]any{"count": r.Count, "per_seconds": r.Per.Seconds()}
}

// retryShown is a policy as the API writes it, what is unset left out.
func retryShown(p RetryPolicy) map[string]any {
	m := map[string]any{}
	for name, d := range map[string]float64{"initial_seconds": p.Initial.Seconds(), "max_seconds": p.Max.Seconds(), "window_seconds": p.Window.Seconds()} {
		if d != 0 {
			m[name] = d
		}
	}
	if p.MaxAttempts != 0 {
		m["max_attempts"] = p.MaxAttempts
	}
	if p.RetryStatuses != nil {
		m["retry_statuses"] = p.RetryStatuses
	}
	return m
}

// SourceChanges are the fields in which two states of a source differ. A challenge token counts as
// a secret.
func SourceChanges(before, after *Source) Changes {
	c := Changes{}
	c.add("provider", before.Provider, after.Provider)
	c.add("tenant", before.TenantKey, after.TenantKey)
	c.add("state", string(before.State), string(after.State))
	c.add("event_type", before.Settings.EventType, after.Settings.EventType)
	c.add("id", before.Settings.ID, after.Settings.ID)
	c.add("verify", before.Settings.Verify, after.Settings.Verify)
	c.add("forward_headers", slices.Clone(before.Settings.ForwardHeaders), slices.Clone(after.Settings.ForwardHeaders))
	c.add("responses", before.Settings.Responses, after.Settings.Responses)
	c.add("max_body", before.Settings.MaxBody, after.Settings.MaxBody)
	c.add("keep_seconds", before.Keep.Seconds(), after.Keep.Seconds())
	c.secret("secrets", slices.Clone(before.Secrets), slices.Clone(after.Secrets))
	return c
}
