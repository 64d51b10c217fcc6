// Package providers is what is known about who sends webhooks, each fact with its source and the
// month it was read in. Every function returns a fresh value: change what you know better.
//
// Where a provider does not publish its timeout, the value is the shortest that others report, and
// Guessed says so. Where it does not publish its waits, Retries is empty and Horizon is not.
package providers

import (
	"iter"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/waybill-dev/waybill/receive"
	"github.com/waybill-dev/waybill/signature"
)

const (
	day  = 24 * time.Hour
	read = "2026-11"
)

// StandardWebhooks is for senders who follow the standard and say no more, Waybill among them. The
// schedule is the standard's example, its longest.
func StandardWebhooks() receive.Provider {
	return receive.Provider{
		Name: "standard-webhooks", Scheme: signature.Standard(), Topic: receive.Lookup{Pointer: "/type"},
		Timeout: 15 * time.Second,
		Retries: []time.Duration{5 * time.Second, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour, 5 * time.Hour, 10 * time.Hour, 14 * time.Hour, 20 * time.Hour, 24 * time.Hour},
		Horizon: 75*time.Hour + 35*time.Minute + 5*time.Second,
		Stops:   []receive.CodeRange{{From: 410, To: 410}},
		Facts: []receive.Fact{
			{Says: "timeout of 15 to 30 s, example schedule, 410 disables", URL: "https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md", Read: read},
		},
	}
}

// Svix is also what Resend, Clerk and others send with. It tries for 27h35m05s.
func Svix() receive.Provider {
	return receive.Provider{
		Name: "svix", Scheme: signature.Standard(), Topic: receive.Lookup{Pointer: "/type"},
		Timeout: 15 * time.Second,
		Retries: []time.Duration{5 * time.Second, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour, 5 * time.Hour, 10 * time.Hour, 10 * time.Hour},
		Horizon: 27*time.Hour + 35*time.Minute + 5*time.Second, Manual: 7 * day, HonoursRetryAfter: true,
		Facts: []receive.Fact{
			{Says: "timeout and schedule", URL: "https://docs.svix.com/retries", Read: read},
			{Says: "Retry-After can only lengthen a wait", URL: "https://github.com/svix/svix-webhooks/blob/main/server/svix-server/src/worker.rs", Read: read},
		},
	}
}

// Resend sends through Svix.
func Resend() receive.Provider {
	p := Svix()
	p.Name = "resend"
	p.Facts = append(p.Facts, receive.Fact{Says: "schedule, replays", URL: "https://resend.com/docs/webhooks/retries-and-replays", Read: read})
	return p
}

// Stripe has its ids in the signed body, and tries for up to three days at times it does not publish.
// Distinct events may tell of one change. For Stripe Connect set Source.Account to /account.
func Stripe() receive.Provider {
	return receive.Provider{
		Name: "stripe", Scheme: signature.Stripe(),
		ID: receive.Lookup{Pointer: "/id"}, Topic: receive.Lookup{Pointer: "/type"},
		Timeout: 10 * time.Second, Guessed: true,
		Horizon: 3 * day, Manual: 30 * day,
		Facts: []receive.Fact{
			{Says: "tries for up to three days with growing waits", URL: "https://docs.stripe.com/webhooks", Read: read},
			{Says: "undelivered events can be had for 30 days", URL: "https://docs.stripe.com/webhooks/process-undelivered-events", Read: read},
		},
	}
}

// GitHub never tries again: use an Inbox. Its id is not signed, and the same when people redeliver.
func GitHub() receive.Provider {
	return receive.Provider{
		Name: "github", Scheme: signature.GitHub(),
		ID: receive.Lookup{Header: "X-GitHub-Delivery"}, Topic: receive.Lookup{Header: "X-GitHub-Event"},
		Timeout: 10 * time.Second, Manual: 3 * day, MaxBody: 25 << 20,
		Facts: []receive.Fact{
			{Says: "10 s, no automatic redelivery, manual for three days", URL: "https://docs.github.com/en/webhooks/using-webhooks/handling-failed-webhook-deliveries", Read: read},
			{Says: "payloads of up to 25 MB", URL: "https://docs.github.com/en/webhooks/webhook-events-and-payloads", Read: read},
		},
	}
}

