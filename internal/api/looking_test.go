package api

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/waybill-dev/waybill/internal/outbox"
	"github.com/waybill-dev/waybill/internal/traffic"
)

// UnmarshalJSON reads a stamp; only tests have to.
func (s *stamp) UnmarshalJSON(text []byte) error { return (*time.Time)(s).UnmarshalJSON(text) }

// found is what a search found, as "type by title" lines.
func (f *fixture) found(query string) []string {
	f.t.Helper()
	var view searchView
	f.call("GET", "/v1/search?"+query, nil).want(200).into(&view)
	lines := []string{}
	for _, row := range view.Data {
		lines = append(lines, row.Tenant+" "+row.Type+" by "+row.By+": "+row.Title)
	}
	return lines
}

func TestSearch_findsThingsByWhateverIsAtHand(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		f.call("PUT", "/v1/tenants/acme", `{"name":"Acme Parcels"}`).want(201)
		f.tenant("other")
		ep := f.endpoint("acme", `"uid":"erp-7","metadata":{"crm":"SF-0012"},"event_types":["order.*"]`)
		f.call("POST", "/v1/tenants/acme/events", `{"type":"order.placed","payload":1,"idempotency_key":"key-7","metadata":{"shop":"berlin"}}`).want(202)
		d := f.route()[0]
		f.finish(d, 404, outbox.DeadPermanent, false)
		attempt := f.call("GET", "/v1/deliveries/"+d.ID.String()+"/attempts", nil).text("data", 0, "id")
		delivery := "acme delivery by id: order.placed to https://hooks.example.com/in"
		endpoint := "acme endpoint by endpoint: https://hooks.example.com/in"
		uuid := fmt.Sprintf("%x-%x-%x-%x-%x", d.Event[:4], d.Event[4:6], d.Event[6:8], d.Event[8:10], d.Event[10:])
		for query, want := range map[string][]string{
			"q=" + d.Event.String():          {"acme event by id: order.placed"},
			"q=" + uuid:                      {"acme event by id: order.placed"},
			"q=" + strings.ToUpper(uuid):     {"acme event by id: order.placed"},
			"q=%20" + d.ID.String() + "%20":  {delivery},
			"q=" + attempt:                   {"acme attempt by id: order.placed to https://hooks.example.com/in", delivery},
			"q=" + ep:                        {"acme endpoint by id: https://hooks.example.com/in"},
			"q=acme":                         {"acme tenant by key: Acme Parcels"},
			"q=parcel":                       {"acme tenant by name: Acme Parcels"},
			"q=ERP-7":                        {endpoint},
			"q=hooks.example":                {endpoint},
			"q=sf-0012":                      {endpoint},
			"q=key-7":                        {},
			"q=key-7&tenant=acme":            {"acme event by idempotency_key: order.placed"},
			"q=berlin&tenant=acme":           {"acme event by metadata: order.placed"},
			"q=berlin&tenant=other":          {},
			"q=hooks.example&tenant=other":   {},
			"q=" + ep + "&tenant=other":      {},
			"q=" + attempt + "&tenant=other": {},
			"q=nothing%25":                   {},
		} {
			if diff := cmp.Diff(want, f.found(query)); diff != "" {
				t.Errorf("%s (- want, + got)\n%s", query, diff)
			}
		}
		f.call("GET", "/v1/search?q=x&tenant=nobody", nil).wantProblem(404, CodeUnknownTenant)
		for query, reason := range map[string]string{"q=%00": "U+0000", "q=a%00b": "U+0000", "q=%ff": "UTF-8", "q=" + strings.Repeat("x", 3000): "bytes", "q=a&q=b": "more than once"} {
			p := f.call("GET", "/v1/search?"+query, nil).wantProblem(422, CodeInvalidField)
			if len(p.Errors) != 1 || p.Errors[0].Path != "q" || !strings.Contains(p.Errors[0].Detail, reason) {
				t.Errorf("%.20s: %+v, want %s", query, p.Errors, reason)
			}
		}
	})
}

