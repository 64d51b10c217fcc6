// Package bench measures Waybill as ratios in one run.
//
// A figure of events per second says more about the machine than about the software, so every
// scenario is divided by R0 of the same run: signed POSTs per second of the same size, with the
// same HTTP client, to the same sink, storing nothing. The sink, the server and the publisher are
// processes of their own, made from this same binary, so that none borrows another's garbage
// collector or run queue.
package bench
