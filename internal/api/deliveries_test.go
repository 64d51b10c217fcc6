package api

import (
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/waybill-dev/waybill/internal/outbox"
)

const acmeDeliveries = "/v1/tenants/acme/deliveries"

// delivered makes one event of acme and routes it; there is one endpoint.
func (f *fixture) delivered(eventType string) outbox.Delivery {
	f.t.Helper()
	f.publish("acme", eventType, "{}")
	ds := f.route()
	if len(ds) != 1 {
		f.t.Fatalf("%d deliveries, want 1", len(ds))
	}
	return ds[0]
}

func TestDelivery_everyState(t *testing.T) { onBoth(t, delivery_everyState) }

func delivery_everyState(t *testing.T, f *fixture) {
	f.tenant("acme")
	ep := f.endpoint("acme", "")
	d := f.delivered("a.b")
	at := acmeDeliveries + "/" + d.ID.String()

	shown := func(what string, want map[string]any) {
		t.Helper()
		a := f.call("GET", at, nil).want(http.StatusOK)
		got := a.json()
		for _, volatile := range []string{"created_at", "last_attempt"} {
			delete(got, volatile)
		}
		for _, name := range []string{"finished_at", "next_attempt_at"} {
			if got[name] != nil {
				got[name] = "a time"
			}
		}
		for _, name := range []string{"waiting", "dead"} {
			if m, ok := got[name].(map[string]any); ok {
				got[name] = m["reason"]
			}
		}
		base := map[string]any{
			"id": d.ID.String(), "tenant": "acme", "event_id": d.Event.String(), "event_type": "a.b", "endpoint_id": ep,
			"endpoint_url": "https://hooks.example.com/in", "sequence": 1.0,
		}
		maps.Copy(base, want)
		if diff := cmp.Diff(base, got); diff != "" {
			t.Errorf("%s: %s", what, diff)
		}
	}
	shown("planned", map[string]any{"state": "pending", "attempt_count": 0.0, "finished_at": nil, "next_attempt_at": "a time", "waiting": "backlog", "dead": nil})
	f.finish(d, 503, "", true)
	shown("to be retried", map[string]any{"state": "pending", "attempt_count": 1.0, "finished_at": nil, "next_attempt_at": "a time", "waiting": "retry", "dead": nil})
	for change, reason := range map[string]string{`{"state":"disabled"}`: "disabled", `{"state":"paused"}`: "paused", `{"state":"draft"}`: "paused"} {
		f.call("PATCH", acmeEndpoints+"/"+ep, change).want(http.StatusOK)
		shown(change, map[string]any{"state": "pending", "attempt_count": 1.0, "finished_at": nil, "next_attempt_at": "a time", "waiting": reason, "dead": nil})
	}
	f.call("PATCH", acmeEndpoints+"/"+ep, `{"state":"active"}`).want(http.StatusOK)
	f.call("PATCH", "/v1/tenants/acme", `{"state":"paused"}`).want(http.StatusOK)
	shown("of a paused tenant", map[string]any{"state": "pending", "attempt_count": 1.0, "finished_at": nil, "next_attempt_at": "a time", "waiting": "paused", "dead": nil})
	f.call("PATCH", "/v1/tenants/acme", `{"state":"active"}`).want(http.StatusOK)

	d.Attempt = 1
	f.finish(d, 410, outbox.DeadPermanent, false)
	shown("dead", map[string]any{"state": "dead", "attempt_count": 2.0, "finished_at": "a time", "next_attempt_at": nil, "waiting": nil, "dead": "permanent"})

	if a := f.call("POST", at+"/replay", nil).want(http.StatusAccepted); a.text("was") != "dead" || a.text("delivery", "id") != d.ID.String() ||
		a.get("delivery", "state") != "pending" || a.get("delivery", "dead") != nil || a.get("delivery", "finished_at") != nil || a.get("delivery", "next_attempt_at") == nil || a.get("delivery", "waiting") == nil {
		t.Errorf("replay %s", a.body)
	}
	again := f.route()
	if len(again) != 1 || again[0].Round != 1 {
		t.Fatalf("replayed %+v", again)
	}
	shown("replayed", map[string]any{"state": "pending", "attempt_count": 2.0, "finished_at": nil, "next_attempt_at": "a time", "waiting": "backlog", "dead": nil})
	f.finish(again[0], 200, "", false)
	shown("delivered", map[string]any{"state": "delivered", "attempt_count": 3.0, "finished_at": "a time", "next_attempt_at": nil, "waiting": nil, "dead": nil})

	last := f.call("GET", at, nil).get("last_attempt").(map[string]any)
	if last["n"] != 3.0 || last["status_code"] != 200.0 || last["kind"] != nil || last["duration_ms"] != 12.5 {
		t.Errorf("last attempt %v", last)
	}
	if a := f.call("POST", "/v1"+strings.TrimPrefix(at, "/v1/tenants/acme")+"/replay", `{}`).want(http.StatusAccepted); a.text("was") != "delivered" ||
		a.get("delivery", "state") != "pending" || a.get("delivery", "finished_at") != nil {
		t.Errorf("replay by the operator %s", a.body)
	}
	f.call("POST", at+"/replay", `{"rate":1}`).wantProblem(422, CodeUnknownField)
	f.call("POST", at+"/replay", `[]`).wantProblem(422, CodeInvalidJSON)
}

