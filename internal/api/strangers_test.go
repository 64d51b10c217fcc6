package api

import (
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/waybill-dev/waybill/internal/outbox"
	"github.com/waybill-dev/waybill/internal/thin"
)

// Whoever may change a URL must not learn what is sent with its deliveries.
func TestEndpoint_secretHeadersFollowTheOrigin(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		f.tenant("acme")
		const canary = "Bearer CANARY_7f3a"
		made := f.call("POST", acmeEndpoints, `{"url":"https://hooks.example.com/a","secret_headers":{"authorization":"`+canary+`","x-key":"k"}}`).want(201)
		at := acmeEndpoints + "/" + made.text("id")
		if got := fmt.Sprint(made.get("secret_headers")); got != "[Authorization X-Key]" {
			t.Errorf("shown as %s", got)
		}
		stored := func(want string) {
			t.Helper()
			if got := fmt.Sprint(f.call("GET", at, nil).get("secret_headers")); got != want {
				t.Errorf("secret headers are %s, want %s", got, want)
			}
		}
		for _, url := range []string{"https://hooks.example.com:8443/a", "http://hooks.example.com/a", "https://evil.example.com/a"} {
			f.call("PATCH", at, `{"url":"`+url+`"}`).wantProblem(422, CodeSecretHeadersRequired)
			f.call("PUT", at, `{"url":"`+url+`","headers":{"x-other":"1"}}`).wantProblem(422, CodeSecretHeadersRequired)
		}
		stored("[Authorization X-Key]")
		f.call("PATCH", at, `{"url":"https://hooks.example.com:443/b?c"}`).want(200)
		stored("[Authorization X-Key]")
		// Names are compared without case, and which of two values is meant nobody knows.
		for _, field := range []string{"headers", "secret_headers"} {
			for _, method := range []string{"PATCH", "PUT"} {
				f.call(method, at, `{"url":"https://hooks.example.com/a","`+field+`":{"x-twice":"1","X-Twice":"2"}}`).wantProblem(422, CodeDuplicateField)
			}
		}
		// Sending one of them again does not let the other through.
		f.call("PATCH", at, `{"url":"https://other.example.com/","secret_headers":{"X-KEY":"k2"}}`).want(200)
		stored("[X-Key]")
		f.call("PATCH", at, `{"url":"https://third.example.com/","drop_secret_headers":true}`).want(200)
		stored("[]")
		f.call("PATCH", at, `{"secret_headers":{"a":"1","b":"2"}}`).want(200)
		f.call("PATCH", at, `{"secret_headers":{"A":null}}`).want(200)
		stored("[B]")
		f.call("PATCH", at, `{"secret_headers":null}`).want(200)
		stored("[]")
		for _, address := range []string{at, acmeEndpoints, "/v1/endpoints"} {
			if strings.Contains(string(f.call("GET", address, nil).body), "CANARY") {
				t.Errorf("%s shows a secret header", address)
			}
		}
		if strings.Contains(f.log.String(), "CANARY") {
			t.Error("the log has a secret header")
		}
	})
}