// Shopify's id is not signed, and one id comes under several topics.
func Shopify() receive.Provider {
	return receive.Provider{
		Name: "shopify", Scheme: signature.Shopify(),
		ID: receive.Lookup{Header: "X-Shopify-Event-Id"}, Topic: receive.Lookup{Header: "X-Shopify-Topic"}, IDPerTopic: true,
		Timeout: 5 * time.Second, Guessed: true, Horizon: 4 * time.Hour,
		Facts: []receive.Fact{
			{Says: "8 retries over 4 hours", URL: "https://shopify.dev/changelog", Read: read},
			{Says: "X-Shopify-Event-Id tells repeats", URL: "https://shopify.dev/docs/apps/build/webhooks/ignore-duplicates", Read: read},
		},
	}
}

// Slack waits three seconds and tries three more times. Its handshake is signed.
func Slack() receive.Provider {
	return receive.Provider{
		Name: "slack", Scheme: signature.Slack(),
		ID: receive.Lookup{Pointer: "/event_id"}, Topic: receive.Lookup{Pointer: "/event/type"},
		Timeout: 3 * time.Second, Retries: []time.Duration{time.Second, time.Minute, 5 * time.Minute},
		Horizon:    6*time.Minute + time.Second,
		Handshakes: []receive.Handshake{{Method: http.MethodPost, Answer: slackChallenge}},
		Facts:      []receive.Fact{{Says: "3 s; tries at once, after 1 and after 5 minutes", URL: "https://docs.slack.dev/apis/events-api/", Read: read}},
	}
}

// Twilio's voice and messaging webhooks want TwiML back: use Sync, with a Deadline of a few seconds,
// because Twilio's one retry comes at once. Set Source.PublicURL.
func Twilio() receive.Provider {
	return receive.Provider{
		Name: "twilio", Scheme: signature.Twilio(), ID: receive.Lookup{Header: "I-Twilio-Idempotency-Token"},
		Timeout: 15 * time.Second, Retries: []time.Duration{0},
		Facts: []receive.Fact{{Says: "15 s in all, one retry unless the URL's fragment says otherwise, idempotency token", URL: "https://www.twilio.com/docs/usage/webhooks/webhooks-connection-overrides", Read: read}},
	}
}

// PayPal's signature covers a CRC of the body. client fetches its certificates.
func PayPal(client *http.Client) receive.Provider {
	return receive.Provider{
		Name: "paypal", Scheme: signature.PayPal(client),
		ID: receive.Lookup{Pointer: "/id"}, Topic: receive.Lookup{Pointer: "/event_type"},
		Timeout: 10 * time.Second, Guessed: true, Horizon: 3 * day,
		Facts: []receive.Fact{{Says: "up to 25 times over 3 days; what is signed", URL: "https://developer.paypal.com/api/rest/webhooks/rest/", Read: read}},
	}
}

// Square signs the notification URL as well. Set Source.PublicURL.
func Square() receive.Provider {
	return receive.Provider{
		Name: "square", Scheme: signature.Square(),
		ID: receive.Lookup{Pointer: "/event_id"}, Topic: receive.Lookup{Pointer: "/type"},
		Timeout: 10 * time.Second, Guessed: true, Horizon: 3 * day,
		Facts: []receive.Fact{{Says: "24 hours on one page and 72 on another, so the longer", URL: "https://developer.squareup.com/docs/webhooks/troubleshooting", Read: read}},
	}
}

// Paddle takes 200 alone for success.
func Paddle() receive.Provider {
	return receive.Provider{
		Name: "paddle", Scheme: signature.Paddle(),
		ID: receive.Lookup{Pointer: "/event_id"}, Topic: receive.Lookup{Pointer: "/event_type"},
		Timeout: 5 * time.Second, Horizon: 3 * day,
		Facts: []receive.Fact{{Says: "5 s, 60 times over 3 days", URL: "https://developer.paddle.com/webhooks/respond-to-webhooks", Read: read}},
	}
}

