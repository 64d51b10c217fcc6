package signing_test

import (
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/waybill-dev/waybill/internal/outbox"
	"github.com/waybill-dev/waybill/internal/signing"
)

var (
	at   = time.Date(2026, 11, 30, 12, 0, 0, 123_456_789, time.UTC)
	body = []byte(`{ "b": 1.0, "a": "<&>é" }`)
)

func message() *signing.Message {
	return &signing.Message{ID: "evt_1", Type: "order.paid", At: at, URL: "https://hooks.example.com/in?a=b", Body: body}
}

func signer(t *testing.T, when time.Time, schemes []string, secrets ...outbox.Secret) *signing.Signer {
	t.Helper()
	named, unknown := signing.NewBook(nil).Named(schemes)
	if unknown != "" {
		t.Fatalf("unknown %s", unknown)
	}
	plan, err := signing.NewPlan(named, secrets)
	if err != nil {
		t.Fatal(err)
	}
	s, _, err := plan.Signer(when)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func headers(s *signing.Signer, m *signing.Message) map[string]string {
	got := map[string]string{}
	for _, h := range s.Headers(nil, m) {
		got[h.Name] = h.Value
	}
	return got
}

func hexMAC(key, text string) string {
	mac := hmac.New(sha256.New, []byte(key))
	mac.Write([]byte(text))
	return hex.EncodeToString(mac.Sum(nil))
}

// The examples that the senders themselves publish.
func TestPresets_signLikeTheirSenders(t *testing.T) {
	// docs.github.com, "Validating webhook deliveries", test values.
	hello := &signing.Message{ID: "evt_1", Type: "push", At: at, Body: []byte("Hello, World!")}
	got := headers(signer(t, at, []string{"github"}, outbox.Secret{Scheme: "github", Value: "It's a Secret to Everybody"}), hello)
	if want := "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"; got["X-Hub-Signature-256"] != want || got["X-GitHub-Event"] != "push" {
		t.Errorf("github: %v", got)
	}
	// docs.svix.com, "Verifying webhooks manually", whose vector is that of Standard Webhooks.
	vector := &signing.Message{ID: "msg_p5jXN8AQM9LWM0D4loKWxJek", At: time.Unix(1614265330, 0), Body: []byte(`{"test": 2432232314}`)}
	got = headers(signer(t, at, []string{"svix"}, outbox.Secret{Scheme: "svix", Value: "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}), vector)
	if got["svix-signature"] != "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=" || got["svix-id"] != vector.ID || got["svix-timestamp"] != "1614265330" {
		t.Errorf("svix: %v", got)
	}
}

func TestSigner_severalSecretsWhereTheHeaderHasRoom(t *testing.T) {
	text := "1764504000." + string(body)
	for scheme, want := range map[string]map[string]string{
		"stripe":  {"Stripe-Signature": "t=1764504000,v1=" + hexMAC("new-secret", text) + ",v1=" + hexMAC("old-secret", text)},
		"convoy":  {"X-Convoy-Signature": "t=1764504000,v1=" + hexMAC("new-secret", "1764504000,"+string(body)) + ",v1=" + hexMAC("old-secret", "1764504000,"+string(body))},
		"outpost": {"x-outpost-signature": "t=1764504000,v0=" + hexMAC("new-secret", text) + "," + hexMAC("old-secret", text), "x-outpost-event-id": "evt_1", "x-outpost-topic": "order.paid", "x-outpost-timestamp": "1764504000"},
	} {
		m := message()
		m.At = time.Unix(1764504000, 999)
		s := signer(t, m.At, []string{scheme},
			outbox.Secret{Scheme: scheme, Value: "new-secret"},
			outbox.Secret{Scheme: scheme, Value: "old-secret", ExpiresAt: m.At.Add(time.Hour)},
			outbox.Secret{Scheme: scheme, Value: "dead-secret", ExpiresAt: m.At})
		if diff := cmp.Diff(want, headers(s, m)); diff != "" {
			t.Errorf("%s: %s", scheme, diff)
		}
	}
}

// A receiver of a header with room for one signature knows the old secret until it has learned the
// new one; it must not have to change at one moment.
func TestSigner_theOldSecretSignsUntilItEndsWhereThereIsRoomForOne(t *testing.T) {
	secrets := []outbox.Secret{
		{Scheme: "github", Value: "new"},
		{Scheme: "github", Value: "old", ExpiresAt: at.Add(time.Hour)},
	}
	named, _ := signing.NewBook(nil).Named([]string{"github"})
	plan, err := signing.NewPlan(named, secrets)
	if err != nil {
		t.Fatal(err)
	}
	for when, secret := range map[time.Time]string{at: "old", at.Add(time.Hour - 1): "old", at.Add(time.Hour): "new"} {
		s, until, err := plan.Signer(when)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := headers(s, message())["X-Hub-Signature-256"], "sha256="+hexMAC(secret, string(body)); got != want {
			t.Errorf("at %v: %s, want that of %s", when, got, secret)
		}
		if secret == "old" && !until.Equal(at.Add(time.Hour)) {
			t.Errorf("at %v: may be used until %v", when, until)
		}
	}
}

func TestSigner_placeholders(t *testing.T) {
	scheme := signing.Scheme{
		Algorithm: "hmac-sha256", SecretEncoding: "utf8", Encoding: "hex",
		SignedContent: "{{{event_id}}}|{event_type}|{timestamp_ms}|{url}|{metadata.shop}|{metadata.none}|{body}|{body}",
		Headers:       map[string]string{"X-A": "{{{signature}}};at={timestamp}", "X-Shop": "{metadata.shop}", "X-Line": "a{metadata.evil}b"},
	}
	if err := scheme.Validate(); err != nil {
		t.Fatal(err)
	}
	plan, err := signing.NewPlan([]signing.Named{{Name: "x", Scheme: scheme}}, []outbox.Secret{{Scheme: "x", Value: "kéy"}})
	if err != nil {
		t.Fatal(err)
	}
	s, _, err := plan.Signer(at)
	if err != nil {
		t.Fatal(err)
	}
	m := message()
	m.EndpointMetadata = map[string]string{"shop": "endpoint's", "evil": "\r\nX-Injected: 1"}
	m.EventMetadata = map[string]string{"shop": "event's"}
	signed := "{evt_1}|order.paid|1796040000123|https://hooks.example.com/in?a=b|event's||" + string(body) + "|" + string(body)
	want := map[string]string{"X-A": "{" + hexMAC("kéy", signed) + "};at=1796040000", "X-Shop": "event's", "X-Line": "a  X-Injected: 1b"}
	if diff := cmp.Diff(want, headers(s, m)); diff != "" {
		t.Error(diff)
	}
}

func TestSigner_standardHasBothItsKinds(t *testing.T) {
	private := signing.GeneratePrivateKey()
	s := signer(t, at, []string{"standard", "ed25519"},
		outbox.Secret{Value: "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"},
		outbox.Secret{Scheme: "ed25519", Value: private})
	m := message()
	first, second, both := strings.Cut(s.Standard(m), " ")
	if !both || !strings.HasPrefix(first, "v1,") || !s.Plain() {
		t.Fatalf("%q", s.Standard(m))
	}
	pair, err := signing.ParsePrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(second, "v1a,"))
	if err != nil || !ed25519.Verify(pair.Public().Bytes(), []byte("evt_1.1796040000."+string(body)), raw) {
		t.Errorf("%q does not verify: %v", second, err)
	}
	// The seed alone is the same key.
	whole, _ := base64.StdEncoding.DecodeString(strings.TrimPrefix(private, "whsk_"))
	seed, err := signing.ParsePrivateKey("whsk_" + base64.StdEncoding.EncodeToString(whole[:32]))
	if err != nil || seed.Public().String() != pair.Public().String() {
		t.Errorf("the seed is another key: %v", err)
	}
}

func TestScheme_secretsAreReadStrictlyAndNeverTold(t *testing.T) {
	scheme := func(encoding, prefix string, least, most int) signing.Scheme {
		return signing.Scheme{SecretEncoding: encoding, SecretPrefix: prefix, SecretMin: least, SecretMax: most}
	}
	for _, row := range []struct {
		scheme signing.Scheme
		secret string
		key    string // "": refused
	}{
		{scheme("utf8", "", 0, 0), "pässwort", "pässwort"},
		{scheme("utf8", "", 0, 0), "", ""},
		{scheme("utf8", "", 0, 0), " hunter2", ""},
		{scheme("utf8", "", 0, 0), "hunter2\n", ""},
		{scheme("utf8", "k_", 0, 0), "k_hunter2", "hunter2"},
		{scheme("utf8", "k_", 0, 0), "hunter2", ""},
		{scheme("utf8", "k_", 0, 0), "k_", ""},
		{scheme("utf8", "", 8, 0), "seven77", ""},
		{scheme("hex", "", 0, 0), "00ff", "\x00\xff"},
		{scheme("hex", "", 0, 0), "00f", ""},
		{scheme("base64", "", 2, 2), "AP8=", "\x00\xff"},
		{scheme("base64", "", 0, 0), "AP8", ""},
		{scheme("base64", "", 0, 1), "AP8=", ""},
	} {
		key, err := row.scheme.Key(row.secret)
		if string(key) != row.key || (err == nil) != (row.key != "") {
			t.Errorf("%q as %s: %q, %v", row.secret, row.scheme.SecretEncoding, key, err)
		}
		if err != nil && (!errors.Is(err, signing.ErrSecret) || row.secret != "" && strings.Contains(err.Error(), strings.TrimSpace(row.secret))) {
			t.Errorf("%q: the error is %v", row.secret, err)
		}
		if _, err := row.scheme.Key(row.scheme.GenerateSecret()); err != nil {
			t.Errorf("a secret made for %+v is refused: %v", row.scheme, err)
		}
	}
	for name, preset := range signing.Presets() {
		if err := preset.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := preset.Key(preset.GenerateSecret()); err != nil {
			t.Errorf("%s: its own secret is refused: %v", name, err)
		}
	}
	for _, bad := range []string{"", "whsk_", "whsk_AA==", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsk_" + strings.Repeat("A", 86) + "=="} {
		if _, err := signing.ParsePrivateKey(bad); !errors.Is(err, signing.ErrSecret) {
			t.Errorf("%q is taken for a private key: %v", bad, err)
		}
	}
}

func TestPlan_aSchemeWithoutALiveSecretSignsNothing(t *testing.T) {
	named, _ := signing.NewBook(nil).Named([]string{"stripe", "standard"})
	for _, secrets := range [][]outbox.Secret{
		nil,
		{{Value: "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}},
		{{Value: "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}, {Scheme: "stripe", Value: "12345678", ExpiresAt: at}},
	} {
		plan, err := signing.NewPlan(named, secrets)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := plan.Signer(at); !errors.Is(err, signing.ErrSecret) {
			t.Errorf("%d secrets: %v", len(secrets), err)
		}
	}
}
