// Package attempt makes one try to deliver an event: build the request, sign it, send it through
// the egress guard, read a bounded answer, and say what it means.
//
//	Prepare   what is the same for every attempt to an endpoint: URL, headers, keys
//	Do        one attempt, under one deadline from the lookup to the last byte that is read
//	Backoff   when to try again, from the number of failures and the receiver's Retry-After
//
// Nothing is ever sent twice by one attempt. The body cannot be rewound (no GetBody), and no
// header asks the transport to believe that repeating is safe, so a connection that dies is a
// failure that is seen, recorded, and tried again as an attempt of its own.
//
// Once a status line is in, it decides. A 2xx is a delivery whatever the body does: the receiver
// has the event, and another copy would not make it more delivered.
//
// What a customer gets to read is one of the sentences in sentences.go. The text of Go's errors
// stays inside: it carries internal addresses.
package attempt
