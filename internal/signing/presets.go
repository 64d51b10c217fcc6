package signing

import "maps"

// presets are the schemes of well-known senders, by which receivers that were written for one of
// them verify without a change. {event_type} and {event_id} stand in the headers those senders
// have for them.
var presets = map[string]Scheme{
	// The secret is the whole text, "whsec_" included.
	// https://docs.stripe.com/webhooks#verify-manually
	"stripe": {
		Algorithm: "hmac-sha256", SecretEncoding: "utf8", SecretMin: 8,
		SignedContent: "{timestamp}.{body}", Encoding: "hex",
		Headers: map[string]string{"Stripe-Signature": "t={timestamp},v1={signature}"},
	},
	// https://docs.github.com/en/webhooks/using-webhooks/validating-webhook-deliveries
	"github": {
		Algorithm: "hmac-sha256", SecretEncoding: "utf8",
		SignedContent: "{body}", Encoding: "hex",
		Headers: map[string]string{
			"X-Hub-Signature-256": "sha256={signature}",
			"X-GitHub-Event":      "{event_type}",
			"X-GitHub-Delivery":   "{event_id}",
		},
	},
	// https://shopify.dev/docs/apps/build/webhooks/subscribe/https
	"shopify": {
		Algorithm: "hmac-sha256", SecretEncoding: "utf8",
		SignedContent: "{body}", Encoding: "base64",
		Headers: map[string]string{
			"X-Shopify-Hmac-Sha256": "{signature}",
			"X-Shopify-Topic":       "{event_type}",
			"X-Shopify-Webhook-Id":  "{event_id}",
		},
	},
	// https://docs.svix.com/receiving/verifying-payloads/how-manual
	"svix": {
		Algorithm: "hmac-sha256", SecretEncoding: "base64", SecretPrefix: "whsec_", SecretMin: 24, SecretMax: 75,
		SignedContent: "{event_id}.{timestamp}.{body}", Encoding: "base64",
		Headers: map[string]string{
			"svix-id":        "{event_id}",
			"svix-timestamp": "{timestamp}",
			"svix-signature": "v1,{signature}",
		},
		Repeat: map[string]string{"svix-signature": " v1,{signature}"},
	},
	// The advanced form, which covers the time and takes several signatures.
	// https://www.getconvoy.io/docs/webhook-guides/manual-verification
	"convoy": {
		Algorithm: "hmac-sha256", SecretEncoding: "utf8",
		SignedContent: "{timestamp},{body}", Encoding: "hex",
		Headers: map[string]string{"X-Convoy-Signature": "t={timestamp},v1={signature}"},
	},
	// https://hookdeck.com/docs/outpost/destinations/webhook
	"outpost": {
		Algorithm: "hmac-sha256", SecretEncoding: "utf8",
		SignedContent: "{timestamp}.{body}", Encoding: "hex",
		Headers: map[string]string{
			"x-outpost-signature": "t={timestamp},v0={signature}",
			"x-outpost-event-id":  "{event_id}",
			"x-outpost-topic":     "{event_type}",
			"x-outpost-timestamp": "{timestamp}",
		},
		Repeat: map[string]string{"x-outpost-signature": ",{signature}"},
	},
}

// Presets returns the schemes that are built in as data, by name.
func Presets() map[string]Scheme { return maps.Clone(presets) }
