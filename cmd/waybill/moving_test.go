package main

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/tests/node"
)

// oldWay is a signature that somebody's customers verify today.
type oldWay struct {
	scheme     string
	definition string                                                    // "": a preset
	secret     func(i int) string                                        // as it is kept today
	verify     func(secret, url string, h http.Header, body []byte) bool // by its formula
}

func macOf(new func() hash.Hash, key []byte, parts ...string) []byte {
	mac := hmac.New(new, key)
	for _, part := range parts {
		io.WriteString(mac, part)
	}
	return mac.Sum(nil)
}

func keyOf(i int) []byte {
	sum := sha256.Sum256(fmt.Appendf(nil, "key %d", i))
	return sum[:]
}

var oldWays = []oldWay{
	{
		scheme: "stripe", secret: func(i int) string { return "whsec_" + hex.EncodeToString(keyOf(i)[:16]) },
		verify: func(secret, _ string, h http.Header, body []byte) bool {
			at, sig, ok := strings.Cut(strings.TrimPrefix(h.Get("Stripe-Signature"), "t="), ",v1=")
			return ok && sig == hex.EncodeToString(macOf(sha256.New, []byte(secret), at, ".", string(body)))
		},
	},
	{
		scheme: "github", secret: func(i int) string { return fmt.Sprintf("Geheimnis №%d", i) },
		verify: func(secret, _ string, h http.Header, body []byte) bool {
			return h.Get("X-Hub-Signature-256") == "sha256="+hex.EncodeToString(macOf(sha256.New, []byte(secret), string(body))) &&
				h.Get("X-GitHub-Event") == "order.paid"
		},
	},
	{
		scheme: "svix", secret: func(i int) string { return "whsec_" + base64.StdEncoding.EncodeToString(keyOf(i)) },
		verify: func(secret, _ string, h http.Header, body []byte) bool {
			key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
			mac := macOf(sha256.New, key, h.Get("svix-id"), ".", h.Get("svix-timestamp"), ".", string(body))
			return err == nil && h.Get("svix-signature") == "v1,"+base64.StdEncoding.EncodeToString(mac)
		},
	},
	{
		scheme:     "acme-2019",
		definition: `{"algorithm":"hmac-sha1","secret_encoding":"utf8","signed_content":"{url}{body}","encoding":"base64","headers":{"X-Acme-Signature":"{signature}"}}`,
		secret:     func(i int) string { return fmt.Sprintf("pw%d", i) },
		verify: func(secret, url string, h http.Header, body []byte) bool {
			return h.Get("X-Acme-Signature") == base64.StdEncoding.EncodeToString(macOf(sha1.New, []byte(secret), url, string(body)))
		},
	},
	{
		scheme:     "acme-2022",
		definition: `{"algorithm":"hmac-sha512","secret_encoding":"hex","signed_content":"{timestamp_ms}:{event_id}:{metadata.shop}:{body}","encoding":"hex","headers":{"X-Acme-V2":"ts={timestamp_ms};shop={metadata.shop};sig={signature}","X-Acme-Event":"{event_id}"}}`,
		secret:     func(i int) string { return hex.EncodeToString(keyOf(i)) },
		verify: func(secret, _ string, h http.Header, body []byte) bool {
			key, err := hex.DecodeString(secret)
			at, sig, ok := strings.Cut(strings.TrimPrefix(h.Get("X-Acme-V2"), "ts="), ";shop=north;sig=")
			return err == nil && ok && sig == hex.EncodeToString(macOf(sha512.New, key, at, ":", h.Get("X-Acme-Event"), ":north:", string(body)))
		},
	},
}

// arrived is a delivery as its receiver saw it.
type arrived struct {
	header http.Header
	body   []byte
}

