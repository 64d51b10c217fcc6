package signature_test

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/signature"
	"pgregory.net/rapid"
)

// The public test vector of Standard Webhooks.
const (
	vectorSecret    = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	vectorID        = "msg_p5jXN8AQM9LWM0D4loKWxJek"
	vectorTime      = 1614265330
	vectorBody      = `{"test": 2432232314}`
	vectorSignature = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
)

func secret(t testing.TB, text string) signature.Secret {
	t.Helper()
	s, err := signature.ParseSecret(text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func signer(t testing.TB, texts ...string) *signature.Signer {
	t.Helper()
	var all []signature.Secret
	for _, text := range texts {
		all = append(all, secret(t, text))
	}
	s, err := signature.NewSigner(all...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestSigner_publicVector(t *testing.T) {
	for name, text := range map[string]string{
		"with the prefix": vectorSecret,
		"bare base64":     strings.TrimPrefix(vectorSecret, "whsec_"),
	} {
		t.Run(name, func(t *testing.T) {
			got := signer(t, text).Sign(vectorID, time.Unix(vectorTime, 0), []byte(vectorBody))
			if got != vectorSignature {
				t.Errorf("signature %s, want %s", got, vectorSignature)
			}
			if strings.HasPrefix(got, "v1,ELhqG0Ku") || strings.HasPrefix(got, "v1,TcxlhK9b") {
				t.Error("the secret's text was used as the key")
			}
		})
	}
}

func TestSigner_signsOnceForEverySecret(t *testing.T) {
	other := signature.GenerateSecret()
	both := signer(t, vectorSecret, other).Sign(vectorID, time.Unix(vectorTime, 0), []byte(vectorBody))
	alone := signer(t, other).Sign(vectorID, time.Unix(vectorTime, 0), []byte(vectorBody))
	if want := vectorSignature + " " + alone; both != want {
		t.Errorf("signatures %q, want %q", both, want)
	}
}

func TestNewSigner_refusesToSignWithNothing(t *testing.T) {
	if _, err := signature.NewSigner(); !errors.Is(err, signature.ErrSecret) {
		t.Errorf("no secret: error %v", err)
	}
	if _, err := signature.NewSigner(signature.Secret{}); !errors.Is(err, signature.ErrSecret) {
		t.Errorf("zero secret: error %v", err)
	}
}

func TestParseSecret_refusesWhatItWouldHaveToGuess(t *testing.T) {
	encode := func(n int) string {
		return base64.StdEncoding.EncodeToString([]byte(strings.Repeat("k", n)))
	}
	for name, row := range map[string]struct{ text, says string }{
		"empty":                     {"", "empty"},
		"only the prefix":           {"whsec_", "nothing after"},
		"a signature's mark":        {"v1," + vectorSecret, "v1,"},
		"space before":              {" " + vectorSecret, "white space around"},
		"line feed after":           {vectorSecret + "\n", "white space around"},
		"line feed inside":          {vectorSecret[:20] + "\n" + vectorSecret[20:], "white space in"},
		"space after the prefix":    {"whsec_ " + encode(24), "white space in"},
		"short":                     {"whsec_" + encode(23), "23 bytes"},
		"short and bare":            {encode(8), "8 bytes"},
		"long":                      {"whsec_" + encode(65), "65 bytes"},
		"not base64":                {"whsec_" + strings.Repeat("!", 32), "not base64"},
		"without its padding":       {"whsec_" + strings.TrimRight(encode(32), "="), "trailing ="},
		"url-safe alphabet":         {"whsec_" + strings.Repeat("-_", 16), "alphabet"},
		"stray bits in the padding": {"whsec_" + strings.Repeat("A", 42) + "B=", "not base64"},
		"prefix twice":              {"whsec_" + vectorSecret, "alphabet"},
		"an Ed25519 key":            {"whsk_" + encode(32), "Ed25519"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := signature.ParseSecret(row.text)
			if !errors.Is(err, signature.ErrSecret) {
				t.Fatalf("error %v, want one about the secret", err)
			}
			if !strings.Contains(err.Error(), row.says) {
				t.Errorf("error %q does not say %q", err, row.says)
			}
			if body := strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(row.text), "v1,")); len(body) > 8 && strings.Contains(err.Error(), body[len(body)-8:]) {
				t.Errorf("error %q echoes the secret", err)
			}
		})
	}
}

func TestParseSecret_acceptsTheWholeRange(t *testing.T) {
	for n := signature.MinKey; n <= signature.MaxKey; n++ {
		text := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("k", n)))
		secret(t, text)
		secret(t, "whsec_"+text)
	}
}

