package signature

import (
	"net/http"
	"time"
)

// Standard is Standard Webhooks, Svix and Resend (which also spell the headers svix-*).
func Standard() StandardWebhooks { return StandardWebhooks{} }

// Stripe is "t=…,v1=hex" over "t.body"; whsec_… is used verbatim.
func Stripe() HMAC {
	return HMAC{Header: "Stripe-Signature", Form: "t={timestamp},v1={hex}", Signed: "{timestamp}.{body}"}
}

// GitHub is "sha256=hex" over the body. The older SHA-1 header is never read.
func GitHub() HMAC {
	return HMAC{Header: "X-Hub-Signature-256", Form: "sha256={hex}", Signed: "{body}"}
}

// Shopify is base64 over the body.
func Shopify() HMAC {
	return HMAC{Header: "X-Shopify-Hmac-Sha256", Form: "{base64}", Signed: "{body}"}
}

// Slack is "v0=hex" over "v0:timestamp:body".
func Slack() HMAC {
	return HMAC{
		Header: "X-Slack-Signature", Form: "v0={hex}", Signed: "v0:{timestamp}:{body}",
		TimeHeader: "X-Slack-Request-Timestamp",
	}
}

// Paddle is "ts=…;h1=hex" over "ts:body".
func Paddle() HMAC {
	return HMAC{Header: "Paddle-Signature", Form: "ts={timestamp};h1={hex}", Signed: "{timestamp}:{body}"}
}

// Square is base64 over the notification URL and the body.
func Square() HMAC {
	return HMAC{Header: "x-square-hmacsha256-signature", Form: "{base64}", Signed: "{url}{body}"}
}

// Linear is bare hexadecimal over the body.
func Linear() HMAC {
	return HMAC{Header: "Linear-Signature", Form: "{hex}", Signed: "{body}"}
}

// Twilio is the URL and the form's fields.
func Twilio() TwilioForm { return TwilioForm{} }

// Mailgun is a time and a token in the body.
func Mailgun() MailgunToken { return MailgunToken{} }

// Kit is "t=…,v1=hex" over "t.body", signed anew for each attempt.
func Kit() HMAC {
	return HMAC{Header: "X-Kit-Signature", Form: "t={timestamp},v1={hex}", Signed: "{timestamp}.{body}"}
}

// Adyen is an HMAC in each item of the body.
func Adyen() AdyenItems { return AdyenItems{} }

// Wix is a token of its own as the body.
func Wix() JWTBody { return JWTBody{} }

// AzureEventGrid is the parameter code of the address that the subscription is given.
func AzureEventGrid() SharedToken { return SharedToken{Query: "code"} }

// Discord is Ed25519 over timestamp and body. It tries for ten minutes, and it is not said whether
// each attempt has a time of its own.
func Discord() Ed25519 {
	return Ed25519{Header: "X-Signature-Ed25519", TimeHeader: "X-Signature-Timestamp", Tolerance: 15 * time.Minute}
}

// SendGrid is ECDSA over timestamp and body. It tries for a day, and it is not said whether each
// attempt has a time of its own.
func SendGrid() ECDSA {
	return ECDSA{
		Header: "X-Twilio-Email-Event-Webhook-Signature", TimeHeader: "X-Twilio-Email-Event-Webhook-Timestamp",
		Tolerance: 25 * time.Hour,
	}
}

// PayPal verifies with certificates fetched by client, which should be guarded against strangers'
// addresses: the request names the certificate's, and only one at PayPal is asked for.
func PayPal(client *http.Client) *PayPalRSA { return &PayPalRSA{Client: client} }

var (
	_ SigningScheme = HMAC{}
	_ SigningScheme = StandardWebhooks{}
	_ SigningScheme = TwilioForm{}
	_ SigningScheme = MailgunToken{}
	_ SigningScheme = Ed25519{}
	_ SigningScheme = ECDSA{}
	_ SigningScheme = SharedToken{}
	_ SigningScheme = AdyenItems{}
	_ SigningScheme = JWTBody{}
	_ SigningScheme = BasicAuth{}
	_ Scheme        = (*PayPalRSA)(nil)
	_ Scheme        = AnyOf(nil)
)
