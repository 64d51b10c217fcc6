// Package signature signs and verifies webhooks as Standard Webhooks 1.0 says
// (https://www.standardwebhooks.com), and verifies those of other providers.
//
// A message is signed with HMAC-SHA256 over its id, its time in Unix seconds and its exact body,
// joined by dots, and sent with three headers:
//
//	webhook-id: evt_01jd…                 the same for every attempt to deliver the message
//	webhook-timestamp: 1732970000         when this attempt was signed
//	webhook-signature: v1,<base64> v1,…   one for every live secret, so that a rotation has no gap
//
// A receiver should verify before it reads the body as anything but bytes, and use the id
// returned to recognise a message it already has:
//
//	secret, err := signature.ParseSecret(os.Getenv("WEBHOOK_SECRET"))
//	…
//	verifier := signature.Verifier{Secrets: []signature.Secret{secret}}
//	message, err := verifier.Verify(r.Header, body)
//
// For other senders there is a [Scheme] each ([Stripe], [GitHub], [Slack], …), and [HMAC] makes one
// from data. A Scheme works on raw bytes, in constant time, with every key against every signature
// that a request carries; it refuses empty and short secrets; it looks at a signed time on both
// sides; and it returns the id it verified. Why names the reason of a refusal:
//
//	scheme := signature.Stripe()
//	key, err := scheme.Key(os.Getenv("STRIPE_WEBHOOK_SECRET"))
//	…
//	_, err = scheme.Verify(ctx, signature.Request{Header: r.Header, Body: body}, []signature.Key{key}, time.Now())
//	if reason, ok := signature.Why(err); ok { … reason == signature.TooOld … }
//
// Nothing parses a body that is not verified yet, with two exceptions that say so: Twilio signs form
// fields, and Mailgun's signature is in the body.
//
// The package imports the standard library only.
package signature