func TestEndpoint_signsByManySchemes(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		f.tenant("acme")
		f.call("PUT", "/v1/signature-schemes/old", `{"algorithm":"hmac-sha1","secret_encoding":"hex","secret_min":8,"signed_content":"{url}|{body}|{metadata.shop}","encoding":"base64url","headers":{"X-Old":"v0:{signature}"}}`).want(201)
		made := f.call("POST", acmeEndpoints, `{"url":"https://hooks.example.com/","metadata":{"shop":"Zürich"},"signing":{"schemes":["standard","stripe","old","v1a"]},
			"secrets":[{"scheme":"old","value":"00112233445566ff"}]}`).want(201)
		at := acmeEndpoints + "/" + made.text("id")
		if got := fmt.Sprint(made.get("signing", "schemes")); got != "[standard stripe old ed25519]" {
			t.Errorf("schemes %s", got)
		}
		secrets := map[string]string{}
		var public string
		for _, s := range made.get("secrets").([]any) {
			s := s.(map[string]any)
			secrets[s["scheme"].(string)] = s["value"].(string)
			if key, ok := s["public_key"].(string); ok {
				public = key
			}
		}
		if made.text("secret") != secrets["standard"] || secrets["stripe"] == "" || secrets["old"] != "00112233445566ff" {
			t.Errorf("secrets %v", secrets)
		}
		if body := string(f.call("GET", at, nil).body); strings.Contains(body, secrets["stripe"]) || strings.Contains(body, "whsk_") || !strings.Contains(body, public) {
			t.Error("reading the endpoint shows a secret, or not the public key")
		}

		const payload = `{ "n": 1.0 }`
		p := f.call("POST", at+"/preview", `{"type":"order.paid","payload":`+payload+`}`).want(200)
		header := func(name string) string { return p.text("headers", name) }
		body, err := base64.StdEncoding.DecodeString(p.text("body_base64"))
		if err != nil || string(body) != payload {
			t.Errorf("body %q, %v", body, err)
		}
		id, at0 := header("webhook-id"), header("webhook-timestamp")
		// Each by its own arithmetic.
		mac := hmac.New(sha256.New, []byte(secrets["stripe"]))
		mac.Write([]byte(at0 + "." + payload))
		if want := "t=" + at0 + ",v1=" + hex.EncodeToString(mac.Sum(nil)); header("stripe-signature") != want {
			t.Errorf("stripe: %s, want %s", header("stripe-signature"), want)
		}
		key, _ := base64.StdEncoding.DecodeString(strings.TrimPrefix(secrets["standard"], "whsec_"))
		mac = hmac.New(sha256.New, key)
		mac.Write([]byte(id + "." + at0 + "." + payload))
		parts := strings.Fields(header("webhook-signature"))
		if len(parts) != 2 || parts[0] != "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)) {
			t.Fatalf("standard: %v", parts)
		}
		verifier, _ := base64.StdEncoding.DecodeString(strings.TrimPrefix(public, "whpk_"))
		signed, _ := base64.StdEncoding.DecodeString(strings.TrimPrefix(parts[1], "v1a,"))
		if !ed25519.Verify(verifier, []byte(id+"."+at0+"."+payload), signed) {
			t.Error("the key pair's signature does not verify")
		}
		doc := f.call("GET", "/.well-known/waybill/acme/keys", nil, "Authorization", "-").want(200)
		if doc.text("keys", 0, "public_key") != public || doc.text("keys", 0, "x") != base64.RawURLEncoding.EncodeToString(verifier) {
			t.Errorf("key document %s", doc.body)
		}
		f.call("GET", "/.well-known/waybill/nobody/keys", nil, "Authorization", "-").wantProblem(404, CodeUnknownTenant)
		mac = hmac.New(sha1.New, []byte("\x00\x11\x22\x33\x44\x55\x66\xff"))
		mac.Write([]byte("https://hooks.example.com/|" + payload + "|Zürich"))
		if want := "v0:" + base64.RawURLEncoding.EncodeToString(mac.Sum(nil)); header("x-old") != want {
			t.Errorf("old: %s, want %s", header("x-old"), want)
		}

		// A scheme is taken on only with a secret; made first, it rotates apart from the others.
		f.call("PATCH", at, `{"signing":{"schemes":["github"]}}`).wantProblem(422, CodeInvalidField)
		rotated := f.call("POST", at+"/secret/rotate", `{"scheme":"github"}`).want(200)
		if rotated.get("previous_expires_at") != nil || rotated.text("scheme") != "github" {
			t.Errorf("first secret of a scheme: %s", rotated.body)
		}
		f.call("PATCH", at, `{"signing":{"schemes":["github","standard"]}}`).want(200)
		f.call("DELETE", "/v1/signature-schemes/old", nil).want(204)
		f.call("POST", at+"/secret/rotate", `{"scheme":"github","secret":""}`).want(200)
		f.call("POST", at+"/secret/rotate", `{"scheme":"svix","secret":"short"}`).wantProblem(422, CodeInvalidSecret)
	})
}

