// Package dispatch decides whose turn it is, and runs the node that acts on it.
//
// A node owns shards. It reads their outbox rows, routes them into deliveries (package route),
// keeps the next few due ones of every endpoint in memory, chooses among them fairly, runs the
// attempts (package attempt) and records what came of them. The loops, each in a file:
//
//	beat.go     heartbeat, taking and releasing shards, configuration
//	intake.go   outbox rows into the router's fair queue
//	routing.go  outbox rows into deliveries
//	fetch.go    due deliveries into memory
//	send.go     attempts
//	record.go   results into the database
//	careful.go  writing down what is about to be handled, after a death
//	suspects.go what may have killed a process, in one of its own
//
// Choosing is in schedule.go and knows no database and no network: two start-time fair queues,
// tenants by worker time divided by weight, and each tenant's endpoints likewise. A tenant at its
// cap is not in the queue, so skipping it costs nothing, and a backlog of millions stays in the
// database: per endpoint only a few times its limit is in memory.
//
// Nothing is claimed in the database and, but in shards whose last owner died, nothing is written
// when an attempt starts. A process that dies at any line leaves its deliveries pending, and the
// shard's next owner sends them again under the same webhook-id.
package dispatch
