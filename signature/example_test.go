package signature_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/waybill-dev/waybill/signature"
)

func ExampleParseSecret() {
	_, err := signature.ParseSecret("v1,whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	fmt.Println(err)
	// Output: signing secret: begins with "v1,", which marks a signature; leave it out
}

func ExampleGenerateSecret() {
	_, err := signature.ParseSecret(signature.GenerateSecret())
	fmt.Println(err)
	// Output: <nil>
}

func ExampleSigner_Sign() {
	secret, err := signature.ParseSecret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	if err != nil {
		panic(err)
	}
	signer, err := signature.NewSigner(secret)
	if err != nil {
		panic(err)
	}
	fmt.Println(signer.Sign("msg_p5jXN8AQM9LWM0D4loKWxJek", time.Unix(1614265330, 0), []byte(`{"test": 2432232314}`)))
	// Output: v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=
}

// A receiver: read the bytes, verify them, and only then believe them.
func ExampleVerifier_Verify() {
	secret, err := signature.ParseSecret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	if err != nil {
		panic(err)
	}
	verifier := signature.Verifier{Secrets: []signature.Secret{secret}}
	receive := func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
		if err != nil {
			http.Error(w, "too large", http.StatusRequestEntityTooLarge)
			return
		}
		message, err := verifier.Verify(r.Header, body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusUnauthorized)
			return
		}
		fmt.Fprintf(w, "%s is genuine", message.ID)
	}

	r := httptest.NewRequest(http.MethodPost, "/webhooks", strings.NewReader(`{"test": 2432232314}`))
	r.Header.Set(signature.HeaderID, "msg_p5jXN8AQM9LWM0D4loKWxJek")
	r.Header.Set(signature.HeaderTimestamp, "1614265330") // years ago
	r.Header.Set(signature.HeaderSignature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=")
	w := httptest.NewRecorder()
	receive(w, r)
	fmt.Println(w.Code, strings.TrimSpace(w.Body.String()))

	_, err = verifier.VerifyAt(time.Unix(1614265331, 0), r.Header, []byte(`{"test":2432232314}`)) // a space is missing
	fmt.Println(errors.Is(err, signature.ErrSignature))
	// Output:
	// 401 webhook timestamp outside the tolerance
	// true
}

func ExampleScheme() {
	scheme := signature.GitHub()
	key, err := scheme.Key("It's a Secret to Everybody")
	if err != nil {
		panic(err)
	}
	r := signature.Request{
		Header: http.Header{"X-Hub-Signature-256": {"sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"}},
		Body:   []byte("Hello, World!"),
	}
	_, err = scheme.Verify(context.Background(), r, []signature.Key{key}, time.Now())
	fmt.Println(err)

	r.Body = []byte("Hello, Mallory!")
	_, err = scheme.Verify(context.Background(), r, []signature.Key{key}, time.Now())
	reason, _ := signature.Why(err)
	fmt.Println(reason)
	// Output:
	// <nil>
	// mismatch
}

// A sender that is not in this package.
func ExampleHMAC() {
	scheme := signature.HMAC{Header: "X-Acme-Signature", Form: "t={timestamp},v1={hex}", Signed: "{timestamp}.{body}"}
	_, key, err := scheme.NewKey()
	if err != nil {
		panic(err)
	}
	r := signature.Request{Header: http.Header{}, Body: []byte(`{}`)}
	if err := scheme.Sign(&r, "", []signature.Key{key}, time.Unix(1_800_000_000, 0)); err != nil {
		panic(err)
	}
	v, err := scheme.Verify(context.Background(), r, []signature.Key{key}, time.Unix(1_800_000_300, 0))
	fmt.Println(v.At.Unix(), err)
	_, err = scheme.Verify(context.Background(), r, []signature.Key{key}, time.Unix(1_800_000_301, 0))
	reason, _ := signature.Why(err)
	fmt.Println(reason)
	// Output:
	// 1800000000 <nil>
	// too_old
}

// A provider changes how it reads its secrets: while it does, both ways count.
func ExampleAnyOf() {
	text := signature.HMAC{Header: "X-Acme-Signature", Form: "{hex}", Signed: "{body}"}
	decoded := text
	decoded.Secret = signature.SecretForm{Encoding: signature.Base64, Prefix: "whsec_"}
	_, err := signature.AnyOf{text, decoded}.Key("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	fmt.Println(err)
	// Output: <nil>
}
