package oracles

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	paddle "github.com/PaddleHQ/paddle-go-sdk/v4"
	"github.com/google/go-github/v74/github"
	"github.com/mailgun/mailgun-go/v4"
	"github.com/sendgrid/sendgrid-go/helpers/eventwebhook"
	"github.com/slack-go/slack"
	stripe "github.com/stripe/stripe-go/v82/webhook"
	svix "github.com/svix/svix-webhooks/go"
	twilio "github.com/twilio/twilio-go/client"

	"github.com/waybill-dev/waybill/signature"
)

// oracle is a provider's own library beside our scheme.
type oracle struct {
	scheme signature.SigningScheme
	secret func() string
	// verify is the library's word on a request.
	verify func(r signature.Request, secret string) error
	// sign signs as the library does, where it can.
	sign func(r *signature.Request, secret string, at time.Time) error
	body func() []byte
}

func word(ok bool, err error) error {
	if err == nil && !ok {
		err = fmt.Errorf("it does not match")
	}
	return err
}

var oracles = map[string]oracle{
	"stripe-go": {
		scheme: signature.Stripe(), secret: text("whsec_"), body: anyBytes,
		verify: func(r signature.Request, secret string) error {
			return stripe.ValidatePayload(r.Body, r.Header.Get("Stripe-Signature"), secret)
		},
		sign: func(r *signature.Request, secret string, at time.Time) error {
			signed := stripe.GenerateTestSignedPayload(&stripe.UnsignedPayload{Payload: r.Body, Secret: secret, Timestamp: at})
			r.Header.Set("Stripe-Signature", signed.Header)
			return nil
		},
	},
	"svix-webhooks": {
		scheme: signature.Standard(), secret: signature.GenerateSecret, body: anyBytes,
		verify: func(r signature.Request, secret string) error {
			w, err := svix.NewWebhook(secret)
			if err != nil {
				return err
			}
			return w.Verify(r.Body, r.Header)
		},
		sign: func(r *signature.Request, secret string, at time.Time) error {
			w, err := svix.NewWebhook(secret)
			if err != nil {
				return err
			}
			sig, err := w.Sign("msg_1", at, r.Body)
			r.Header.Set("svix-id", "msg_1")
			r.Header.Set("svix-timestamp", fmt.Sprint(at.Unix()))
			r.Header.Set("svix-signature", sig)
			return err
		},
	},
	"go-github": {
		scheme: signature.GitHub(), secret: text(""), body: anyBytes,
		verify: func(r signature.Request, secret string) error {
			return github.ValidateSignature(r.Header.Get("X-Hub-Signature-256"), r.Body, []byte(secret))
		},
	},
	"slack-go": {
		scheme: signature.Slack(), secret: text(""), body: anyBytes,
		verify: func(r signature.Request, secret string) error {
			v, err := slack.NewSecretsVerifier(r.Header, secret)
			if err != nil {
				return err
			}
			if _, err := v.Write(r.Body); err != nil {
				return err
			}
			return v.Ensure()
		},
	},
	"twilio-go": {
		scheme: signature.Twilio(), secret: text(""), body: form,
		verify: func(r signature.Request, secret string) error {
			v := twilio.NewRequestValidator(secret)
			values, err := url.ParseQuery(string(r.Body))
			if err != nil {
				return err
			}
			params := map[string]string{}
			for name := range values {
				params[name] = values.Get(name)
			}
			return word(v.Validate(r.URL, params, r.Header.Get("X-Twilio-Signature")), nil)
		},
	},
	"paddle-go-sdk": {
		scheme: signature.Paddle(), secret: text("pdl_ntfset_"), body: anyBytes,
		verify: func(r signature.Request, secret string) error {
			req, err := http.NewRequest(http.MethodPost, r.URL, bytes.NewReader(r.Body))
			if err != nil {
				return err
			}
			req.Header = r.Header
			return word(paddle.NewWebhookVerifier(secret).Verify(req))
		},
	},
}

func text(prefix string) func() string {
	return func() string { return prefix + strings.TrimPrefix(signature.GenerateSecret(), "whsec_") }
}

func anyBytes() []byte {
	body := make([]byte, rand.IntN(2000))
	for i := range body {
		body[i] = byte(rand.IntN(256))
	}
	return body
}

func form() []byte {
	values := url.Values{}
	for range 1 + rand.IntN(10) {
		values.Set(fmt.Sprint("Field", rand.IntN(50)), string(rune(32+rand.IntN(5000))))
	}
	return []byte(values.Encode())
}