func TestGenerateSecret_isUsableAndNeverTheSame(t *testing.T) {
	seen := map[string]bool{}
	for range 100 {
		text := signature.GenerateSecret()
		secret(t, text)
		if seen[text] || !strings.HasPrefix(text, "whsec_") || strings.HasSuffix(text, "=") {
			t.Fatalf("bad secret of %d characters", len(text))
		}
		seen[text] = true
	}
}

func TestSecret_printsNothing(t *testing.T) {
	s := secret(t, vectorSecret)
	encoded, err := json.Marshal(map[string]any{"s": s})
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{fmt.Sprint(s), fmt.Sprintf("%v %+v %#v %s %q %x %d", s, s, s, s, s, s, s), string(encoded), s.LogValue().String()} {
		if strings.Contains(text, "MfKQ") || strings.Contains(text, "0x") || !strings.Contains(text, "[secret]") {
			t.Errorf("a secret prints as %q", text)
		}
	}
}

// message is a signed message that a row may spoil.
type message struct {
	header http.Header
	body   []byte
}

func signed(t testing.TB, at time.Time, body string, secrets ...string) message {
	t.Helper()
	return message{
		header: http.Header{
			"Webhook-Id":        {"evt_1"},
			"Webhook-Timestamp": {fmt.Sprint(at.Unix())},
			"Webhook-Signature": {signer(t, secrets...).Sign("evt_1", at, []byte(body))},
		},
		body: []byte(body),
	}
}

