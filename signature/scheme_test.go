package signature_test

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/signature"
)

// published are vectors from the providers' own pages and libraries, by what they are of.
var published = []struct {
	name   string
	scheme signature.Scheme
	secret string
	at     int64
	url    string
	header map[string]string
	body   string
	id     string // verified
}{
	{
		name: "Standard Webhooks, v1", scheme: signature.Standard(), secret: vectorSecret, at: vectorTime, id: vectorID, body: vectorBody,
		header: map[string]string{"webhook-id": vectorID, "webhook-timestamp": "1614265330", "webhook-signature": vectorSignature},
	},
	{
		name: "Svix's spelling of the headers", scheme: signature.Standard(), secret: vectorSecret, at: vectorTime, id: vectorID, body: vectorBody,
		header: map[string]string{"svix-id": vectorID, "svix-timestamp": "1614265330", "svix-signature": vectorSignature},
	},
	{
		name: "Standard Webhooks, v1a", scheme: signature.Standard(), secret: "whpk_1SiA4o9hyqTCpIqC5V9HUakiiaeACeqfZTInDBbOir4=", at: vectorTime, id: vectorID, body: vectorBody,
		header: map[string]string{
			"webhook-id": vectorID, "webhook-timestamp": "1614265330",
			"webhook-signature": "v1a,hnO3f9T8Ytu9HwrXslvumlUpqtNVqkhqw/enGzPCXe5BdqzCInXqYXFymVJaA7AZdpXwVLPo3mNl8EM+m7TBAg==",
		},
	},
	{
		name: "GitHub's documentation", scheme: signature.GitHub(), secret: "It's a Secret to Everybody", body: "Hello, World!",
		header: map[string]string{"X-Hub-Signature-256": "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"},
	},
	{
		name: "Slack's documentation", scheme: signature.Slack(), secret: "8f742231b10e8888abcd99yyyzzz85a5", at: 1531420618,
		body: "token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V&channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text=&response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c",
		header: map[string]string{
			"X-Slack-Request-Timestamp": "1531420618",
			"X-Slack-Signature":         "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503",
		},
	},
}

func request(header map[string]string, url, body string) signature.Request {
	r := signature.Request{Method: http.MethodPost, URL: url, Header: http.Header{}, Body: []byte(body)}
	for name, value := range header {
		r.Header.Set(name, value)
	}
	return r
}

