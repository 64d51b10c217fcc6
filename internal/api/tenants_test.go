package api

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTenant_putKeepsPatchMergesNullResets(t *testing.T) {
	onBoth(t, tenant_putKeepsPatchMergesNullResets)
}

func tenant_putKeepsPatchMergesNullResets(t *testing.T, f *fixture) {
	const acme = "/v1/tenants/acme"
	created := f.call("PUT", acme, `{"name":"Acme","weight":2.5,"max_in_flight":20,"max_endpoints":3,"egress":"internal","state":"paused",
		"metadata":{"plan":"gold","region":"eu"},"retry":{"initial_seconds":0.5,"max_seconds":60,"window_seconds":600,"max_attempts":9,"retry_statuses":["404","5xx"]}}`).want(http.StatusCreated)
	want := map[string]any{
		"tenant": "acme", "name": "Acme", "weight": 2.5, "max_in_flight": 20.0, "max_endpoints": 3.0, "egress": "internal", "state": "paused",
		"metadata": map[string]any{"plan": "gold", "region": "eu"},
		"retry":    map[string]any{"initial_seconds": 0.5, "max_seconds": 60.0, "window_seconds": 600.0, "max_attempts": 9.0, "retry_statuses": []any{"404", "5xx"}},
	}
	same := func(what string, a *reply) {
		t.Helper()
		got := a.json()
		delete(got, "created_at")
		delete(got, "updated_at")
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", what, diff)
		}
	}
	same("created", created)
	same("put of nothing", f.call("PUT", acme, `{}`).want(http.StatusOK))
	same("patch of nothing", f.call("PATCH", acme, `{}`).want(http.StatusOK))
	same("read", f.call("GET", acme, nil).want(http.StatusOK))

	want["metadata"] = map[string]any{"region": "us", "new": "1"}
	want["retry"].(map[string]any)["initial_seconds"] = 2.0
	want["retry"].(map[string]any)["max_attempts"] = nil
	same("merge patch", f.call("PATCH", acme, `{"metadata":{"plan":null,"region":"us","new":"1"},"retry":{"initial_seconds":null,"max_attempts":null}}`, "Content-Type", "application/merge-patch+json").want(http.StatusOK))

	want["metadata"] = map[string]any{"only": "this"}
	want["retry"] = map[string]any{"initial_seconds": 2.0, "max_seconds": 5.0, "window_seconds": 28800.0, "max_attempts": nil, "retry_statuses": []any{}}
	want["name"] = ""
	same("put replaces what it names", f.call("PUT", acme, `{"metadata":{"only":"this"},"retry":{"max_seconds":5},"name":null}`).want(http.StatusOK))

	want = map[string]any{
		"tenant": "acme", "name": "", "weight": 1.0, "max_in_flight": 10.0, "max_endpoints": nil, "egress": "public", "state": "active", "metadata": map[string]any{},
		"retry": map[string]any{"initial_seconds": 2.0, "max_seconds": 3600.0, "window_seconds": 28800.0, "max_attempts": nil, "retry_statuses": []any{}},
	}
	same("null is the default", f.call("PATCH", acme, `{"name":null,"weight":null,"max_in_flight":null,"max_endpoints":null,"egress":null,"state":null,"metadata":null,"retry":null}`).want(http.StatusOK))
	same("as one made with nothing", f.call("PUT", "/v1/tenants/acme", `{}`).want(http.StatusOK))
}

