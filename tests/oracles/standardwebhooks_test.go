package oracles

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"github.com/waybill-dev/waybill/signature"
)

// pair is one secret in both libraries.
type pair struct {
	text   string
	ours   signature.Secret
	theirs *standardwebhooks.Webhook
}

func newPair(t *testing.T, text string) pair {
	t.Helper()
	ours, err := signature.ParseSecret(text)
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := standardwebhooks.NewWebhook(text)
	if err != nil {
		t.Fatal(err)
	}
	return pair{text, ours, theirs}
}

func headers(id string, at time.Time, signatures string) http.Header {
	h := http.Header{}
	h.Set(signature.HeaderID, id)
	h.Set(signature.HeaderTimestamp, strconv.FormatInt(at.Unix(), 10))
	h.Set(signature.HeaderSignature, signatures)
	return h
}

func TestStandardWebhooks_bothSignAlike(t *testing.T) {
	for n := range 500 {
		p := newPair(t, signature.GenerateSecret())
		id := fmt.Sprintf("evt_%d", rand.Int64())
		at := time.Unix(rand.Int64N(4_000_000_000), 0)
		body := make([]byte, rand.IntN(2000))
		for i := range body {
			body[i] = byte(rand.IntN(256))
		}
		signer, err := signature.NewSigner(p.ours)
		if err != nil {
			t.Fatal(err)
		}
		want, err := p.theirs.Sign(id, at, body)
		if err != nil {
			t.Fatal(err)
		}
		if got := signer.Sign(id, at, body); got != want {
			t.Fatalf("message %d: we sign %s, they %s", n, got, want)
		}
	}
}

func TestStandardWebhooks_eachVerifiesTheOther(t *testing.T) {
	now := time.Now()
	first, second, stranger := newPair(t, signature.GenerateSecret()), newPair(t, signature.GenerateSecret()), newPair(t, signature.GenerateSecret())
	signer, err := signature.NewSigner(first.ours, second.ours)
	if err != nil {
		t.Fatal(err)
	}
	for _, body := range []string{"", "{}", "{ \"b\": 1.0, \"a\": \"<&>\" }", "🚀 é", "\x00\xff"} {
		ours := signer.Sign("evt_1", now, []byte(body))
		for _, p := range []pair{first, second} {
			if err := p.theirs.Verify([]byte(body), headers("evt_1", now, ours)); err != nil {
				t.Errorf("%q: they refuse our signature: %v", body, err)
			}
			theirs, err := p.theirs.Sign("evt_1", now, []byte(body))
			if err != nil {
				t.Fatal(err)
			}
			v := signature.Verifier{Secrets: []signature.Secret{first.ours, second.ours}}
			if _, err := v.Verify(headers("evt_1", now, "v1,BADSIG "+theirs), []byte(body)); err != nil {
				t.Errorf("%q: we refuse their signature: %v", body, err)
			}
		}
		if stranger.theirs.Verify([]byte(body), headers("evt_1", now, ours)) == nil {
			t.Errorf("%q: they accept our signature under another secret", body)
		}
	}
}

// Where the two disagree, ours is the strict one: what it accepts, the reference accepts.
func TestStandardWebhooks_oursAcceptsNothingTheirsRefuses(t *testing.T) {
	now := time.Now()
	p := newPair(t, signature.GenerateSecret())
	signer, err := signature.NewSigner(p.ours)
	if err != nil {
		t.Fatal(err)
	}
	body := []byte(`{"test": 2432232314}`)
	good := signer.Sign("evt_1", now, body)
	v := signature.Verifier{Secrets: []signature.Secret{p.ours}}
	for _, signatures := range []string{
		good, "v1,BADSIG " + good + " v2,BADSIG", "v1 " + good, "v1,%%% " + good, "v1,BADSIG  " + good,
		strings.Replace(good, "v1,", "v1a,", 1), strings.Replace(good, "v1,", "v2,", 1), strings.Replace(good, "v1,", "V1,", 1),
		strings.TrimPrefix(good, "v1,"), strings.TrimRight(good, "="), good + "A", "", " ", "v1,", "v1",
	} {
		_, ours := v.Verify(headers("evt_1", now, signatures), body)
		theirs := p.theirs.Verify(body, headers("evt_1", now, signatures))
		if ours == nil && theirs != nil {
			t.Errorf("%q: we accept, they say %v", signatures, theirs)
		}
		if (ours == nil) != (theirs == nil) {
			t.Errorf("%q: we say %v, they say %v", signatures, ours, theirs)
		}
	}
	for _, age := range []time.Duration{-time.Hour, -301 * time.Second, -time.Minute, time.Minute, 290 * time.Second, 310 * time.Second, time.Hour} {
		at := now.Add(-age)
		signatures := signer.Sign("evt_1", at, body)
		_, ours := v.VerifyAt(now, headers("evt_1", at, signatures), body)
		theirs := p.theirs.Verify(body, headers("evt_1", at, signatures))
		if (ours == nil) != (theirs == nil) {
			t.Errorf("%s old: we say %v, they say %v", age, ours, theirs)
		}
	}
}

// The reference decodes whatever base64 makes of a secret, down to nothing at all. That is why
// the signing code is not theirs.
func TestStandardWebhooks_secretsOnlyTheyAccept(t *testing.T) {
	for _, text := range []string{"", "whsec_", "whsec_AAAA", "MfKQ9r8GKYqrTwjU\nPD8ILPZIo2LaLaSw"} {
		if _, err := standardwebhooks.NewWebhook(text); err != nil {
			t.Errorf("%q: they refuse it now: %v", text, err)
		}
		if _, err := signature.ParseSecret(text); err == nil {
			t.Errorf("%q: we accept it", text)
		}
	}
}