func TestAttempts_show(t *testing.T) { onBoth(t, attempts_show) }

func attempts_show(t *testing.T, f *fixture) {
	f.tenant("acme")
	f.endpoint("acme", "")
	d := f.delivered("a.b")
	address := acmeDeliveries + "/" + d.ID.String() + "/attempts"
	if rows := f.call("GET", address, nil).want(http.StatusOK).get("data").([]any); len(rows) != 0 {
		t.Errorf("attempts of a delivery never tried: %v", rows)
	}
	for n := range 3 {
		d.Attempt = n
		f.finish(d, 503, "", true)
	}
	for query, want := range map[string][]float64{"": {3, 2, 1}, "?order=asc": {1, 2, 3}, "?limit=1": {3, 2, 1}, "?limit=2&order=asc": {1, 2, 3}, "?limit=3": {3, 2, 1}} {
		var got []float64
		next := address + query
		for {
			a := f.call("GET", next, nil).want(http.StatusOK)
			for i := range a.get("data").([]any) {
				got = append(got, a.get("data", i, "n").(float64))
			}
			if a.get("next_cursor") == nil {
				break
			}
			next = address + query + map[bool]string{true: "?", false: "&"}[query == ""] + "cursor=" + a.text("next_cursor")
		}
		if !cmp.Equal(got, want) {
			t.Errorf("%q: numbers %v, want %v", query, got, want)
		}
	}
	row := f.call("GET", address+"?limit=1", nil).get("data", 0).(map[string]any)
	want := map[string]any{
		"id": row["id"], "at": row["at"], "tenant": "acme", "delivery_id": d.ID.String(), "event_id": d.Event.String(), "event_type": "a.b", "endpoint_id": d.Endpoint.String(),
		"n": 3.0, "trigger": "schedule", "duration_ms": 12.5, "timing": map[string]any{"dns_ms": nil, "connect_ms": nil, "tls_ms": nil, "first_byte_ms": nil},
		"url": "https://hooks.example.com/in", "outcome": "transient", "kind": "http_status", "message": "The receiver answered with an error.", "status_code": 503.0,
		"request":  map[string]any{"headers": map[string]any{"webhook-id": d.Event.String()}, "bytes": 2.0},
		"response": map[string]any{"headers": map[string]any{"content-type": "text/plain", "vary": "a, b"}, "body": "said the receiver", "truncated": false},
	}
	if diff := cmp.Diff(want, row); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(want, f.call("GET", path("/v1/attempts/%s", row["id"]), nil).want(http.StatusOK).json()); diff != "" {
		t.Errorf("looked up: %s", diff)
	}
}

