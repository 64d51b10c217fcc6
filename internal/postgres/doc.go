// Package postgres is the store on PostgreSQL 15 or newer: the schema waybill with its
// migrations, the function waybill.publish for callers' own transactions, and everything
// package outbox asks of a store.
//
// Three habits run through it.
//
// Hot writes are pipelined: a transaction is one or two round trips however many statements it
// has, and every statement takes a whole batch as arrays. What a transaction counts in the
// ledger it derives from the rows its statements returned, never from the length of the batch:
// a late owner and a new one may both finish the same delivery.
//
// Every hot statement names the shard, and every read of the two partitioned tables names a
// range of ids, so that the planner looks at one or two days instead of all of them.
//
// A failed write says what it means for the caller (outbox.WriteError). The dangerous one is a
// connection that breaks while its commit is on the way: nobody knows, so every write may be run
// again and then changes nothing.
package postgres
