// Package priority lets what is bulk give way to what is small.
//
// One customer may publish a million events at once. Queues of their own keep everybody else's few
// from standing behind them (package publish, package route), but the machine and the database are
// shared: two transactions of a thousand rows beside it make a small one several times as slow. So
// while small work is about, bulk work is done one transaction at a time, and pauses after each for
// as long as the small transactions show that it must: they are what is measured, not the load.
// With no small work about nothing waits for anything.
package priority