func TestSignatureScheme_kinds(t *testing.T) {
	f := newFixture(t)
	f.tenant("acme")
	full := `{"algorithm":"hmac-sha512","secret_encoding":"base64","secret_prefix":"k_","secret_min":16,"secret_max":64,"signed_content":"{timestamp_ms}.{event_id}.{body}","encoding":"base64","headers":{"X-Acme":"{signature}","X-At":"{timestamp_ms}"},"repeat":{"X-Acme":" {signature}"}}`
	at := "/v1/signature-schemes/acme"
	made := f.call("PUT", at, full).want(201)
	if f.call("PUT", at, full).want(200).text("updated_at") < made.text("created_at") || f.call("GET", at, nil).want(200).text("signed_content") != "{timestamp_ms}.{event_id}.{body}" {
		t.Error("the scheme does not come back")
	}
	if f.call("PUT", "/v1/signature-schemes/mine", `{"preset":"stripe","headers":{"X-Mine":"{signature}"}}`).want(201).text("signed_content") != "{timestamp}.{body}" {
		t.Error("a preset is no beginning")
	}
	for _, preset := range []string{"stripe", "github", "shopify", "svix", "convoy", "outpost"} {
		if f.call("GET", "/v1/signature-schemes/"+preset, nil).want(200).get("preset") != true {
			t.Errorf("%s is no preset", preset)
		}
	}
	if n := len(f.call("GET", "/v1/signature-schemes", nil).want(200).get("data").([]any)); n != 8 {
		t.Errorf("%d schemes listed, want 2 and 6 presets", n)
	}
	for body, want := range map[string]string{
		`{}`: "algorithm",
		strings.Replace(full, "hmac-sha512", "md5", 1):                                "algorithm",
		strings.Replace(full, `"encoding":"base64",`, `"encoding":"rot13",`, 1):       "encoding",
		strings.Replace(full, ".{body}", "", 1):                                       "signed_content",
		strings.Replace(full, "{event_id}", "{secret}", 1):                            "signed_content",
		strings.Replace(full, "{event_id}", "{event_id", 1):                           "signed_content",
		strings.Replace(full, `"{signature}"`, `"x"`, 1):                              "repeat.X-Acme",
		strings.Replace(full, `"X-At"`, `"webhook-id"`, 1):                            "headers",
		strings.Replace(full, `"X-At"`, `"X At"`, 1):                                  "headers.X At",
		strings.Replace(full, `"X-At":"{timestamp_ms}"`, `"X-At":"{body}"`, 1):        "headers.X-At",
		strings.Replace(full, `"X-At":"{timestamp_ms}"`, `"X-At":"a\u000ab"`, 1):      "headers.X-At",
		strings.Replace(full, `"secret_min":16`, `"secret_min":65`, 1):                "secret_min",
		strings.Replace(full, `"repeat":{"X-Acme"`, `"repeat":{"X-Nobody"`, 1):        "repeat.X-Nobody",
		strings.Replace(full, `"secret_encoding":"base64"`, `"secret_encoding":1`, 1): "secret_encoding",
	} {
		if got := f.call("PUT", at, body).want(422).problem().Errors[0].Path; got != want {
			t.Errorf("%s: complains of %s, want %s", body, got, want)
		}
	}
	for _, name := range []string{"standard", "ed25519", "v1a", "Upper"} {
		f.call("PUT", "/v1/signature-schemes/"+name, full).wantProblem(422, CodeInvalidScheme)
	}
	f.call("POST", acmeEndpoints, `{"url":"https://hooks.example.com/","signing":{"schemes":["acme"]}}`).want(201)
	f.call("DELETE", at, nil).wantProblem(409, CodeSchemeInUse)
	f.call("DELETE", "/v1/signature-schemes/mine", nil).want(204)
	f.call("DELETE", "/v1/signature-schemes/mine", nil).wantProblem(404, CodeNotFound)
	f.call("GET", "/v1/signature-schemes/mine", nil).wantProblem(404, CodeNotFound)
}

