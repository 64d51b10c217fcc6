package oracles

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-github/v74/github"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"github.com/stripe/stripe-go/v82/webhook"
	svix "github.com/svix/svix-webhooks/go"
	"github.com/waybill-dev/waybill/signature"
	"github.com/waybill-dev/waybill/tests/program"
)

// arrival is a delivery as its receiver got it.
type arrival struct {
	header http.Header
	body   []byte
}

// legacy is how a company signed before, and how its customers verify: with the library of whoever
// made the scheme where there is one, else with arithmetic of our own.
type legacy struct {
	secret func(i int) string
	verify func(a arrival, secret string) error
}

var errMismatch = fmt.Errorf("the signature is another")

var schemes = map[string]legacy{
	"stripe": {
		func(i int) string { return fmt.Sprintf("whsec_oldstripe%06d", i) },
		func(a arrival, secret string) error {
			return webhook.ValidatePayload(a.body, a.header.Get("Stripe-Signature"), secret)
		},
	},
	"github": {
		func(i int) string { return fmt.Sprintf("It's a secret é %d", i) },
		func(a arrival, secret string) error {
			return github.ValidateSignature(a.header.Get("X-Hub-Signature-256"), a.body, []byte(secret))
		},
	},
	"svix": {
		func(i int) string {
			return "whsec_" + base64.StdEncoding.EncodeToString(fmt.Appendf(nil, "twenty-four bytes, %07d", i))
		},
		func(a arrival, secret string) error {
			hook, err := svix.NewWebhook(secret)
			if err != nil {
				return err
			}
			return hook.Verify(a.body, a.header)
		},
	},
	"shopify": {
		func(i int) string { return fmt.Sprintf("shpss_%032x", i) },
		func(a arrival, secret string) error {
			mac := hmac.New(sha256.New, []byte(secret))
			mac.Write(a.body)
			if a.header.Get("X-Shopify-Hmac-Sha256") != base64.StdEncoding.EncodeToString(mac.Sum(nil)) {
				return errMismatch
			}
			return nil
		},
	},
	"house": {
		func(i int) string { return fmt.Sprintf("%016x", i+1) },
		func(a arrival, secret string) error {
			key, err := hex.DecodeString(secret)
			if err != nil {
				return err
			}
			mac := hmac.New(sha1.New, key)
			fmt.Fprintf(mac, "%s|%s|", a.header.Get("X-House-Time"), a.header.Get("Webhook-Id"))
			mac.Write(a.body)
			if a.header.Get("X-House-Sign") != "v=1; s="+hex.EncodeToString(mac.Sum(nil)) {
				return errMismatch
			}
			return nil
		},
	},
}

// A company with 3,000 customers who verify the old way moves without asking them: every delivery
// verifies by their libraries as they are, and by Standard Webhooks beside.
func TestImport_customersWhoVerifyTheOldWayNoticeNothing(t *testing.T) {
	endpoints, tenants := 3000, 30
	if testing.Short() {
		endpoints = 300
	}
	binary := program.Build(t)
	server := program.Serve(t, binary, "sqlite://"+filepath.Join(t.TempDir(), "waybill.db"))
	server.Call(http.MethodPut, "/v1/signature-schemes/house", []byte(`{"algorithm":"hmac-sha1","secret_encoding":"hex","secret_min":8,"signed_content":"{timestamp}|{event_id}|{body}",
		"encoding":"hex","headers":{"X-House-Sign":"v=1; s={signature}","X-House-Time":"{timestamp}"}}`), http.StatusCreated, nil)

	var mu sync.Mutex
	arrivals := map[string][]arrival{}
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		arrivals[r.URL.Path] = append(arrivals[r.URL.Path], arrival{r.Header.Clone(), body})
	}))
	t.Cleanup(receiver.Close)
	host := strings.TrimPrefix(receiver.URL, "http://")

	names := slices.Sorted(maps.Keys(schemes))
	standard := signature.GenerateSecret()
	var lines bytes.Buffer
	for i := range endpoints {
		scheme := names[i%len(names)]
		line, err := json.Marshal(map[string]any{
			"tenant":  fmt.Sprintf("tenant-%d", i%tenants),
			"uid":     fmt.Sprintf("customer-%d", i),
			"url":     fmt.Sprintf("http://user:p%%40ss@%s/%d", host, i),
			"signing": map[string]any{"schemes": []string{"standard", scheme}},
			"secrets": []map[string]string{{"value": standard}, {"scheme": scheme, "value": schemes[scheme].secret(i)}},
		})
		if err != nil {
			t.Fatal(err)
		}
		lines.Write(append(line, '\n'))
	}
	file := filepath.Join(t.TempDir(), "endpoints.ndjson")
	if err := os.WriteFile(file, lines.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	run := func(want map[string]int, args ...string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), binary, append([]string{"import", file, "--json", "--create-tenants"}, args...)...)
		cmd.Env = append(os.Environ(), "WAYBILL_URL="+server.URL, "WAYBILL_API_KEY="+server.APIKey)
		var failed bytes.Buffer
		cmd.Stderr = &failed
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("import: %v\n%s", err, failed.String())
		}
		got := map[string]int{}
		for line := range bytes.Lines(out) {
			var result struct{ Result string }
			if err := json.Unmarshal(line, &result); err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			got[result.Result]++
		}
		if !maps.Equal(got, want) {
			t.Fatalf("import %v: %v, want %v", args, got, want)
		}
	}
	began := time.Now()
	run(map[string]int{"would_create": endpoints}, "--dry-run")
	run(map[string]int{"created": endpoints})
	t.Logf("imported %d endpoints, after a dry run, in %v", endpoints, time.Since(began).Round(time.Millisecond))
	run(map[string]int{"updated": endpoints})

	const payload = `{ "id": 9007199254740993, "amount": 1.10, "text": "<&> é" }`
	body := []byte(`{"events":[`)
	for i := range tenants {
		if i > 0 {
			body = append(body, ',')
		}
		body = fmt.Appendf(body, `{"tenant":"tenant-%d","type":"order.paid","payload":%s}`, i, payload)
	}
	server.Call(http.MethodPost, "/v1/events/batch", append(body, "]}"...), http.StatusAccepted, nil)

	deadline := time.Now().Add(time.Minute)
	for arrived := 0; arrived < endpoints; {
		if time.Now().After(deadline) {
			t.Fatalf("%d of %d arrived", arrived, endpoints)
		}
		mu.Lock()
		arrived = len(arrivals)
		mu.Unlock()
		<-time.After(20 * time.Millisecond)
	}
	hook, err := standardwebhooks.NewWebhook(standard)
	if err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	for i := range endpoints {
		scheme := names[i%len(names)]
		got := arrivals[fmt.Sprintf("/%d", i)]
		if len(got) != 1 {
			t.Fatalf("customer %d got %d deliveries", i, len(got))
		}
		a := got[0]
		if err := schemes[scheme].verify(a, schemes[scheme].secret(i)); err != nil {
			t.Fatalf("customer %d, %s: %v; %v", i, scheme, err, a.header)
		}
		if err := hook.Verify(a.body, a.header); err != nil {
			t.Fatalf("customer %d, standard beside %s: %v", i, scheme, err)
		}
		if user, password, ok := (&http.Request{Header: a.header}).BasicAuth(); !ok || user != "user" || password != "p@ss" {
			t.Fatalf("customer %d: credentials of the URL came as %s:%s", i, user, password)
		}
		if string(a.body) != payload {
			t.Fatalf("customer %d: body %s", i, a.body)
		}
	}
}