func TestTenant_refuses(t *testing.T) {
	f := newFixture(t)
	for body, path := range map[string]string{
		`{"name":1}`: "name",
		`{"name":"` + strings.Repeat("a", 257) + `"}`:     "name",
		`{"name":"a\u0000"}`:                              "name",
		`{"weight":0}`:                                    "weight",
		`{"weight":"1"}`:                                  "weight",
		`{"weight":1e999}`:                                "weight",
		`{"max_in_flight":0}`:                             "max_in_flight",
		`{"max_in_flight":1.5}`:                           "max_in_flight",
		`{"max_in_flight":1001}`:                          "max_in_flight",
		`{"max_endpoints":-1}`:                            "max_endpoints",
		`{"state":"gone"}`:                                "state",
		`{"egress":"all"}`:                                "egress",
		`{"metadata":[]}`:                                 "metadata",
		`{"metadata":{"a":1}}`:                            "metadata.a",
		`{"metadata":{"a":null}}`:                         "metadata.a",
		`{"metadata":{"":"x"}}`:                           "metadata.",
		`{"retry":1}`:                                     "retry",
		`{"retry":{"initial_seconds":0.01}}`:              "retry.initial_seconds",
		`{"retry":{"initial_seconds":5,"max_seconds":2}}`: "retry.initial_seconds",
		`{"retry":{"window_seconds":0}}`:                  "retry.window_seconds",
		`{"retry":{"max_attempts":0}}`:                    "retry.max_attempts",
		`{"retry":{"retry_statuses":["200"]}}`:            "retry.retry_statuses",
		`{"retry":{"retry_statuses":"404"}}`:              "retry.retry_statuses",
		`{"retry":{"backoff":1}}`:                         "retry.backoff",
		`{"nmae":"x"}`:                                    "nmae",
		`{"name":"a","name":"b"}`:                         "name",
	} {
		p := f.call("PUT", "/v1/tenants/acme", body).want(422).problem()
		if len(p.Errors) != 1 || p.Errors[0].Path != path {
			t.Errorf("%s: errors %+v, want one at %s", body, p.Errors, path)
		}
	}
	f.call("GET", "/v1/tenants/acme", nil).wantProblem(404, CodeUnknownTenant)
	for _, body := range []string{``, `[]`, `1`, `{`, `{} {}`, "{\"name\":\"\xff\"}", `null`} {
		f.call("PUT", "/v1/tenants/acme", body).wantProblem(422, CodeInvalidJSON)
	}
	f.call("PUT", "/v1/tenants/acme", `{"nmae":"x"}`, "Prefer", "handling=lenient").want(http.StatusCreated)
	for _, key := range []string{"a%20b", strings.Repeat("a", 65), "a%2Fb", "%C3%A9"} {
		f.call("PUT", "/v1/tenants/"+key, `{}`).wantProblem(422, CodeInvalidTenant)
	}
	f.call("PUT", "/v1/tenants/"+strings.Repeat("A", 64), `{}`).want(http.StatusCreated)
	f.call("PUT", "/v1/tenants/a_.:-9", `{}`).want(http.StatusCreated)
}

func TestTenant_keysAreCaseSensitive(t *testing.T) {
	f := newFixture(t)
	f.tenant("acme")
	f.tenant("ACME")
	f.call("DELETE", "/v1/tenants/ACME", nil).want(http.StatusAccepted)
	f.call("GET", "/v1/tenants/acme", nil).want(http.StatusOK)
	f.call("GET", "/v1/tenants/ACME", nil).wantProblem(404, CodeUnknownTenant)
	f.call("PATCH", "/v1/tenants/ACME", `{}`).wantProblem(404, CodeUnknownTenant)
	f.call("DELETE", "/v1/tenants/ACME", nil).wantProblem(404, CodeUnknownTenant)
}

func TestTenant_deleteCancels(t *testing.T) { onBoth(t, tenant_deleteCancels) }

func tenant_deleteCancels(t *testing.T, f *fixture) {
	f.tenant("acme")
	f.endpoint("acme", "")
	f.publish("acme", "a.b", "1")
	f.publish("acme", "a.b", "2")
	f.route()
	a := f.call("DELETE", "/v1/tenants/acme", nil).want(http.StatusAccepted)
	job := map[string]any{
		"id": a.text("id"), "type": "delete_tenant", "state": "running", "reason": "The tenant was deleted.",
		"filter":  map[string]any{"from": nil, "to": nil, "endpoint_id": nil, "event_types": []any{"*"}},
		"matched": 2.0, "done": 0.0, "delivered": 0.0, "failed": 0.0, "skipped": 0.0, "created_by": "bootstrap",
		"created_at": a.get("created_at"), "finished_at": nil, "eta": nil, "tenant": "acme",
	}
	if diff := cmp.Diff(job, a.json()); diff != "" {
		t.Errorf("the job (- want, + got):\n%s", diff)
	}
	f.call("GET", "/v1/tenants/acme/deliveries", nil).wantProblem(404, CodeUnknownTenant)
	f.tenant("acme")
	if n := len(f.call("GET", "/v1/tenants/acme/deliveries", nil).get("data").([]any)); n != 0 {
		t.Errorf("a tenant made again sees %d old deliveries", n)
	}
}

func TestTenants_list(t *testing.T) { onBoth(t, tenants_list) }

func tenants_list(t *testing.T, f *fixture) {
	for i := range 5 {
		f.call("PUT", fmt.Sprintf("/v1/tenants/t%d", i), fmt.Sprintf(`{"name":"Name %d","state":%q}`, i, []string{"active", "paused"}[i%2])).want(http.StatusCreated)
	}
	for query, want := range map[string]string{
		"":                      "t4 t3 t2 t1 t0",
		"?order=asc":            "t0 t1 t2 t3 t4",
		"?state=paused":         "t3 t1",
		"?q=name%203":           "t3",
		"?q=T2":                 "t2",
		"?q=nobody":             "",
		"?q=%25":                "",
		"?state=active&q=t":     "t4 t2 t0",
		"?limit=2":              "t4 t3 t2 t1 t0",
		"?limit=5":              "t4 t3 t2 t1 t0",
		"?limit=1&order=asc":    "t0 t1 t2 t3 t4",
		"?limit=1&state=paused": "t3 t1",
	} {
		if got := strings.Join(f.walk("/v1/tenants"+query, "tenant"), " "); got != want {
			t.Errorf("%s: %q, want %q", query, got, want)
		}
	}
}