// A publisher may choose an event's id, so another tenant's event can have it: by accident, or to
// stand before it when somebody looks. Neither hides the other.
func TestEvent_anIDOfSeveralTenantsNamesNoneOfThem(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		f.tenant("acme")
		f.tenant("mallory")
		id := outbox.NewEventID(f.clock.Now()).String()
		f.call("POST", "/v1/tenants/mallory/events", `{"type":"a.b","id":"`+id+`","payload":1}`).want(202)
		if one := f.call("GET", "/v1/events/"+id, nil).want(200); one.text("tenant") != "mallory" {
			t.Errorf("%s", one.body)
		}
		f.call("POST", "/v1/tenants/acme/events", `{"type":"order.paid","id":"`+id+`","payload":{"n":2}}`).want(202)
		p := f.call("GET", "/v1/events/"+id, nil).wantProblem(409, CodeAmbiguousID)
		var tenants []string
		for _, item := range p.Errors {
			tenants = append(tenants, item.Path+" "+item.Detail)
		}
		slices.Sort(tenants)
		if diff := cmp.Diff([]string{"tenant acme", "tenant mallory"}, tenants); diff != "" {
			t.Errorf("(- want, + got)\n%s", diff)
		}
		for tenant, kind := range map[string]string{"acme": "order.paid", "mallory": "a.b"} {
			one := f.call("GET", "/v1/events/"+id+"?tenant="+tenant, nil).want(200)
			if one.text("tenant") != tenant || one.text("type") != kind {
				t.Errorf("%s: %s", tenant, one.body)
			}
			if own := f.call("GET", "/v1/tenants/"+tenant+"/events/"+id, nil).want(200); own.text("type") != kind {
				t.Errorf("%s: %s", tenant, own.body)
			}
		}
		found := f.found("q=" + id)
		slices.Sort(found)
		if diff := cmp.Diff([]string{"acme event by id: order.paid", "mallory event by id: a.b"}, found); diff != "" {
			t.Errorf("by the search (- want, + got)\n%s", diff)
		}
		if diff := cmp.Diff([]string{"acme event by id: order.paid"}, f.found("q="+id+"&tenant=acme")); diff != "" {
			t.Errorf("by a tenant's search (- want, + got)\n%s", diff)
		}
		f.call("GET", "/v1/events/"+id+"?tenant=nobody", nil).wantProblem(404, CodeUnknownTenant)
		f.call("GET", "/v1/tenants/acme/events/"+id+"?tenant=mallory", nil).wantProblem(422, CodeUnknownField)
	})
}

func TestEvent_explainsWhyEndpointsDidNotGetIt(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		f.tenant("acme")
		want := map[string]string{
			f.endpoint("acme", `"event_types":["order.*"]`):                                 "",
			f.endpoint("acme", `"event_types":["payment.*"]`):                               "event_type",
			f.endpoint("acme", `"state":"draft"`):                                           "draft",
			f.endpoint("acme", `"event_types":["order.*"],"filter":{"amount":{"$gt":100}}`): "filter",
			f.endpoint("acme", `"event_types":["*"],"uid":"leaves"`):                        "",
		}
		event := f.publish("acme", "order.placed", `{"amount":7}`)
		address := "/v1/tenants/acme/events/" + event + "?explain=true"
		misses := func() map[string]string {
			t.Helper()
			got := map[string]string{}
			for id := range want {
				got[id] = ""
			}
			var view explainedEventView
			f.call("GET", address, nil).want(200).into(&view)
			for _, miss := range view.NotMatched {
				got[miss.EndpointID] = string(miss.Reason)
			}
			return got
		}
		if diff := cmp.Diff(want, misses()); diff != "" {
			t.Errorf("before it is routed (- want, + got)\n%s", diff)
		}
		f.route()
		for id, reason := range want {
			if reason == "filter" {
				want[id] = "" // the owner of this test asks no filters: it got a delivery
			}
		}
		want[f.endpoint("acme", "")] = "created_after"
		gone := f.endpoint("acme", "")
		f.call("DELETE", "/v1/tenants/acme/endpoints/"+gone, nil).want(202)
		want[gone] = "deleted"
		for id, reason := range want {
			if reason == "event_type" {
				f.call("PATCH", "/v1/tenants/acme/endpoints/"+id, `{"event_types":["*"]}`).want(200)
				want[id] = "changed_since"
			}
		}
		if diff := cmp.Diff(want, misses()); diff != "" {
			t.Errorf("after it is routed (- want, + got)\n%s", diff)
		}
		address = "/v1/events/" + event + "?explain=true"
		if diff := cmp.Diff(want, misses()); diff != "" {
			t.Errorf("to the operator (- want, + got)\n%s", diff)
		}
		if _, there := f.call("GET", "/v1/events/"+event, nil).json()["not_matched"]; there {
			t.Error("not_matched is there although nobody asked")
		}
		f.call("GET", "/v1/events/"+event+"?explain=maybe", nil).want(422)
	})
}