// Linear's id is not signed.
func Linear() receive.Provider {
	return receive.Provider{
		Name: "linear", Scheme: signature.Linear(),
		ID: receive.Lookup{Header: "Linear-Delivery"}, Topic: receive.Lookup{Header: "Linear-Event"},
		Timeout: 5 * time.Second, Retries: []time.Duration{time.Minute, time.Hour, 6 * time.Hour},
		Horizon: 7*time.Hour + time.Minute,
		Facts:   []receive.Fact{{Says: "5 s; tries after 1 minute, 1 hour and 6 hours", URL: "https://linear.app/developers/webhooks", Read: read}},
	}
}

// Mailgun signs a token and nothing else, and stops at 406.
func Mailgun() receive.Provider {
	return receive.Provider{
		Name: "mailgun", Scheme: signature.Mailgun(), Topic: receive.Lookup{Pointer: "/event-data/event"},
		Timeout: 10 * time.Second, Guessed: true,
		Retries: []time.Duration{5 * time.Minute, 10 * time.Minute, 15 * time.Minute, time.Hour, 2 * time.Hour, 4 * time.Hour},
		Horizon: 7*time.Hour + 30*time.Minute,
		Stops:   []receive.CodeRange{{From: 406, To: 406}},
		Facts:   []receive.Fact{{Says: "schedule; 406 stops", URL: "https://documentation.mailgun.com/docs/mailgun/user-manual/webhooks/webhooks", Read: read}},
	}
}

// Postmark's inbound mail comes with basic authentication alone, and stops at 403.
func Postmark() receive.Provider {
	return receive.Provider{
		Name: "postmark", Scheme: signature.BasicAuth{},
		ID: receive.Lookup{Pointer: "/MessageID"}, Topic: receive.Lookup{Pointer: "/RecordType"},
		Timeout: 10 * time.Second, Guessed: true, MaxBody: 35 << 20,
		Retries: []time.Duration{
			time.Minute, 5 * time.Minute, 10 * time.Minute, 10 * time.Minute, 10 * time.Minute,
			15 * time.Minute, 30 * time.Minute, time.Hour, 2 * time.Hour, 6 * time.Hour,
		},
		Horizon: 10*time.Hour + 30*time.Minute, Manual: 45 * day,
		Stops: []receive.CodeRange{{From: 403, To: 403}},
		Facts: []receive.Fact{{Says: "10 retries over ten and a half hours; 403 stops", URL: "https://postmarkapp.com/developer/webhooks/inbound-webhook", Read: read}},
	}
}

// SendGrid sends arrays; each element has its own id.
func SendGrid() receive.Provider {
	return receive.Provider{
		Name: "sendgrid", Scheme: signature.SendGrid(), Split: receive.JSONArray(""),
		ID: receive.Lookup{Pointer: "/sg_event_id"}, Topic: receive.Lookup{Pointer: "/event"},
		Timeout: 10 * time.Second, Guessed: true, Horizon: day,
		Facts: []receive.Fact{{Says: "tries for 24 hours", URL: "https://www.twilio.com/docs/sendgrid/for-developers/tracking-events/event", Read: read}},
	}
}

// Discord gives its events no id, wants 204, and sends wrong signatures on purpose to see a 401.
func Discord() receive.Provider {
	return receive.Provider{
		Name: "discord", Scheme: signature.Discord(), Topic: receive.Lookup{Pointer: "/event/type"},
		Timeout: 3 * time.Second, Horizon: 10 * time.Minute,
		Codes:      receive.Codes{OK: http.StatusNoContent, Rejected: http.StatusUnauthorized},
		Handshakes: []receive.Handshake{{Method: http.MethodPost, Answer: discordPing}},
		Facts:      []receive.Fact{{Says: "204 within 3 s; tries for 10 minutes; probes", URL: "https://docs.discord.com/developers/events/webhook-events", Read: read}},
	}
}

