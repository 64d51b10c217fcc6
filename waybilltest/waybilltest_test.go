package waybilltest

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/waybill-dev/waybill"
	"github.com/waybill-dev/waybill/signature"
)

func TestMatch_givesEveryWantAnEventOfItsOwn(t *testing.T) {
	x := waybill.Event{ID: "1", Tenant: "acme", Type: "x"}
	y := waybill.Event{ID: "2", Tenant: "acme", Type: "y"}
	z := waybill.Event{ID: "3", Tenant: "globex", Type: "z", Payload: []byte(`{}`)}
	any := waybill.Event{}
	acme := waybill.Event{Tenant: "acme"}
	cases := []struct {
		name           string
		want           []waybill.Event
		found, missing int
	}{
		{"nothing wanted", nil, 0, 0},
		{"a vague want before a precise one", []waybill.Event{acme, {Type: "x"}}, 2, 0},
		{"a chain of vague wants", []waybill.Event{any, acme, {Type: "x"}}, 3, 0},
		{"the same event twice", []waybill.Event{{Type: "x"}, {Type: "x"}}, 1, 1},
		{"more wants than events", []waybill.Event{any, any, any, any}, 3, 1},
		{"other bytes", []waybill.Event{{Payload: []byte(`{ }`)}}, 0, 1},
		{"an empty payload is not an unset one", []waybill.Event{{ID: "1", Payload: []byte{}}}, 1, 0},
		{"what is not shown", []waybill.Event{{IdempotencyKey: "k"}}, 0, 1},
	}
	for _, c := range cases {
		found, missing := match([]waybill.Event{x, y, z}, c.want)
		if len(found) != c.found || len(missing) != c.missing {
			t.Errorf("%s: found %d, missing %d; want %d and %d", c.name, len(found), len(missing), c.found, c.missing)
		}
	}
	found, _ := match([]waybill.Event{x, y, z}, []waybill.Event{acme, {Type: "x"}})
	if diff := cmp.Diff([]waybill.Event{y, x}, found); diff != "" {
		t.Errorf("found, in the order of want (-want +got):\n%s", diff)
	}
}

const secretText = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

// send posts a signed body as a sender does and returns the status, 0 where the connection was cut.
func send(t *testing.T, url, id, body string, at time.Time) int {
	t.Helper()
	secret, err := signature.ParseSecret(secretText)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := signature.NewSigner(secret)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set(signature.HeaderID, id)
	req.Header.Set(signature.HeaderTimestamp, strconv.FormatInt(at.Unix(), 10))
	req.Header.Set(signature.HeaderSignature, signer.Sign(id, at, []byte(body)))
	req.Header.Set("waybill-event-type", "ping")
	req.Header.Set("waybill-attempt", "2")
	req.Header.Set("waybill-sequence", "7")
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0
	}
	answer.Body.Close()
	return answer.StatusCode
}

func TestReceiver_verifiesRecordsAndAnswersAsScripted(t *testing.T) {
	r := NewReceiver(t)
	now := time.Now()
	if got := send(t, r.URL, "evt_1", `{}`, now); got != http.StatusUnauthorized {
		t.Errorf("before any secret is trusted: %d", got)
	}
	r.Trust(secretText)
	r.Answer(Answer{Status: http.StatusServiceUnavailable, Header: http.Header{"retry-after": {"1"}}, Body: "later"}, Answer{Hangup: true})
	for i, want := range []int{503, 0, 204} {
		if got := send(t, r.URL, "evt_2", `{ "n": 1 }`, now); got != want {
			t.Errorf("request %d: %d, want %d", i, got, want)
		}
	}
	if got := send(t, r.URL, "evt_3", `{}`, now.Add(-time.Hour)); got != http.StatusUnauthorized {
		t.Errorf("signed an hour ago: %d", got)
	}

	got := r.Await(1, 10*time.Second)[0]
	want := Delivery{ID: "evt_2", EventType: "ping", Attempt: 2, Sequence: 7, Body: []byte(`{ "n": 1 }`), Status: 204, Header: got.Header, At: got.At}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the accepted delivery (-want +got):\n%s", diff)
	}
	var statuses []int
	for _, d := range r.Received() {
		statuses = append(statuses, d.Status)
		if refused := d.Err != nil; refused != (d.Status == 401) {
			t.Errorf("%s: status %d with %v", d.ID, d.Status, d.Err)
		}
	}
	if diff := cmp.Diff([]int{401, 503, 0, 204, 401}, statuses); diff != "" {
		t.Errorf("all requests (-want +got):\n%s", diff)
	}
}
