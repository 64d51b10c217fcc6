// Package listen is the receiver on a developer's machine: it takes webhooks, checks their
// signatures and shows each as one line, the moment it arrives.
//
// Receiver is the HTTP handler. Puller brings events to it, or to any local address, that the
// developer's machine could not be sent: it hears new events over a stream, signs them as
// the server would and posts them.
package listen