// A request that made an endpoint can be sent again: the secret that was made with it stays.
func TestEndpoint_aSchemeThatIsNotNamedKeepsItsSecrets(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		f.tenant("acme")
		body := `{"url":"https://hooks.example.com/","signing":{"schemes":["standard","github","v1a"]},"secrets":[{"scheme":"github","value":"old"}]}`
		made := f.call("PUT", acmeEndpoints+"/crm", body).want(201)
		shown := func() map[string]string {
			all := map[string]string{}
			for _, s := range f.call("GET", acmeEndpoints+"/crm", nil).want(200).get("secrets").([]any) {
				s := s.(map[string]any)
				all[s["scheme"].(string)] += s["fingerprint"].(string)
			}
			return all
		}
		before := shown()
		if len(before) != 3 || made.text("secret") == "" {
			t.Fatalf("made with %v", before)
		}
		f.call("PUT", acmeEndpoints+"/crm", body).want(200)
		if diff := cmp.Diff(before, shown()); diff != "" {
			t.Errorf("after the same request again (- before, + after)\n%s", diff)
		}
		f.call("PUT", acmeEndpoints+"/crm", strings.Replace(body, `"old"`, `"new"`, 1)).want(200)
		after := shown()
		if after["github"] == before["github"] || after["standard"] != before["standard"] || after["ed25519"] != before["ed25519"] {
			t.Errorf("before %v, after another secret of github %v", before, after)
		}
		// What is no longer signed with is not kept.
		f.call("PUT", acmeEndpoints+"/crm", `{"signing":{"schemes":["github"]},"secrets":[{"scheme":"github","value":"new"}]}`).want(200)
		if left := shown(); len(left) != 1 || left["github"] != after["github"] {
			t.Errorf("left are %v", left)
		}
	})
}

// A secret brought along from elsewhere may be a word. What a list shows of it must not tell a guess
// from a miss, and must still tell secrets apart.
func TestEndpoint_fingerprintsOfSecretsAreKeyed(t *testing.T) {
	shown := func(key []byte) (first, second, first2 string) {
		f := newFixture(t, func(c *Config) { c.FingerprintKey = key })
		f.tenant("acme")
		of := func(secret string) string {
			a := f.call("POST", acmeEndpoints, `{"url":"https://hooks.example.com/","signing":{"schemes":["github"]},"secrets":[{"scheme":"github","value":"`+secret+`"}]}`).want(201)
			return f.call("GET", acmeEndpoints+"/"+a.text("id"), nil).want(200).text("secrets", 0, "fingerprint")
		}
		return of("hunter2"), of("swordfish"), of("hunter2")
	}
	first, second, again := shown([]byte("a key"))
	mac := hmac.New(sha256.New, []byte("a key"))
	mac.Write([]byte("hunter2"))
	if want := hex.EncodeToString(mac.Sum(nil))[:8]; first != want || again != want || second == first {
		t.Errorf("%s, %s, %s; want %s for the first and the last", first, second, again, want)
	}
	plain := sha256.Sum256([]byte("hunter2"))
	other, _, _ := shown(nil)
	if other == first || other == hex.EncodeToString(plain[:4]) {
		t.Errorf("without a key it is %s", other)
	}
}

