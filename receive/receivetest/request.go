package receivetest

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/receive"
	"github.com/waybill-dev/waybill/signature"
)

// NewSource is a source of a provider with a fresh secret that can also sign, for tests that do not
// care which. PayPal cannot be signed for.
func NewSource(t testing.TB, name string, p receive.Provider) receive.Source {
	t.Helper()
	s, ok := p.Scheme.(signature.SigningScheme)
	if !ok {
		t.Fatalf("receivetest: the scheme of %s cannot sign", p.Name)
	}
	secret, _, err := s.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	return receive.Source{Name: name, Provider: p, Secrets: receive.Secrets(secret), PublicURL: "https://hooks.example.com/" + name}
}

// Request is what the provider would send: body, signed now by src's first secret. Where the id
// travels in a header it is made from the body, so that the same body is the same event.
//
// Of a scheme with a public key the secret must be the private one, as NewSource makes it.
func Request(t testing.TB, src receive.Source, body string) *http.Request {
	t.Helper()
	return RequestAt(t, src, body, time.Now())
}

// RequestAt is Request at another time.
func RequestAt(t testing.TB, src receive.Source, body string, at time.Time) *http.Request {
	t.Helper()
	s, ok := src.Provider.Scheme.(signature.SigningScheme)
	if !ok {
		t.Fatalf("receivetest: the scheme of %s cannot sign", src.Provider.Name)
	}
	if len(src.Secrets) == 0 {
		t.Fatal("receivetest: the source has no secret")
	}
	key, err := s.Key(src.Secrets[0].Value)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256([]byte(body))
	id := "evt_" + hex.EncodeToString(sum[:8])
	address := src.PublicURL
	if address == "" {
		address = "https://hooks.example.com/"
	}
	kind := "application/json"
	if _, form := src.Provider.Scheme.(signature.TwilioForm); form {
		kind = "application/x-www-form-urlencoded"
	}
	r := signature.Request{Method: http.MethodPost, URL: address, Body: []byte(body), Header: http.Header{"Content-Type": {kind}}}
	if h := src.Provider.ID.Header; h != "" {
		r.Header.Set(h, id)
	}
	if err := s.Sign(&r, id, []signature.Key{key}, at); err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(r.URL) // signing may have put something into it
	if err != nil {
		t.Fatal(err)
	}
	req := httptest.NewRequest(http.MethodPost, u.RequestURI(), bytes.NewReader(r.Body))
	req.Header = r.Header
	return req
}

// Post sends Request to h and returns the answer.
func Post(t testing.TB, h http.Handler, src receive.Source, body string) *http.Response {
	t.Helper()
	return Do(h, Request(t, src, body))
}

// Do sends a request to h and returns the answer.
func Do(h http.Handler, r *http.Request) *http.Response {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result()
}

// Delivery is what a handler would be given for body, for testing a handler alone.
func Delivery(t testing.TB, src receive.Source, body string) *receive.Delivery {
	t.Helper()
	in, err := receive.NewIntake(src)
	if err != nil {
		t.Fatal(err)
	}
	a := in.Read(httptest.NewRecorder(), Request(t, src, body), time.Now())
	if len(a.Records) == 0 {
		t.Fatalf("receivetest: no event in it: %s %v", a.Outcome, a.Err)
	}
	r := &a.Records[0]
	c := &receive.Claim{Key: r.Key, Token: receive.NewToken(), Granted: true, Fence: 1, Run: 1, Until: time.Now().Add(time.Minute)}
	return receive.NewDelivery(src.Provider.Name, r, c, time.Hour)
}

// Drain runs the inbox's worker until nothing is due, and says how many runs that were.
func Drain(t testing.TB, in *receive.Inbox) int {
	t.Helper()
	n, err := in.RunDue(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return n
}