// Brevo gives up on every code but 2xx and 429, and sends a token of yours.
func Brevo() receive.Provider {
	return receive.Provider{
		Name: "brevo", Scheme: signature.SharedToken{Header: "Authorization"},
		ID: receive.Lookup{Pointer: "/id"}, Topic: receive.Lookup{Pointer: "/event"},
		Timeout: 10 * time.Second, Guessed: true,
		Retries: []time.Duration{10 * time.Minute, time.Hour, 2 * time.Hour, 8 * time.Hour},
		Horizon: 11*time.Hour + 10*time.Minute,
		Stops:   []receive.CodeRange{{From: 300, To: 428}, {From: 430, To: 599}},
		Codes:   receive.Codes{InFlight: 429, Failed: 429, Rejected: 429, TooLarge: 429},
		Facts:   []receive.Fact{{Says: "schedule; every 4xx but 429 and every 5xx discards", URL: "https://developers.brevo.com/docs/how-to-use-webhooks", Read: read}},
	}
}

// GitLab sends a token of yours. It is not published whether it tries again: use an Inbox.
func GitLab() receive.Provider {
	return receive.Provider{
		Name: "gitlab", Scheme: signature.SharedToken{Header: "X-Gitlab-Token"},
		ID: receive.Lookup{Header: "Idempotency-Key"}, Topic: receive.Lookup{Header: "X-Gitlab-Event"},
		Timeout: 10 * time.Second, Guessed: true, MaxBody: 25 << 20,
		Facts: []receive.Fact{{Says: "Idempotency-Key stays the same for a retried webhook", URL: "https://gitlab.com/gitlab-org/gitlab/-/merge_requests/160952", Read: read}},
	}
}

// Meta is WhatsApp, Messenger and Instagram. Its first request is a GET that must be answered with
// its challenge: set Source.ChallengeToken. Its events have no id of their own.
func Meta() receive.Provider {
	return receive.Provider{
		Name: "meta", Scheme: signature.GitHub(), Topic: receive.Lookup{Pointer: "/object"},
		Timeout: 5 * time.Second, Guessed: true, Horizon: 7 * day,
		Handshakes: []receive.Handshake{{Method: http.MethodGet, Answer: metaChallenge}},
		Facts:      []receive.Fact{{Says: "GET challenge; X-Hub-Signature-256. How long it tries differs from page to page; the longest", URL: "https://developers.facebook.com/docs/graph-api/webhooks/getting-started", Read: read}},
	}
}

// Kit sends up to a hundred events at once, each with an id of its own, and signs each attempt anew.
func Kit() receive.Provider {
	return receive.Provider{
		Name: "kit", Scheme: signature.Kit(), Split: receive.JSONArray("/events"),
		ID: receive.Lookup{Pointer: "/id"}, Topic: receive.Lookup{Pointer: "/type"},
		Timeout: 10 * time.Second, Guessed: true,
		Retries: []time.Duration{30 * time.Second, 2 * time.Minute, 15 * time.Minute, time.Hour, 4 * time.Hour, 12 * time.Hour, day},
		Horizon: 41*time.Hour + 17*time.Minute + 30*time.Second, HonoursRetryAfter: true,
		Stops: []receive.CodeRange{{From: 410, To: 410}},
		Facts: []receive.Fact{
			{Says: "waits; 410 stops; Retry-After on 429 and 503", URL: "https://developers.kit.com/webhooks/retries", Read: read},
			{Says: "what is signed; up to 100 events", URL: "https://developers.kit.com/webhooks/verifying-signatures", Read: read},
		},
	}
}