// Of a scheme that signs or sends some of an event's metadata, a preview is the request only with it.
func TestPreview_takesTheEventsMetadata(t *testing.T) {
	f := newFixture(t)
	f.tenant("acme")
	f.call("PUT", "/v1/signature-schemes/shop", `{"algorithm":"hmac-sha256","secret_encoding":"utf8","signed_content":"{metadata.shop}|{metadata.region}|{body}","encoding":"hex","headers":{"X-Shop":"{metadata.shop}","X-Sign":"{signature}"}}`).want(201)
	at := acmeEndpoints + "/" + f.endpoint("acme", `"metadata":{"region":"eu","shop":"of the endpoint"},"signing":{"schemes":["shop"]},"secrets":[{"scheme":"shop","value":"s3cret"}]`)
	sign := func(content string) string {
		mac := hmac.New(sha256.New, []byte("s3cret"))
		mac.Write([]byte(content))
		return hex.EncodeToString(mac.Sum(nil))
	}
	p := f.call("POST", at+"/preview", `{"type":"a.b","payload":{"n":1.0},"metadata":{"shop":"north"}}`).want(200)
	if p.text("headers", "x-shop") != "north" || p.text("headers", "x-sign") != sign(`north|eu|{"n":1.0}`) {
		t.Errorf("%s", p.body)
	}
	for _, none := range []string{`null`, `{}`} {
		p := f.call("POST", at+"/preview", `{"type":"a.b","payload":1,"metadata":`+none+`}`).want(200)
		if p.text("headers", "x-shop") != "of the endpoint" || p.text("headers", "x-sign") != sign(`of the endpoint|eu|1`) {
			t.Errorf("%s: %s", none, p.body)
		}
	}
	bad := f.call("POST", at+"/preview", `{"type":"a.b","payload":1,"metadata":{"shop":1,"header:X-A":"b"}}`).wantProblem(422, CodeInvalidField)
	var paths []string
	for _, item := range bad.Errors {
		paths = append(paths, item.Path)
	}
	if len(paths) == 0 || paths[0] != "metadata.shop" {
		t.Errorf("complains of %v", paths)
	}
}

