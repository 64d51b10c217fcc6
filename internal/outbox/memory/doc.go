// Package memory is a store without a database: all of it lies in memory and is gone with it. It is
// there so that thousands of histories of the dispatcher can be simulated in the time that a real
// database needs for a hundred.
//
// It keeps the part of the contract that dispatching rests on, and is held to it by the same suite
// as the real stores (outboxtest.RunDispatching). What is not in that part (jobs, lists, sessions,
// sources …) it does not have: calling it panics.
//
// Every call is one transaction under one lock, so a caller sees the whole of it or nothing. What
// can go wrong between a caller and a database (lost answers, delays, a crash at any call) is
// brought about around it, not in it.
package memory
