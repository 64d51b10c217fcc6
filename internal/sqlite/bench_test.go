package sqlite_test

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// BenchmarkStore_path measures what the store costs an event from acceptance to delivery, in
// batches of 500 with payloads of 1 KB: every step is one transaction and one fsync.
func BenchmarkStore_path(b *testing.B) {
	store, _ := openStore(b)
	ctx := b.Context()
	now := time.Now().UTC().Truncate(time.Microsecond)
	var tenants []outbox.Tenant
	var endpoints []outbox.Endpoint
	for i := range 50 {
		tenant, _, err := store.PutTenant(ctx, fmt.Sprintf("tenant-%d", i), now, func(*outbox.Tenant, bool) error { return nil })
		if err != nil {
			b.Fatal(err)
		}
		endpoint, _, err := store.PutEndpoint(ctx, tenant.TenantRef, outbox.EndpointRef{}, now, func(e *outbox.Endpoint, _ bool) error {
			e.URL, e.State, e.Timeout, e.EventTypes = "https://example.com/in", outbox.EndpointActive, outbox.DefaultTimeout, []string{"*"}
			return nil
		})
		if err != nil {
			b.Fatal(err)
		}
		tenants, endpoints = append(tenants, tenant), append(endpoints, endpoint)
	}
	node := outbox.NewNodeID(now)
	if err := store.Join(ctx, node, now); err != nil {
		b.Fatal(err)
	}
	beat, err := store.Beat(ctx, node, false)
	if err != nil {
		b.Fatal(err)
	}
	lease, _, err := store.Take(ctx, node, beat.Shards)
	if err != nil {
		b.Fatal(err)
	}
	lease.Revisions = beat.Revisions
	payload := bytes.Repeat([]byte("x"), 1000)
	payload[0], payload[len(payload)-1] = '"', '"'
	sum := sha256.Sum256(payload)
	next := map[outbox.EndpointID]int64{}

	const size = 500
	var insert, route, fetch, finish time.Duration
	n := 0
	for b.Loop() {
		n += size
		now = time.Now().UTC().Truncate(time.Microsecond)
		batch := make([]outbox.NewEvent, size)
		for i := range batch {
			batch[i] = outbox.NewEvent{Event: outbox.Event{
				ID: outbox.NewEventID(now), Tenant: tenants[i%len(tenants)].TenantRef, Type: "payment.succeeded", Payload: payload, SHA256: sum, CreatedAt: now,
			}}
		}
		began := time.Now()
		accepted, _, err := store.InsertEvents(ctx, batch)
		if err != nil {
			b.Fatal(err)
		}
		insert += time.Since(began)

		plans := make([]outbox.Plan, size)
		marks := map[outbox.EndpointID]int64{}
		requests := make([]outbox.FetchRequest, len(endpoints))
		for i, e := range batch {
			endpoint := endpoints[i%len(endpoints)]
			next[endpoint.ID]++
			marks[endpoint.ID] = next[endpoint.ID] + 1
			plans[i] = outbox.Plan{
				Row:  outbox.OutboxRow{Shard: e.Tenant.Shard, Pos: accepted[i].Pos, Tenant: e.Tenant.ID, Event: e.ID},
				Last: true, Matched: true,
				Deliveries: []outbox.Delivery{{
					Shard: e.Tenant.Shard, ID: outbox.NewDeliveryID(e.ID, endpoint.ID), Tenant: e.Tenant.ID, Endpoint: endpoint.ID, Event: e.ID,
					EventType: e.Type, Sequence: next[endpoint.ID], NextAt: now, SendableAt: now,
				}},
			}
			requests[i%len(endpoints)] = outbox.FetchRequest{Shard: e.Tenant.Shard, Endpoint: endpoint.ID, Limit: size}
		}
		began = time.Now()
		routed, err := store.Route(ctx, lease, plans, marks, now)
		if err != nil || len(routed.Gone)+len(routed.Stale) > 0 {
			b.Fatal(routed, err)
		}
		route += time.Since(began)

		began = time.Now()
		due, err := store.FetchDue(ctx, requests, now, 64<<20)
		if err != nil {
			b.Fatal(err)
		}
		fetch += time.Since(began)

		var results []outbox.Result
		for _, f := range due {
			for _, d := range f.Rows {
				results = append(results, outbox.Result{Delivery: d.Delivery, Delivered: true, At: now, Attempt: &outbox.Attempt{
					ID: outbox.NewAttemptID(now), Trigger: outbox.TriggerSchedule, At: now, Duration: time.Millisecond, URL: "https://example.com/in",
					Outcome: outbox.OutcomeDelivered, StatusCode: 200, RequestBytes: len(payload), ResponseBody: []byte("ok"),
					RequestHeaders: []outbox.Header{
						{Name: "content-type", Value: "application/json"}, {Name: "webhook-id", Value: d.Event.String()},
						{Name: "webhook-timestamp", Value: "1700000000"}, {Name: "webhook-signature", Value: "v1,K5oZfzN95Z9UVu1EsfQmfVNQhnkZ2pj9o9NDN/H/pI4="},
					},
					ResponseHeaders: []outbox.Header{{Name: "content-type", Value: "text/plain"}},
				}})
			}
		}
		if len(results) != size {
			b.Fatalf("%d due, want %d", len(results), size)
		}
		began = time.Now()
		if _, err := store.Finish(ctx, results); err != nil {
			b.Fatal(err)
		}
		finish += time.Since(began)
	}
	per := func(d time.Duration) float64 { return float64(d.Microseconds()) / float64(n) }
	b.ReportMetric(per(insert), "insert-µs/event")
	b.ReportMetric(per(route), "route-µs/event")
	b.ReportMetric(per(fetch), "fetch-µs/event")
	b.ReportMetric(per(finish), "finish-µs/event")
	report, err := store.Verify(ctx, true)
	if err != nil || !report.Balanced() {
		b.Fatalf("%+v %v", report, err)
	}
}
