// Package outboxtest is the conformance suite of outbox.Store: what a store must do to be one.
//
// Both stores pass it, and the rest of the system relies on nothing else. A behaviour that is
// not here is not a promise: before code starts to count on one, it gets a test here.
//
// The expected values come from arithmetic in the tests, never from what a store printed. The
// books in particular are kept a second time in memory (books.go), and random histories are
// played against both.
package outboxtest
