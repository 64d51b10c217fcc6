// Package faults holds the tests that break things under load: the server is killed, the
// database is stopped. What an accepted event may cost then is a repeated delivery, never a lost
// one.
//
// Nothing of Waybill judges itself here. A ledger keeps what publishers were told was accepted
// (a 2xx, or their own commit), a receiver keeps what arrived and checks signatures by its own
// arithmetic, and the two are compared.
package faults
