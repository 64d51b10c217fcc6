package listen

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/signature"
)

func secret(t *testing.T) signature.Secret {
	t.Helper()
	s, err := signature.ParseSecret(signature.GenerateSecret())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// signed makes a request as a sender would.
func signed(t *testing.T, s signature.Secret, at time.Time, body string) *http.Request {
	t.Helper()
	signer, err := signature.NewSigner(s)
	if err != nil {
		t.Fatal(err)
	}
	req := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body))
	req.Header.Set("webhook-id", "evt_1")
	req.Header.Set("webhook-timestamp", strconv.FormatInt(at.Unix(), 10))
	req.Header.Set("webhook-signature", signer.Sign("evt_1", at, []byte(body)))
	req.Header.Set("waybill-event-type", "payment.succeeded")
	return req
}

func TestReceiver_showsOneLineAndAnswers(t *testing.T) {
	known, other := secret(t), secret(t)
	for name, row := range map[string]struct {
		secrets []signature.Secret
		signer  signature.Secret
		age     time.Duration
		status  int
		want    string
	}{
		"a good signature":          {[]signature.Secret{known}, known, 0, 204, `  payment\.succeeded  evt_1  signature ok  10 bytes$`},
		"one of two secrets":        {[]signature.Secret{other, known}, known, 0, 204, `  signature ok  `},
		"another secret's":          {[]signature.Secret{known}, other, 0, 401, `  SIGNATURE WRONG: no signature matches the secret  `},
		"an hour old":               {[]signature.Secret{known}, known, time.Hour, 401, `  SIGNATURE WRONG: signed more than five minutes from now; compare the clocks  `},
		"no secret to check with":   {nil, known, 0, 204, `  signature not checked  `},
		"signed by a clock to come": {[]signature.Secret{known}, known, -time.Hour, 401, `SIGNATURE WRONG: signed more than five minutes`},
	} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			r := &Receiver{Secrets: row.secrets, Out: &out}
			answer := httptest.NewRecorder()
			r.ServeHTTP(answer, signed(t, row.signer, time.Now().Add(-row.age), `{"n": 1.0}`))
			if answer.Code != row.status {
				t.Errorf("status %d, want %d", answer.Code, row.status)
			}
			line := strings.TrimSuffix(out.String(), "\n")
			if strings.Contains(line, "\n") || !regexp.MustCompile(row.want).MatchString(line) {
				t.Errorf("line %q, want one that matches %s", line, row.want)
			}
		})
	}
}

func TestReceiver_jsonLinesKeepTheBody(t *testing.T) {
	var out strings.Builder
	s := secret(t)
	r := &Receiver{Secrets: []signature.Secret{s}, Out: &out, JSON: true, Status: 503}
	answer := httptest.NewRecorder()
	r.ServeHTTP(answer, signed(t, s, time.Now(), `{"n":1.0,"a":"<&>"}`))
	if answer.Code != 503 {
		t.Errorf("status %d, want the one asked for", answer.Code)
	}
	var got Received
	if err := json.Unmarshal([]byte(out.String()), &got); err != nil {
		t.Fatal(err)
	}
	if got.Verified == nil || !*got.Verified || got.ID != "evt_1" || got.Bytes != 19 || got.Status != 503 {
		t.Errorf("line %s", out.String())
	}
	out.Reset()
	r.ServeHTTP(httptest.NewRecorder(), signed(t, s, time.Now(), "\x00\xff"))
	if err := json.Unmarshal([]byte(out.String()), &got); err != nil || string(got.BodyBytes) != "\x00\xff" {
		t.Errorf("line %s, %v", out.String(), err)
	}
}

func TestReceiver_senderCannotTouchTheTerminal(t *testing.T) {
	var out strings.Builder
	req := httptest.NewRequest(http.MethodPost, "/", strings.NewReader("\x1b[2Jgone"))
	req.Header["Waybill-Event-Type"] = []string{"\x1b]0;owned\x07"}
	(&Receiver{Out: &out, ShowBody: true}).ServeHTTP(httptest.NewRecorder(), req)
	if strings.ContainsAny(out.String(), "\x1b\x07") {
		t.Errorf("control characters in %q", out.String())
	}
}

func TestReceiver_takesOnlyPost(t *testing.T) {
	var out strings.Builder
	answer := httptest.NewRecorder()
	(&Receiver{Out: &out}).ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/", nil))
	if answer.Code != http.StatusMethodNotAllowed || answer.Header().Get("Allow") != "POST" || out.Len() != 0 {
		t.Errorf("status %d, Allow %q, shown %q", answer.Code, answer.Header().Get("Allow"), out.String())
	}
}
