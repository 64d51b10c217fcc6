// Package route turns outbox rows into deliveries: which endpoints want an event, in which order
// waiting events are taken, and what number each delivery gets. It decides; the node that owns
// the shard (package dispatch) reads and writes.
package route
