// Package publish commits accepted events in groups: many callers, one transaction, one fsync.
//
// The rules, each of which is a lost or a doubled event where it is broken:
//
//   - Ids are minted before the transaction. When a connection breaks while the commit is in
//     flight nobody knows whether it happened, so the very same batch is run again until the
//     store gives a definite answer; a batch that was stored is then met, not stored twice.
//     Answering "try again" instead would make the caller publish under another id.
//   - A batch the database refuses for its content is halved down to the guilty submission:
//     a stranger's bad event never costs the others theirs.
//   - Events that may meet an earlier one (an idempotency key, a chosen id) are committed apart
//     from the rest. One uncommitted key elsewhere makes everything in the same transaction
//     wait; measured without this rule, all callers stood still for 3.6 s.
//   - What is small never stands behind what is bulk: a request with a thousand events, or what a
//     tenant has beyond its first hundred, is committed apart, by turns of the tenants, and gives
//     way (package priority).
//   - A submission is all or nothing, and is answered exactly once.
//   - What is taken into the queue is answered, also when the process is told to stop. What
//     does not fit into the bounded queue is refused at once.
package publish
