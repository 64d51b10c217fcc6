// Package receive takes webhooks in without losing one and without letting a repeat do harm.
//
// There are two ways, and the types keep them apart.
//
// [Inbox], the one to use: the request is verified, its bytes are committed to your database, the
// provider gets its 2xx, and a worker runs your handler until it succeeds or the event is a dead
// letter. The provider's patience, its timeout and its retry schedule stop mattering the moment
// the row is committed. A repeat is a 2xx, always, because the event is already written down.
//
//	inbox, err := receive.NewInbox(ctx, receive.InboxConfig{
//		Source:  receive.Source{Name: "billing", Provider: providers.Stripe(), Secrets: receive.Secrets(os.Getenv("STRIPE_WEBHOOK_SECRET"))},
//		Store:   pgstore.New(pool),
//		Handler: fulfil,
//	})
//	…
//	http.Handle("POST /stripe", inbox)
//	return inbox.Run(ctx)
//
// [Sync], for an answer that must come from the handler, or where there is only Redis: claim,
// handle, settle, all inside the provider's request. It leans on the provider's retries, so it
// refuses to start where they are not good enough.
//
// # What is promised
//
//   - A 2xx is never sent before one of these is durable: the inbox row, the handler's success,
//     the dead letter. A handshake, and a topic you declined, are the only other 2xx.
//   - Inbox: after the 2xx the handler succeeds at least once, or the event is a dead letter. No
//     condition.
//   - Sync: the same, if the provider tries again after the lease of the last run has ended.
//     [Simulate] shows when.
//   - With a store's InTx the handler's writes in that transaction happen exactly once within
//     Retain. Otherwise at least once: a run that was overtaken, or whose success could not be
//     recorded, may have had a twin.
//
// # What a repeat is
//
// The key of an event is (source name, account, id, place in the batch) and, if the signature does
// not cover the id, the body's digest. An event without an id is never a repeat.
//
// # Errors of a handler
//
// nil: done. [Permanent]: a dead letter now. [RetryAfter]: not before then. Anything else, and a
// panic: again.
package receive
