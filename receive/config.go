package receive

import (
	"log/slog"
	"time"
)

// InboxConfig is what NewInbox needs. Source, Store and Handler are required; the zero value of the
// rest is good.
type InboxConfig struct {
	Source  Source
	Store   InboxStore // durable by type: pgstore or sqlstore. redisstore and memstore do not fit
	Handler Handler

	// Fallback takes requests while Store is down or slow, say a local sqlstore.SQLite; Run drains
	// both. Default: none, the provider is told to come back, and one that never does (GitHub) has
	// lost the event. An event that reached both may run in both.
	Fallback InboxStore
	// RunElsewhere says another process runs the worker. Default false: ServeHTTP answers the
	// provider's failure code until Run has been called, so that a forgotten Run shows on the first
	// request and not on the last day of somebody's month.
	RunElsewhere bool

	// Deadline of one run. Default 1 minute. The lease is derived from it and renewed while the
	// handler runs, never beyond it.
	Deadline time.Duration
	// Grace is for a handler to notice its ctx. Default 2 s.
	Grace time.Duration
	// Workers is how many handlers run at once. Default 8. An event is taken only when it can start.
	Workers int
	// Poll is how often the store is asked for work that nobody told this process of: retries, and
	// events that another process wrote down. Default 1 s.
	Poll time.Duration
	// Retry is when a failed run is tried again.
	Retry Retry
	// Retain is how long a finished event is remembered. Default: what the provider can resend, at
	// least 7 days. Pending events and dead letters are never dropped.
	Retain time.Duration
	// StoreBudget is how long the store may take for one request. Default 250 ms if there is a
	// Fallback to turn to; else half of the provider's timeout, at most 2 s, because there is
	// nothing better to do than to wait.
	StoreBudget time.Duration

	Waive   []Rule // rules to break on purpose; said in the log at every start
	Logger  *slog.Logger
	Observe Observer
}

// Retry is a schedule with jitter from a half to the whole of: First, doubling, at most Max, for
// Window or Runs.
type Retry struct {
	First  time.Duration // default 5 s
	Max    time.Duration // default 1 h
	Window time.Duration // default 3 days from arrival; then a dead letter
	Runs   int           // default no limit; runs that crashed count
	// Crashes is how many runs in a row may end without an outcome (the process died, the lease ran
	// out) before the event is a dead letter with reason "poison". Default 3.
	Crashes int
}

// SyncConfig is what NewSync needs. Source, Store and Handler are required; the zero value of the
// rest is good.
type SyncConfig struct {
	Source  Source
	Store   ClaimStore // redisstore, pgstore, sqlstore; memstore for one process
	Handler Handler

	// StoreDown is what happens when a claim cannot be had within StoreBudget. Default [Closed].
	StoreDown StoreDown
	// DeadLetters keeps events that failed permanently. Default: Store, if it can. Without one, a
	// permanent error is answered like any other, and the provider keeps trying until it gives up:
	// there is nowhere to put the event.
	DeadLetters DeadLetterStore

	// Deadline of the handler. Default: what the provider's timeout leaves after two StoreBudgets
	// and a second. The lease is Deadline + Grace + StoreBudget, counted from before the claim is
	// sent; it is never typed.
	Deadline time.Duration
	// Grace is for a handler to notice its ctx. Default 2 s.
	Grace time.Duration
	// Wait is how long a repeat is held for the first run's outcome. Default: what the provider's
	// timeout leaves. Negative: not at all.
	Wait time.Duration
	// Retain is how long success is remembered. Default: what the provider can resend, at least 7
	// days.
	Retain time.Duration
	// StoreBudget is how long a claim may take, all tries together. Default 250 ms.
	StoreBudget time.Duration
	// OutcomeHeader adds Waybill-Outcome: processed, duplicate, in_flight, degraded.
	OutcomeHeader bool

	Waive   []Rule
	Logger  *slog.Logger
	Observe Observer
}

// StoreDown is a policy for a store that is down or slow.
type StoreDown struct {
	open     bool
	fallback ClaimStore
}

var (
	// Closed answers the provider's try-again code.
	Closed = StoreDown{}
	// Open runs the handler without a claim: Delivery.Degraded is set, and a repeat may run beside
	// it. For handlers that may safely run twice.
	Open = StoreDown{open: true}
)

// Fallback claims in another store meanwhile. Whichever store granted a claim settles it.
func Fallback(s ClaimStore) StoreDown { return StoreDown{fallback: s} }