func TestStats_addUpStepByStep(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		f.tenant("acme")
		f.tenant("other")
		acme := f.ref("acme")
		start := f.clock.Now().Truncate(time.Hour).Add(-2 * time.Hour)
		add := func(minute int, c outbox.Counts) {
			for _, tenant := range []outbox.TenantID{0, acme.ID} {
				must(t, f.store.AddTraffic(t.Context(), []outbox.Traffic{{At: start.Add(time.Duration(minute) * time.Minute), Tenant: tenant, Counts: c}}))
			}
		}
		quick := outbox.Counts{Published: 3, Planned: 4, Delivered: 3, Failed: 1, Succeeded: 3, Permanent: 1}
		for range 95 {
			quick.Answer.Observe(100 * time.Millisecond)
		}
		for range 5 {
			quick.Answer.Observe(10 * time.Second)
		}
		add(0, quick)
		add(59, outbox.Counts{Succeeded: 4})
		add(60, outbox.Counts{Transient: 2, Cancelled: 5, Unmatched: 1, Published: 1})
		span := "from=" + start.Format(time.RFC3339) + "&to=" + start.Add(3*time.Hour).Format(time.RFC3339)
		for _, address := range []string{"/v1/stats?", "/v1/tenants/acme/stats?", "/v1/stats?tenant=acme&"} {
			var view statsView
			f.call("GET", address+span+"&bucket=1h", nil).want(200).into(&view)
			if len(view.Data) != 3 || view.BucketSeconds != 3600 {
				t.Fatalf("%s: %d steps of %d s", address, len(view.Data), view.BucketSeconds)
			}
			first, second, third := view.Data[0], view.Data[1], view.Data[2]
			if first.Attempts != (attemptsView{Total: 8, Delivered: 7, Permanent: 1}) || *first.SuccessRate != 7.0/8 || first.Failed != 1 || first.Delivered != 3 {
				t.Errorf("%s: the first hour is %+v", address, first)
			}
			if p := first.AttemptMS; *p.P50 < 100 || *p.P50 > 108 || *p.P95 < 100 || *p.P95 > 108 || *p.P99 < 10_000 || *p.P99 > 10_800 {
				t.Errorf("%s: attempts took %v %v %v ms", address, *p.P50, *p.P95, *p.P99)
			}
			if *second.SuccessRate != 0 || second.Cancelled != 5 || second.Unmatched != 1 {
				t.Errorf("%s: the second hour is %+v", address, second)
			}
			if third.SuccessRate != nil || third.AttemptMS.P50 != nil || third.Attempts.Total != 0 {
				t.Errorf("%s: nothing happened in the third hour: %+v", address, third)
			}
			if view.Totals.Published != 4 || view.Totals.Attempts.Total != 10 {
				t.Errorf("%s: totals %+v", address, view.Totals)
			}
		}
		var none statsView
		f.call("GET", "/v1/tenants/other/stats?"+span, nil).want(200).into(&none)
		if none.Totals.Published != 0 || none.BucketSeconds != 60 {
			t.Errorf("another tenant's: %+v in steps of %d s", none.Totals, none.BucketSeconds)
		}
		f.call("GET", "/v1/stats", nil).want(200)
		for _, bad := range []string{"bucket=7m", "bucket=10s", "bucket=hour", "from=2020-01-01T00:00:00Z&bucket=1m", "from=2030-01-02T00:00:00Z&to=2030-01-01T00:00:00Z"} {
			f.call("GET", "/v1/stats?"+bad, nil).want(422)
		}
	})
}

