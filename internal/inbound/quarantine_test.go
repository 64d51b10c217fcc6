package inbound_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/internal/inbound"
	"github.com/waybill-dev/waybill/internal/outbox"
)

// eventType puts a type with a schema into the catalogue.
func (w *world) eventType(name string, onInvalid outbox.OnInvalid) {
	w.t.Helper()
	_, _, err := w.store.PutEventType(w.t.Context(), name, time.Now(), func(t *outbox.EventType, _ bool) error {
		t.Schema, t.OnInvalid = []byte(`{"type":"object","required":["amount"]}`), onInvalid
		return nil
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

// A type that refuses what does not follow its schema refuses what providers send, too. The provider
// is told that it is kept, because it is: nothing that it could do would mend the payload.
func TestGateway_whatItsTypeRefusesIsQuarantined(t *testing.T) {
	w := newWorld(t)
	w.eventType("strict", outbox.OnInvalidRefuse)
	w.eventType("lax", outbox.OnInvalidWarn)
	w.source("billing", "stripe")
	const bad = `{"id":"evt_1", "type":"strict"}`
	w.want("against the schema", w.stripe("billing", bad), 200)
	w.want("with it", w.stripe("billing", `{"id":"evt_2","type":"strict","amount":1}`), 200)
	w.want("of a type that only warns", w.stripe("billing", `{"id":"evt_3","type":"lax"}`), 200)
	w.want("of a type without a schema", w.stripe("billing", `{"id":"evt_4","type":"other"}`), 200)
	w.count(3)
	kept := w.requests("billing", outbox.InboundQuarantined, 1)[0]
	if string(kept.Body) != bad || kept.Reason != outbox.QuarantinedSchema || !strings.Contains(kept.Detail, "amount") || kept.ProviderID != "evt_1" || !kept.Event.IsZero() {
		t.Errorf("quarantined %+v", kept)
	}

	// Released it is the event it would have been; its repeat is then a repeat, and so is a second
	// release.
	src, err := w.store.Source(t.Context(), "billing")
	if err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		event := inbound.Release(&src, &kept, time.Now())
		accepted, conflicts, err := w.store.InsertEvents(t.Context(), []outbox.NewEvent{event})
		if err != nil || len(conflicts) > 0 || accepted[0].Duplicate != (i == 1) {
			t.Fatalf("release %d: %+v, %v, %v", i, accepted, conflicts, err)
		}
	}
	w.count(4)
	e := w.events()[0]
	if string(e.Payload) != bad || e.Type != "strict" || e.Metadata["source_id"] != "evt_1" || e.Metadata["header:Content-Type"] != "application/json" {
		t.Errorf("released %+v", e)
	}
	w.eventType("strict", outbox.OnInvalidWarn)
	for deadline := time.Now().Add(20 * time.Second); ; { // the catalogue is read again within a second
		w.want("again, once the type only warns", w.stripe("billing", bad), 200)
		if len(w.requestsNow("billing", outbox.InboundDuplicate)) > 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("a repeat of what was released is no duplicate")
		}
		<-time.After(50 * time.Millisecond)
	}
	w.count(4)
}

// What its provider repeats is one case for people, and none once they have decided.
func TestGateway_repeatsOfWhatIsQuarantined(t *testing.T) {
	w := newWorld(t)
	w.eventType("strict", outbox.OnInvalidRefuse)
	w.source("billing", "stripe")
	const bad, changed = `{"id":"evt_1", "type":"strict"}`, `{"id":"evt_2","type":"lax","changed":1}`
	w.want("one that is stored", w.stripe("billing", `{"id":"evt_2","type":"lax"}`), 200)
	for range 3 {
		w.want("against the schema", w.stripe("billing", bad), 200)
		w.want("another body", w.stripe("billing", changed), 200)
	}
	src, err := w.store.Source(t.Context(), "billing")
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range w.requests("billing", outbox.InboundQuarantined, 2) {
		if q.Times != 3 {
			t.Errorf("%s is there %d times, want 3", q.Reason, q.Times)
		}
		event := inbound.Release(&src, &q, time.Now())
		accepted, conflicts, err := w.store.InsertEvents(t.Context(), []outbox.NewEvent{event})
		if err != nil || len(conflicts) > 0 || accepted[0].Duplicate {
			t.Fatalf("release: %+v, %v, %v", accepted, conflicts, err)
		}
	}
	if n := strings.Count(w.log.String(), "kept in quarantine"); n != 2 {
		t.Errorf("%d warnings, want one for each of 2:\n%s", n, w.log.String())
	}
	w.want("its repeat after the release", w.stripe("billing", bad), 200)
	w.want("the other body's", w.stripe("billing", changed), 200)
	w.count(3)
	w.requests("billing", outbox.InboundDuplicate, 2)
	for _, q := range w.requests("billing", outbox.InboundQuarantined, 2) {
		if q.Times != 3 || q.Released.IsZero() || q.Body != nil {
			t.Errorf("after the release %+v", q)
		}
	}
}

// A schema that nothing follows any more looks like silence otherwise.
func TestGateway_saysThatATypeRefuses(t *testing.T) {
	w := newWorld(t)
	operator, _, err := w.store.PutTenant(t.Context(), outbox.OperatorTenant, time.Now(), func(*outbox.Tenant, bool) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	w.eventType("strict", outbox.OnInvalidRefuse)
	w.source("billing", "stripe")
	for i := range 10 {
		w.want("against the schema", w.stripe("billing", fmt.Sprintf(`{"id":"evt_%d","type":"strict"}`, i)), 200)
	}
	for deadline := time.Now().Add(20 * time.Second); ; {
		views, _, err := w.store.Events(t.Context(), outbox.EventQuery{Tenant: operator.TenantRef}, outbox.Page{Limit: 10})
		if err != nil {
			t.Fatal(err)
		}
		if len(views) > 0 {
			payload, err := w.store.Payload(t.Context(), operator.TenantRef, views[0].ID)
			if err != nil || views[0].Type != "source.rejecting" || !strings.Contains(string(payload), `"kind":"schema"`) || !strings.Contains(string(payload), `"status_code":200`) {
				t.Errorf("%s %s, %v", views[0].Type, payload, err)
			}
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("the operator is not told")
		}
		<-time.After(20 * time.Millisecond)
	}
}

// Of a batch, what can be an event is one.
func TestGateway_quarantinesPartOfABatch(t *testing.T) {
	w := newWorld(t)
	w.eventType("strict", outbox.OnInvalidRefuse)
	w.source("mail", "brevo", func(s *outbox.Source) { s.Settings.ID = &outbox.SourcePlace{Pointer: "/id"} })
	w.want("good", w.post("mail", `{"id":"1","event":"strict","amount":1}`, "Authorization", secret), 200)
	w.want("bad", w.post("mail", `{"id":"2","event":"strict"}`, "Authorization", secret), 200)
	w.count(1)
	w.requests("mail", outbox.InboundQuarantined, 1)
}

// A database that cannot keep it is no reason to say that it is kept.
func TestGateway_quarantineWithoutADatabase(t *testing.T) {
	w := newWorld(t)
	w.eventType("strict", outbox.OnInvalidRefuse)
	w.source("billing", "stripe")
	w.want("while it is well", w.stripe("billing", `{"id":"evt_1","type":"strict"}`), 200)
	var err error = &outbox.WriteError{Fault: outbox.FaultRetry, Err: fmt.Errorf("no connection")}
	w.store.err.Store(&err)
	w.want("while it is down", w.stripe("billing", `{"id":"evt_2","type":"strict"}`), 503)
	w.store.err.Store(nil)
	w.requests("billing", outbox.InboundQuarantined, 1)
}

// Only what a provider sends is taken: its POST, and the GET of those who look first.
func TestGateway_methods(t *testing.T) {
	w := newWorld(t)
	w.source("billing", "stripe")
	w.source("meta", "meta", func(s *outbox.Source) { s.Settings.Verify = &outbox.SourceCheck{ChallengeToken: "of-our-own-making"} })
	body := `{"id":"evt_1","type":"a.b"}`
	for _, method := range []string{"GET", "HEAD", "PUT", "PATCH", "DELETE", "OPTIONS", "PROPFIND"} {
		for source, allow := range map[string]string{"billing": "POST", "meta": "POST, GET, HEAD"} {
			if source == "meta" && (method == "GET" || method == "HEAD") {
				continue
			}
			r, err := http.NewRequest(method, "/in/"+source, strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			answer := w.send(r, "Stripe-Signature", stripe(body, secret))
			if answer.Code != 405 || answer.Header().Get("Allow") != allow || answer.Header().Get("Content-Type") != "application/problem+json" {
				t.Errorf("%s %s: %d, Allow %q, %s", method, source, answer.Code, answer.Header().Get("Allow"), answer.Body)
			}
		}
	}
	w.count(0)
}
