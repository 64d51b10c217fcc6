package api

import "github.com/waybill-dev/waybill/internal/outbox"

var (
	explainParams = []param{{name: "explain", about: "true: why endpoints without a delivery of it have none.", words: yesOrNo}}
	statsParams   = queryOf([]param{
		{name: "from", about: "RFC 3339; 24 hours before to by default."},
		{name: "to", about: "RFC 3339; now by default."},
		{name: "bucket", about: "The length of a step: 1m, 5m, 1h, 1d. Older than two days there are whole hours alone."},
		{name: "endpoint_id", about: "ep_…; of this endpoint alone. Then there is no published, unmatched or planned."},
	})
)

// lookingRoutes are what the operator looks around with, and the streams.
func lookingRoutes() []*route {
	const tenant = "/v1/tenants/{tenant}"
	return []*route{
		{method: "GET", path: "/v1/search", name: "search", tag: "Operator", scope: ScopeRead, operator: true,
			summary: "Find things by whatever is at hand", about: "Any id, a tenant's key or name, a source's name, an endpoint's uid, URL, description or metadata; with tenant also an idempotency key or a value of an event's metadata.",
			query:   []param{{name: "q", about: "What to look for."}, tenantParam},
			answers: map[int]any{200: searchView{}}, refuses: []int{404}, handle: (*API).search},
		{method: "GET", path: "/v1/overview", name: "getOverview", tag: "Operator", scope: ScopeRead, operator: true,
			summary: "How everything stands", about: "Who is hurting and what waits for what, at the same cost however much there is.",
			answers: map[int]any{200: overviewView{}}, handle: (*API).overview},
		{method: "GET", path: "/v1/nodes", name: "listNodes", tag: "Operator", scope: ScopeRead, operator: true,
			summary: "The nodes, and who owns which shard", answers: map[int]any{200: nodesView{}}, handle: (*API).nodes},
		{method: "GET", path: "/v1/stats", name: "getStats", tag: "Operator", scope: ScopeRead, operator: true,
			summary: "What happened, step by step", about: "Counted while it happens. Figures of other nodes are up to five seconds late.",
			query: queryOf(statsParams, []param{tenantParam}), answers: map[int]any{200: statsView{}}, refuses: []int{404}, handle: (*API).stats},
		{method: "GET", path: tenant + "/stats", name: "getTenantStats", tag: "Tenants", scope: ScopeRead,
			summary: "What happened to a tenant's events, step by step",
			query:   statsParams, answers: map[int]any{200: statsView{}}, handle: (*API).stats},
		{method: "GET", path: "/v1/events", name: "listAllEvents", tag: "Operator", scope: ScopeRead, operator: true,
			summary: "List all tenants' events", query: queryOf(listParams, spanParams, []param{typeParam, {name: "state", words: []string{"pending", "failed", "cancelled"}}, tenantParam}),
			answers: map[int]any{200: list[eventView]{}}, refuses: []int{404}, handle: (*API).listEvents},
		{method: "GET", path: "/v1/tail", name: "tail", streams: true, tag: "Operator", scope: ScopeRead, operator: true,
			summary: "Attempts as they end, as a stream", about: "Server-Sent Events: attempt, and missed where some could not be shown. Last-Event-ID goes on where a stream ended. Comments keep the connection open.",
			query: []param{tenantParam, {name: "endpoint_id", about: "ep_…"}, typeParam,
				{name: "outcome", many: true, words: []string{string(outbox.OutcomeDelivered), string(outbox.OutcomeTransient), string(outbox.OutcomePermanent)}}},
			answers: map[int]any{200: nil}, refuses: []int{404}, handle: (*API).tail},
		{method: "GET", path: tenant + "/listen", name: "listen", streams: true, tag: "Events", scope: ScopeListen,
			summary: "A tenant's events as they are accepted, as a stream", about: "For development. Server-Sent Events: event, with the payload's bytes in base64. Last-Event-ID goes on where a stream ended.",
			query: []param{typeParam}, answers: map[int]any{200: nil}, handle: (*API).listen},
	}
}