func TestNodes_showWhoOwnsWhat(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		f.tenant("acme")
		f.route() // which makes the node that owns everything
		must(t, f.store.ReportNode(t.Context(), outbox.NodeReport{
			Node: f.owner.Node, At: f.clock.Now(), Name: "wb-1", Version: "v9", InFlight: 3, MaxInFlight: 1000, PerSecond: 2.5, OldestRunnable: 800 * time.Millisecond,
		}))
		var view nodesView
		f.call("GET", "/v1/nodes", nil).want(200).into(&view)
		if len(view.Data) != 1 || len(view.Shards) != 256 || view.Ownerless != 0 {
			t.Fatalf("%d nodes, %d shards, %d without an owner", len(view.Data), len(view.Shards), view.Ownerless)
		}
		n := view.Data[0]
		if n.Name != "wb-1" || n.Version != "v9" || n.Shards != 256 || n.InFlight != 3 || n.OldestRunnableMS != 800 || n.Silent || *view.Shards[17] != 0 {
			t.Errorf("the node is %+v, shard 17 is of %d", n, *view.Shards[17])
		}
	})
}

func TestOverview_saysWhoHurtsAndWhatWaits(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		f.call("PUT", "/v1/tenants/acme", `{"name":"Acme Parcels"}`).want(201)
		broken := f.endpoint("acme", `"event_types":["broken"]`)
		f.endpoint("acme", `"event_types":["paused"],"state":"paused"`)
		f.endpoint("acme", `"event_types":["fine"]`)
		f.endpoint("acme", `"event_types":["retry"]`)
		for _, kind := range []string{"broken", "broken", "broken", "paused", "paused", "fine", "retry"} {
			f.publish("acme", kind, `1`)
		}
		acme, id := f.ref("acme"), outbox.EndpointID{}
		for _, d := range f.route() {
			switch d.EventType {
			case "broken":
				id = d.Endpoint
			case "retry":
				f.finish(d, 503, "", true)
			}
		}
		now := f.clock.Now()
		must(t, f.store.WriteHealth(t.Context(), f.owner, []outbox.EndpointHealth{{
			Shard: acme.Shard, Tenant: acme.ID, Endpoint: id, Breaker: outbox.BreakerOpen, NextProbeAt: now.Add(time.Minute),
			OpenedAt: now.Add(-time.Hour), FailingSince: now.Add(-time.Hour), ConsecutiveFailures: 20,
		}}, now))
		must(t, f.store.AddTraffic(t.Context(), []outbox.Traffic{{At: now.Add(-time.Minute), Tenant: acme.ID, Endpoint: id, Counts: outbox.Counts{Transient: 20}}}))

		var view overviewView
		f.call("GET", "/v1/overview", nil).want(200).into(&view)
		if view.Pending != 7 || view.Dead != 0 || view.OpenBreakers != 1 || len(view.Hurting) != 1 {
			t.Fatalf("%d pending, %d dead, %d breakers, %d hurt", view.Pending, view.Dead, view.OpenBreakers, len(view.Hurting))
		}
		// All of it was published just now; PostgreSQL has room for days before.
		today := now.UTC().Truncate(24 * time.Hour)
		if at := view.Storage.OldestAt; view.Storage.Bytes < 8<<10 || at == nil || time.Time(*at).After(today) || time.Time(*at).Before(today.AddDate(0, 0, -40)) {
			t.Errorf("storage %+v", view.Storage)
		}
		if h := view.Hurting[0]; h.EndpointID != broken || h.TenantName != "Acme Parcels" || h.Health.Pending != 3 || h.LastHour.Attempts.Transient != 20 || len(h.Day) != 24 || h.Health.Breaker != "open" {
			t.Errorf("who hurts: %+v", h)
		}
		got := map[waitReason]int{}
		for _, w := range view.Waiting {
			got[w.Reason] = w.Pending
		}
		if diff := cmp.Diff(map[waitReason]int{waitBreaker: 3, waitPaused: 2, waitBacklog: 1, waitRetry: 1}, got); diff != "" {
			t.Errorf("what waits (- want, + got)\n%s", diff)
		}
		f.call("PUT", "/v1/dispatch", `{"state":"paused","reason":"maintenance"}`).want(200)
		f.call("GET", "/v1/overview", nil).want(200).into(&view)
		if len(view.Waiting) != 1 || view.Waiting[0].Reason != waitDispatch || view.Waiting[0].Pending != 7 || view.Dispatch.State != "paused" {
			t.Errorf("while everything is stopped: %+v", view.Waiting)
		}
	})
}

