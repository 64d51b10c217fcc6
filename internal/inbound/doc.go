// Package inbound is the gateway: somebody else's webhooks arrive at POST /in/{source}, are verified
// and become events of the source's tenant, which then go the way of every other event.
//
// The rules, each of which is a lost or a doubled event where it is broken:
//
//   - A provider hears 2xx only once the event, and the row that keeps its repeat out, are committed
//     in one transaction, or are found committed. All else is a code after which it tries again.
//   - A provider that hangs up does not stop a commit half way; its next attempt is a repeat.
//   - A database that does not answer is the provider's failure code within its patience, and never
//     longer than two seconds.
//   - Nothing is written before a request is verified. What is refused is counted, and a sample of it
//     is written down later, so that strangers set no pace.
//   - An id whose body is another than the first one's is kept beside it, for people, before the
//     provider is told that the event is known.
package inbound
