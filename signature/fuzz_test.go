package signature_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/signature"
)

// A header that the signer did not write never verifies, and none makes the verifier fall over.
func FuzzVerifier(f *testing.F) {
	secret, err := signature.ParseSecret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	if err != nil {
		f.Fatal(err)
	}
	at := time.Unix(1614265330, 0)
	body := []byte(`{"test": 2432232314}`)
	const right = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
	for _, seed := range []string{right, "", "v1", "v1,", "v1a," + right[3:], "v2," + right[3:], "v1,BAD " + right, right + ",", "v1,%%%", "  " + right + "  v1,x"} {
		f.Add("msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", seed)
	}
	f.Add("msg_p5jXN8AQM9LWM0D4loKWxJek", "1e9", right)
	f.Add("msg_other", "01614265330", right)
	f.Fuzz(func(t *testing.T, id, timestamp, header string) {
		h := http.Header{"Webhook-Id": {id}, "Webhook-Timestamp": {timestamp}, "Webhook-Signature": {header}}
		v := signature.Verifier{Secrets: []signature.Secret{secret}}
		message, err := v.VerifyAt(at, h, body)
		if err != nil {
			return
		}
		signer, _ := signature.NewSigner(secret)
		again := http.Header{"Webhook-Id": {message.ID}, "Webhook-Timestamp": {timestamp}, "Webhook-Signature": {signer.Sign(id, message.At, body)}}
		if _, err := v.VerifyAt(at, again, body); err != nil || message.ID != id {
			t.Errorf("%q of %q at %q is taken for genuine", header, id, timestamp)
		}
	})
}
