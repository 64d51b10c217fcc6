package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/waybill-dev/waybill/internal/client"
)

// Whoever asks three times for a delivery that has arrived is sent it three times, as the same
// event; two clicks that carry one key are one.
func TestServe_replaysAsOftenAsItIsAsked(t *testing.T) {
	var mu sync.Mutex
	var ids []string
	sink := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		ids = append(ids, r.Header.Get("webhook-id"))
	}))
	t.Cleanup(sink.Close)
	arrivals := func() int { mu.Lock(); defer mu.Unlock(); return len(ids) }
	s := serve(t)
	s.want(201, "PUT", "/v1/tenants/acme", `{}`)
	s.want(201, "PUT", "/v1/tenants/acme/endpoints/in", fmt.Sprintf(`{"url":%q}`, sink.URL))
	event := decode[struct{ ID string }](t, s.want(202, "POST", "/v1/tenants/acme/events", `{"type":"a.b","payload":{}}`)).ID
	list := "/v1/tenants/acme/events/" + event + "/deliveries"
	delivery := func() client.Delivery {
		t.Helper()
		return decode[client.Page[client.Delivery]](t, s.want(200, "GET", list, "")).Data[0]
	}
	again := "/v1/tenants/acme/deliveries/" + func() string {
		wait(t, "the first time", func() bool { return arrivals() == 1 && delivery().State == "delivered" })
		return delivery().ID
	}()
	for n := range 3 {
		answer := decode[struct{ Was string }](t, s.want(202, "POST", again+"/replay", `{}`))
		if answer.Was != "delivered" {
			t.Errorf("replay %d: it was %q", n+1, answer.Was)
		}
		wait(t, "a replay", func() bool { return arrivals() == n+2 && delivery().State == "delivered" })
	}
	var clicks sync.WaitGroup
	for range 2 {
		clicks.Go(func() {
			// A click that comes while the other is being answered may be told so.
			if status, text := s.call("POST", again+"/replay", `{}`, "Idempotency-Key", "click-1"); status != 202 && status != 409 {
				t.Errorf("a double click is answered %d %s", status, text)
			}
		})
	}
	clicks.Wait()
	wait(t, "the double click", func() bool { return arrivals() >= 5 && delivery().State == "delivered" })
	// One more, so that a second of the two would have had its turn.
	s.want(202, "POST", again+"/replay", `{}`)
	wait(t, "one more", func() bool { return arrivals() >= 6 && delivery().State == "delivered" })
	attempts := decode[client.Page[struct {
		Trigger string
		N       int
	}]](t, s.want(200, "GET", again+"/attempts", "")).Data
	mu.Lock()
	defer mu.Unlock()
	if len(ids) != 6 || len(attempts) != 6 {
		t.Errorf("%d requests and %d attempts, want 6: one, three replays, a double click and one more", len(ids), len(attempts))
	}
	for _, id := range ids {
		if id != event {
			t.Errorf("a request is of event %s, want %s", id, event)
		}
	}
	replays := 0
	for _, a := range attempts {
		if a.Trigger == "replay" {
			replays++
		}
	}
	if replays != 5 {
		t.Errorf("%d attempts are marked as replays, want 5", replays)
	}
}