func key(t testing.TB, s signature.Scheme, secret string) signature.Key {
	t.Helper()
	k, err := s.Key(secret)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func verify(t testing.TB, s signature.Scheme, r signature.Request, at time.Time, keys ...signature.Key) (signature.Verified, error) {
	t.Helper()
	return s.Verify(t.Context(), r, keys, at)
}

func TestScheme_verifiesThePublishedVectors(t *testing.T) {
	for _, v := range published {
		t.Run(v.name, func(t *testing.T) {
			at := time.Unix(v.at, 0)
			k := key(t, v.scheme, v.secret)
			got, err := verify(t, v.scheme, request(v.header, v.url, v.body), at, k)
			if err != nil || got.ID != v.id {
				t.Fatalf("%+v, %v", got, err)
			}
			if _, err := verify(t, v.scheme, request(v.header, v.url, v.body+" "), at, k); reasonOf(err) != signature.Mismatch {
				t.Errorf("another body: %v", err)
			}
			if _, err := verify(t, v.scheme, request(v.header, v.url, v.body), at); reasonOf(err) != signature.Mismatch {
				t.Errorf("no key: %v", err)
			}
			if _, err := verify(t, v.scheme, request(v.header, v.url, v.body), at, signature.Key{}); reasonOf(err) != signature.Mismatch {
				t.Errorf("the zero key: %v", err)
			}
		})
	}
}

func reasonOf(err error) signature.Reason {
	reason, _ := signature.Why(err)
	return reason
}

// signing are the schemes that can sign, with a place where they put what must not be changed.
var signing = map[string]signature.SigningScheme{
	"Standard Webhooks": signature.Standard(), "Stripe": signature.Stripe(), "GitHub": signature.GitHub(), "Shopify": signature.Shopify(),
	"Slack": signature.Slack(), "Paddle": signature.Paddle(), "Square": signature.Square(), "Linear": signature.Linear(), "Twilio": signature.Twilio(),
	"Mailgun": signature.Mailgun(), "Discord": signature.Discord(), "SendGrid": signature.SendGrid(),
	"a token": signature.SharedToken{Header: "X-Gitlab-Token"}, "Basic": signature.BasicAuth{},
	"one of one's own": signature.HMAC{
		Header: "X-Acme-Signature", Form: "time={timestamp};sig={base64}", IDHeader: "X-Acme-Id", Signed: "{id}/{timestamp}/{url}/{body}",
		Secret: signature.SecretForm{Encoding: signature.Hex, Prefix: "acme_"}, Milliseconds: true,
	},
}

// signedBy is a request that s signs with a fresh key.
func signedBy(t testing.TB, s signature.SigningScheme, body string, at time.Time) (signature.Request, string, signature.Key) {
	t.Helper()
	secret, k, err := s.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	r := request(map[string]string{"Content-Type": "application/json"}, "https://hooks.example.com/in?x=1", body)
	if _, form := s.(signature.TwilioForm); form {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	if err := s.Sign(&r, "evt_1", []signature.Key{k}, at); err != nil {
		t.Fatal(err)
	}
	return r, secret, k
}

func TestScheme_verifiesWhatItSigns(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	for name, s := range signing {
		t.Run(name, func(t *testing.T) {
			r, secret, k := signedBy(t, s, `{"a":"🚀 é","n":1.0}`, now)
			if _, err := verify(t, s, r, now, k); err != nil {
				t.Errorf("with the key that signed: %v", err)
			}
			v, err := verify(t, s, r, now, otherKey(t, s), key(t, s, secret))
			if err != nil || v.Key != 1 {
				t.Errorf("with its secret, as the second of two: %+v, %v", v, err)
			}
			if _, err := verify(t, s, r, now, otherKey(t, s)); reasonOf(err) != signature.Mismatch {
				t.Errorf("with another key: %v", err)
			}
			if text := fmt.Sprintf("%v %+v %#v %s %q", k, k, k, k, []signature.Key{k}); strings.Contains(text, secret) {
				t.Errorf("printing a key shows its secret: %s", text)
			}
		})
	}
}

func otherKey(t testing.TB, s signature.SigningScheme) signature.Key {
	t.Helper()
	_, k, err := s.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// tokens sign nothing of the request, and Mailgun nothing of the body.
var signsBody = map[string]bool{"a token": false, "Basic": false, "Mailgun": false}

func TestScheme_noticesEveryChangedByte(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	for name, s := range signing {
		if signs, listed := signsBody[name]; listed && !signs {
			continue
		}
		t.Run(name, func(t *testing.T) {
			r, _, k := signedBy(t, s, `{"a":"b","n":1.0}`, now)
			for i := range r.Body {
				changed := r
				changed.Body = []byte(string(r.Body))
				changed.Body[i] ^= 1
				if _, err := verify(t, s, changed, now, k); err == nil {
					t.Errorf("byte %d changed to %q, and it verifies", i, changed.Body)
				}
			}
		})
	}
}

// tolerances are how far off a time may be, past and ahead, in seconds.
var tolerances = map[string][2]int64{
	"Standard Webhooks": {300, 300}, "Stripe": {300, 300}, "Slack": {300, 300}, "Paddle": {300, 300}, "one of one's own": {300, 300},
	"Discord": {900, 300}, "SendGrid": {25 * 3600, 300}, "Mailgun": {12 * 3600, 300},
}

func TestScheme_toleratesTimeOnBothSidesToTheSecond(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	for name, limits := range tolerances {
		s := signing[name]
		t.Run(name, func(t *testing.T) {
			for _, c := range []struct {
				off  int64
				want signature.Reason
			}{{-limits[0], ""}, {-limits[0] - 1, signature.TooOld}, {1, ""}, {limits[1], ""}, {limits[1] + 1, signature.TooNew}, {365 * 86400, signature.TooNew}} {
				r, _, k := signedBy(t, s, `{}`, now.Add(time.Duration(c.off)*time.Second))
				v, err := verify(t, s, r, now, k)
				if reasonOf(err) != c.want {
					t.Errorf("%d seconds off: %v, want %q", c.off, err, c.want)
				}
				if err == nil && v.At.Unix() != now.Unix()+c.off {
					t.Errorf("%d seconds off: read as %v", c.off, v.At)
				}
			}
		})
	}
}

func TestScheme_refusesSecretsThatLetStrangersIn(t *testing.T) {
	for name, s := range signing {
		t.Run(name, func(t *testing.T) {
			secret, _, err := s.NewKey()
			if err != nil {
				t.Fatal(err)
			}
			for _, bad := range []string{"", "short", " " + secret, secret + "\n"} {
				_, err := s.Key(bad)
				if !errors.Is(err, signature.ErrSecret) {
					t.Errorf("%q: %v", bad, err)
				} else if bad != "" && strings.Contains(err.Error(), strings.TrimSpace(bad)) {
					t.Errorf("the error shows the secret: %v", err)
				}
			}
		})
	}
}

func TestScheme_missingHeadersAreMissing(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	for name, s := range signing {
		if name == "Mailgun" {
			continue // its signature is in the body
		}
		t.Run(name, func(t *testing.T) {
			r, _, k := signedBy(t, s, `{}`, now)
			for _, h := range s.Headers() {
				r.Header.Del(h)
			}
			if _, err := verify(t, s, r, now, k); reasonOf(err) != signature.Missing {
				t.Errorf("%v", err)
			}
		})
	}
}

// The several ways in which a Stripe header has been read wrong.
func TestStripe_readsItsHeaderStrictly(t *testing.T) {
	s := signature.Stripe()
	now := time.Unix(1_800_000_000, 0)
	ts := strconv.FormatInt(now.Unix(), 10)
	r, _, k := signedBy(t, s, `{"id":"evt_1"}`, now)
	whole := r.Header.Get("Stripe-Signature")
	_, good, _ := strings.Cut(whole, "v1=")
	bad := strings.Repeat("0", 64)
	for _, c := range []struct {
		says  string
		lines []string
		want  signature.Reason
	}{
		{"as it was sent", []string{whole}, ""},
		{"the second of two, as during a roll", []string{"t=" + ts + ",v1=" + bad + ",v1=" + good}, ""},
		{"the first of two", []string{"t=" + ts + ",v1=" + good + ",v1=" + bad}, ""},
		{"after one that cannot be read, before one of another version", []string{"t=" + ts + ",v1=zz,v1=" + good + ",v0=" + bad}, ""},
		{"joined with spaces", []string{"t=" + ts + ", v1=" + good}, ""},
		{"on two lines", []string{"t=" + ts + ",v1=" + bad, "v1=" + good}, ""},
		{"time last", []string{"v1=" + good + ",t=" + ts}, ""},
		{"only of another version", []string{"t=" + ts + ",v0=" + good}, signature.Malformed},
		{"all unreadable", []string{"t=" + ts + ",v1=zz,v1=,v1"}, signature.Malformed},
		{"no time", []string{"v1=" + good}, signature.Malformed},
		{"two times", []string{"t=" + ts + ",t=1,v1=" + good}, signature.Malformed},
		{"time with a letter", []string{"t=" + ts + "x,v1=" + good}, signature.Malformed},
		{"time with a point", []string{"t=1e9,v1=" + good}, signature.Malformed},
		{"time with a sign", []string{"t=+" + ts + ",v1=" + good}, signature.Malformed},
		{"time in milliseconds", []string{"t=" + ts + "000,v1=" + good}, signature.Mismatch},
		{"another time", []string{"t=1800000001,v1=" + good}, signature.Mismatch},
		{"too many", []string{"t=" + ts + strings.Repeat(",v1="+bad, 17) + ",v1=" + good}, signature.Malformed},
		{"too long", []string{"t=" + ts + "," + strings.Repeat("x", 9000) + ",v1=" + good}, signature.Malformed},
		{"empty", []string{""}, signature.Missing},
		{"upper case hexadecimal", []string{"t=" + ts + ",v1=" + strings.ToUpper(good)}, ""},
	} {
		t.Run(c.says, func(t *testing.T) {
			for _, name := range []string{"Stripe-Signature", "stripe-signature", "STRIPE-SIGNATURE"} {
				r := r
				r.Header = http.Header{name: c.lines}
				if _, err := verify(t, s, r, now, k); reasonOf(err) != c.want || (err == nil) != (c.want == "") {
					t.Errorf("%s: %v, want %q", name, err, c.want)
				}
			}
		})
	}
}

func TestStandardWebhooks_readsItsHeadersStrictly(t *testing.T) {
	s := signature.Standard()
	now := time.Unix(vectorTime, 0)
	k := key(t, s, vectorSecret)
	base := map[string]string{"webhook-id": vectorID, "webhook-timestamp": "1614265330", "webhook-signature": vectorSignature}
	with := func(pairs ...string) map[string]string {
		h := map[string]string{}
		for name, value := range base {
			h[name] = value
		}
		for i := 0; i < len(pairs); i += 2 {
			h[pairs[i]] = pairs[i+1]
		}
		return h
	}
	bad := "v1,AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="
	good := strings.TrimPrefix(vectorSignature, "v1,")
	for _, c := range []struct {
		says   string
		header map[string]string
		want   signature.Reason
	}{
		{"the right one between wrong ones", with("webhook-signature", bad+" "+vectorSignature+" v2,"+good), ""},
		{"two spaces", with("webhook-signature", bad+"  "+vectorSignature), ""},
		{"no comma, no base64", with("webhook-signature", "v1 v1,%%% "+vectorSignature), ""},
		{"the right bytes as v1a", with("webhook-signature", "v1a,"+good), signature.Malformed},
		{"the right bytes as v2", with("webhook-signature", "v2,"+good), signature.Malformed},
		{"an unsigned svix-id beside it means nothing", with("svix-id", "msg_other"), ""},
		{"an id cut elsewhere", with("webhook-id", "msg_1.100"), signature.Malformed},
		{"an id with a space", with("webhook-id", "msg 1"), signature.Malformed},
		{"time in words", with("webhook-timestamp", "abc"), signature.Malformed},
		{"time in milliseconds", with("webhook-timestamp", "1614265330000"), signature.Mismatch},
		{"no time", with("webhook-timestamp", ""), signature.Missing},
		{"no id", with("webhook-id", ""), signature.Missing},
	} {
		t.Run(c.says, func(t *testing.T) {
			v, err := verify(t, s, request(c.header, "", vectorBody), now, k)
			if reasonOf(err) != c.want || (err == nil) != (c.want == "") {
				t.Errorf("%v, want %q", err, c.want)
			}
			if err == nil && v.ID != vectorID {
				t.Errorf("verified id %q", v.ID)
			}
		})
	}
}

func TestStandardWebhooks_signsWithAPrivateKey(t *testing.T) {
	s := signature.Standard()
	// Seed and public key of the test in Svix's server.
	private := key(t, s, "whsk_6Xb/dCcHpPea21PS1N9VY/NZW723CEc77N4rJCubMbfVKIDij2HKpMKkioLlX0dRqSKJp4AJ6p9lMicMFs6Kvg==")
	r := request(nil, "", vectorBody)
	if err := s.Sign(&r, vectorID, []signature.Key{private}, time.Unix(vectorTime, 0)); err != nil {
		t.Fatal(err)
	}
	const want = "v1a,hnO3f9T8Ytu9HwrXslvumlUpqtNVqkhqw/enGzPCXe5BdqzCInXqYXFymVJaA7AZdpXwVLPo3mNl8EM+m7TBAg=="
	if got := r.Header.Get("webhook-signature"); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestHMAC_saysWhatCannotWork(t *testing.T) {
	ok := signature.HMAC{Header: "X-Sig", Form: "{hex}", Signed: "{body}"}
	for _, c := range []struct {
		says   string
		change func(*signature.HMAC)
		want   string
	}{
		{"no header", func(s *signature.HMAC) { s.Header = "" }, "Header is not set"},
		{"no body", func(s *signature.HMAC) { s.Signed = "{url}" }, "must have {body}"},
		{"an unknown name", func(s *signature.HMAC) { s.Signed = "{body}{metod}" }, "{metod}"},
		{"a brace left open", func(s *signature.HMAC) { s.Signed = "{body" }, "without its }"},
		{"two signatures", func(s *signature.HMAC) { s.Form = "{hex},{base64}" }, "once"},
		{"no signature", func(s *signature.HMAC) { s.Form = "v1=" }, "each entry is text"},
		{"a time that is nowhere", func(s *signature.HMAC) { s.Signed = "{timestamp}{body}" }, "says where it is"},
		{"a time that is not signed", func(s *signature.HMAC) { s.TimeHeader = "X-Time" }, "not signed"},
		{"a time in two places", func(s *signature.HMAC) {
			s.Signed, s.Form, s.TimeHeader = "{timestamp}{body}", "t={timestamp},v={hex}", "X-Time"
		}, "in Form and in TimeHeader"},
		{"an id that is not signed", func(s *signature.HMAC) { s.IDHeader = "X-Id" }, "belong together"},
		{"a negative tolerance", func(s *signature.HMAC) { s.Tolerance = -1 }, "negative"},
	} {
		t.Run(c.says, func(t *testing.T) {
			s := ok
			c.change(&s)
			if _, err := s.Key("0123456789abcdef"); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
	if _, err := ok.Key("0123456789abcdef"); err != nil {
		t.Error(err)
	}
}

// A secret with a letter outside of ASCII counts by its UTF-8 bytes.
func TestGitHub_secretsAreUTF8(t *testing.T) {
	s := signature.GitHub()
	// printf '{"tier":"🚀 Gold é"}' | openssl dgst -sha256 -hmac 'clé secrète 2024'
	r := request(map[string]string{"X-Hub-Signature-256": "sha256=" + utf8Digest}, "", `{"tier":"🚀 Gold é"}`)
	if _, err := verify(t, s, r, time.Now(), key(t, s, "clé secrète 2024")); err != nil {
		t.Error(err)
	}
}

func TestTwilio_publicURL(t *testing.T) {
	s := signature.Twilio()
	now := time.Unix(1_800_000_000, 0)
	secret, k, err := s.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	sign := func(url string) signature.Request {
		r := request(map[string]string{"Content-Type": "application/x-www-form-urlencoded"}, url, "Digits=1234&To=%2B18005551212")
		if err := s.Sign(&r, "", []signature.Key{k}, now); err != nil {
			t.Fatal(err)
		}
		return r
	}
	for _, c := range []struct{ signed, seen string }{
		{"https://mycompany.com/myapp?foo=1&bar=2", "https://mycompany.com/myapp?foo=1&bar=2"},
		{"https://mycompany.com/myapp", "https://mycompany.com:8443/myapp"},
		{"https://mycompany.com:443/myapp", "https://mycompany.com/myapp"},
		{"http://mycompany.com:80/myapp", "http://mycompany.com/myapp"},
	} {
		r := sign(c.signed)
		r.URL = c.seen
		if _, err := verify(t, s, r, now, key(t, s, secret)); err != nil {
			t.Errorf("signed for %s, seen as %s: %v", c.signed, c.seen, err)
		}
	}
	r := sign("https://mycompany.com/myapp")
	r.URL = "https://mycompany.com/other"
	if _, err := verify(t, s, r, now, k); reasonOf(err) != signature.Mismatch {
		t.Errorf("another path: %v", err)
	}
	r = sign("https://mycompany.com/myapp")
	r.Body = append(r.Body, "&Digits=EVIL"...)
	if _, err := verify(t, s, r, now, k); reasonOf(err) != signature.Malformed {
		t.Errorf("a field twice: %v", err)
	}
}

func TestAnyOf_readsASecretBothWaysWhileAProviderChanges(t *testing.T) {
	text := signature.HMAC{Header: "X-Sig", Form: "{hex}", Signed: "{body}"}
	decoded := text
	decoded.Secret = signature.SecretForm{Encoding: signature.Base64, Prefix: "whsec_"}
	both := signature.AnyOf{text, decoded}
	const secret = vectorSecret
	now := time.Now()
	for _, s := range []signature.HMAC{text, decoded} {
		r := request(nil, "", `{}`)
		if err := s.Sign(&r, "", []signature.Key{key(t, s, secret)}, now); err != nil {
			t.Fatal(err)
		}
		if _, err := verify(t, both, r, now, key(t, both, secret)); err != nil {
			t.Errorf("%v: %v", s.Secret, err)
		}
		r.Body = []byte(`[]`)
		if _, err := verify(t, both, r, now, key(t, both, secret)); reasonOf(err) != signature.Mismatch {
			t.Errorf("%v, another body: %v", s.Secret, err)
		}
	}
	if _, err := both.Key(""); !errors.Is(err, signature.ErrSecret) {
		t.Errorf("an empty secret: %v", err)
	}
}

const utf8Digest = "7bc93d857d06dbec295de3158732cc4e6e77e4b1c2c25dedd5c077f2d5cf3690"
