package providers_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/receive"
	"github.com/waybill-dev/waybill/receive/providers"
	"github.com/waybill-dev/waybill/receive/receivetest"
	"github.com/waybill-dev/waybill/signature"
)

// read is what an intake finds in a request.
func read(t *testing.T, src receive.Source, r *http.Request) receive.Arrival {
	t.Helper()
	in, err := receive.NewIntake(src)
	if err != nil {
		t.Fatal(err)
	}
	return in.Read(httptest.NewRecorder(), r, time.Now())
}

// The vector is Adyen's own, from the page on verifying signatures.
func TestAdyen(t *testing.T) {
	const body = `{"live":"false","notificationItems":[{"NotificationRequestItem":{
		"additionalData":{"hmacSignature":"coqCmt/IZ4E3CzPvMY8zTjQVL5hYJUiBRg8UU+iCWo0="},
		"amount":{"value":1130,"currency":"EUR"},"pspReference":"7914073381342284","eventCode":"AUTHORISATION",
		"eventDate":"2019-05-06T17:15:34.121+02:00","merchantAccountCode":"TestMerchant","operations":["CANCEL","CAPTURE","REFUND"],
		"merchantReference":"TestPayment-1407325143704","paymentMethod":"visa","success":"true"}}]}`
	src := receive.Source{Name: "pay", Provider: providers.Adyen(), Secrets: receive.Secrets("44782DEF547AAA06C910C43932B1EB0C71FC68D9D0C057550C48EC2ACF6BA056")}
	post := func(body string) receive.Arrival {
		return read(t, src, httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body)))
	}
	a := post(body)
	if len(a.Records) != 1 || a.Records[0].Key.ID != "7914073381342284 AUTHORISATION true" || !a.Records[0].IDSigned || a.Records[0].Topic != "AUTHORISATION" {
		t.Fatalf("%+v", a)
	}
	if got := string(a.Records[0].Body); !strings.HasPrefix(got, `{"NotificationRequestItem"`) || !strings.Contains(body, got) {
		t.Errorf("the event is %s", got)
	}
	for _, change := range [][2]string{{"1130", "9130"}, {`"true"`, `"false"`}, {"TestMerchant", "Another"}, {"7914073381342284", "7914073381342285"}, {"AUTHORISATION", "CAPTURE"}, {"hmacSignature", "x"}} {
		if a := post(strings.Replace(body, change[0], change[1], 1)); a.Outcome != receive.Rejected {
			t.Errorf("%s became %s: %s", change[0], change[1], a.Outcome)
		}
	}
	// One item that verifies does not vouch for another.
	two := strings.Replace(body, `[{"Not`, `[{"NotificationRequestItem":{"pspReference":"1","eventCode":"CAPTURE","success":"true","additionalData":{"hmacSignature":"coqCmt/IZ4E3CzPvMY8zTjQVL5hYJUiBRg8UU+iCWo0="}}},{"Not`, 1)
	if a := post(two); a.Outcome != receive.Rejected {
		t.Errorf("a forged item beside a good one: %s", a.Outcome)
	}
	for _, empty := range []string{`{"notificationItems":[]}`, `{}`, `[]`, ``, `{"notificationItems":[{}]}`} {
		if a := post(empty); a.Outcome != receive.Rejected {
			t.Errorf("%q: %s", empty, a.Outcome)
		}
	}
	// The same item with success the other way is another event, sent again it is the same.
	signed := receivetest.NewSource(t, "pay", providers.Adyen())
	keys := map[[32]byte]bool{}
	for _, success := range []string{"true", "false", "true"} {
		a := read(t, signed, receivetest.Request(t, signed, `{"notificationItems":[{"NotificationRequestItem":{"pspReference":"1","eventCode":"CAPTURE","success":"`+success+`","amount":{"value":12345678901234567,"currency":"EUR"}}}]}`))
		if len(a.Records) != 1 {
			t.Fatalf("%+v", a)
		}
		keys[a.Records[0].Key.Hash()] = true
	}
	if len(keys) != 2 {
		t.Errorf("%d events, want 2", len(keys))
	}
}