func TestVerifier_verdicts(t *testing.T) {
	now := time.Unix(1_800_000_000, 999_999_999)
	const body = "{ \"b\": 1.0, \"a\": \"<&>\", \"id\": 9007199254740993 }"
	good := signed(t, now, body, vectorSecret).header.Get("webhook-signature")
	digits := strings.TrimPrefix(good, "v1,")
	stamp := func(s string) func(*message) {
		return func(m *message) { m.header.Set("webhook-timestamp", s) }
	}
	signatures := func(lines ...string) func(*message) {
		return func(m *message) { m.header["Webhook-Signature"] = lines }
	}
	rename := func(change func(string) string) func(*message) {
		return func(m *message) {
			renamed := http.Header{}
			for k, v := range m.header {
				renamed[change(k)] = v
			}
			m.header = renamed
		}
	}
	resigned := func(at time.Time) func(*message) {
		return func(m *message) { *m = signed(t, at, body, vectorSecret) }
	}
	for name, row := range map[string]struct {
		spoil func(*message)
		want  error
	}{
		"as signed":                          {func(*message) {}, nil},
		"header names in lower case":         {rename(strings.ToLower), nil},
		"header names in upper case":         {rename(strings.ToUpper), nil},
		"one byte of the body changed":       {func(m *message) { m.body[10] = '2' }, signature.ErrSignature},
		"body printed again":                 {func(m *message) { m.body = []byte(`{"b":1,"a":"<&>","id":9007199254740993}`) }, signature.ErrSignature},
		"body gone":                          {func(m *message) { m.body = nil }, signature.ErrSignature},
		"another id":                         {func(m *message) { m.header.Set("webhook-id", "evt_2") }, signature.ErrSignature},
		"another time within the tolerance":  {stamp(fmt.Sprint(now.Unix() - 1)), signature.ErrSignature},
		"no id":                              {func(m *message) { m.header.Del("webhook-id") }, signature.ErrMalformed},
		"empty id":                           {func(m *message) { m.header.Set("webhook-id", "") }, signature.ErrMalformed},
		"no timestamp":                       {func(m *message) { m.header.Del("webhook-timestamp") }, signature.ErrMalformed},
		"no signature":                       {func(m *message) { m.header.Del("webhook-signature") }, signature.ErrMalformed},
		"two ids":                            {func(m *message) { m.header.Add("webhook-id", "evt_2") }, signature.ErrMalformed},
		"the same id twice":                  {func(m *message) { m.header.Add("webhook-id", "evt_1") }, nil},
		"two ids in two cases":               {func(m *message) { m.header["webhook-id"] = []string{"evt_2"} }, signature.ErrMalformed},
		"two timestamps":                     {func(m *message) { m.header.Add("webhook-timestamp", "1") }, signature.ErrMalformed},
		"bad signature, then the good":       {signatures("v1,BADSIG " + good), nil},
		"good, bad, and a later version":     {signatures(good + " v1,BADSIG v2,BADSIG"), nil},
		"no comma, then the good":            {signatures("v1 " + good), nil},
		"not base64, then the good":          {signatures("v1,%%% " + good), nil},
		"two spaces between":                 {signatures("v1,BADSIG  " + good), nil},
		"two lines, the bad one first":       {signatures("v1,BADSIG", good), nil},
		"two lines joined by a proxy":        {signatures("v1,BADSIG, " + good + ", v1,BADSIG"), nil},
		"the right bytes as v1a":             {signatures("v1a," + digits), signature.ErrSignature},
		"the right bytes as v2":              {signatures("v2," + digits), signature.ErrSignature},
		"the right bytes as V1":              {signatures("V1," + digits), signature.ErrSignature},
		"the right bytes alone":              {signatures(digits), signature.ErrSignature},
		"the right bytes without padding":    {signatures(strings.TrimRight(good, "=")), signature.ErrSignature},
		"the right bytes and more":           {signatures(good + "A"), signature.ErrSignature},
		"an empty signature":                 {signatures(""), signature.ErrSignature},
		"only the version":                   {signatures("v1,"), signature.ErrSignature},
		"300 seconds old":                    {resigned(now.Add(-300 * time.Second)), nil},
		"301 seconds old":                    {resigned(now.Add(-301 * time.Second)), signature.ErrTimestamp},
		"300 seconds ahead":                  {resigned(now.Add(300 * time.Second)), nil},
		"301 seconds ahead":                  {resigned(now.Add(301 * time.Second)), signature.ErrTimestamp},
		"an hour ahead":                      {resigned(now.Add(time.Hour)), signature.ErrTimestamp},
		"time in milliseconds":               {stamp(fmt.Sprint(now.UnixMilli())), signature.ErrTimestamp},
		"time is text":                       {stamp("abc"), signature.ErrMalformed},
		"time with an exponent":              {stamp("1e9"), signature.ErrMalformed},
		"time with a point":                  {stamp("1800000000.0"), signature.ErrMalformed},
		"time after a space":                 {stamp(" 1800000000"), signature.ErrMalformed},
		"time with a sign":                   {stamp("+1800000000"), signature.ErrMalformed},
		"negative time":                      {stamp("-1"), signature.ErrMalformed},
		"time with a leading zero":           {stamp("01800000000"), signature.ErrMalformed},
		"time with an underscore":            {stamp("1_800_000_000"), signature.ErrMalformed},
		"hexadecimal time":                   {stamp("0x6b49d200"), signature.ErrMalformed},
		"time of twenty digits":              {stamp("99999999999999999999"), signature.ErrMalformed},
		"the largest time there is":          {stamp("9223372036854775807"), signature.ErrMalformed},
		"empty time":                         {stamp(""), signature.ErrMalformed},
		"time in digits of another script":   {stamp("١٨٠٠٠٠٠٠٠٠"), signature.ErrMalformed},
		"signed with a secret nobody shared": {func(m *message) { *m = signed(t, now, body, signature.GenerateSecret()) }, signature.ErrSignature},
	} {
		t.Run(name, func(t *testing.T) {
			m := signed(t, now, body, vectorSecret)
			row.spoil(&m)
			v := signature.Verifier{Secrets: []signature.Secret{secret(t, vectorSecret)}}
			got, err := v.VerifyAt(now, m.header, m.body)
			if !errors.Is(err, row.want) || (err == nil) != (row.want == nil) {
				t.Fatalf("error %v, want %v", err, row.want)
			}
			if row.want == nil && got.ID != "evt_1" {
				t.Errorf("verified id %q, want evt_1", got.ID)
			}
			if row.want != nil && got != (signature.Message{}) {
				t.Errorf("a message that was not verified came back: %+v", got)
			}
		})
	}
}

