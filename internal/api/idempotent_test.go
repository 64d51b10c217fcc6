package api

import (
	"bytes"
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/internal/outbox"
)

type panicking struct{}

func (panicking) Find(context.Context, string) (outbox.Key, bool, error) { panic("a defect") }

func (panicking) Forget() {}

type awayKeys struct{}

func (awayKeys) Forget() {}

func (awayKeys) Find(context.Context, string) (outbox.Key, bool, error) {
	return outbox.Key{}, false, &outbox.WriteError{Fault: outbox.FaultRetry, Err: context.DeadlineExceeded}
}

func TestIdempotency_everyPostGivesTheFirstAnswerAgain(t *testing.T) {
	s := newScene(t)
	for _, r := range keyed() {
		if r.method != http.MethodPost {
			continue
		}
		address, body := s.address(r, "acme"), r.sample()
		first := s.call(r.method, address, body, "Idempotency-Key", r.name)
		again := s.call(r.method, address, body, "Idempotency-Key", r.name)
		if first.status/100 != 2 || first.header.Get("Idempotent-Replayed") != "" {
			t.Errorf("%s: first %d %s", r.name, first.status, first.body)
		}
		if again.status != first.status || !bytes.Equal(again.body, first.body) || again.header.Get("Idempotent-Replayed") != "true" || again.header.Get("Location") != first.header.Get("Location") {
			t.Errorf("%s: again %d %s, first %d %s", r.name, again.status, again.body, first.status, first.body)
		}
		other := strings.Replace(body.(string), `"a.b"`, `"a.c"`, 1)
		if other == body {
			other = body.(string) + " "
		}
		s.call(r.method, address, other, "Idempotency-Key", r.name).wantProblem(422, CodeIdempotencyMismatch)
		s.call(r.method, address, body, "Idempotency-Key", strings.Repeat("k", 256)).wantProblem(422, CodeInvalidField)
		s.call(r.method, address, body, "Idempotency-Key", "").wantProblem(422, CodeInvalidField)
	}
}

func TestIdempotency_oneKeyTwoRoutes(t *testing.T) {
	s := newScene(t)
	s.call("POST", acmeEndpoints, `{"url":"https://hooks.example.com/"}`, "Idempotency-Key", "k").want(http.StatusCreated)
	s.call("POST", acmeDeliveries+"/"+s.d.ID.String()+"/replay", `{}`, "Idempotency-Key", "k").wantProblem(422, CodeIdempotencyMismatch)
	s.call("POST", "/v1/tenants/other/endpoints", `{"url":"https://hooks.example.com/"}`, "Idempotency-Key", "k").want(http.StatusCreated)
	if n := len(s.walk(acmeEndpoints, "id")); n != 2 {
		t.Errorf("%d endpoints, want 2", n)
	}
}

// Every pair of routes of one tenant shares its keys, whichever came first, and so do the
// operator's.
func TestIdempotency_oneScopeForAllRoutes(t *testing.T) { onBoth(t, idempotency_oneScopeForAllRoutes) }

func idempotency_oneScopeForAllRoutes(t *testing.T, f *fixture) {
	s := furnish(f)
	for _, first := range keyed() {
		for _, second := range keyed() {
			if first.method != http.MethodPost || second.method != http.MethodPost || first.name == second.name || first.operator != second.operator {
				continue
			}
			key := first.name + " and " + second.name
			if a := s.call(first.method, s.address(first, "acme"), first.sample(), "Idempotency-Key", key); a.status/100 != 2 {
				t.Errorf("%s: %d %s", key, a.status, a.body)
			}
			s.call(second.method, s.address(second, "acme"), second.sample(), "Idempotency-Key", key).wantProblem(422, CodeIdempotencyMismatch)
		}
	}
	// The field of an event and the header are one key.
	s.call("POST", acmeEvents, `{"type":"a.b","payload":1,"idempotency_key":"field"}`).want(202)
	s.call("POST", acmeEndpoints, `{"url":"https://hooks.example.com/"}`, "Idempotency-Key", "field").wantProblem(422, CodeIdempotencyMismatch)
	// A batch of one whose event has the key of the batch is no contradiction.
	batch := `{"events":[{"type":"a.b","payload":1,"idempotency_key":"both"}]}`
	once := s.call("POST", acmeEvents+"/batch", batch, "Idempotency-Key", "both").want(202)
	if again := s.call("POST", acmeEvents+"/batch", batch, "Idempotency-Key", "both").want(202); !bytes.Equal(again.body, once.body) {
		t.Errorf("again %s, first %s", again.body, once.body)
	}
}