// walk follows a list from page to page and returns one field of every row.
func (f *fixture) walk(address, field string) []string {
	f.t.Helper()
	var all []string
	next := address
	for pages := 0; ; pages++ {
		if pages > 100 {
			f.t.Fatalf("%s: the list does not end", address)
		}
		a := f.call("GET", next, nil).want(http.StatusOK)
		rows := a.get("data").([]any)
		for i := range rows {
			all = append(all, a.text("data", i, field))
		}
		if a.get("next_cursor") == nil {
			return all
		}
		joint := "?"
		if strings.Contains(address, "?") {
			joint = "&"
		}
		next = address + joint + "cursor=" + a.text("next_cursor")
	}
}

func TestLists_cursorsBelongToTheirList(t *testing.T) {
	f := newFixture(t)
	f.tenant("acme")
	f.tenant("other")
	f.tenant("third")
	for range 3 {
		f.publish("acme", "a.b", "1")
		f.publish("other", "a.b", "1")
		f.endpoint("acme", "")
	}
	const events = "/v1/tenants/acme/events?limit=1&event_type=a.b"
	cursor := f.call("GET", events, nil).want(http.StatusOK).text("next_cursor")
	for i := range cursor { // every character of it counts
		const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
		next := letters[(strings.IndexByte(letters, cursor[i])+4)%len(letters)]
		f.call("GET", events+"&cursor="+cursor[:i]+string(next)+cursor[i+1:], nil).wantProblem(400, CodeCursorInvalid)
	}
	f.call("GET", events+"&cursor="+cursor, nil).want(http.StatusOK)
	f.call("GET", "/v1/tenants/acme/events?limit=2&event_type=a.b&cursor="+cursor, nil).want(http.StatusOK)
	for name, address := range map[string]string{
		"shortened":            events + "&cursor=" + cursor[:len(cursor)-1],
		"nonsense":             events + "&cursor=!!",
		"empty":                events + "&cursor=",
		"twice":                events + "&cursor=" + cursor + "&cursor=" + cursor,
		"without its filter":   "/v1/tenants/acme/events?cursor=" + cursor,
		"with another filter":  "/v1/tenants/acme/events?event_type=a.c&cursor=" + cursor,
		"with one filter more": events + "&state=failed&cursor=" + cursor,
		"in another order":     events + "&order=asc&cursor=" + cursor,
		"of another tenant":    "/v1/tenants/other/events?event_type=a.b&cursor=" + cursor,
		"of another list":      "/v1/tenants/acme/deliveries?event_type=a.b&cursor=" + cursor,
		"of tenants":           "/v1/tenants?cursor=" + cursor,
	} {
		t.Run(name, func(t *testing.T) {
			f.t = t
			f.call("GET", address, nil).wantProblem(400, CodeCursorInvalid)
		})
	}
}

func TestLists_refuseBadQueries(t *testing.T) {
	f := newFixture(t)
	f.tenant("acme")
	for query, name := range map[string]string{
		"limit=0":         "limit",
		"limit=251":       "limit",
		"limit=x":         "limit",
		"limit=1&limit=2": "limit",
		"order=up":        "order",
		"from=yesterday":  "from",
		"from=2026-11-30": "from",
		"from=2026-11-30T12:00:00Z&to=2026-11-30T11:00:00Z": "to",
		"to=2026-11-30T12:00:00Z&to=2026-11-30T12:00:00Z":   "to",
		"state=lost":         "state",
		"kind=odd":           "kind",
		"reason=odd":         "reason",
		"status_code=40":     "status_code",
		"status_code=4x":     "status_code",
		"status_code=0xx":    "status_code",
		"event_type=a%20b":   "event_type",
		"endpoint_id=evt_1":  "endpoint_id",
		"event_id=x":         "event_id",
		"endpoint_id[]=ep_1": "endpoint_id[]",
		"stauts=dead":        "stauts",
	} {
		p := f.call("GET", "/v1/tenants/acme/deliveries?"+query, nil).want(422).problem()
		if len(p.Errors) != 1 || p.Errors[0].Path != name {
			t.Errorf("%s: errors %+v, want one about %s", query, p.Errors, name)
		}
	}
	f.call("GET", "/v1/tenants/acme/deliveries?stauts=dead", nil, "Prefer", "handling=lenient").want(http.StatusOK)
	f.call("GET", "/v1/tenants/acme/deliveries?a=%zz", nil).wantProblem(400, CodeBadRequest)
	f.call("GET", "/v1/tenants/acme/deliveries?from=2026-11-30T12:00:00+01:00", nil).want(http.StatusOK)
	f.call("GET", "/v1/tenants/acme/events?state=delivered", nil).want(422)
	f.call("GET", "/v1/tenants/acme/deliveries?limit=250", nil).want(http.StatusOK)
}
