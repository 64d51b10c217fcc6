// Package quarantine handles, in a process of its own, what may have killed a process.
//
// The Runner starts the program's hidden command, which calls Serve. They speak over the child's
// standard streams, in gob, which keeps every byte of an answer as it was:
//
//	child   hello     it runs; only from here on can what it is given have killed it
//	parent  order     one delivery with its target, or one outbox row; how to send
//	child   answer    what came of it, and the child ends
//
// The order holds the endpoint's secrets in the clear. It goes through the pipe alone: not into
// arguments, environment or log. A child whose parent is gone sees the end of its input and ends.
package quarantine