func TestKit(t *testing.T) {
	src := receivetest.NewSource(t, "kit", providers.Kit())
	one, two := `{"id":"9c2e","type":"subscriber.created","data":{"n":1.0}}`, `{"id":"9c2f","type":"subscriber.created"}`
	a := read(t, src, receivetest.Request(t, src, `{"delivery_id":123456,"events":[`+one+`, `+two+`]}`))
	if len(a.Records) != 2 || string(a.Records[0].Body) != one || a.Records[1].Key.ID != "9c2f" || !a.Records[1].IDSigned || a.Records[0].Topic != "subscriber.created" {
		t.Errorf("%+v", a)
	}
}

func TestWix(t *testing.T) {
	src := receivetest.NewSource(t, "wix", providers.Wix())
	text := func(v any) string {
		raw, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return string(raw)
	}
	claims := text(map[string]any{"iat": 1, "data": text(map[string]string{
		"eventType": "wix.contacts.v4.contact_merged", "instanceId": "i", "data": text(map[string]string{"id": "of-the-event", "slug": "merge", "entityId": "of-the-contact"}),
	})})
	r := receivetest.Request(t, src, claims)
	a := read(t, src, r)
	if len(a.Records) != 1 || a.Records[0].Key.ID != "of-the-event" || !a.Records[0].IDSigned || a.Records[0].Topic != "wix.contacts.v4.contact_merged" || string(a.Records[0].Body) != claims {
		t.Errorf("%+v", a)
	}
	// What is signed with another key, with none, or with the public key as if it were a secret.
	other := receivetest.NewSource(t, "wix", providers.Wix())
	if a := read(t, src, receivetest.Request(t, other, claims)); a.Outcome != receive.Rejected || a.Reason != string(signature.Mismatch) {
		t.Errorf("another key: %s %s", a.Outcome, a.Reason)
	}
	for _, token := range []string{
		"eyJhbGciOiJub25lIn0.e30.", "eyJhbGciOiJIUzI1NiJ9.e30.AAAA", "eyJhbGciOiJSUzI1NiJ9.e30.AAAA", "eyJhbGciOiJSUzI1NiIsImNyaXQiOlsiYjY0Il19.e30.AAAA", "a.b", "", claims,
	} {
		if a := read(t, src, httptest.NewRequest(http.MethodPost, "/", strings.NewReader(token))); a.Outcome != receive.Rejected {
			t.Errorf("%q: %s", token, a.Outcome)
		}
	}
}

func TestAzureEventGrid(t *testing.T) {
	src := receivetest.NewSource(t, "grid", providers.AzureEventGrid())
	// PublicURL may hold the whole address, as the subscription has it. It vouches for nobody.
	src.PublicURL = "https://hooks.example.com/grid?code=" + src.Secrets[0].Value
	const event = `{"id":"831e","eventType":"Microsoft.Storage.BlobCreated","data":{}}`
	a := read(t, src, receivetest.Request(t, src, "["+event+"]"))
	if len(a.Records) != 1 || a.Records[0].Key.ID != "831e" || a.Records[0].Topic != "Microsoft.Storage.BlobCreated" || string(a.Records[0].Body) != event {
		t.Errorf("%+v", a)
	}
	for _, query := range []string{"", "?code=", "?code=guess-of-some-stranger", "?code=" + url.QueryEscape(src.Secrets[0].Value) + "&code=x", "?Code=" + src.Secrets[0].Value} {
		a := read(t, src, httptest.NewRequest(http.MethodPost, "/grid"+query, strings.NewReader("["+event+"]")))
		if a.Outcome != receive.Rejected || a.Answer.Status != http.StatusServiceUnavailable { // 401 would drop the event
			t.Errorf("%q: %s %d", query, a.Outcome, a.Answer.Status)
		}
	}
	hello := receivetest.Request(t, src, `[{"id":"2d17","eventType":"Microsoft.EventGrid.SubscriptionValidationEvent","data":{"validationCode":"512d38b6","validationUrl":"https://example.com/"}}]`)
	hello.Header.Set("aeg-event-type", "SubscriptionValidation")
	if a := read(t, src, hello); a.Outcome != receive.Handshaken || string(a.Answer.Body) != `{"validationResponse":"512d38b6"}` {
		t.Errorf("the handshake: %s %s", a.Outcome, a.Answer.Body)
	}
}