func TestPreview_saysWhyThereIsNone(t *testing.T) {
	f := newFixture(t)
	f.tenant("acme")
	at := acmeEndpoints + "/" + f.endpoint("acme", `"secret_headers":{"authorization":"CANARY"},"headers":{"x-plain":"1"}`)
	p := f.call("POST", at+"/preview", `{"type":"a.b","payload":"\u0000"}`).want(200)
	if p.text("headers", "authorization") != "[secret]" || p.text("headers", "x-plain") != "1" || p.text("headers", "content-length") != "8" || p.text("method") != "POST" {
		t.Errorf("%s", p.body)
	}
	if strings.Contains(string(p.body), "CANARY") {
		t.Error("the preview shows a secret header")
	}
	f.call("POST", acmeEndpoints+"/nobody/preview", `{"type":"a.b","payload":1}`).wantProblem(404, CodeNotFound)
	f.call("POST", at+"/preview", `{"type":"a b","payload":1}`).wantProblem(422, CodeInvalidField)
	f.call("POST", at+"/preview", `{"type":"a.b","payload":"`+strings.Repeat("x", 256<<10)+`"}`).wantProblem(413, CodePayloadTooLarge)
	f.call("PUT", "/v1/signature-schemes/gone", houseScheme).want(201)
	f.call("PATCH", at, `{"secrets":[{"scheme":"gone","value":"s"}],"signing":{"schemes":["gone"]}}`).want(200)
	e, err := f.store.Endpoint(t.Context(), outbox.TenantRef{}, outbox.EndpointRef{ID: mustEndpoint(t, at)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.store.EditEndpoint(t.Context(), e.Tenant, outbox.EndpointRef{ID: e.ID}, time.Now(), func(e *outbox.Endpoint) ([]outbox.Command, error) {
		e.Secrets = []outbox.Secret{{Scheme: "gone", Value: "s", ExpiresAt: time.Now().Add(-time.Hour)}}
		return nil, nil
	}); err != nil {
		t.Fatal(err)
	}
	f.call("POST", at+"/preview", `{"type":"a.b","payload":1}`).wantProblem(409, CodeEndpointInactive)
}

func mustEndpoint(t *testing.T, address string) outbox.EndpointID {
	t.Helper()
	id, err := outbox.ParseEndpointID(address[strings.LastIndexByte(address, '/')+1:])
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func TestPayload_erase(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		f.tenant("acme")
		f.tenant("other")
		f.endpoint("acme", "")
		d := f.delivered("a.b")
		f.finish(d, 404, outbox.DeadPermanent, false)
		at := "/v1/tenants/acme/events/" + d.Event.String()
		if f.call("GET", at, nil).text("payload_state") != "kept" {
			t.Error("not kept at first")
		}
		f.call("DELETE", "/v1/tenants/other/events/"+d.Event.String()+"/payload", nil).wantProblem(404, CodeNotFound)
		f.call("GET", at+"/payload", nil).want(200)
		f.call("DELETE", at+"/payload", nil).want(204)
		f.call("DELETE", at+"/payload", nil).want(204)
		shown := f.call("GET", at, nil).want(200)
		if shown.text("payload_state") != "erased" || shown.text("state") != "failed" || shown.get("payload_bytes") != float64(len("{}")) {
			t.Errorf("%s", shown.body)
		}
		f.call("GET", at+"/payload", nil).wantProblem(410, CodePayloadGone)
		f.call("POST", acmeDeliveries+"/"+d.ID.String()+"/replay", `{}`).wantProblem(409, CodePayloadGone)
		f.call("DELETE", "/v1/tenants/acme/events/evt_nothing/payload", nil).wantProblem(404, CodeNotFound)
	})
}

func TestThin_theAddressAnswersTheBytesForAWhile(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		f.tenant("acme")
		const payload = `{ "a": 1.10, "b": "<&>" }`
		id := f.publish("acme", "a.b", payload)
		event, err := outbox.ParseEventID(id)
		if err != nil {
			t.Fatal(err)
		}
		tenant, err := f.store.Tenant(t.Context(), "acme")
		if err != nil {
			t.Fatal(err)
		}
		now := time.Now()
		link := func(e outbox.EventID, of outbox.TenantID, until time.Time) string {
			t.Helper()
			body := f.thin.Body(thin.Event{ID: e, Tenant: of, Type: "a.b", CreatedAt: now}, until)
			var sent map[string]string
			if err := json.Unmarshal(body, &sent); err != nil || len(sent) != 5 || sent["id"] != e.String() || sent["type"] != "a.b" ||
				sent["expires_at"] != until.UTC().Format("2006-01-02T15:04:05.000Z")[:19]+".000Z" || sent["created_at"] != now.UTC().Format("2006-01-02T15:04:05.000Z") {
				t.Errorf("thin body %s: %v", body, err)
			}
			u, err := url.Parse(sent["url"])
			if err != nil || u.Host != "hooks.example.com" {
				t.Fatalf("%s: %v", sent["url"], err)
			}
			return u.RequestURI()
		}
		good := link(event, tenant.ID, now.Add(time.Hour))
		got := f.call("GET", good, nil, "Authorization", "-").want(200)
		if string(got.body) != payload {
			t.Errorf("fetched %q", got.body)
		}
		for what, bad := range map[string]string{
			"another time":    strings.Replace(good, "expires=", "expires=1", 1),
			"another tenant":  strings.Replace(good, "tenant=", "tenant=1", 1),
			"no signature":    good[:strings.Index(good, "&signature=")],
			"another event":   strings.Replace(good, id, outbox.NewEventID(now).String(), 1),
			"nothing at all":  thin.Path + id,
			"a cut signature": good[:len(good)-1],
		} {
			if a := f.call("GET", bad, nil, "Authorization", "-"); a.status != 403 || a.problem().Code != CodeLinkInvalid {
				t.Errorf("%s: %d %s", what, a.status, a.body)
			}
		}
		f.call("GET", link(event, tenant.ID, now.Add(-time.Second)), nil, "Authorization", "-").wantProblem(403, CodeLinkExpired)
		f.call("GET", link(outbox.NewEventID(now), tenant.ID, now.Add(time.Hour)), nil, "Authorization", "-").wantProblem(410, CodePayloadGone)
		f.call("GET", link(event, tenant.ID+1000, now.Add(time.Hour)), nil, "Authorization", "-").wantProblem(410, CodePayloadGone)
		f.call("GET", thin.Path+"nothing", nil, "Authorization", "-").wantProblem(404, CodeNotFound)
		f.call("DELETE", "/v1/tenants/acme/events/"+id+"/payload", nil).want(204)
		f.call("GET", good, nil, "Authorization", "-").wantProblem(410, CodePayloadGone)
	})
}

