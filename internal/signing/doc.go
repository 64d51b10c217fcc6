// Package signing signs requests: by Standard Webhooks, with shared secrets and with key pairs,
// and by schemes that are data, for receivers that verify the way an older system signed.
//
// A scheme says how a secret becomes a key, what is signed, and in which headers the signature
// goes. Its texts hold placeholders, and substitution is all there is:
//
//	{"algorithm": "hmac-sha256", "secret_encoding": "utf8",
//	 "signed_content": "{timestamp}.{body}", "encoding": "hex",
//	 "headers": {"X-Acme-Signature": "t={timestamp},v1={signature}"}}
//
// {body} is the request's body, {timestamp} and {timestamp_ms} the time of the attempt in Unix
// seconds and milliseconds, {event_id} and {event_type} the event's, {url} the endpoint's, and
// {metadata.KEY} a value of the event's metadata, else of the endpoint's, else nothing. {{ and }}
// stand for a brace.
//
// Several schemes sign one request side by side, so that a receiver can change over when it
// suits; and several secrets of one scheme, while one takes over from the other. Where the header
// has room for several signatures, each live secret makes one (see Scheme.Repeat). Where it has
// not, the secret that is being replaced signs until it ends: the receiver has that long to learn
// the new one, and no moment at which it must change.
package signing
