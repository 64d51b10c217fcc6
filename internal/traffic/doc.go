// Package traffic watches what a node does, for people: it counts, and it shows each attempt the
// moment it is recorded.
//
// A Tally counts in memory and writes the figures down every few seconds; questions asked of the
// same process see what is not written yet too. A Feed hands attempts to whoever looks on. Neither
// is on the way of an event: the node tells them after its transaction, and neither ever waits.
package traffic
