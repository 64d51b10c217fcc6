package app

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// customer is a server with one tenant, acme, that a test asks through the API.
type customer struct {
	t *testing.T
	a *App
}

func newCustomer(t *testing.T) *customer {
	t.Helper()
	a, stop, ended := serving(t, "WAYBILL_EGRESS_ALLOW=127.0.0.0/8")
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil && !strings.Contains(err.Error(), context.Canceled.Error()) {
			t.Error(err)
		}
	})
	c := &customer{t, a}
	c.want(http.StatusCreated, "PUT", "/v1/tenants/acme", `{"name":"Acme"}`)
	return c
}

// want asks, fails unless it is answered with the status, and returns what the answer says.
func (c *customer) want(status int, method, path, body string) map[string]any {
	c.t.Helper()
	got, text, err := asks(c.t, c.a, method, path, body)
	if err != nil || got != status {
		c.t.Fatalf("%s %s: %d %s, %v", method, path, got, text, err)
	}
	var said map[string]any
	if text != "" {
		if err := json.Unmarshal([]byte(text), &said); err != nil {
			c.t.Fatal(err)
		}
	}
	return said
}

// eventually waits for a condition that nothing but time keeps from being true.
func (c *customer) eventually(what string, condition func() bool) {
	c.t.Helper()
	for end := time.Now().Add(60 * time.Second); !condition(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			c.t.Fatalf("not in time: %s", what)
		}
	}
}

// Who corrects an address and presses Replay means the new one, however soon.
func TestApp_aReplayGoesToTheAddressOfBeforeIt(t *testing.T) {
	t.Parallel()
	var wrong, right atomic.Int64
	old := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		wrong.Add(1)
		w.WriteHeader(http.StatusNotFound)
	}))
	t.Cleanup(old.Close)
	corrected := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { right.Add(1) }))
	t.Cleanup(corrected.Close)
	c := newCustomer(t)
	const rounds = 5 // a heartbeat between the two would hide the fault, and does in one of many
	for round := range int64(rounds) {
		endpoint := "/v1/tenants/acme/endpoints/uid:crm-" + string(rune('a'+round))
		c.want(http.StatusCreated, "PUT", endpoint, `{"url":"`+old.URL+`","event_types":["*"],"retry":{"max_attempts":1}}`)
		c.want(http.StatusAccepted, "POST", "/v1/tenants/acme/events", `{"type":"a.b","payload":{}}`)
		var dead string
		c.eventually("a dead letter", func() bool {
			list := c.want(http.StatusOK, "GET", "/v1/tenants/acme/deliveries?state=dead", "")["data"].([]any)
			if len(list) > 0 {
				dead = list[0].(map[string]any)["id"].(string)
			}
			return len(list) > 0
		})
		was := wrong.Load()
		c.want(http.StatusOK, "PATCH", endpoint, `{"url":"`+corrected.URL+`"}`)
		c.want(http.StatusAccepted, "POST", "/v1/tenants/acme/deliveries/"+dead+"/replay", "")
		c.eventually("the replay was sent", func() bool { return wrong.Load()+right.Load() > was+round })
		if wrong.Load() != was || right.Load() != round+1 {
			t.Fatalf("round %d: %d more to the old address, %d to the new one", round, wrong.Load()-was, right.Load())
		}
		c.want(http.StatusAccepted, "DELETE", endpoint, "")
	}
}

// What a cancellation ends is in the figures, like what ends by itself.
func TestApp_aCancellationIsCounted(t *testing.T) {
	t.Parallel()
	c := newCustomer(t)
	c.want(http.StatusCreated, "PUT", "/v1/tenants/acme/endpoints/uid:crm", `{"url":"http://127.0.0.1:8080/hook","event_types":["*"],"state":"paused"}`)
	for range 18 {
		c.want(http.StatusAccepted, "POST", "/v1/tenants/acme/events", `{"type":"a.b","payload":{}}`)
	}
	c.eventually("18 wait", func() bool {
		return len(c.want(http.StatusOK, "GET", "/v1/tenants/acme/deliveries?state=pending&limit=100", "")["data"].([]any)) == 18
	})
	job := c.want(http.StatusAccepted, "POST", "/v1/tenants/acme/cancellations", `{"reason":"They are not wanted.","from":"`+time.Now().Add(-time.Hour).UTC().Format(time.RFC3339)+`","to":"`+time.Now().Add(time.Hour).UTC().Format(time.RFC3339)+`"}`)
	c.eventually("the cancellation is done", func() bool {
		return c.want(http.StatusOK, "GET", "/v1/tenants/acme/cancellations/"+job["id"].(string), "")["state"] == "done"
	})
	for _, path := range []string{"/v1/stats", "/v1/tenants/acme/stats"} {
		c.eventually(path+" counts them", func() bool {
			return c.want(http.StatusOK, "GET", path, "")["totals"].(map[string]any)["cancelled"] == 18.0
		})
	}
	_, shown, err := asks(t, c.a, "GET", "/metrics", "")
	if err != nil || !strings.Contains(shown, "waybill_deliveries_ended_total{end=\"cancelled\"} 18\n") {
		t.Errorf("metrics: %v\n%s", err, shown)
	}
}