// What a key was given to is told apart from what it found.
func TestIdempotency_ofAChosenID(t *testing.T) { onBoth(t, idempotency_ofAChosenID) }

func idempotency_ofAChosenID(t *testing.T, f *fixture) {
	f.tenant("acme")
	chosen := `{"type":"a.b","payload":1,"id":"` + outbox.NewEventID(f.clock.Now()).String() + `"}`
	first := f.call("POST", acmeEvents, chosen, "Idempotency-Key", "k").want(202)
	f.tick()
	again := f.call("POST", acmeEvents, chosen, "Idempotency-Key", "k").want(202)
	if !bytes.Equal(first.body, again.body) || again.header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("again %s, first %s", again.body, first.body)
	}
	for _, key := range []string{"-", "l"} { // the event was there before, whatever the new key
		a := f.call("POST", acmeEvents, chosen, "Idempotency-Key", key).want(202)
		if a.get("duplicate") != true || a.header.Get("Idempotent-Replayed") != "" || a.text("id") != first.text("id") {
			t.Errorf("with key %s: %s", key, a.body)
		}
	}
}

func TestIdempotency_whatWasRefusedLeavesTheKeyFree(t *testing.T) {
	f := newFixture(t)
	f.tenant("acme")
	for _, c := range []struct{ address, bad, good string }{
		{acmeEndpoints, `{"url":"ftp://x/"}`, `{"url":"https://hooks.example.com/"}`},
		{acmeEvents, `{"type":"","payload":1}`, `{"type":"a.b","payload":1}`},
		{acmeEvents + "/batch", `{"events":[{"type":"","payload":1}]}`, `{"events":[{"type":"a.b","payload":1}]}`},
	} {
		f.call("POST", c.address, c.bad, "Idempotency-Key", "k "+c.address).want(422)
		if a := f.call("POST", c.address, c.good, "Idempotency-Key", "k "+c.address); a.status/100 != 2 {
			t.Errorf("%s: %s", c.address, a.body)
		}
	}
	good := `{"url":"https://hooks.example.com/"}`
	f.broken.fail(&outbox.WriteError{Fault: outbox.FaultRetry, Err: context.DeadlineExceeded})
	f.call("POST", acmeEndpoints, good, "Idempotency-Key", "good").want(503)
	f.broken.fail(nil)
	f.call("POST", acmeEndpoints, good, "Idempotency-Key", "good").want(http.StatusCreated)
}

func TestIdempotency_runningIsAConflict(t *testing.T) {
	s := newScene(t)
	for _, r := range keyed() {
		if r.method != http.MethodPost || !r.idempotent {
			continue
		}
		scope := outbox.TenantRef{}
		if r.ofTenant {
			scope = s.ref("acme")
		}
		address, body := s.address(r, "acme"), r.sample().(string)
		q := &request{Request: &http.Request{Method: r.method}, body: []byte(body), who: bootstrapHolder}
		q.URL = mustURL(t, address)
		state, _, err := s.store.BeginIdempotent(t.Context(), scope, "running "+r.name, q.digest(), s.clock.Now())
		if err != nil || state != outbox.IdempotencyNew {
			t.Fatal(state, err)
		}
		a := s.call(r.method, address, body, "Idempotency-Key", "running "+r.name)
		a.wantProblem(409, CodeIdempotencyRunning)
		if a.header.Get("Retry-After") == "" {
			t.Errorf("%s: no Retry-After", r.name)
		}
	}
}

func TestIdempotency_manyAtOnceMakeOne(t *testing.T) { onBoth(t, idempotency_manyAtOnceMakeOne) }

func idempotency_manyAtOnceMakeOne(t *testing.T, f *fixture) {
	f.tenant("acme")
	var wg sync.WaitGroup
	replies := make([]*reply, 16)
	for i := range replies {
		wg.Go(func() {
			deadline := time.Now().Add(10 * time.Second)
			for {
				replies[i] = f.call("POST", acmeEndpoints, `{"url":"https://hooks.example.com/"}`, "Idempotency-Key", "k")
				if replies[i].status != http.StatusConflict || time.Now().After(deadline) {
					return
				}
			}
		})
	}
	wg.Wait()
	for _, a := range replies {
		if a.want(http.StatusCreated); a.text("id") != replies[0].text("id") || a.text("secret") != replies[0].text("secret") {
			t.Errorf("two answers: %s and %s", a.body, replies[0].body)
		}
	}
	if n := len(f.walk(acmeEndpoints, "id")); n != 1 {
		t.Errorf("%d endpoints, want 1", n)
	}
}