func TestShowBody_textOrBase64(t *testing.T) {
	for name, tc := range map[string]struct {
		body      string
		truncated bool
		text      string
		base      string
	}{
		"text":                           {"hello", false, "hello", ""},
		"nothing":                        {"", false, "", ""},
		"text outside ASCII":             {"é🚀", false, "é🚀", ""},
		"cut inside a character of two":  {"aé"[:2], true, "a", ""},
		"cut inside a character of four": {"a🚀"[:4], true, "a", ""},
		"cut after a character":          {"aé", true, "aé", ""},
		"the same bytes, not cut":        {"aé"[:2], false, "", "YcM="},
		"no text":                        {"\xff\xfe", false, "", "//4="},
		"no text, cut":                   {"\xff\xfea", true, "", "//5h"},
		"only the start of a character":  {"\xf0", true, "", ""},
	} {
		text, base := showBody([]byte(tc.body), tc.truncated)
		got := [2]string{}
		if text != nil {
			got[0] = *text
		}
		if base != nil {
			got[1] = *base
		}
		if got != [2]string{tc.text, tc.base} || (text == nil) == (base == nil) {
			t.Errorf("%s: %q, want %q %q", name, got, tc.text, tc.base)
		}
	}
}

func TestDeliveries_filters(t *testing.T) { onBoth(t, deliveries_filters) }

func deliveries_filters(t *testing.T, f *fixture) {
	f.tenant("acme")
	ep := f.endpoint("acme", "")
	f.tenant("other")
	f.endpoint("other", "")
	f.publish("other", "a.b", "1")
	f.route()
	before := f.clock.Now()
	pending := f.delivered("order.created")
	retried := f.delivered("order.paid")
	f.finish(retried, 503, "", true)
	dead := f.delivered("order.paid")
	f.finish(dead, 404, outbox.DeadPermanent, false)
	exhausted := f.delivered("order.gone")
	f.finish(exhausted, 500, outbox.DeadExhausted, false)
	done := f.delivered("order.paid")
	f.finish(done, 204, "", false)
	name := map[string]string{}
	for n, d := range map[string]outbox.Delivery{"pending": pending, "retried": retried, "dead": dead, "exhausted": exhausted, "done": done} {
		name[d.ID.String()] = n
	}
	stamp := func(t time.Time) string { return t.Format(time.RFC3339Nano) }
	for query, want := range map[string]string{
		"":                           "done exhausted dead retried pending",
		"order=asc":                  "pending retried dead exhausted done",
		"limit=2":                    "done exhausted dead retried pending",
		"state=pending":              "retried pending",
		"state=dead":                 "exhausted dead",
		"state=dead&state=delivered": "done exhausted dead",
		"state=cancelled":            "",
		"event_type=order.paid":      "done dead retried",
		"event_type=order.paid&event_type=order.gone":          "done exhausted dead retried",
		"reason=permanent":                                     "dead",
		"kind=http_status&state=dead":                          "exhausted dead",
		"status_code=404":                                      "dead",
		"status_code=5xx":                                      "exhausted retried",
		"status_code=2xx":                                      "done",
		"event_id=" + dead.Event.String():                      "dead",
		"endpoint_id=" + ep:                                    "done exhausted dead retried pending",
		"endpoint_id=" + outbox.NewEndpointID(before).String(): "",
		"to=" + stamp(before.Add(-time.Hour)):                  "",
		"from=" + stamp(before.Add(time.Hour)):                 "",
		"from=" + stamp(before.Add(-time.Hour)) + "&to=" + stamp(before.Add(time.Hour)) + "&limit=1": "done exhausted dead retried pending",
	} {
		for _, list := range []string{acmeDeliveries + "?", "/v1/deliveries?tenant=acme&"} {
			var got []string
			for _, id := range f.walk(strings.TrimSuffix(list+query, "?"), "id") {
				got = append(got, name[id])
			}
			if strings.Join(got, " ") != want {
				t.Errorf("%s%s: %q, want %q", list, query, strings.Join(got, " "), want)
			}
		}
	}
	if n := len(f.walk("/v1/deliveries", "id")); n != 6 {
		t.Errorf("the operator sees %d deliveries, want 6", n)
	}
	f.call("GET", "/v1/deliveries?tenant=nobody", nil).wantProblem(404, CodeUnknownTenant)
	if got := f.walk("/v1/tenants/acme/events/"+dead.Event.String()+"/deliveries", "id"); len(got) != 1 || got[0] != dead.ID.String() {
		t.Errorf("of the event: %v", got)
	}
}