func TestProviders_bothVerifyWhatTheOtherSigns(t *testing.T) {
	now := time.Now()
	for name, o := range oracles {
		t.Run(name, func(t *testing.T) {
			for range 200 {
				secret := o.secret()
				key, err := o.scheme.Key(secret)
				if err != nil {
					t.Fatal(err)
				}
				keys := []signature.Key{key}
				fresh := func() signature.Request {
					return signature.Request{
						Method: http.MethodPost, URL: "https://hooks.example.com/in?a=1", Body: o.body(),
						Header: http.Header{"Content-Type": {"application/x-www-form-urlencoded"}},
					}
				}
				r := fresh()
				if err := o.scheme.Sign(&r, "msg_1", keys, now); err != nil {
					t.Fatal(err)
				}
				if err := o.verify(r, secret); err != nil {
					t.Fatalf("%s refuses our signature over %q: %v", name, r.Body, err)
				}
				if err := o.verify(r, o.secret()); err == nil {
					t.Fatalf("%s accepts our signature under another secret", name)
				}
				r.Body = append(r.Body, 'x')
				if _, err := o.scheme.Verify(t.Context(), r, keys, now); err == nil {
					t.Fatalf("we accept another body: %q", r.Body)
				}
				if err := o.verify(r, secret); err == nil {
					t.Fatalf("%s accepts another body: %q", name, r.Body)
				}
				if o.sign == nil {
					continue
				}
				r = fresh()
				if err := o.sign(&r, secret, now); err != nil {
					t.Fatal(err)
				}
				if _, err := o.scheme.Verify(t.Context(), r, keys, now); err != nil {
					t.Fatalf("we refuse the signature of %s over %q: %v", name, r.Body, err)
				}
			}
		})
	}
}

// The vectors that the libraries test themselves with.
func TestProviders_bothVerifyThePublishedVectors(t *testing.T) {
	const sendgridKey = "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE83T4O/n84iotIvIW4mdBgQ/7dAfSmpqIM8kF9mN1flpVKS3GRqe62gw+2fNNRaINXvVpiglSI8eNEc6wEA3F+g=="
	sendgrid := signature.Request{Header: http.Header{}, Body: []byte(`[{"email":"hello@world.com","event":"dropped","reason":"Bounced Address","sg_event_id":"ZHJvcC0xMDk5NDkxOS1MUnpYbF9OSFN0T0doUTRrb2ZTbV9BLTA","sg_message_id":"LRzXl_NHStOGhQ4kofSm_A.filterdrecv-p3mdw1-756b745b58-kmzbl-18-5F5FC76C-9.0","smtp-id":"<LRzXl_NHStOGhQ4kofSm_A@ismtpd0039p1iad1.sendgrid.net>","timestamp":1600112492}]` + "\r\n")}
	sendgrid.Header.Set("X-Twilio-Email-Event-Webhook-Signature", "MEUCIGHQVtGj+Y3LkG9fLcxf3qfI10QysgDWmMOVmxG0u6ZUAiEAyBiXDWzM+uOe5W0JuG+luQAbPIqHh89M15TluLtEZtM=")
	sendgrid.Header.Set("X-Twilio-Email-Event-Webhook-Timestamp", "1600112502")
	public, err := eventwebhook.ConvertPublicKeyBase64ToECDSA(sendgridKey)
	if err != nil {
		t.Fatal(err)
	}
	paddle := signature.Request{Header: http.Header{}, Body: []byte(paddleBody)}
	paddle.Header.Set("Paddle-Signature", "ts=1710929255;h1=6c05ef8fa83c44d751be6d259ec955ce5638e2c54095bf128e408e2fce1589c8")
	for _, v := range []struct {
		name   string
		scheme signature.Scheme
		secret string
		r      signature.Request
		at     int64
		theirs func(r signature.Request) error
	}{
		{"sendgrid-go", signature.SendGrid(), sendgridKey, sendgrid, 1600112502, func(r signature.Request) error {
			return word(eventwebhook.VerifySignature(public, r.Body, r.Header.Get("X-Twilio-Email-Event-Webhook-Signature"), "1600112502"))
		}},
		{"paddle-go-sdk", signature.Paddle(), "pdl_ntfset_01hsdn8d43dt7mezr1ef2jtbaw_hKkRiCGyyRhbFwIUuqiTBgI7gnWoV0Gr", paddle, 1710929255, func(r signature.Request) error {
			return oracles["paddle-go-sdk"].verify(r, "pdl_ntfset_01hsdn8d43dt7mezr1ef2jtbaw_hKkRiCGyyRhbFwIUuqiTBgI7gnWoV0Gr")
		}},
	} {
		t.Run(v.name, func(t *testing.T) {
			key, err := v.scheme.Key(v.secret)
			if err != nil {
				t.Fatal(err)
			}
			at := time.Unix(v.at, 0)
			if _, err := v.scheme.Verify(t.Context(), v.r, []signature.Key{key}, at); err != nil {
				t.Errorf("we refuse it: %v", err)
			}
			if err := v.theirs(v.r); err != nil {
				t.Errorf("they refuse it: %v", err)
			}
			trimmed := v.r
			trimmed.Body = bytes.TrimSpace(trimmed.Body[:len(trimmed.Body)-1])
			if _, err := v.scheme.Verify(t.Context(), trimmed, []signature.Key{key}, at); err == nil {
				t.Error("we accept it trimmed")
			}
			if err := v.theirs(trimmed); err == nil {
				t.Error("they accept it trimmed")
			}
		})
	}
}