// Adyen's standard webhooks: up to six items, each signed by itself. An item is known by its
// pspReference, its eventCode and whether it was a success, which are signed; of what else it says,
// only the amount and the references are.
func Adyen() receive.Provider {
	return receive.Provider{
		Name: "adyen", Scheme: signature.Adyen(), Split: receive.JSONArray("/notificationItems"), Identify: adyenItem,
		Timeout: 10 * time.Second,
		Retries: []time.Duration{
			9 * time.Second, 9 * time.Second, 9 * time.Second,
			2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 15 * time.Minute, 30 * time.Minute, time.Hour, 2 * time.Hour, 4 * time.Hour, 8 * time.Hour,
		},
		Horizon: 30 * day,
		Facts: []receive.Fact{
			{Says: "three tries at once, then these waits, then every 8 hours for 30 days; any 2xx within 10 s", URL: "https://docs.adyen.com/development-resources/webhooks/troubleshoot", Read: read},
			{Says: "what is signed", URL: "https://docs.adyen.com/development-resources/webhooks/secure-webhooks/verify-hmac-signatures", Read: read},
		},
	}
}

// Wix waits a second and a quarter, and sends a token: the event is what it says. The secret is the
// app's public key.
func Wix() receive.Provider {
	return receive.Provider{
		Name: "wix", Scheme: signature.Wix(), Split: wixClaims, Identify: wixEvent,
		Timeout: 1250 * time.Millisecond, Horizon: 47*time.Hour + 11*time.Minute,
		Facts: []receive.Fact{
			{Says: "1.25 s; 12 tries over 47 hours, and only 200 is success", URL: "https://dev.wix.com/docs/build-apps/develop-your-app/extensions/backend-extensions/webhooks", Read: read},
			{Says: "the envelope and its ids", URL: "https://dev.wix.com/docs/rest/articles/get-started/webhook-structure", Read: read},
		},
	}
}

// AzureEventGrid, in its own schema (not that of CloudEvents). It signs nothing: give the subscription
// an address with ?code=SECRET at its end. It drops an event at 400, 401, 403 and 413.
func AzureEventGrid() receive.Provider {
	return receive.Provider{
		Name: "azure-event-grid", Scheme: signature.AzureEventGrid(), Split: receive.JSONArray(""),
		ID: receive.Lookup{Pointer: "/id"}, Topic: receive.Lookup{Pointer: "/eventType"},
		Timeout: 30 * time.Second, MaxBody: 1 << 20,
		Retries: []time.Duration{
			10 * time.Second, 30 * time.Second, time.Minute, 5 * time.Minute, 10 * time.Minute, 30 * time.Minute, time.Hour, 3 * time.Hour, 6 * time.Hour, 12 * time.Hour,
		},
		Horizon:    22*time.Hour + 46*time.Minute + 40*time.Second,
		Stops:      []receive.CodeRange{{From: 400, To: 401}, {From: 403, To: 403}, {From: 413, To: 413}},
		Codes:      receive.Codes{Rejected: http.StatusServiceUnavailable, TooLarge: http.StatusServiceUnavailable},
		Handshakes: []receive.Handshake{{Method: http.MethodPost, Answer: eventGridValidation}},
		Facts: []receive.Fact{
			{Says: "30 s; waits; codes that are not tried again; 1 MB", URL: "https://learn.microsoft.com/azure/event-grid/delivery-and-retry", Read: read},
			{Says: "the handshake", URL: "https://learn.microsoft.com/azure/event-grid/end-point-validation-event-grid-events-schema", Read: read},
		},
	}
}

// All are the providers, by name. PayPal's has no client: it verifies nothing until it is given one.
func All() iter.Seq[receive.Provider] {
	all := []receive.Provider{
		Adyen(), AzureEventGrid(), Brevo(), Discord(), GitHub(), GitLab(), Kit(), Linear(), Mailgun(), Meta(), Paddle(), PayPal(nil),
		Postmark(), Resend(), SendGrid(), Shopify(), Slack(), Square(), StandardWebhooks(), Stripe(), Svix(), Twilio(), Wix(),
	}
	slices.SortFunc(all, func(a, b receive.Provider) int { return strings.Compare(a.Name, b.Name) })
	return slices.Values(all)
}

// Named finds one, for a configuration file.
func Named(name string) (receive.Provider, bool) {
	for p := range All() {
		if p.Name == name {
			return p, true
		}
	}
	return receive.Provider{}, false
}
