// Package nodes holds the tests of several nodes on one PostgreSQL: real processes that join,
// leave, are killed, frozen and cut off from the database while others go on.
//
// What a receiver sees is the judge. Every accepted event must arrive, under one id. Every
// request beyond the first for an event must have its cause in the test's own diary of what it
// did to whom, and no tenant may ever have more requests open than its cap, whichever nodes they
// come from.
package nodes