func TestVerifier_emptyBodiesVerify(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	v := signature.Verifier{Secrets: []signature.Secret{secret(t, vectorSecret)}}
	for _, body := range []string{"", "{}", "null"} {
		m := signed(t, now, body, vectorSecret)
		if _, err := v.VerifyAt(now, m.header, m.body); err != nil {
			t.Errorf("body %q: %v", body, err)
		}
	}
}

func TestVerifier_withoutUsableSecretsVerifiesNothing(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	m := signed(t, now, "{}", vectorSecret)
	for name, secrets := range map[string][]signature.Secret{"none": nil, "a zero one": {{}}} {
		v := signature.Verifier{Secrets: secrets}
		if _, err := v.VerifyAt(now, m.header, m.body); !errors.Is(err, signature.ErrSignature) {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

func TestVerifier_ownToleranceReplacesTheDefault(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	m := signed(t, now.Add(-11*time.Second), "{}", vectorSecret)
	v := signature.Verifier{Secrets: []signature.Secret{secret(t, vectorSecret)}, Tolerance: 10 * time.Second}
	if _, err := v.VerifyAt(now, m.header, m.body); !errors.Is(err, signature.ErrTimestamp) {
		t.Errorf("11 s old with 10 s tolerance: error %v", err)
	}
}

// Whatever is signed verifies with each of its secrets; a changed byte never does.
func TestVerifier_acceptsExactlyWhatWasSigned(t *testing.T) {
	first, second := signature.GenerateSecret(), signature.GenerateSecret()
	both := signer(t, first, second)
	now := time.Unix(1_800_000_000, 0)
	rapid.Check(t, func(t *rapid.T) {
		body := rapid.SliceOf(rapid.Byte()).Draw(t, "body")
		id := rapid.StringMatching(`[A-Za-z0-9_.-]{1,64}`).Draw(t, "id")
		key := rapid.SampledFrom([]string{first, second}).Draw(t, "secret")
		parsed, err := signature.ParseSecret(key)
		if err != nil {
			t.Fatal(err)
		}
		v := signature.Verifier{Secrets: []signature.Secret{parsed}}
		header := http.Header{
			"Webhook-Id":        {id},
			"Webhook-Timestamp": {fmt.Sprint(now.Unix())},
			"Webhook-Signature": {both.Sign(id, now, body)},
		}
		if _, err := v.VerifyAt(now, header, body); err != nil {
			t.Fatalf("what was signed does not verify: %v", err)
		}
		changed := append(append([]byte(nil), body...), rapid.Byte().Draw(t, "more"))
		if _, err := v.VerifyAt(now, header, changed); !errors.Is(err, signature.ErrSignature) {
			t.Fatalf("a longer body verifies: %v", err)
		}
	})
}

func BenchmarkSigner_oneKilobyte(b *testing.B) {
	s := signer(b, vectorSecret)
	body := []byte(strings.Repeat("x", 1024))
	at := time.Unix(vectorTime, 0)
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		s.Sign(vectorID, at, body)
	}
}

func BenchmarkVerifier_oneKilobyte(b *testing.B) {
	now := time.Unix(vectorTime, 0)
	m := signed(b, now, strings.Repeat("x", 1024), vectorSecret)
	v := signature.Verifier{Secrets: []signature.Secret{secret(b, vectorSecret)}}
	b.SetBytes(int64(len(m.body)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := v.VerifyAt(now, m.header, m.body); err != nil {
			b.Fatal(err)
		}
	}
}