func TestEventType_schemaWarnsOrRefuses(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		f.tenant("acme")
		const schema = `{"type":"object","required":["id"],"properties":{"id":{"type":"integer","maximum":9007199254740993}}}`
		made := f.call("PUT", "/v1/event-types/order.paid", `{"description":"An order is paid.","schema":`+schema+`,"example":{ "id": 1.0 }}`).want(201)
		if made.text("on_invalid") != "warn" || !strings.Contains(string(made.body), `"example":{"id":1.0}`) {
			t.Errorf("%s", made.body)
		}
		publish := func(payload string) *reply {
			return f.call("POST", "/v1/tenants/acme/events", `{"type":"order.paid","payload":`+payload+`}`)
		}
		if a := publish(`{"id":9007199254740993}`).want(202); strings.Contains(string(a.body), "warnings") {
			t.Errorf("warned of the largest: %s", a.body)
		}
		if a := publish(`{"id":9007199254740994}`).want(202); a.text("warnings", 0, "path") != "payload.id" {
			t.Errorf("not warned of one more: %s", a.body)
		}
		f.call("PUT", "/v1/event-types/order.paid", `{"on_invalid":"refuse"}`).want(200)
		f.later(2 * time.Second)
		if p := publish(`{"id":"x"}`).wantProblem(422, CodePayloadSchema); p.Errors[0].Path != "payload.id" {
			t.Errorf("%+v", p)
		}
		p := f.call("POST", "/v1/tenants/acme/events/batch", `{"events":[{"type":"order.paid","payload":{"id":1}},{"type":"order.paid","payload":{}}]}`).wantProblem(422, CodePayloadSchema)
		if p.Errors[0].Index == nil || *p.Errors[0].Index != 1 || p.Errors[0].Path != "payload" {
			t.Errorf("%+v", p.Errors)
		}
		f.call("POST", "/v1/tenants/acme/events", `{"type":"order.other","payload":{}}`).want(202)
		f.call("PUT", "/v1/event-types/order.paid", `{"schema":null,"archived":true}`).want(200)
		f.later(2 * time.Second)
		publish(`{}`).want(202)
		for _, bad := range []string{`{"type":"nonsense"}`, `{"$ref":"https://hooks.example.com/schema.json"}`, `{"$ref":"file:///etc/passwd"}`, `{"$ref":"#"}`, `5`} {
			f.call("PUT", "/v1/event-types/order.paid", `{"schema":`+bad+`}`).wantProblem(422, CodeInvalidSchema)
		}
		f.call("PUT", "/v1/event-types/order..paid", `{}`).wantProblem(422, CodeInvalidField)
		f.call("GET", "/v1/event-types/order.paid", nil, "Authorization", "Bearer "+acmeKey).want(200)
		if n := len(f.call("GET", "/v1/event-types", nil).want(200).get("data").([]any)); n != 1 {
			t.Errorf("%d types", n)
		}
		f.call("DELETE", "/v1/event-types/order.paid", nil).want(204)
		f.call("DELETE", "/v1/event-types/order.paid", nil).wantProblem(404, CodeNotFound)
		f.call("GET", "/v1/event-types/order.paid", nil).wantProblem(404, CodeNotFound)
	})
}
