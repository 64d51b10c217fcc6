// Package sqlite keeps a whole Waybill in one SQLite file.
//
// One goroutine writes. Callers hand it their work; it runs what has gathered in one transaction
// and answers after the commit, so that many callers share one fsync. Each caller's work stands
// under a savepoint of its own: if it fails, it alone is undone. Reads go through a pool of
// connections of their own, each read in a transaction, and neither wait for the writer nor hold
// it up.
//
// The file is in WAL mode with synchronous=FULL: a commit that was answered survives the process
// and the power. A process that dies between any two lines leaves either the whole transaction
// or nothing of it.
//
// One process at a time dispatches from a file; see [Lock]. Others may have it open too: verify,
// and applications that publish from transactions of their own.
package sqlite