// sse is an open stream.
type sse struct {
	t    *testing.T
	resp *http.Response
	scan *bufio.Scanner
}

func (f *fixture) open(path string, headers ...string) *sse {
	f.t.Helper()
	server := httptest.NewServer(f.handler)
	f.t.Cleanup(server.Close)
	req, err := http.NewRequestWithContext(f.t.Context(), "GET", server.URL+path, nil)
	must(f.t, err)
	req.Header.Set("Authorization", "Bearer "+operatorKey)
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := server.Client().Do(req)
	must(f.t, err)
	f.t.Cleanup(func() { resp.Body.Close() })
	if resp.StatusCode != 200 || !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		f.t.Fatalf("%s: %d %s", path, resp.StatusCode, resp.Header.Get("Content-Type"))
	}
	return &sse{f.t, resp, bufio.NewScanner(resp.Body)}
}

// next reads the next event that is no comment.
func (s *sse) next() (kind, id string, data map[string]any) {
	s.t.Helper()
	for s.scan.Scan() {
		name, value, _ := strings.Cut(s.scan.Text(), ": ")
		switch name {
		case "event":
			kind = value
		case "id":
			id = value
		case "data":
			must(s.t, json.Unmarshal([]byte(value), &data))
			return kind, id, data
		}
	}
	s.t.Fatalf("the stream ended: %v", s.scan.Err())
	return "", "", nil
}

// live is the fixture with a feed that a test fills.
func live(t *testing.T) (*fixture, *traffic.Feed) {
	feed := traffic.NewFeed()
	f := newFixture(t, func(c *Config) { c.Feed = feed })
	t.Cleanup(feed.Close) // before the server waits for its streams
	return f, feed
}

func TestTail_showsAttemptsAndGoesOnWhereItEnded(t *testing.T) {
	f, feed := live(t)
	f.tenant("acme")
	f.endpoint("acme", "")
	attempt := func(eventType string) outbox.Delivery {
		f.publish("acme", eventType, `1`)
		d := f.route()[0]
		f.finish(d, 404, outbox.DeadPermanent, false)
		return d
	}
	tell := func(d outbox.Delivery, id string) {
		parsed, err := outbox.ParseAttemptID(id)
		must(t, err)
		at, err := f.store.Attempt(t.Context(), outbox.TenantRef{}, parsed)
		must(t, err)
		feed.Recorded([]outbox.Recorded{{Result: outbox.Result{Delivery: d, Attempt: &at.Attempt}, TenantKey: "acme"}})
	}
	attemptOf := func(d outbox.Delivery) string {
		return f.call("GET", "/v1/deliveries/"+d.ID.String()+"/attempts", nil).text("data", 0, "id")
	}
	s := f.open("/v1/tail?event_type=a.b")
	first, other := attempt("a.b"), attempt("c.d")
	tell(other, attemptOf(other))
	tell(first, attemptOf(first))
	kind, id, data := s.next()
	if kind != "attempt" || data["id"] != attemptOf(first) || data["tenant"] != "acme" || data["status_code"] != 404.0 || data["delivery_id"] != first.ID.String() {
		t.Errorf("the first: %s %v", kind, data)
	}
	if strings.Contains(fmt.Sprint(data), "said the receiver") {
		t.Error("it shows what the receiver said")
	}
	s.resp.Body.Close()
	second, third := attempt("a.b"), attempt("a.b") // while nobody looks
	s = f.open("/v1/tail?event_type=a.b", "Last-Event-ID", id)
	for _, d := range []outbox.Delivery{second, third} {
		if _, _, data := s.next(); data["id"] != attemptOf(d) {
			t.Errorf("missed %s, got %v", attemptOf(d), data["id"])
		}
	}
	tell(third, attemptOf(third)) // on its way as it was looked up: it is not shown twice
	fourth := attempt("a.b")
	tell(fourth, attemptOf(fourth))
	if _, _, data := s.next(); data["id"] != attemptOf(fourth) {
		t.Errorf("got %v, want the fourth", data["id"])
	}
}

