package inbound_test

import (
	"encoding/base64"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/internal/inbound"
	"github.com/waybill-dev/waybill/internal/outbox"
	"github.com/waybill-dev/waybill/receive/providers"
	"github.com/waybill-dev/waybill/receive/receivetest"
)

func TestGateway_repeats(t *testing.T) {
	w := newWorld(t)
	w.source("one", "stripe")
	w.source("two", "stripe")
	body := `{"id":"evt_1","type":"a.b"}`
	w.want("first", w.stripe("one", body), 200)
	w.want("again", w.stripe("one", body), 200)
	w.count(1)
	first := w.events()[0].ID
	w.want("the same event at another address", w.stripe("two", body), 200)
	w.want("an id in other letters", w.stripe("one", `{"id":"EVT_1","type":"a.b"}`), 200)
	w.count(3)
	dup := w.requests("one", outbox.InboundDuplicate, 1)[0]
	if dup.ProviderID != "evt_1" || dup.Event != first {
		t.Errorf("duplicate %+v", dup)
	}

	// Another body under an id that is signed: kept beside the first, and shown.
	w.want("another body", w.stripe("one", `{"id":"evt_1","type":"a.c"}`), 200)
	w.count(3)
	kept := w.requests("one", outbox.InboundQuarantined, 1)[0]
	if string(kept.Body) != `{"id":"evt_1","type":"a.c"}` || kept.Event != first || kept.Reason != outbox.QuarantinedOtherBody {
		t.Errorf("quarantined %+v", kept)
	}
	w.requests("one", outbox.InboundAccepted, 2)
}

// An id outside the signature can be put on any old signed body. It must not take the place of the
// real event of that id.
func TestGateway_unsignedIDsAreGuardedByTheBody(t *testing.T) {
	w := newWorld(t)
	w.source("gh", "github")
	github := func(id, body string) *httptest.ResponseRecorder {
		return w.post("gh", body, "X-Hub-Signature-256", "sha256="+hexed(secret, body), "X-Github-Delivery", id)
	}
	w.want("an old body under the next event's id", github("guid-2", `{"n":1}`), 200)
	w.want("the next event", github("guid-2", `{"n":2}`), 200)
	w.want("its repeat", github("guid-2", `{"n":2}`), 200)
	w.count(2)

	// Shopify gives one id to an event under each of its topics.
	w.source("shop", "shopify")
	shopify := func(topic string) *httptest.ResponseRecorder {
		return w.post("shop", `{"id":1}`, "X-Shopify-Hmac-Sha256", base64.StdEncoding.EncodeToString(mac(secret, `{"id":1}`)), "X-Shopify-Event-Id", "e1", "X-Shopify-Topic", topic)
	}
	w.want("orders/create", shopify("orders/create"), 200)
	w.want("orders/paid", shopify("orders/paid"), 200)
	w.want("orders/paid again", shopify("orders/paid"), 200)
	w.count(4)
}

func TestGateway_withoutAnID(t *testing.T) {
	w := newWorld(t)
	custom := func(s *outbox.Source) {
		s.Settings.Verify = &outbox.SourceCheck{Signed: "{body}", Header: "X-Sig", Form: "{hex}"}
	}
	w.source("plain", inbound.Custom, custom)
	w.source("merged", inbound.Custom, custom, func(s *outbox.Source) { s.Settings.ID = &outbox.SourcePlace{BodyWithin: time.Hour} })
	for range 2 {
		for _, name := range []string{"plain", "merged"} {
			w.want(name, w.post(name, `{"a":1}`, "X-Sig", hexed(secret, `{"a":1}`)), 200)
		}
	}
	of := map[string]int{}
	for _, e := range w.events() {
		of[e.Metadata["source"]]++
	}
	if of["plain"] != 2 || of["merged"] != 1 {
		t.Errorf("events %v: two equal events are two, unless the source says otherwise", of)
	}
}

// SendGrid sends arrays; each element is an event of its own, with an id of its own.
func TestGateway_batches(t *testing.T) {
	w := newWorld(t)
	mail := receivetest.NewSource(t, "mail", providers.SendGrid())
	w.source("mail", "sendgrid", secrets(mail.Secrets[0].Value))
	send := func(body string) *httptest.ResponseRecorder {
		r := receivetest.Request(t, mail, body)
		r.URL.Path = "/in/mail"
		return w.send(r)
	}
	const one, two, three = `{"sg_event_id":"1","event":"open"}`, `{ "sg_event_id": "2", "event":"click" }`, `{"sg_event_id":"3","event":"bounce"}`
	w.want("one", send("["+one+"]"), 200)
	w.want("three, of which one is known", send("[\r\n"+one+",\r\n"+two+",\r\n"+three+"]\r\n"), 200)
	events := w.events()
	if len(events) != 3 || string(events[1].Payload) != two || events[1].Type != "click" || string(events[2].Payload) != three {
		t.Errorf("events %+v", events)
	}
	w.requests("mail", outbox.InboundDuplicate, 1)
}

// A hundred copies at once are one event, and each of them a success.
func TestGateway_aHundredCopiesAtOnce(t *testing.T) {
	w := newWorld(t)
	w.source("billing", "stripe")
	body := `{"id":"evt_1","type":"a.b"}`
	var group sync.WaitGroup
	for range 100 {
		group.Go(func() {
			if answer := w.stripe("billing", body); answer.Code != 200 {
				t.Errorf("%d", answer.Code)
			}
		})
	}
	group.Wait()
	w.count(1)
}
