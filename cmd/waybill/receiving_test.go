package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/receive/providers"
	"github.com/waybill-dev/waybill/signature"
)

func TestSimulate_saysWhenAnEventRunsAndWhetherItIsLost(t *testing.T) {
	for _, c := range []struct {
		args string
		code int
		want []string
	}{
		// Lease 14.25 s; the attempt 5 s after a crash waits until then and is sent away; then 5 minutes.
		{"--provider svix --deadline 12s", exitOK, []string{"0s–6s", "5m14.25s", "lease 14.25s"}},
		{"--provider github --deadline 5s", exitFailed, []string{"never: LOST"}},
		{"--provider svix --deadline 12s --json", exitOK, []string{`"runs_at": 314.25`, `"crash_at": 12`}},
		{"--provider nobody --deadline 12s", exitUsage, nil},
		{"--provider svix", exitUsage, nil},
		{"--provider svix --deadline 2h", exitUsage, nil},
	} {
		r := inProcess(t, append([]string{"simulate"}, strings.Fields(c.args)...)...)
		if r.code != c.code {
			t.Errorf("%s: %v", c.args, r)
		}
		for _, want := range c.want {
			if !strings.Contains(r.out, want) {
				t.Errorf("%s: %q is not in\n%s", c.args, want, r.out)
			}
		}
	}
}

func TestVerifySignature_readsARequestAndSaysWhy(t *testing.T) {
	const secret = "whsec_an_example_of_more_than_16_bytes"
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	s := signature.Stripe()
	key, err := s.Key(secret)
	if err != nil {
		t.Fatal(err)
	}
	const body = "{\"id\": \"evt_1\"}"
	signed := signature.Request{Header: http.Header{}, Body: []byte(body)}
	if err := s.Sign(&signed, "", []signature.Key{key}, time.Now()); err != nil {
		t.Fatal(err)
	}
	sig := "Stripe-Signature: " + signed.Header.Get("Stripe-Signature")
	secretFile := file("secret", secret+"\n")
	whole := file("whole", fmt.Sprintf("POST /hooks HTTP/1.1\r\nHost: x\r\n%s\r\n\r\n%s", sig, body))
	plain := file("plain", fmt.Sprintf("POST /hooks HTTP/1.1\nHost: x\n%s\n\n%s", sig, body))
	common := []string{"verify-signature", "--secret-file", secretFile}
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"--provider", "stripe", "--header", sig, "--body", file("body", body)}, exitOK, "It verifies."},
		{[]string{"--provider", "stripe", "--request", whole}, exitOK, "It verifies."},
		{[]string{"--provider", "stripe", "--request", plain}, exitOK, "It verifies."},
		{[]string{"--provider", "stripe", "--header", sig, "--body", file("compact", body+"\n")}, exitFailed, "without the white space around the body"},
		{[]string{"--provider", "stripe", "--request", whole, "--at", "2020-01-01T00:00:00Z"}, exitFailed, "too_new"},
		{[]string{"--provider", "github", "--request", whole}, exitFailed, "which stripe signs in"},
		{[]string{"--provider", "hmac", "--signature-header", "Stripe-Signature", "--form", "t={timestamp},v1={hex}", "--signed", "{timestamp}.{body}", "--request", whole}, exitOK, "It verifies."},
		{[]string{"--provider", "stripe", "--request", whole, "--json"}, exitOK, `"verified": true`},
		{[]string{"--provider", "stripe", "--request", filepath.Join(dir, "none")}, exitUsage, ""},
		{[]string{"--provider", "stripe", "--header", "nonsense"}, exitUsage, ""},
		{[]string{"--provider", "hmac", "--request", whole}, exitUsage, ""},
		{[]string{"--provider", "stripe", "--request", whole, "--at", "yesterday"}, exitUsage, ""},
		{[]string{"--provider", "standard-webhooks", "--request", whole}, exitUsage, ""}, // the secret is no base64
	} {
		r := inProcess(t, append(common[:len(common):len(common)], c.args...)...)
		if r.code != c.code || !strings.Contains(r.out, c.want) {
			t.Errorf("%q: %v", c.args, r)
		}
		if strings.Contains(r.out+r.err, secret) {
			t.Errorf("%q shows the secret", c.args)
		}
	}
}

// What sign prints verify-signature reads, for every provider that can be signed for.
func TestSign_printsWhatVerifies(t *testing.T) {
	dir := t.TempDir()
	secret, body := filepath.Join(dir, "secret"), filepath.Join(dir, "body")
	if err := os.WriteFile(body, []byte("a=1&b=2"), 0o600); err != nil {
		t.Fatal(err)
	}
	for p := range providers.All() {
		s, ok := p.Scheme.(signature.SigningScheme)
		if !ok || len(s.Headers()) == 0 { // Adyen, Event Grid, Mailgun, Wix; PayPal
			if r := inProcess(t, "sign", "--provider", p.Name, "--secret", "0123456789abcdef", "--body", body); r.code != exitUsage {
				t.Errorf("%s: %v", p.Name, r)
			}
			continue
		}
		text, _, err := s.NewKey()
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(secret, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		common := []string{"--provider", p.Name, "--secret-file", secret, "--body", body, "--url", "https://hooks.example.com/in"}
		r := inProcess(t, append([]string{"sign"}, common...)...)
		args := append([]string{"verify-signature"}, common...)
		for line := range strings.Lines(r.out) {
			args = append(args, "--header", strings.TrimSpace(line))
		}
		if v := inProcess(t, args...); r.code != exitOK || v.code != exitOK {
			t.Errorf("%s: signed %v, verified %v", p.Name, r, v)
		}
	}
}