// A company moves with all its customers, and asks none of them: what each verified yesterday, with
// the secret they have had for years, verifies today.
func TestImport_thousandsOfCustomersGoOnVerifyingTheOldWay(t *testing.T) {
	count := 3000
	if testing.Short() {
		count = 150
	}
	const payload = `{ "n": 1.0, "a": "<&> é🚀", "id": 9007199254740993 }`
	var mu sync.Mutex
	got := map[string][]arrived{}
	sink := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		got[r.URL.Path] = append(got[r.URL.Path], arrived{r.Header, body})
	}))
	t.Cleanup(sink.Close)
	s := serve(t)
	for _, way := range oldWays {
		if way.definition != "" {
			s.want(201, "PUT", "/v1/signature-schemes/"+way.scheme, way.definition)
		}
	}
	const tenants = 3
	for n := range tenants {
		s.want(201, "PUT", fmt.Sprintf("/v1/tenants/company-%d", n), `{"max_in_flight":50}`)
	}
	wayOf := func(i int) oldWay { return oldWays[i%len(oldWays)] }
	url := func(i int) string { return fmt.Sprintf("%s/customer/%d", sink.URL, i) }
	var lines bytes.Buffer
	for i := range count {
		way := wayOf(i)
		fmt.Fprintf(&lines, `{"tenant":"company-%d","uid":"customer-%d","url":%q,"secrets":[{"scheme":%q,"value":%q}],"signing":{"schemes":["standard",%q]}}`+"\n",
			i%tenants, i, url(i), way.scheme, way.secret(i), way.scheme)
	}
	file := filepath.Join(t.TempDir(), "endpoints.ndjson")
	if err := os.WriteFile(file, lines.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	bring := func(more ...string) string {
		t.Helper()
		var out, errs bytes.Buffer
		if code := run(t.Context(), append([]string{"import", file, "--parallel", "32"}, more...), streams{strings.NewReader(""), &out, &errs}, s.env); code != exitOK {
			t.Fatalf("import %v: exit code %d\n%.2000s%.2000s", more, code, out.String(), errs.String())
		}
		return out.String()
	}
	if said := bring(); !strings.Contains(said, fmt.Sprintf("created %d, updated 0", count)) {
		t.Fatal(said)
	}
	if said := bring("--dry-run"); !strings.Contains(said, fmt.Sprintf("would create 0, would update %d", count)) {
		t.Fatal(said)
	}
	for n := range tenants {
		s.want(202, "POST", fmt.Sprintf("/v1/tenants/company-%d/events", n), `{"type":"order.paid","metadata":{"shop":"north"},"payload":`+payload+`}`)
	}
	// As long as some arrive the others are on their way.
	arrivals := func() int { mu.Lock(); defer mu.Unlock(); return len(got) }
	for seen, since := 0, time.Now(); arrivals() < count; <-time.After(20 * time.Millisecond) {
		if n := arrivals(); n > seen {
			seen, since = n, time.Now()
		} else if time.Since(since) > 2*patience {
			t.Fatalf("%d of %d deliveries arrived, and no more", n, count)
		}
	}

	type npm struct {
		Scheme  string            `json:"scheme"`
		Secret  string            `json:"secret"`
		Headers map[string]string `json:"headers"`
		Body    string            `json:"body"`
	}
	var libraries []npm
	mu.Lock()
	defer mu.Unlock()
	for i := range count {
		way, secret := wayOf(i), wayOf(i).secret(i)
		for _, one := range got[fmt.Sprintf("/customer/%d", i)] {
			if string(one.body) != payload {
				t.Fatalf("customer %d got %q", i, one.body)
			}
			if !way.verify(secret, url(i), one.header, one.body) {
				t.Fatalf("customer %d does not verify %s by its formula: %v", i, way.scheme, one.header)
			}
			if way.verify(wayOf(i).secret(i+count), url(i), one.header, one.body) || one.header.Get("webhook-signature") == "" {
				t.Fatalf("customer %d verifies with another's secret, or has no new signature beside the old one", i)
			}
			if way.definition == "" {
				headers := map[string]string{}
				for name := range one.header {
					headers[strings.ToLower(name)] = one.header.Get(name)
				}
				libraries = append(libraries, npm{way.scheme, secret, headers, string(one.body)})
			}
		}
	}
	input, err := json.Marshal(libraries)
	if err != nil {
		t.Fatal(err)
	}
	cmd := node.Command(t, oldLibraries)
	var stderr bytes.Buffer
	cmd.Stdin, cmd.Stderr = bytes.NewReader(input), &stderr
	output, err := cmd.Output()
	if err != nil {
		t.Fatalf("node: %v\n%s", err, stderr.String())
	}
	var verdict struct {
		Verified map[string]int
		Refused  []string
	}
	if err := json.Unmarshal(output, &verdict); err != nil {
		t.Fatalf("node said %q: %v", output, err)
	}
	if len(verdict.Refused) > 0 {
		t.Errorf("%d are refused, the first: %s", len(verdict.Refused), verdict.Refused[0])
	}
	for _, scheme := range []string{"stripe", "github", "svix"} {
		if n := verdict.Verified[scheme]; n < count/len(oldWays) {
			t.Errorf("the library of %s verified %d", scheme, n)
		}
	}
}

// oldLibraries verifies deliveries with the libraries that the old schemes' own makers publish.
const oldLibraries = `
(async () => {
	const Stripe = require("stripe");
	const stripe = new Stripe("sk_test_none");
	const { Webhook } = require("svix");
	const github = await import("@octokit/webhooks-methods");
	const how = {
		stripe: async (c) => stripe.webhooks.signature.verifyHeader(c.body, c.headers["stripe-signature"], c.secret, 3600),
		github: async (c) => github.verify(c.secret, c.body, c.headers["x-hub-signature-256"]),
		svix: async (c) => { new Webhook(c.secret).verify(c.body, c.headers); return true; },
	};
	const verified = {}, refused = [];
	for (const c of JSON.parse(require("fs").readFileSync(0, "utf8"))) {
		try {
			if (!(await how[c.scheme](c))) throw new Error("false");
			verified[c.scheme] = (verified[c.scheme] || 0) + 1;
		} catch (e) { refused.push(c.scheme + ": " + e); }
	}
	console.log(JSON.stringify({ verified, refused }));
})();
`