// Mailgun signs a token that comes in the body, and nothing else of it.
func TestProviders_mailgunAgreesWithMailgunGo(t *testing.T) {
	s := signature.Mailgun()
	now := time.Now()
	for i := range 200 {
		secret, other := text("")(), text("")()
		key, err := s.Key(secret)
		if err != nil {
			t.Fatal(err)
		}
		r := signature.Request{Method: http.MethodPost, Header: http.Header{"Content-Type": {"application/json"}}, Body: []byte(`{"event-data":{"event":"opened"}}`)}
		if err := s.Sign(&r, fmt.Sprint("token", i), []signature.Key{key}, now); err != nil {
			t.Fatal(err)
		}
		var sent mailgun.WebhookPayload
		if err := json.Unmarshal(r.Body, &sent); err != nil {
			t.Fatal(err)
		}
		theirs := func(secret string, sig mailgun.Signature) error {
			mg := mailgun.NewMailgun("example.com", "key")
			mg.SetWebhookSigningKey(secret)
			return word(mg.VerifyWebhookSignature(sig))
		}
		if err := theirs(secret, sent.Signature); err != nil {
			t.Fatalf("mailgun-go refuses our signature: %v", err)
		}
		if err := theirs(other, sent.Signature); err == nil {
			t.Fatal("mailgun-go accepts our signature under another secret")
		}
		changed := sent.Signature
		changed.Token += "x"
		if err := theirs(secret, changed); err == nil {
			t.Fatal("mailgun-go accepts another token")
		}
		body, err := json.Marshal(map[string]any{"signature": changed})
		if err != nil {
			t.Fatal(err)
		}
		r.Body = body
		if _, err := s.Verify(t.Context(), r, []signature.Key{key}, now); err == nil {
			t.Fatal("we accept another token")
		}
	}
}

// What the libraries let in, or keep out, and we must not.
func TestProviders_whereTheirVerifiersAreWrong(t *testing.T) {
	now := time.Now()
	body := []byte(`{}`)
	verify := func(s signature.SigningScheme, secret string, r signature.Request) error {
		key, err := s.Key(secret)
		if err != nil {
			return err
		}
		_, err = s.Verify(t.Context(), r, []signature.Key{key}, now)
		return err
	}
	t.Run("stripe-go takes an empty secret", func(t *testing.T) {
		header := stripe.GenerateTestSignedPayload(&stripe.UnsignedPayload{Payload: body, Secret: "", Timestamp: now}).Header
		r := signature.Request{Header: http.Header{"Stripe-Signature": {header}}, Body: body}
		if err := stripe.ValidatePayload(body, header, ""); err != nil {
			t.Logf("not any more: %v", err)
		}
		if verify(signature.Stripe(), "", r) == nil {
			t.Error("so do we")
		}
	})
	t.Run("stripe-go takes a time a year ahead", func(t *testing.T) {
		secret := text("whsec_")()
		header := stripe.GenerateTestSignedPayload(&stripe.UnsignedPayload{Payload: body, Secret: secret, Timestamp: now.AddDate(1, 0, 0)}).Header
		r := signature.Request{Header: http.Header{"Stripe-Signature": {header}}, Body: body}
		if err := stripe.ValidatePayload(body, header, secret); err != nil {
			t.Logf("not any more: %v", err)
		}
		if verify(signature.Stripe(), secret, r) == nil {
			t.Error("so do we")
		}
	})
	t.Run("paddle-go-sdk refuses every request of a rotation", func(t *testing.T) {
		s := signature.Paddle()
		old, next := text("pdl_ntfset_")(), text("pdl_ntfset_")()
		oldKey, err := s.Key(old)
		if err != nil {
			t.Fatal(err)
		}
		nextKey, err := s.Key(next)
		if err != nil {
			t.Fatal(err)
		}
		r := signature.Request{Header: http.Header{}, Body: body, URL: "https://hooks.example.com/"}
		if err := s.Sign(&r, "", []signature.Key{nextKey, oldKey}, now); err != nil {
			t.Fatal(err)
		}
		if err := oracles["paddle-go-sdk"].verify(r, old); err == nil {
			t.Log("not any more")
		}
		for _, secret := range []string{old, next} {
			if err := verify(s, secret, r); err != nil {
				t.Errorf("so do we: %v", err)
			}
		}
	})
}

// paddleBody is the payload of the SDK's own test.
const paddleBody = `{"data":{"id":"pri_01hsdn96k2hxjzsq5yerecdj9j","name":null,"status":"active","quantity":{"maximum":999999,"minimum":1},"tax_mode":"account_setting","product_id":"pro_01hsdn8qp7yydry3x1yeg6a9rv","unit_price":{"amount":"1000","currency_code":"USD"},"custom_data":null,"description":"testing","import_meta":null,"trial_period":null,"billing_cycle":{"interval":"month","frequency":1},"unit_price_overrides":[]},"event_id":"evt_01hsdn97563968dy0szkmgjwh3","event_type":"price.created","occurred_at":"2024-03-20T10:07:35.590857Z","notification_id":"ntf_01hsdn977e920kbgzt6r6c9rqc"}`