func TestEvents_listAndState(t *testing.T) { onBoth(t, events_listAndState) }

func events_listAndState(t *testing.T, f *fixture) {
	f.tenant("acme")
	unmatched := f.publish("acme", "x.y", "1")
	f.route()
	f.endpoint("acme", "")
	good, bad := f.delivered("a.b"), f.delivered("a.c")
	f.finish(good, 200, "", false)
	f.finish(bad, 404, outbox.DeadPermanent, false)
	waiting := f.publish("acme", "a.b", "1")
	f.route()
	for id, want := range map[string]string{unmatched: "unmatched", good.Event.String(): "delivered", bad.Event.String(): "failed", waiting: "pending"} {
		if got := f.call("GET", acmeEvents+"/"+id, nil).want(http.StatusOK).text("state"); got != want {
			t.Errorf("the %s event is %s", want, got)
		}
	}
	for query, want := range map[string][]string{
		"":                 {waiting, bad.Event.String(), good.Event.String(), unmatched},
		"?limit=1":         {waiting, bad.Event.String(), good.Event.String(), unmatched},
		"?order=asc":       {unmatched, good.Event.String(), bad.Event.String(), waiting},
		"?event_type=a.b":  {waiting, good.Event.String()},
		"?state=failed":    {bad.Event.String()},
		"?state=pending":   {waiting},
		"?event_type=none": nil,
	} {
		if got := f.walk(acmeEvents+query, "id"); !cmp.Equal(got, want) {
			t.Errorf("%s: %v, want %v", query, got, want)
		}
	}
	if got := f.call("GET", "/v1/events/"+good.Event.String(), nil).want(http.StatusOK).text("tenant"); got != "acme" {
		t.Errorf("looked up: tenant %q", got)
	}
	if rows := f.call("GET", acmeEvents+"/"+unmatched+"/deliveries", nil).want(http.StatusOK).get("data").([]any); len(rows) != 0 {
		t.Errorf("an unmatched event has deliveries: %v", rows)
	}
}

// Rows of one millisecond, pages of seven, more arriving meanwhile: every original row once.
func TestLists_pagesNeitherRepeatNorSkip(t *testing.T) { onBoth(t, lists_pagesNeitherRepeatNorSkip) }

func lists_pagesNeitherRepeatNorSkip(t *testing.T, f *fixture) {
	f.tenant("acme")
	f.endpoint("acme", "")
	var events []string
	for range 50 {
		events = append(events, `{"type":"a.b","payload":1}`)
	}
	f.call("POST", acmeEvents+"/batch", `{"events":[`+strings.Join(events, ",")+`]}`).want(http.StatusAccepted)
	f.route()
	for _, list := range []string{acmeEvents, acmeDeliveries} {
		for _, order := range []string{"asc", "desc"} {
			want := map[string]bool{}
			for _, id := range f.walk(list+"?limit=250", "id") {
				want[id] = true
			}
			a := f.call("GET", list+"?limit=7&order="+order, nil).want(http.StatusOK)
			seen := map[string]int{}
			for {
				for i := range a.get("data").([]any) {
					seen[a.text("data", i, "id")]++
				}
				if a.get("next_cursor") == nil {
					break
				}
				f.publish("acme", "a.b", "1")
				a = f.call("GET", list+"?limit=7&order="+order+"&cursor="+a.text("next_cursor"), nil).want(http.StatusOK)
			}
			for id := range want {
				if seen[id] != 1 {
					t.Errorf("%s %s: a row was seen %d times", list, order, seen[id])
				}
			}
			f.route()
		}
	}
}

func TestPayload_thatIsNoLongerKept(t *testing.T) {
	s := newScene(t)
	s.broken.fail(outbox.ErrPayloadGone)
	s.call("GET", acmeEvents+"/"+s.d.Event.String()+"/payload", nil).wantProblem(410, CodePayloadGone)
	s.call("POST", acmeDeliveries+"/"+s.d.ID.String()+"/replay", nil).wantProblem(409, CodePayloadGone)
}