func TestListen_bringsEveryEventOnceWithItsBytes(t *testing.T) {
	f, feed := live(t)
	f.tenant("acme")
	f.tenant("other")
	f.publish("acme", "a.b", `"before"`)
	s := f.open("/v1/tenants/acme/listen?event_type=a.b", "Authorization", "Bearer "+acmeKey)
	payload := `{ "n":1.0 ,"big":12345678901234567890}`
	f.publish("other", "a.b", `"not mine"`)
	f.publish("acme", "c.d", `"not wanted"`)
	first := f.publish("acme", "a.b", payload)
	parsed, err := outbox.ParseEventID(first)
	must(t, err)
	feed.Routed([]outbox.Plan{{Row: outbox.OutboxRow{Tenant: f.ref("acme").ID, Event: parsed}, Last: true}}, f.clock.Now())
	kind, id, data := s.next()
	bytes, err := base64.StdEncoding.DecodeString(fmt.Sprint(data["payload_base64"]))
	must(t, err)
	if kind != "event" || data["id"] != first || string(bytes) != payload {
		t.Errorf("%s %v: %s", kind, data, bytes)
	}
	second := f.publish("acme", "a.b", `2`)
	if _, _, data := s.next(); data["id"] != second { // found by looking, and the first not again
		t.Errorf("got %v, want %s", data["id"], second)
	}
	s.resp.Body.Close()
	s = f.open("/v1/tenants/acme/listen", "Last-Event-ID", id)
	if _, _, data := s.next(); data["id"] != second {
		t.Errorf("going on after the first: %v", data["id"])
	}
}

func TestStream_aSlowReaderIsToldWhatItMissed(t *testing.T) {
	feed := traffic.NewFeed()
	reader, ok := feed.Read(0)
	if !ok {
		t.Fatal("nobody may read")
	}
	for n := range 1000 {
		feed.Recorded([]outbox.Recorded{{Result: outbox.Result{Attempt: &outbox.Attempt{StatusCode: n}}}})
	}
	kept := len(reader.Attempts)
	if missed := reader.Missed(); kept == 0 || kept+missed != 1000 {
		t.Errorf("%d kept and %d missed of 1000", kept, missed)
	}
	if reader.Missed() != 0 {
		t.Error("it is told twice")
	}
}

func TestStream_isRefusedLikeAnythingElse(t *testing.T) {
	f, feed := live(t)
	for _, address := range []string{"/v1/tail?tenant=nobody", "/v1/stats?tenant=nobody", "/v1/events?tenant=nobody", "/v1/tenants/nobody/listen"} {
		f.call("GET", address, nil).wantProblem(404, CodeUnknownTenant)
	}
	f.broken.fail(&outbox.WriteError{Fault: outbox.FaultBroken, Err: errors.New("broken")})
	for _, address := range []string{"/v1/tail?tenant=unseen", "/v1/tenants/unseen/listen"} {
		f.call("GET", address, nil).want(500)
	}
	f.broken.fail(nil)
	f.tenant("acme")
	feed.Close() // as a server does that stops
	for _, address := range []string{"/v1/tail", "/v1/tenants/acme/listen"} {
		f.call("GET", address, nil).want(503)
	}
}
