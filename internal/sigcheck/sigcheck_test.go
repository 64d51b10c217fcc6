package sigcheck_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/internal/sigcheck"
	"github.com/waybill-dev/waybill/receive/providers"
	"github.com/waybill-dev/waybill/signature"
)

const secret = "whsec_an_example_of_more_than_16_bytes"

var now = time.Unix(1_800_000_000, 0)

// arrived is a request that Stripe signed over body.
func arrived(t *testing.T, body string) sigcheck.Request {
	t.Helper()
	s := signature.Stripe()
	key, err := s.Key(secret)
	if err != nil {
		t.Fatal(err)
	}
	r := signature.Request{Method: http.MethodPost, Header: http.Header{}, Body: []byte(body)}
	if err := s.Sign(&r, "", []signature.Key{key}, now); err != nil {
		t.Fatal(err)
	}
	return sigcheck.Request{Request: r, Provider: providers.Stripe(), Secret: secret, At: now}
}

func TestExplain_findsTheUsualMistake(t *testing.T) {
	const body = "{\n  \"score\": 0.0\n}\n"
	for _, c := range []struct {
		says   string
		change func(r *sigcheck.Request)
		reason signature.Reason
		hint   string
	}{
		{"nothing wrong", func(*sigcheck.Request) {}, "", ""},
		{"trimmed", func(r *sigcheck.Request) { r.Body = r.Body[:len(r.Body)-1] }, signature.Mismatch, "with a line feed at the end"},
		{"line ends changed", func(r *sigcheck.Request) { r.Body = []byte(strings.ReplaceAll(body, "\n", "\r\n")) }, signature.Mismatch, "with LF for CR LF"},
		{"another body", func(r *sigcheck.Request) { r.Body = []byte("{}") }, signature.Mismatch, "no usual change"},
		{"the secret with a space", func(r *sigcheck.Request) { r.Secret = "sk_" + secret }, signature.Mismatch, "with the secret without what is before its first _"},
		{"an hour late", func(r *sigcheck.Request) { r.At = now.Add(time.Hour) }, signature.TooOld, "everything but the time"},
		{"somebody else's", func(r *sigcheck.Request) { r.Provider = providers.GitHub() }, signature.Missing, "Stripe-Signature, which stripe signs in, and it verifies as such"},
	} {
		t.Run(c.says, func(t *testing.T) {
			r := arrived(t, body)
			c.change(&r)
			got, err := sigcheck.Explain(t.Context(), r)
			if err != nil {
				t.Fatal(err)
			}
			if got.Reason != c.reason || got.Verified != (c.reason == "") || !strings.Contains(strings.Join(got.Hints, "\n"), c.hint) {
				t.Errorf("%+v, want %q with %q", got, c.reason, c.hint)
			}
			if strings.Contains(strings.Join(got.Hints, "\n")+got.Detail, secret) {
				t.Error("it shows the secret")
			}
		})
	}
}

func TestExplain_aSecretReadTheOtherWay(t *testing.T) {
	r := arrived(t, "{}")
	own := signature.Stripe()
	own.Secret = signature.SecretForm{Encoding: signature.Base64, Prefix: "whsec_"}
	text := signature.GenerateSecret()
	key, err := own.Key(text)
	if err != nil {
		t.Fatal(err)
	}
	if err := own.Sign(&r.Request, "", []signature.Key{key}, now); err != nil {
		t.Fatal(err)
	}
	r.Secret = text
	got, err := sigcheck.Explain(t.Context(), r)
	if err != nil || len(got.Hints) == 0 || !strings.Contains(got.Hints[0], "read as base64") {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestExplain_aSecretThatIsNoneIsAnError(t *testing.T) {
	r := arrived(t, "{}")
	r.Secret = "short"
	if _, err := sigcheck.Explain(t.Context(), r); !errors.Is(err, signature.ErrSecret) {
		t.Errorf("%v", err)
	}
}
