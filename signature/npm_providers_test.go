package signature_test

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/signature"
	"github.com/waybill-dev/waybill/tests/node"
)

// officialProgram asks each provider's own library about the requests it reads as JSON.
const officialProgram = `
const { WebhooksHelper } = require("square");
const { verifyKey } = require("discord-interactions");
const { LinearWebhookClient } = require("@linear/sdk/webhooks");
require("@shopify/shopify-api/adapters/node");
const { shopifyApi, LATEST_API_VERSION, ApiVersion } = require("@shopify/shopify-api");
const verify = {
	square: (c, body) => WebhooksHelper.verifySignature({ requestBody: body.toString("utf8"), signatureHeader: c.header["x-square-hmacsha256-signature"], signatureKey: c.secret, notificationUrl: c.url }),
	discord: (c, body) => verifyKey(body, c.header["x-signature-ed25519"], c.header["x-signature-timestamp"], c.secret),
	linear: (c, body) => new LinearWebhookClient(c.secret).verify(body, c.header["linear-signature"]),
	shopify: async (c, body) => {
		const shopify = shopifyApi({ apiKey: "key", apiSecretKey: c.secret, hostName: "hooks.example.com", apiVersion: LATEST_API_VERSION || Object.values(ApiVersion)[0], isEmbeddedApp: false, logger: { log: () => {} } });
		const rawRequest = { method: "POST", url: "/", headers: { ...c.header, "x-shopify-topic": "orders/create", "x-shopify-shop-domain": "a.myshopify.com", "x-shopify-webhook-id": "1", "x-shopify-api-version": "2025-01" } };
		return (await shopify.webhooks.validate({ rawBody: body.toString("utf8"), rawRequest, rawResponse: {} })).valid;
	},
};
(async () => {
	const out = [];
	for (const c of JSON.parse(require("fs").readFileSync(0, "utf8"))) {
		try { out.push(Boolean(await verify[c.library](c, Buffer.from(c.body, "base64")))); } catch (e) { out.push(false); }
	}
	console.log(JSON.stringify(out));
})();
`

type officialCase struct {
	Library string            `json:"library"`
	Secret  string            `json:"secret"`
	URL     string            `json:"url"`
	Header  map[string]string `json:"header"`
	Body    []byte            `json:"body"`

	what string
	want bool
}

// Square, Discord, Linear and Shopify publish libraries for Node.js that verify their webhooks. They
// take what we sign, and refuse what we refuse.
func TestSchemes_agreeWithTheProvidersOwnLibraries(t *testing.T) {
	now := time.Now()
	schemes := map[string]signature.SigningScheme{
		"square": signature.Square(), "discord": signature.Discord(), "linear": signature.Linear(), "shopify": signature.Shopify(),
	}
	const address = "https://hooks.example.com/in?a=1&b=%20"
	var cases []officialCase
	for library, s := range schemes {
		for _, body := range []string{`{}`, `{"webhookTimestamp": 1.0, "a": "<&>é\u2028🚀"}`, "{ \"n\": 1E2 }\r\n", `[1.10,  2]`} {
			if library == "linear" { // whose library wants the time that Linear's bodies have
				body = fmt.Sprintf("{ \"body\": %s, \"webhookTimestamp\": %d }", body, now.UnixMilli())
			}
			secret, key, err := s.NewKey()
			if err != nil {
				t.Fatal(err)
			}
			r := signature.Request{Method: http.MethodPost, URL: address, Header: http.Header{}, Body: []byte(body)}
			if err := s.Sign(&r, "evt_1", []signature.Key{key}, now); err != nil {
				t.Fatal(err)
			}
			if library == "discord" { // whose page shows the public half
				raw, err := hex.DecodeString(secret)
				if err != nil || len(raw) != 64 {
					t.Fatalf("a private key of %d bytes, %v", len(raw), err)
				}
				secret = hex.EncodeToString(raw[32:])
			}
			header := map[string]string{}
			for name := range r.Header {
				header[strings.ToLower(name)] = r.Header.Get(name)
			}
			good := officialCase{library, secret, address, header, r.Body, "as it was signed", true}
			changed := good
			changed.what, changed.want, changed.Body = "with another body", false, append([]byte(" "), r.Body...)
			cases = append(cases, good, changed)
			if library == "square" {
				moved := good
				moved.what, moved.want, moved.URL = "sent to another address", false, address+"x"
				cases = append(cases, moved)
			}
		}
	}
	input, err := json.Marshal(cases)
	if err != nil {
		t.Fatal(err)
	}
	cmd := node.CommandWith(t, "providers", officialProgram)
	var stderr bytes.Buffer
	cmd.Stdin, cmd.Stderr = bytes.NewReader(input), &stderr
	output, err := cmd.Output()
	if err != nil {
		t.Fatalf("node: %v\n%s", err, stderr.String())
	}
	var verdicts []bool
	if err := json.Unmarshal(output, &verdicts); err != nil || len(verdicts) != len(cases) {
		t.Fatalf("node said %q: %v", output, err)
	}
	for i, c := range cases {
		if verdicts[i] != c.want {
			t.Errorf("%s says %v of %q %s", c.Library, verdicts[i], c.Body, c.what)
		}
		header := http.Header{}
		for name, value := range c.Header {
			header.Set(name, value)
		}
		s := schemes[c.Library]
		key, err := s.Key(c.Secret)
		if err != nil {
			t.Fatal(err)
		}
		_, err = s.Verify(t.Context(), signature.Request{Method: http.MethodPost, URL: c.URL, Header: header, Body: c.Body}, []signature.Key{key}, now)
		if (err == nil) != c.want {
			t.Errorf("we say %v of %s's %q %s", err, c.Library, c.Body, c.what)
		}
	}
}
