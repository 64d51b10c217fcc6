package signature_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/signature"
	"github.com/waybill-dev/waybill/tests/node"
)

// npmProgram signs and verifies with the npm package standardwebhooks what it reads as JSON.
const npmProgram = `
const { Webhook } = require("standardwebhooks");
const cases = JSON.parse(require("fs").readFileSync(0, "utf8"));
console.log(JSON.stringify(cases.map((c) => {
	const verify = (secret) => {
		try {
			new Webhook(secret).verify(c.body, { "webhook-id": c.id, "webhook-timestamp": c.timestamp, "webhook-signature": c.signature });
			return "";
		} catch (e) { return String(e); }
	};
	return {
		signature: new Webhook(c.secret).sign(c.id, new Date(Number(c.timestamp) * 1000), c.body),
		first: verify(c.secret),
		second: verify(c.second),
		stranger: verify(c.stranger),
	};
})));
`

type npmCase struct {
	Secret    string `json:"secret"`
	Second    string `json:"second"`   // signs as well
	Stranger  string `json:"stranger"` // does not
	ID        string `json:"id"`
	Timestamp string `json:"timestamp"`
	Body      string `json:"body"`
	Signature string `json:"signature"`
}

// The library our customers verify with on Node.js, in both directions.
func TestSigner_agreesWithNpmStandardwebhooks(t *testing.T) {
	now := time.Now()
	var cases []npmCase
	for _, body := range []string{
		`{}`, `null`, `{"test": 2432232314}`, "{ \"b\": 1.0, \"a\": \"<&>\u2028\", \"id\": 9007199254740993 }", `{"tier":"🚀 Gold é"}`, "[1.10,\n 1E2]", `"\u0000"`,
	} {
		c := npmCase{
			Secret: signature.GenerateSecret(), Second: signature.GenerateSecret(), Stranger: signature.GenerateSecret(),
			ID: "evt_01jd", Timestamp: strconv.FormatInt(now.Unix(), 10), Body: body,
		}
		c.Signature = signer(t, c.Secret, c.Second).Sign(c.ID, now, []byte(body))
		cases = append(cases, c)
	}
	input, err := json.Marshal(cases)
	if err != nil {
		t.Fatal(err)
	}
	cmd := node.Command(t, npmProgram)
	var stderr bytes.Buffer
	cmd.Stdin, cmd.Stderr = bytes.NewReader(input), &stderr
	output, err := cmd.Output()
	if err != nil {
		t.Fatalf("node: %v\n%s", err, stderr.String())
	}
	var results []struct{ Signature, First, Second, Stranger string }
	if err := json.Unmarshal(output, &results); err != nil || len(results) != len(cases) {
		t.Fatalf("node said %q: %v", output, err)
	}
	for i, r := range results {
		c := cases[i]
		if r.First != "" || r.Second != "" {
			t.Errorf("%s: npm refuses our signature: %q, %q", c.Body, r.First, r.Second)
		}
		if r.Stranger == "" {
			t.Errorf("%s: npm accepts our signature under another secret", c.Body)
		}
		v := signature.Verifier{Secrets: []signature.Secret{secret(t, c.Secret)}}
		header := http.Header{"Webhook-Id": {c.ID}, "Webhook-Timestamp": {c.Timestamp}, "Webhook-Signature": {r.Signature}}
		if _, err := v.VerifyAt(now, header, []byte(c.Body)); err != nil {
			t.Errorf("%s: we refuse npm's signature: %v", c.Body, err)
		}
	}
}
